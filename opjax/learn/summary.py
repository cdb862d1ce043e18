"""What a finished study says: tables, members and the last line."""

import math
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

from opjax.learn import members
from opjax.learn.folder import write_json, write_text
from opjax.learn.provenance import provenance

# Numbers of a member that are not results.
_NOT_SHOWN = ("best_epoch", "parameters")


class Finished(NamedTuple):
    """A finished study, for its report.

    Attributes:
      config: of the study.
      folder: of the run, with a folder for every member.
      results: by name, in the order of the seeds, what `train` returned.
      source: where the samples come from.
      notes: of the task.
      num_train: training samples.
      num_test: test samples.
      seconds: wall time of this process.
      data_seconds: of that, for making or reading samples.
    """

    config: Any
    folder: pathlib.Path
    results: dict[str, list[dict[str, Any]]]
    source: str
    notes: str
    num_train: int
    num_test: int
    seconds: float
    data_seconds: float


class Report(NamedTuple):
    """What a program adds to the standard report.

    Attributes:
      text: Markdown in place of the standard table; None to keep it.
      result: keys of the last line, added or replaced.
      head: paragraph in place of the standard one under the title.
      alone: whether the last line has the keys of `result` only.
    """

    text: str | None = None
    result: dict[str, Any] = {}  # noqa: RUF012 - never changed
    head: str = ""
    alone: bool = False


def write_report(
    finished: Finished, title: str, report: Callable[[Finished], Report] | None
) -> dict[str, Any]:
    """Writes `tables.md` and `members.json`; returns the result of the study.

    Args:
      finished: the study.
      title: of the tables.
      report: what the program adds; None for nothing.
    """
    folder, config, results = finished.folder, finished.config, finished.results
    write_json(folder / "members.json", results)
    added = Report() if report is None else report(finished)
    shown = plain(results)
    text = added.text
    if text is None:
        text = members.comparison(
            results, {key: (key.replace("_", " "), 1.0) for key in shown}
        )
    parts = [
        f"# {title}\n",
        (added.head or _head(finished)).rstrip() + "\n",
        provenance(folder, seconds=finished.seconds),
        text,
    ]
    write_text(folder / "tables.md", "\n".join(parts))
    first, summary = next(iter(results)), members.summary(results, shown)
    standard = {
        **{key: summary[f"{key}_{first}"] for key in shown if key != "seconds"},
        **summary,
        **{f"parameters_{n}": rows[0]["parameters"] for n, rows in results.items()},
        "parameters": results[first][0]["parameters"],
        "seconds": math.fsum(
            row.get("seconds", 0.0) for rows in results.values() for row in rows
        ),
        "data_seconds": finished.data_seconds,
        "preset": config.preset,
        "models": list(results),
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return dict(added.result) if added.alone else {**standard, **added.result}


def plain(results: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Returns the keys of the members' numbers, in order."""
    rows = [row for group in results.values() for row in group]
    kept = [row for row in rows if "diverged" not in row] or rows
    return [
        key
        for key, value in kept[0].items()
        if isinstance(value, (int, float)) and key not in _NOT_SHOWN
    ]


def _head(finished: Finished) -> str:
    config = finished.config
    length = f"{finished.num_train} training and {finished.num_test} test samples, "
    if hasattr(config, "num_epochs"):
        length += f"{config.num_epochs} epochs"
        length += ", of which the last counts" * (
            not getattr(config, "num_validation", 1)
        )
    else:
        length = f"{config.num_steps} steps of {config.batch_size} fresh samples"
    return (
        f"{length}; mean ± standard deviation over the seeds "
        f"{','.join(map(str, config.seeds))}. Data: {finished.source}. {finished.notes}"
    )
