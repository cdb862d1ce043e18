"""Convolution on a uniform grid."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _halo, _winograd
from opjax.convolution import grid_convolution
from opjax.nn.layers.initializers import fan_in_uniform


class GridConvolution(nnx.Module):
    """A 3 x ... x 3 convolution on a uniform grid, zero beyond the boundary.

    Args:
      in_features: channels in.
      out_features: channels out.
      grid_shape: points per axis.
      use_bias: whether there is a bias.
      rngs: source of the initial parameters, U(-b, b) with `b = (3^p c)^{-1/2}`.
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
        """Maps values `(n, in_features)` on the grid to `(n, out_features)`.

        `axis_name` is that of devices which have rows each, see `grid_convolution`.
        """
        given = {"grid_shape": self.grid_shape, "axis_name": axis_name}
        y = grid_convolution(x, self.kernel[...], **given)
        return y if self.bias is None else y + self.bias[...][None, :]

    def local_shape(self, num_points: int, axis_name: str | None) -> tuple[int, ...]:
        """Returns the shape of the rows of a device, all without other devices."""
        return _halo.local_shape(num_points, self.grid_shape, axis_name)

    def by_tiles(self, shape: Sequence[int]) -> bool:
        """Whether convolving tiles of rows of that shape is faster than rows.

        Also of several such layers, stacked.
        """
        stacked = self.kernel[...]
        axes = len(self.grid_shape) + 2
        kernel = jax.ShapeDtypeStruct(stacked.shape[-axes:], stacked.dtype)
        padded = shape[0] + kernel.shape[0] - 1, *shape[1:], kernel.shape[-2]
        field = jax.ShapeDtypeStruct(padded, kernel.dtype)
        # Elsewhere the library's own convolution is, and products are less precise.
        return jax.default_backend() == "cpu" and _winograd.pays_off(field, kernel)

    def of_tiles(
        self, x: jax.Array, *, rows: int, axis_name: str | None = None
    ) -> jax.Array:
        """Maps values by tiles, zeros beyond the grid, to values by tiles.

        Args:
          x: values at row `i` and column `j` of all tiles, of shape `(4, 4,
            in_features, rows / 4, columns / 4)`, rounded up.
          rows: rows of the device.
          axis_name: axis of the devices that have the other rows, if any.

        Returns:
          The convolved values, likewise, with `out_features`.
        """
        size = len(x)
        tile, place = divmod(rows - 1, size)
        before, after = _halo.neighbours(x[0, :, :, 0], x[place, :, :, tile], axis_name)
        if rows % size:  # the row behind the last one is in its tile
            x = x.at[rows % size, :, :, rows // size].set(after)
            after = jnp.zeros_like(after)
        y = _winograd.correlate_tiles(x, before, after, self.kernel[...])
        return y if self.bias is None else y + self.bias[...][None, None, :, None, None]
