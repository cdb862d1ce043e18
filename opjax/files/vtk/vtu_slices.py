"""Meshes of `.vtu` files of any size, with arrays read in slices."""

import contextlib
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element

import numpy as np

from opjax.files import limits
from opjax.files.vtk.mesh import GHOSTS
from opjax.files.vtk.vtu_bytes import ByteFormat, Compressed, Plain, StoredBytes
from opjax.files.vtk.vtu_head import Head, read_head

# Bytes that are looked at or copied at once.
STEP = 2**20
_ORDERS = {"LittleEndian": "<", "BigEndian": ">"}
TYPES = {
    "Float32": "f4",
    "Float64": "f8",
    **{f"Int{8 * size}": f"i{size}" for size in (1, 2, 4, 8)},
    **{f"UInt{8 * size}": f"u{size}" for size in (1, 2, 4, 8)},
}


class Slices:
    """An array of a file, read in slices along its first axis.

    Attributes:
      dtype: data type, with the byte order of the file.
      shape: shape, `(n,)` or `(n, channels)`.
      size: size in bytes.
    """

    def __init__(self, values: Plain | Compressed, dtype: np.dtype, channels: int):
        self._values, self.dtype, self.size = values, dtype, values.size
        self._row = channels * dtype.itemsize
        self.shape = (self.size // self._row, *((channels,) if channels > 1 else ()))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, step = rows.indices(len(self))
        assert step == 1, rows
        data = self._values.read(first * self._row, max(first, last) * self._row)
        return np.frombuffer(data, self.dtype).reshape(-1, *self.shape[1:])

    def parts(self) -> Iterator[np.ndarray]:
        """Yields all rows, a few at a time."""
        rows = max(STEP // self._row, 1)
        for start in range(0, len(self), rows):
            yield self[start : start + rows]


class Axes:
    """Selects columns of an array of coordinates, one for each axis of the mesh."""

    def __init__(self, array: Slices, axes: Sequence[int]):
        self._array, self.axes = array, tuple(axes)
        self.dtype, self.shape = array.dtype, (len(array), len(axes))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._array[rows][:, list(self.axes)]


class SlicedMesh(NamedTuple):
    """An open file.

    Attributes:
      path: path of the file.
      head: its structure.
      arrays: arrays by their elements in the XML tree.
      points: coordinates, `(n, 3)`.
      fields: numeric point arrays, by name.
      corners: point indices of the cells, concatenated.
    """

    path: Path
    head: Head
    arrays: dict[Element, Slices]
    points: Slices
    fields: dict[str, Slices]
    corners: Slices

    def ranges(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the minimum and maximum coordinate on each axis."""
        of_parts = [(p.min(axis=0), p.max(axis=0)) for p in self.points.parts()]
        low, high = zip(*of_parts, strict=True)
        return np.min(low, axis=0), np.max(high, axis=0)


@contextlib.contextmanager
def open_mesh(path: Path) -> Generator[SlicedMesh]:
    """Opens a file of an unstructured grid without reading values.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, has no points, or cannot be read in slices.
    """
    head = read_head(path)
    order, encoding = encoding_of(path, head.root)
    reader = reader_of(encoding)
    with open(path, "rb") as file:
        stored = StoredBytes(path, file)
        arrays = {
            element: _slices(path, element, order, reader(stored, span, encoding))
            for element, span in head.spans.items()
        }
        yield _mesh(path, head, arrays)


def encoding_of(path: Path, root: Element) -> tuple[str, ByteFormat]:
    """Returns the byte order of a file, in NumPy's notation, and its byte format.

    Raises:
      ValueError: if they are unknown.
    """
    order = _ORDERS.get(root.get("byte_order", "LittleEndian"))
    header = root.get("header_type", "UInt32")
    if order is None or header not in ("UInt32", "UInt64"):
        raise limits.damaged(path, f"its data types are unknown: {root.attrib}")
    encoding = ByteFormat(np.dtype(order + TYPES[header]), root.get("compressor"))
    encoding.check(path)
    return order, encoding


def reader_of(encoding: ByteFormat) -> type[Plain] | type[Compressed]:
    """Returns the class that reads values."""
    return Plain if encoding.compressor is None else Compressed


def _slices(
    path: Path, element: Element, order: str, values: Plain | Compressed
) -> Slices:
    """Returns the array of an element; an array of bytes if it has no numbers."""
    kind, channels = element.get("type", ""), 1
    if kind in TYPES:
        channels = max(number(path, element, "NumberOfComponents", "1"), 1)
    dtype = np.dtype(order + TYPES.get(kind, "u1"))
    if values.size % (channels * dtype.itemsize):
        what = f"{values.size} bytes are not rows of {channels} {kind}"
        raise limits.damaged(path, f"{element.get('Name')!r}: {what}")
    return Slices(values, dtype, channels)


def _mesh(path: Path, head: Head, arrays: dict[Element, Slices]) -> SlicedMesh:
    """Checks that arrays fit each other, and finds the arrays at the points."""

    def of(where: str) -> dict[str, Slices]:
        elements = head.piece.findall(f"{where}/DataArray")
        return {
            e.get("Name", ""): arrays[e] for e in elements if e.get("type") in TYPES
        }

    def check(name: str, fits: bool) -> None:
        if not fits:
            what = f"{name!r} is missing or has not the length that it should have"
            raise limits.damaged(path, what)

    num_points = number(path, head.piece, "NumberOfPoints")
    num_cells = number(path, head.piece, "NumberOfCells")
    if not num_points:
        raise ValueError(f"{path} has no points: the mesh is empty.")
    points, fields, cells = list(of("Points").values()), of("PointData"), of("Cells")
    check("Points", [a.shape for a in points] == [(num_points, 3)])
    for name, array in fields.items():
        check(name, len(array) == num_points)
    for name, array in of("CellData").items():
        check(name, len(array) == num_cells)
        if name in GHOSTS and (ghosts := sum(map(np.count_nonzero, array.parts()))):
            raise ValueError(
                f"{path} has {ghosts} ghost cells, which cannot be left out in slices; "
                "save the mesh without them: mesh = pyvista.read(old), "
                "mesh.RemoveGhostCells()."
            )
    for name in ("offsets", "types"):
        check(name, name in cells and cells[name].shape == (num_cells,))
    check("connectivity", "connectivity" in cells)
    corners = cells["connectivity"]
    last = cells["offsets"][num_cells - 1 :][-1] if num_cells else 0
    check("connectivity", corners.shape == (last,))
    return SlicedMesh(path, head, arrays, points[0], fields, corners)


def number(path: Path, element: Element, key: str, default: str = "") -> int:
    """Returns a numeric attribute of an element.

    Raises:
      ValueError: if it is not a number.
    """
    text = element.get(key, default).strip()
    if not text.isdecimal() or len(text) > 18:
        raise limits.damaged(path, f"{key} of {element.tag} is {text!r}")
    return int(text)
