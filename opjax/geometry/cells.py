"""Volumes and centroids of linear cells of every VTK type, and of polyhedra."""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Bool, Float, Int

from opjax import _checks
from opjax.geometry import _arrays, polyhedra
from opjax.geometry.facets import Facets


class Kind(NamedTuple):
    """A cell type, with corners in VTK's order.

    Attributes:
      dimension: dimension of the cell: 1 for lines, 2 for surfaces, 3 for solids.
      corners: number of corners, or the minimum if it varies.
      free: whether the number of corners varies.
      sides: corners of its facets. Facets of a solid are counterclockwise when seen
        from outside; a triangle repeats its last corner.
      order: corners in the order of the equivalent cell type whose formulas apply;
        empty if the type has its own.
    """

    dimension: int
    corners: int
    free: bool = False
    sides: tuple[tuple[int, ...], ...] = ()
    order: tuple[int, ...] = ()


# Point indices `(t, corners)`, or the faces of polyhedra.
Cells = Int[ArrayLike, "t corners"] | Facets
_BOX = (
    *((0, 4, 7, 3), (1, 2, 6, 5), (0, 1, 5, 4)),
    *((3, 7, 6, 2), (0, 3, 2, 1), (4, 5, 6, 7)),
)
_TETRA = ((0, 1, 3, 3), (1, 2, 3, 3), (2, 0, 3, 3), (0, 2, 1, 1))
_WEDGE = ((0, 1, 2, 2), (3, 5, 4, 4), (0, 3, 4, 1), (1, 4, 5, 2), (2, 5, 3, 0))
_PYRAMID = ((0, 3, 2, 1), (0, 1, 4, 4), (1, 2, 4, 4), (2, 3, 4, 4), (3, 0, 4, 4))
_QUAD = ((0, 1), (1, 2), (2, 3), (3, 0))
KINDS = {
    "line": Kind(1, 2, free=True),
    "triangle": Kind(2, 3, sides=((0, 1), (1, 2), (2, 0))),
    "strip": Kind(2, 3, free=True),
    "polygon": Kind(2, 3, free=True),
    "pixel": Kind(2, 4, sides=_QUAD, order=(0, 1, 3, 2)),
    "quad": Kind(2, 4, sides=_QUAD),
    "tetra": Kind(3, 4, sides=_TETRA),
    "voxel": Kind(3, 8, sides=_BOX, order=(0, 1, 3, 2, 4, 5, 7, 6)),
    "hexahedron": Kind(3, 8, sides=_BOX),
    "wedge": Kind(3, 6, sides=_WEDGE),
    "pyramid": Kind(3, 5, sides=_PYRAMID),
    "polyhedron": Kind(3, 4, free=True),
}
# Both ways to divide a quadrilateral into two triangles.
_WAYS = np.array([(0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3)])
_FLAT = 1e-12  # of the longest side to the power of the dimension


def cell_volumes(
    mesh_points: Float[ArrayLike, "n p"], cells: Cells, kind: str
) -> Float[Any, " t"]:
    r"""Lengths, areas or volumes of cells of one type.

    By the divergence theorem, with the corners relative to their mean,

        |T| = 1/6 sum_{triangles (a, b, c) of the faces} det(a, b, c)     of solids,
        |T| = 1/2 | sum_{sides (a, b)} a x b |                            of surfaces.

    A face of four corners is divided in both ways and averaged, which is the exact
    integral over the bilinear face. So volumes are those of the trilinear map, even
    with warped faces, and the volumes of a mesh add up to the volume enclosed by its
    boundary. Areas are exact for planar cells, convex or not; for a warped surface, the
    area is that of its projection along its mean normal.

    Args:
      mesh_points: shape `(n, p)`; solids need `p = 3`, surfaces 2 or 3.
      cells: point indices in VTK's order, shape `(t, corners)`. Shorter polygons,
        strips and polylines repeat their last corner. For polyhedra, all faces, see
        `outward_polyhedra`.
      kind: one of `KINDS`. Polylines count as lines.

    Returns:
      Shape `(t,)`. Inverted solids have negative volumes, except wedges, which are in
      use with both orientations.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: if the type is unknown or does not fit the corners or the dimension,
        or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import cell_volumes
      >>> square = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])
      >>> cell_volumes(square, [[0, 1, 2, 3]], "quad").tolist()
      [2.0]
    """
    return _measured(mesh_points, cells, kind)[0]


def cell_centers(
    mesh_points: Float[ArrayLike, "n p"], cells: Cells, kind: str
) -> Float[Any, "t p"]:
    r"""Centroids of cells of one type, `1 / |T| int_T x dx`.

    With `cell_volumes` as quadrature weights, values at the centroids integrate linear
    functions exactly. A cell without volume has the mean of its corners.

    Args:
      mesh_points: shape `(n, p)`.
      cells: point indices, shape `(t, corners)`, as for `cell_volumes`.
      kind: one of `KINDS`.

    Returns:
      Shape `(t, p)`.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: as for `cell_volumes`.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import cell_centers
      >>> square = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])
      >>> cell_centers(square, [[0, 1, 2, 3]], "quad").tolist()
      [[1.0, 0.5]]
    """
    return _measured(mesh_points, cells, kind)[1]


def invalid_cells(
    mesh_points: Float[ArrayLike, "n p"], cells: Cells, kind: str
) -> Bool[np.ndarray, " t"]:
    r"""Returns which cells are degenerate, inverted or self-intersecting.

    A cell is degenerate if `|T| <= 1e-12 h^k` with its longest side `h` and dimension
    `k`. It is inverted if its volume is negative. A quadrilateral is self-intersecting
    if two corners turn one way and two the other. A polyhedron must be closed.

    Args:
      mesh_points: shape `(n, p)`.
      cells: point indices, shape `(t, corners)`, as for `cell_volumes`.
      kind: one of `KINDS`.

    Returns:
      Shape `(t,)`.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: as for `cell_volumes`.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import invalid_cells
      >>> points = np.array([[0.0, 0], [1, 0], [0, 1], [2, 0]])
      >>> invalid_cells(points, [[0, 1, 2], [0, 1, 3]], "triangle").tolist()
      [False, True]
    """
    points = np.asarray(mesh_points)
    corners = _corners(_arrays.coordinates(points), cells, kind)
    volumes = _measured(points, cells, kind)[0]
    sides = corners - np.roll(corners, 1, axis=1)
    longest = np.max(_arrays.norm(sides), axis=1, initial=0)
    if isinstance(cells, Facets):
        of_faces, longest = longest, np.zeros(len(volumes))
        np.maximum.at(longest, cells.cells, of_faces)
    bad = volumes <= _FLAT * longest ** KINDS[kind].dimension
    if isinstance(cells, Facets):
        bad |= ~polyhedra.closed_polyhedra(_arrays.coordinates(points), cells)
    if kind in ("pixel", "quad"):
        turns = _arrays.cross(sides, np.roll(sides, -1, axis=1))
        along = (turns * turns.sum(axis=1, keepdims=True)).sum(axis=2)
        bad |= (along < 0).sum(axis=1) > 1
    return bad


def dimension_of(kind: str) -> int:
    """Returns the dimension of a cell type.

    Raises:
      ValueError: if it is unknown.
    """
    _checks.option("kind", kind, KINDS)
    return KINDS[kind].dimension


def _corners(points: _arrays.Array, cells: Cells, kind: str) -> _arrays.Array:
    """Coordinates of corners in space, `(t, corners, 3)`, in the order of formulas."""
    _checks.option("kind", kind, KINDS)
    shape, by_faces = KINDS[kind], isinstance(cells, Facets)
    if by_faces != (kind == "polyhedron"):
        raise TypeError(
            f"Cells of the type {kind} are defined by "
            + ("their points, (t, corners)." if by_faces else "their faces, Facets.")
        )
    corners: ArrayLike = cells.corners if isinstance(cells, Facets) else cells
    indices = _arrays.indices("cells", corners, len(points))
    fewest = 3 if by_faces else shape.corners
    fits = indices.shape[1] == fewest or (shape.free and indices.shape[1] > fewest)
    if not fits:
        more = " or more" if shape.free else ""
        raise ValueError(
            f"cells have shape {indices.shape}, but a {kind} has {shape.corners}{more} "
            "corners."
        )
    if shape.dimension > points.shape[1]:
        raise ValueError(
            f"mesh_points has shape {points.shape}, but a {kind} has "
            f"{shape.dimension} dimensions."
        )
    order = list(shape.order or range(indices.shape[1]))
    return _arrays.in_space(points)[indices[:, order]]


def _measured(mesh_points: ArrayLike, cells: Cells, kind: str) -> tuple[Any, Any]:
    """Volumes `(t,)` and centres `(t, p)`."""
    points = _arrays.coordinates(mesh_points)
    xp = _arrays.namespace(points)
    corners = _corners(points, cells, kind)
    if isinstance(cells, Facets):
        return polyhedra.measured(points, cells)
    middle = corners.mean(axis=1, keepdims=True)
    sizes, centres = _pieces(corners - middle, kind)
    volumes = sizes.sum(axis=1)
    flat = volumes == 0
    moments = (sizes[:, :, None] * centres).sum(axis=1)
    offsets = xp.where(flat[:, None], 0, moments / xp.where(flat, 1, volumes)[:, None])
    centers = (middle[:, 0] + offsets)[:, : points.shape[1]]
    return (abs(volumes) if kind == "wedge" else volumes), centers


def _pieces(corners: _arrays.Array, kind: str) -> tuple[Any, Any]:
    """Simplices that make up cells around the origin: signed sizes and centres."""
    if kind == "line":
        a, b = corners[:, :-1], corners[:, 1:]
        return _arrays.norm(b - a), (a + b) / 2
    if kind == "strip":
        a, b, c = corners[:, :-2], corners[:, 1:-1], corners[:, 2:]
        turned = _arrays.cross(b - a, c - a)
        return _arrays.norm(turned) / 2, (a + b + c) / 3
    if KINDS[kind].dimension == 2:
        after = _arrays.namespace(corners).roll(corners, -1, axis=1)
        vectors = _arrays.cross(corners, after) / 2
        normal = _arrays.unit(vectors.sum(axis=1, keepdims=True))
        return (vectors * normal).sum(axis=2), (corners + after) / 3
    triangles = np.array(KINDS[kind].sides)[:, _WAYS].reshape(-1, 3)
    a, b, c = (corners[:, triangles[:, i]] for i in range(3))
    sizes = (a * _arrays.cross(b, c)).sum(axis=2) / 12  # each face is there twice
    return sizes, (a + b + c) / 4
