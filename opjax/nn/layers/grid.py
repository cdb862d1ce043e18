"""Convolution on a uniform grid."""

import math
from collections.abc import Sequence

import jax
from flax import nnx

from opjax.convolution import grid_convolution
from opjax.nn.layers.initializers import fan_in_uniform


class GridConvolution(nnx.Module):
    """A 3 x ... x 3 convolution on a uniform grid with zero padding.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      grid_shape: points per axis.
      use_bias: whether there is a bias.
      rngs: source of the initial parameters, U(-b, b) with `b = (3^p c)^{-1/2}`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layer = layers.GridConvolution(2, 4, grid_shape=(3, 3), rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 2))).shape
      (9, 4)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        self.grid_shape = tuple(grid_shape)
        stencil = (3,) * len(self.grid_shape)
        init = fan_in_uniform(math.prod(stencil) * in_features)
        shape = (*stencil, in_features, out_features)
        self.kernel = nnx.Param(init(rngs.params(), shape))
        self.bias = (
            nnx.Param(init(rngs.params(), (out_features,))) if use_bias else None
        )

    def __call__(self, x: jax.Array, *, axis_name: str | None = None) -> jax.Array:
        """Maps values on the grid to convolved values.

        Args:
          x: values at the points in row-major order, shape `(n, in_features)`.
          axis_name: axis of the devices that share the rows of the grid, if any; see
            `grid_convolution`.

        Returns:
          The convolved values, shape `(n, out_features)`.
        """
        y = grid_convolution(
            x, self.kernel[...], grid_shape=self.grid_shape, axis_name=axis_name
        )
        return y if self.bias is None else y + self.bias[...][None, :]
