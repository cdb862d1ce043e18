"""Coordinates in columns: commands for `.csv` files, and arrays `x` and `y`."""

import csv
import math
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from opjax.files import limits

_MARKS = (";", "\t", ",", None)  # None: any blanks
_UNIT = re.compile(r"\s*[(\[][^)\]]*[)\]]$")  # X (m), but not Position[X] (m)
_PLACE = r"(?:points?|coord\w*?|position|centroid)[\W_]*"
_AXIS = re.compile(
    rf"(?:{_PLACE})?([xyz])[\W_]*(?:coord\w*)?|{_PLACE}([012])", re.IGNORECASE
)
_VECTOR = re.compile(r"(.+):[012]")  # of ParaView


class _Table(NamedTuple):
    """The form of a table.

    Attributes:
      names: of the columns.
      row: the first row of values.
      mark: between columns.
      skipped: number of lines before the values.
      text: first lines of the values.
    """

    names: list[str]
    row: list[str]
    mark: str | None
    skipped: int
    text: str

    @property
    def axes(self) -> dict[str, int]:
        """The columns of coordinates, in the order of the axes."""
        numbers = [n if self.is_number(i) else "" for i, n in enumerate(self.names)]
        return {axis: numbers.index(n) for axis, n in _axes(numbers).items()}

    def is_number(self, column: int) -> bool:
        """Whether a column holds numbers."""
        return _is_number(self.row[column])


def _axes(names: Iterable[str]) -> dict[str, str]:
    """The names of coordinates by their axes, in order."""
    columns: dict[str, str] = {}
    for name in names:
        match = _AXIS.fullmatch(_UNIT.sub("", name)) or _AXIS.fullmatch(name)
        if match:
            axis = "xyz"[int(match[2])] if match[2] else match[1].lower()
            columns.setdefault(axis, name)
    return {axis: columns[axis] for axis in sorted(columns)}


def apart(
    name: str, arrays: Mapping[str, ArrayLike], fields: Collection[str] = ()
) -> ValueError | None:
    """Returns the error for arrays `x` and `y` of points in place of `mesh_points`.

    Args:
      name: name of the sample.
      arrays: all arrays of the sample.
      fields: names of arrays that are fields for sure.

    Returns:
      The error; None for a sample with `mesh_points`, or if they are no coordinates of
      points: on a square grid, `x` and `y` may be those of its columns and rows.
    """
    axes = [] if "mesh_points" in arrays else [*_axes(arrays).values()]
    if len(axes) < 2 or not set(axes).isdisjoint(fields):
        return None
    shapes = {key: np.shape(arrays[key]) for key in arrays}
    points = max(shapes[axes[0]], default=0)
    others = [shape for key, shape in shapes.items() if key not in axes]
    same = {math.prod(shapes[key]) for key in axes} == {points}
    if not same or not any(points in shape for shape in others):
        return None
    if any(shape.count(points) > 1 for shape in others):
        return None
    return ValueError(
        f"{name}: the arrays {' and '.join(axes)} look like coordinates: stack them as "
        f"mesh_points, numpy.column_stack([{', '.join(axes)}])."
    )


def line(path: Path) -> str:
    """A command that converts a table to an `.npz` file; empty without coordinates.

    Args:
      path: the file. Only its first lines are read.

    Returns:
      The command. Names of fields are those of the columns, with `_` for characters
      other than letters and digits: nothing of the file is code for a shell.
    """
    lines = limits.head(path).decode("utf-8-sig", "replace").splitlines()
    tables = [table for mark in _MARKS for table in _tables(lines, mark)]
    table = next((table for table in tables if table.axes), None)
    if table is None:
        return ""
    named: dict[str, list[int]] = {}
    axes = [*table.axes.values()]
    for column, name in enumerate(table.names):
        if column not in axes and table.is_number(column):
            vector = _VECTOR.fullmatch(name)
            key = re.sub(r"\W+", "_", vector[1] if vector else name, flags=re.ASCII)
            named.setdefault(key.strip("_") or f"column_{column}", []).append(column)
    fields = [
        f"{key!r}: t[:, {columns if len(columns) > 1 else columns[0]}]"
        for key, columns in named.items()
    ]
    text, edits = repr(path.name), ""
    if table.mark != "," and "," in table.text:
        edits += ".replace(',', '.')"
    if '"' in table.text:
        edits += ".replace(chr(34), '')"
    if edits:
        text = f"pathlib.Path({text}).read_text('latin-1'){edits}.splitlines()"
    return (
        f'python -c "import numpy, pathlib; t = numpy.genfromtxt({text}, delimiter='
        f"{table.mark!r}, skip_header={table.skipped}, encoding='latin-1'); "
        f"p = t[:, {axes}]; numpy.savez({path.stem + '.npz'!r}, "
        f'mesh_points=p[:, numpy.ptp(p, 0) > 0], **{{{", ".join(fields)}}})"'
    )


def _tables(lines: list[str], mark: str | None) -> list[_Table]:
    """The table of lines with this mark between columns, if there is one."""
    rows = [(number, _split(text, mark)) for number, text in enumerate(lines)]
    rows = [(number, row) for number, row in rows if any(row)]
    for (_, names), (number, row) in pairwise(rows):
        if len(names) == len(row) > 1 and sum(map(_is_number, row)) > 1:
            return [_Table(names, row, mark, number, "".join(lines[number:]))]
    return []


def _split(text: str, mark: str | None) -> list[str]:
    text = text.lstrip("%# ")  # before the names, in comments
    if mark is None:
        return text.split()
    row = next(csv.reader([text], delimiter=mark, skipinitialspace=True), [])
    return [value.strip() for value in row]


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True
