"""Fig. 2 of the paper, drawn from arrays and written to a folder."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.drawing import new_figure, plain, save


def predictions(
    folder: pathlib.Path,
    task: Sequence[np.ndarray],
    curves: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    """Draws a task as models predict it, one row for each stage of training.

    `task` has points and values of the observations and of the wave; `curves` are
    values at the points of the wave by stage and label.
    """
    x, y, points, truth = task
    labels = list(next(iter(curves.values())))
    rows, columns = len(curves), len(labels)
    figure = new_figure(2.4 * columns + 0.6, 1.9 * rows + 0.8, "constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    for row, (stage, predicted) in zip(grid, curves.items(), strict=True):
        for k, (axis, label) in enumerate(zip(row, labels, strict=True)):
            axis.plot(points, truth, ":", color="0.5", lw=1.5, label="truth")
            axis.plot(points, predicted[label], color=f"C{k}", lw=1.4)
            axis.plot(x, y, "o", color="black", ms=4, label="observations")
            axis.label_outer()
            plain(axis)
            axis.set(xlabel="$x$", ylabel=stage if k == 0 else "")
    for axis, label in zip(grid[0], labels, strict=True):
        axis.set_title(label, fontsize=10)
    limit = 1.8 * np.abs(truth).max()
    grid[0, 0].set_ylim(-limit, limit)
    _save(figure, grid[0, 0], folder / "01_predictions.png")


def contexts(
    folder: pathlib.Path, sizes: Sequence[int], errors: Mapping[str, np.ndarray]
) -> None:
    """Draws errors `(seeds, sizes)` by the number of observations and label."""
    figure = new_figure(5.4, 3.8, "constrained")
    axis = figure.subplots()
    for k, (label, values) in enumerate(errors.items()):
        draw: Any = {"color": f"C{k}"}
        axis.plot(sizes, values.mean(0), "o-", ms=4, label=label, **draw)
        axis.fill_between(sizes, values.min(0), values.max(0), alpha=0.2, lw=0, **draw)
    axis.set(yscale="log", xlabel="observations", ylabel="mean square error")
    axis.set_xticks(sizes)
    plain(axis)
    _save(figure, axis, folder / "02_contexts.png")


def _save(figure: Any, axis: Any, path: pathlib.Path) -> None:
    entries = axis.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=3, frameon=False)
    save(figure, path)
