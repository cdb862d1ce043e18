"""Checks of a data set before training: its content, errors and warnings.

Files are read and samples are built as for training, with all available fields.
"""

import dataclasses
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opjax.files import (
    boundary_sets,
    building,
    cases,
    columns,
    formats,
    frames,
    repeats,
)
from opjax.files.building import Built
from opjax.files.npz import Arrays
from opjax.files.options import ReadOptions
from opjax.files.reading import Survey
from opjax.files.vtk import kinds, lists
from opjax.files.vtk.fields import MeshArrays
from opjax.samples import normalizers, summaries
from opjax.samples.base import is_real
from opjax.samples.fields import channels_of
from opjax.samples.stored import Place
from opjax.samples.summaries import Summary

# Arrays that are no fields, and names of fields that programs make.
_ROLES = {"mesh_points", "cells", "quadrature_weights", "grid_shape", "times"}
_MADE = re.compile(r"boundary(_|$)|prediction(_|$)|vtk[A-Z]|vtkGhost")
# Names of numbers of points, cells and parts: node_id, GlobalPointIds, procID.
_IDS = re.compile(r"(.*[^A-Za-z])?(ids?|IDs?)|.*(?<![A-Z])(Id|ID)s?")
# Numbers and paths, which differ between messages of one kind.
_VARYING = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


@dataclasses.dataclass(frozen=True)
class FieldCheck:
    """A field of a data set.

    Attributes:
      name: name of its array.
      location: points or cells.
      components: number of channels.
      cases: number of cases that have it.
      low: minimum of each channel.
      high: maximum of each channel.
      mean: mean over all rows of all cases.
      std: standard deviation over all rows of all cases.
      constant: indices of the constant channels.
      whole: whether it is of integers or booleans.
      zero: number of cases in which the field is zero everywhere.
      zero_in: name of one such case.
    """

    name: str
    location: str
    components: int
    cases: int
    low: list[float]
    high: list[float]
    mean: list[float]
    std: list[float]
    constant: list[int]
    whole: bool = False
    zero: int = 0
    zero_in: str = ""

    @property
    def in_spreads(self) -> list[tuple[float, float]]:
        """Range of each channel, in standard deviations from the mean."""
        return [
            ((low - mean) / std, (high - mean) / std) if std > 0 else (0.0, 0.0)
            for low, high, mean, std in zip(
                self.low, self.high, self.mean, self.std, strict=True
            )
        ]


@dataclasses.dataclass(frozen=True)
class ScalarCheck:
    """A scalar of each case.

    Attributes:
      name: name of the array or column.
      source: file or table.
      cases: number of cases that have it.
      low: minimum.
      high: maximum of each channel.
    """

    name: str
    source: str
    cases: int
    low: float
    high: float

    @property
    def constant(self) -> bool:
        """Whether the value is the same in all cases."""
        return self.low == self.high


@dataclasses.dataclass(frozen=True)
class Problem:
    """One kind of error or warning in a data set.

    Attributes:
      text: the message for the first affected case.
      cases: number of affected cases; zero if the problem concerns the whole data set.
    """

    text: str
    cases: int = 0


@dataclasses.dataclass(frozen=True)
class DataCheck:
    """The result of a check of a data set.

    Attributes:
      cases: number of cases.
      looked_at: number of cases that were read.
      suffix: format of the files.
      num_points: minimum and maximum number of points of a case.
      point_dim: dimension of the points.
      cells: number of cells by type, in all cases that were read.
      fields: fields at points and cells.
      scalars: scalars from the files and from the table.
      columns: columns of the table that are not numeric.
      boundaries: number of cases by name of the boundary.
      times: minimum and maximum time stored in the files.
      frames: minimum and maximum number of frames of a case, if cases have several.
      grid_axes: `ReadOptions.grid_axes` for files without points.
      divided: whether the table has a column `split`.
      refused: errors.
      doubtful: warnings.
    """

    cases: int = 0
    looked_at: int = 0
    suffix: str = ""
    num_points: tuple[int, int] = (0, 0)
    point_dim: int = 0
    cells: dict[str, int] = dataclasses.field(default_factory=dict)
    fields: list[FieldCheck] = dataclasses.field(default_factory=list)
    scalars: list[ScalarCheck] = dataclasses.field(default_factory=list)
    columns: list[str] = dataclasses.field(default_factory=list)
    boundaries: dict[str, int] = dataclasses.field(default_factory=dict)
    times: tuple[float, float] | None = None
    frames: tuple[int, int] | None = None
    grid_axes: int = 0
    divided: bool = False
    refused: list[Problem] = dataclasses.field(default_factory=list)
    doubtful: list[Problem] = dataclasses.field(default_factory=list)

    def complete(self, location: str) -> list[FieldCheck]:
        """The fields at a location that all cases contain and that are not constant."""
        return [
            field
            for field in self.fields
            if field.location == location
            and field.cases == self.looked_at
            and len(field.constant) < field.components
        ]


def check(paths: Sequence[str], *, most: int = 200) -> DataCheck:
    """Reads the cases of a data set and reports their content.

    Args:
      paths: folders, files and patterns, as for `formats.find`.
      most: maximum number of cases to read, spread over the set; 0 reads all.

    Returns:
      The check. Errors in the data are reported in it, not raised.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            files = formats.find(list(paths))
        except (OSError, ValueError) as error:
            return DataCheck(refused=[Problem(str(error))])
        rows = np.arange(len(files))
        if most and len(files) > most:
            rows = np.unique(np.linspace(0, len(files) - 1, most).astype(int))
        look = _Look()
        for row in rows.tolist():
            look.at(files[row])
        done = look.done()
    texts = dict.fromkeys(str(one.message) for one in said)
    return dataclasses.replace(
        done,
        cases=len(files) - len(rows) + done.looked_at,
        suffix=files[0].suffix.lower(),
        frames=_frames(paths),
        doubtful=[Problem(text) for text in texts],
    )


def _frames(paths: Sequence[str]) -> tuple[int, int] | None:
    """Fewest and most frames of the cases that lists of times name."""
    try:
        several = [path for path in frames.find_cases(list(paths)) if path.is_file()]
        several = [path for path in several if path.suffix.lower() in frames.LISTS]
        counts = [len(lists.frames(path)) for path in several]
    except (OSError, ValueError):
        return None
    return (min(counts), max(counts)) if max(counts, default=0) > 1 else None


@dataclasses.dataclass
class _Field:
    """What is known of a field: a summary of each case, and those that are zero."""

    each: list[Summary] = dataclasses.field(default_factory=list)
    zero: list[str] = dataclasses.field(default_factory=list)
    whole: bool = False


class _Look:
    """Looks at files one by one, and keeps what is to be said of all."""

    def __init__(self):
        self._cases, self._failed = 0, 0
        self._points: list[int] = []
        self._dims: Counter[int] = Counter()
        self._cells: Counter[str] = Counter()
        self._fields: dict[tuple[str, str], _Field] = {}
        self._numbers: dict[tuple[str, str], list[float]] = {}
        self._texts: set[str] = set()
        self._boundaries: Counter[str] = Counter()
        self._times: list[float] = []
        self._problems: dict[str, list[str]] = {}
        self._survey_of_all: Survey | None = None
        self._names: dict[str, list[str]] = {}
        self._first: dict[str, list[str]] = {}  # the location that is surveyed
        self._samples: list[Any] = []
        self._axes, self._divided = 0, False

    def at(self, file: Path) -> None:
        """Looks at the samples of a file."""
        before = self._cases
        try:
            with formats.opened(file, ReadOptions()) as groups:
                for group, arrays in groups.items():
                    self._cases += 1
                    self._at_case(Place(str(file), group), arrays)
        except (ImportError, OSError, ValueError) as error:
            self._cases = max(self._cases, before + 1)
            self._refuse(str(file), error)

    def _refuse(self, name: str, error: Exception) -> None:
        kind = _VARYING.sub("#", str(error).replace(name, "FILE"))
        kind = kind.replace(str(Path(name).parent), "FOLDER")
        self._problems.setdefault(kind, []).append(str(error))

    def _at_case(self, place: Place, arrays: Arrays) -> None:
        if error := columns.apart(place.name, arrays):
            self._refuse(place.name, error)
            return
        if "mesh_points" not in arrays:
            self._axes = self._axes or _grid_axes(arrays)
        names = dict(_fields_of(arrays, self._axes)) or _unreadable(arrays)
        row = self._row(place)
        if isinstance(arrays, MeshArrays):
            counts = Counter(arrays.mesh.types.tolist())
            for number, count in counts.items():
                if number not in kinds.WITHOUT_EXTENT:
                    kind = kinds.SHAPES.get(number, f"kind {number}")
                    higher = " of second order" if number in kinds.HIGHER else ""
                    self._cells[kind + higher] += count
        elif "cells" in arrays:
            cells = np.asarray(arrays["cells"])
            self._cells[f"{cells.shape[-1]} corners"] += len(cells)
        self._boundaries.update(_boundaries_of(arrays))
        for key, value in _scalars_of(arrays).items():
            self._numbers.setdefault((key, "file"), []).append(value)
        counted = False
        for location, fields in names.items():
            self._same_names(place, location, fields)
            built = self._built(place, arrays, row, location, fields)
            if built is not None and not counted:
                counted = True
                self._points.append(_num_points(arrays, built))
                self._dims[built.sample.mesh_points.shape[1]] += 1
                self._times += [] if math.isnan(built.time) else [built.time]

    def _same_names(self, place: Place, location: str, fields: list[str]) -> None:
        """Keeps which fields a case has not that the first one has, or the reverse."""
        first = self._names.setdefault(location, fields)
        self._first = self._first or {location: fields}
        if other := sorted(set(first) ^ set(fields)):
            text = f"{', '.join(other)} at {location} are not in all cases"
            self._problems.setdefault(text, []).append(f"{text}, see {place.name}.")

    def _row(self, place: Place) -> cases.Row | None:
        """The row of a case in a table, whose numbers are kept."""
        try:
            row = cases.row_of(Path(place.file), place.group, named=True)
        except ValueError as error:
            self._refuse(place.file, error)
            return None
        if row is None:
            return None
        self._divided |= bool(row.part)
        for key, text in row.columns.items():
            if key in cases.KEYS or key == "split":
                continue
            try:
                self._numbers.setdefault((key, "cases.csv"), []).append(float(text))
            except ValueError:
                self._texts.add(key)
        return row

    def _built(
        self,
        place: Place,
        arrays: Arrays,
        row: cases.Row | None,
        location: str,
        fields: list[str],
    ) -> Built | None:
        """Builds a sample with all fields, or else with one of those that can be read.

        Returns:
          The sample; None if none can be built.
        """
        options = ReadOptions(
            target=fields, location=location, grid_axes=self._axes if fields else 0
        )
        try:
            built = building.build(place.name, arrays, options, row)
        except ValueError as error:
            if len(fields) == 1:
                self._refuse(place.name, error)
                return None
            several = [
                self._built(place, arrays, row, location, [field]) for field in fields
            ]
            return next((one for one in several if one is not None), None)
        self._keep(built, location, _wholes(arrays, location, fields))
        if {location: fields}.items() <= self._first.items():
            self._survey(place, built, options)
        return built

    def _keep(self, built: Built, location: str, wholes: set[str]) -> None:
        """Keeps the ranges of the fields of a sample."""
        summary = summaries.summarize(built.sample)
        channels = built.channels["target"]
        if "target" not in summary.ranges:
            return
        low, high = summary.ranges["target"]
        count, mean, square = summary.sums["target"]
        for name, own in channels_of(channels).items():
            kept = self._fields.setdefault((name, location), _Field())
            one = Summary(
                summary.num_points,
                None,
                {"target": (low[own], high[own])},
                {"target": (count, mean[own], square[own])},
            )
            if not (low[own].any() or high[own].any()):
                kept.zero.append(built.sample.name)
            kept.each.append(one)
            kept.whole = name in wholes

    def _survey(self, place: Place, built: Built, options: ReadOptions) -> None:
        """Compares a sample with the first one, as a training does."""
        survey = self._survey_of_all = self._survey_of_all or Survey(options, None)
        self._samples.append(built.sample)
        numbers = [v[-1] for (_, source), v in self._numbers.items() if v and source]
        sample = built.sample._replace(scalars=np.asarray(numbers) if numbers else None)
        try:
            survey.look_at(built._replace(sample=sample))
        except ValueError as error:
            self._refuse(place.name, error)

    def done(self) -> DataCheck:
        """Returns what was found; warns of what is doubtful of all cases."""
        if self._survey_of_all is not None and self._survey_of_all.seen:
            self._warned(self._survey_of_all)
        if copies := building.copies(self._samples):
            first, second = copies[0]
            warnings.warn(
                f"{len(copies)} samples are duplicates: {second} is equal to {first}.",
                stacklevel=2,
            )
        tables = [
            ScalarCheck(name, source, len(values), min(values), max(values))
            for (name, source), values in self._numbers.items()
            if values
        ]
        refused = [Problem(t[0], len(t)) for t in self._problems.values()]
        fields = [_field(*key, kept, refused) for key, kept in self._fields.items()]
        return DataCheck(
            looked_at=self._cases,
            num_points=(min(self._points, default=0), max(self._points, default=0)),
            point_dim=max(self._dims, key=lambda dim: self._dims[dim], default=0),
            cells=dict(self._cells.most_common()),
            fields=fields,
            scalars=[one for one in tables if math.isfinite(one.low + one.high)],
            columns=sorted(self._texts),
            boundaries=dict(self._boundaries),
            times=(min(self._times), max(self._times)) if self._times else None,
            grid_axes=self._axes,
            divided=self._divided,
            refused=refused,
        )

    def _warned(self, survey: Survey) -> None:
        try:
            survey.warn()
        except ValueError as error:  # axes of grids that differ
            self._problems.setdefault(str(error), []).append(str(error))
        repeats.warn(survey.seen)


class _Known(list[Summary]):
    """Summaries of samples, as of a data set in files."""

    @property
    def summaries(self) -> Sequence[Summary]:
        """Of the samples."""
        return self


def _field(
    name: str, location: str, kept: _Field, refused: list[Problem]
) -> FieldCheck:
    """What is known of a field of all cases; what is refused of it is appended."""
    same = [one for one in kept.each if one.channels == kept.each[0].channels]
    low, high = summaries.limits(same, "target")
    try:
        mean, std = summaries.mean_and_std(same, "target")
    except ValueError:  # one point
        mean, std = low, np.zeros(len(low))
    varying = np.ones(len(low), bool)
    try:
        varying = normalizers.varies(_Known(same), "target", [name] * len(low))
    except ValueError as error:  # by less than rounding takes
        refused.append(Problem(f"{name} at {location}: {error}"))
    return FieldCheck(
        name,
        location,
        len(low),
        len(kept.each),
        low=np.asarray(low, float).tolist(),
        high=np.asarray(high, float).tolist(),
        mean=np.asarray(mean, float).tolist(),
        std=np.asarray(std, float).tolist(),
        constant=np.flatnonzero(~varying).tolist(),
        whole=kept.whole,
        zero=len(kept.zero),
        zero_in=kept.zero[0] if kept.zero else "",
    )


def _fields_of(arrays: Arrays, axes: int) -> Iterator[tuple[str, list[str]]]:
    """Names of the fields of a case by location."""
    if isinstance(arrays, MeshArrays):
        mesh = arrays.mesh
        places = {"points": mesh.point_data.arrays, "cells": mesh.cell_data.arrays}
        for location, data in places.items():
            names = [name for name, array in data.items() if _is_field(name, array)]
            if names:
                yield location, names
        return
    shapes = {name: np.shape(arrays[name]) for name in arrays}
    points = shapes.get("mesh_points", (0,))[0]
    cells = shapes.get("cells", (0,))[0]
    rows = {"points": points, "cells": 0 if cells == points else cells}
    if axes:
        names = [n for n, s in shapes.items() if len(s) >= axes and n not in _ROLES]
        yield "points", [name for name in names if _is_field(name, arrays[name])]
        return
    for location, count in rows.items():
        names = [
            name
            for name, shape in shapes.items()
            if shape[:1] == (count,) and count and _is_field(name, arrays[name])
        ]
        if names:
            yield location, names


def _is_field(name: str, array: Any) -> bool:
    """Whether an array is of real numbers, and not one that programs make."""
    array = np.asarray(array)
    if not is_real(array.dtype) or name in _ROLES or _MADE.match(name):
        return False
    if array.dtype.kind not in "iu":
        return True
    counted = array.ndim == 1 and array.size > 1 and (np.diff(array) == 1).all()
    return not (counted or _IDS.fullmatch(name))


def _unreadable(arrays: Arrays) -> dict[str, list[str]]:
    """Names of arrays that would be fields but for their shape or type."""
    if isinstance(arrays, MeshArrays) or "times" in arrays:
        return {}
    shapes = {n: np.asarray(arrays[n]) for n in arrays if n not in _ROLES}
    names = [n for n, a in shapes.items() if a.size > 1 and a.dtype.kind in "fcV"]
    names = [name for name in names if not _MADE.match(name)]
    return {"points": names} if names else {}


def _wholes(arrays: Arrays, location: str, fields: list[str]) -> set[str]:
    """Those of the fields that are integers or booleans."""
    data: Arrays = arrays
    if isinstance(arrays, MeshArrays):
        mesh = arrays.mesh
        data = (mesh.cell_data if location == "cells" else mesh.point_data).arrays
    return {name for name in fields if np.asarray(data[name]).dtype.kind in "iub"}


def _grid_axes(arrays: Arrays) -> int:
    """Number of axes of the grid of a file without points."""
    axes = [np.ndim(arrays[name]) for name in arrays if name not in _ROLES]
    return min(2, max(axes, default=0))


def _num_points(arrays: Arrays, built: Built) -> int:
    if isinstance(arrays, MeshArrays):
        return arrays.mesh.num_points
    return built.sample.num_points


def _scalars_of(arrays: Arrays) -> dict[str, float]:
    """Arrays of one number."""
    data: Any = arrays
    others = _ROLES
    if isinstance(arrays, MeshArrays):
        data = arrays.mesh.field_data.arrays
        others = {*_ROLES, *building.TIMES, "CYCLE"}
    scalars: dict[str, float] = {}
    for name in data:
        array = np.asarray(data[name])
        if array.size == 1 and array.dtype.kind in "fiu" and name not in others:
            scalars[name] = float(array.reshape(()))
    return scalars


def _boundaries_of(arrays: Arrays) -> set[str]:
    """Names of the boundaries that a file marks."""
    names = set(arrays)
    if isinstance(arrays, MeshArrays):
        names |= set(arrays.mesh.cell_data.arrays)
    prefix = boundary_sets.PREFIX
    names = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    return names - {"names"}
