r"""Losses of several fields: what weighs them equally, and what it costs each of them.

    python -m benchmarks.fields --cases=FOLDER --rows=fields.jsonl
    python -m benchmarks.fields --rows=fields.jsonl --page

Functional attention by the recipe `fast`, with 32 channels in three layers and a part
of the points in each step. `FOLDER` has `plates/train`, `plates/test`,
`cylinders/train` and `cylinders/new`, the files of two solvers, see
`results/fields.md`; without it our own problem alone is run: displacement, in
micrometres, and stress of rubber cells with a void. Every row is written when it ends,
and a row that the file holds is not run again.

Errors are of the test cases, from predictions in physical units: the relative L2 error
of every field, and its root mean square error over the spread of the field in the
training cases.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks.provenance import provenance
from opjax import files, learn
from opjax.learn.tables import median_and_range, table
from opjax.problems import elasticity
from opjax.samples import Sample, Splits, fields

_CASES = flags.DEFINE_string("cases", "", "Folder of the cases of solvers")
_ROWS = flags.DEFINE_string("rows", None, "File of the rows", required=True)
_PAGE = flags.DEFINE_bool(
    "page", False, "Print the table of the rows without running anything"
)
_PROBLEMS = flags.DEFINE_list(
    "problems", ["cells", "stress", "cylinders", "plates"], "Problems, in this order"
)
_LOSSES = flags.DEFINE_list(
    "losses", ["case", "spread", "relative", "joint"], "Losses, see opjax-train"
)
_SEEDS = flags.DEFINE_list("seeds", ["0", "1", "2"], "Seeds of every run")
_SMALL = flags.DEFINE_bool(
    "small", False, "Use few cells and one epoch, to try the program"
)

Row = dict[str, Any]


def cells() -> Splits:
    """Returns rubber cells with a void: displacement in micrometres, stress in Pa."""
    mesh = elasticity.reference_mesh(num_around=24, num_across=3)
    found: list[Sample] = []
    for number in range(8 if _SMALL.value else 96):
        modes = np.asarray(elasticity.void_modes(jax.random.key(number)))
        solution = elasticity.solve(elasticity.morphed_mesh(mesh, modes))
        stress = elasticity.von_mises(solution.stress)[:, None]
        target = np.concatenate([1e6 * solution.displacement, 1e3 * stress], axis=1)
        found.append(Sample(solution.points, target, name=f"cell {number}"))
    ends = (4, 6) if _SMALL.value else (56, 64)
    names = {"target": ("U", "U", "S_Mises")}
    return _splits(found[: ends[1]], found[ends[1] :], ends[0], names)


def stress() -> Splits:
    """Returns the same cells with one field: what the loss does where it is alone."""
    found = cells()
    parts = (
        [sample._replace(target=sample.target[:, 2:]) for sample in part]  # pyright: ignore
        for part in found[:3]
    )
    return Splits(*parts, found.source, channels={"target": ("S_Mises",)})


def plates() -> Splits:
    """Returns the plates of CalculiX: displacement in millimetres, stress in MPa."""
    names, scalars = ("U", "U", "U", "S_Mises"), ("load", "angle", "modulus")
    return _solvers("plates", ("train", "test"), "U,S_Mises", names, scalars, "points")


def cylinders() -> Splits:
    """Returns the flows of OpenFOAM: pressure over density, and velocity."""
    parts, names = ("train", "new"), ("p", "U", "U", "U")
    return _solvers("cylinders", parts, "p,U", names, ("Uin",), "cells")


def _solvers(
    folder: str,
    parts: tuple[str, str],
    target: str,
    names: tuple[str, ...],
    scalars: tuple[str, ...],
    location: str,
) -> Splits:
    train, test = (
        files.read(
            pathlib.Path(_CASES.value) / folder / part,
            files.ReadOptions(target=target, scalars=scalars, location=location),
        )
        for part in parts
    )
    named = {"target": names, "scalars": scalars}
    return _splits(train, test[:12], len(train) - len(train) // 10, named)


def _splits(
    known: Sequence[Sample],
    test: Sequence[Sample],
    num_train: int,
    names: dict[str, tuple[str, ...]],
) -> Splits:
    train, validation = known[:num_train], known[num_train:]
    return Splits(train, validation, test, "cases of a solver", channels=names)


PROBLEMS: dict[str, tuple[Callable[[], Splits], dict[str, Any]]] = {
    "cells": (cells, {"num_epochs": 40}),
    "stress": (stress, {"num_epochs": 40}),
    "cylinders": (cylinders, {"num_epochs": 40, "train_points": (0.25,)}),
    "plates": (plates, {"num_epochs": 40, "train_points": (0.25,)}),
}


def run(name: str, splits: Splits, loss: str, seed: int) -> Row:
    """Trains once, and measures each field of the predictions for the test cases."""
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["fast"],
        width=32,
        num_layers=3,
        num_heads=4,
        num_basis=32,
        num_buckets=1,
        loss=loss,
        seeds=(seed,),
        **PROBLEMS[name][1],
    )
    if _SMALL.value:
        config = dataclasses.replace(config, num_epochs=1)
    start = time.process_time()
    trained = learn.train(splits, config=config)
    row: Row = {"problem": name, "loss": loss, "seed": seed}
    row["seconds"] = time.process_time() - start
    pairs = [(trained(sample), sample.target) for sample in splits.test]
    targets = np.concatenate([sample.target for sample in splits.train])  # pyright: ignore
    names = (splits.channels or {})["target"]
    for field, channels in fields.groups(names, targets.shape[1]):
        spread = np.linalg.norm(targets[:, channels].astype(np.float64).std(axis=0))
        errors = np.array([_errors(p, t, channels) for p, t in pairs])
        row[field] = float(np.mean(errors[:, 0] / errors[:, 1]))
        row[f"{field} over spread"] = float(np.mean(errors[:, 0]) / spread)
    return row


def _errors(predicted: Any, target: Any, channels: list[int]) -> tuple[float, float]:
    """Root mean squares of the error and of the target, in double precision."""
    p, t = (np.asarray(x, np.float64)[:, channels] for x in (predicted, target))
    return float(np.sqrt(np.mean(np.sum((p - t) ** 2, 1)))), float(
        np.sqrt(np.mean(np.sum(t**2, 1)))
    )


def page(rows: Sequence[Row]) -> str:
    """Returns a table of each problem."""
    parts: list[str] = []
    own = ("problem", "loss", "seed", "seconds", "commit", "hardware", "date")
    for name in dict.fromkeys(row["problem"] for row in rows):
        some = [row for row in rows if row["problem"] == name]
        columns = [key for key in some[0] if key not in own]
        lines: list[list[str]] = []
        for loss in dict.fromkeys(row["loss"] for row in some):
            chosen = [row for row in some if row["loss"] == loss]
            cells = [
                median_and_range([r[c] for r in chosen], digits=3) for c in columns
            ]
            seconds = median_and_range([r["seconds"] for r in chosen], digits=3)
            lines.append([loss, str(len(chosen)), *cells, seconds])
        heads = ["loss", "seeds", *columns, "CPU seconds"]
        parts.append(f"## {name.capitalize()}\n\n{table(heads, lines)}")
    return "\n".join(parts)


def main(argv: Sequence[str]) -> None:
    """Runs what the file lacks, or prints its tables."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    place = pathlib.Path(_ROWS.value)
    text = place.read_text() if place.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    if _PAGE.value:
        print(page(rows))
        return
    done = {(row["problem"], row["loss"], row["seed"]) for row in rows}
    origin = {k: provenance(["jax"])[k] for k in ("commit", "hardware", "date")}
    for name in _PROBLEMS.value:
        if name in ("cylinders", "plates") and not _CASES.value:
            continue
        splits = PROBLEMS[name][0]()
        for seed in map(int, _SEEDS.value):
            for loss in _LOSSES.value:
                if (name, loss, seed) in done:
                    continue
                row = run(name, splits, loss, seed) | origin
                with place.open("a") as file:
                    file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    app.run(main)
