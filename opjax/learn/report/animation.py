"""Animations of fields, `.gif` files."""

import contextlib
import os
from collections.abc import Callable, Generator

import numpy as np

from opjax.learn.json_files import replacing
from opjax.learn.report import drawing
from opjax.samples import Series

_MOST = 100  # pictures of an animation
_PER_SECOND = 10


@contextlib.contextmanager
def gif(
    path: str | os.PathLike[str], series: Series, num_frames: int, label: str
) -> Generator[Callable[[float, np.ndarray], None]]:
    """Draws the first channel of a series of frames as an animation.

    Args:
      path: path of the file, which is created when the animation is complete.
      series: the series, which provides the mesh and, with its first frame, the colour
        range.
      num_frames: number of frames that will be added; at most a hundred are drawn.
      label: name of the field.

    Raises:
      ModuleNotFoundError: if matplotlib is missing.
      OSError: if the file cannot be written.
    """
    drawing.require_matplotlib()
    from matplotlib.animation import PillowWriter
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = drawing.new_figure(4, 3.6, None)
    FigureCanvasAgg(figure)
    first = series.values[0][:, 0]
    colours = drawing.Colours(low=first.min(), high=first.max())
    writer, every, count = PillowWriter(_PER_SECOND), -(-num_frames // _MOST), 0
    with replacing(path) as temporary:
        writer.setup(figure, temporary, dpi=80)

        def draw(time: float, values: np.ndarray) -> None:
            nonlocal count
            count += 1
            if (count - 1) % every:
                return
            figure.clear()
            axis = figure.add_subplot()
            image = drawing.field(
                axis,
                series.mesh_points,
                values[:, 0],
                grid_shape=series.grid_shape,
                colours=colours,
            )
            if image is None:
                axis.set_ylim(colours.low, colours.high)
            else:
                drawing.add_colorbar(figure, image, axis)
            axis.set_title(f"{label}, time {time:.4g}")
            writer.grab_frame()

        yield draw
        writer.finish()
