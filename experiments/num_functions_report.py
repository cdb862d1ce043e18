"""Tables and figure of errors and of chosen numbers of functions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import num_functions_model as model
from experiments import studies
from experiments.studies import Row, Rows, across, column, groups, select
from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table

if TYPE_CHECKING:
    from experiments.num_functions import Config

_TITLES = {"white": "White right-hand sides", "fourier": "Right-hand sides of 002"}
_LABELS = {"white": "white", "fourier": "002"}
_METHODS = {
    "gates": "penalty on gates",
    "map": "penalty on rows of the map",
    "singular": "singular values, no penalty",
}
Values = Sequence[float] | np.ndarray
_MARKERS = ("o", "x", "+")  # that cover each other little
_FIXED = {
    "sines": model.sines,
    "hat functions": model.hats,
    "Legendre polynomials": model.polynomials,
}


def report(finished: learn.Finished) -> learn.Report:
    """Tables of errors by n and k and of chosen numbers, and the figure."""
    config = finished.config
    rows = [row for (one,) in finished.results.values() for row in one["rows"]]
    ranks = select(rows, method="ranks")
    chosen = [row for row in rows if row["method"] != "ranks"]
    parts: list[str] = []
    for right in config.right_sides:
        if mine := select(ranks, right=right):
            finest = (
                f"{min(config.num_points)} points, used on {max(config.num_points)}"
            )
            coarse = [row for row in mine if "error_finest" in row]
            parts += [
                f"## {_TITLES[right]}\n",
                "Least error of rank k:\n",
                _by_points(mine, lambda row: row["width"]),
                "Error divided by it:\n",
                _by_points(mine, _excess),
                f"Functions of {finest} points, divided by the least error there:\n",
                _by_points(coarse, lambda r: r["error_finest"] / r["width_finest"]),
                "Fixed functions, least-squares map, divided by the least error:\n",
                _fixed(config, right),
            ]
        if mine := select(chosen, right=right):
            parts += [f"## {_TITLES[right]}: chosen numbers\n", _chosen(mine)]
    drawing.save_lines(_figure(ranks, chosen), finished.folder / "num_functions.png")
    excess = {
        f"{right}_{method}": max(row["chosen"] / max(row["least"], 1) for row in mine)
        for (right, method), mine in groups(chosen, "right", "method").items()
    }
    result = {
        "largest_ratio": max(map(_excess, ranks), default=None),
        "chosen_by_least": excess,
    }
    head = (
        f"White: {config.white_modes} sines; those of 002: {config.fourier_modes} "
        f"sines and cosines. Functions: {config.num_waves} waves up to frequency "
        f"{config.max_frequency:g} (half periods), width {config.width}. "
        f"{config.num_steps} steps, and {config.gate_steps} where a method chooses "
        f"from {config.max_functions} functions. Median [smallest, largest] of seeds "
        f"{','.join(map(str, config.seeds))}. Data: {finished.source}."
    )
    return studies.report(finished, parts, result, head)


def _excess(row: Row) -> float:
    return row["error"] / row["width"]


def _by_points(rows: Rows, number: Callable[[Any], float]) -> str:
    sizes = list(groups(rows, "points"))
    lines = [
        [str(k), *(_cell([*map(number, r)]) for r in across(mine, "points", sizes))]
        for k, mine in groups(rows, "functions").items()
    ]
    return table(["k", *(f"n = {n}" for n in sizes)], lines)


def _fixed(config: "Config", right: str) -> str:
    """Errors of functions that are not trained, divided by the least ones."""
    points = max(config.num_points)
    modes = config.modes_of(right)
    pairs = model.pairs(right, points, modes)
    widths, x = model.widths(pairs), np.asarray(pairs.points)
    lines = [
        [
            str(k),
            *(
                f"{model.fixed_error(b(x, k), pairs) / widths[k]:.4g}"
                for b in _FIXED.values()
            ),
        ]
        for k in config.ranks
        if k <= modes and widths[k] > 0
    ]
    return table(["k", *(f"{name}, n = {points}" for name in _FIXED)], lines)


def _cell(values: Values) -> str:
    """Median and range, or the one value of all."""
    return median_and_range(values if len(set(values)) > 1 else values[:1])


_COLUMNS = {
    "chosen": "functions",
    "error": "error",
    "least": "least rank of this error",
    "refit": "error after a refit",
    "least_refit": "least rank of it",
}


def _chosen(rows: Rows) -> str:
    lines = [
        [_METHODS[method], f"{threshold:g}", str(n), str(mine[0]["expected"])]
        + [_cell(column(mine, key)) for key in _COLUMNS]
        for (method, threshold, n), mine in groups(
            rows, "method", "threshold", "points"
        ).items()
    ]
    headings = ["method", "threshold", "n", "closed form", *_COLUMNS.values()]
    return table(headings, lines)


def _figure(ranks: Rows, chosen: Rows) -> Any:
    """Draws errors over k with the least ones, and chosen numbers over least ones."""
    figure = drawing.new_figure(10.0, 3.2, "constrained")
    left, right = figure.subplots(1, 2)

    def points(
        axis: drawing.Axes, place: int, label: str, x: Values, y: Values
    ) -> None:
        drawing.Line(f"C{place}", label, "").draw(axis, x, y, _MARKERS[place % 3])

    curves = groups(ranks, "right", "points").items()
    for place, ((name, n), mine) in enumerate(curves):
        of_rank = groups(mine, "functions")
        x, y = list(of_rank), [np.median(column(r, "error")) for r in of_rank.values()]
        points(left, place, f"{_LABELS[name]}, n = {n}", x, y)
        least = [rows[0]["width"] for rows in of_rank.values()]
        drawing.Line(f"C{place}", None, "-", 0.8).draw(left, x, least)
    left.set(xscale="log", yscale="log", xlabel="functions k", ylabel="relative error")
    studies.ticks(left, list(groups(ranks, "functions")))
    choices = groups(chosen, "right", "method").items()
    for place, ((name, method), mine) in enumerate(choices):
        label = f"{_LABELS[name]}, {_METHODS[method]}"
        points(right, place, label, column(mine, "least"), column(mine, "chosen"))
    limits = [1, max((row["chosen"] for row in chosen), default=1)]
    drawing.Line("0.5", "equal", "-", 0.8).draw(right, limits, limits)
    upper = [1.2 * one for one in limits]
    drawing.Line("0.5", "20 % more", ":", 0.8).draw(right, limits, upper)
    right.set(xlabel="least rank of the same error", ylabel="chosen functions")
    for axis in (left, right):
        drawing.plain(axis)
        drawing.legend(axis)
    return figure
