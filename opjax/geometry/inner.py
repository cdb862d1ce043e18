"""Facets of only one cell that are inside the mesh all the same.

Cells of separate parts may lie side by side without common points, as blocks, pieces or
discontinuous elements; and at a hanging node, smaller facets lie on a larger one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from opjax.geometry import _arrays, distances, orientation
from opjax.geometry import facets as areas

_SAME = 1e-9  # of the width of the mesh, is the distance of points in one place
_OPPOSITE = -0.5  # is the product of the normals of facets on each other at most
_SMALLER = 0.99  # of a facet, is the size of the smaller ones on it at most
_NEAR = 0.2  # of a facet's radius, is its distance from the larger one at most
_COVERED = 0.01  # of a facet, may differ from the smaller ones on it
_MANY = 64  # facets at a point that are compared with each other


class Joints(NamedTuple):
    """Points in one place, of parts of a mesh that have no common point.

    Attributes:
      places: the first point in the place of each point, `(n,)`.
      parts: number of the part of each point, `(n,)`.
    """

    places: np.ndarray
    parts: np.ndarray

    @property
    def of_parts(self) -> np.ndarray:
        """Numbers of the places, different for each part, `(n,)`."""
        return self.places + len(self.places) * self.parts


def places(points: np.ndarray) -> np.ndarray:
    """The first of all points that are in the place of each point, `(n,)`."""
    if not len(points):
        return np.zeros(0, np.int64)
    with np.errstate(invalid="ignore"):  # of infinite coordinates
        width = np.ptp(points, axis=0).max() or 1.0
        cells = np.rint((points - points.min(axis=0)) / (_SAME * width))
    order = np.lexsort(cells.T)
    new = np.any(cells[order[1:]] != cells[order[:-1]], axis=1)
    starts = np.flatnonzero(np.concatenate([[True], new]))
    first = np.empty(len(points), np.int64)
    first[order] = np.repeat(order[starts], np.diff(starts, append=len(points)))
    return first


def parts(num_points: int, cells: Sequence[ArrayLike]) -> np.ndarray:
    """Numbers the parts of a mesh that have no common point, `(num_points,)`.

    Args:
      num_points: number of points.
      cells: points of cells (faces, of polyhedra), each an array `(t, corners)`.
    """
    rows = [np.asarray(corners) for corners in cells]
    pairs = [np.stack([c[:, :-1], c[:, 1:]], axis=2).reshape(-1, 2) for c in rows]
    return orientation.connected(np.concatenate(pairs), num_points)


def covered(points: np.ndarray, facets: np.ndarray, joints: Joints) -> np.ndarray:
    """Marks larger facets on which smaller ones lie, and these, `(m,)`.

    The smaller ones look the other way, have all corners of the larger one, and the sum
    of all area vectors is zero.
    """
    vectors = areas.facet_area_vectors(points, facets)
    sizes, normals = _arrays.norm(vectors), _arrays.unit(vectors)
    large = np.flatnonzero(_has_smaller_at_corners(facets, sizes, normals, joints))
    inside = np.zeros(len(facets), bool)
    if not len(large):
        return inside
    small = np.flatnonzero(sizes < _SMALLER * sizes[large].max())
    centers = areas.middles(points[facets[small]], facets[small])
    radii = _arrays.norm(points[facets[small]] - centers[:, None]).max(axis=1)
    nearest = distances.nearest_facets(centers, points, facets[large])
    below = (normals[small] * normals[large][nearest.facet]).sum(axis=1) < _OPPOSITE
    on = below & (nearest.distance <= _NEAR * radii)
    small, under = small[on], nearest.facet[on]
    sums = vectors[large] + _arrays.sums(vectors[small], under, len(large))
    whole = _arrays.norm(sums) <= _COVERED * sizes[large]
    inside[large[whole]] = True
    inside[small[whole[under]]] = True
    return inside


def _has_smaller_at_corners(
    facets: np.ndarray, sizes: np.ndarray, normals: np.ndarray, joints: Joints
) -> np.ndarray:
    """Marks facets that meet smaller, opposite ones at each of their corners, `(m,)`.

    Where a great many facets meet, they count as such.
    """
    corners = facets.reshape(-1)
    order = np.argsort(joints.places[corners], kind="stable")
    corners, rows = corners[order], order // facets.shape[1]
    places, parts = joints.places[corners], joints.parts[corners]
    meets = np.zeros(len(order), bool)
    for step in range(1, _MANY):
        one = np.flatnonzero(places[step:] == places[:-step])
        if not len(one):
            break
        other = one + step
        a, b = rows[one], rows[other]
        opposite = (normals[a] * normals[b]).sum(axis=1) < _OPPOSITE
        opposite &= (corners[one] == corners[other]) | (parts[one] != parts[other])
        meets[one[opposite & (sizes[b] < _SMALLER * sizes[a])]] = True
        meets[other[opposite & (sizes[a] < _SMALLER * sizes[b])]] = True
    else:
        meets |= np.bincount(places)[places] > _MANY
    return np.bincount(rows, ~meets, minlength=len(facets)) == 0
