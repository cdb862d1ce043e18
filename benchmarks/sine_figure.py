"""Figure of all models of the sine waves with the authors' settings.

    python -m benchmarks.sine_figure

Draws the tables of `results/sinusoid.md`, of which each is a run of hours on another
day: medians over the seeds of the errors by number of observations, and their ranges.
"""

import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import pictures_style as style
from opjax.learn.report import drawing

PAGE = pathlib.Path(__file__).parents[1] / "results" / "sinusoid.md"
_TITLE = "## The authors' settings, "
# `0.0813 [0.0639, 0.0988]` or, of one seed, `0.0813`.
_CELL = re.compile(r"(\S+)(?: \[(\S+), (\S+)\])?")
_COLOURS = ("blue", "vermilion", "green", "orange", "purple")


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    flags.DEFINE_string(
        "sine_figure", str(PAGE.with_name("sinusoid_paper.png")), "PNG file to write"
    )


def tables(page: str) -> dict[str, tuple[list[int], np.ndarray]]:
    """Returns observations and errors `(3, n)` of every model of a page.

    The rows of errors are the smallest, the median and the largest of the seeds.

    Raises:
      ValueError: if the page has no table of the authors' settings, or a cell is no
        median with a range.
    """
    found = {}
    for part in page.split(_TITLE)[1:]:
        title, *lines = part.splitlines()
        head, _, row = [_cells(line) for line in lines if line.startswith("|")][:3]
        by_column = dict(zip(head, row, strict=True))
        errors = {int(k): _range(v) for k, v in by_column.items() if k.isdigit()}
        found[title] = list(errors), np.transpose(list(errors.values()))
    if not found:
        raise ValueError(f"No table has a title that starts with {_TITLE!r}.")
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("| \n").split("|")]


def _range(cell: str) -> tuple[float, float, float]:
    hit = _CELL.fullmatch(cell)
    if hit is None:
        raise ValueError(f"{cell!r} is no median with a range.")
    median, low, high = hit.groups()
    return float(low or median), float(median), float(high or median)


def figure(found: dict[str, tuple[list[int], np.ndarray]]) -> Any:
    """Draws medians and ranges over the numbers of observations."""
    drawn = style.figure(3.6)
    axis = drawn.subplots()
    colours = dict(zip(found, _COLOURS, strict=False))
    style.curves(
        axis,
        {
            name: (
                x,
                y,
                {"color": style.COLOURS[colours[name]], "marker": "o", "markersize": 4},
            )
            for name, (x, y) in found.items()
        },
    )
    axis.set(yscale="log", xlabel="observations", ylabel="mean square error")
    axis.set_xticks(sorted({size for sizes, _ in found.values() for size in sizes}))
    axis.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return drawn


def main(argv: Sequence[str]) -> None:
    """Writes the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    with style.style():
        drawing.save(figure(tables(PAGE.read_text())), flags.FLAGS.sine_figure)


if __name__ == "__main__":
    define_flags()
    app.run(main)
