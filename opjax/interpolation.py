"""Linear interpolation of values between uniform grids of any dimension."""

import functools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler


@split_by_compiler
def interpolate_grid(
    values: Float[ArrayLike, "n c"],
    *,
    grid_shape: Sequence[int],
    new_shape: Sequence[int],
) -> Float[Array, "m c"]:
    r"""Evaluates a piecewise multilinear function at the points of another grid.

    Both grids include the corners of the domain. Per axis from `n` to `m` points

        y_r = (1 - t) v_k + t v_{k+1},    k + t = r (n - 1) / (m - 1),    0 <= t < 1,

    which is also an interpolation if `m < n`: nothing is averaged, so frequencies that
    the coarse grid does not resolve are aliased. Multilinear functions are reproduced;
    an axis of unchanged length is not touched. An axis of one new point takes the first
    one; an axis of one old point is extended as a constant.

    It is one product with an `m x n` matrix per axis, in full precision on every
    device, so reverse mode is also a product, without scatter operations.

    Complexity: `O(m n)` per axis and channel, times the number of points along the
    other axes.

    Args:
      values: finite values at the grid points in row-major order, shape `(n, c)`.
      grid_shape: points per axis, `p` numbers with product `n`.
      new_shape: number of points per axis of the new grid, `p` numbers.

    Returns:
      Values at the points of the new grid, shape `(prod(new_shape), c)`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if points or dimensions do not match, or an axis is empty.

    Examples:
      >>> import numpy as np
      >>> from opjax.interpolation import interpolate_grid
      >>> ends = np.array([[0.0], [2.0]])
      >>> interpolate_grid(ends, grid_shape=(2,), new_shape=(3,))[:, 0].tolist()
      [0.0, 1.0, 2.0]

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, App. B.
    """
    (values,) = _checks.arrays(2, values=values)
    grid_shape, new_shape = tuple(grid_shape), tuple(new_shape)
    if len(new_shape) != len(grid_shape):
        raise ValueError(f"{new_shape=} must have one entry per axis of {grid_shape=}.")
    if min(*grid_shape, *new_shape, 1) < 1:
        raise ValueError(
            f"{grid_shape=} and {new_shape=} must be positive on every axis."
        )
    if values.shape[0] != math.prod(grid_shape):
        raise ValueError(
            f"values {values.shape} must have {math.prod(grid_shape)} points for "
            f"{grid_shape=}."
        )
    field = values.reshape(*grid_shape, -1)
    # Shrinking axes first keeps the intermediate arrays small.
    axes = sorted(range(len(grid_shape)), key=lambda i: new_shape[i] / grid_shape[i])
    for axis in axes:
        field = _along(field, axis, new_shape[axis])
    return field.reshape(-1, values.shape[1])


def _along(field: Array, axis: int, num_points: int) -> Array:
    if field.shape[axis] == num_points:
        return field
    matrix = jnp.asarray(_matrix(field.shape[axis], num_points), field.dtype)
    # The default precision of accelerators would keep three digits of the weights.
    moved = jnp.tensordot(matrix, field, (1, axis), precision=lax.Precision.HIGHEST)
    return jnp.moveaxis(moved, 0, axis)


@functools.lru_cache(maxsize=32)
def _matrix(num_points: int, new_points: int) -> np.ndarray:
    """Returns the interpolation of one axis, shape `(new_points, num_points)`."""
    rows = np.arange(new_points)
    # Integers: a coordinate that is a grid point must not fall just short of it.
    steps = max(new_points - 1, 1)
    left, remainder = np.divmod(rows * (num_points - 1), steps)
    matrix = np.zeros((new_points, num_points))
    matrix[rows, left] = 1 - remainder / steps
    matrix[rows, np.minimum(left + 1, num_points - 1)] += remainder / steps
    return matrix
