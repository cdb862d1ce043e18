"""The figure of `further`: medians over the seeds, bars from smallest to largest."""

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments.poisson_schwarz.further import STARTS
from experiments.poisson_schwarz.tables import Row, Rows
from experiments.studies import ticks
from opjax import schwarz
from opjax.learn.report.drawing import new_figure, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ERROR = "weighted MSE (population)"
SCALING_LABELS = {
    "none": "none (the paper)",
    "points": "$1/\\sqrt{n d_k}$, all points",
    "blocks": "$1/\\sqrt{n_i d_k}$, those of the block",
    "start": "start only, all points",
}


def draw(path: pathlib.Path, rows: Rows) -> None:
    """Draws the panels of all sections that there are."""
    panels: list[tuple[Any, Mapping[str, Row]]] = []
    for name, functions in _PANELS.items():
        panels += [(function, rows[name]) for function in functions if name in rows]
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(4.3 * columns, 3.4 * lines, "constrained")
    axes = figure.subplots(lines, columns, squeeze=False).flat
    for axis, (function, section) in zip(axes, panels, strict=False):
        function(axis, section)
        axis.title.set_fontsize(10)
        axis.tick_params(labelsize=8)
    for axis in list(axes)[len(panels) :]:
        axis.set_visible(False)
    save(figure, path)


def _by_rate(axis: "Axes", rows: Mapping[str, Row]) -> None:
    for kind, label in SCALING_LABELS.items():
        row = rows[f"{kind}_256"]
        rates = row.study.rates
        _curve(axis, rates, [row.values("weighted_mse", r) for r in rates], label)
    axis.set(xscale="log", xlabel="learning rate", title="Scaling, n = 256")
    _finish(axis, _ERROR)


def _initial(axis: "Axes", rows: Mapping[str, Row]) -> None:
    sizes = (256, 512, 1024)
    for kind, label in SCALING_LABELS.items():
        members = [rows[f"{kind}_{size}"] for size in sizes]
        values = [row.values("initial", row.study.rate) for row in members]
        _curve(axis, sizes, values, label)
    axis.set(xscale="log", xlabel="points n", title="Scaling, first batch")
    ticks(axis, sizes)
    _finish(axis, "initial loss", legend=False)


def _by_space(axis: "Axes", rows: Mapping[str, Row]) -> None:
    for i, start in enumerate(STARTS):
        of_start = {k: row for k, row in rows.items() if k.endswith(f", {start}")}
        uniform = [row for k, row in of_start.items() if "uniform" in k]
        setups: list[Any] = [row.study.setup for row in uniform]
        counts = [setup.coarse_hats for setup in setups]
        values = [row.values("weighted_mse", row.study.rate) for row in uniform]
        _curve(axis, counts, values, f"uniform hats, {start}", color=f"C{i}")
        others = {"interface": ("s", 7), "partition": ("^", 8), "none": ("x", 0)}
        for name, (marker, count) in others.items():
            row = next(row for k, row in of_start.items() if name in k)
            middle = np.median(row.values("weighted_mse", row.study.rate))
            label = f"{name}, {start}"
            axis.plot(count, middle, marker, color=f"C{i}", mfc="none", label=label)
    axis.set(xlabel="coarse functions", title="Coarse spaces, n = 256")
    _finish(axis, _ERROR)


def _dots(axis: "Axes", rows: Mapping[str, Row]) -> None:
    for i, row in enumerate(rows.values()):
        values = row.values("weighted_mse", row.study.rate)
        color = "C3" if row.study.setup.global_rank else "C0"
        axis.plot([values.min(), values.max()], [i, i], color=color, lw=2, alpha=0.5)
        axis.plot(np.median(values), i, "o", color=color, ms=4)
    axis.set_yticks(range(len(rows)), map(_shortened, rows))
    axis.invert_yaxis()
    axis.set(xscale="log", xlabel=_ERROR)
    plain(axis)
    axis.tick_params("y", labelsize=6)


def _coefficients(axis: "Axes", rows: Mapping[str, Row]) -> None:
    _dots(axis, {k: row for k, row in rows.items() if "our initialisation" in k})
    axis.set_title("$-(a u')' = f$, contrast 1000, our initialisation")


def _mesh_errors(axis: "Axes", rows: Mapping[str, Row]) -> None:
    _dots(axis, rows)
    axis.set_title("Triangles on an L, our initialisation by default")


def _mesh(axis: "Axes", rows: Mapping[str, Row]) -> None:
    setup: Any = next(iter(rows.values())).study.setup
    points, edges = setup.domain.mesh_points, setup.domain.elements.edges
    labels = schwarz.partition_graph(
        edges, num_points=len(points), num_subdomains=setup.num_subdomains
    )
    axis.plot(*points[edges].transpose(2, 1, 0), color="0.8", lw=0.4, zorder=0)
    axis.scatter(*points.T, c=labels * 7 % 20, cmap="tab20", s=6)
    axis.set_aspect("equal")
    axis.set_title(f"{len(points)} points, {setup.num_subdomains} parts")


_PANELS = {
    "scaling": (_by_rate, _initial),
    "coarse_spaces": (_by_space,),
    "coefficients": (_coefficients,),
    "mesh": (_mesh_errors, _mesh),
}


def _shortened(label: str) -> str:
    for part in ("Schwarz, ", ", our initialisation"):
        label = label.replace(part, "")
    return label.replace("channels 0", "channels").replace(", the", ",\nthe")


def _curve(
    axis: "Axes",
    x: Sequence[float],
    values: Sequence[np.ndarray],
    label: str,
    color: str | None = None,
) -> None:
    """Medians with bars; what diverged is left out."""
    values = [v[np.isfinite(v)] for v in values]
    kept = [i for i, v in enumerate(values) if v.size]
    middle = np.array([np.median(values[i]) for i in kept])
    low, high = (np.array([f(values[i]) for i in kept]) for f in (np.min, np.max))
    bars = np.stack([middle - low, high - middle])
    x = [x[i] for i in kept]
    axis.errorbar(
        x, middle, bars, capsize=2, marker="o", ms=3, lw=1.2, label=label, color=color
    )


def _finish(axis: "Axes", label: str, *, legend: bool = True) -> None:
    axis.set(yscale="log", ylabel=label)
    if legend:
        axis.legend(fontsize=6, frameon=False)
    plain(axis)
