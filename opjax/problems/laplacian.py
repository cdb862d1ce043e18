"""The discrete Laplacian of the unit cube, inverted by sine transforms."""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

# Matrix products beat FFTs up to about this many points per axis (CPU).
_DENSE_TRANSFORM_POINTS = 200


def laplacian_inverse(
    grid_shape: Sequence[int], dtype: DTypeLike
) -> Callable[[jax.Array], jax.Array]:
    r"""Returns the exact inverse of the second-order Laplacian on interior points.

    The scheme is `sum_axes (2 u_i - u_{i-1} - u_{i+1}) / h^2`, with `h = 1 / (n + 1)`
    and zero values on the boundary; its eigenvectors are products of sines.

    Args:
      grid_shape: number of interior points per axis.
      dtype: floating-point dtype of the values.

    Returns:
      A function from values on the grid, shape `grid_shape`, to the solution there.
    """
    eigenvalues = functools.reduce(np.add.outer, map(_eigenvalues, grid_shape))
    scale = np.prod([2 / (size + 1) for size in grid_shape])
    weights = jnp.asarray(1 / eigenvalues * scale, dtype)
    return lambda values: _sine_transform(weights * _sine_transform(values))


def _eigenvalues(size: int) -> np.ndarray:
    modes = np.arange(1, size + 1)
    return (2 * (size + 1) * np.sin(np.pi * modes / (2 * size + 2))) ** 2


def _sine_transform(values: jax.Array) -> jax.Array:
    """Type-I sine transform of all axes, `sum_j v_j sin(pi j k / (n + 1))`."""
    if max(values.shape) <= _DENSE_TRANSFORM_POINTS:
        for axis, size in enumerate(values.shape):
            sines = jnp.asarray(_sines(size), values.dtype)
            values = _apply_to_axis(sines, values, axis)
        return values
    for _ in range(values.ndim):  # the last axis becomes the first, until all are done
        values = jnp.moveaxis(_odd_fft(values), -1, 0)
    return values


def _apply_to_axis(matrix: jax.Array, values: jax.Array, axis: int) -> jax.Array:
    if axis == 0:
        return jnp.tensordot(matrix, values, (1, 0))
    return jnp.moveaxis(jnp.moveaxis(values, axis, -1) @ matrix.T, -1, axis)


def _sines(size: int) -> np.ndarray:
    modes = np.arange(1, size + 1)
    # Reduced modulo the period in integers, so the sine argument stays accurate.
    angles = np.outer(modes, modes) % (2 * size + 2) * (np.pi / (size + 1))
    return np.sin(angles)


def _odd_fft(values: jax.Array) -> jax.Array:
    """The transform of the last axis, from the FFT of its odd extension."""
    odd = jnp.pad(values, [(0, 0)] * (values.ndim - 1) + [(1, 1)])
    odd = jnp.concatenate([odd, -values[..., ::-1]], axis=-1)
    return jnp.fft.rfft(odd).imag[..., 1:-1] / -2
