"""Scalars of a case: numbers in its file, or in a table of cases.

A scalar is an array of one number in an `.npz` or `.h5` file, field data with one
number in a VTK file, or a column of `cases.csv` in the folder of the files:

    file,angle,mach,split
    wing_001.vtu,2.5,0.30,train
    wing_002.vtu,4.0,0.35,test

If each case is a folder, one table in the parent folder has a row for each, named in a
column `file`, `folder` or `case`:

    case,angle,mach
    case_000,2.5,0.30
    case_001,4.0,0.35

The optional column `split` assigns samples to `train`, `validation` or `test`, even if
no scalars are requested. A sample in a group of a file is named `file.h5/group`. A
series is a file or a folder of frames; a table of such folders is placed beside them.
"""

import csv
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files.npz import Arrays
from opjax.files.options import Names
from opjax.files.vtk.fields import MeshArrays
from opjax.samples.division import PARTS

TABLE = "cases.csv"
KEYS = ("file", "folder", "case")  # columns that name files; the first one counts
_ABOVE = 4  # folders above that of a file in which a table is looked for
_MAX_BYTES = 2**28


class Row(NamedTuple):
    """The row of a sample in a table of cases.

    Attributes:
      table: path of the table.
      columns: values by column as text; empty if the table has no row for the sample.
    """

    table: Path
    columns: Mapping[str, str]

    @property
    def part(self) -> str:
        """The split of the sample; empty if the table does not define it."""
        return self.columns.get("split", "")


def table_of(file: Path) -> Path | None:
    """The table of a file: in its folder, or in the nearest parent folder."""
    folders = [file.parent, *file.absolute().parent.parents[:_ABOVE]]
    tables = (folder / TABLE for folder in folders)
    return next((table for table in tables if table.is_file()), None)


def names_in(folder: Path) -> frozenset[str]:
    """Names of the rows of the table in a folder; empty without a valid table."""
    try:
        return frozenset(_rows(folder / TABLE))
    except (OSError, ValueError):
        return frozenset()


def row_of(file: Path, group: str, *, named: bool) -> Row | None:
    """Reads the row of a sample in a table; None if there is none.

    For `flow/flow.pvd`, the row in a table of the parent folder is named
    `flow/flow.pvd` or `flow`.

    Args:
      file: file of the sample; for a series, its file or the folder of its frames.
      group: group of the file, if any.
      named: whether scalars are requested, so that every sample needs a row in the
        table beside it. Otherwise only the column `split` is used, and a table without
        it is ignored.

    Raises:
      ValueError: if the table is damaged, has no column for files, or a row names a
        file that does not exist, is listed twice or has an unknown `split`; or if a
        required row is missing.
    """
    path = table_of(file)
    if path is None or not (named or _divides(path, *_stamp(path))):
        return None
    rows = _rows(path)
    keys = _keys_of(path, file, group)
    row = next((rows[key] for key in keys if key in rows), None)
    if row is not None:
        return Row(path, row)
    if not named or path.parent != file.parent:
        return Row(path, {})
    raise ValueError(
        f"{path} has no row for {keys[0]}; add a row with the name {keys[0]!r}."
    )


def _keys_of(table: Path, file: Path, group: str) -> list[str]:
    """What a table may call a sample: its file, or a folder that it is in."""
    if table.parent == file.parent:
        return [f"{file.name}/{group}", file.name] if group else [file.name]
    place = file.absolute().relative_to(table.parent.absolute())
    folders = [folder.as_posix() for folder in place.parents][:-1]
    own = [f"{place.as_posix()}/{group}"] if group else []
    return [*own, place.as_posix(), *folders]


def _stamp(path: Path) -> tuple[int, int]:
    stat = path.stat()
    return stat.st_mtime_ns, stat.st_size


def _rows(path: Path) -> dict[str, dict[str, str]]:
    return _read(path, *_stamp(path))


@functools.lru_cache(maxsize=8)
def _divides(path: Path, changed: int, size: int) -> bool:
    """Whether a table names files, and what they are for."""
    del changed, size
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        names = {name.strip() for name in file.readline(_MAX_BYTES).split(",")}
    return "split" in names and not names.isdisjoint(KEYS)


@functools.lru_cache(maxsize=8)
def _read(path: Path, changed: int, size: int) -> dict[str, dict[str, str]]:
    del changed
    if size > _MAX_BYTES:
        raise ValueError(
            f"{path} has {size} bytes, but a table may have at most {_MAX_BYTES}."
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
        lines = list(csv.reader(text.splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is not a comma-separated table: {error}; save it as CSV in UTF-8."
        ) from error
    names = [name.strip() for name in lines[0]] if lines else []
    key = _check_columns(path, names)
    rows: dict[str, dict[str, str]] = {}
    for number, line in enumerate(lines[1:], 2):
        if not any(value.strip() for value in line):
            continue
        if len(line) != len(names):
            raise ValueError(
                f"{path}: line {number} has {len(line)} values, but there are "
                f"{len(names)} columns."
            )
        row = dict(zip(names, (value.strip() for value in line), strict=True))
        row["file"] = _tidy(row[key])
        _check_row(path, number, row, rows)
        rows[row["file"]] = row
    return rows


def _tidy(name: str) -> str:
    """The name of a file or folder, without what says nothing."""
    return name.replace("\\", "/").removeprefix("./").rstrip("/")


def _check_columns(path: Path, names: list[str]) -> str:
    """Returns the column that names files.

    Raises:
      ValueError: if there is none, or names are missing or repeated.
    """
    if not names:
        raise ValueError(
            f"{path} is empty; its first line must contain the column names, file "
            "and the scalars."
        )
    if unnamed := names.count(""):
        raise ValueError(
            f"{path} has {unnamed} columns without a name in its first line; name them "
            "or remove them."
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(
            f"{path} has the column {twice[0]} {names.count(twice[0])} times; keep one "
            "of them."
        )
    if keys := [name for name in KEYS if name in names]:
        return keys[0]
    note = "; the first line names the columns, and one of them is file"
    for mark, word in ((";", "semicolons"), ("\t", "tabs")):
        if any(mark in name for name in names):
            note = f", with {word} between them; save it with commas, and numbers "
            note += "with decimal points"
    raise ValueError(f"{path} has no column 'file', only {names}{note}.")


def _check_row(
    path: Path, number: int, row: Mapping[str, str], rows: Mapping[str, object]
) -> None:
    key = row["file"]
    if not key:
        raise ValueError(f"{path}: line {number} has no file name; add one.")
    if key in rows:
        raise ValueError(f"{path}: line {number} lists {key} again; keep one of them.")
    file = path.parent / key
    if not file.exists() and not file.parent.is_file():
        raise ValueError(
            f"{path}: line {number} names {key}, which does not exist in "
            f"{path.parent}; correct the name or remove the line."
        )
    if row.get("split", "train") not in PARTS:
        raise ValueError(
            f"{path}: line {number} has split={row['split']!r}, expected one of "
            f"{', '.join(PARTS)}."
        )


def read(
    name: str,
    arrays: Arrays,
    row: Row | None,
    names: Names,
    *,
    needed: bool = True,
) -> np.ndarray | None:
    """Returns scalars of a sample, float64 of shape `(s,)`.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of its file.
      row: its row in the table, if there is one.
      names: names of the scalars.
      needed: whether a missing scalar is an error.

    Returns:
      The scalars in this order; None if there are none, or if an optional one is
      missing.

    Raises:
      ValueError: if a scalar is missing, defined twice, not a number, not finite, or
        has several values.
    """
    scalars: list[float] = []
    columns = {} if row is None else row.columns
    data = arrays.mesh.field_data.arrays if isinstance(arrays, MeshArrays) else {}
    for key in names:
        column = columns.get(key)
        array = arrays[key] if key in arrays else data.get(key)
        if column is not None and array is not None and np.size(array) > 1:
            array = None  # a field of the same name, such as the velocity U
        if row is not None and column is not None:
            if array is not None:
                raise ValueError(
                    f"{name}: the scalar {key} is in the file and in {row.table}; keep "
                    "one."
                )
            place = f"column {key} of {row.table}"
            scalars.append(_number(name, key, place, column))
        elif array is not None:
            scalars.append(_number(name, key, "the array", array))
        elif needed:
            raise _missing(name, key, [*arrays, *data], row)
        else:
            return None
    return np.asarray(scalars, np.float64) if scalars else None


def named(names: Names, values: np.ndarray) -> dict[str, float]:
    """Returns numbers of a case by name."""
    return dict(zip(names, values.tolist(), strict=True))


def _number(name: str, key: str, place: str, value: np.ndarray | str) -> float:
    if isinstance(value, str):
        try:
            number = float(value)
        except ValueError:
            raise ValueError(
                f"{name}: the scalar {key} is {value!r} in {place}, which is not a "
                "number."
            ) from None
    else:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(
                f"{name}: the scalar {key} has dtype {array.dtype}, not a real number."
            )
        if array.size != 1:
            raise ValueError(
                f"{name}: the scalar {key} has shape {array.shape}, expected one "
                "number for the whole sample; pass values at the points as fields, "
                "by --feature_names or --target_names."
            )
        number = float(array.reshape(()))
    with np.errstate(over="ignore"):
        if not np.isfinite(np.float32(number)):
            raise ValueError(
                f"{name}: the scalar {key} is {number}, which is not finite in single "
                "precision; correct it or remove the sample."
            )
    return number


def _missing(name: str, key: str, arrays: list[str], row: Row | None) -> ValueError:
    """The error for a scalar that is neither in the file nor in a table."""
    place = f"there is no {TABLE} in its folder or a parent folder"
    if row is not None:
        place = f"{row.table} has no column for it"
        if not row.columns:
            inside = Path(name).absolute().relative_to(row.table.parent.absolute())
            place = f"{row.table} has no row for {inside.parts[0]}"
    return ValueError(
        f"{name} has no scalar {key!r}, only the arrays {sorted({*arrays})}, and "
        f"{place}; add it to the file, or to {TABLE}."
    )
