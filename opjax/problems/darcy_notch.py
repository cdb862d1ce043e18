r"""Darcy flow in a triangle with a notch, driven by its boundary values.

    -Laplace u = 10    in the triangle (0, 0), (1, 0), (1/2, sqrt(3) / 2)
                       without the notch [0.49, 0.51] x [0, 0.4],
             u = f(x)  on the boundary, `x` the first coordinate,

for a random function `f` with given values at equidistant points, linear between them.
The solution is affine in these values, so the equation is solved once for each of them,
and every sample is a matrix-vector product.

According to the papers, the published generators set `u = 0` on the notch. The
published data have `u = f(x)` there too, which is the default here. Papers state
permeability 0.1 and right-hand side 1, which is the same equation.
"""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks
from opjax.problems import _finite_elements
from opjax.problems.poisson_mesh import nearest_on_polygon

NOTCHES = "boundary", "zero"
_LEFT, _RIGHT, _TOP = 0.49, 0.51, 0.4  # of the notch
_SLOPE = math.sqrt(3)
_SOURCE = 10.0
_TIP_REFINEMENTS = 8  # halvings of the elements at the two re-entrant corners
_EPSILON = 1e-9
_MARGIN = 1e-6  # nearer points are on the boundary: published ones are in float32
_CORNERS = (
    (0.0, 0.0),
    (_LEFT, 0.0),
    (_LEFT, _TOP),
    (_RIGHT, _TOP),
    (_RIGHT, 0.0),
    (1.0, 0.0),
    (0.5, _SLOPE / 2),
)


class BoundaryOperator(NamedTuple):
    """The affine map from boundary values to the solution, at `n` points.

    Attributes:
      points: coordinates, shape `(n, 2)`.
      response: solutions of Laplace's equation, `(n, m)`; column `j` has the value 1 at
        boundary point `j` of `m` and 0 at the others.
      source: the solution for zero boundary values, `(n,)`.
      cells: triangles of the points, `(c, 3)`; None if the points are not those of a
        mesh.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import darcy_notch
      >>> solve = darcy_notch.operator(num_columns=4, num_values=5)
      >>> solve.response.shape, solve(np.zeros(5)).shape
      ((31, 5), (31,))
    """

    points: np.ndarray
    response: np.ndarray
    source: np.ndarray
    cells: np.ndarray | None = None

    def __call__(self, values: ArrayLike) -> np.ndarray:
        """Solution `(..., n)` for boundary values `(..., m)`."""
        return np.asarray(values) @ self.response.T + self.source


def boundary_values(
    key: jax.Array, *, num_values: int = 101, length_scale: float = 0.2
) -> jax.Array:
    r"""Draws the boundary function at equidistant points of [0, 1].

    It is a Gaussian process with mean zero and covariance `exp(-(x - y)^2 / (2 l^2))`.

    Args:
      key: PRNG key.
      num_values: number of points, including both ends.
      length_scale: correlation length `l`; 0.2 was published.

    Returns:
      The values, shape `(num_values,)`.

    Raises:
      ValueError: if there are fewer than two points or `length_scale` is not positive.

    Examples:
      >>> import jax
      >>> from opjax.problems import darcy_notch
      >>> darcy_notch.boundary_values(jax.random.key(0), num_values=11).shape
      (11,)
    """
    _check_num_values(num_values)
    _checks.positive(length_scale=length_scale)
    root = jnp.asarray(_covariance_root(num_values, length_scale))
    normal = jax.random.normal(key, (num_values,))
    return root.astype(normal.dtype) @ normal


def operator(
    points: ArrayLike | None = None,
    *,
    num_columns: int = 46,
    num_values: int = 101,
    notch: str = "boundary",
) -> BoundaryOperator:
    """Solves the equation for every boundary value.

    It uses quadratic elements on the mesh of `mesh`, refined towards the tips of the
    notch. With the default mesh, solutions agree within 4e-5 (relative L2) with those
    on a mesh twice as fine; the computation takes about a second.

    Args:
      points: evaluation points of the solution, shape `(n, 2)`; by default the nodes of
        `mesh`. A point outside gets the value of the nearest boundary point (in the
        published grids: of the nearest node).
      num_columns: see `mesh`.
      num_values: number of boundary values, at equidistant points of [0, 1].
      notch: `"boundary"` for `u = f(x)` on the notch too; `"zero"` for `u = 0` on its
        three sides, except their two lower ends.

    Returns:
      The operator.

    Raises:
      ImportError: if scikit-fem is missing.
      ValueError: if a number is too small, `notch` is unknown, or `points` has another
        shape.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import darcy_notch
      >>> solve = darcy_notch.operator(num_columns=4, num_values=5)
      >>> lifted = solve(np.ones(5)) - solve(np.zeros(5))
      >>> bool(np.allclose(lifted, 1))  # a constant stays one
      True
    """
    _check_num_values(num_values)
    _checks.option("notch", notch, NOTCHES)
    if points is not None and (np.ndim(points) != 2 or np.shape(points)[1] != 2):
        raise ValueError(f"points has shape {np.shape(points)}, expected (n, 2).")
    skfem = _finite_elements.skfem()
    coarse = mesh(num_columns=num_columns)
    basis = skfem.Basis(_refined(coarse), skfem.ElementTriP2())
    solutions = _solutions(basis, num_values, notch)
    if points is None:
        # Refinement appends its nodes, and vertices come before the other unknowns.
        nodes = solutions[: coarse.nvertices]
        return BoundaryOperator(coarse.p.T, nodes[:, :-1], nodes[:, -1], coarse.t.T)
    points = np.asarray(points, np.float64)
    values = _evaluate(basis, solutions, points, notch)
    return BoundaryOperator(points, values[:, :-1], values[:, -1])


def mesh(*, num_columns: int = 46) -> Any:
    """Makes a mesh of nearly equilateral triangles, symmetric about the notch.

    Args:
      num_columns: number of triangles along the bottom on either side of the notch, at
        least 2; 46 gives 2257 nodes (published: 2295).

    Returns:
      A `skfem.MeshTri`.

    Raises:
      ImportError: if scikit-fem is missing.
      ValueError: if `num_columns` is below 2.

    Examples:
      >>> from opjax.problems import darcy_notch
      >>> mesh = darcy_notch.mesh(num_columns=4)
      >>> mesh.p.shape, mesh.t.shape
      ((2, 31), (3, 37))
    """
    if num_columns < 2:
        raise ValueError(f"{num_columns=} must be at least 2.")
    # On the left, column i has i + 1 nodes; one of the last column is a tip.
    tip = round(num_columns * _TOP / (_SLOPE * _LEFT))
    column, row = np.array(
        [(i, j) for i in range(num_columns + 1) for j in range(i + 1)]
    ).T
    height = np.interp(
        row / np.maximum(column, 1),
        [0, tip / num_columns, 1],
        [0, _TOP / (_SLOPE * _LEFT), 1],
    )
    x = _LEFT * column / num_columns
    y = _SLOPE * x * height
    size = len(x)
    upward = row + column * (column + 1) // 2  # the number of the node itself
    inner = column < num_columns
    right = upward + column + 1
    cells = [np.stack([upward, right, right + 1], 1)[inner]]
    inner &= row < column
    cells.append(np.stack([upward, right + 1, upward + 1], 1)[inner])
    cells += [cell + size for cell in cells]
    wall = np.arange(size - num_columns - 1 + tip, size)
    low, high, apex = wall[:-1], wall[1:], 2 * size
    cells.append(np.stack([low, low + size, high], 1))
    cells.append(np.stack([high, low + size, high + size], 1))
    cells.append(np.array([[wall[-1], wall[-1] + size, apex]]))
    nodes = np.stack([np.r_[x, 1 - x, 0.5], np.r_[y, y, _SLOPE / 2]])
    return _finite_elements.skfem().MeshTri(
        nodes, np.ascontiguousarray(np.concatenate(cells).T)
    )


@functools.lru_cache(maxsize=4)
def _covariance_root(num_values: int, length_scale: float) -> np.ndarray:
    """The symmetric root, which unlike that of Cholesky exists at rank deficiency."""
    x = np.linspace(0, 1, num_values)
    covariance = np.exp(-np.square(x[:, None] - x) / (2 * length_scale**2))
    values, vectors = np.linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def _check_num_values(num_values: int) -> None:
    if num_values < 2:
        raise ValueError(f"{num_values=} must be at least 2, for both ends of [0, 1].")


def _refined(mesh: Any) -> Any:
    for _ in range(_TIP_REFINEMENTS):
        x, y = mesh.p
        tips = np.flatnonzero(
            (np.abs(y - _TOP) < _EPSILON)
            & np.isclose(np.abs(x - 0.5), 0.5 - _LEFT, rtol=0, atol=_EPSILON)
        )
        mesh = mesh.refined(np.flatnonzero(np.isin(mesh.t, tips).any(axis=0)))
    return mesh


def _solutions(basis: Any, num_values: int, notch: str) -> np.ndarray:
    """Unknowns for every boundary value, and last for the source, `(N, m + 1)`."""
    skfem = _finite_elements.skfem()
    from scipy.sparse.linalg import splu

    helpers = skfem.helpers
    stiffness = skfem.BilinearForm(
        lambda u, v, _: helpers.dot(helpers.grad(u), helpers.grad(v))
    ).assemble(basis)
    load = skfem.LinearForm(lambda v, _: _SOURCE * v).assemble(basis)
    fixed = basis.get_dofs().all()
    free = basis.complement_dofs(fixed)
    rows = _boundary_rows(basis.doflocs[:, fixed].T, num_values, notch)
    solutions = np.zeros((basis.N, num_values + 1))
    solutions[fixed, :-1] = rows
    right = np.column_stack([-stiffness[free][:, fixed] @ rows, load[free]])
    # The ordering for symmetric matrices: half the time and fill of the default.
    factors = splu(stiffness[free][:, free].tocsc(), permc_spec="MMD_AT_PLUS_A")
    solutions[free] = factors.solve(right)
    return solutions


def _boundary_rows(points: np.ndarray, num_values: int, notch: str) -> np.ndarray:
    """Weights of the boundary values at points of the boundary, `(points, m)`."""
    x, y = points.T
    steps = np.abs(x[:, None] * (num_values - 1) - np.arange(num_values))
    rows = np.maximum(1 - steps, 0)
    if notch == "zero":
        rows[_in_notch(x, y) & (y > _EPSILON)] = 0
    return rows


def _in_notch(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (np.abs(x - 0.5) < 0.5 - _LEFT + _EPSILON) & (y < _TOP + _EPSILON)


def _evaluate(
    basis: Any, solutions: np.ndarray, points: np.ndarray, notch: str
) -> np.ndarray:
    x, y = points.T
    inside = (y > 0) & (y < _SLOPE * np.minimum(x, 1 - x)) & ~_in_notch(x, y)
    nearest, distance = nearest_on_polygon(points, _CORNERS)
    inside &= distance > _MARGIN
    values = np.zeros((len(points), solutions.shape[1]))
    values[:, :-1] = _boundary_rows(nearest, solutions.shape[1] - 1, notch)
    rows = np.flatnonzero(inside)
    # Its search looks at all pairs of given points and of elements near to any of them.
    for part in np.array_split(rows, -(-len(rows) // 256) or 1):
        if len(part):
            values[part] = basis.probes(points[part].T) @ solutions
    return values
