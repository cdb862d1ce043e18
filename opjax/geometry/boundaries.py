"""The boundary of a mesh: facets that belong to one cell only, and open edges."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax.geometry import _arrays, cells, facets, orientation


class Facets(NamedTuple):
    """Facets of a mesh.

    Attributes:
      corners: point indices, `(m, 2)` for meshes of surfaces, `(m, 4)` for solids,
        where triangles repeat their last corner; counterclockwise from outside.
      cells: which cell each facet belongs to, `(m,)`, counted over all kinds in their
        order.
    """

    corners: np.ndarray
    cells: np.ndarray


def boundary_facets(
    mesh_points: Float[ArrayLike, "n p"], cells_by_kind: Mapping[str, ArrayLike]
) -> Facets:
    """Finds the facets that belong to exactly one cell, on the host.

    Facets are turned away from the centre of their cell: those of solids, and sides of
    surfaces in the plane. Sides of surfaces in space keep the direction of their cell.

    Args:
      mesh_points: shape `(n, p)`.
      cells_by_kind: point indices `(t, corners)` for each kind of `KINDS`, all
        surfaces or all solids; mixed meshes have several kinds.

    Returns:
      The facets, none if the mesh is closed.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: if there are no cells, kinds have no facets or different dimensions,
        or a point does not exist.

    Examples:
      >>> points = np.array([[0.0, 0], [1, 0], [0, 1]])
      >>> boundary_facets(points, {"triangle": [[0, 1, 2]]}).corners.tolist()
      [[0, 1], [1, 2], [2, 0]]
    """
    points = _arrays.coordinates(np.asarray(mesh_points))
    dimensions = {cells.dimension_of(kind) for kind in cells_by_kind}
    if len(dimensions) != 1 or not dimensions <= {2, 3}:
        raise ValueError(
            f"cells_by_kind has {sorted(cells_by_kind)}: boundaries are those of "
            "surfaces or of solids, of one dimension."
        )
    sides, owners, middles, first = [], [], [], 0
    for kind, of_kind in cells_by_kind.items():
        indices = _arrays.indices("cells", of_kind, len(points))
        middles.append(cells.cell_centers(points, indices, kind))
        corners, rows = _sides(indices, kind)
        sides.append(corners)
        owners.append(rows + first)
        first += len(indices)
    corners, owner = np.concatenate(sides), np.concatenate(owners)
    single = _occurring_once(np.sort(corners, axis=1))
    corners, owner = corners[single], owner[single]
    if points.shape[1] == max(dimensions):
        corners = _outwards(points, corners, np.concatenate(middles)[owner])
    return Facets(corners, owner)


def open_edges(facets: Int[ArrayLike, "m corners"]) -> Int[np.ndarray, "k ends"]:
    """Finds where a boundary is open: edges without a neighbour in the other direction.

    A boundary is closed, with one orientation, if every edge of a facet belongs to as
    many facets in the one direction as in the other. In the plane the ends of sides
    take the place of edges.

    Args:
      facets: point indices, shape `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Point indices of the open edges, `(k, 2)`, or of the open ends, `(k, 1)`; none if
      the boundary is closed.

    Raises:
      TypeError: if facets are not integers.
      ValueError: if they have one corner.

    Examples:
      >>> open_edges(np.array([[0, 1], [1, 2]])).tolist()
      [[0], [2]]
    """
    corners = np.asarray(facets)
    corners = _arrays.indices("facets", corners, int(corners.max(initial=-1)) + 1)
    if corners.shape[1] < 2:
        raise ValueError(f"facets have shape {corners.shape}, expected two corners.")
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
            f"Cells of the kind {kind!r} have no facets; triangulate them."
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


def _occurring_once(keys: np.ndarray) -> np.ndarray:
    """Returns which rows are there once; those of three corners repeat one of them."""
    if keys.shape[1] == 4:  # whichever they repeat, let it be the largest
        three = np.any(keys[:, 1:] == keys[:, :-1], axis=1)
        for column in (1, 2):
            same = three & (keys[:, column] == keys[:, column - 1])
            keys[same, column:-1] = keys[same, column + 1 :]
    order = np.lexsort(keys.T)
    ordered = keys[order]
    new = np.any(ordered[1:] != ordered[:-1], axis=1)
    single = np.concatenate([[True], new]) & np.concatenate([new, [True]])
    once = np.zeros(len(keys), bool)
    once[order] = single[: len(keys)]
    return once


def _outwards(
    points: np.ndarray, corners: np.ndarray, centers: np.ndarray
) -> np.ndarray:
    vectors = facets.facet_area_vectors(points, corners)
    inwards = np.sum(vectors * (points[corners].mean(axis=1) - centers), axis=1) < 0
    turned = corners.copy()
    if corners.shape[1] == 2:
        turned[inwards] = corners[inwards, ::-1]
    else:  # (a, b, c, c) becomes (b, a, c, c), and (a, b, c, d) becomes (b, a, d, c)
        turned[inwards] = corners[inwards][:, [1, 0, 3, 2]]
    return turned
