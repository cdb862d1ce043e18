"""Cells that are defined by their faces, polygons with any number of corners.

Polyhedra are `Facets`: all faces of all cells, with the cell of each. Formulas use the
triangles around the mean of a face's corners. So two cells that share a face, even a
warped one, share its triangles, and volumes add up to the volume enclosed by the
boundary.
"""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax.geometry import _arrays, orientation
from opjax.geometry import facets as areas
from opjax.geometry.facets import Facets

_OPEN = 1e-9  # of the area of all faces, is what faces that close add up to at most


def outward_polyhedra(mesh_points: Float[ArrayLike, "n 3"], faces: Facets) -> Facets:
    """Orients the faces of polyhedra outwards, on the host.

    Faces of one cell that share an edge are oriented consistently, then all of them by
    the sign of its volume. Cells whose faces do not close are unchanged, see
    `invalid_cells`.

    Args:
      mesh_points: shape `(n, 3)`.
      faces: faces of all cells; shorter faces repeat their last corner.

    Returns:
      The faces in the same order.

    Raises:
      TypeError: if points are not floating point or corners not integers.
      ValueError: if points are not in 3D or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import Facets, cell_volumes, outward_polyhedra
      >>> points = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
      >>> corners = np.array([[0, 1, 2], [0, 1, 3], [1, 2, 3], [0, 2, 3]])
      >>> faces = outward_polyhedra(points, Facets(corners, np.zeros(4, int)))
      >>> cell_volumes(points, faces, "polyhedron").round(4).tolist()
      [0.1667]
    """
    points = _arrays.coordinates(np.asarray(mesh_points))
    corners = faces.corners.copy()
    wrong = np.flatnonzero(~closed_polyhedra(points, faces)[faces.cells])
    if len(wrong):
        # The same point of another cell is another point.
        own = faces.cells[wrong, None] * len(points) + corners[wrong]
        _, own = np.unique(own, return_inverse=True)
        try:
            turned = orientation.against_neighbours(own.reshape(len(wrong), -1))
        except ValueError:  # some have one side only
            turned = np.zeros(len(wrong), bool)
        corners[wrong[turned]] = reversed_corners(corners[wrong[turned]])
    inwards = (measured(points, Facets(corners, faces.cells))[0] < 0)[faces.cells]
    corners[inwards] = reversed_corners(corners[inwards])
    return Facets(corners, faces.cells)


def closed_polyhedra(points: np.ndarray, faces: Facets) -> np.ndarray:
    """Marks cells with closed, consistently oriented faces, `(t,)`.

    Area vectors of closed faces add up to zero for any points; otherwise they do not
    for random points.
    """
    anywhere = np.random.default_rng(0).normal(size=(len(points), 3))
    vectors = areas.facet_area_vectors(anywhere, faces.corners)
    count = num_polyhedra(faces)
    sums = _arrays.norm(_arrays.sums(vectors, faces.cells, count))
    sizes = _arrays.sums(_arrays.norm(vectors), faces.cells, count)
    return (sums <= _OPEN * sizes) & (np.bincount(faces.cells, minlength=count) > 3)


def measured(points: Any, faces: Facets) -> tuple[Any, Any]:
    """Volumes `(t,)` and centroids `(t, 3)` of polyhedra, by the divergence theorem."""
    count, xp = num_polyhedra(faces), _arrays.namespace(points)
    corners = points[faces.corners]
    around = areas.middles(corners, faces.corners)
    number = np.bincount(faces.cells, minlength=count)[:, None]
    middles = _arrays.sums(around, faces.cells, count) / np.maximum(number, 1)
    origin = middles[faces.cells]
    a, m = corners - origin[:, None], (around - origin)[:, None]
    b = xp.roll(a, -1, axis=1)
    sizes = (_arrays.cross(a, b) * m).sum(axis=2) / 6
    moments = (sizes[:, :, None] * (a + b + m) / 4).sum(axis=1)
    volumes = _arrays.sums(sizes.sum(axis=1), faces.cells, count)
    moments = _arrays.sums(moments, faces.cells, count)
    flat = (volumes == 0)[:, None]
    offsets = xp.where(flat, 0, moments / xp.where(flat, 1, volumes[:, None]))
    return volumes, middles + offsets


def num_polyhedra(faces: Facets) -> int:
    """Number of the cells of given faces."""
    return int(faces.cells.max(initial=-1)) + 1


def reversed_corners(corners: np.ndarray) -> np.ndarray:
    """Reverses the orientation of faces: `(b, a, d, c)`; triangle: `(b, a, c, c)`."""
    last = np.argmax(corners == corners[:, -1:], axis=1)[:, None]
    places = (1 - np.minimum(np.arange(corners.shape[1]), last)) % (last + 1)
    return np.take_along_axis(corners, places, axis=1)
