"""Unstructured grids and surfaces of VTK's XML files, read whole.

Values are text, or binary in base64 or appended, compressed or not, as `_vtu_head`
finds and `_vtu_bytes` reads them.
"""

from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import numpy as np

from opjax.datasets import _archives, _vtk_mesh, _vtk_text
from opjax.datasets._vtk_mesh import SURFACE, Cells, Data, Parts
from opjax.datasets._vtu_bytes import Stored
from opjax.datasets._vtu_head import Head, read_head
from opjax.datasets._vtu_slices import TYPES, encoding_of, number, reader_of

_KINDS = {".vtu": "UnstructuredGrid", ".vtp": "PolyData"}


def read(path: Path, max_bytes: int) -> Parts:
    """Reads a file.

    Args:
      path: whose suffix says what it holds.
      max_bytes: largest size of an array.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, too large or holds something else.
    """
    kind = _KINDS[path.suffix.lower()]
    head = read_head(path, kind=kind, sliced=False)
    with open(path, "rb") as file:
        arrays = _Arrays(path, head, Stored(path, file), max_bytes)
        pieces = [_piece(path, kind, piece, arrays) for piece in head.pieces]
        fields = arrays.of(head.root.find(f"{kind}/FieldData"), None)
    if not pieces:
        raise _archives.damaged(path, "it has no piece")
    return _one(path, kind, pieces, Data(fields))


class _Arrays:
    """Values of the arrays of a file."""

    def __init__(self, path: Path, head: Head, stored: Stored, max_bytes: int):
        self._path, self._head, self._stored = path, head, stored
        self._most, self._total = max_bytes, 0
        self._order, self._encoding = encoding_of(path, head.root)

    def spend(self, size: int) -> None:
        """Raises ValueError if an array, or all with this one, are too large."""
        what, most = "its points and cells", self._most
        _archives.check_size(self._path, what, size, most)
        self._total += size
        most = max(most, _archives.limit(self._path))
        _archives.check_size(self._path, what, self._total, most)

    def of(self, parent: Element | None, rows: int | None) -> dict[str, np.ndarray]:
        """Arrays of an element by name, each of so many rows, if that is given."""
        data = Data()
        for element in () if parent is None else parent:
            if element.tag in ("DataArray", "Array"):
                data.add(element.get("Name", ""), self._read(element, rows))
        return data.arrays

    def _read(self, element: Element, rows: int | None) -> np.ndarray:
        kind, name = element.get("type", ""), element.get("Name")
        if kind == "Bit" or (kind not in TYPES and kind != "String"):
            raise _archives.damaged(self._path, f"{name!r} has the type {kind!r}")
        dtype = np.dtype(self._order + TYPES.get(kind, "i1"))
        channels = max(number(self._path, element, "NumberOfComponents", "1"), 1)
        found = self._values(element, dtype)
        if kind == "String":
            return self._texts(found)
        if rows is None:
            rows = len(found) // channels
        if len(found) != rows * channels:
            what = f"{name!r} has {len(found)} values, not {rows} rows of {channels}"
            raise _archives.damaged(self._path, what)
        return found.reshape(rows, channels) if channels > 1 else found

    def _texts(self, codes: np.ndarray) -> np.ndarray:
        """Texts that end with zeros."""
        found = bytes(codes.astype(np.uint8)).split(b"\0")[:-1]
        # All will be as wide as the widest, four bytes a letter.
        self.spend(4 * len(found) * max(map(len, found), default=0))
        return np.array([text.decode("utf-8", "replace") for text in found], object)

    def _values(self, element: Element, dtype: np.dtype) -> np.ndarray:
        span = self._head.spans[element]
        if span.text:
            size = dtype.itemsize * (span.last - span.first + 1) // 2  # at most
            _archives.check_size(self._path, "its text", size, 16 * self._most)
            try:
                return _vtk_text.parse(self._stored.between(span), dtype)
            except ValueError as error:
                raise self._stored.damaged(error) from error
        values = reader_of(self._encoding)(self._stored, span, self._encoding)
        self.spend(values.size)
        if values.size % dtype.itemsize:
            what = f"{element.get('Name')!r} has {values.size} bytes"
            raise self._stored.damaged(what)
        found = np.frombuffer(bytearray(values.read(0, values.size)), dtype)
        return found.astype(dtype.newbyteorder("="), copy=False)


def _piece(path: Path, kind: str, piece: Element, arrays: _Arrays) -> Parts:
    count = number(path, piece, "NumberOfPoints", "0")
    arrays.spend(12 * count)
    points = list(arrays.of(piece.find("Points"), count).values())
    if count and [p.shape for p in points] != [(count, 3)]:
        raise _archives.damaged(path, f"no {count} points in space")
    found = Parts(kind, points[0] if points else np.zeros((0, 3), np.float32))
    if kind == "UnstructuredGrid":
        cells, num = piece.find("Cells"), number(path, piece, "NumberOfCells", "0")
        arrays.spend(12 * num)
        stored = arrays.of(cells, None)
        found.cells[""] = _cells(path, stored, num)
        types = stored.get("types", np.zeros(0, np.uint8))
        found.types = _vtk_mesh.integers(path, "types of cells", types)
    else:
        for name in SURFACE:
            num = number(path, piece, f"NumberOf{name}", "0")
            arrays.spend(12 * num)
            found.cells[name] = _cells(path, arrays.of(piece.find(name), None), num)
    for where, rows in (("PointData", count), ("CellData", found.num_cells)):
        element = piece.find(where)
        data = found.point_data if where == "PointData" else found.cell_data
        data.arrays = arrays.of(element, rows)
        given: dict[str, str] = {} if element is None else element.attrib
        data.active = {k: v for k, v in given.items() if k in _vtk_mesh.ATTRIBUTES}
    return found


def _cells(path: Path, stored: dict[str, Any], count: int) -> Cells:
    empty = np.zeros(0, np.int64)
    ends, corners = stored.get("offsets", empty), stored.get("connectivity", empty)
    if len(ends) != count:
        raise _archives.damaged(path, f"{len(ends)} offsets of {count} cells")
    return _vtk_mesh.cells_of(path, ends, corners)


def _one(path: Path, kind: str, pieces: list[Parts], fields: Data) -> Parts:
    """Pieces as one mesh."""
    first = pieces[0]
    found = Parts(kind, first.points, first.cells, first.types, field_data=fields)
    found.point_data.active = first.point_data.active
    found.cell_data.active = first.cell_data.active
    for piece in pieces:  # before corners are shifted
        _vtk_mesh.check(path, piece)
    if len(pieces) > 1:
        parts = [sum(len(c.sizes) > 0 for c in p.cells.values()) for p in pieces]
        if max(parts) > 1 and first.cell_data.arrays:  # stored kind after kind
            raise _archives.damaged(path, "pieces with cells of several kinds")
        shifts = np.cumsum([0, *(len(p.points) for p in pieces[:-1])])
        found.points = np.concatenate([p.points for p in pieces])
        for name in first.cells:
            sizes = np.concatenate([p.cells[name].sizes for p in pieces])
            shifted = [
                p.cells[name].corners + s for p, s in zip(pieces, shifts, strict=True)
            ]
            offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
            found.cells[name] = Cells(offsets, np.concatenate(shifted))
        if first.types is not None:
            found.types = np.concatenate([np.asarray(p.types) for p in pieces])
    found.point_data.arrays = _vtk_mesh.joined(
        path, (p.point_data.arrays for p in pieces)
    )
    found.cell_data.arrays = _vtk_mesh.joined(
        path, (p.cell_data.arrays for p in pieces)
    )
    return found
