"""Figures of the ablations: errors of all variants and condition numbers."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.studies import Row, Rows
from opjax.learn.report import drawing, figures_seeds
from opjax.learn.run.metrics_file import read_metrics

Results = Mapping[str, Rows]
_COLUMNS = 3


def errors(studies: Mapping[str, Results], titles: Mapping[str, str]) -> Any:
    """Draws median and range over the seeds of every variant, a panel for a study.

    Args:
      studies: results by study and variant.
      titles: of the panels, by study.
    """
    columns = min(_COLUMNS, len(studies))
    rows = math.ceil(len(studies) / columns)
    most = max(map(len, studies.values()))
    height = rows * (0.2 * most + 0.9)
    figure = drawing.new_figure(3.6 * columns, height, "constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (study, results) in zip(axes, studies.items(), strict=False):
        for place, seeds in enumerate(results.values()):
            values = [100 * row["error"] for row in seeds if "error" in row]
            if values:
                axis.plot([min(values), max(values)], 2 * [place], color="0.6", lw=2)
                axis.plot(values, len(values) * [place], "|", color="0.3", ms=7)
                axis.plot(np.median(values), place, "o", color="C0", ms=5)
        axis.set_yticks(range(len(results)), list(results), fontsize=7)
        axis.set_ylim(len(results) - 0.5, -0.5)
        axis.set_title(titles[study], fontsize=8)
        axis.tick_params(axis="x", labelsize=7)
        axis.locator_params(axis="x", nbins=5)
        drawing.plain(axis)
    for axis in axes[len(studies) :]:
        axis.remove()
    figure.supxlabel("relative L2 error, x 100: median, seeds and range", fontsize=8)
    return figure


def conditions(folders: Mapping[str, Sequence[pathlib.Path]], title: str) -> Any:
    """Draws the condition number over the epochs: median and range over the seeds.

    Args:
      folders: of the members, by variant.
      title: of the figure.

    Returns:
      The figure; None if no member has a condition number.
    """
    histories = {name: list(map(_history, group)) for name, group in folders.items()}
    shown = {
        name: [rows for rows in group if rows]
        for name, group in histories.items()
        if any(group)
    }
    label = f"{title}: mean of layers and heads"
    return figures_seeds.seeds(shown, {"condition": label}) if shown else None


def _history(folder: pathlib.Path) -> list[Row]:
    """The rows of a member with a condition number that is finite."""
    if not (folder / "metrics.jsonl").exists():
        return []
    return [row for row in read_metrics(folder) if row.get("condition")]
