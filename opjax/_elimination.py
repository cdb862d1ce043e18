"""Linear algebra by elimination, without LAPACK, for programs that have none.

Each function computes what the LAPACK form beside its use computes, with loops over
columns that ONNX and compilers without LAPACK run: a solve with partial pivoting, the
half solve `L^{-1} B` of a Cholesky factorisation, its success, and orthonormal columns.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

_product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def solve(matrix: jax.Array, rhs: jax.Array) -> Array:
    """Returns `A^{-1} B` by Gauss-Jordan elimination with partial pivoting."""
    k = matrix.shape[0]
    start = jnp.concatenate([matrix, rhs], axis=1)
    columns = jnp.eye(k, start.shape[1], dtype=start.dtype)[:, :, None]
    rows = jnp.arange(k)[:, None]

    def eliminate(
        state: tuple[Array, Array], column: Array
    ) -> tuple[tuple[Array, Array], Array]:
        work, free = state  # products select: slices at traced places take more nodes
        entries = _product(work, column)
        largest = jnp.argmax(free * jnp.abs(entries), axis=0, keepdims=True)
        chosen = (rows == largest).astype(work.dtype)
        row = _product(chosen.T, work)
        row = row / _product(row, column)
        work = work - (entries - chosen) * row
        return (work, free - chosen), chosen[:, 0]

    free = jnp.ones((k, 1), start.dtype)
    (work, _), order = lax.scan(eliminate, (start, free), columns)
    return _product(order, work[:, k:])


def half_solve(matrix: jax.Array, rhs: jax.Array) -> Array:
    """Returns `L^{-1} B` for `L L^T = A`, or NaN if `A` is not positive definite."""
    k = matrix.shape[0]
    identity = jnp.eye(k, dtype=matrix.dtype)  # few columns, where those of B are many
    work, pivots = _upper(jnp.concatenate([matrix, identity], axis=1))
    return _product(work[:, k:] / jnp.sqrt(pivots)[:, None], rhs)


def is_positive(matrix: jax.Array) -> Array:
    """Returns whether all pivots of a symmetric matrix are positive."""
    return jnp.all(_upper(matrix)[1] > 0)


def orthonormal_columns(matrix: jax.Array) -> Array:
    """Returns `Q` of `A = Q R` with a positive diagonal of `R`, by Cholesky, twice."""
    for _ in range(2):
        gram = _product(matrix.T, matrix)
        matrix = half_solve(gram, matrix.T).T
    return matrix


def _upper(work: jax.Array) -> tuple[Array, Array]:
    """Eliminates below the diagonal without pivoting; returns the pivots, too."""
    k = work.shape[0]
    columns = jnp.eye(k, work.shape[1], dtype=work.dtype)[:, :, None]
    below = jnp.tril(jnp.ones((k, k), bool), -1).T[:, :, None]

    def eliminate(work: Array, at: tuple[Array, Array]) -> tuple[Array, Array]:
        column, lower = at
        row, entries = _product(column[:k].T, work), _product(work, column)
        pivot = _product(row, column)
        factors = jnp.where(lower, entries / pivot, 0.0)
        return work - factors * row, pivot[0, 0]

    return lax.scan(eliminate, work, (columns, below))
