"""Triangulation of polygons, convex or not."""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax.geometry import _arrays
from opjax.geometry import facets as areas

_AGAINST = 1e-12  # of its facet's area, is the one of a triangle that is flat


def facet_triangles(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> tuple[Int[np.ndarray, "t corners"], Int[np.ndarray, " t"]]:
    """Divides facets into triangles, on the host.

    A polygon is divided from its first corner if all triangles have its orientation, as
    in a convex polygon, and otherwise by ear clipping.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Point indices of the triangles, and the facet of each, with at least one triangle
      per facet; sides, in the plane, are returned unchanged.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import facet_triangles
      >>> dent = np.array([[0.0, 0, 0], [4, 2, 0], [0, 4, 0], [1, 2, 0]])
      >>> facet_triangles(dent, [[0, 1, 2, 3]])[0].tolist()
      [[3, 0, 1], [1, 2, 3]]
    """
    points = _arrays.coordinates(np.asarray(mesh_points))
    vectors = areas.facet_area_vectors(points, facets)
    corners = np.asarray(facets).astype(np.int64)
    numbers = np.arange(len(corners))
    if corners.shape[1] <= 3:
        return corners, numbers
    middle = range(1, corners.shape[1] - 1)
    fan = np.stack([corners[:, [0, i, i + 1]] for i in middle], axis=1)
    pieces = areas.facet_area_vectors(points, fan.reshape(-1, 3)).reshape(
        *fan.shape[:2], 3
    )
    squares = (vectors * vectors).sum(axis=1)
    along = (pieces * vectors[:, None]).sum(axis=2) / np.where(squares > 0, squares, 1)[
        :, None
    ]
    dented = (along < -_AGAINST).any(axis=1)
    # The first is kept of facets without area, whose triangles are all degenerate.
    keep = (fan[:, :, 1] != fan[:, :, 2]) & ~dented[:, None]
    keep[:, 0] = ~dented
    triangles, owners = [fan[keep]], [np.nonzero(keep)[0]]
    for number in np.flatnonzero(dented):
        clipped = _clipped(points, corners[number], vectors[number])
        triangles.append(clipped)
        owners.append(np.full(len(clipped), number))
    return np.concatenate(triangles), np.concatenate(owners)


def _clipped(points: np.ndarray, corners: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Triangles of a polygon that is not convex: one ear after the other."""
    left = [c for i, c in enumerate(corners.tolist()) if c != corners[i - 1]]
    flat = dict(zip(left, _in_plane(points[left], normal), strict=True))
    ears_cut: list[list[int]] = []
    while len(left) > 3:
        ears = (i for i in range(len(left)) if _is_ear(flat, left, i))
        place = next(ears, 0)  # one that crosses itself has none
        ears_cut.append([left[place - 1], left[place], left[(place + 1) % len(left)]])
        del left[place]
    return np.array([*ears_cut, left])


def _in_plane(points: np.ndarray, normal: np.ndarray) -> np.ndarray:
    """Coordinates along two axes, from which the normal is seen to point upwards."""
    axis = np.eye(3)[np.argmin(np.abs(normal))]
    first = np.cross(axis, normal)
    second = np.cross(normal, first)
    return points @ np.stack([first, second], axis=1)


def _is_ear(flat: dict[int, np.ndarray], left: list[int], place: int) -> bool:
    """Whether a corner is convex and its triangle holds no other corner."""
    ears = left[place - 1], left[place], left[(place + 1) % len(left)]
    a, b, c = (flat[corner] for corner in ears)
    others = np.array([flat[corner] for corner in left if corner not in ears])
    if _turn(a, b, c[None])[0] <= 0:
        return False
    inside = np.ones(len(others), bool)
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= _turn(start, end, others) >= 0
    return not inside.any()


def _turn(start: np.ndarray, end: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Positive for points on the left of a side."""
    (x, y), (u, v) = end - start, (others - start).T
    return x * v - y * u
