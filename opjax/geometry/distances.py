"""Exact distances from points to the facets of a boundary, on the host."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax.geometry import _arrays, triangles
from opjax.geometry import facets as areas

_CHUNK = 4096  # points
_PAIRS = 2_000_000  # of a point and a facet, at once
_LEVELS = 12  # facets are sorted by size, each level half as large as the last
_TIE = 1e-9  # of the width of the boundary


class Nearest(NamedTuple):
    """The nearest facets of points.

    Attributes:
      distance: distance to the nearest facet, `(m,)`.
      facet: index of the facet, the smallest if several are equally near, `(m,)`.
      normal: its outward unit normal, `(m, p)`. If several facets are equally near, as
        at a corner, it is the normalised mean of their normals; zero if they cancel.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import nearest_facets
      >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> sides = [[0, 1], [1, 2], [2, 3], [3, 0]]
      >>> nearest = nearest_facets(np.array([[0.5, 0.25]]), square, sides)
      >>> nearest.distance.tolist(), nearest.facet.tolist()
      ([0.25], [0])
    """

    distance: np.ndarray
    facet: np.ndarray
    normal: np.ndarray


def distance(
    points: Float[ArrayLike, "m p"],
    mesh_points: Float[ArrayLike, "n p"],
    facets: Int[ArrayLike, "k corners"],
) -> Float[np.ndarray, " m"]:
    """Distances from points to a boundary, exact up to rounding; see `nearest_facets`.

    Args:
      points: shape `(m, p)`, `p` of 2 or 3.
      mesh_points: points of the mesh, shape `(n, p)`.
      facets: point indices, `(k, 2)` in the plane, `(k, corners)` in space.

    Returns:
      Non-negative, shape `(m,)`, float64.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: as from `nearest_facets`.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import distance
      >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> sides = [[0, 1], [1, 2], [2, 3], [3, 0]]
      >>> distance(np.array([[0.5, 0.25], [4, 5]]), square, sides).tolist()
      [0.25, 5.0]
    """
    return nearest_facets(points, mesh_points, facets).distance


def nearest_facets(
    points: Float[ArrayLike, "m p"],
    mesh_points: Float[ArrayLike, "n p"],
    facets: Int[ArrayLike, "k corners"],
) -> Nearest:
    """Finds the facet of a boundary that is nearest to each point.

    A facet can only be the nearest if the distance of its centre is at most the
    smallest known distance plus its radius. Trees over the centres, one for each size
    of facets, list these candidates; points are processed in chunks. Facets of more
    than three corners are divided into triangles, see `facet_triangles`.

    Args:
      points: shape `(m, p)`, `p` of 2 or 3.
      mesh_points: points of the mesh, shape `(n, p)`.
      facets: point indices, `(k, 2)` in the plane, `(k, corners)` in space.

    Returns:
      Distances, facets and normals of the points.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these, there is no facet, a point does not
        exist or a coordinate is not finite.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import nearest_facets
      >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> sides = [[0, 1], [1, 2], [2, 3], [3, 0]]
      >>> nearest_facets(np.array([[0.5, 0.25]]), square, sides).normal.tolist()
      [[0.0, -1.0]]
    """
    _checks.on_host(points=points, mesh_points=mesh_points, facets=facets)
    where = _arrays.coordinates(np.asarray(points), "points")
    mesh = _arrays.coordinates(np.asarray(mesh_points))
    _checks.same_axis(1, "dimensions (axis 1)", {"points": where, "mesh_points": mesh})
    vectors = areas.facet_area_vectors(mesh, facets)
    corners = np.asarray(facets).astype(np.int64)
    if not len(corners):
        raise ValueError("Distances need at least one facet.")
    for name, array in (("points", where), ("mesh_points", mesh[corners])):
        if not np.isfinite(array).all():
            raise ValueError(f"{name} have non-finite coordinates.")
    simplices, owners = triangles.facet_triangles(mesh, corners)
    search = _prepared(mesh[simplices])
    chunks = [
        _resolved(search, where[i : i + _CHUNK], owners, _arrays.unit(vectors))
        for i in range(0, len(where), _CHUNK)
    ]
    if not chunks:
        return Nearest(np.zeros(0), np.zeros(0, np.int64), np.zeros_like(where))
    return Nearest(*(np.concatenate(parts) for parts in zip(*chunks, strict=True)))


def layers(
    distances: Float[ArrayLike, " m"],
    mesh_points: Float[ArrayLike, "n p"],
    facets: Int[ArrayLike, "k corners"],
) -> dict[str, Float[np.ndarray, " m"]]:
    """Functions that decay from 1 at a boundary to 0 far away.

        wide = l / (l + d),    thin = exp(-3 d / l),

    where the length `l` is half of the longest side of the boundary's bounding box: the
    radius of a round hole. Fields vary near a boundary on the scale of its size, and
    many decay like powers of `wide`, such as stresses around a hole.

    Args:
      distances: distances of points to the boundary, `(m,)`, see `distance`.
      mesh_points: points of the mesh, `(n, p)`.
      facets: point indices of the boundary, `(k, corners)`.

    Returns:
      `wide` and `thin`, shape `(m,)`, between 0 and 1.

    Raises:
      ValueError: if there is no facet, or all facets lie at one point.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import layers
      >>> square = np.array([[0.0, 0], [2, 0], [2, 2], [0, 2]])
      >>> sides = [[0, 1], [1, 2], [2, 3], [3, 0]]
      >>> layers(np.array([0.0, 1.0, 3.0]), square, sides)["wide"].tolist()
      [1.0, 0.5, 0.25]
    """
    corners = np.asarray(mesh_points, np.float64)[np.unique(np.asarray(facets))]
    length = float(np.ptp(corners, axis=0).max(initial=0)) / 2 if len(corners) else 0.0
    if not length > 0:
        raise ValueError("Layers need a boundary with positive extent.")
    over = np.asarray(distances, np.float64) / length
    return {"wide": 1 / (1 + over), "thin": np.exp(-3 * over)}


class _Level(NamedTuple):
    """Simplices of about one size.

    Attributes:
      tree: scipy's tree of their centres.
      numbers: which ones they are.
      radius: distance of a corner from its centre, at most.
    """

    tree: Any
    numbers: np.ndarray
    radius: float


class _Simplices(NamedTuple):
    """Sides or triangles to search for.

    Attributes:
      corners: shape `(s, corners, p)`.
      centers: shape `(s, p)`.
      radii: distance of a corner from the centre, at most, `(s,)`.
      normals: unit normals of triangles, `(s, 3)`; zero for sides.
      levels: the simplices by size.
      near: tree of all centres.
      tie: distances that differ by less are equal.
    """

    corners: np.ndarray
    centers: np.ndarray
    radii: np.ndarray
    normals: np.ndarray
    levels: list[_Level]
    near: Any
    tie: float


def _prepared(corners: np.ndarray) -> _Simplices:
    from scipy.spatial import KDTree

    centers = corners.mean(axis=1)
    radii = _arrays.norm(corners - centers[:, None]).max(axis=1)
    largest = max(radii.max(), np.finfo(float).tiny)
    with np.errstate(divide="ignore"):
        halvings = np.minimum(np.floor(np.log2(largest / radii)), _LEVELS)
    levels: list[_Level] = []
    for level in np.unique(halvings):
        numbers = np.flatnonzero(halvings == level)
        tree = KDTree(centers[numbers])
        levels.append(_Level(tree, numbers, float(radii[numbers].max())))
    normals = np.zeros_like(centers)
    if corners.shape[1] == 3:
        a, b, c = (corners[:, i] for i in range(3))
        normals = _arrays.unit(_arrays.cross(b - a, c - a))
    width = float(np.ptp(corners.reshape(-1, corners.shape[2]), axis=0).max())
    near = KDTree(centers)
    return _Simplices(corners, centers, radii, normals, levels, near, _TIE * width)


def _resolved(
    search: _Simplices, points: np.ndarray, owners: np.ndarray, normals: np.ndarray
) -> Nearest:
    """Nearest facets of a chunk of points."""
    distances, rows, simplices = _search(search, points)
    pairs = np.unique(np.stack([rows, owners[simplices]], axis=1), axis=0)
    first = np.searchsorted(pairs[:, 0], np.arange(len(points)))
    sums = np.zeros_like(points)
    np.add.at(sums, pairs[:, 0], normals[pairs[:, 1]])
    sums[_arrays.norm(sums) < 1e-6] = 0  # they cancel
    return Nearest(distances, pairs[first, 1], _arrays.unit(sums))


def _search(
    search: _Simplices, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distances of points, and all pairs of a point and a simplex at that distance."""
    count = min(4, len(search.centers))
    _, close = search.near.query(points, k=np.arange(1, count + 1))
    rows = np.repeat(np.arange(len(points)), count)
    best = _distances(search, points[rows], close.reshape(-1)).reshape(-1, count)
    bounds = best.min(axis=1)
    candidates: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for level in search.levels:
        reach = (bounds + level.radius) * (1 + 1e-9) + search.tie
        sizes = level.tree.query_ball_point(points, reach, return_length=True)
        for part in np.split(np.arange(len(points)), _breaks(sizes)):
            lists = level.tree.query_ball_point(points[part], reach[part])
            if not sizes[part].any():
                continue
            rows = np.repeat(part, sizes[part])
            simplices = level.numbers[np.concatenate([*lists]).astype(np.int64)]
            keep = _at_least(search, points[rows], simplices) <= (
                bounds[rows] * (1 + 1e-9) + search.tie
            )
            rows, simplices = rows[keep], simplices[keep]
            values = _distances(search, points[rows], simplices)
            np.minimum.at(bounds, rows, values)
            keep = values <= bounds[rows] + search.tie
            candidates.append((rows[keep], simplices[keep], values[keep]))
    rows, simplices, values = (
        np.concatenate(parts) for parts in zip(*candidates, strict=True)
    )
    keep = values <= bounds[rows] + search.tie
    return bounds, rows[keep], simplices[keep]


def _breaks(sizes: np.ndarray) -> np.ndarray:
    """Where to divide points, so that few parts have more than `_PAIRS` in all."""
    return np.flatnonzero(np.diff(np.cumsum(sizes) // _PAIRS)) + 1


def _at_least(
    search: _Simplices, points: np.ndarray, simplices: np.ndarray
) -> np.ndarray:
    """Distances of points to discs (balls, of sides) around simplices."""
    offsets = points - search.centers[simplices]
    above = np.sum(offsets * search.normals[simplices], axis=1)
    squares = np.sum(offsets * offsets, axis=1)
    aside = np.sqrt(np.maximum(squares - above**2, 0)) - search.radii[simplices]
    return np.hypot(above, np.maximum(aside, 0))


def _distances(
    search: _Simplices, points: np.ndarray, simplices: np.ndarray
) -> np.ndarray:
    """Distances of points to one side or triangle each."""
    corners = search.corners[simplices]
    a, b = corners[:, 0], corners[:, 1]
    if corners.shape[1] == 2:
        return _to_side(points, a, b)
    c = corners[:, 2]
    sides = [_to_side(points, p, q) for p, q in ((a, b), (b, c), (c, a))]
    nearest = np.minimum(np.minimum(sides[0], sides[1]), sides[2])
    normal = search.normals[simplices]
    inside = np.any(normal != 0, axis=1)
    for p, q in ((a, b), (b, c), (c, a)):
        turned = _arrays.cross(q - p, points - p)
        inside &= np.sum(turned * normal, axis=1) >= 0
    above = np.abs(np.sum((points - a) * normal, axis=1))
    return np.where(inside, above, nearest)


def _to_side(points: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    along = b - a
    squares = np.sum(along * along, axis=1)
    shares = np.sum((points - a) * along, axis=1) / np.where(squares == 0, 1, squares)
    feet = a + np.clip(shares, 0, 1)[:, None] * along
    return _arrays.norm(points - feet)
