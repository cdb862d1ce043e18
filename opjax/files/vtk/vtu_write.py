"""Writing a mesh with fields to a `.vtu` or `.vtp` file, compressed with zlib."""

import zlib
from collections.abc import Mapping
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np

from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.files.vtk.vtu_slices import TYPES

_HEADER = np.dtype("<u8")
_BLOCK = 2**18  # bytes that are compressed at once
_LEVEL = 5  # of compression, VTK's
# Parts of a surface, and VTK's numbers of their kinds of cells.
_SURFACE = (
    ("Verts", (1, 2)),
    ("Lines", (3, 4)),
    ("Polys", (5, 7, 9)),
    ("Strips", (6,)),
)
_NAMES = {code: name for name, code in TYPES.items()}


def write(path: Path, mesh: VtkMesh, fields: Mapping[str, np.ndarray]) -> None:
    """Writes a mesh with all its data.

    Args:
      path: file to write: `.vtu` for any cells, `.vtp` for a surface.
      mesh: the mesh.
      fields: additional point arrays, by name.

    Raises:
      OSError: if the file cannot be written.
      ValueError: if VTK does not support the type of an array, or the mesh is not a
        surface.
    """
    kind = "PolyData" if path.suffix.lower() == ".vtp" else "UnstructuredGrid"
    root = Element("VTKFile", type=kind, version="1.0")
    root.attrib |= {"byte_order": "LittleEndian", "header_type": "UInt64"}
    root.set("compressor", "vtkZLibDataCompressor")
    grid, appended = SubElement(root, kind), _Appended()
    if mesh.field_data.arrays:
        parent = SubElement(grid, "FieldData")
        for name, array in mesh.field_data.arrays.items():
            appended.add(parent, name, array).set("NumberOfTuples", str(len(array)))
    piece = SubElement(grid, "Piece", NumberOfPoints=str(mesh.num_points))
    rows = None
    if kind == "PolyData":
        rows = _order(path, mesh)
    else:
        piece.set("NumberOfCells", str(mesh.num_cells))
    appended.add_data(
        SubElement(piece, "PointData"),
        mesh.point_data,
        mesh.point_data.arrays | dict(fields),
    )
    of_cells = mesh.cell_data.arrays
    if rows is not None:
        of_cells = {name: array[rows] for name, array in of_cells.items()}
    appended.add_data(SubElement(piece, "CellData"), mesh.cell_data, of_cells)
    appended.add(SubElement(piece, "Points"), "Points", mesh.points)
    if rows is not None:
        _add_surface(appended, piece, mesh)
    else:
        cells = SubElement(piece, "Cells")
        appended.add(cells, "connectivity", mesh.corners)
        appended.add(cells, "offsets", mesh.offsets[1:])
        appended.add(cells, "types", mesh.types.astype(np.uint8))
        if mesh.polyhedra is not None:
            for name, array in mesh.polyhedra.stored().items():
                appended.add(cells, name, array)
    head, closing, _ = tostring(root).rpartition(b"</VTKFile>")
    with open(path, "wb") as file:
        file.write(b'<?xml version="1.0"?>\n' + head)
        file.write(b'<AppendedData encoding="raw">\n_')
        file.writelines(appended.parts)
        file.write(b"\n</AppendedData>\n" + closing + b"\n")


def _order(path: Path, mesh: VtkMesh) -> np.ndarray:
    """Returns the order in which the cells of a surface are stored.

    Raises:
      ValueError: if a cell is no part of a surface.
    """
    groups = _groups(mesh)
    if (groups < 0).any():
        kinds = np.unique(mesh.types[groups < 0]).tolist()
        raise ValueError(
            f"{path}: cells of the VTK types {kinds} are not surface cells."
        )
    return np.argsort(groups, kind="stable")


def _groups(mesh: VtkMesh) -> np.ndarray:
    """Which part of a surface each cell is; -1 for cells that are none."""
    groups = np.full(mesh.num_cells, -1)
    for number, (_, kinds) in enumerate(_SURFACE):
        groups[np.isin(mesh.types, kinds)] = number
    return groups


def _add_surface(appended: "_Appended", piece: Element, mesh: VtkMesh) -> None:
    """Adds vertices, lines, polygons and strips."""
    groups, sizes = _groups(mesh), np.diff(mesh.offsets)
    of_corner = np.repeat(groups, sizes)
    for number, (name, _) in enumerate(_SURFACE):
        piece.set(f"NumberOf{name}", str(int((groups == number).sum())))
        part = SubElement(piece, name)
        appended.add(part, "connectivity", mesh.corners[of_corner == number])
        appended.add(part, "offsets", np.cumsum(sizes[groups == number]))


class _Appended:
    """Values of arrays, one after the other, and where they are."""

    def __init__(self):
        self.parts: list[bytes] = []
        self._end = 0

    def add_data(
        self, parent: Element, data: NamedArrays, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Adds arrays, of which some are active, or have names of channels."""
        for name, array in arrays.items():
            element = self.add(parent, name, array)
            for i, label in enumerate(data.labels.get(name, ())):
                element.set(f"ComponentName{i}", label)
        parent.attrib |= {k: v for k, v in data.active.items() if v in arrays}

    def add(self, parent: Element, name: str, array: np.ndarray) -> Element:
        """Adds an array `(n,)` or `(n, channels)`, of numbers or texts."""
        described = {"Name": name, "format": "appended", "offset": str(self._end)}
        if array.dtype.kind in "OUS":
            tag, described["type"] = "Array", "String"
            texts = [str(text).encode() + b"\0" for text in array.tolist()]
            values = b"".join(texts)
        else:
            tag, array = "DataArray", _stored(name, array)
            described["type"] = _NAMES[array.dtype.str[1:]]
            if array.ndim > 1:
                described["NumberOfComponents"] = str(array.shape[1])
            values = array.tobytes()
        for part in _compressed(values):
            self.parts.append(part)
            self._end += len(part)
        return SubElement(parent, tag, described)


def _stored(name: str, array: np.ndarray) -> np.ndarray:
    """Returns an array in a type of VTK, little-endian."""
    kind, size = array.dtype.kind, array.dtype.itemsize
    if array.ndim > 2 or kind not in "fiub":
        raise ValueError(
            f"{name!r} has shape {array.shape} and type {array.dtype}, expected real "
            "numbers (n,) or (n, channels)."
        )
    code = {"f": f"f{min(max(size, 4), 8)}", "b": "u1"}.get(kind, f"{kind}{size}")
    return array.astype(f"<{code}", copy=False)


def _compressed(values: bytes) -> list[bytes]:
    """Returns the lengths of compressed blocks, and the blocks."""
    parts = [values[i : i + _BLOCK] for i in range(0, len(values), _BLOCK)]
    blocks = [zlib.compress(part, _LEVEL) for part in parts]
    lengths = [len(blocks), _BLOCK, len(values) % _BLOCK, *map(len, blocks)]
    return [np.array(lengths, _HEADER).tobytes(), *blocks]
