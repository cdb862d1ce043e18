"""Figures of the ablations: errors of all variants and condition numbers."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.report import drawing
from opjax.learn.run.metrics_file import read_metrics

Results = Mapping[str, Sequence[Mapping[str, Any]]]
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
    histories = {name: map(_history, group) for name, group in folders.items()}
    found = {name: [one for one in group if one] for name, group in histories.items()}
    shown = {name: group for name, group in found.items() if group}
    if not shown:
        return None
    figure = drawing.new_figure(5.2, 3.4, "constrained")
    axis = figure.subplots()
    for number, (name, group) in enumerate(shown.items()):
        epochs = sorted(set.intersection(*map(set, group)))
        values = np.array([[one[epoch] for epoch in epochs] for one in group])
        color = f"C{number % 10}"
        median = np.median(values, axis=0)
        axis.plot(epochs, median, ".-", label=name, lw=1.3, color=color)
        if len(group) > 1:
            low, high = values.min(axis=0), values.max(axis=0)
            axis.fill_between(epochs, low, high, alpha=0.2, lw=0, color=color)
    axis.set_yscale("log")
    axis.locator_params(axis="x", integer=True)
    axis.set(xlabel="epoch", ylabel="condition number")
    axis.set_title(f"{title}: mean of layers and heads", fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    drawing.plain(axis)
    return figure


def _history(folder: pathlib.Path) -> dict[int, float]:
    """Condition numbers by epoch, where they are finite."""
    if not (folder / "metrics.jsonl").exists():
        return {}
    rows = read_metrics(folder)
    return {row["epoch"]: row["condition"] for row in rows if row.get("condition")}
