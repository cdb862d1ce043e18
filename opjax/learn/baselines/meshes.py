"""Correspondence of the meshes of cases, and values on a common mesh."""

import functools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from opjax.samples import Sample

_EDGES = 4  # from each of the points that are looked at, to its neighbours
_LOOKED_AT = 500  # points
_STRETCH = 4.0  # of nearly all edges, between meshes that correspond
_MOST_POINTS = 20_000  # of the common mesh, where meshes do not correspond


class CommonMesh:
    """A mesh on which all cases have values.

    If a mesh corresponds to the common mesh, point `i` is its point `i`. Otherwise the
    bounding boxes of both are aligned, and values are interpolated from the nearest
    points with inverse squared distance weights.

    Args:
      points: points of the mesh, `(m, p)`.
      cells: cells of the mesh, if it has any.
      size: size of the box to which all bounding boxes are scaled, `(p,)`.
      subset: whether the mesh contains only a subset of the points of a case, so that
        no mesh corresponds to it.
    """

    def __init__(
        self,
        points: np.ndarray,
        cells: np.ndarray | None,
        size: np.ndarray,
        *,
        subset: bool = False,
    ):
        self.points, self.cells, self.size = np.asarray(points, float), cells, size
        self.subset = subset

    @classmethod
    def of(cls, train: Sequence[Sample]) -> "tuple[CommonMesh, str]":
        """Returns the common mesh of cases, and why their meshes do not correspond.

        The reason is empty if they correspond.
        """
        first = train[0]
        widths = [np.ptp(np.asarray(one.mesh_points, float), axis=0) for one in train]
        size = np.mean(widths, axis=0)
        mesh = cls(first.mesh_points, first.cells, size)
        if first.target_grid is not None:
            return mesh, ""
        for one in train[1:]:
            if reason := mesh.obstacle(one):
                name, other = (pathlib.PurePath(x.name).name for x in (first, one))
                name, other = name or "the first case", other or "another one"
                why = f"{reason} in {name} and {other}"
                step = -(-first.num_points // _MOST_POINTS)
                part = first.mesh_points[::step]
                return cls(part, None, size, subset=True), why
        return mesh, ""

    def obstacle(self, sample: Sample) -> str:
        """Returns why a mesh does not correspond to this one; empty if it does."""
        if self.subset:
            return "the meshes differ"
        if sample.num_points != len(self.points):
            return f"{len(self.points)} and {sample.num_points} points"
        cells = sample.cells
        if self.cells is not None and cells is not None:
            return "" if np.array_equal(self.cells, cells) else "other cells"
        points = np.asarray(sample.mesh_points, float)
        if np.array_equal(points, self.points):
            return ""
        ratio = self._lengths(points) / np.maximum(self._own_lengths, 1e-12)
        far = np.quantile(ratio, 0.9) > _STRETCH
        return "other neighbours of points" if far else ""

    @functools.cached_property
    def _edges(self) -> tuple[np.ndarray, np.ndarray]:
        """Some points, and neighbours of each of them."""
        from scipy.spatial import KDTree

        step = -(-len(self.points) // _LOOKED_AT)
        rows = np.arange(0, len(self.points), step)
        count = min(_EDGES + 1, len(self.points))
        _, near = KDTree(self.points).query(self.points[rows], k=count)
        return rows, np.reshape(near, (len(rows), -1))

    @functools.cached_property
    def _own_lengths(self) -> np.ndarray:
        return self._lengths(self.points)

    def _lengths(self, points: np.ndarray) -> np.ndarray:
        """The longest of the edges of each point, over the width of the mesh."""
        rows, near = self._edges
        lengths = np.linalg.norm(points[near] - points[rows, None], axis=2)
        return lengths.max(axis=1) / (np.ptp(points, axis=0).max() or 1.0)

    @functools.cached_property
    def stretched(self) -> np.ndarray:
        """The points, scaled to the common box."""
        return self.in_box(self.points)

    def in_box(self, points: np.ndarray) -> np.ndarray:
        """Returns points of a mesh, scaled to the common box, `(n, p)`."""
        points = np.asarray(points, float)
        low, width = points.min(axis=0), np.ptp(points, axis=0)
        return (points - low) / np.where(width > 0, width, 1) * self.size

    def gathered(self, sample: Sample, values: np.ndarray) -> np.ndarray:
        """Returns values of a case on the common mesh, `(m, c)`."""
        if sample.target_grid is not None or not self.obstacle(sample):
            return np.asarray(values, float)
        return interpolated(self.in_box(sample.mesh_points), values, self.stretched)

    def spread(self, sample: Sample, values: np.ndarray) -> np.ndarray:
        """Returns values on the common mesh at the points of a case, `(n, c)`."""
        if sample.target_grid is not None or not self.obstacle(sample):
            return values
        return interpolated(self.stretched, values, self.in_box(sample.mesh_points))


def interpolated(points: np.ndarray, values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Interpolates values to other points from their nearest `p + 1` points.

    The weights are inverse squared distances; values at coinciding points are kept.
    """
    from scipy.spatial import KDTree

    tree: Any = KDTree(points)
    count = min(points.shape[1] + 1, len(points))
    distance, near = tree.query(at, k=count)
    distance, near = (np.reshape(x, (len(at), count)) for x in (distance, near))
    tiny = 1e-12 * (np.ptp(points, axis=0).max() or 1.0)
    weights = 1 / np.maximum(distance, tiny) ** 2
    weights /= weights.sum(axis=1, keepdims=True)
    return np.einsum("mk,mkc->mc", weights, np.asarray(values, float)[near])
