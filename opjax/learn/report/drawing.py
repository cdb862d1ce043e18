"""Drawing functions for all figures, which do not change matplotlib's global state."""

import importlib.util
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from opjax.files.formats import OnePath
from opjax.learn.json_files import replacing

# Of matplotlib, which is imported where something is drawn.
Axes = Any
Figure = Any


class Line(NamedTuple):
    """Style of a line; matplotlib chooses what is None.

    Attributes:
      color: matplotlib colour.
      label: name in the legend.
      dash: matplotlib line style.
      width: line width in points.
    """

    color: str | None = None
    label: str | None = None
    dash: Any = "-"
    width: float = 1.2

    def draw(self, axis: Axes, x: Any, y: Any, marker: str = "") -> None:
        """Draws values `y` against `x`."""
        axis.plot(
            x,
            y,
            color=self.color,
            label=self.label,
            linestyle=self.dash,
            linewidth=self.width,
            marker=marker,
        )

    def draw_range(
        self,
        axis: Axes,
        x: Sequence[float],
        values: Sequence[Sequence[float] | np.ndarray],
        marker: str = "",
    ) -> None:
        """Draws medians of `values`, one list for each `x`, and shades their range."""
        self.draw(axis, x, [np.median(v) for v in values], marker)
        low, high = ([f(v) for v in values] for f in (np.min, np.max))
        axis.fill_between(x, low, high, alpha=0.15, lw=0, color=self.color)


class Colours(NamedTuple):
    """A colour map and its limits; by default the limits of the drawn data."""

    cmap: str | None = None
    low: float | None = None
    high: float | None = None

    def image(self, axis: Axes, values: np.ndarray) -> Any:
        """Draws a matrix as an image and returns the image."""
        return axis.imshow(
            values,
            interpolation="nearest",
            cmap=self.cmap,
            vmin=self.low,
            vmax=self.high,
        )


PLAIN = Line()
OF_VALUES = Colours()


def require_matplotlib() -> None:
    """Raises ModuleNotFoundError, naming the extra, if matplotlib is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ModuleNotFoundError(
            "Figures need matplotlib: pip install 'opjax[learn]'."
        )


def new_figure(width: float, height: float, layout: Any = "compressed") -> Any:
    """Returns an empty figure, size in inches, independent of matplotlib's state."""
    from matplotlib import figure

    return figure.Figure(figsize=(width, height), layout=layout)


def save(figure: Figure, path: OnePath, *, dpi: int = 100) -> None:
    """Writes the file atomically, without metadata that varies between runs."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})


def save_lines(
    figure: Figure, path: OnePath, *, dpi: int = 100, colours: int = 256
) -> None:
    """Writes a drawing of lines in a few colours, a third of the bytes of `save`."""
    from PIL import Image

    save(figure, path, dpi=dpi)
    with Image.open(path) as picture:
        few = picture.convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    with replacing(path) as temporary:
        few.save(temporary, format="png", optimize=True)


def add_colorbar(figure: Figure, image: Any, axes: Any) -> None:
    """Draws the colour bar of an image beside its axes."""
    bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=15)
    bar.formatter.set_powerlimits((-3, 4))


def plain(axis: Axes) -> None:
    """Formats an axis for curves: light grid, no top and right frame."""
    axis.grid(alpha=0.25, which="both", linewidth=0.5)
    axis.spines[["top", "right"]].set_visible(False)


def legend(axis: Axes) -> None:
    """Adds a legend, beside the axis if there are many curves."""
    many = len(axis.get_legend_handles_labels()[1]) > 5
    axis.legend(
        frameon=False,
        fontsize=8,
        loc="upper left" if many else None,
        bbox_to_anchor=(1.0, 1.0) if many else None,
    )


def curve(
    axis: Axes, mesh_points: np.ndarray, values: np.ndarray, line: Line = PLAIN
) -> None:
    """Draws values `(n,)` against the first coordinate of their points `(n, p)`."""
    order = np.argsort(mesh_points[:, 0])
    line.draw(axis, mesh_points[order, 0], values[order])


def field(
    axis: Axes,
    mesh_points: np.ndarray,
    values: np.ndarray,
    *,
    grid_shape: Sequence[int] | None = None,
    colours: Colours = OF_VALUES,
) -> Any:
    """Draws values `(n,)`: a curve in 1D, colours on a grid or at points otherwise.

    Points in 3D are projected onto the plane of the first two coordinates.

    Returns:
      The image, for the colour bar; None for a curve.
    """
    if mesh_points.shape[1] == 1:
        curve(axis, mesh_points, values)
        return None
    axis.set_aspect("equal")
    x, y = mesh_points[:, 0], mesh_points[:, 1]
    cmap, vmin, vmax = colours
    if grid_shape is not None and len(grid_shape) == 2:
        x, y, values = (array.reshape(grid_shape) for array in (x, y, values))
        return axis.pcolormesh(
            *(x, y, values),
            cmap=cmap,
            vmin=vmin,
            vmax=vmax,
            shading="gouraud",
            rasterized=True,
        )
    size = float(np.clip(6e3 / len(x), 0.5, 16.0))
    return axis.scatter(
        x, y, c=values, s=size, linewidths=0, cmap=cmap, vmin=vmin, vmax=vmax
    )
