"""Tables and figure of the transfers between cells."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from experiments import domain_maps_baselines as baselines
from experiments import domain_maps_problem as problem
from experiments import studies
from experiments.domain_maps_models import MODELS
from experiments.studies import Row, across, column, groups, one_of, spread
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
    results = {name: row for name, (row,) in finished.results.items()}
    same, points = config.num_points, config.test_points
    figure = drawing.new_figure(10.5, 2.8 * len(config.settings) + 0.2, "constrained")
    axes = figure.subplots(len(config.settings), 2, squeeze=False, sharey="row")
    for setting, panels in zip(config.settings, axes, strict=True):
        rows = _rows(finished, setting)
        parts.append(f"## {_TITLES[setting]}\n")
        for axis, (end, other) in zip(panels, _ENDS, strict=True):
            lines = []
            methods = groups(groups(rows, other)[same], "method")
            for place, (name, mine) in enumerate(methods.items()):
                cells = across(mine, end, points)
                lines.append(
                    [name, *(spread(c, "error", 100, digits=3) for c in cells)]
                )
                dash = "-" if len(cells[0]) == len(config.seeds) else ":"
                curve = drawing.Line(f"C{place}", name, dash, 1.3)
                values = [column(cell, "error", 100) for cell in cells]
                curve.draw_range(axis, points, values)
            parts.append(f"By points of the {end}, {same} of the {other}:\n")
            parts.append(table(["method", *map(str, points)], lines))
            axis.set(xscale="log", yscale="log", title=setting)
            studies.ticks(axis, points)
            axis.set_xlabel(f"points of the {end}, {same} of the {other}")
            drawing.plain(axis)
        panels[0].set_ylabel("error in percent")
        drawing.legend(panels[1])
        lowest = {m: results[f"{m}_{setting}"]["best"] for m in config.models}
        lines = [
            [MODELS[model][0], median_and_range(one, 100, digits=3)]
            for model, one in lowest.items()
            if one
        ]
        parts.append(
            table(["method", f"best combination, {max(points)} points"], lines)
        )
    drawing.save_lines(figure, finished.folder / "domain_maps.png")
    head = (
        f"Trained with {same} points on both cells, {config.num_steps} steps of "
        f"{config.batch_size} pairs. Relative L2 errors in percent, means of "
        f"{config.num_test} unseen pairs and {config.num_functions} functions; median "
        f"[smallest, largest] of seeds {','.join(map(str, config.seeds))}. "
        f"{config.num_basis} basis functions, {config.probes} probes. "
        f"Data: {finished.source}."
    )
    result: dict[str, Any] = {name: one["relative_l2"] for name, one in results.items()}
    result["parameters"] = {name: one["parameters"] for name, one in results.items()}
    return studies.report(finished, parts, result, head)


def _rows(finished: learn.Finished, setting: str) -> list[Row]:
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


def untrained(config: "Config") -> list[Row]:
    """Rows of the baselines, on the pairs on which models are tested."""
    rows: list[Row] = []
    pairs = config.unseen()
    for source, target in config.meshes:
        cells = jax.device_get(problem.coarse(pairs, source, target))
        for name, method in baselines.methods(config.num_probes):
            errors = list[float]()
            for number in range(config.num_test):
                one, other = one_of(cells, number)
                moved = np.asarray(method(one, other), np.float32)
                errors.append(float(np.mean(problem.errors(moved, other))))
            where = {"source": source, "target": target, "method": name}
            rows.append(where | {"error": float(np.mean(errors))})
    return rows
