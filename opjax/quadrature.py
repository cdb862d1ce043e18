"""Quadrature weights `w` with `sum_i w_i f(x_i) ~ int f`, for grids, clouds and meshes.

A weight of zero removes a point from every sum. Everywhere in opjax, padded points are
masked in this way.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from opjax import _checks
from opjax._explicit import split_by_compiler

RULES = ("midpoint", "trapezoid", "periodic")
# Volumes of tetrahedra over the cube of their longest edge: up to the one, cells are
# flat up to rounding; beyond the other, no quadrilateral of a mesh is as warped.
_FLAT, _SOLID = 1e-9, 1e-2


def grid_weights(
    grid_shape: Sequence[int],
    *,
    lengths: Sequence[float] | None = None,
    rule: str = "trapezoid",
    dtype: jax.typing.DTypeLike = float,
) -> Float[Array, " n"]:
    r"""Returns tensor-product weights of a uniform grid, in row-major order.

    Per axis with `n` points over a length `L`:

        midpoint, periodic   w_i = L / n,
        trapezoid            w_i = L / (n - 1), halved at both ends.

    Args:
      grid_shape: points per axis.
      lengths: domain lengths per axis; one by default.
      rule: `"trapezoid"` if the end points are mesh points, `"midpoint"` for cell
        centres, `"periodic"` if the last point is omitted.
      dtype: floating-point dtype of the result.

    Returns:
      Quadrature weights, shape `(prod(grid_shape),)`, summing to the volume of the
      domain.

    Raises:
      TypeError: if `dtype` is not floating point, or the shape is a number.
      ValueError: if an axis is empty (or has one point, for trapezoid), the lengths do
        not match the axes or are not positive and finite, or the rule is unknown.

    Examples:
      >>> from opjax.quadrature import grid_weights
      >>> grid_weights((5,)).tolist()
      [0.125, 0.25, 0.25, 0.25, 0.125]
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype={jnp.dtype(dtype)} must be a floating-point dtype.")
    _checks.option("rule", rule, RULES)
    if isinstance(grid_shape, int):
        raise TypeError(
            f"{grid_shape=} is not a tuple; pass ({grid_shape},) for one axis."
        )
    lengths = (1.0,) * len(grid_shape) if lengths is None else tuple(lengths)
    if len(lengths) != len(grid_shape):
        raise ValueError(
            f"{lengths=} must have one entry per axis of {tuple(grid_shape)}."
        )
    _checks.positive(lengths=lengths)
    fewest = 2 if rule == "trapezoid" else 1
    if any(n < fewest for n in grid_shape):
        raise ValueError(
            f"grid_shape={tuple(grid_shape)}: {rule} needs at least "
            f"{fewest} points per axis."
        )
    weights = jnp.ones((1,), dtype)
    for n, length in zip(grid_shape, lengths, strict=True):
        if rule == "trapezoid":
            axis = jnp.full(n, length / (n - 1), dtype)
            axis = axis.at[jnp.array([0, n - 1])].mul(0.5)
        else:
            axis = jnp.full(n, length / n, dtype)
        weights = (weights[:, None] * axis[None, :]).reshape(-1)
    return weights


@split_by_compiler
def scattered_weights(
    mesh_points: Float[ArrayLike, "n p"], *, num_neighbors: int = 8, volume: float = 1.0
) -> Float[Array, " n"]:
    r"""Returns weights of scattered points from their nearest-neighbour distances.

    A point whose `m`-th nearest other point is at distance `r_i` represents a cell with
    volume proportional to `r_i^p`, so

        w_i = volume * r_i^p / sum_j r_j^p,    p the dimension of space.

    All points get the same weight if they are equally dense. If a point has more than
    `m` copies (`c` in total besides itself), `r_i` is the distance to the nearest
    distinct point, and the volume is `m / c` of its volume: together the copies
    represent one cell. If all points are copies, their weights are equal. It needs
    `O(n)` memory per point and `O(n^2)` operations: compute it once per mesh. For
    points on a surface use `cell_weights`, because `p` must be the dimension of the
    integral.

    Args:
      mesh_points: shape `(n, p)`, in domain lengths.
      num_neighbors: number `m` above; larger values give smoother weights.
      volume: volume of the domain, the sum of the weights.

    Returns:
      Quadrature weights, shape `(n,)`, summing to `volume`.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if there are at most `num_neighbors` points, or a number is not
        positive and finite.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import scattered_weights
      >>> mesh_points = np.random.default_rng(0).uniform(size=(20, 2))
      >>> weights = scattered_weights(mesh_points, volume=2.0)
      >>> round(float(weights.sum()), 3)
      2.0
    """
    (mesh_points,) = _checks.arrays(2, mesh_points=mesh_points)
    n, p = mesh_points.shape
    _checks.positive(volume=volume, num_neighbors=num_neighbors)
    if n <= num_neighbors:
        raise ValueError(
            f"mesh_points {mesh_points.shape}: {n} points have fewer than "
            f"{num_neighbors=} neighbours each; lower num_neighbors."
        )

    def cell(point: Array) -> Array:
        squares = jnp.sum((mesh_points - point[None, :]) ** 2, axis=1)
        nearest, _ = lax.top_k(-squares, num_neighbors + 1)  # the point itself is first
        square, copies = -nearest[-1], jnp.sum(squares == 0) - 1
        apart = jnp.min(jnp.where(squares == 0, jnp.inf, squares))
        apart = jnp.where(jnp.isinf(apart), 1, apart)  # all points are in one place
        share = num_neighbors / jnp.maximum(copies, num_neighbors)
        square = jnp.where(square == 0, apart, square)
        return square ** (p / 2) * share.astype(square.dtype)

    cells = lax.map(cell, mesh_points, batch_size=min(n, 256))
    return volume * cells / jnp.sum(cells)


def cell_weights(
    mesh_points: Float[ArrayLike, "n p"], cells: Int[ArrayLike, "t corners"]
) -> Float[np.ndarray, " n"]:
    r"""Returns the lumped masses of the points of a mesh, computed on the host.

    Every simplex, of dimension `k`, contributes equally to its corners, which
    integrates piecewise-linear functions exactly:

        w_i = sum_{T containing i} |T| / (k + 1),    |T| = det(E E^T)^{1/2} / k!,

    with the edges `E` from one corner to the `k` others. A quadrilateral is divided in
    both ways and averaged, or in the only possible way if it is not convex.
    `kind_of_four` decides the type of cells with four corners in 3D.

    Args:
      mesh_points: points, shape `(n, p)`, in the units of `lengths`.
      cells: indices of the corners, integers of shape `(t, corners)`.

    Returns:
      Quadrature weights, float64 of shape `(n,)`; zero for points without a cell.

    Raises:
      TypeError: if points are not floating point or indices not integers.
      ValueError: if shapes do not match these, a point does not exist, or the type of
        the cells is unsupported or ambiguous.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import cell_weights
      >>> mesh_points = np.array([[0.0, 0], [1, 0], [0, 1]])
      >>> cell_weights(mesh_points, [[0, 1, 2]]).round(4).tolist()  # thirds of 1/2
      [0.1667, 0.1667, 0.1667]
    """
    points, cells = _mesh(mesh_points, cells)
    corners, dimension = cells.shape[1], points.shape[1]
    if corners == 4 and (dimension == 2 or kind_of_four(points, cells) == "quad"):
        return _quad_weights(points, cells)
    if not 2 <= corners <= dimension + 1:
        raise ValueError(
            f"Quadrature weights are not available for cells with {corners} "
            f"corners in {dimension} dimensions; divide them into simplices."
        )
    return _simplex_weights(points, cells)


def kind_of_four(
    mesh_points: Float[ArrayLike, "n 3"], cells: Int[ArrayLike, "t 4"]
) -> str:
    r"""Distinguishes quadrilaterals of a surface in 3D from tetrahedra, on the host.

    Tetrahedra of a mesh share faces, three corners of a cell; quadrilaterals share only
    sides. Cells that repeat a corner or are flat, `|T| <= 1e-9 h^3` with the longest
    edge `h`, are quadrilaterals too. Cells that share nothing and are far from flat,
    `|T| > 0.01 h^3`, are tetrahedra.

    Args:
      mesh_points: points, shape `(n, 3)`.
      cells: indices of the corners, integers of shape `(t, 4)`.

    Returns:
      `"quad"` or `"tetra"`, names of `opjax.geometry.KINDS`.

    Raises:
      TypeError: if points are not floating point or indices not integers.
      ValueError: if shapes do not match these, a point does not exist, or the cells may
        be of either type.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import kind_of_four
      >>> square = np.array([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]])
      >>> kind_of_four(square, [[0, 1, 2, 3]])
      'quad'
    """
    points, cells = _mesh(mesh_points, cells)
    if points.shape[1:] != (3,) or cells.shape[1:] != (4,):
        raise ValueError(
            f"mesh_points have shape {points.shape} and cells {cells.shape}, expected "
            "points in 3 dimensions and 4 corners."
        )
    ordered = np.sort(cells, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]).any()
    bulk = _bulk(points, cells)
    if repeats or (bulk <= _FLAT).all():
        return "quad"
    faces = np.concatenate([np.delete(ordered, i, axis=1) for i in range(4)])
    if _shared(faces):
        return "tetra"
    sides = np.stack([cells, np.roll(cells, -1, axis=1)], axis=2).reshape(-1, 2)
    beside, solid = _shared(np.sort(sides, axis=1)), (bulk > _SOLID).all()
    if beside != solid:
        return "quad" if beside else "tetra"
    raise ValueError(
        f"{len(cells)} cells with four corners in 3D may be tetrahedra or "
        "quadrilaterals of a surface, because they share no faces"
        + (", but they are far from flat" if beside else " and no sides")
        + ". Pass the triangles of the surface, or the quadrature weights."
    )


def _mesh(mesh_points: ArrayLike, cells: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Points and cells on the host, checked."""
    _checks.on_host(mesh_points=mesh_points, cells=cells)
    points, cells = np.asarray(mesh_points), np.asarray(cells)
    _checks.floating(mesh_points=points)
    _checks.rank(2, mesh_points=points, cells=cells)
    if not np.issubdtype(cells.dtype, np.integer):
        raise TypeError(f"cells have dtype {cells.dtype}, expected integers.")
    outside = cells[(cells < 0) | (cells >= len(points))]
    if outside.size:
        raise ValueError(
            f"cells contain point {outside[0]}, but points are numbered from 0 to "
            f"{len(points) - 1}; remove the cells of padding points."
        )
    return points, cells


def _bulk(points: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Volumes of tetrahedra over the cube of their longest edge."""
    corners = points.astype(np.float64)[cells]
    edges = corners[:, :, None] - corners[:, None]
    longest = np.linalg.norm(edges, axis=-1).max(axis=(1, 2), initial=0)
    scaled = edges[:, 0, 1:] / np.where(longest > 0, longest, 1)[:, None, None]
    return np.abs(np.linalg.det(scaled)) / 6


def _shared(keys: np.ndarray) -> bool:
    """Whether two rows are the same."""
    ordered = keys[np.lexsort(keys.T)]
    return bool((ordered[1:] == ordered[:-1]).all(axis=1).any())


def _quad_weights(points: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Of both ways to divide quadrilaterals those whose triangles lie inside."""
    ways = [cells[:, way] for way in ((0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3))]
    corners = points.astype(np.float64)[cells]
    corners = np.pad(corners, [(0, 0), (0, 0), (0, 3 - corners.shape[2])])
    diagonals = corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]
    normal = np.cross(*diagonals)
    signs = [_along(corners[:, [i - 1, i, (i + 1) % 4]], normal) for i in range(4)]
    # The triangles of the first way have corners 1 and 3 in their middles.
    inside = [(signs[1] >= 0) & (signs[3] >= 0), (signs[0] >= 0) & (signs[2] >= 0)]
    neither = ~inside[0] & ~inside[1]  # a quadrilateral that crosses itself
    shares = [np.where(way | neither, 1.0, 0.0) for way in inside]
    total = shares[0] + shares[1]
    first, second = (np.tile(share / total, 2) for share in shares)
    return _simplex_weights(
        points, np.concatenate(ways), np.concatenate([first, second])
    )


def _along(triangles: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Whether triangles turn as a normal does: positive, or negative if against it."""
    a, b, c = (triangles[:, i] for i in range(3))
    return np.sum(np.cross(b - a, c - b) * normal, axis=1)


def _simplex_weights(
    points: np.ndarray, simplices: np.ndarray, factors: np.ndarray | None = None
) -> np.ndarray:
    corners = points.astype(np.float64)[simplices]
    edges = corners[:, 1:] - corners[:, :1]
    gram = edges @ edges.swapaxes(1, 2)
    k = edges.shape[1]
    volumes = np.sqrt(np.maximum(np.linalg.det(gram), 0)) / math.factorial(k)
    if factors is not None:
        volumes = volumes * factors
    shares = np.repeat(volumes / (k + 1), k + 1)
    return np.bincount(simplices.reshape(-1), shares, minlength=len(points))


def active(quadrature_weights: Float[ArrayLike, " *shape"]) -> Bool[Array, "*shape"]:
    """Returns a mask of the points with positive weight, shaped like the weights.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import active
      >>> active(np.array([0.5, 0.0])).tolist()
      [True, False]
    """
    return jnp.asarray(quadrature_weights) > 0


def select(
    values: Float[Array, "n ..."], quadrature_weights: Float[ArrayLike, " n"] | None
) -> Float[Array, "n ..."]:
    """Sets the values of masked points to zero, along the first axis.

    This must precede arithmetic, because zero times a padded NaN is NaN.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import select
      >>> select(np.array([1.0, np.nan]), np.array([0.5, 0.0])).tolist()
      [1.0, 0.0]
    """
    if quadrature_weights is None:
        return values
    keep = active(quadrature_weights)
    return jnp.where(keep.reshape(-1, *(1,) * (values.ndim - 1)), values, 0)


def weighted_mean(
    values: Float[ArrayLike, " n"],
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""Mean of values over the points with positive weight.

        sum_i w_i v_i / sum_i w_i,

    with `w = 1` unless weights are given.

    Args:
      values: shape `(n,)`.
      quadrature_weights: non-negative weights, shape `(n,)`; a common factor cancels.
        Values at points of zero weight have no effect, even if they are NaN.

    Returns:
      The mean, a scalar; zero if all weights are zero.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quadrature import weighted_mean
      >>> float(weighted_mean(np.array([1.0, 5.0]), np.array([3.0, 1.0])))
      2.0
    """
    (values,) = _checks.arrays(1, values=values)
    if quadrature_weights is None:
        return jnp.mean(values)
    weights = jnp.asarray(quadrature_weights, values.dtype)
    _checks.floating(quadrature_weights=quadrature_weights)
    _checks.same_points(values=values, quadrature_weights=weights)
    total = jnp.sum(weights)
    return jnp.sum(weights * select(values, weights)) / jnp.where(total > 0, total, 1)
