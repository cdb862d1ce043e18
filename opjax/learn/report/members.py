"""Results of several models and seeds: medians, tables and the last line."""

import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax._trees import Json
from opjax.learn.baselines.fitted import NAMES
from opjax.learn.json_files import write_json, write_text
from opjax.learn.named_types import Row
from opjax.learn.run.folder import provenance
from opjax.learn.tables import median_and_range, table
from opjax.learn.tasks.compared import Compared

# Rows of the members of a study, one for each seed, by name.
Results = Mapping[str, Sequence[Json]]
# Numbers of a member that are not results.
_NOT_SHOWN = ("best_epoch", "parameters", "trained_parameters")


class Finished(NamedTuple):
    """A finished study, for its report.

    Attributes:
      config: configuration of the study.
      folder: folder of the run, with one subfolder per member.
      results: results of `train` by name, in the order of the seeds.
      source: origin of the samples.
      notes: notes of the task.
      num_train: number of training samples.
      num_test: number of test samples.
      seconds: wall time of this process.
      data_seconds: part of `seconds` spent on generating or reading samples.
      fields: keys of the fields that have separate numbers.
      baselines: baselines of the task.

    Examples:
      >>> from opjax import learn
      >>> def report(finished: learn.Finished) -> learn.Report:
      ...     errors = [row["relative_l2"] for row in finished.results["functional"]]
      ...     return learn.Report(result={"smallest_error": min(errors)})
      >>> presets = learn.quick(learn.FieldOptions())
      >>> program = learn.Program("sines", presets, report=report)
      >>> program.report is report
      True
    """

    config: Any
    folder: pathlib.Path
    results: dict[str, list[Row]]
    source: str
    notes: str
    num_train: int
    num_test: int
    seconds: float
    data_seconds: float
    fields: tuple[str, ...] = ()
    baselines: Callable[[], Compared] | None = None


class Report(NamedTuple):
    """Additions of a program to the standard report.

    Attributes:
      text: Markdown that replaces the standard table; None keeps the table.
      result: entries of the last line, added or replaced.
      head: paragraph that replaces the standard one under the title.
      alone: whether the last line contains only the entries of `result`.

    Examples:
      >>> from opjax import learn
      >>> report = learn.Report(head="Errors of three seeds.", result={"error": 0.01})
      >>> report.alone  # beside the standard result
      False
    """

    text: str | None = None
    result: Row = {}  # noqa: RUF012 - never changed
    head: str = ""
    alone: bool = False


def write_report(
    finished: Finished, title: str, report: Callable[[Finished], Report] | None
) -> Row:
    """Writes `members.json` and `tables.md`; returns the result of the study."""
    results, config = finished.results, finished.config
    write_json(finished.folder / "members.json", results)
    added = Report() if report is None else report(finished)
    shown, text = _numbers(results), added.text
    medians, beside = summary(results, shown), Row()
    if text is None:
        compared = finished.baselines() if finished.baselines else None
        text = _standard(finished, shown, compared)
        if compared is not None:
            beside = _beside(finished, compared, medians)
            text += beside.pop("text")
    head = added.head or _head(finished)
    write_tables(finished.folder, title, head, text, finished.seconds)
    if added.alone:
        return dict(added.result)
    first = next(iter(results))
    return {
        **{key: medians[f"{key}_{first}"] for key in shown if key != "seconds"},
        **medians,
        **{f"parameters_{n}": rows[0]["parameters"] for n, rows in results.items()},
        **_counts(results[first][0]),
        "seconds": math.fsum(
            row.get("seconds", 0.0) for rows in results.values() for row in rows
        ),
        "data_seconds": finished.data_seconds,
        "preset": config.preset,
        "models": list(results),
        "seeds": list(config.seeds),
        "data": finished.source,
        **beside,
        **added.result,
    }


def _counts(row: Json) -> dict[str, int]:
    """The numbers of parameters of a member."""
    names = ("parameters", "trained_parameters")
    return {name: row[name] for name in names if name in row}


def _standard(
    finished: Finished, shown: Sequence[str], compared: Compared | None
) -> str:
    """The tables of models, and below them of baselines."""
    results, fields = finished.results, finished.fields
    beside = {} if compared is None else compared.numbers
    apart = [key for field in fields for key in _of_field(shown, field).values()]
    whole = [key for key in shown if key not in apart]
    columns = {key: (key.replace("_", " "), 1.0) for key in whole}
    return comparison(results, columns, beside) + _fields(
        results, shown, fields, beside
    )


def _beside(finished: Finished, compared: Compared, medians: Json) -> Row:
    """What the page and the last line say of baselines; saves them with the run."""
    if compared.fitted is not None:
        compared.fitted.save(finished.folder)
    models = {
        name: {
            key.removesuffix(f"_{name}"): value
            for key, value in medians.items()
            if key.endswith(f"_{name}")
        }
        for name in finished.results
    }
    return {
        "text": compared.sentences(models),
        "baselines": compared.numbers,
        "baseline_wins": compared.wins(models),
    }


def _of_field(shown: Sequence[str], field: str) -> dict[str, str]:
    """Keys of the numbers of a field, by what they are numbers of."""
    ends = {key: key.removesuffix(f"_{field}") for key in shown}
    return {name: key for key, name in ends.items() if name != key and name in shown}


def _fields(
    results: Results,
    shown: Sequence[str],
    fields: Sequence[str],
    beside: Mapping[str, Mapping[str, float]],
) -> str:
    """Returns a table with a line for each field of each model; empty without."""
    if not fields:
        return ""
    each = {field: _of_field(shown, field) for field in fields}
    names = list(dict.fromkeys(name for keys in each.values() for name in keys))
    lines: list[list[str]] = []
    kept = {model: _without_diverged(rows) for model, rows in results.items()}
    kept |= {NAMES[baseline]: [numbers] for baseline, numbers in beside.items()}
    for label, rows in kept.items():
        for field, keys in each.items():
            cells = [_cell(rows, keys.get(name, ""), 1.0) for name in names]
            lines.append([label, field, *cells])
    headings = [name.replace("_", " ") for name in names]
    return f"\nEach field:\n\n{table(['model', 'field', *headings], lines)}"


def write_tables(
    folder: pathlib.Path, title: str, head: str, text: str, seconds: float
) -> None:
    """Writes `tables.md`, with the provenance of the numbers below the title."""
    parts = [f"# {title}\n", head.rstrip() + "\n"]
    parts += [provenance(folder, seconds=seconds), text]
    write_text(folder / "tables.md", "\n".join(parts))


def _numbers(results: Results) -> list[str]:
    """The keys of the members' numbers, in order."""
    rows = [row for group in results.values() for row in group]
    kept = _without_diverged(rows) or rows
    return [
        key
        for key, value in kept[0].items()
        if isinstance(value, (int, float)) and key not in _NOT_SHOWN
    ]


def _head(finished: Finished) -> str:
    config = finished.config
    length = f"{finished.num_train} training and {finished.num_test} test samples, "
    if hasattr(config, "num_epochs"):
        steps = getattr(config, "num_steps", 0)
        length += f"{steps} steps" if steps else f"{config.num_epochs} epochs"
        rows = [row for group in finished.results.values() for row in group]
        validated = any("validation" in row for row in rows)
        if not (validated or getattr(config, "num_validation", 1)):
            length += ", of which the last counts"
    else:
        length = f"{config.num_steps} steps of {config.batch_size} fresh samples"
    seeds = f"seed {config.seeds[0]}"
    if len(config.seeds) > 1:
        seeds = ",".join(map(str, config.seeds))
        seeds = f"median [smallest, largest] over the seeds {seeds}"
    return f"{length}; {seeds}. Data: {finished.source}. {finished.notes}"


def summary(results: Results, columns: Sequence[str]) -> Row:
    """Returns `<column>_<name>`, medians over the seeds, and their `..._range`.

    A range is minimum and maximum. If one value is None (NaN in JSON), or missing
    because the model diverged, all results are NaN.
    """
    medians: Row = {}
    for name, rows in results.items():
        for column in columns:
            if all(column not in row and "diverged" not in row for row in rows):
                continue
            values = np.array([row.get(column) for row in rows], np.float64)
            medians[f"{column}_{name}"] = float(np.median(values))
            if len(values) > 1:
                extremes = float(values.min()), float(values.max())
                medians[f"{column}_{name}_range"] = list(extremes)
    return medians


def comparison(
    results: Results,
    columns: Mapping[str, tuple[str, float]],
    beside: Mapping[str, Mapping[str, float]] | None = None,
) -> str:
    """Returns a Markdown table of medians and ranges over the seeds.

    `columns` contains heading and factor of every key to show. Rows with the key
    "diverged" are only counted. The numbers beside the models are those of the
    baselines.
    """
    lines = []
    for name, rows in results.items():
        kept = _without_diverged(rows)
        lost, seeds = len(rows) - len(kept), str(len(rows))
        cells = [_cell(kept, key, scale) for key, (_, scale) in columns.items()]
        if lost:
            seeds += f", {lost} diverged"
        if not kept and cells:
            cells[0] = "diverged"
        parameters = max(row["parameters"] for row in rows)
        lines.append([name, f"{parameters:,}" if parameters else "–", seeds, *cells])
    for baseline, numbers in (beside or {}).items():
        cells = [_cell([numbers], key, scale) for key, (_, scale) in columns.items()]
        lines.append([NAMES[baseline], "–", "–", *cells])
    headings = [heading for heading, _ in columns.values()]
    return table(["model", "parameters", "seeds", *headings], lines)


def _without_diverged(rows: Sequence[Json]) -> list[Json]:
    return [row for row in rows if "diverged" not in row]


def _cell(rows: Sequence[Json], key: str, scale: float) -> str:
    numbers = [row[key] for row in rows if key in row]
    values = np.array(numbers, np.float64)  # None becomes NaN
    if not values.size:
        return "–"
    return median_and_range(values, scale) if np.isfinite(values).all() else "∞"
