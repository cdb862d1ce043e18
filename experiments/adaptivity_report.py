"""Tables and figure of errors against the number of points."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opjax import learn
from opjax.learn.json_files import read_object
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiments.adaptivity import Config

Rows = Sequence[dict[str, Any]]
_TICKS = 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100
_NORMS = {"l2": "L2", "h1": "gradient"}


def report(
    config: "Config", folder: pathlib.Path, rows: Rows, queries: Rows
) -> learn.Report:
    """Tables of both questions, and the figure."""
    parts: list[str] = []
    for labels in config.labels:
        mine = [row for row in rows if row["labels"] == labels]
        parts += [f"## Training points, labels: {labels}\n", _training(mine)]
    for level in config.levels:
        mine = [row for row in queries if row["level"] == level]
        if mine:
            size = _at([r for r in rows if r["strategy"] == "uniform"], level, "level")
            parts += [
                f"## Query points of operators trained on {size} uniform points\n"
            ]
            parts += [_queries(mine, norm) for norm in _NORMS]
    _draw(config, folder / "adaptivity.png", rows, queries)
    head = (
        f"Relative errors in percent, means of {config.num_test} unseen functions, "
        f"median [smallest, largest] of the seeds {','.join(map(str, config.seeds))}. "
        f"{config.num_stages} stages of {config.num_steps} steps. Data: own solver."
    )
    last = [row for row in rows if row["labels"] == config.labels[0]]
    last = [row for row in last if row["level"] == config.levels[-1]]
    result = {
        f"{norm}_{strategy}": float(np.median(_values(last, "strategy", strategy, key)))
        for strategy in config.strategies
        for norm, key in (("l2", "query_l2"), ("h1", "query_h1"))
    }
    result |= {"seeds": list(config.seeds), "data": "own solver"}
    return learn.Report("\n".join(parts), result, head)


def _values(rows: Rows, column: str, value: str | int, key: str) -> np.ndarray:
    return np.array([row[key] for row in rows if row[column] == value])


def _at(rows: Rows, level: int, column: str) -> int:
    return int(np.median(_values(rows, column, level, "num_points")))


def _training(rows: Rows) -> str:
    """A line for each rule and number of points: errors and their parts."""
    parts = ("query", "nodes", "model", "points", "elements", "labels")
    columns = ["rule", "points", "near the corner"]
    columns += [f"{part}, {norm}" for norm in _NORMS.values() for part in parts]
    lines = []
    for strategy, level in dict.fromkeys((r["strategy"], r["level"]) for r in rows):
        mine = [r for r in rows if (r["strategy"], r["level"]) == (strategy, level)]
        cells = [
            f"{np.median([r[k] for r in mine]):.0f}" for k in ("num_points", "near")
        ]
        cells += [
            median_and_range([r[f"{part}_{norm}"] for r in mine], 100, digits=3)
            for norm in _NORMS
            for part in parts
        ]
        lines.append([strategy, *cells])
    return table(columns, lines)


def _queries(rows: Rows, norm: str) -> str:
    """A line for each rule: errors of predictions that are linear between points."""
    levels = list(dict.fromkeys(row["at"] for row in rows))
    sizes = [f"{_at(rows, level, 'at')} points" for level in levels]
    lines = []
    for part, name in (
        ("nodes", "operator"),
        ("points", "exact"),
        ("elements", "solver"),
    ):
        for rule in dict.fromkeys(row["rule"] for row in rows):
            mine = [row for row in rows if row["rule"] == rule]
            cells = [
                median_and_range(
                    _values(mine, "at", level, f"{part}_{norm}"), 100, digits=3
                )
                for level in levels
            ]
            lines.append([name, rule, *cells])
    return table([f"values, {_NORMS[norm]}", "points by", *sizes], lines)


def _draw(config: "Config", path: pathlib.Path, rows: Rows, queries: Rows) -> None:
    """Draws points of two rules, and errors of both questions in both norms."""
    figure = drawing.new_figure(10.5, 5.6, "constrained")
    axes = figure.subplots(2, len(_NORMS) + 1, squeeze=False)
    trained = [row for row in rows if row["labels"] == config.labels[0]]
    asked = [row for row in queries if row["level"] == config.levels[-1]]
    panels = (
        ("strategy", "level", "query", trained, "training points"),
        ("rule", "at", "nodes", asked, "query points"),
    )
    for line, (column, step, part, mine, title) in zip(axes, panels, strict=True):
        for axis, (norm, name) in zip(line[1:], _NORMS.items(), strict=True):
            for place, rule in enumerate(dict.fromkeys(row[column] for row in mine)):
                own = [row for row in mine if row[column] == rule]
                _curve(axis, own, step, f"{part}_{norm}", f"C{place}", rule)
                if rule in ("uniform", "elements"):
                    label = f"solver, {rule}"
                    _curve(
                        axis, own, step, f"elements_{norm}", f"C{place}", label, "--"
                    )
            axis.set(xscale="log", yscale="log", xlabel=title)
            sizes = [_at(mine, level, step) for level in {row[step] for row in mine}]
            low, high = axis.get_ylim()
            heights = [tick for tick in _TICKS if low <= tick <= high]
            axis.set_xticks(sizes, map(str, sizes))
            axis.set_yticks(heights, map(str, heights))
            axis.minorticks_off()
            axis.set_ylabel(f"relative error, {name} (%)")
            drawing.plain(axis)
        drawing.legend(line[-1])
    for axis, rule in zip(axes[:, 0], config.strategies, strict=False):
        name = f"{config.labels[0]}-{rule}-{config.levels[0]}"
        stored = read_object(path.parent / name / "result.json")
        points = np.array(stored["points"])
        axis.plot(*points.T, ".", color="0.2", markersize=2)
        axis.set(aspect="equal", xticks=(), yticks=(), title=f"{rule}, {len(points)}")
    drawing.save_lines(figure, path)


def _curve(
    axis: "Axes",
    rows: Rows,
    step: str,
    key: str,
    color: str,
    label: str,
    dash: str = "-",
) -> None:
    levels = list(dict.fromkeys(row[step] for row in rows))
    sizes = [_at(rows, level, step) for level in levels]
    values = [100 * _values(rows, step, level, key) for level in levels]
    line = drawing.Line(color, label, dash, width=1.3)
    line.draw_range(axis, sizes, values, "." if dash == "-" else "")
