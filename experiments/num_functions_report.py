"""Tables and figure of errors and of chosen numbers of functions."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import num_functions_model as model
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
_MARKERS = ("o", "x", "+")  # that cover each other little
_FIXED = {
    "sines": model.sines,
    "hat functions": model.hats,
    "Legendre polynomials": model.polynomials,
}
_Row = dict[str, Any]


def report(finished: learn.Finished) -> learn.Report:
    """Tables of errors by n and k and of chosen numbers, and the figure."""
    config = finished.config
    rows = [row for (one,) in finished.results.values() for row in one["rows"]]
    ranks = [row for row in rows if row["method"] == "ranks"]
    chosen = [row for row in rows if row["method"] != "ranks"]
    parts: list[str] = []
    for right in config.right_sides:
        mine = [row for row in ranks if row["right"] == right]
        if mine:
            parts += [f"## {_TITLES[right]}\n", "Least error of rank k:\n"]
            parts += [_by_points(mine, lambda row: row["width"])]
            parts += ["Error divided by it:\n", _by_points(mine, _excess)]
            finest = (
                f"{min(config.num_points)} points, used on {max(config.num_points)}"
            )
            text = f"Functions of {finest} points, divided by the least error there:\n"
            parts += [text]
            coarse = [row for row in mine if "error_finest" in row]
            parts += [_by_points(coarse, _excess_finest)]
            parts += [
                "Fixed functions, least-squares map, divided by the least error:\n"
            ]
            parts += [_fixed(config, right)]
        mine = [row for row in chosen if row["right"] == right]
        if mine:
            parts += [f"## {_TITLES[right]}: chosen numbers\n", _chosen(mine)]
    drawing.save_lines(_figure(ranks, chosen), finished.folder / "num_functions.png")
    excess = {
        f"{right}_{method}": [
            row["chosen"] / max(row["least"], 1)
            for row in chosen
            if (row["right"], row["method"]) == (right, method)
        ]
        for right in config.right_sides
        for method in _METHODS
    }
    summary = {
        "largest_ratio": max(map(_excess, ranks), default=None),
        "chosen_by_least": {k: max(v) for k, v in excess.items() if v},
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return learn.Report("\n".join(parts), summary, _head(finished), alone=True)


def _head(finished: learn.Finished) -> str:
    config = finished.config
    return (
        f"White: {config.white_modes} sines; those of 002: {config.fourier_modes} "
        f"sines and cosines. Functions: {config.num_waves} waves up to frequency "
        f"{config.max_frequency:g} (half periods), width {config.width}. "
        f"{config.num_steps} steps, and {config.gate_steps} where a method chooses "
        f"from {config.max_functions} functions. Median [smallest, largest] of seeds "
        f"{','.join(map(str, config.seeds))}. Data: {finished.source}."
    )


def _excess(row: _Row) -> float:
    return row["error"] / row["width"]


def _excess_finest(row: _Row) -> float:
    return row["error_finest"] / row["width_finest"]


def _distinct(rows: Sequence[_Row], *keys: str) -> list[tuple[Any, ...]]:
    return list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))


def _select(rows: Sequence[_Row], **where: str | float) -> list[_Row]:
    return [row for row in rows if all(row[k] == v for k, v in where.items())]


def _by_points(rows: Sequence[_Row], number: Callable[[_Row], float]) -> str:
    sizes = [n for (n,) in _distinct(rows, "points")]
    lines = [
        [str(k)] + [_cell(_select(rows, points=n, functions=k), number) for n in sizes]
        for (k,) in _distinct(rows, "functions")
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


def _cell(rows: Sequence[_Row], number: Callable[[_Row], float]) -> str:
    values = [number(row) for row in rows]
    if len(set(values)) == 1:
        return f"{values[0]:.4g}"
    return median_and_range(values)


_COLUMNS = {
    "chosen": "functions",
    "error": "error",
    "least": "least rank of this error",
    "refit": "error after a refit",
    "least_refit": "least rank of it",
}


def _chosen(rows: Sequence[_Row]) -> str:
    lines = []
    for method, threshold, n in _distinct(rows, "method", "threshold", "points"):
        mine = _select(rows, method=method, threshold=threshold, points=n)
        cells = [_cell(mine, lambda row, key=key: row[key]) for key in _COLUMNS]
        first = [_METHODS[method], f"{threshold:g}", str(n), str(mine[0]["expected"])]
        lines.append(first + cells)
    headings = ["method", "threshold", "n", "closed form", *_COLUMNS.values()]
    return table(headings, lines)


def _figure(ranks: Sequence[_Row], chosen: Sequence[_Row]) -> Any:
    """Draws errors over k with the least ones, and chosen numbers over least ones."""
    figure = drawing.new_figure(10.0, 3.2, "constrained")
    left, right = figure.subplots(1, 2)
    for place, (name, n) in enumerate(_distinct(ranks, "right", "points")):
        mine = _select(ranks, right=name, points=n)
        x = [k for (k,) in _distinct(mine, "functions")]
        of_rank = [_select(mine, functions=k) for k in x]
        y = [np.median([row["error"] for row in rows]) for rows in of_rank]
        label = f"{_LABELS[name]}, n = {n}"
        drawing.Line(f"C{place}", label, "").draw(left, x, y, _MARKERS[place % 3])
        least = [rows[0]["width"] for rows in of_rank]
        drawing.Line(f"C{place}", None, "-", 0.8).draw(left, x, least)
    left.set(xscale="log", yscale="log", xlabel="functions k", ylabel="relative error")
    counts = [k for (k,) in _distinct(ranks, "functions")]
    left.set_xticks(counts, [str(k) for k in counts])
    left.minorticks_off()
    for place, (name, method) in enumerate(_distinct(chosen, "right", "method")):
        mine = _select(chosen, right=name, method=method)
        x, y = ([row[key] for row in mine] for key in ("least", "chosen"))
        label = f"{_LABELS[name]}, {_METHODS[method]}"
        drawing.Line(f"C{place}", label, "").draw(right, x, y, _MARKERS[place % 3])
    limits = [1, max((row["chosen"] for row in chosen), default=1)]
    drawing.Line("0.5", "equal", "-", 0.8).draw(right, limits, limits)
    upper = [1.2 * one for one in limits]
    drawing.Line("0.5", "20 % more", ":", 0.8).draw(right, limits, upper)
    right.set(xlabel="least rank of the same error", ylabel="chosen functions")
    for axis in (left, right):
        drawing.plain(axis)
        drawing.legend(axis)
    return figure
