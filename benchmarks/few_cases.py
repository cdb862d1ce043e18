r"""The recipe for few cases, `--preset=small`, beside the default on our own problems.

    python -m benchmarks.few_cases --few_rows=few_cases.jsonl
    python -m benchmarks.few_cases --few_rows=few_cases.jsonl --few_page

Heat on random shapes is the smallest data set of our own. Flows around airfoils are
those of `experiments.airfoil` (Mach number) and `experiments.lift` (pressure, for an
angle and a Mach number), with their inputs, on coarser meshes. There are 54 cases to
train on, 6 to validate and 40 to test. Models have 32 channels, and otherwise all
that `opjax-train` has by default, or by `--preset=small`; steps and points are those of
the presets. Every row is written when it ends, and one that the file holds is not run
again. Baselines see the same 54 cases, see `opjax.learn.baselines`.

Errors are mean relative L2 errors of the test cases, in double precision.
"""

import dataclasses
import json
import pathlib
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks.provenance import provenance
from opjax import files, learn
from opjax.datasets import airfoil, heat, lift
from opjax.datasets.requests import Request
from opjax.learn.baselines.fitted import NAMES, Baselines
from opjax.learn.tables import median_and_range, table
from opjax.samples import Sample, Splits

_ROWS = flags.DEFINE_string("few_rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_bool("few_page", False, "Print the table, run nothing")
_PROBLEMS = flags.DEFINE_list(
    "few_problems", ["heat", "lift", "airfoil"], "Problems, in this order"
)
_SEEDS = flags.DEFINE_list("few_seeds", ["0", "1", "2"], "Seeds, in this order")
_SIZES = 54, 6, 40
_SOLVER = airfoil.Solver(num_airfoil=40, num_wake=10, num_radial=14)

Row = dict[str, Any]


def heat_splits(sizes: tuple[int, int, int]) -> Splits:
    """Returns heat on random shapes of 120 to 200 points."""
    first, second = sizes[0], sizes[0] + sizes[1]
    with tempfile.TemporaryDirectory() as folder:
        found = files.read(heat.write(folder, sum(sizes)))
    return Splits(found[:first], found[first:second], found[second:], "heat")


def lift_splits(sizes: tuple[int, int, int]) -> Splits:
    """Returns the pressure around airfoils at an angle and a Mach number."""
    return lift.splits(Request(*sizes), solver=_SOLVER)


def airfoil_splits(sizes: tuple[int, int, int]) -> Splits:
    """Returns the Mach number around airfoils."""
    return airfoil.splits(Request(*sizes), solver=_SOLVER)


PROBLEMS: dict[str, Callable[[tuple[int, int, int]], Splits]] = {
    "heat": heat_splits,
    "lift": lift_splits,
    "airfoil": airfoil_splits,
}


def trained(splits: Splits, preset: str, seed: int, **changes: Any) -> Row:
    """Trains once; returns the test error and the seconds of the processor."""
    config = learn.TRAIN_PRESETS[preset]
    config = dataclasses.replace(config, width=32, seeds=(seed,), **changes)
    start = time.process_time()
    found = learn.train(splits, config=config)
    seconds = time.process_time() - start
    error = _error(splits.test, [found(sample) for sample in splits.test])
    return {"seed": seed, "error": error, "seconds": seconds}


def baselines(splits: Splits) -> list[Row]:
    """Errors of what needs no training."""
    start = time.process_time()
    fitted = Baselines.fit(splits.train)
    found: list[Row] = []
    for name in fitted.names:
        predicted = [fitted.predict(name, sample) for sample in splits.test]
        error = _error(splits.test, predicted)
        found.append({"by": NAMES[name], "seed": 0, "error": error})
    return [row | {"seconds": time.process_time() - start} for row in found]


def page(rows: Sequence[Row]) -> str:
    """Returns the table: a row for each problem and what predicts."""
    lines: list[list[str]] = []
    for problem, by in dict.fromkeys((row["problem"], row["by"]) for row in rows):
        some = [row for row in rows if (row["problem"], row["by"]) == (problem, by)]
        cells = (
            median_and_range([row[key] for row in some], digits=3)
            for key in ("error", "seconds")
        )
        seeds = str(len(some)) if by.startswith("preset") else "–"
        lines.append([problem, by, seeds, *cells])
    return table(["problem", "by", "seeds", "test error", "CPU seconds"], lines)


def _error(cases: Sequence[Sample], predicted: Sequence[Any]) -> float:
    pairs = [
        (np.asarray(each, np.float64), np.asarray(case.target, np.float64))
        for case, each in zip(cases, predicted, strict=True)
    ]
    return float(np.mean([np.linalg.norm(p - t) / np.linalg.norm(t) for p, t in pairs]))


def main(argv: Sequence[str]) -> None:
    """Runs what the file lacks, or prints its table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    place = pathlib.Path(_ROWS.value)
    text = place.read_text() if place.exists() else ""
    rows: list[Row] = [json.loads(line) for line in text.splitlines()]
    if _PAGE.value:
        print(page(rows))
        return
    done = {(row["problem"], row["by"], row["seed"]) for row in rows}
    origin = {k: provenance(["jax"])[k] for k in ("commit", "hardware", "date")}

    def keep(problem: str, row: Row) -> None:
        with place.open("a") as file:
            file.write(json.dumps({"problem": problem} | row | origin) + "\n")

    made = {name: PROBLEMS[name](_SIZES) for name in _PROBLEMS.value}
    for seed in map(int, _SEEDS.value):
        for problem, splits in made.items():
            if (problem, NAMES["mean_field"], 0) not in done and seed == 0:
                for row in baselines(splits):
                    keep(problem, row)
            for preset in ("fast", "small"):
                by = f"preset {preset}"
                if (problem, by, seed) not in done:
                    keep(problem, {"by": by} | trained(splits, preset, seed))


if __name__ == "__main__":
    app.run(main)
