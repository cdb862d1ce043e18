"""Grids whose rows (points with the same first index) are split over devices.

Every device along an axis of `jax.shard_map` has the same number of rows. The last
devices may have rows beyond the grid, which count as zeros, like everything outside its
boundary.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jax import lax


def local_shape(
    num_points: int, grid_shape: Sequence[int], axis_name: str | None
) -> tuple[int, ...]:
    """Returns the shape of the rows of a device, from its number of points.

    Raises:
      ValueError: if it is not a whole number of rows, or too few for the grid.
    """
    if axis_name is None:
        return tuple(grid_shape)
    width, devices = math.prod(grid_shape[1:]), lax.axis_size(axis_name)
    rows = num_points // width
    if num_points % width or rows * devices < grid_shape[0]:
        raise ValueError(
            f"{axis_name}:{devices} splits the rows of a grid {tuple(grid_shape)}: "
            f"the {num_points} points of a device must be whole rows of {width} "
            f"points, and all devices together need at least {grid_shape[0]} rows, "
            "see `sharding.pad_points`."
        )
    return (rows, *grid_shape[1:])


def inside(rows: int, grid_rows: int, axis_name: str | None) -> jax.Array:
    """Marks the rows of a device that belong to the grid, shape `(rows,)`."""
    return row_numbers(rows, axis_name) < grid_rows


def row_numbers(rows: int, axis_name: str | None) -> jax.Array:
    """Returns the indices of the rows of a device, shape `(rows,)`."""
    first = 0 if axis_name is None else lax.axis_index(axis_name) * rows
    return first + jnp.arange(rows, dtype=jnp.int32)


def clear(field: jax.Array, grid_rows: int, axis_name: str | None) -> jax.Array:
    """Sets the rows of a field `(rows, ...)` that lie outside the grid to zero."""
    rows = field.shape[0]
    if axis_name is None or rows * lax.axis_size(axis_name) == grid_rows:
        return field
    keep = inside(rows, grid_rows, axis_name)
    return jnp.where(keep.reshape(rows, *(1,) * (field.ndim - 1)), field, 0)


def extend(field: jax.Array, count: int, axis_name: str | None) -> jax.Array:
    """Adds rows of the neighbours, `(rows, ...)` to `(rows + 2 count, ...)`.

    It sends two messages of `count` rows, to the devices above and below; the first and
    the last device receive zeros on the outer side.
    """
    rows, whole = field.shape[0], axis_name is None
    if whole or count == 0:
        return jnp.pad(field, [(count, count)] + [(0, 0)] * (field.ndim - 1))
    if count > rows:
        raise ValueError(
            f"A device along {axis_name!r} has {rows} rows of the grid, but its "
            f"neighbour needs {count}: use fewer devices."
        )
    before, after = neighbours(field[:count], field[rows - count :], axis_name)
    return jnp.concatenate([before, field, after])


def neighbours(
    first: jax.Array, last: jax.Array, axis_name: str | None
) -> tuple[jax.Array, jax.Array]:
    """Exchanges the first and the last rows of all devices.

    Returns:
      The last rows of the previous device, and the first ones of the next device; zeros
      if there is none.
    """
    if axis_name is None:
        return jnp.zeros_like(last), jnp.zeros_like(first)
    end = lax.axis_size(axis_name) - 1
    down, up = [(i, i + 1) for i in range(end)], [(i + 1, i) for i in range(end)]
    before = lax.ppermute(last, axis_name, down)
    return before, lax.ppermute(first, axis_name, up)
