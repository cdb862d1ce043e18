"""Checks and small vector algebra that NumPy and JAX arrays share."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks

# Of the host or of JAX; results are of the kind of the arguments.
Array = TypeVar("Array", np.ndarray, jax.Array)


def namespace(points: ArrayLike) -> Any:
    """Returns `jax.numpy` for JAX arrays and `numpy` for all others."""
    return jnp if isinstance(points, jax.Array) else np


def coordinates(points: ArrayLike, name: str = "mesh_points") -> Any:
    """Returns points in one to three dimensions; NumPy arrays as float64.

    Raises:
      TypeError: if they are not floating point.
      ValueError: if they have another shape.
    """
    array: Any = points if isinstance(points, jax.Array) else np.asarray(points)
    _checks.floating(**{name: array})
    _checks.rank(2, **{name: array})
    if not 1 <= array.shape[1] <= 3:
        raise ValueError(
            f"{name} has shape {array.shape}, expected points in 1, 2 or 3 dimensions."
        )
    return array if isinstance(array, jax.Array) else array.astype(np.float64)


def indices(name: str, array: ArrayLike, num_points: int) -> np.ndarray:
    """Returns point indices, one row per cell, on the host.

    Raises:
      TypeError: if they are not integers.
      ValueError: if the array does not have two axes, or a point does not exist.
    """
    rows = np.asarray(array)
    if not np.issubdtype(rows.dtype, np.integer):
        raise TypeError(f"{name} have dtype {rows.dtype}, expected integers.")
    if rows.ndim != 2:
        raise ValueError(f"{name} have shape {rows.shape}, expected (m, corners).")
    outside = rows[(rows < 0) | (rows >= num_points)]
    if outside.size:
        raise ValueError(
            f"{name} contain point {outside[0]}, but points are numbered from 0 to "
            f"{num_points - 1}."
        )
    return rows.astype(np.int64)


def in_space(points: Array) -> Array:
    """Returns points in 3D, with zeros for missing coordinates."""
    return namespace(points).pad(points, [(0, 0), (0, 3 - points.shape[1])])


def cross(a: Array, b: Array) -> Array:
    """Cross product along the last axis, of length three."""
    turned = [a[..., i] * b[..., j] - a[..., j] * b[..., i] for i, j in _TURNS]
    return namespace(a).stack(turned, axis=-1)


_TURNS = ((1, 2), (2, 0), (0, 1))


def sums(rows: Array, numbers: np.ndarray, count: int) -> Array:
    """Sums the rows with the same index, for all indices below a count."""
    if isinstance(rows, jax.Array):
        return jnp.zeros((count, *rows.shape[1:]), rows.dtype).at[numbers].add(rows)
    added = np.zeros((count, *rows.shape[1:]), rows.dtype)
    np.add.at(added, numbers, rows)
    return added


def norm(vectors: Array) -> Array:
    """Lengths along the last axis, with zero gradient at zero vectors."""
    xp, squares = namespace(vectors), (vectors * vectors).sum(axis=-1)
    zero = squares == 0
    return xp.where(zero, 0, xp.sqrt(xp.where(zero, 1, squares)))


def unit(vectors: Array) -> Array:
    """Unit vectors along the last axis; zero for zero vectors."""
    lengths = norm(vectors)[..., None]
    return vectors / namespace(vectors).where(lengths == 0, 1, lengths)
