"""Tables and figure of errors against the number of points."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments import studies
from experiments.studies import Rows, across, column, groups, select, spread
from opjax import learn
from opjax.learn.json_files import read_object
from opjax.learn.report import drawing
from opjax.learn.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiments.adaptivity import Config

_TICKS = 0.5, 1, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 100
_NORMS = {"l2": "L2", "h1": "gradient"}
_PARTS = ("query", "nodes", "model", "points", "elements", "labels")
_VALUES = {"nodes": "operator", "points": "exact", "elements": "solver"}


def report(
    config: "Config", folder: pathlib.Path, rows: Rows, queries: Rows
) -> learn.Report:
    """Tables of both questions, and the figure."""
    parts: list[str] = []
    by_labels = groups(rows, "labels")
    for labels, mine in by_labels.items():
        parts += [f"## Training points, labels: {labels}\n", _training(mine)]
    for level, mine in groups(queries, "level").items():
        size = _size(select(rows, strategy="uniform", level=level))
        parts += [f"## Query points of operators trained on {size} uniform points\n"]
        parts += [_queries(mine, norm) for norm in _NORMS]
    _draw(config, folder / "adaptivity.png", rows, queries)
    head = (
        f"Relative errors in percent, means of {config.num_test} unseen functions, "
        f"median [smallest, largest] of the seeds {','.join(map(str, config.seeds))}. "
        f"{config.num_stages} stages of {config.num_steps} steps. Data: own solver."
    )
    last = select(by_labels[config.labels[0]], level=config.levels[-1])
    result = {
        f"{norm}_{strategy}": float(np.median(column(mine, f"query_{norm}")))
        for strategy, mine in groups(last, "strategy").items()
        for norm in _NORMS
    }
    result |= {"seeds": list(config.seeds), "data": "own solver"}
    return learn.Report("\n".join(parts), result, head)


def _size(rows: Rows) -> int:
    return int(np.median(column(rows, "num_points")))


def _training(rows: Rows) -> str:
    """A line for each rule and number of points: errors and their parts."""
    columns = ["rule", "points", "near the corner"]
    columns += [f"{part}, {norm}" for norm in _NORMS.values() for part in _PARTS]
    lines = [
        [strategy]
        + [f"{np.median(column(mine, k)):.0f}" for k in ("num_points", "near")]
        + [_percent(mine, f"{part}_{norm}") for norm in _NORMS for part in _PARTS]
        for (strategy, _), mine in groups(rows, "strategy", "level").items()
    ]
    return table(columns, lines)


def _percent(rows: Rows, name: str) -> str:
    return spread(rows, name, 100, digits=3)


def _queries(rows: Rows, norm: str) -> str:
    """A line for each rule: errors of predictions that are linear between points."""
    levels = groups(rows, "at")
    sizes = [f"{_size(mine)} points" for mine in levels.values()]
    lines = [
        [
            name,
            rule,
            *(_percent(r, f"{part}_{norm}") for r in across(mine, "at", levels)),
        ]
        for part, name in _VALUES.items()
        for rule, mine in groups(rows, "rule").items()
    ]
    return table([f"values, {_NORMS[norm]}", "points by", *sizes], lines)


def _draw(config: "Config", path: pathlib.Path, rows: Rows, queries: Rows) -> None:
    """Draws points of two rules, and errors of both questions in both norms."""
    figure = drawing.new_figure(10.5, 5.6, "constrained")
    axes = figure.subplots(2, len(_NORMS) + 1, squeeze=False)
    trained = select(rows, labels=config.labels[0])
    asked = select(queries, level=config.levels[-1])
    panels = (
        ("strategy", "level", "query", trained, "training points"),
        ("rule", "at", "nodes", asked, "query points"),
    )
    for line, (rule_of, step, part, mine, title) in zip(axes, panels, strict=True):
        for axis, (norm, name) in zip(line[1:], _NORMS.items(), strict=True):
            for place, (rule, own) in enumerate(groups(mine, rule_of).items()):
                steps = list(groups(own, step).values())
                curve = drawing.Line(f"C{place}", rule, width=1.3)
                _curve(axis, steps, f"{part}_{norm}", curve)
                if rule in ("uniform", "elements"):
                    curve = curve._replace(label=f"solver, {rule}", dash="--")
                    _curve(axis, steps, f"elements_{norm}", curve)
            axis.set(xscale="log", yscale="log", xlabel=title)
            low, high = axis.get_ylim()
            heights = [tick for tick in _TICKS if low <= tick <= high]
            studies.ticks(axis, list(map(_size, groups(mine, step).values())))
            axis.set_yticks(heights, map(str, heights))
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


def _curve(axis: "Axes", steps: Sequence[Rows], name: str, line: drawing.Line) -> None:
    """Draws the errors of growing numbers of points."""
    values = [column(mine, name, 100) for mine in steps]
    marker = "." if line.dash == "-" else ""
    line.draw_range(axis, list(map(_size, steps)), values, marker)
