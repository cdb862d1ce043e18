"""Surfaces of `.ply` files, with the properties of their points and faces.

VTK's reader ignores all properties except those that it knows, so fields are lost.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import polyhedra, text
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
    """A number of each row, or a list of numbers behind their count.

    Attributes:
      name: of the property.
      dtype: type of the numbers.
      counted: type of the count of a list.
    """

    name: str
    dtype: str
    counted: str = ""


class _Element(NamedTuple):
    """Rows of a kind: points, faces or others."""

    name: str
    rows: int
    properties: list[_Property]


class _Rows(NamedTuple):
    """Columns of an element; lengths and values of the lists of its rows."""

    columns: dict[str, np.ndarray]
    sizes: np.ndarray = np.zeros(0, np.int64)
    values: np.ndarray = np.zeros(0, np.int64)


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a surface; its properties become point data and cell data.

    Args:
      path: the file, text or binary.
      max_bytes: maximum size of the file.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, incomplete or too large.
    """
    limits.check_size(path, "its elements", path.stat().st_size, max_bytes)
    data = path.read_bytes()
    with limits.reading(path):
        mesh = _mesh(dict(_elements(data)))
    meshes.check(path, mesh)
    return mesh


def _mesh(elements: dict[str, _Rows]) -> VtkMesh:
    if "vertex" not in elements:
        raise ValueError("no element vertex")
    point_data = dict(elements["vertex"].columns)
    if missing := [axis for axis in "xyz" if axis not in point_data]:
        raise ValueError(f"no property {missing[0]} of points")
    points = np.stack([point_data.pop(axis) for axis in "xyz"], axis=1)
    faces = elements.get("face", _Rows({}))
    sizes = faces.sizes
    return VtkMesh(
        meshes.coordinates(points),
        polyhedra.offsets_of(sizes),
        faces.values.astype(np.int64),
        np.where(sizes < 5, _KINDS[np.minimum(sizes, 4)], _POLYGON),
        NamedArrays(point_data),
        NamedArrays(faces.columns),
    )


def _elements(data: bytes) -> Iterator[tuple[str, _Rows]]:
    """Reads the elements up to faces, one after the other."""
    end = _END.search(data, 0, _MOST)
    if end is None or not data.startswith(b"ply"):
        raise ValueError("no header of this format")
    order, elements = _header(data[: end.start()].decode("ascii"))
    body, start = data[end.end() :], 0
    if not order:  # numbers of text are exact in double precision
        body = text.parse(body, np.dtype("f8")).tobytes()
    numbers = _Numbers(body, order)
    for element in elements:
        rows, start = _rows(numbers, start, element)
        yield element.name, rows
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
                if _TYPES[count][0] == "f":
                    raise ValueError(f"a list whose length is of type {count}")
                elements[-1].properties.append(
                    _Property(name, _TYPES[kind], _TYPES[count])
                )
            case ["property", kind, name] if elements:
                elements[-1].properties.append(_Property(name, _TYPES[kind]))
            case _:
                raise ValueError(f"a header with the line {line[:60]!r}")
    if order is None:
        raise ValueError("a header without its format")
    return order, elements


class _Numbers:
    """The numbers of a file by the byte at which they begin.

    Args:
      body: all bytes behind the header; numbers of text as float64.
      order: of the bytes of a number; empty for numbers of text.
    """

    def __init__(self, body: bytes, order: str):
        self._body, self._order = body, order
        self.size = len(body)

    def of(self, kind: str) -> np.ndarray:
        """Those of a type, which overlap each other."""
        dtype = np.dtype(self._order + kind if self._order else "f8")
        count = max(self.size - dtype.itemsize + 1, 0)
        return np.ndarray((count,), dtype, self._body, strides=(1,))


def _rows(numbers: _Numbers, start: int, element: _Element) -> tuple[_Rows, int]:
    """Reads the rows of an element from a byte on, and says where they end.

    Raises:
      ValueError: if there are fewer bytes, or several lists, or a negative length.
    """
    properties, num_rows = element.properties, element.rows
    widths = [numbers.of(one.counted or one.dtype).itemsize for one in properties]
    width, offsets = sum(widths), np.cumsum([0, *widths])
    lists = [i for i, one in enumerate(properties) if one.counted]
    if len(lists) > 1:
        raise ValueError(f"element {element.name} has several lists")
    if start + num_rows * width > numbers.size:
        raise _fewer(element)
    starts = start + width * np.arange(num_rows if width else 0)
    rows, behind = _Rows({}), np.zeros_like(starts)  # bytes of the list of each row
    for i in lists if num_rows else ():
        items = numbers.of(properties[i].dtype)
        counts = numbers.of(properties[i].counted)[start + offsets[i] :]
        sizes = _sizes(counts, width, items.itemsize, element)
        behind = items.itemsize * sizes
        before = np.cumsum(behind) - behind
        starts += before
        if starts[-1] + width + behind[-1] > numbers.size:
            raise _fewer(element)
        places = np.repeat(starts + offsets[i + 1] - before, sizes)
        places += items.itemsize * np.arange(len(places))
        rows = _Rows({}, sizes, items[places].astype(np.int64))
    for i, one in enumerate(properties):
        if not one.counted:
            after = behind if lists and i > lists[0] else 0
            places = starts + offsets[i] + after
            rows.columns[one.name] = numbers.of(one.dtype)[places].astype(one.dtype)
    return rows, start + num_rows * width + int(behind.sum())


def _sizes(counts: np.ndarray, width: int, item: int, element: _Element) -> np.ndarray:
    """Lengths of the lists of all rows.

    Args:
      counts: the number that begins at each byte, from the first length on.
      width: bytes of a row with an empty list.
      item: bytes of a number of a list.
      element: what the rows are.
    """
    sizes, place = list[int](), 0
    while len(sizes) < element.rows:
        if place >= len(counts):
            raise _fewer(element)
        size = int(counts[place])
        if not 0 <= size <= len(counts):
            raise ValueError(f"a list of {size} numbers")
        step = width + item * size
        if not sizes:  # most files have lists of one length
            alike = counts[::step][: element.rows] == size
            if len(alike) == element.rows and alike.all():
                return np.full(element.rows, size, np.int64)
        sizes.append(size)
        place += step
    return np.array(sizes, np.int64)


def _fewer(element: _Element) -> ValueError:
    return ValueError(f"{element.rows} rows of {element.name}, but fewer numbers")
