"""A case with its band and its error: is the band wide where the error is?"""

import pathlib
from typing import Any

import numpy as np

from opjax.learn.report import drawing
from opjax.samples import Sample


class Pictures:
    """Draws the first cases of a prediction that have targets.

    Attributes:
      folder: for the files.
      most: number of cases.
      drawn: files so far.
    """

    def __init__(self, folder: pathlib.Path, most: int) -> None:
        """Draws nothing yet.

        Raises:
          ModuleNotFoundError: if matplotlib is missing.
        """
        drawing.require_matplotlib()
        self.folder, self.most = folder, most
        self.drawn: list[pathlib.Path] = []

    def add(
        self, sample: Sample, prediction: np.ndarray, half_width: np.ndarray
    ) -> None:
        """Draws a case, unless it has no target or enough are drawn; see `band`."""
        if sample.target is None or len(self.drawn) >= self.most:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        name = pathlib.Path(sample.name).stem
        path = self.folder / f"band_{len(self.drawn):02d}_{name}.png"
        drawing.save(band(sample, prediction, half_width, title=name), path)
        self.drawn.append(path)


def band(
    sample: Sample,
    prediction: np.ndarray,
    half_width: np.ndarray,
    *,
    title: str = "",
) -> Any:
    """Draws the first channel of a prediction, of its band and of its error.

    In a plane or in space: prediction, half the width of the band and size of the error
    side by side, the last two in the same colours. On a line: prediction and target in
    the band. Beside them, the size of the error over half the width: a point above the
    line lies outside the band.

    Args:
      sample: the case, with its target.
      prediction: `(n, q)`.
      half_width: half the width of the band, `(n, q)`.
      title: of the figure.

    Returns:
      The figure.

    Raises:
      ModuleNotFoundError: if matplotlib is missing.
      ValueError: if the case has no target.
    """
    drawing.require_matplotlib()
    if sample.target is None:
        raise ValueError(f"{sample.name} has no target; its error is not known.")
    values, half, truth = (
        np.asarray(array, float)[:, 0]
        for array in (prediction, half_width, sample.target)
    )
    error = np.abs(values - truth)
    points, on_a_line = sample.mesh_points, sample.mesh_points.shape[1] == 1
    count = 2 if on_a_line else 4
    figure = drawing.new_figure(2.6 * count, 2.4, "constrained")
    axes = figure.subplots(1, count)
    if on_a_line:
        order = np.argsort(points[:, 0])
        ends = (values - half)[order], (values + half)[order]
        axes[0].fill_between(points[order, 0], *ends, alpha=0.3, linewidth=0)
        drawing.curve(axes[0], points, values, label="prediction")
        drawing.curve(axes[0], points, truth, label="truth", color="k", linestyle=":")
        drawing.legend(axes[0])
        drawing.plain(axes[0])
    else:
        shared = {"vmin": 0.0, "vmax": max(half.max(), error.max()), "cmap": "magma"}
        panels = [("prediction", values, {}), ("half width of the band", half, shared)]
        panels.append(("size of the error", error, shared))
        for axis, (name, shown, colours) in zip(axes, panels, strict=False):
            axis.set(xticks=[], yticks=[])
            axis.set_title(name, fontsize=9)
            shape = sample.grid_shape
            image = drawing.field(axis, points, shown, grid_shape=shape, **colours)
            if name != panels[1][0]:  # the error has the same colours
                drawing.add_colorbar(figure, image, axis)
    _over_width(axes[-1], half, error)
    figure.suptitle(title, fontsize=9)
    return figure


def _over_width(axis: Any, half: np.ndarray, error: np.ndarray) -> None:
    """Draws errors over half widths; those above the line lie outside the band."""
    axis.plot(half, error, ".", markersize=2, rasterized=True)
    end = float(half.max())
    axis.plot([0, end], [0, end], "k-", linewidth=0.7)
    outside = 100 * float(np.mean(error > half))
    axis.set_title(f"{outside:.3g} % of points outside", fontsize=9)
    axis.set_xlabel("half width", fontsize=8)
    axis.set_ylabel("size of the error", fontsize=8)
    axis.tick_params(labelsize=7)
    drawing.plain(axis)
