"""The common style of the pictures of README and site.

A picture is as wide as a column of text, 5.2 inches, with letters of 8.5 to 9.5 points,
so that they can be read on a phone. Colours are those of Okabe and Ito, which readers
with colour vision deficiency can tell apart. Fields use viridis, inputs cividis, and
signed fields a blue, white and red map centred at zero.
"""

import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from opjax.learn.report import drawing

WIDTH = 5.2  # inches
_DPI = 170
_GAP = 0.085  # between names at the ends of lines, in heights of an axis
COLOURS = {
    "blue": "#0072B2",
    "vermilion": "#D55E00",
    "green": "#009E73",
    "purple": "#CC79A7",
    "orange": "#E69F00",
    "sky": "#56B4E9",
    "black": "#222222",
    "grey": "#888888",
}
_STYLE: dict[Any, Any] = {
    "font.size": 9.5,
    "figure.titlesize": 9.5,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.linewidth": 0.6,
    "axes.titlepad": 4,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "mathtext.fontset": "dejavusans",
}


@contextmanager
def style() -> Iterator[None]:
    """Draws all figures inside with letters and lines of one size."""
    import matplotlib

    with matplotlib.rc_context(_STYLE):
        yield


def figure(height: float) -> Any:
    """Returns an empty figure of the width of a column."""
    return drawing.new_figure(WIDTH, height, "constrained")


def save(drawn: Any, path: str | os.PathLike, *, lines: bool = False) -> None:
    """Writes a PNG, in a few colours if it is a drawing of lines."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write = drawing.save_lines if lines else drawing.save
    write(drawn, path, dpi=_DPI)


def field(axis: Any, points: np.ndarray, values: np.ndarray, **colours: Any) -> Any:
    """Draws values at the points of a grid of the square, or of a cloud; returns it."""
    side = round(len(points) ** 0.5)
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)
    if side**2 == len(points) and len(np.unique(points[:, 0])) == side:
        x, y, values = (a.reshape(side, side) for a in (*points.T, values))
        return axis.pcolormesh(x, y, values, shading="nearest", **colours)
    return axis.scatter(*points.T, c=values, s=6.0, linewidths=0, **colours)


def around_zero(values: Any, quantile: float = 1.0) -> dict[str, Any]:
    """Colours that leave zero white, up to a quantile of the sizes."""
    limit = float(np.quantile(np.abs(values), quantile)) or 1.0
    return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}


def colour_bar(image: Any, axes: Sequence[Any], label: str, **given: Any) -> Any:
    """Draws the colours that axes share below them, with what they mean."""
    options = {"orientation": "horizontal", "aspect": 22, "shrink": 0.9, "pad": 0.02}
    bar = axes[0].figure.colorbar(image, ax=list(axes), **(options | given))
    bar.set_label(label, labelpad=2)
    bar.outline.set_linewidth(0.4)
    bar.ax.tick_params(length=2, pad=2)
    bar.locator = _few()
    bar.formatter.set_powerlimits((-3, 4))
    bar.update_ticks()
    return bar


def _few() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=3)


def curves(axis: Any, lines: Mapping[str, tuple[Any, Any, Any]]) -> None:
    """Draws medians `y` and ranges over `x` by name: `x`, then arrays of `(seeds, n)`.

    The third of a triple is the style of the line.
    """
    for name, (x, y, look) in lines.items():
        axis.plot(x, np.median(y, axis=0), label=name, linewidth=1.4, **look)
        if len(y) > 1:
            low, high = np.min(y, axis=0), np.max(y, axis=0)
            axis.fill_between(x, low, high, color=look["color"], alpha=0.2, linewidth=0)
    drawing.plain(axis)


def name_ends(axis: Any, ends: Mapping[str, tuple[float, float, str]]) -> None:
    """Writes names at the ends of lines, on axes of logarithms, none over another.

    Args:
      axis: its scale and limits are final.
      ends: last point and colour of every line. Names of lines that end before the
        others stand beside their ends, those of the others right of the axis.
    """
    low, high = np.log(axis.get_ylim())
    longest = max(x for x, _, _ in ends.values())
    look: dict[str, Any] = {"va": "center", "fontsize": 9, "annotation_clip": False}
    late = []
    for name, (x, y, colour) in ends.items():
        if x < longest:
            given = {"xytext": (5, 0), "textcoords": "offset points", "color": colour}
            axis.annotate(name, (x, y), **given, **look)
        else:
            late.append(((np.log(y) - low) / (high - low), name, colour))
    late.sort()
    heights = [height for height, _, _ in late]
    for _ in range(200):  # push neighbours apart
        for i in range(1, len(heights)):
            short = max(_GAP - (heights[i] - heights[i - 1]), 0.0) / 2
            heights[i] += short
            heights[i - 1] -= short
    place = axis.transAxes
    for height, (_, name, colour) in zip(heights, late, strict=True):
        axis.annotate(name, (1.02, height), xycoords=place, color=colour, **look)
