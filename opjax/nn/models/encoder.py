"""Transformer blocks: attention and a perceptron."""

from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from opjax import _checks
from opjax.nn import division
from opjax.nn.attention.sums import PointSums
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import PointExchange, Use
from opjax.nn.layers import (
    MLP,
    FanInLinear,
    Initializer,
    LayerNorm,
    RMSNorm,
    trunk_init,
)
from opjax.nn.models._given import NO_POINTS, Points

Attention = Callable[..., Any]
# Dropout of values at a place of a layer, see `Dropout`.
Drop = Callable[[jax.Array, int], jax.Array]


def _keep(x: jax.Array, place: int) -> jax.Array:
    """Drops nothing."""
    del place
    return x


class Block(nnx.Module):
    """A pre-norm transformer block, `z + Attention(LN z)` then `z + MLP(LN z)`.

    Args:
      features: channels `c`.
      mlp_ratio: width of the hidden layer of the perceptron over `c`.
      attention: constructor of the attention, `attention(features, rngs=)`.
      kernel_init: initialiser of the perceptron, see `MLP`.
      rngs: source of the initial parameters.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=4)
      >>> block = nn.models.Block(8, mlp_ratio=1, attention=attention, rngs=nnx.Rngs(0))
      >>> block(jnp.ones((9, 8))).shape
      (9, 8)
    """

    def __init__(
        self,
        features: int,
        *,
        mlp_ratio: int,
        attention: Attention,
        kernel_init: Initializer | None = trunk_init,
        rngs: nnx.Rngs,
    ):
        self.attention_norm = LayerNorm(features)
        self.attention = attention(features, rngs=rngs)
        self.mlp_norm = LayerNorm(features)
        hidden = mlp_ratio * features
        self.mlp = MLP(features, hidden, features, kernel_init=kernel_init, rngs=rngs)

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why a use is not supported, see `nn.division`, or `None`.

        Args:
          use: the requested use.
          shared: the basis that all blocks share, if any.
        """
        if division.redefines(self, "__call__", "add", known_by="obstacle"):
            return f"a {division.name(self)} has parts that are not known"
        exchanges = use == "devices" and isinstance(self.attention, PointExchange)
        if not (exchanges or isinstance(self.attention, PointSums)):
            if use == "narrow":
                return f"{division.name(self.attention)} has no products in 16 bits"
            return f"{division.name(self.attention)} knows more of points than sums"
        if reason := self.attention.obstacle(use, shared):
            return reason
        parts = (self.attention_norm, LayerNorm | RMSNorm), (self.mlp, MLP)
        for part, kinds in (*parts, (self.mlp_norm, LayerNorm | RMSNorm)):
            if not isinstance(part, kinds):
                return f"whether a {division.name(part)} mixes points is not known"
        return None

    @property
    def stacked(self) -> tuple[int, ...]:
        """The leading axes of stacked blocks; `()` for a single block."""
        return self.mlp_norm.scale.shape[:-1]

    def __call__(
        self, z: jax.Array, points: Points = NO_POINTS, *, drop: Drop = _keep
    ) -> jax.Array:
        """Maps features `(n, c)` at points to `(n, c)`.

        `drop(values, place)` acts on what the attention returns, see `Dropout`.
        """
        attended = points.attended(self.attention, self.attention_norm(z))
        return self.add(z, drop(attended, 0))

    def add(self, z: jax.Array, attended: jax.Array) -> jax.Array:
        """Returns the features after the block, from features and attention output."""
        z = z + attended
        return z + self.mlp(self.mlp_norm(z))


class EncoderLayer(nnx.Module):
    r"""A residual layer of attention and a ReLU perceptron, without pre-normalisation.

        z <- N_1(z + Attention(z)),    z <- N_2(z + W_2 relu(W_1 z + b_1) + b_2),

    where `N_1, N_2` are the identity, so that scales are preserved (Eq. 4 of the
    paper), or layer norms, which remove scales (Eq. 7).

    Args:
      features: channels `c`.
      hidden_features: width of the hidden layer of the perceptron.
      attention: constructor of the attention, `attention(features, rngs=)`.
      outer_norm: whether to normalise after both residuals. If so, the paper's code has
        no normalisation inside attention, `normalization=None`.
      epsilon: offset of the variances in these normalisations.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if `hidden_features` is not positive.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> attention = partial(nn.GalerkinAttention, num_heads=2)
      >>> build = partial(nn.models.EncoderLayer, hidden_features=8)
      >>> layer = build(8, attention=attention, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 4 and 7.
    """

    def __init__(
        self,
        features: int,
        *,
        hidden_features: int,
        attention: Attention,
        outer_norm: bool = False,
        epsilon: float = 1e-5,
        rngs: nnx.Rngs,
    ):
        _checks.positive(hidden_features=hidden_features)
        self.attention = attention(features, rngs=rngs)
        self.attention_norm = (
            LayerNorm(features, epsilon=epsilon) if outer_norm else None
        )
        self.hidden = FanInLinear(features, hidden_features, rngs=rngs)
        self.out = FanInLinear(hidden_features, features, rngs=rngs)
        self.mlp_norm = LayerNorm(features, epsilon=epsilon) if outer_norm else None

    @property
    def stacked(self) -> tuple[int, ...]:
        """The leading axes of stacked layers; `()` for a single layer."""
        return self.hidden.kernel.shape[:-2]

    def __call__(
        self, z: jax.Array, points: Points = NO_POINTS, *, drop: Drop = _keep
    ) -> jax.Array:
        """Maps features `(n, c)` at points to `(n, c)`.

        `drop(values, place)` acts on what the attention returns, on the hidden layer
        and on what the perceptron returns, see `Dropout`.
        """
        z = z + drop(points.attended(self.attention, z), 0)
        if self.attention_norm is not None:
            z = self.attention_norm(z)
        z = z + drop(self.out(drop(jax.nn.relu(self.hidden(z)), 1)), 2)
        return z if self.mlp_norm is None else self.mlp_norm(z)
