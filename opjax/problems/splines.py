"""Tensor-product cubic splines between the cell centres and the nodes of a square.

Cell centres are `(i + 1/2) / K`, nodes are `i / (K - 1)`, `i = 0, ..., K - 1`, along
each axis. The outer nodes lie half a cell beyond the outer centres, so splines
extrapolate.
"""

from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks


def cells_to_nodes(values: ArrayLike) -> jax.Array:
    """Interpolates values from cell centres to nodes by not-a-knot cubic splines.

    Args:
      values: floating-point values at the cell centres, shape `(K, K)`, `K >= 4`.

    Returns:
      Values at the nodes, with the same shape and dtype.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if `values` does not have two axes, or has fewer than four points.
    """
    return _along_both_axes(values, to_nodes=True)


def nodes_to_cells(values: ArrayLike) -> jax.Array:
    """Carries values from nodes to cell centres, otherwise like `cells_to_nodes`."""
    return _along_both_axes(values, to_nodes=False)


def _along_both_axes(values: ArrayLike, *, to_nodes: bool) -> jax.Array:
    """`matrix @ values @ matrix.T`, in full precision on every accelerator."""
    (values,) = _checks.arrays(2, values=values)
    matrix = spline_matrix(values.shape[0], to_nodes=to_nodes)
    matrix = jnp.asarray(matrix, values.dtype)
    product = partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    return product(product(matrix, values), matrix.T)


@lru_cache(maxsize=16)
def spline_matrix(num_points: int, *, to_nodes: bool) -> np.ndarray:
    r"""Matrix of not-a-knot cubic spline interpolation between cells and nodes.

    The second derivatives m of the spline through f at unit spacing solve

        m_{i-1} + 4 m_i + m_{i+1} = 6 (f_{i-1} - 2 f_i + f_{i+1}),

    with continuous third derivatives at the second and the second-last point, `m_0 - 2
    m_1 + m_2 = 0`. Outside the points, the polynomials at the ends are extrapolated.

    Args:
      num_points: number `K >= 4` of points per side, equal for cells and nodes.
      to_nodes: whether to interpolate from cells to nodes, or back.

    Returns:
      The matrix, float64, shape `(K, K)`; do not write to it, because it is shared.

    Raises:
      ValueError: if there are fewer than four points.
    """
    if num_points < 4:
        raise ValueError(
            "A not-a-knot spline needs at least four points, but "
            f"there are {num_points}."
        )
    n = num_points
    cells, nodes = (np.arange(n) + 0.5) / n, np.arange(n) / (n - 1)
    # In units of the spacing, counted from the first point that carries data.
    positions = (nodes - cells[0]) * n if to_nodes else cells * (n - 1)
    second = np.zeros((n, n))
    second[range(1, n - 1), range(1, n - 1)] = -2
    second[range(1, n - 1), range(n - 2)] = second[range(1, n - 1), range(2, n)] = 1
    system = second + 6 * np.diag([0, *np.ones(n - 2), 0])
    system[0, :3] = system[-1, -3:] = 1, -2, 1
    curvature = np.linalg.solve(system, 6 * second)
    left = np.clip(np.floor(positions).astype(int), 0, n - 2)
    t = (positions - left)[:, None]
    s, identity = 1 - t, np.eye(n)
    linear = s * identity[left] + t * identity[left + 1]
    cubic = (s**3 - s) * curvature[left] + (t**3 - t) * curvature[left + 1]
    return linear + cubic / 6
