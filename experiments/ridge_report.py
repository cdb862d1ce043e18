"""Table and figure of errors against the ridge and against the scale of logits."""

from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import studies
from experiments.studies import Rows, column, groups, select, spread
from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = {"error": "test error, x 100", "train_error": "training error, x 100"}

_LINES = {
    "functional": "ridge {:g}",
    "galerkin": "Galerkin",
    "softmax": "softmax, logits x {:g}",
}


def report(finished: learn.Finished) -> learn.Report:
    """A table for each problem, and the figure."""
    config = finished.config
    rows = [
        {**row, "problem": problem, "map": name, "setting": float(row["setting"])}
        for problem in config.problems
        for name in config.maps
        for row in finished.results[f"{problem}_{name}"][0]["rows"]
    ]
    parts: list[str] = []
    for problem, mine in groups(rows, "problem").items():
        lines = [
            [_LINES[name].format(setting)]
            + [spread(of_setting, key, 100) for key in _COLUMNS]
            for name, of_map in groups(mine, "map").items()
            for setting, of_setting in groups(of_map, "setting").items()
        ]
        (first,) = finished.results[f"{problem}_{config.maps[0]}"]
        lines += [
            [name, f"{100 * e:.4g}", ""] for name, e in first["baselines"].items()
        ]
        headings = ["map and setting", *_COLUMNS.values()]
        parts += [f"## {problem.capitalize()}\n", table(headings, lines)]
    drawing.save_lines(_figure(rows), finished.folder / "ridge.png")
    result = {name: result["error"] for name, (result,) in finished.results.items()}
    head = (
        f"Relative L2 errors, median [smallest, largest] of the seeds "
        f"{','.join(map(str, config.seeds))}. {config.width} channels, "
        f"{config.num_layers} layers, {config.num_heads} heads, {config.num_basis} "
        f"basis functions, {config.num_train} training and {config.num_test} test "
        f"samples, {config.num_steps} steps of {config.batch_size}. "
        f"Data: {finished.source}."
    )
    return studies.report(finished, parts, result, head)


def _figure(rows: Rows) -> Any:
    """Draws test errors: a row for each problem, ridges left and scales right."""
    problems = groups(rows, "problem")
    figure = drawing.new_figure(8, 2.7 * len(problems), "constrained")
    axes = figure.subplots(len(problems), 2, squeeze=False, sharey="row")
    labels = {
        "functional": "ridge / mean eigenvalue",
        "softmax": "factor of the logits",
    }
    for line, (problem, mine) in zip(axes, problems.items(), strict=True):
        for axis, (name, label) in zip(line, labels.items(), strict=True):
            axis.set(xscale="log", xlabel=label, title=f"{problem}, {name}")
            _draw(axis, select(mine, map=name), "C0", name)
            _draw(axis, select(mine, map="galerkin"), "C1", "Galerkin")
            drawing.plain(axis)
        line[0].set_ylabel("test error, x 100")
    drawing.legend(axes[0, 0])
    return figure


def _draw(axis: "Axes", rows: Rows, color: str, name: str) -> None:
    """Draws medians and ranges; one setting without a scale as a band."""
    settings = groups(rows, "setting")
    values = {s: column(mine, "error", 100) for s, mine in settings.items()}
    alone = len(values) == 1
    if alone or float("inf") in values:
        _, last = values.popitem()
        flat, label = ("C1", name) if alone else ("C2", "ridge = inf")
        axis.axhspan(last.min(), last.max(), alpha=0.15, lw=0, color=flat)
        axis.axhline(np.median(last), color=flat, lw=1.3, ls="--", label=label)
    if len(values) > 1:
        line = drawing.Line(color, name, width=1.3)
        line.draw_range(axis, list(values), list(values.values()))
