"""Tables and figure of the transfers between cells."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from experiments import domain_maps_baselines as baselines
from experiments import domain_maps_problem as problem
from experiments.domain_maps_models import MODELS
from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table

if TYPE_CHECKING:
    from experiments.domain_maps import Config

_TITLES = {
    "geometry": "The geometry shows the map",
    "probes": "Probes show the map",
}
_ENDS = (("source", "target"), ("target", "source"))


def report(finished: learn.Finished) -> learn.Report:
    """Tables of the errors by numbers of points, and the figure."""
    config, parts = finished.config, list[str]()
    by_setting = {name: _rows(finished, name) for name in config.settings}
    same = config.num_points
    for setting, rows in by_setting.items():
        parts.append(f"## {_TITLES[setting]}\n")
        for end, other in _ENDS:
            parts.append(f"By points of the {end}, {same} of the {other}:\n")
            parts.append(_table(rows, end, config))
        lowest = {
            MODELS[model][0]: finished.results[f"{model}_{setting}"][0]["best"]
            for model in config.models
        }
        lines = [
            [name, median_and_range(100 * np.array(one), digits=3)]
            for name, one in lowest.items()
            if one
        ]
        finest = max(config.test_points)
        parts.append(table(["method", f"best combination, {finest} points"], lines))
    figure = _figure(by_setting, config)
    drawing.save_lines(figure, finished.folder / "domain_maps.png")
    results = {name: rows[0] for name, rows in finished.results.items()}
    head = (
        f"Trained with {same} points on both cells, {config.num_steps} steps of "
        f"{config.batch_size} pairs. Relative L2 errors in percent, means of "
        f"{config.num_test} unseen pairs and {config.num_functions} functions; median "
        f"[smallest, largest] of seeds {','.join(map(str, config.seeds))}. "
        f"{config.num_basis} basis functions, {config.probes} probes. "
        f"Data: {finished.source}."
    )
    summary = {name: row["relative_l2"] for name, row in results.items()} | {
        "parameters": {name: row["parameters"] for name, row in results.items()},
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return learn.Report("\n".join(parts), summary, head, alone=True)


def _rows(finished: learn.Finished, setting: str) -> list[dict[str, Any]]:
    """Rows of all methods in a setting, with their names."""
    config = finished.config
    rows = [
        row | {"method": MODELS[model][0]}
        for model in config.models
        for row in finished.results[f"{model}_{setting}"][0]["rows"]
    ]
    (member, *_) = (
        one for one in config.members().values() if one.settings == (setting,)
    )
    return rows + untrained(member)


def untrained(config: "Config") -> list[dict[str, Any]]:
    """Rows of the baselines, on the pairs on which models are tested."""
    rows: list[dict[str, Any]] = []
    pairs = config.unseen()
    for source, target in config.meshes:
        cells = jax.device_get(problem.coarse(pairs, source, target))
        for name, method in baselines.methods(config.num_probes):
            errors = list[float]()
            for number in range(config.num_test):
                one, other = (jax.tree.map(lambda a, i=number: a[i], c) for c in cells)
                moved = np.asarray(method(one, other), np.float32)
                errors.append(float(np.mean(problem.errors(moved, other))))
            where = {"source": source, "target": target, "method": name}
            rows.append(where | {"error": float(np.mean(errors))})
    return rows


def _along(
    rows: Sequence[dict[str, Any]], name: str, end: str, config: "Config"
) -> list[list[float]]:
    """Numbers of a method in percent, over the points of one end of the pairs."""
    same = config.num_points
    meshes = [(n, same) if end == "source" else (same, n) for n in config.test_points]
    return [
        [
            100 * row["error"]
            for row in rows
            if (row["method"], row["source"], row["target"]) == (name, *mesh)
        ]
        for mesh in meshes
    ]


def _methods(rows: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _table(rows: Sequence[dict[str, Any]], end: str, config: "Config") -> str:
    lines = [
        [
            name,
            *(
                median_and_range(one, digits=3)
                for one in _along(rows, name, end, config)
            ),
        ]
        for name in _methods(rows)
    ]
    return table(["method", *map(str, config.test_points)], lines)


def _figure(by_setting: dict[str, list[dict[str, Any]]], config: "Config") -> Any:
    """Draws errors over points, a row for each setting, a column for each end."""
    count = len(by_setting)
    figure = drawing.new_figure(10.5, 2.8 * count + 0.2, "constrained")
    axes = figure.subplots(count, 2, squeeze=False, sharey="row")
    for line, (setting, rows) in zip(axes, by_setting.items(), strict=True):
        for axis, (end, other) in zip(line, _ENDS, strict=True):
            for place, name in enumerate(_methods(rows)):
                values = _along(rows, name, end, config)
                dash = "-" if len(values[0]) == len(config.seeds) else ":"
                curve = drawing.Line(f"C{place}", name, dash, 1.3)
                curve.draw_range(axis, config.test_points, values)
            axis.set(xscale="log", yscale="log", title=setting)
            axis.set_xticks(config.test_points, list(map(str, config.test_points)))
            axis.minorticks_off()
            axis.set_xlabel(f"points of the {end}, {config.num_points} of the {other}")
            drawing.plain(axis)
        line[0].set_ylabel("error in percent")
        drawing.legend(line[1])
    return figure
