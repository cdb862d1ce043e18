"""Scalars of predicted cases: report entries and a table.

`scalars.csv` contains one row per case, with the columns

    file                name of the case, as in `report.json`
    NAME                every scalar that is given, and every one that is predicted
    NAME_lower, NAME_upper
                        ends of the interval, of a calibrated operator
    NAME_true           where the case has it
    outside_training    names of the given scalars outside the range of training
    unlike              whether the case is unlike the calibration cases, of a
                        calibrated operator
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax._trees import Json
from opjax.learn.json_files import to_json
from opjax.learn.named_types import Row
from opjax.learn.predict import intervals
from opjax.learn.tables import write_csv
from opjax.samples import Sample, ranges

FILE = "scalars.csv"
# What `row_of` adds to a row.
ROW = ("scalars", "predicted_scalars", "target_scalars", "scalar_errors")
# Columns of the table, by the name in a row and what is added to the scalar's.
_COLUMNS = {
    "scalars": "",
    "predicted_scalars": "",
    "scalars_lower": "_lower",
    "scalars_upper": "_upper",
    "target_scalars": "_true",
}


def row_of(
    names: Mapping[str, Sequence[str]], sample: Sample, predicted: np.ndarray | None
) -> Row:
    """Returns the report entries of the scalars of a sample, by name.

    Args:
      names: names of the operator's scalars and target scalars.
      sample: the case, with true scalars if they are known.
      predicted: predicted scalars, `(t,)`; None if the operator predicts none.

    Raises:
      ValueError: if a predicted scalar is not finite.
    """
    targets = names.get("target_scalars") or []
    row: Row = {}
    if sample.scalars is not None:
        listed = names.get("scalars")
        listed = listed or [f"scalars_{i}" for i in range(len(sample.scalars))]
        row["scalars"] = dict(zip(listed, map(float, sample.scalars), strict=True))
    if predicted is None:
        return to_json(row)
    if not np.isfinite(predicted).all():
        raise ValueError(
            f"The predicted scalars of {sample.name} are not finite; its inputs are "
            "too far from the training data."
        )
    row["predicted_scalars"] = intervals.named(targets, predicted)
    if sample.target_scalars is not None:
        truth, error = sample.target_scalars, predicted - sample.target_scalars
        row["target_scalars"] = intervals.named(targets, truth)
        row["scalar_errors"] = intervals.named(targets, error)
    return to_json(row)


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes the table of the cases of a report; no table if there are no scalars.

    Args:
      path: path of the table.
      rows: rows of the report, with the entries of `row_of` and the interval bounds.

    Raises:
      OSError: if it cannot be written.
    """
    lines = [
        {
            f"{name}{end}": value
            for key, end in _COLUMNS.items()
            for name, value in (row.get(key) or {}).items()
        }
        for row in rows
    ]
    if not any(lines):
        return
    warnings = [warnings_of(row) for row in rows]
    columns = list(dict.fromkeys(name for line in lines + warnings for name in line))
    parts = zip(rows, lines, warnings, strict=True)
    table = [{"file": row["name"], **line, **words} for row, line, words in parts]
    write_csv(path, table, ["file", *columns])


def warnings_of(row: Json) -> Row:
    """Returns the columns that say what is unusual about the case of a row."""
    numbers: Row = {}
    if ranges.BEYOND in row:
        numbers["outside_training"] = " ".join(row[ranges.BEYOND])
    if "unlike" in row:
        numbers["unlike"] = row["unlike"]
    return numbers


def known(rows: Sequence[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Returns predicted and true scalars of the cases with both, `(b, t)` each."""
    both = [row for row in rows if "target_scalars" in row]
    guess, true = (
        np.asarray([list(row[key].values()) for row in both], np.float64)
        for key in ("predicted_scalars", "target_scalars")
    )
    return guess, true
