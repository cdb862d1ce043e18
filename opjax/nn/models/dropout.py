"""Dropout in the layers of transformers during training."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from opjax.nn.bases.expansions import Basis
from opjax.nn.division import Use
from opjax.nn.layers import LayerNorm
from opjax.nn.models._given import NO_POINTS, Points
from opjax.nn.models.encoder import Block, EncoderLayer

_Model = TypeVar("_Model", bound=Any)


class _Around(nnx.Module):
    """Layers stacked along leading axes, or one, with dropout around them."""

    inner: Block | EncoderLayer
    rate: float

    @property
    def attention(self) -> Any:
        """The attention of the layers."""
        return self.inner.attention

    @property
    def attention_norm(self) -> LayerNorm | None:
        """The normalisation at the attention of the layers."""
        return self.inner.attention_norm

    @property
    def mlp_norm(self) -> LayerNorm | None:
        """The normalisation at the perceptron of the layers."""
        return self.inner.mlp_norm

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `nn.division`, or `None`."""
        if use == "narrow" and isinstance(self.inner, Block):
            return self.inner.obstacle(use, shared)
        return "dropout is drawn for all points together"


class Dropout(_Around):
    r"""Layers with dropout during training.

        x -> m x / (1 - rate),    m = 0 with probability `rate`, else 1,

    is applied to the output of the attention. In an `EncoderLayer` it is also applied
    to the hidden layer and the output of the perceptron. In evaluation there is no
    dropout.

    Args:
      inner: the layer, or layers stacked along leading axes.
      rate: dropout rate, at least 0 and below 1.

    Raises:
      ValueError: if the rate is out of range.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> block = nn.models.Block(8, mlp_ratio=1, attention=attention, rngs=nnx.Rngs(0))
      >>> dropout = nn.models.Dropout(block, rate=0.1)
      >>> dropout(jnp.ones((9, 8))).shape  # as the block: drops nothing in evaluation
      (9, 8)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Table 7; its code
      drops half of the attention weights besides, in evaluation too.
      Xiao et al., "Functional Attention", 2026, the program of section 5.3.
    """

    def __init__(self, inner: Block | EncoderLayer, rate: float):
        if not 0 <= rate < 1:
            raise ValueError(f"{rate=} must be at least 0 and below 1.")
        self.inner, self.rate = inner, rate

    def __call__(self, z: jax.Array, points: Points = NO_POINTS) -> jax.Array:
        """Evaluates the layer, without dropout."""
        return self.inner(z, points)

    def with_noise(self, key: jax.Array) -> "Dropping":
        """Returns the layers of one training step, each with its own key."""
        keys = jax.random.split(key, self.inner.stacked)
        return Dropping(self.inner, self.rate, keys)


class Dropping(_Around):
    """Layers with dropout that is drawn from keys, one key per layer."""

    def __init__(self, inner: Block | EncoderLayer, rate: float, keys: jax.Array):
        self.inner, self.rate, self.keys = inner, rate, nnx.Variable(keys)

    def __call__(self, z: jax.Array, points: Points = NO_POINTS) -> jax.Array:
        """Evaluates the layer, with dropout."""
        return self.inner(z, points, drop=self.drop)

    def drop(self, x: jax.Array, place: int) -> jax.Array:
        """Sets random entries to zero; each place in the layer draws separately."""
        key = jax.random.fold_in(self.keys[...], place)
        kept = jax.random.bernoulli(key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0)


def with_dropout(model: _Model, rate: float) -> _Model:
    """Adds dropout to the layers of a model, in place.

    Args:
      model: an `OperatorTransformer`, a `GalerkinTransformer2d` or a
        `SuperResolutionTransformer`.
      rate: dropout rate, see `Dropout`; at zero the model is unchanged.

    Returns:
      The fitted model.

    Raises:
      ValueError: if the rate is out of range, or the model computes points in chunks.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax import nn
      >>> model = nn.SuperResolutionTransformer(
      ...     features=8, num_layers=1, hidden_features=8, modes=2, decoder_features=4,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model = nn.models.with_dropout(model, rate=0.1)
      >>> nn.bases.draws_noise(model)  # with nn.bases.with_noise, in training
      True
    """
    if not rate:
        return model
    if getattr(model, "chunk_size", None) is not None:
        raise ValueError(
            f"dropout={rate} is drawn for all points jointly, but "
            f"chunk_size={model.chunk_size}; omit one of them."
        )
    name = "blocks" if hasattr(model, "blocks") else "layers"
    setattr(model, name, Dropout(getattr(model, name), rate))
    return model


def without_dropout(model: _Model) -> _Model:
    """Returns the model without its dropout layers.

    Its outputs in evaluation are the same. It supports chunks and streaming if its
    layers do.

    Args:
      model: any model; it is not modified. A model without dropout is returned
        unchanged.

    Examples:
      >>> from flax import nnx
      >>> from opjax import nn
      >>> model = nn.SuperResolutionTransformer(
      ...     features=8, num_layers=1, hidden_features=8, modes=2, decoder_features=4,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model = nn.models.with_dropout(model, rate=0.1)
      >>> nn.bases.draws_noise(nn.models.without_dropout(model))
      False
    """
    for name in ("blocks", "layers"):
        layers = getattr(model, name, None)
        if isinstance(layers, Dropout):
            model = jax.tree.map(lambda leaf: leaf, model)
            setattr(model, name, layers.inner)
    return model
