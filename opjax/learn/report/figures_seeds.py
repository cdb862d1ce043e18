"""Figures of convergence over several seeds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.report import drawing
from opjax.learn.report.drawing import Axes, Line

_TITLES = {"train_loss": "training loss, mean", "validation": "validation"}


def seeds(
    histories: Mapping[str, Sequence[Sequence[dict[str, Any]]]],
    titles: Mapping[str, str] = _TITLES,
) -> Any:
    """Draws the median and the range over the seeds, one colour per model.

    Args:
      histories: for each model, the rows of `metrics.jsonl` of each seed.
      titles: titles of the panels, by column of the rows.
    """
    shared = {key for group in histories.values() for key in _shared(group)}
    columns = [name for name in titles if name in shared]
    figure = drawing.new_figure(4.6 * len(columns), 3.4, "constrained")
    axes = figure.subplots(1, len(columns), squeeze=False)[0]
    for axis, column in zip(axes, columns, strict=True):
        lowest = np.inf
        for number, (name, group) in enumerate(histories.items()):
            if column in _shared(group):
                epochs, values = _curves(group, column)
                label = f"{name}, {len(group)} seeds" if len(group) > 1 else name
                line = Line(f"C{number % 10}", label, width=1.4)
                _band(axis, epochs, values, line)
                lowest = min(lowest, values.min())
        if lowest > 0:
            axis.set_yscale("log")
        drawing.plain(axis)
        axis.set_title(f"{titles[column]}: median and range", fontsize=10)
        axis.set_xlabel("epoch")
        axis.locator_params(axis="x", integer=True)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _shared(group: Sequence[Sequence[dict[str, Any]]]) -> set[str]:
    """The columns that all seeds have a number of somewhere."""
    columns = [
        {key for row in rows for key in row if row[key] is not None} for rows in group
    ]
    return set.intersection(*columns)


def _curves(
    group: Sequence[Sequence[dict[str, Any]]], column: str
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs `(e,)` that all seeds have, and their values `(seeds, e)`."""
    curves = [
        {
            row.get("epoch", row.get("step")): row[column]
            for row in rows
            if column in row
        }
        for rows in group
    ]
    shared = sorted(set.intersection(*({*curve} for curve in curves)))
    values = [[curve[epoch] for epoch in shared] for curve in curves]
    return np.asarray(shared), np.asarray(values, np.float64)


def _band(axis: Axes, epochs: np.ndarray, values: np.ndarray, line: Line) -> None:
    marker = "." if len(epochs) < 20 else ""
    line.draw(axis, epochs, np.median(values, axis=0), marker)
    low, high = values.min(axis=0), values.max(axis=0)
    axis.fill_between(epochs, low, high, color=line.color, alpha=0.2, linewidth=0)
