"""Table and figure of the scaling program."""

import pathlib
import statistics
from collections.abc import Sequence
from typing import Any

from opjax.learn.drawing import new_figure, save
from opjax.learn.folder import write_json, write_text
from opjax.learn.provenance import provenance
from opjax.learn.tables import table

PASSES = ("forward", "gradient")


def write(
    folder: pathlib.Path,
    config: Any,
    rows: Sequence[dict[str, Any]],
    found: dict[str, Any],
    *,
    seconds: float,
) -> None:
    """Writes `tables.md`, `measurements.json` and `scaling.png`.

    Args:
      folder: of the run.
      config: of the run.
      rows: as from `scaling.measure`.
      found: slopes and milliseconds.
      seconds: wall time of all measurements.
    """
    write_json(folder / "measurements.json", {"rows": list(rows)})
    parts = [
        "# Cost of attention layers\n",
        f"One layer with one head and its projections, d = {config.features}, "
        f"k = {config.num_basis} (basis functions, landmarks or random features), one "
        f"sample, float32. Median of {config.repeats} rounds in which the layers take "
        "turns. Gradient: in parameters and input, forward pass included. Memory: "
        "temporary arrays of the compiled program, without arguments and results. "
        f"Slopes are fitted from n = {2**config.fit_log2} on.\n",
        provenance(folder, seconds=seconds),
    ]
    for kind in PASSES:
        parts += [f"## {kind.capitalize()}, milliseconds\n", _times(rows, kind, found)]
    for kind in PASSES:
        parts += [f"## {kind.capitalize()}, MiB\n", _memory(rows, kind)]
    write_text(folder / "tables.md", "\n".join(parts))
    _draw(folder / "scaling.png", rows)


def _times(rows: Sequence[dict[str, Any]], kind: str, found: dict[str, float]) -> str:
    prefix = "slope_" if kind == "forward" else "slope_gradient_"

    def last(name):
        value = found[prefix + name]
        return "" if value is None else f"{value:.2f}"

    def cell(row):
        return f"{statistics.median(row[kind]['ms']):.3g}"

    return _by_size(rows, cell, {"slope": last})


def _memory(rows: Sequence[dict[str, Any]], kind: str) -> str:
    return _by_size(rows, lambda row: f"{row[kind]['bytes'] / 2**20:.3g}", {})


def _by_size(rows: Sequence[dict[str, Any]], cell: Any, more: dict[str, Any]) -> str:
    sizes = sorted({row["points"] for row in rows})
    names = list(dict.fromkeys(row["attention"] for row in rows))
    cells = {(row["attention"], row["points"]): cell(row) for row in rows}
    lines = [
        [
            name,
            *(cells.get((name, n), "") for n in sizes),
            *(f(name) for f in more.values()),
        ]
        for name in names
    ]
    return table(["layer", *map(str, sizes), *more], lines)


def _draw(path: pathlib.Path, rows: Sequence[dict[str, Any]]) -> None:
    figure = new_figure(11.0, 7.0)
    axes = figure.subplots(2, 2, sharex=True)
    names = list(dict.fromkeys(row["attention"] for row in rows))
    for column, kind in enumerate(PASSES):
        for k, name in enumerate(names):
            mine = [row for row in rows if row["attention"] == name]
            points = [row["points"] for row in mine]
            style = {
                "color": f"C{k}" if k < 10 else "black",
                "linewidth": 2.4 if name == "functional" else 1.1,
                "marker": "o",
                "markersize": 3,
                "label": name,
            }
            times = [statistics.median(row[kind]["ms"]) for row in mine]
            axes[0, column].loglog(points, times, base=2, **style)
            memory = [max(row[kind]["bytes"], 1) / 2**20 for row in mine]
            axes[1, column].loglog(points, memory, base=2, **style)
        axes[0, column].set(title=kind, ylabel="milliseconds")
        axes[1, column].set(xlabel="points n", ylabel="temporary MiB")
    for axis in axes.flat:
        axis.grid(alpha=0.3)
        axis.set_yscale("log", base=10)
    axes[0, 0].legend(fontsize=8, ncols=2)
    save(figure, path)
