"""Dropout in the encoder layers of Galerkin transformers, while they are trained."""

from typing import Any, TypeVar, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from opjax.nn.models._given import AttentionArguments
from opjax.nn.models.encoder import EncoderLayer

_Model = TypeVar("_Model", bound=Any)


class Dropout(nnx.Module):
    r"""Encoder layers that drop numbers while they are trained.

        x -> m x / (1 - rate),    m = 0 with probability `rate`, else 1,

    acts on what the attention returns, on the hidden layer of the perceptron and on
    what that returns. In evaluation nothing is dropped.

    Args:
      inner: the layer, or layers stacked along leading axes.
      rate: probability of a zero, at least 0 and below 1.

    Raises:
      ValueError: if the rate is out of range.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Table 7; its code
      drops half of the attention weights besides, in evaluation too.
    """

    def __init__(self, inner: EncoderLayer, rate: float):
        if not 0 <= rate < 1:
            raise ValueError(f"{rate=} must be at least 0 and below 1.")
        self.inner, self.rate = inner, rate

    def __call__(self, z: jax.Array, **given: Unpack[AttentionArguments]) -> jax.Array:
        """Evaluates the layer, without dropout."""
        return self.inner(z, **given)

    def with_noise(self, key: jax.Array) -> "Dropping":
        """Returns the layers of one training step, each with a key of its own."""
        stacked = self.inner.hidden.kernel.shape[:-2]
        return Dropping(self.inner, self.rate, jax.random.split(key, stacked))


class Dropping(nnx.Module):
    """Encoder layers with dropout drawn from keys, one for every layer."""

    def __init__(self, inner: EncoderLayer, rate: float, keys: jax.Array):
        self.inner, self.rate, self.keys = inner, rate, nnx.Variable(keys)

    def __call__(self, z: jax.Array, **given: Unpack[AttentionArguments]) -> jax.Array:
        """Evaluates the layer, with dropout."""
        return self.inner(z, drop=self.drop, **given)

    def drop(self, x: jax.Array, place: int) -> jax.Array:
        """Sets numbers to zero, others at another place of the layer."""
        key = jax.random.fold_in(self.keys[...], place)
        kept = jax.random.bernoulli(key, 1 - self.rate, x.shape)
        return jnp.where(kept, x / (1 - self.rate), 0)


def with_dropout(model: _Model, rate: float) -> _Model:
    """Gives the encoder layers of a model dropout.

    Args:
      model: a `GalerkinTransformer2d` or `SuperResolutionTransformer`, which changes.
      rate: see `Dropout`; at zero the model stays as it is.

    Returns:
      The model.
    """
    if rate:
        model.layers = Dropout(model.layers, rate)
    return model
