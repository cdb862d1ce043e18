"""Unstructured grids and surfaces in VTK's XML files, read as a whole.

Values are text, or binary (base64 or appended, optionally compressed): `vtu_head`
locates and `vtu_bytes` reads them.
"""

from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from opjax.files import limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import polyhedra, text
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from opjax.files.vtk.vtu_bytes import StoredBytes
from opjax.files.vtk.vtu_head import Head, read_head
from opjax.files.vtk.vtu_slices import TYPES, encoding_of, number, reader_of

_KINDS = {".vtu": "UnstructuredGrid", ".vtp": "PolyData"}
# Parts of a surface: VTK's numbers of cells by their corners, and of all larger ones.
_SURFACE: tuple[tuple[str, dict[int, int], int], ...] = (
    ("Verts", {1: 1}, 2),
    ("Lines", {2: 3}, 4),
    ("Polys", {3: 5, 4: 9}, 7),
    ("Strips", {}, 6),
)
_FEW = {str(count) for count in range(2, 10)}  # channels of which names are kept


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a mesh.

    Args:
      path: a `.vtu` file of a grid, or a `.vtp` file of a surface.
      max_bytes: maximum size of an array.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, too large or of another type.
    """
    kind = _KINDS[path.suffix.lower()]
    head = read_head(path, kind=kind, sliced=False)
    with open(path, "rb") as file:
        arrays = _Arrays(path, head, StoredBytes(path, file), max_bytes)
        pieces = [_piece(path, kind, piece, arrays) for piece in head.pieces]
        fields = arrays.of(head.root.find(f"{kind}/FieldData"), None)
    if not pieces:
        raise limits.damaged(path, "it has no piece")
    return one(path, pieces, NamedArrays(fields))


def field_data(path: Path, max_bytes: int = 2**20) -> dict[str, np.ndarray]:
    """Reads only the field data of a `.vtu` file.

    Args:
      path: the file.
      max_bytes: maximum size of an array.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, or its field data are too large.
    """
    kind = _KINDS[path.suffix.lower()]
    head = read_head(path, kind=kind, sliced=False)
    with open(path, "rb") as file:
        arrays = _Arrays(path, head, StoredBytes(path, file), max_bytes)
        return arrays.of(head.root.find(f"{kind}/FieldData"), None)


class _Arrays:
    """Reads the arrays of a file, and counts their bytes."""

    def __init__(self, path: Path, head: Head, stored: StoredBytes, max_bytes: int):
        self._path, self._head, self._stored = path, head, stored
        self.most, self._total = max_bytes, 0
        self._order, self._encoding = encoding_of(path, head.root)

    def spend(self, size: int) -> None:
        """Raises ValueError if an array, or all with this one, are too large."""
        what, most = "its points and cells", self.most
        limits.check_size(self._path, what, size, most)
        self._total += size
        most = max(most, limits.limit(self._path))
        limits.check_size(self._path, what, self._total, most)

    def of(self, parent: Element | None, rows: int | None) -> dict[str, np.ndarray]:
        """Reads the arrays of an element by name, each of `rows` rows unless None."""
        data = NamedArrays()
        for element in () if parent is None else parent:
            if element.tag in ("DataArray", "Array"):
                data.add(element.get("Name", ""), self._read(element, rows))
        return data.arrays

    def _read(self, element: Element, rows: int | None) -> np.ndarray:
        kind, name = element.get("type", ""), element.get("Name")
        if kind == "Bit" or (kind not in TYPES and kind != "String"):
            raise limits.damaged(self._path, f"{name!r} has the type {kind!r}")
        dtype = np.dtype(self._order + TYPES.get(kind, "i1"))
        channels = max(number(self._path, element, "NumberOfComponents", "1"), 1)
        values = self._values(element, dtype)
        if kind == "String":
            return self._texts(values)
        if rows is None:
            rows = len(values) // channels
        if len(values) != rows * channels:
            what = f"{name!r} has {len(values)} values, not {rows} rows of {channels}"
            raise limits.damaged(self._path, what)
        return values.reshape(rows, channels) if channels > 1 else values

    def _texts(self, codes: np.ndarray) -> np.ndarray:
        """Splits texts that end with zeros."""
        texts = bytes(codes.astype(np.uint8)).split(b"\0")[:-1]
        # NumPy makes all texts as wide as the widest, with four bytes a letter.
        self.spend(4 * len(texts) * max(map(len, texts), default=0))
        return np.array([part.decode("utf-8", "replace") for part in texts], object)

    def _values(self, element: Element, dtype: np.dtype) -> np.ndarray:
        span = self._head.spans[element]
        if span.text:
            size = dtype.itemsize * (span.last - span.first + 1) // 2  # at most
            limits.check_size(self._path, "its text", size, 16 * self.most)
            try:
                return text.parse(self._stored.between(span), dtype)
            except ValueError as error:
                raise self._stored.damaged(error) from error
        values = reader_of(self._encoding)(self._stored, span, self._encoding)
        self.spend(values.size)
        if values.size % dtype.itemsize:
            what = f"{element.get('Name')!r} has {values.size} bytes"
            raise self._stored.damaged(what)
        numbers = np.frombuffer(bytearray(values.read(0, values.size)), dtype)
        return numbers.astype(dtype.newbyteorder("="), copy=False)


def _piece(path: Path, kind: str, piece: Element, arrays: _Arrays) -> VtkMesh:
    count = number(path, piece, "NumberOfPoints", "0")
    arrays.spend(12 * count)
    points = list(arrays.of(piece.find("Points"), count).values())
    if count and [p.shape for p in points] != [(count, 3)]:
        raise limits.damaged(path, f"expected {count} points in 3D")
    coordinates = meshes.coordinates(points[0] if points else np.zeros((0, 3)))
    read = _grid if kind == "UnstructuredGrid" else _surface
    mesh = read(path, piece, arrays, coordinates)
    for where, data, rows in (
        ("PointData", mesh.point_data, count),
        ("CellData", mesh.cell_data, mesh.num_cells),
    ):
        element = piece.find(where)
        data.arrays = arrays.of(element, rows)
        attributes = {} if element is None else element.attrib
        data.active = {k: v for k, v in attributes.items() if k in meshes.ATTRIBUTES}
        data.labels = _labels(element)
    meshes.check(path, mesh)
    return mesh


def _labels(parent: Element | None) -> dict[str, tuple[str, ...]]:
    """Names of the channels of arrays of several, where all have one."""
    labels: dict[str, tuple[str, ...]] = {}
    for element in () if parent is None else parent:
        count = element.get("NumberOfComponents", "1")
        if element.get("ComponentName1") is not None and count in _FEW:
            names = [element.get(f"ComponentName{i}", "") for i in range(int(count))]
            if all(names):
                labels[element.get("Name", "")] = tuple(names)
    return labels


def _grid(path: Path, piece: Element, arrays: _Arrays, points: np.ndarray) -> VtkMesh:
    count = number(path, piece, "NumberOfCells", "0")
    arrays.spend(12 * count)
    stored = arrays.of(piece.find("Cells"), None)
    types = stored.get("types", np.zeros(0, np.uint8))
    types = meshes.integers(path, "types of cells", types)
    faces = {
        name: meshes.integers(path, name, array)
        for name, array in stored.items()
        if name.startswith(("face", "polyhedron"))
    }
    solids = polyhedra.read(path, faces, types, arrays.most)
    return VtkMesh(points, *_cells(path, stored, count), types, polyhedra=solids)


def _surface(
    path: Path, piece: Element, arrays: _Arrays, points: np.ndarray
) -> VtkMesh:
    """Reads vertices, lines, polygons and strips, in VTK's order."""
    parts: list[tuple[np.ndarray, np.ndarray]] = []
    types: list[np.ndarray] = []
    for name, kinds, many in _SURFACE:
        count = number(path, piece, f"NumberOf{name}", "0")
        arrays.spend(12 * count)
        parts.append(_cells(path, arrays.of(piece.find(name), None), count))
        sizes = np.diff(parts[-1][0])
        own = np.full(count, many)
        for size, kind in kinds.items():
            own[sizes == size] = kind
        types.append(own)
    return VtkMesh(points, *_follow(parts), np.concatenate(types))


def _cells(
    path: Path, stored: dict[str, np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets `(count + 1,)` and corners of cells."""
    empty = np.zeros(0, np.int64)
    ends, corners = stored.get("offsets", empty), stored.get("connectivity", empty)
    if len(ends) != count:
        raise limits.damaged(path, f"{len(ends)} offsets for {count} cells")
    ends = meshes.integers(path, "offsets of cells", ends)
    offsets = np.concatenate([np.zeros(1, np.int64), ends])
    corners = meshes.integers(path, "corners of cells", corners)
    if offsets[-1] != len(corners):
        what = f"cells end at {offsets[-1]} of {len(corners)} corners"
        raise limits.damaged(path, what)
    return offsets, corners


def _follow(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns offsets and corners of groups of cells, one group after the other."""
    sizes = np.concatenate([np.diff(offsets) for offsets, _ in parts])
    offsets = polyhedra.offsets_of(sizes)
    return offsets, np.concatenate([corners for _, corners in parts])


def one(path: Path, pieces: list[VtkMesh], fields: NamedArrays) -> VtkMesh:
    """Joins pieces into one mesh."""
    first, *others = pieces
    if not others:
        first.field_data = fields
        return first
    starts = np.cumsum([0, *(piece.num_points for piece in pieces[:-1])])
    cells = [(p.offsets, p.corners + s) for p, s in zip(pieces, starts, strict=True)]
    return VtkMesh(
        np.concatenate([piece.points for piece in pieces]),
        *_follow(cells),
        np.concatenate([piece.types for piece in pieces]),
        NamedArrays(
            meshes.joined(path, (p.point_data.arrays for p in pieces)),
            first.point_data.active,
            first.point_data.labels,
        ),
        NamedArrays(
            meshes.joined(path, (p.cell_data.arrays for p in pieces)),
            first.cell_data.active,
            first.cell_data.labels,
        ),
        fields,
        polyhedra.joined(
            [piece.polyhedra for piece in pieces],
            starts.tolist(),
            [piece.num_cells for piece in pieces],
        ),
    )
