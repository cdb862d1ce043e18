"""Meshes as arrays, checked, and made into PyVista's.

Files are read by `_vtk_xml` and `_vtk_legacy`, not by VTK, which follows what damaged
ones say beyond its memory. It gets arrays that fit each other.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax.datasets import _archives, _files

# Corners of VTK's cells by their numbers.
_CORNERS = {0: 0, 1: 1, 3: 2, 5: 3, 8: 4, 9: 4, 10: 4, 11: 8, 12: 8, 13: 6, 14: 5}
_CORNERS |= {15: 10, 16: 12, 21: 3, 22: 6, 23: 8, 24: 10, 25: 20, 26: 15, 27: 13}
_CORNERS |= {28: 9, 29: 27, 30: 6, 31: 12, 32: 18, 33: 24, 34: 7, 35: 4, 37: 19}
# The fewest of cells that have any number of them; of Lagrange's and the like, too.
_FEWEST = {2: 1, 4: 2, 6: 3, 7: 3}
CURVED = {36, 41, *range(60, 67), *range(68, 82)}
_POLYHEDRON = 42
# What surfaces consist of, how few corners each has.
SURFACE = {"Verts": 1, "Lines": 2, "Strips": 3, "Polys": 3}
# Attributes of VTK's data, by its numbers, and their components.
ATTRIBUTES = ("Scalars", "Vectors", "Normals", "TCoords", "Tensors")
_COMPONENTS = (range(1, 2**31), (3,), (3,), (1, 2, 3), (6, 9))


class Cells(NamedTuple):
    """Cells one after the other.

    Attributes:
      offsets: `(m + 1,)`, where each begins in `corners`, and where the last one ends.
      corners: indices of points.
    """

    offsets: np.ndarray
    corners: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Numbers of corners, `(m,)`."""
        return np.diff(self.offsets)


@dataclasses.dataclass
class Data:
    """Named arrays, and which of them are the `Scalars`, the `Vectors`, ..."""

    arrays: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    active: dict[str, str] = dataclasses.field(default_factory=dict)

    def add(self, name: str, array: np.ndarray) -> str:
        """Adds an array; returns its name, which it gets if it has none."""
        name = name or f"Unnamed_{len(self.arrays)}"
        self.arrays[name] = array
        return name


@dataclasses.dataclass
class Parts:
    """A file.

    Attributes:
      kind: class of PyVista.
      points: `(n, 3)`; of images and rectilinear grids none.
      cells: of unstructured grids, under `""`, and of surfaces, see `SURFACE`.
      types: of the cells of an unstructured grid, VTK's numbers.
      dimensions: points along each axis, of grids.
      axes: of a rectilinear grid, coordinates; of an image, origin and spacing.
      point_data: at the points.
      cell_data: of the cells.
      field_data: anything.
    """

    kind: str
    points: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros((0, 3)))
    cells: dict[str, Cells] = dataclasses.field(default_factory=dict)
    types: np.ndarray | None = None
    dimensions: tuple[int, ...] = ()
    axes: list[np.ndarray] = dataclasses.field(default_factory=list)
    point_data: Data = dataclasses.field(default_factory=Data)
    cell_data: Data = dataclasses.field(default_factory=Data)
    field_data: Data = dataclasses.field(default_factory=Data)

    @property
    def num_points(self) -> int:
        """How many points there are."""
        return int(np.prod(self.dimensions)) if self.dimensions else len(self.points)

    @property
    def num_cells(self) -> int:
        """How many cells there are."""
        if self.dimensions:
            along = [max(d - 1, 1) for d in self.dimensions]
            return int(np.prod(along)) if self.num_points else 0
        return sum(len(c.sizes) for c in self.cells.values())


def integers(path: Path, name: str, array: np.ndarray) -> np.ndarray:
    """An array as indices.

    Raises:
      ValueError: if it has other numbers.
    """
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise _archives.damaged(path, f"{name} are no list of integers")
    if array.dtype.kind == "u" and array.size and array.max() >= 2**62:
        raise _archives.damaged(path, f"{name} are too large")
    return array.astype(np.int64, copy=False)


def cells_of(path: Path, ends: np.ndarray, corners: np.ndarray) -> Cells:
    """Cells that end where VTK's XML says, without a leading zero."""
    ends = integers(path, "offsets of cells", ends)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    return Cells(offsets, integers(path, "corners of cells", corners))


def check(path: Path, parts: Parts) -> None:
    """Raises ValueError unless the arrays of a file fit each other."""
    n = parts.num_points
    if parts.kind not in ("UnstructuredGrid", "PolyData") and not parts.dimensions:
        raise _archives.damaged(path, "a grid without dimensions")
    if parts.kind == "RectilinearGrid" and len(parts.axes) != 3:
        raise _archives.damaged(path, f"{len(parts.axes)} axes of a grid")
    if parts.kind == "StructuredGrid" and len(parts.points) != n:
        what = f"{len(parts.points)} points, but dimensions {parts.dimensions}"
        raise _archives.damaged(path, what)
    for name, cells in parts.cells.items():
        _check_cells(path, cells, n, SURFACE.get(name, 0))
    if parts.types is not None:
        _check_types(path, parts.types, parts.cells[""])
    for data, rows in ((parts.point_data, n), (parts.cell_data, parts.num_cells)):
        for name, array in data.arrays.items():
            if len(array) != rows:
                what = f"{name!r} has {len(array)} rows, not {rows}"
                raise _archives.damaged(path, what)


def _check_cells(path: Path, cells: Cells, num_points: int, fewest: int) -> None:
    offsets, corners = cells
    if offsets[0] != 0 or offsets[-1] != len(corners) or (cells.sizes < fewest).any():
        what = f"cells of at least {fewest} corners do not follow one another"
        raise _archives.damaged(path, what)
    if len(corners) and not (corners.min() >= 0 and corners.max() < num_points):
        what = f"cells name points from {corners.min()} to {corners.max()}, there are "
        raise _archives.damaged(path, what + str(num_points))


def _check_types(path: Path, types: np.ndarray, cells: Cells) -> None:
    if types.shape != cells.sizes.shape:
        what = f"{len(types)} types of {len(cells.sizes)} cells"
        raise _archives.damaged(path, what)
    kinds = np.unique(types)
    if _POLYHEDRON in kinds:
        raise ValueError(
            f"{path} has polyhedra, cells that are given by their faces, which are not "
            "read; split them into tetrahedra: pyvista.read(old).triangulate()."
        )
    for kind in kinds.tolist():
        wanted, sizes = _CORNERS.get(kind), cells.sizes[types == kind]
        fits = (sizes == wanted).all() if wanted is not None else kind in CURVED
        if kind in _FEWEST:
            fits = (sizes >= _FEWEST[kind]).all()
        if not fits:
            what = f"cells of VTK's kind {kind} have {sizes[:5]} corners"
            raise _archives.damaged(path, what)


def build(path: Path, parts: Parts) -> Any:
    """Makes what PyVista would have read.

    Raises:
      ImportError: if PyVista is missing.
      ValueError: if arrays do not fit each other.
    """
    pyvista = _files.optional("pyvista", path, extra="vtk")
    check(path, parts)
    mesh = getattr(pyvista, parts.kind)()
    if parts.dimensions:
        mesh.SetDimensions(*parts.dimensions)
    if parts.kind == "ImageData":
        mesh.SetOrigin(*parts.axes[0])
        mesh.SetSpacing(*parts.axes[1])
    elif parts.kind == "RectilinearGrid":
        setters = (mesh.SetXCoordinates, mesh.SetYCoordinates, mesh.SetZCoordinates)
        for set_axis, axis in zip(setters, parts.axes, strict=True):
            set_axis(_array(axis))
    else:
        mesh.SetPoints(_points(parts.points))
    if parts.types is not None:
        types = parts.types.astype(np.uint8)
        mesh.SetCells(_array(types), _cells(parts.cells[""]))
    else:
        for name, cells in parts.cells.items():
            getattr(mesh, f"Set{name}")(_cells(cells))
    _fill(mesh.GetPointData(), parts.point_data)
    _fill(mesh.GetCellData(), parts.cell_data)
    _fill(mesh.GetFieldData(), Data(parts.field_data.arrays))
    return mesh


def _points(points: np.ndarray) -> Any:
    from vtkmodules.vtkCommonCore import vtkPoints  # pyright: ignore

    if points.dtype not in (np.float32, np.float64):
        points = points.astype(np.float32)
    found = vtkPoints()
    found.SetData(_array(points))
    return found


def _cells(cells: Cells) -> Any:
    from vtkmodules.vtkCommonDataModel import vtkCellArray  # pyright: ignore

    found = vtkCellArray()
    found.SetData(_array(cells.offsets), _array(cells.corners))
    return found


def _fill(target: Any, data: Data) -> None:
    for name, array in data.arrays.items():
        held = _array(array)
        held.SetName(name)
        target.AddArray(held)
    for number, kind in enumerate(ATTRIBUTES):
        array = data.arrays.get(data.active.get(kind, ""))
        if array is None or array.dtype == object:
            continue
        if np.prod(array.shape[1:]) in _COMPONENTS[number]:
            target.SetActiveAttribute(data.active[kind], number)


def _array(array: np.ndarray) -> Any:
    """VTK's view of an array, which keeps it alive."""
    from vtkmodules.util.numpy_support import numpy_to_vtk  # pyright: ignore
    from vtkmodules.vtkCommonCore import vtkStringArray  # pyright: ignore

    if array.dtype == object:
        strings = vtkStringArray()
        for text in array.tolist():
            strings.InsertNextValue(text)
        return strings
    native = array.dtype.newbyteorder("=")
    return numpy_to_vtk(np.ascontiguousarray(array, native))


def joined(path: Path, several: Iterable[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Arrays of pieces, one after the other.

    Raises:
      ValueError: if pieces have not the same arrays.
    """
    pieces = list(several)
    names = list(pieces[0])
    shapes = [{k: (a.shape[1:], a.dtype) for k, a in p.items()} for p in pieces]
    if any(shape != shapes[0] for shape in shapes):
        raise _archives.damaged(path, "pieces have not the same arrays")
    if len(pieces) == 1:
        return dict(pieces[0])
    return {name: np.concatenate([p[name] for p in pieces]) for name in names}
