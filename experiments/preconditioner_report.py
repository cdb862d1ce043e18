"""Tables and figure of conjugate gradients with several preconditioners."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import preconditioner_solvers as solvers
from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table


def report(finished: learn.Finished) -> learn.Report:
    """Tables of iterations and seconds by grid and contrast, and the figure."""
    config = finished.config
    ((result,),) = finished.results.values()
    rows = result["rows"]
    sizes = [boxes * config.box_width for boxes in config.test_boxes]
    parts = []
    for contrast in config.contrasts:
        for title, keys in _TITLES.items():
            parts.append(f"## {title}, contrast {contrast:g}\n")
            lines = [
                [name]
                + [
                    median_and_range(_values(rows, name, boxes, contrast, keys))
                    for boxes in config.test_boxes
                ]
                for name in _methods(rows)
            ]
            headings = ["preconditioner", *(f"n = {n} x {n}" for n in sizes)]
            parts.append(table(headings, lines))
    solved = [row for row in rows if row["residual"] <= 1.1 * solvers.TOLERANCE]
    figure = _figure(sizes, config.test_boxes, config.contrasts, rows)
    drawing.save_lines(figure, finished.folder / "preconditioner.png")
    head = (
        f"Operators with boxes of {config.box_width} x {config.box_width} points, "
        f"overlap {config.overlap}, rank {config.rank}, trained on grids of "
        f"{config.train_boxes} x {config.train_boxes} boxes and contrasts up to "
        f"{config.max_contrast:g}, {config.num_steps} steps of {config.batch_size}. "
        f"Solves to {solvers.TOLERANCE:g}, {config.num_test} unseen coefficients, "
        f"seeds {','.join(map(str, config.seeds))}, median [smallest, largest]. "
        f"Seconds are CPU time. Of {len(rows)} solves, {len(rows) - len(solved)} did "
        f"not reach this residual in at most {solvers.MAX_ITERATIONS} iterations. "
        f"Data: {finished.source}."
    )
    summary = {
        "iterations": result["iterations"],
        "unsolved": len(rows) - len(solved),
        "parameters": result["parameters"],
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return learn.Report("\n".join(parts), summary, head, alone=True)


_TITLES = {
    "Iterations": ("iterations",),
    "Seconds of set-up and iterations": ("setup", "seconds"),
}


def _methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _values(
    rows: Sequence[dict[str, Any]],
    name: str,
    boxes: int,
    contrast: float,
    keys: Sequence[str] = ("iterations",),
) -> np.ndarray:
    place = name, boxes, contrast
    return np.array(
        [
            sum(row[key] for key in keys)
            for row in rows
            if (row["method"], row["boxes"], row["contrast"]) == place
        ]
    )


def _figure(
    sizes: Sequence[int],
    boxes: Sequence[int],
    contrasts: Sequence[float],
    rows: Sequence[dict[str, Any]],
) -> Any:
    """Draws iterations over points on a side, a panel for each contrast."""
    count = len(contrasts)
    figure = drawing.new_figure(2.6 * count + 0.6, 2.8, "constrained")
    axes = figure.subplots(1, count, squeeze=False, sharey=True)[0]
    for axis, contrast in zip(axes, contrasts, strict=True):
        for place, name in enumerate(_methods(rows)):
            values = [_values(rows, name, b, contrast) for b in boxes]
            line = drawing.Line(f"C{place}", name, width=1.3)
            line.draw_range(axis, sizes, values)
        axis.set(xscale="log", yscale="log", title=f"contrast {contrast:g}")
        axis.set_xticks(sizes, [str(n) for n in sizes])
        axis.minorticks_off()
        axis.set_xlabel("points on a side")
        drawing.plain(axis)
    axes[0].set_ylabel("iterations")
    drawing.legend(axes[-1])
    return figure
