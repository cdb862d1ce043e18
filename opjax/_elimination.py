"""Linear algebra by elimination, without LAPACK, for programs that have none.

Each function computes what the LAPACK form beside its use computes, with loops over
columns that ONNX and compilers without LAPACK run: a solve with partial pivoting, the
half solve `L^{-1} B` of a Cholesky factorisation, its success, and orthonormal columns.
Systems have shape `(k, k)`, right sides `(k, m)`, and matrices with columns `(n, k)`.
These forms are never differentiated: `one_by_one` differentiates the LAPACK forms.
"""

from functools import partial

import jax.numpy as jnp
from jax import Array, lax

_product = partial(jnp.matmul, precision=lax.Precision.HIGHEST)


def solve(matrix: Array, rhs: Array) -> Array:
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


def half_solve(matrix: Array, rhs: Array) -> Array:
    """Returns `L^{-1} B` for `L L^T = A`, with NaN if `A` is not positive definite."""
    k = matrix.shape[0]
    identity = jnp.eye(k, dtype=matrix.dtype)  # few columns, where those of B are many
    work, pivots = _upper(jnp.concatenate([matrix, identity], axis=1))
    roots = jnp.sqrt(jnp.where(pivots > 0, pivots, jnp.nan))
    return _product(work[:, k:] / roots[:, None], rhs)


def is_positive(matrix: Array) -> Array:
    """Returns whether all pivots of a symmetric matrix are positive."""
    return jnp.all(_upper(matrix)[1] > 0)


def orthonormal_columns(matrix: Array) -> Array:
    """Returns `Q` of `A = Q R` with a non-negative diagonal of `R`.

    By Cholesky, twice, or by reflections where that loses orthogonality.
    """
    fast = matrix
    for _ in range(2):
        fast = half_solve(_product(fast.T, fast), fast.T).T

    def fails(state: tuple[Array, Array]) -> Array:
        tried, q = state  # an integer: ONNX Runtime selects no booleans
        gram = _product(q.T, q)
        error = jnp.max(jnp.abs(gram - jnp.eye(q.shape[1], dtype=q.dtype)))
        return (tried == 0) & ~(error < 1e3 * jnp.finfo(q.dtype).eps)  # NaN fails, too

    def again(state: tuple[Array, Array]) -> tuple[Array, Array]:
        return jnp.ones_like(state[0]), _reflected(matrix)

    return lax.while_loop(fails, again, (jnp.int32(0), fast))[1]


def _reflected(matrix: Array) -> Array:
    """The same by Householder reflections, for any matrix."""
    n, k = matrix.shape
    rows = jnp.arange(n)[:, None]
    columns = jnp.eye(k, dtype=matrix.dtype)[:, :, None]

    def reflect(
        work: Array, at: tuple[Array, Array]
    ) -> tuple[Array, tuple[Array, Array]]:
        column, j = at
        part = jnp.where(rows >= j, _product(work, column), 0)
        pivot = (rows == j).astype(work.dtype)
        sign = jnp.where(jnp.sum(part * pivot) < 0, -1, 1).astype(work.dtype)
        largest = jnp.max(jnp.abs(part))
        part = part / jnp.where(largest > 0, largest, 1)
        normal = part + sign * jnp.sqrt(jnp.sum(part**2)) * pivot
        square = jnp.sum(normal**2)
        normal = normal * jnp.sqrt(2 / jnp.where(square > 0, square, 1))
        work = work - normal * _product(normal.T, work)
        return work, (normal, jnp.where(square > 0, -sign, 0))

    def back(q: Array, normal: Array) -> tuple[Array, None]:
        return q - normal * _product(normal.T, q), None

    _, (normals, signs) = lax.scan(reflect, matrix, (columns, jnp.arange(k)))
    q, _ = lax.scan(back, jnp.eye(n, k, dtype=matrix.dtype), normals, reverse=True)
    return q * signs[None]


def _upper(work: Array) -> tuple[Array, Array]:
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
