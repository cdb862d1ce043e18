"""Table and figure of errors against the ridge and against the scale of logits."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from experiments.ridge import Config

_COLUMNS = {"error": "test error, x 100", "train_error": "training error, x 100"}


def report(finished: learn.Finished) -> learn.Report:
    """A table for each problem, and the figure."""
    config = finished.config
    rows = {
        (problem, name): [
            {**row, "setting": float(row["setting"])}
            for row in finished.results[f"{problem}_{name}"][0]["rows"]
        ]
        for problem in config.problems
        for name in config.maps
    }
    parts: list[str] = []
    for problem in config.problems:
        lines = [
            [f"{name} {setting:g}" if len(settings) > 1 else name]
            + [median_and_range(100 * _values(mine, setting, key)) for key in _COLUMNS]
            for name in config.maps
            for mine in [rows[problem, name]]
            for settings in [_settings(mine)]
            for setting in settings
        ]
        headings = ["map and setting", *_COLUMNS.values()]
        parts += [f"## {problem.capitalize()}\n", table(headings, lines)]
    drawing.save_lines(_figure(config, rows), finished.folder / "ridge.png")
    summary = {
        **{name: result["error"] for name, (result,) in finished.results.items()},
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return learn.Report("\n".join(parts), summary, _head(finished), alone=True)


def _head(finished: learn.Finished) -> str:
    config = finished.config
    return (
        f"Relative L2 errors, median [smallest, largest] of the seeds "
        f"{','.join(map(str, config.seeds))}. {config.width} channels, "
        f"{config.num_layers} layers, {config.num_heads} heads, {config.num_basis} "
        f"basis functions, {config.num_train} training and {config.num_test} test "
        f"samples, {config.num_steps} steps of {config.batch_size}. "
        f"Data: {finished.source}."
    )


def _settings(rows: Sequence[dict[str, Any]]) -> list[float]:
    return list(dict.fromkeys(row["setting"] for row in rows))


def _values(rows: Sequence[dict[str, Any]], setting: float, key: str) -> np.ndarray:
    return np.array([row[key] for row in rows if row["setting"] == setting], float)


def _figure(
    config: "Config", rows: Mapping[tuple[str, str], list[dict[str, Any]]]
) -> Any:
    """Draws test errors: a row for each problem, ridges left and scales right."""
    count = len(config.problems)
    figure = drawing.new_figure(8, 2.7 * count, "constrained")
    axes = figure.subplots(count, 2, squeeze=False, sharey="row")
    labels = {
        "functional": "ridge / mean eigenvalue",
        "softmax": "factor of the logits",
    }
    for line, problem in zip(axes, config.problems, strict=True):
        for axis, (name, label) in zip(line, labels.items(), strict=True):
            axis.set(xscale="log", xlabel=label, title=f"{problem}, {name}")
            _draw(axis, rows.get((problem, name), []), "C0", name)
            flat = rows.get((problem, "galerkin"), [])
            _draw(axis, flat, "C1", "Galerkin")
            drawing.plain(axis)
        line[0].set_ylabel("test error, x 100")
    drawing.legend(axes[0, 0])
    return figure


def _draw(axis: "Axes", rows: Sequence[dict[str, Any]], color: str, name: str) -> None:
    """Draws medians and ranges; one setting without a scale as a band."""
    settings = _settings(rows)
    values = {s: 100 * _values(rows, s, "error") for s in settings}
    if len(settings) == 1 or settings[-1:] == [float("inf")]:
        last = values[settings[-1]]
        flat = "C1" if len(settings) == 1 else "C2"
        label = name if len(settings) == 1 else "ridge = inf"
        axis.axhspan(last.min(), last.max(), alpha=0.15, lw=0, color=flat)
        axis.axhline(np.median(last), color=flat, lw=1.3, ls="--", label=label)
    finite = [s for s in settings if np.isfinite(s)]
    if len(finite) > 1:
        line = drawing.Line(color, name, width=1.3)
        line.draw_range(axis, finite, [values[s] for s in finite])
