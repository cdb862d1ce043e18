"""Tables and the figure of the inf-sup constants."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments import stability_spaces, studies
from experiments.studies import Rows, column, groups
from opjax import learn
from opjax.learn.json_files import read_object
from opjax.learn.report import drawing, members

_HEADINGS = {
    "value": "queries, values",
    "key": "queries, keys",
    "operator": "the layer's form",
    "softmax": "keys before softmax",
}
_STATES = {"before": "before training", "after": "after training"}


def report(finished: learn.Finished) -> learn.Report:
    """Tables of slopes, constants and errors, and the figure."""
    config, results = finished.config, finished.results
    (first, last) = next(iter(config.members().values())).test_points
    quality = {
        f"error_{first}": (f"error on {first}, x 1000", 1e3),
        f"error_{last}": (f"error on {last}, x 1000", 1e3),
        "energy": ("error of the energy lost, x 100", 100.0),
        "rise": ("largest rise of an epoch", 1.0),
        "seconds": ("seconds", 1.0),
    }
    headings = {
        "slope": "Slope of log c against log n",
        "flat": "Share of slopes within 0.05 of zero",
        "constant": f"Constant at n = {config.eval_points[-1]}",
    }
    parts: list[str] = []
    for kind, heading in headings.items():
        parts.append(f"## {heading}\n")
        for state, title in _STATES.items():
            parts += [f"{title.capitalize()}:\n", _table(results, kind, state)]
    parts += ["## Errors\n", members.comparison(results, quality)]
    drawing.save_lines(_figure(finished), finished.folder / "stability.png")
    keys = [
        f"{name}_{form}_{state}"
        for name in headings
        for form in stability_spaces.FORMS
        for state in _STATES
    ]
    present = {key for rows in results.values() for row in rows for key in row}
    shown = [key for key in (*quality, *keys) if key in present]
    medians = members.summary(results, [key for key in shown if key != "seconds"])
    return studies.report(finished, parts, medians, _head(finished))


def _table(results: Mapping[str, Any], number: str, state: str) -> str:
    columns = {
        f"{number}_{form}_{state}": (heading, 1.0)
        for form, heading in _HEADINGS.items()
    }
    return members.comparison(results, columns)


def _head(finished: learn.Finished) -> str:
    config = finished.config
    return (
        f"Trained on {config.num_points} points of Burgers' equation, "
        f"{finished.num_train} samples, {config.num_epochs} epochs, {config.width} "
        f"channels, {config.num_layers} layers, {config.num_heads} heads. Constants of "
        f"every layer and head for {config.num_samples} test sample(s), of functions "
        f"of at least {config.tolerance:g} times the largest norm; numbers are medians "
        "over layers, heads and samples, then median [smallest, largest] over the "
        f"seeds {','.join(map(str, config.seeds))}. Data: {finished.source}."
    )


def _figure(finished: learn.Finished) -> Any:
    """Draws constants over points: a row for each form, a column for each model."""
    config = finished.config
    forms = stability_spaces.FORMS[:3]
    figure = drawing.new_figure(2.6 * len(config.models) + 1, 6.5, "constrained")
    axes = figure.subplots(
        len(forms), len(config.models), squeeze=False, sharex=True, sharey="row"
    )
    for line, form in zip(axes, forms, strict=True):
        line[0].set_ylabel(f"c: {_HEADINGS[form]}", fontsize=8)
        for axis, model in zip(line, config.models, strict=True):
            for number, kind in enumerate(config.normalizations):
                paths = [
                    finished.folder / f"{model}_{kind}-{seed}" / "constants.json"
                    for seed in config.seeds
                ]
                stored = [read_object(path)["rows"] for path in paths if path.exists()]
                rows = list(itertools.chain(*stored))
                _draw(axis, rows, form, drawing.Line(f"C{number}", kind, width=1.3))
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.tick_params(labelsize=7)
            drawing.plain(axis)
    for axis, model in zip(axes[0], config.models, strict=True):
        axis.set_title(model, fontsize=9)
    for axis in axes[-1]:
        axis.set_xlabel("points n", fontsize=8)
    axes[0, 0].legend(frameon=False, fontsize=7)
    return figure


def _draw(axis: Any, rows: Rows, form: str, line: drawing.Line) -> None:
    """Draws medians, and after training the range of layers, heads and seeds."""
    for state, mine in groups(rows, "state").items():
        values, points = column(mine, form).T, mine[0]["points"]
        if state == "after":
            line.draw_range(axis, points, list(values))
        else:
            dotted = line._replace(label=None, dash=":")
            dotted.draw(axis, points, np.median(values, axis=1))
