"""Unstructured meshes with fields, as arrays that are checked for consistency."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import limits
from opjax.files.vtk import kinds
from opjax.files.vtk.polyhedra import Polyhedra

# Arrays that are not zero for cells of other pieces, and for hidden cells.
GHOSTS = ("vtkGhostType", "vtkGhostLevels")
# Attributes of VTK's data.
ATTRIBUTES = ("Scalars", "Vectors", "Normals", "TCoords", "Tensors")


@dataclasses.dataclass
class NamedArrays:
    """Named arrays.

    Attributes:
      arrays: arrays by name.
      active: names of the arrays marked as `Scalars`, `Vectors` and so on.
      labels: names of the channels of an array, if the file has them.
      misfits: number of rows of each array that was left out because it does not fit.
    """

    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    active: dict[str, str] = dataclasses.field(default_factory=dict)
    labels: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    misfits: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, name: str, array: np.ndarray) -> None:
        """Adds an array, with a generated name if it has none."""
        self.arrays[name or f"Unnamed_{len(self.arrays)}"] = array

    def fitting(self, rows: int) -> "NamedArrays":
        """Leaves out arrays with another number of rows."""
        misfits = {k: len(a) for k, a in self.arrays.items() if len(a) != rows}
        arrays = {k: a for k, a in self.arrays.items() if k not in misfits}
        return dataclasses.replace(self, arrays=arrays, misfits=misfits)


@dataclasses.dataclass
class VtkMesh:
    """A mesh of cells of any type.

    Attributes:
      points: coordinates, `(n, 3)`.
      offsets: start of each cell in `corners`, and the end of the last one, `(m + 1,)`.
      corners: point indices of the cells, concatenated.
      types: VTK's numbers of the cell types, `(m,)`.
      point_data: arrays with one row for each point.
      cell_data: arrays with one row for each cell.
      field_data: arrays of any length.
      polyhedra: faces of the polyhedral cells, if there are any.
      layer: the original mesh of solids, if the mesh is its layer of polygons.
    """

    points: np.ndarray
    offsets: np.ndarray
    corners: np.ndarray
    types: np.ndarray
    point_data: NamedArrays = dataclasses.field(default_factory=NamedArrays)
    cell_data: NamedArrays = dataclasses.field(default_factory=NamedArrays)
    field_data: NamedArrays = dataclasses.field(default_factory=NamedArrays)
    polyhedra: Polyhedra | None = None
    layer: "Layer | None" = None

    @property
    def num_points(self) -> int:
        """Number of points."""
        return len(self.points)

    @property
    def num_cells(self) -> int:
        """Number of cells."""
        return len(self.types)

    def cells(self) -> dict[int, np.ndarray]:
        """Returns point indices `(m, corners)` by type, for types of fixed size."""
        by_kind: dict[int, np.ndarray] = {}
        for kind in np.unique(self.types).tolist():
            if size := kinds.POINTS.get(kind):
                starts = self.offsets[:-1][self.types == kind]
                by_kind[kind] = self.corners[starts[:, None] + np.arange(size)]
        return by_kind


class Layer(NamedTuple):
    """A mesh of solids that is one cell thick; another mesh is one side of it.

    Attributes:
      solid: the mesh of solids; its cells have the same order as in the other mesh.
      numbers: index in the other mesh of each of its points.
      axis: axis along which it is one cell thick.
    """

    solid: VtkMesh
    numbers: np.ndarray
    axis: int


def coordinates(array: np.ndarray) -> np.ndarray:
    """Returns points in single or double precision."""
    return array if array.dtype in ("f4", "f8") else array.astype(np.float32)


def integers(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """Returns an array of indices as int64.

    Raises:
      ValueError: if it is not a list of integers.
    """
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise limits.damaged(path, f"{name} is not a list of integers")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**62:
        raise limits.damaged(path, f"{name} are too large")
    return array.astype(np.int64, copy=False)


def check(path: Path, mesh: VtkMesh) -> None:
    """Checks that the arrays of a mesh are consistent.

    Raises:
      ValueError: if they are inconsistent. The message names the file.
    """
    if mesh.points.ndim != 2 or mesh.points.shape[1] != 3:
        raise limits.damaged(path, f"points of shape {mesh.points.shape}")
    if mesh.polyhedra is not None:
        mesh.polyhedra.check(path, mesh.num_points, mesh.types)
    elif (mesh.types == kinds.POLYHEDRON).any():
        raise limits.damaged(path, "polyhedra without their faces")
    _check_cells(path, mesh)
    _check_types(path, mesh)
    for data, rows in (
        (mesh.point_data, mesh.num_points),
        (mesh.cell_data, mesh.num_cells),
    ):
        for name, array in data.arrays.items():
            if len(array) != rows:
                what = f"{name!r} has {len(array)} rows, not {rows}"
                raise limits.damaged(path, what)


def _check_cells(path: Path, mesh: VtkMesh) -> None:
    offsets, corners = mesh.offsets, mesh.corners
    if len(offsets) != mesh.num_cells + 1:
        what = f"{mesh.num_cells} types of {len(offsets) - 1} cells"
        raise limits.damaged(path, what)
    ends = (offsets[0], offsets[-1]) != (0, len(corners))
    if ends or (np.diff(offsets) < 0).any():
        raise limits.damaged(path, "cells are not consecutive")
    if len(corners) and not (corners.min() >= 0 and corners.max() < mesh.num_points):
        what = f"cells name points from {corners.min()} to {corners.max()}, there are "
        raise limits.damaged(path, what + str(mesh.num_points))


def _check_types(path: Path, mesh: VtkMesh) -> None:
    every = np.diff(mesh.offsets)
    for kind in np.unique(mesh.types).tolist():
        corners, sizes = kinds.POINTS.get(kind), every[mesh.types == kind]
        fits = (sizes == corners).all() if corners is not None else kind in kinds.CURVED
        if kind in kinds.FEWEST:
            fits = (sizes >= kinds.FEWEST[kind]).all()
        if not fits and kind:  # hidden cells of a grid become empty ones with corners
            what = f"cells of VTK's kind {kind} have {sizes[:5]} corners"
            raise limits.damaged(path, what)


def joined(
    path: Path, several: Iterable[Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """Returns the concatenated arrays of pieces.

    Raises:
      ValueError: if pieces have different arrays.
    """
    pieces = list(several)
    shapes = [{k: (a.shape[1:], a.dtype) for k, a in p.items()} for p in pieces]
    if any(shape != shapes[0] for shape in shapes):
        raise limits.damaged(path, "pieces do not have the same arrays")
    if len(pieces) == 1:
        return dict(pieces[0])
    return {name: np.concatenate([p[name] for p in pieces]) for name in pieces[0]}
