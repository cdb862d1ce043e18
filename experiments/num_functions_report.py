"""Tables and the figure of the numbers of functions."""

from typing import Any

import numpy as np

from opjax import learn
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, number, table

_LABELS = {
    "galerkin": "Galerkin",
    "linear": "linear",
    "functional": "functional, linear bases",
    "functional_softmax": "functional, softmax bases",
}


def report(finished: learn.Finished) -> learn.Report:
    """Tables of errors and of gates, and the figure."""
    config = finished.config
    rows = {
        one: finished.results[name][0] for (name, _), one in config.members().items()
    }
    parts = ["## Error, divided by the smallest error of any operator of rank k\n"]
    headings = ["attention", "k", *(f"n = {n}" for n in config.num_points)]
    lines = []
    for model in config.models:
        for rank in config.ranks:
            mine = [r for m, r in rows.items() if (m.model, m.rank) == (model, rank)]
            ratios = [np.array(row["errors"]) / row["best"] for row in mine]
            cells = [median_and_range(ratio, digits=3) for ratio in ratios]
            lines.append([_LABELS[model], str(rank), *cells])
    parts.append(table(headings, lines))
    parts.append("## Smallest error of any operator of rank k\n")
    lines = []
    for rank in config.ranks:
        mine = [
            r for m, r in rows.items() if (m.model, m.rank) == (config.models[0], rank)
        ]
        lines.append([str(rank), *(number(row["best"]) for row in mine)])
    parts.append(table(["k", *headings[2:]], lines))
    parts.append("## Functions that gates keep\n")
    lines = [
        [
            f"{member.penalty:g}",
            str(member.num_points),
            median_and_range(np.array(row["functions"]), digits=3),
            str(row["best_functions"]),
            median_and_range(np.array(row["errors"]), digits=3),
            number(row["best_penalized"]),
            median_and_range(np.array(row["smallest_rank"]), digits=3),
        ]
        for member, row in rows.items()
        if member.model == "gates"
    ]
    parts.append(
        table(
            [
                "penalty",
                "n",
                "functions kept",
                "best",
                "error",
                "best error",
                "fewest for that error",
            ],
            lines,
        )
    )
    drawing.save_lines(_figure(config, rows), finished.folder / "num_functions.png")
    names = {name: row[0]["relative_l2"] for name, row in finished.results.items()}
    result: dict[str, Any] = {
        **{f"relative_l2_{name}": value for name, value in names.items()},
        "seconds": finished.seconds,
        "seeds": list(config.seeds),
        "data": finished.source,
    }
    return learn.Report("\n".join(parts), result, _head(finished), alone=True)


def _head(finished: learn.Finished) -> str:
    config = finished.config
    return (
        f"Heads on n interior points, {config.num_modes} sine and cosine modes, "
        f"{config.num_steps} steps of {config.batch_size} right-hand sides. Errors are "
        "root weighted mean squares over all right-hand sides, median [smallest, "
        f"largest] over the seeds {','.join(map(str, config.seeds))}. Data: "
        f"{finished.source}."
    )


def _figure(config: Any, rows: dict[Any, dict[str, Any]]) -> Any:
    """Draws errors over k, a panel for each grid."""
    figure = drawing.new_figure(3.2 * len(config.num_points) + 0.5, 3.2, "constrained")
    axes = figure.subplots(1, len(config.num_points), squeeze=False, sharey=True)[0]
    for axis, n in zip(axes, config.num_points, strict=True):
        mine = {m: row for m, row in rows.items() if m.num_points == n}
        for place, model in enumerate(config.models):
            of_model = [(m.rank, r) for m, r in mine.items() if m.model == model]
            ranks = [rank for rank, _ in of_model]
            values = np.array([row["errors"] for _, row in of_model])
            line = drawing.Line(f"C{place}", _LABELS[model], width=1.3)
            line.draw(axis, ranks, np.median(values, axis=1))
            low, high = values.min(axis=1), values.max(axis=1)
            axis.fill_between(ranks, low, high, alpha=0.15, lw=0, color=line.color)
        best = [r["best"] for m, r in mine.items() if m.model == config.models[0]]
        drawing.Line("black", "best of rank k", dash=":").draw(axis, config.ranks, best)
        gates = [
            (k, e)
            for m, r in mine.items()
            if m.model == "gates"
            for k, e in zip(r["functions"], r["errors"], strict=True)
        ]
        axis.plot(*zip(*gates, strict=True), "kx", ms=4, label="gates")
        axis.set(xscale="log", yscale="log", title=f"n = {n}", xlabel="functions k")
        drawing.plain(axis)
    axes[0].set_ylabel("relative error")
    drawing.legend(axes[-1])
    return figure
