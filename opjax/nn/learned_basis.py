"""The softmax basis that attention learns, and the features to expand in it."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

import opjax
from opjax import _checks
from opjax.nn.heads import head_width, split_heads
from opjax.nn.layers import FanInLinear, GridConvolution, fan_in_uniform


class LearnedBasis(nnx.Module):
    """Features to expand and the softmax basis to expand them in, for every head.

    Two projections of the input, pointwise or 3 x ... x 3 convolutional, give the
    features and what the basis is computed from; one linear map from head width to
    scores serves all heads.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`, dividing `features` unless `head_features` is given.
      num_basis: basis functions `k` per head.
      head_features: channels `d` of a head, `c / h` by default.
      point_dim: coordinates in the input after its channels, see `BasisAttention`.
      grid_shape: points per axis of a uniform grid for convolutional projections;
        `None` for pointwise projections on any mesh.
      use_bias: whether projections and scores have biases.
      temperature: initial temperature of the softmax, one per head.
      temperature_bounds: the range temperatures are clipped to, or `None`.
      rngs: source of the initial parameters; the map to scores starts orthogonal.

    Raises:
      ValueError: if the heads do not divide the features, or there is no basis function
        or no positive temperature.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        head_features: int | None = None,
        point_dim: int = 0,
        grid_shape: Sequence[int] | None = None,
        use_bias: bool = True,
        temperature: float = 0.5,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads, head_features)
        _checks.positive(num_basis=num_basis, temperature=temperature)
        self.num_heads, self.num_basis = num_heads, num_basis
        self.temperature_bounds = temperature_bounds
        inputs, outputs = features + point_dim, 2 * num_heads * width
        if grid_shape is None:
            self.projection = FanInLinear(inputs, outputs, use_bias=use_bias, rngs=rngs)
        else:
            self.projection = GridConvolution(
                inputs, outputs, grid_shape=grid_shape, use_bias=use_bias, rngs=rngs
            )
        orthogonal = jax.nn.initializers.orthogonal()
        self.score_kernel = nnx.Param(
            orthogonal(rngs.params(), (width, num_basis), jnp.float32)
        )
        bias_init = fan_in_uniform(width)
        self.score_bias = (
            nnx.Param(bias_init(rngs.params(), (num_basis,))) if use_bias else None
        )
        self.temperature = nnx.Param(jnp.full(num_heads, temperature, jnp.float32))

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Maps `(n, c)` to features `(h, n, d)` and basis functions `(h, n, k)`."""
        values, *scores = self.head_inputs(x)
        return values, jax.vmap(head_basis)(*scores)

    def head_inputs(self, x: jax.Array) -> tuple[jax.Array, ...]:
        """Returns features to expand, and per head the arguments of `head_basis`."""
        projected, kernel, bias = self.point_inputs(x)
        heads = split_heads(projected, 2 * self.num_heads)
        return heads[: self.num_heads], heads[self.num_heads :], kernel, bias

    def point_inputs(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns both projections `(n, 2 h d)`, and kernels and biases of the scores.

        The temperature divides the weights of the scores rather than the scores: the
        same numbers for a fraction of the work.
        """
        temperature = self.temperature[...]
        if self.temperature_bounds is not None:
            temperature = jnp.clip(temperature, *self.temperature_bounds)
        kernel = self.score_kernel[...][None] / temperature[:, None, None]
        if self.score_bias is None:
            bias = jnp.zeros((self.num_heads, self.num_basis), temperature.dtype)
        else:
            bias = self.score_bias[...][None] / temperature[:, None]
        return checkpoint_name(self.projection(x), "projected"), kernel, bias


def head_basis(features: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """Returns the softmax basis `(n, k)` of one head from features `(n, d)`."""
    return opjax.softmax_basis(features @ kernel + bias[None, :])
