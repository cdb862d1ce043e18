"""Table and figure of `benchmarks.scale` over the number of points.

    for n in 1024 4096 16384 65536; do
      python -m benchmarks.scale --points=$n --steps=3 | tail -1 >> scale.jsonl
    done
    python -m benchmarks.scale_page --lines=scale.jsonl --figure=results/scale.png

The file has the last line of every run. Prints a Markdown table.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from absl import app, flags

from opjax.learn.report import drawing
from opjax.learn.tables import table

HEADINGS = (
    "points",
    "mode",
    "us a point",
    "bytes a point",
    "peak, MiB",
    "exchanged, kB",
)
_PANELS = {
    "microseconds_per_point": "microseconds a point",
    "bytes_per_point": "temporary bytes a point",
    "peak_mib": "peak of the process, MiB",
}


def define_flags() -> None:
    """Defines the flags; not on import, since names are those of other benchmarks."""
    flags.DEFINE_string(
        "lines", None, "File with the last line of every run", required=True
    )
    flags.DEFINE_string("figure", None, "PNG file to write")


def measured(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Returns a row for every mode of every run, in the order of points.

    Raises:
      ValueError: if a line is not one of `benchmarks.scale`.
    """
    rows = []
    for number, line in enumerate(filter(str.strip, lines), 1):
        try:
            run = json.loads(line)
            found = [(mode, row) for mode, row in run["modes"].items()]
            points, dtype = run["points"], run.get("storage_dtype", "float32")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"Line {number} is no last line of a run: {error}"
            ) from None
        for mode, row in found:
            narrow = dtype != "float32" and mode != "dense"
            name = f"{mode}, {dtype}" if narrow else mode
            if mode == "sharded":
                name += f", {run['devices']} devices"
            rows.append({"points": points, "mode": name, **row})
    return sorted(rows, key=lambda row: row["points"])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Returns the table of rows."""
    cells = [
        [
            f"{row['points']:,}",
            row["mode"],
            f"{row['microseconds_per_point']:.0f}",
            f"{row['bytes_per_point']:,.0f}",
            f"{row['peak_mib']:,.0f}",
            f"{row.get('bytes_exchanged', 0) / 1e3:,.0f}",
        ]
        for row in rows
    ]
    return table(HEADINGS, cells)


def draw(rows: Sequence[dict[str, Any]], path: pathlib.Path) -> None:
    """Draws time and memory over the number of points, a line for every mode."""
    figure = drawing.new_figure(10, 3.2)
    axes = figure.subplots(1, len(_PANELS))
    for axis, (key, label) in zip(axes, _PANELS.items(), strict=True):
        for mode in dict.fromkeys(row["mode"] for row in rows):
            line = [(row["points"], row[key]) for row in rows if row["mode"] == mode]
            axis.plot(*zip(*line, strict=True), "o-", markersize=3, label=mode)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set(xlabel="points", ylabel=label)
        drawing.plain(axis)
    drawing.legend(axes[0])
    drawing.save(figure, path)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    given = flags.FLAGS
    rows = measured(pathlib.Path(given.lines).read_text().splitlines())
    print(markdown(rows))
    if given.figure:
        draw(rows, pathlib.Path(given.figure))


if __name__ == "__main__":
    define_flags()
    app.run(main)
