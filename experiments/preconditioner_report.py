"""Tables and figure of conjugate gradients with several preconditioners."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments import preconditioner_solvers as solvers
from experiments import studies
from experiments.studies import Rows, column, groups, select
from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table

_NAMES = {"grid": "grids", "void": "meshes around a void", "l_shape": "L-shaped meshes"}
_TITLES = {
    "Iterations": (1, ("iterations",)),
    "Milliseconds of set-up and iterations": (1000, ("setup", "seconds")),
}


def report(finished: learn.Finished) -> learn.Report:
    """Tables of iterations and seconds by domain, contrast and size, and the figure."""
    config = finished.config
    ((result,),) = finished.results.values()
    rows, parts = result["rows"], list[str]()
    for domain, contrast in itertools.product(config.test_domains, config.contrasts):
        mine = select(rows, domain=domain, contrast=contrast)
        headings = [f"n = {size:.0f}" for size in _sizes(mine)]
        for title, (scale, keys) in _TITLES.items():
            parts.append(f"## {title}, {_NAMES[domain]}, contrast {contrast:g}\n")
            lines = [
                [name, *(median_and_range(v, scale) for v in _values(own, keys))]
                for name, own in groups(mine, "method").items()
            ]
            parts.append(table(["preconditioner", *headings], lines))
    solved = [row for row in rows if row["residual"] <= 1.1 * solvers.TOLERANCE]
    drawing.save_lines(_figure(config, rows), finished.folder / "preconditioner.png")
    layers = f"{config.num_layers} layers of " if config.factors == "graph" else ""
    count = "" if config.domain == "grid" else f"{config.num_meshes} "
    multigrid = "algebraic multigrid" in groups(rows, "method")
    without = "" if multigrid else "pyamg is not installed. "
    head = (
        f"Operators with {config.factors} factors, {layers}width {config.width}, "
        f"boxes of {config.box_width} x "
        f"{config.box_width} points or parts of as many, overlap {config.overlap}, "
        f"rank {config.rank}, trained on {count}{_NAMES[config.domain]} with "
        f"{config.train_boxes**2} boxes and contrasts up to {config.max_contrast:g}, "
        f"{config.num_steps} steps of {config.batch_size}, learning rate "
        f"{config.learning_rate:g}. "
        f"Solves to {solvers.TOLERANCE:g}, {config.num_test} unseen coefficients, "
        f"seeds {','.join(map(str, config.seeds))}, median [smallest, largest]. "
        f"Times are CPU time. Of {len(rows)} solves, {len(rows) - len(solved)} did "
        f"not reach this residual in at most {solvers.MAX_ITERATIONS} iterations. "
        f"{without}Data: {finished.source}."
    )
    summary = {
        "iterations": result["iterations"],
        "unsolved": len(rows) - len(solved),
        "parameters": result["parameters"],
    }
    return studies.report(finished, parts, summary, head)


def _sizes(rows: Rows) -> list[float]:
    """Median numbers of unknowns, by number of boxes."""
    by_boxes = groups(rows, "boxes").values()
    return [float(np.median(column(mine, "unknowns"))) for mine in by_boxes]


def _values(rows: Rows, names: Sequence[str]) -> list[np.ndarray]:
    """Sums of columns, by number of boxes."""
    by_boxes = groups(rows, "boxes").values()
    return [np.sum([column(mine, n) for n in names], axis=0) for mine in by_boxes]


def _figure(config: Any, rows: Rows) -> Any:
    """Draws iterations over unknowns, panels for domains and contrasts."""
    domains, contrasts = config.test_domains, config.contrasts
    size = 2.2 * len(contrasts) + 1.8, 2.5 * len(domains) + 0.3
    figure = drawing.new_figure(*size, "constrained")
    shape = len(domains), len(contrasts)
    axes = figure.subplots(*shape, squeeze=False, sharey=True, sharex=True)
    for axis, pair in zip(
        axes.flat, itertools.product(domains, contrasts), strict=True
    ):
        mine = select(rows, domain=pair[0], contrast=pair[1])
        for place, (name, own) in enumerate(groups(mine, "method").items()):
            line = drawing.Line(f"C{place}", name, width=1.3)
            line.draw_range(axis, _sizes(mine), _values(own, ("iterations",)))
        axis.set(xscale="log", yscale="log", title=f"contrast {pair[1]:g}")
        drawing.plain(axis)
    for row, domain in zip(axes, domains, strict=True):
        row[0].set_ylabel(f"iterations\n{_NAMES[domain]}")
    for axis in axes[-1]:
        axis.set_xlabel("unknowns")
    drawing.legend(axes[0, -1])
    return figure
