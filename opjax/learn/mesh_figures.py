"""Truth, prediction and error of a few samples on their meshes."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from opjax.datasets.samples import Sample
from opjax.learn import figures

NUM_SHOWN = 2  # samples in `predictions.npz` and in the figure


def draw(
    test: Sequence[Sample],
    folder: pathlib.Path,
    names: Sequence[str],
    *,
    window: tuple[float, float, float, float] | None = None,
) -> None:
    """Draws `fields.png`: the truth, and prediction and error of every model.

    Args:
      test: test samples.
      folder: of the run, with a folder `<name>-<seed>` and `predictions.npz` for every
        member; the first seed is shown.
      names: of the models.
      window: left, right, bottom and top of what is shown; None for all.
    """
    count = min(NUM_SHOWN, len(test))
    columns = 1 + 2 * len(names)
    figure = figures.new_figure(3.2 * columns, 2.8 * count)
    axes = figure.subplots(count, columns, squeeze=False)
    for column, name in enumerate(names):
        member = sorted(folder.glob(f"{name}-[0-9]*"))[0]
        with np.load(member / "predictions.npz") as predictions:
            for row in range(count):
                pair = axes[row, 1 + 2 * column : 3 + 2 * column]
                _pair(figure, pair, test[row], predictions[str(row)], name)
    for row in range(count):
        truth = _target(test[row])
        show(figure, axes[row, 0], test[row], truth, "truth")
    if window is not None:
        for axis in axes.flat:
            axis.set(xlim=window[:2], ylim=window[2:])
    figures.save(figure, folder / "fields.png")


def _pair(
    figure: Any, axes: Any, sample: Sample, predicted: np.ndarray, name: str
) -> None:
    truth = _target(sample)
    limits = {"vmin": truth.min(), "vmax": truth.max()}
    show(figure, axes[0], sample, predicted[:, 0], name, **limits)
    error = predicted[:, 0] - truth
    largest = float(np.abs(error).max()) or 1.0
    limits = {"vmin": -largest, "vmax": largest, "cmap": "RdBu_r"}
    show(figure, axes[1], sample, error, f"{name}: error", **limits)


def show(
    figure: Any,
    axis: Any,
    sample: Sample,
    values: np.ndarray,
    title: str,
    **colours: Any,
) -> None:
    """Draws a field on a mesh in one or two dimensions, or its projection on a plane.

    Args:
      figure: of the axis.
      axis: where to draw.
      sample: the mesh.
      values: the field, shape `(n,)`.
      title: of the axis.
      **colours: for matplotlib.
    """
    points = sample.mesh_points
    axis.set_title(title)
    if points.shape[1] == 1:
        order = np.argsort(points[:, 0])
        axis.plot(points[order, 0], values[order])
        return
    x, y = points[:, 0], points[:, 1]
    if sample.grid_shape is not None and len(sample.grid_shape) == 2:
        x, y, field = (v.reshape(sample.grid_shape) for v in (x, y, values))
        image = axis.pcolormesh(x, y, field, shading="gouraud", **colours)
    else:
        size = float(np.clip(4e3 / len(x), 0.5, 12.0))
        image = axis.scatter(x, y, c=values, s=size, linewidths=0, **colours)
    axis.set_aspect("equal")
    figures.add_colorbar(figure, image, axis)


def _target(sample: Sample) -> np.ndarray:
    assert sample.target is not None
    return sample.target[:, 0]
