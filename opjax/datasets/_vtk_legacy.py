"""Meshes of VTK's legacy files, `.vtk`: text or binary, versions 1 to 5."""

import mmap
import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np

from opjax.datasets import _archives, _vtk_mesh
from opjax.datasets._vtk_mesh import Cells, Data, Parts
from opjax.datasets._vtk_values import Values

_HEAD = re.compile(rb"\s*# vtk DataFile Version ([1-5])\.\d+[^\n]*\n[^\n]*\n\s*(\w+)")
_KINDS = {
    "unstructured_grid": "UnstructuredGrid",
    "polydata": "PolyData",
    "structured_grid": "StructuredGrid",
    "rectilinear_grid": "RectilinearGrid",
    "structured_points": "ImageData",
}
_SURFACE = {
    "vertices": "Verts",
    "lines": "Lines",
    "polygons": "Polys",
    "triangle_strips": "Strips",
}
# Attributes of one line and their numbers of components; None where the line has it.
_ATTRIBUTES = {"vectors": 3, "normals": 3, "tensors": 9, "tensors6": 6}
_ATTRIBUTES |= {"global_ids": 1, "pedigree_ids": 1, "edge_flags": 1}
_ACTIVE = {"vectors": "Vectors", "normals": "Normals", "tensors": "Tensors"}
_ACTIVE |= {"tensors6": "Tensors"}


def read(path: Path, max_bytes: int) -> Parts:
    """Reads a file.

    Args:
      path: the file.
      max_bytes: largest size of an array.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, too large or holds something else than one mesh.
    """
    if not path.stat().st_size:
        raise _archives.damaged(path, "it is empty")
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        head = _HEAD.match(data)
        stored = head[2].upper() if head else b""
        if head is None or stored not in (b"ASCII", b"BINARY"):
            raise _archives.damaged(path, "it does not begin as files of VTK do")
        values = Values(path, data, head.end(), max_bytes, binary=stored == b"BINARY")
        return _Reader(path, values, version=int(head[1])).read()


class _Reader:
    """Reads sections, one after the other, each of which begins with its name."""

    def __init__(self, path: Path, values: Values, *, version: int):
        self._path, self._values, self._version = path, values, version
        self._parts = Parts("")
        self._target: Data | None = None  # of attributes
        self._rows = 0

    def read(self) -> Parts:
        """Reads all sections."""
        word = self._values.word()
        kind = self._values.word() if word == "dataset" else word
        if kind not in _KINDS:
            raise ValueError(
                f"{self._path} holds {kind[:40]!r}, expected one mesh, one of "
                f"{', '.join(_KINDS)}."
            )
        self._parts.kind = _KINDS[kind]
        sections: dict[str, Callable[[str], None]] = {
            "field": self._field,
            "metadata": lambda _: self._values.skip_block(),
            "point_data": self._begin_data,
            "cell_data": self._begin_data,
        }
        sections |= self._geometry(kind)
        attributes: dict[str, Callable[[str], None]] = {
            "scalars": self._scalars,
            "color_scalars": self._colours,
            "texture_coordinates": self._texture,
            "lookup_table": self._table,
            **dict.fromkeys(_ATTRIBUTES, self._attribute),
        }
        while word := self._values.word(last=True):
            known = sections if self._target is None else sections | attributes
            if word not in known:
                self.fail(f"the section {word[:40]!r}")
            known[word](word)
        if self._parts.kind == "UnstructuredGrid":
            self._complete_grid()
        return self._parts

    def fail(self, what: str) -> None:
        """Raises ValueError."""
        raise _archives.damaged(self._path, what)

    def _geometry(self, kind: str) -> dict[str, Callable[[str], None]]:
        points: dict[str, Callable[[str], None]] = {"points": self._points}
        if kind == "unstructured_grid":
            return points | {"cells": self._cells, "cell_types": self._types}
        if kind == "polydata":
            return points | dict.fromkeys(_SURFACE, self._cells)
        dimensions = {"dimensions": self._dimensions}
        if kind == "structured_grid":
            return points | dimensions
        axes = dict.fromkeys([f"{a}_coordinates" for a in "xyz"], self._axis)
        if kind == "rectilinear_grid":
            return dimensions | axes
        self._parts.axes = [np.zeros(3), np.ones(3)]
        return dimensions | dict.fromkeys(
            ("origin", "spacing", "aspect_ratio"), self._place
        )

    def _points(self, _: str) -> None:
        count = self._values.integer()
        found = self._values.array(3 * count, self._values.word(), "points")
        self._parts.points = found.reshape(count, 3)

    def _cells(self, word: str) -> None:
        count, length = self._values.integer(), self._values.integer()
        name = _SURFACE.get(word, "")
        if self._version < 5:
            found = self._values.array(length, "int", word).astype(np.int64)
            self._parts.cells[name] = self._counted(found, count)
            return
        stored = []
        for wanted, size in (("offsets", count), ("connectivity", length)):
            if self._values.word() != wanted:
                self.fail(f"cells without {wanted}")
            stored.append(self._values.array(size, self._values.word(), wanted))
            self._values.skip_metadata()
        offsets, corners = (
            _vtk_mesh.integers(self._path, "cells", array) for array in stored
        )
        if not count:
            offsets = np.zeros(1, np.int64)
        self._parts.cells[name] = Cells(offsets, corners)

    def _counted(self, numbers: np.ndarray, count: int) -> Cells:
        """Cells each of which is its number of corners and the corners."""
        if count > len(numbers):
            self.fail(f"{count} cells do not fill {len(numbers)} numbers")
        sizes, place = np.zeros(count, np.int64), 0
        if count and len(numbers) % count == 0:  # mostly all have as many
            table = numbers.reshape(count, -1)
            if table.shape[1] and (table[:, 0] == table.shape[1] - 1).all():
                offsets = np.arange(count + 1) * (table.shape[1] - 1)
                return Cells(offsets, np.ascontiguousarray(table[:, 1:]).reshape(-1))
        listed = numbers.tolist()
        for cell in range(count):
            if place >= len(listed) or listed[place] < 0:
                break
            sizes[cell] = listed[place]
            place += 1 + listed[place]
        if place != len(listed) or sizes.sum() + count != place:
            self.fail(f"{count} cells do not fill {len(listed)} numbers")
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        firsts = offsets[:-1] + np.arange(count)
        return Cells(offsets, np.delete(numbers, firsts))

    def _types(self, _: str) -> None:
        found = self._values.array(self._values.integer(), "int", "types")
        self._parts.types = found.astype(np.int64)

    def _complete_grid(self) -> None:
        parts = self._parts
        parts.cells.setdefault("", Cells(np.zeros(1, np.int64), np.zeros(0, np.int64)))
        if parts.types is None:
            parts.types = np.zeros(0, np.int64)

    def _dimensions(self, _: str) -> None:
        found = tuple(self._values.integer() for _ in range(3))
        self._values.check_size(12 * found[0] * found[1] * found[2], "points")
        if min(found) < 1:
            self.fail(f"dimensions {found}")
        self._parts.dimensions = found

    def _axis(self, word: str) -> None:
        place, count = "xyz".index(word[0]), self._values.integer()
        if len(self._parts.axes) != place or self._dimension(place) != count:
            self.fail(f"{word} of {count}")
        found = self._values.array(count, self._values.word(), word)
        self._parts.axes.append(found)

    def _dimension(self, place: int) -> int:
        return self._parts.dimensions[place] if self._parts.dimensions else -1

    def _place(self, word: str) -> None:
        numbers = np.array([self._values.real() for _ in range(3)])
        self._parts.axes[int(word != "origin")] = numbers

    def _begin_data(self, word: str) -> None:
        points = word == "point_data"
        self._target = self._parts.point_data if points else self._parts.cell_data
        self._rows = self._values.integer()
        expected = self._parts.num_points if points else self._parts.num_cells
        if self._rows not in (expected, 0):
            self.fail(f"{word} of {self._rows}, there are {expected}")

    def _add(self, name: str, array: np.ndarray, active: str = "") -> None:
        assert self._target is not None
        name = self._target.add(name, array)
        if active:
            self._target.active.setdefault(active, name)

    def _rows_of(self, channels: int, kind: str, name: str) -> np.ndarray:
        found = self._values.array(self._rows * channels, kind, name)
        return found.reshape(self._rows, channels) if channels != 1 else found

    def _scalars(self, _: str) -> None:
        name = decoded(self._values.word(lower=False))
        kind, channels = self._values.word(), self._values.rest_of_line() or "1"
        count = self._values.number(channels)
        if self._values.word() != "lookup_table":
            self.fail(f"scalars {name!r} without a table")
        self._values.word()
        if not 0 < count < 2**16:
            self.fail(f"scalars {name!r} of {count} components")
        self._add(name, self._rows_of(count, kind, name), "Scalars")

    def _colours(self, _: str) -> None:
        name, count = decoded(self._values.word(lower=False)), self._values.integer()
        if self._values.binary:
            found = self._rows_of(count, "unsigned_char", name)
        else:
            levels = 255 * self._rows_of(count, "float", name) + 0.5
            found = np.nan_to_num(levels).clip(0, 255).astype(np.uint8)
        self._add(name, found, "Scalars")

    def _table(self, _: str) -> None:
        self._values.word()
        count = self._values.integer()
        kind = "unsigned_char" if self._values.binary else "float"
        self._values.array(4 * count, kind, "table")  # colours, which nothing here has

    def _texture(self, _: str) -> None:
        name, count = decoded(self._values.word(lower=False)), self._values.integer()
        found = self._rows_of(count, self._values.word(), name)
        self._add(name, found, "TCoords")

    def _attribute(self, word: str) -> None:
        name, kind = decoded(self._values.word(lower=False)), self._values.word()
        found = self._rows_of(_ATTRIBUTES[word], kind, name)
        self._add(name, found, _ACTIVE.get(word, ""))

    def _field(self, word: str) -> None:
        assert word == "field"
        self._values.word()
        target = self._parts.field_data if self._target is None else self._target
        for _ in range(self._values.integer()):
            name = self._values.word(lower=False)
            while name.lower() == "metadata":
                self._values.skip_block()
                name = self._values.word(lower=False)
            if name.upper() == "NULL_ARRAY":
                continue
            channels, rows = self._values.integer(), self._values.integer()
            kind = self._values.word()
            found = self._values.array(channels * rows, kind, name)
            if channels > 1 and kind not in ("string", "utf8_string"):
                found = found.reshape(rows, channels)
            target.add(decoded(name), found)


def decoded(name: str) -> str:
    """A name, in which what is no letter may be written as in addresses."""
    return unquote_to_bytes(name).decode("utf-8", "replace")
