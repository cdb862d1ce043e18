"""A copy of a `.vtu` file with additional fields, written in slices."""

from collections.abc import Mapping
from typing import BinaryIO
from xml.etree import ElementTree

import numpy as np

from opjax.files import limits
from opjax.files.vtk.vtu_slices import SlicedMesh, Slices

_HEADER = np.dtype("<u8")


class Copy:
    """A file with all arrays of a mesh, and space for additional fields.

    Args:
      file: an empty file, which is complete when every row of every field is written.
      mesh: the mesh to copy.
    """

    def __init__(self, file: BinaryIO, mesh: SlicedMesh):
        self._file, self._mesh = file, mesh
        self.fields: dict[str, WrittenField] = {}

    def create(
        self, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, "WrittenField"]:
        """Writes the copy with space for fields; may be called only once.

        Args:
          shapes: shapes of the fields by name, `(n,)` or `(n, channels)`.

        Raises:
          OSError: if the disk is full.
          ValueError: if a value cannot be read, or cells refer to points that do not
            exist.
        """
        root, piece = self._mesh.head.root, self._mesh.head.piece
        version = root.get("version", "0.1")
        root.set("version", "1.0" if version.startswith("0") else version)
        root.set("byte_order", "LittleEndian")
        root.set("header_type", "UInt64")
        root.attrib.pop("compressor", None)
        places, end = [], 0
        for element, array in self._mesh.arrays.items():
            element.set("format", "appended")
            element.set("offset", str(end))
            end += _HEADER.itemsize + array.size
        data = piece.find("PointData")
        if data is None:
            data = ElementTree.SubElement(piece, "PointData")
        for name, shape in shapes.items():
            described = {"type": "Float32", "Name": name, "format": "appended"}
            if shape[1:]:
                described["NumberOfComponents"] = str(shape[1])
            ElementTree.SubElement(data, "DataArray", described, offset=str(end))
            places.append(end)
            end += _HEADER.itemsize + 4 * int(np.prod(shape))
        origin = self._write_head(root)
        for array in self._mesh.arrays.values():
            self._copy(array)
        for (name, shape), place in zip(shapes.items(), places, strict=True):
            self.fields[name] = WrittenField(self._file, origin + place, shape)
        self._file.seek(origin + end)
        self._file.write(b"\n</AppendedData>\n</VTKFile>\n")
        return self.fields

    def check(self) -> None:
        """Asserts that all fields have been written."""
        assert self.fields
        assert all(f.missing == 0 for f in self.fields.values())

    def _write_head(self, root: ElementTree.Element) -> int:
        """Writes the tree and returns where the appended data begin."""
        text, closing, _ = ElementTree.tostring(root).rpartition(b"</VTKFile>")
        assert closing
        self._file.write(b'<?xml version="1.0"?>\n' + text)
        self._file.write(b'<AppendedData encoding="raw">\n_')
        return self._file.tell()

    def _copy(self, array: Slices) -> None:
        corners = array is self._mesh.corners
        self._file.write(np.asarray(array.size, _HEADER).tobytes())
        for part in array.parts():
            if corners:
                self._check_corners(part)
            little = part.dtype.newbyteorder("<")
            self._file.write(part.astype(little, copy=False).tobytes())

    def _check_corners(self, part: np.ndarray) -> None:
        low, high, n = part.min(), part.max(), len(self._mesh.points)
        if low < 0 or high >= n:
            what = f"cells name points from {low} to {high}, there are {n}"
            raise limits.damaged(self._mesh.path, what)


class WrittenField:
    """A float32 field whose rows can be written in any order."""

    def __init__(self, file: BinaryIO, start: int, shape: tuple[int, ...]):
        self._file, self._row = file, 4 * int(np.prod(shape[1:]))
        self._start, self.missing = start + _HEADER.itemsize, shape[0]
        file.seek(start)
        file.write(np.asarray(shape[0] * self._row, _HEADER).tobytes())

    def __setitem__(self, rows: slice, values: np.ndarray) -> None:
        """Writes rows, each once."""
        self._file.seek(self._start + rows.start * self._row)
        self._file.write(np.ascontiguousarray(values, "<f4").tobytes())
        self.missing -= len(values)
