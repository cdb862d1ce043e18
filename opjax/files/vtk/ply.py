"""Surfaces of `.ply` files with the properties of their points and faces."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import text
from opjax.files.vtk.mesh import NamedArrays, VtkMesh

_TYPES = {
    **{"char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4"},
    **{"uint": "u4", "float": "f4", "double": "f8", "int8": "i1", "uint8": "u1"},
    **{"int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4"},
    **{"float32": "f4", "float64": "f8"},
}
_ORDERS = {"binary_little_endian": "<", "binary_big_endian": ">", "ascii": ""}
_END = re.compile(rb"end_header[ \t]*\r?\n")
_MOST = 2**16  # bytes of a header
# VTK's kinds of cells by their corners; polygons have more.
_KINDS = np.array([0, 1, 3, 5, 9])
_POLYGON = 7


class _Property(NamedTuple):
    """A number of each row, or a list of numbers behind their count."""

    name: str
    dtype: str
    length: str = ""


class _Element(NamedTuple):
    """Rows of a kind: points, faces or others."""

    name: str
    rows: int
    properties: list[_Property]


class _Table(NamedTuple):
    """Columns of an element, and the lists of its rows, if it has any."""

    columns: dict[str, np.ndarray]
    sizes: np.ndarray
    values: np.ndarray


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a surface; its properties are point data and cell data.

    Args:
      path: the file, text or binary.
      max_bytes: largest size of the file.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, incomplete or too large.
    """
    limits.check_size(path, "its elements", path.stat().st_size, max_bytes)
    data = path.read_bytes()
    with limits.reading(path):
        tables = dict(_tables(data))
        mesh = _mesh(tables)
    meshes.check(path, mesh)
    return mesh


def _mesh(tables: dict[str, _Table]) -> VtkMesh:
    if "vertex" not in tables:
        raise ValueError("no element vertex")
    point_data = dict(tables["vertex"].columns)
    if missing := [axis for axis in "xyz" if axis not in point_data]:
        raise ValueError(f"no property {missing[0]} of points")
    points = np.stack([point_data.pop(axis) for axis in "xyz"], axis=1)
    empty = np.zeros(0, np.int64)
    faces = tables.get("face", _Table({}, empty, empty))
    sizes = faces.sizes
    kinds = np.where(sizes < 5, _KINDS[np.minimum(sizes, 4)], _POLYGON)
    return VtkMesh(
        meshes.coordinates(points),
        np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]),
        faces.values.astype(np.int64),
        kinds,
        NamedArrays(point_data),
        NamedArrays(faces.columns),
    )


def _tables(data: bytes) -> Iterator[tuple[str, _Table]]:
    """Reads the elements up to faces, one after the other."""
    end = _END.search(data, 0, _MOST)
    if end is None or not data.startswith(b"ply"):
        raise ValueError("no header of this format")
    order, elements = _header(data[: end.start()].decode("ascii"))
    start = 0
    # Numbers of text are exact in double precision, whichever type they have.
    body = data[end.end() :] if order else text.parse(data[end.end() :], np.dtype("f8"))
    for element in elements:
        lists = [i for i, one in enumerate(element.properties) if one.length]
        if len(lists) > 1:
            raise ValueError(f"element {element.name} has several lists")
        types = [order + one.dtype if order else "f8" for one in element.properties]
        count = order + element.properties[lists[0]].length if lists else ""
        rows = _Rows(
            element, types, lists[0] if lists else -1, count if order else "f8"
        )
        found, start = rows.read(body, start)
        yield element.name, found
        if element.name == "face":
            return


def _header(content: str) -> tuple[str, list[_Element]]:
    order, elements = None, list[_Element]()
    for line in content.splitlines()[1:]:
        words = line.split()
        match words:
            case [] | ["comment", *_] | ["obj_info", *_]:
                continue
            case ["format", kind, "1.0"] if kind in _ORDERS:
                order = _ORDERS[kind]
            case ["element", name, rows] if rows.isdecimal() and len(rows) < 12:
                elements.append(_Element(name, int(rows), []))
            case ["property", "list", count, kind, name] if elements:
                given = _Property(name, _TYPES[kind], _TYPES[count])
                if given.length[0] == "f":
                    raise ValueError(f"a list whose length is of type {count}")
                elements[-1].properties.append(given)
            case ["property", kind, name] if elements:
                elements[-1].properties.append(_Property(name, _TYPES[kind]))
            case _:
                raise ValueError(f"a header with the line {line[:60]!r}")
    if order is None:
        raise ValueError("a header without its format")
    return order, elements


class _Rows(NamedTuple):
    """How the rows of an element are stored.

    Attributes:
      element: what they are.
      types: of the properties; of all numbers where they are text.
      place: which property is a list; -1 for none.
      counted: type of the length of a list.
    """

    element: _Element
    types: list[str]
    place: int
    counted: str

    def read(self, body: bytes | np.ndarray, start: int) -> tuple[_Table, int]:
        """Reads all rows from a place on, in bytes or numbers, and says where they end.

        Raises:
          ValueError: if the body is too short or a length is negative.
        """
        rows, empty = self.element.rows, np.zeros(0, np.int64)
        if self.place < 0 or not rows:
            found, start = self._equal(body, start, rows, 0)
            return _Table(self._columns(found), empty, empty), start
        length = self._length(body, start)
        try:
            found, end = self._equal(body, start, rows, length)
        except ValueError:  # too short for so long lists
            found, end = None, start
        if found is None or (found["count"] != length).any():
            return self._one_by_one(body, start)
        lists = found[f"p{self.place}"].reshape(-1).astype(np.int64)
        sizes = np.full(rows, length, np.int64)
        return _Table(self._columns(found), sizes, lists), end

    def _type(self, length: int) -> np.dtype:
        fields: list[tuple[str, str, tuple[int, ...]]] = []
        for i, kind in enumerate(self.types):
            if i == self.place:
                fields.append(("count", self.counted, ()))
            fields.append((f"p{i}", kind, (length,) if i == self.place else ()))
        return np.dtype(fields)

    def _equal(
        self, body: bytes | np.ndarray, start: int, rows: int, length: int
    ) -> tuple[np.ndarray, int]:
        """Rows whose lists have one length."""
        dtype = self._type(length)
        unit = 1 if isinstance(body, bytes) else 8
        size = rows * dtype.itemsize // unit
        if start + size > len(body):
            raise ValueError(f"{rows} rows of {self.element.name}, but fewer numbers")
        if not size:
            return np.zeros(rows, dtype), start
        if isinstance(body, bytes):
            return np.frombuffer(body, dtype, rows, start), start + size
        return body[start : start + size].view(dtype), start + size

    def _length(self, body: bytes | np.ndarray, start: int) -> int:
        """The length of the list of the row that begins there."""
        before = self._type(0)
        offset = before.fields["count"][1] if before.fields else 0
        if isinstance(body, bytes):
            found = np.frombuffer(
                body[: start + offset + 8], self.counted, 1, start + offset
            )
        else:
            found = body[start + offset // 8 : start + offset // 8 + 1]
        length = float(found[0]) if len(found) else -1.0
        if not 0 <= length <= len(body):
            raise ValueError(f"a list of {length:g} numbers")
        return int(length)

    def _one_by_one(self, body: bytes | np.ndarray, start: int) -> tuple[_Table, int]:
        """Rows whose lists differ in length."""
        columns: list[dict[str, np.ndarray]] = []
        lists: list[np.ndarray] = []
        for _ in range(self.element.rows):
            found, start = self._equal(body, start, 1, self._length(body, start))
            lists.append(found[f"p{self.place}"].reshape(-1).astype(np.int64))
            columns.append(self._columns(found))
        sizes = np.array([len(one) for one in lists], np.int64)
        names = columns[0] if columns else {}
        joined = {k: np.concatenate([one[k] for one in columns]) for k in names}
        return _Table(joined, sizes, np.concatenate(lists)), start

    def _columns(self, found: np.ndarray) -> dict[str, np.ndarray]:
        """Scalar properties in the order of bytes of this machine."""
        columns: dict[str, np.ndarray] = {}
        for i, one in enumerate(self.element.properties):
            if i != self.place:
                columns[one.name] = found[f"p{i}"].astype(one.dtype)
        return columns
