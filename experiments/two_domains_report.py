"""Table and figure of functions carried between two cells."""

from typing import Any

import numpy as np

from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, number, table

_LABELS = {
    "functional": "functional, means",
    "functional_fit": "functional, least squares",
    "galerkin": "Galerkin",
    "softmax": "softmax",
}
_SIDES = {"source": "points of keys and values", "target": "points of queries"}


def report(finished: learn.Finished) -> learn.Report:
    """Tables of errors by the points of either mesh, and the figure."""
    config = finished.config
    results = {name: rows[0] for name, rows in finished.results.items()}
    baselines = next(iter(results.values()))["baselines"]
    parts = []
    for side, title in _SIDES.items():
        parts.append(f"## Relative L2 error by {title}\n")
        lines = [
            [
                _LABELS[name],
                f"{row['parameters'] // len(config.seeds):,}",
                *(
                    median_and_range(np.array(row["errors"][f"{side}_{n}"]), digits=3)
                    for n in config.eval_points
                ),
            ]
            for name, row in results.items()
        ]
        if side == "source":
            for name in baselines[str(config.eval_points[0])]:
                cells = [number(baselines[str(n)][name]) for n in config.eval_points]
                lines.append([name, "–", *cells])
        headings = [f"n = {n}" for n in config.eval_points]
        parts.append(table(["attention", "parameters", *headings], lines))
    drawing.save_lines(_figure(config, results), finished.folder / "two_domains.png")
    result: dict[str, Any] = {
        **{f"relative_l2_{name}": row["relative_l2"] for name, row in results.items()},
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    head = (
        f"Heads with {config.num_basis} functions, trained on pairs of meshes of "
        f"{config.num_points} points, {config.num_steps} steps of {config.batch_size} "
        f"fresh pairs. Mean relative L2 errors on {config.num_test} unseen pairs, "
        "median [smallest, largest] over the seeds "
        f"{','.join(map(str, config.seeds))}; the other mesh has {config.num_points} "
        f"points. Data: {finished.source}."
    )
    return learn.Report("\n".join(parts), result, head, alone=True)


def _figure(config: Any, results: dict[str, dict[str, Any]]) -> Any:
    """Draws errors over the points of either mesh."""
    figure = drawing.new_figure(7.5, 3.2, "constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (side, title) in zip(axes, _SIDES.items(), strict=True):
        for place, (name, row) in enumerate(results.items()):
            values = np.array(
                [row["errors"][f"{side}_{n}"] for n in config.eval_points]
            )
            line = drawing.Line(f"C{place}", _LABELS[name], width=1.3)
            line.draw(axis, config.eval_points, np.median(values, axis=1))
            low, high = values.min(axis=1), values.max(axis=1)
            axis.fill_between(
                config.eval_points, low, high, alpha=0.15, lw=0, color=line.color
            )
        axis.set(xscale="log", yscale="log", xlabel=title)
        drawing.plain(axis)
    axes[0].set_ylabel("relative error")
    drawing.legend(axes[1])
    return figure
