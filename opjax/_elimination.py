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
    rows = jnp.arange(k)

    def eliminate(
        state: tuple[Array, Array], column: Array
    ) -> tuple[tuple[Array, Array], Array]:
        work, free = state
        entries = _column(work, column)
        largest = jnp.argmax(jnp.where(free, jnp.abs(entries), -1.0))
        chosen = (rows == largest).astype(work.dtype)
        row = _product(chosen, work)
        row = row / jnp.sum(chosen * entries)
        work = work - (entries - chosen)[:, None] * row[None, :]
        return (work, free & (rows != largest)), chosen

    start = jnp.concatenate([matrix, rhs], axis=1), jnp.ones(k, bool)
    (work, _), order = lax.scan(eliminate, start, rows)
    return _product(order, work[:, k:])


def half_solve(matrix: jax.Array, rhs: jax.Array) -> Array:
    """Returns `L^{-1} B` for `L L^T = A`, or NaN if `A` is not positive definite."""
    work, pivots = _upper(jnp.concatenate([matrix, rhs], axis=1))
    return work[:, matrix.shape[0] :] / jnp.sqrt(pivots)[:, None]


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
    rows = jnp.arange(work.shape[0])

    def eliminate(work: Array, column: Array) -> tuple[Array, Array]:
        row, entries = _column(work.T, column), _column(work, column)
        pivot = jnp.sum(jnp.where(rows == column, entries, 0.0))
        factors = jnp.where(rows > column, entries / pivot, 0.0)
        return work - factors[:, None] * row[None, :], pivot

    return lax.scan(eliminate, work, rows)


def _column(work: jax.Array, column: jax.Array) -> Array:
    """Returns a column, as a product: a slice at a traced place takes more nodes."""
    chosen = jnp.arange(work.shape[1]) == column
    return _product(work, chosen.astype(work.dtype))
