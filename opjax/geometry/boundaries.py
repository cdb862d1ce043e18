"""The boundary of a mesh: facets that belong to only one cell, and open edges."""

from collections.abc import Mapping

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax.geometry import _arrays, cells, facets, inner, orientation, polyhedra
from opjax.geometry.facets import Facets


def boundary_facets(
    mesh_points: Float[ArrayLike, "n p"],
    cells_by_kind: Mapping[str, cells.Cells],
    *,
    joined: bool = True,
) -> Facets:
    """Finds the facets that belong to exactly one cell, on the host.

    Facets of solids, and sides of surfaces in the plane, are oriented away from the
    centroid of their cell. Sides of surfaces in 3D keep the direction of their cell.

    Facets inside the mesh are left out, even if cells do not share them: two facets in
    one place of cells that no common points connect, as of blocks or discontinuous
    elements; and, except for surfaces in 3D, a facet that smaller ones cover, as at
    hanging nodes. The two sides of a crack, whose cells are connected around its end,
    remain.

    Args:
      mesh_points: shape `(n, p)`.
      cells_by_kind: point indices `(t, corners)` for each cell type of `KINDS`, or
        faces of polyhedra; either all surfaces or all solids. Mixed meshes have several
        types.
      joined: False also returns the facets inside the mesh that cells do not share.

    Returns:
      The facets; empty if the mesh is closed.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: if there are no cells, cell types have no facets or different
        dimensions, or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import boundary_facets
      >>> points = np.array([[0.0, 0], [1, 0], [0, 1]])
      >>> boundary_facets(points, {"triangle": [[0, 1, 2]]}).corners.tolist()
      [[0, 1], [1, 2], [2, 0]]
    """
    points = _arrays.coordinates(np.asarray(mesh_points))
    every = cell_facets(cells_by_kind, len(points))
    single = _counts(every.corners) == 1
    corners, owner = every.corners[single], every.cells[single]
    joints = _joints(points, corners, cells_by_kind) if joined else None
    if joints is not None:
        pairs = _counts(joints.places[corners]) == 2
        outer = ~pairs | (_counts(joints.of_parts[corners]) > 1)
        corners, owner = corners[outer], owner[outer]
    if every.corners.shape[1] == 2 < points.shape[1]:
        return Facets(corners, owner)
    inwards = _inwards(points, corners, _centers(points, cells_by_kind)[owner])
    if corners.shape[1] == 2:
        corners[inwards] = corners[inwards, ::-1]
    else:
        corners[inwards] = polyhedra.reversed_corners(corners[inwards])
    if joints is not None:
        outer = ~inner.covered(points, corners, joints)
        corners, owner = corners[outer], owner[outer]
    return Facets(corners, owner)


def cell_facets(cells_by_kind: Mapping[str, cells.Cells], num_points: int) -> Facets:
    """Lists the facets of all cells; a facet between two cells is listed twice.

    Args:
      cells_by_kind: as for `boundary_facets`.
      num_points: number of points of the mesh.

    Returns:
      The facets, cell by cell within a cell type.

    Raises:
      TypeError: if cells are not integers.
      ValueError: as for `boundary_facets`.

    Examples:
      >>> from opjax.geometry import cell_facets
      >>> facets = cell_facets({"triangle": [[0, 1, 2], [0, 2, 3]]}, num_points=4)
      >>> facets.corners.shape, facets.cells.tolist()
      ((6, 2), [0, 0, 0, 1, 1, 1])
    """
    dimensions = {cells.dimension_of(kind) for kind in cells_by_kind}
    if len(dimensions) != 1 or not dimensions <= {2, 3}:
        raise ValueError(
            f"cells_by_kind has {sorted(cells_by_kind)}: expected only surfaces or "
            "only solids."
        )
    sides: list[np.ndarray] = []
    owners: list[np.ndarray] = []
    first = 0
    for kind, of_kind in cells_by_kind.items():
        if isinstance(of_kind, Facets):
            corners = _arrays.indices("cells", of_kind.corners, num_points)
            rows, count = of_kind.cells, polyhedra.num_polyhedra(of_kind)
        else:
            indices = _arrays.indices("cells", of_kind, num_points)
            (corners, rows), count = _sides(indices, kind), len(indices)
        sides.append(corners)
        owners.append(rows + first)
        first += count
    widest = max(corners.shape[1] for corners in sides)
    padding = [[(0, 0), (0, widest - corners.shape[1])] for corners in sides]
    sides = [np.pad(*both, mode="edge") for both in zip(sides, padding, strict=True)]
    return Facets(np.concatenate(sides), np.concatenate(owners))


def _centers(
    points: np.ndarray, cells_by_kind: Mapping[str, cells.Cells]
) -> np.ndarray:
    """Centres of cells; NaN for polyhedra, whose faces are turned already."""
    return np.concatenate(
        [
            np.full((polyhedra.num_polyhedra(of_kind), points.shape[1]), np.nan)
            if isinstance(of_kind, Facets)
            else cells.cell_centers(points, of_kind, kind)
            for kind, of_kind in cells_by_kind.items()
        ]
    )


def open_edges(facets: Int[ArrayLike, "m corners"]) -> Int[np.ndarray, "k ends"]:
    """Finds open edges of a boundary, which lack a facet in the opposite direction.

    A boundary is closed and consistently oriented if every edge belongs to equally many
    facets in both directions. In the plane, the ends of sides take the place of edges.

    Args:
      facets: point indices, shape `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Point indices of the open edges, `(k, 2)`, or of the open ends, `(k, 1)`; empty if
      the boundary is closed.

    Raises:
      TypeError: if facets are not integers.
      ValueError: if they have only one corner.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import open_edges
      >>> open_edges(np.array([[0, 1], [1, 2]])).tolist()
      [[0], [2]]
    """
    corners = np.asarray(facets)
    corners = _arrays.indices("facets", corners, int(corners.max(initial=-1)) + 1)
    if corners.shape[1] < 2:
        raise ValueError(
            f"facets have shape {corners.shape}, but a facet needs at "
            "least two corners."
        )
    return orientation.unbalanced_edges(corners)


def _sides(indices: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Corners of all facets of cells, and the row of their cell."""
    shape = cells.KINDS[kind]
    if shape.sides:
        ordered = indices[:, list(shape.order)] if shape.order else indices
        corners = ordered[:, np.array(shape.sides)]
    elif kind == "polygon":
        corners = np.stack([indices, np.roll(indices, -1, axis=1)], axis=2)
    else:
        raise ValueError(
            f"Cells of the type {kind!r} have no facets; triangulate them."
        )
    rows = np.repeat(np.arange(len(indices)), corners.shape[1])
    corners = corners.reshape(-1, corners.shape[2])
    if corners.shape[1] == 4:
        corners, keep = _without_repeats(corners)
    else:
        keep = corners[:, 0] != corners[:, 1]  # shorter polygons repeat a corner
    return corners[keep], rows[keep]


def _without_repeats(corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Faces of collapsed solids: triangles `(a, b, c, c)`, and which have an area.

    A face `(a, a, b, c)` or `(a, b, c, a)` is a triangle. One of two different corners,
    or folded onto itself, `(a, b, a, c)`, is none.
    """
    first = np.argmax(corners == np.roll(corners, 1, axis=1), axis=1)
    repeats = (corners == np.roll(corners, 1, axis=1)).any(axis=1)
    # The repeated corner goes to the end, in the same direction.
    turned = np.where(repeats, first + 1, 0)[:, None] + np.arange(4)
    corners = np.take_along_axis(corners, turned % 4, axis=1)
    a, b, c, d = corners.T
    return corners, (a != b) & (b != c) & (a != c) & (b != d) & (a != d)


def _joints(
    points: np.ndarray, corners: np.ndarray, cells_by_kind: Mapping[str, cells.Cells]
) -> inner.Joints:
    """Corners of facets in one place, and the parts of the mesh they belong to."""
    used, places = np.unique(corners), np.arange(len(points))
    places[used] = used[inner.places(points[used])]
    if (places == np.arange(len(points))).all():
        return inner.Joints(places, np.zeros_like(places))
    rows = [c.corners if isinstance(c, Facets) else c for c in cells_by_kind.values()]
    return inner.Joints(places, inner.parts(len(points), rows))


def _counts(facets: np.ndarray) -> np.ndarray:
    """How often each facet is listed, whichever of its corners repeat."""
    keys = np.sort(facets, axis=1)
    if keys.shape[1] > 2:
        repeats = np.pad(keys[:, 1:] == keys[:, :-1], [(0, 0), (1, 0)])
        keys = np.sort(np.where(repeats, np.iinfo(np.int64).max, keys), axis=1)
    order = np.lexsort(keys.T)
    ordered = keys[order]
    new = np.any(ordered[1:] != ordered[:-1], axis=1)
    starts = np.flatnonzero(np.concatenate([[True], new]))[: len(keys)]
    sizes = np.diff(starts, append=len(keys))
    counts = np.empty(len(keys), np.int64)
    counts[order] = np.repeat(sizes, sizes)
    return counts


def _inwards(
    points: np.ndarray, corners: np.ndarray, centers: np.ndarray
) -> np.ndarray:
    """Which facets look towards the centre of their cell."""
    vectors = facets.facet_area_vectors(points, corners)
    return np.sum(vectors * (points[corners].mean(axis=1) - centers), axis=1) < 0
