"""Figures of the sinusoid program, drawn from arrays and written to a path."""

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opjax.learn.drawing import new_figure, save

_MAX_POINTS = 200  # of a curve; losses are averaged over equal numbers of steps
_Path = str | os.PathLike


def predictions(
    path: _Path,
    *,
    observed: tuple[np.ndarray, np.ndarray],
    truth: tuple[np.ndarray, np.ndarray],
    curves: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    """Draws one task as methods predict it, one row for each stage of training.

    Args:
      path: file to write.
      observed: points and values of the observations.
      truth: sorted points and values of the wave.
      curves: values at the points of `truth` by stage and label of the method.
    """
    labels = list(next(iter(curves.values())))
    rows, columns = len(curves), len(labels)
    figure = new_figure(2.4 * columns + 0.6, 1.9 * rows + 0.8, "constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    limit = 1.8 * np.abs(truth[1]).max()
    for row, (stage, predicted) in zip(grid, curves.items(), strict=True):
        for k, (axis, label) in enumerate(zip(row, labels, strict=True)):
            axis.plot(*truth, ":", color="0.5", linewidth=1.5, label="truth")
            axis.plot(truth[0], predicted[label], color=f"C{k}", linewidth=1.4)
            axis.plot(*observed, "o", color="black", ms=4, label="observations")
            _tidy(axis)
        row[0].set_ylabel(stage)
    for axis, label in zip(grid[0], labels, strict=True):
        axis.set_title(label, fontsize=10)
        axis.set_ylim(-limit, limit)
    for axis in grid[-1]:
        axis.set_xlabel("$x$")
    _legend(figure, grid[0, 0])
    save(figure, path)


def contexts(
    path: _Path, sizes: Sequence[int], errors: Mapping[str, np.ndarray]
) -> None:
    """Draws errors against the number of observations, mean and extremes of the seeds.

    Args:
      path: file to write.
      sizes: numbers of observations.
      errors: mean square errors by label, shape `(seeds, sizes)`.
    """
    figure = new_figure(5.4, 3.8, "constrained")
    axis = figure.subplots()
    for k, (label, values) in enumerate(errors.items()):
        draw: Any = {"color": f"C{k}"}
        axis.plot(sizes, values.mean(0), "o-", ms=4, label=label, **draw)
        axis.fill_between(sizes, values.min(0), values.max(0), alpha=0.2, lw=0, **draw)
    axis.set(yscale="log", xlabel="observations", ylabel="mean square error")
    axis.set_xticks(sizes)
    _tidy(axis)
    _legend(figure, axis)
    save(figure, path)


def losses(path: _Path, histories: Mapping[str, np.ndarray]) -> None:
    """Draws training losses, mean and extremes of the seeds.

    Args:
      path: file to write.
      histories: mean square errors of batches by label, shape `(seeds, steps)`.
    """
    figure = new_figure(5.4, 3.8, "constrained")
    axis = figure.subplots()
    for k, (label, values) in enumerate(histories.items()):
        seeds, count = values.shape
        width = math.ceil(count / _MAX_POINTS)
        count -= count % width
        # The last steps count, so what is too short is left out at the beginning.
        means = values[:, -count:].reshape(seeds, -1, width).mean(axis=2)
        steps = values.shape[1] - count + width * np.arange(1, means.shape[1] + 1)
        draw: Any = {"color": f"C{k}"}
        axis.plot(steps, means.mean(0), linewidth=1.3, label=label, **draw)
        axis.fill_between(steps, means.min(0), means.max(0), alpha=0.2, lw=0, **draw)
    axis.set(yscale="log", xlabel="step", ylabel="mean square error of batches")
    _tidy(axis)
    _legend(figure, axis)
    save(figure, path)


def _tidy(axis: Any) -> None:
    axis.grid(alpha=0.25, which="both", linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _legend(figure: Any, axis: Any) -> None:
    entries = axis.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=3, frameon=False)
