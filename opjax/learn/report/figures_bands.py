"""Figures of a case with its band and its error, to compare the two."""

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from opjax.learn.report import drawing
from opjax.learn.report.drawing import Axes, Colours, Figure, Line
from opjax.samples import Sample


class Pictures:
    """Draws the first cases of a prediction that have targets.

    Attributes:
      folder: for the files.
      most: maximum number of cases.
      drawn: files drawn so far.
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
        self,
        sample: Sample,
        prediction: np.ndarray,
        half_width: np.ndarray,
        channels: Mapping[int, str] | None = None,
    ) -> None:
        """Draws a case, if it has a target and `most` is not reached; see `band`."""
        if sample.target is None or len(self.drawn) >= self.most:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        name = pathlib.Path(sample.name).stem
        path = self.folder / f"band_{len(self.drawn):02d}_{name}.png"
        figure = band(sample, prediction, half_width, channels=channels, title=name)
        drawing.save(figure, path)
        self.drawn.append(path)


def band(
    sample: Sample,
    prediction: np.ndarray,
    half_width: np.ndarray,
    *,
    channels: Mapping[int, str] | None = None,
    title: str = "",
) -> Any:
    """Draws channels of a prediction with band and error, one row per channel.

    In 2D and 3D: prediction, half-width of the band and absolute error side by side,
    the last two with the same colours. In 1D: prediction and target with the band. The
    last panel shows the absolute error against the half-width: points above the line
    lie outside the band.

    Args:
      sample: the case, with its target.
      prediction: `(n, q)`.
      half_width: half-width of the band, `(n, q)`.
      channels: names of the channels to draw, by channel number; the first channel if
        None.
      title: title of the figure.

    Returns:
      The figure.

    Raises:
      ModuleNotFoundError: if matplotlib is missing.
      ValueError: if the case has no target.
    """
    drawing.require_matplotlib()
    if sample.target is None:
        raise ValueError(
            f"{sample.name} has no target, so its error cannot be computed."
        )
    on_a_line = sample.mesh_points.shape[1] == 1
    channels = {0: ""} if channels is None else channels
    columns, rows = 2 if on_a_line else 4, len(channels)
    figure = drawing.new_figure(2.6 * columns, 2.4 * rows, "constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    arrays = prediction, half_width, sample.target
    for line, (channel, name) in zip(axes, channels.items(), strict=True):
        shown = _Channel(name, *(np.asarray(a, float)[:, channel] for a in arrays))
        draw = _draw_line if on_a_line else _draw_images
        draw(figure, line, sample, shown)
        _over_width(line[-1], shown)
    figure.suptitle(title, fontsize=9)
    return figure


class _Channel(NamedTuple):
    """A channel of a prediction, of half the width of its band and of the target."""

    name: str
    values: np.ndarray
    half: np.ndarray
    truth: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Size of the error, `(n,)`."""
        return np.abs(self.values - self.truth)


def _draw_line(_: Any, axes: Any, sample: Sample, shown: _Channel) -> None:
    points, (name, values, half, truth) = sample.mesh_points, shown
    order = np.argsort(points[:, 0])
    ends = (values - half)[order], (values + half)[order]
    axes[0].fill_between(points[order, 0], *ends, alpha=0.3, linewidth=0)
    drawing.curve(axes[0], points, values, Line(label="prediction"))
    drawing.curve(axes[0], points, truth, Line("k", "truth", ":"))
    drawing.legend(axes[0])
    drawing.plain(axes[0])
    axes[0].set_title(name, fontsize=9)


def _draw_images(figure: Figure, axes: Any, sample: Sample, shown: _Channel) -> None:
    largest = max(shown.half.max(), shown.error.max())
    shared = Colours("magma", 0.0, largest)
    panels = [
        (f"prediction {shown.name}".strip(), shown.values, Colours()),
        ("half width of the band", shown.half, shared),
        ("size of the error", shown.error, shared),
    ]
    for place, (words, values, colours) in enumerate(panels):
        axis = axes[place]
        axis.set(xticks=[], yticks=[])
        axis.set_title(words, fontsize=9)
        image = drawing.field(
            axis,
            sample.mesh_points,
            values,
            grid_shape=sample.grid_shape,
            colours=colours,
        )
        if place != 1:  # the error has the same colours
            drawing.add_colorbar(figure, image, axis)


def _over_width(axis: Axes, shown: _Channel) -> None:
    """Draws errors over half widths; those above the line lie outside the band."""
    half, error = shown.half, shown.error
    axis.plot(half, error, ".", markersize=2, rasterized=True)
    end = float(half.max())
    axis.plot([0, end], [0, end], "k-", linewidth=0.7)
    outside = 100 * float(np.mean(error > half))
    axis.set_title(f"{outside:.3g} % of points outside", fontsize=9)
    axis.set_xlabel("half width", fontsize=8)
    axis.set_ylabel("size of the error", fontsize=8)
    axis.tick_params(labelsize=7)
    drawing.plain(axis)
