r"""Test error against CPU time, with all points of a mesh in a step and with few.

    python -m benchmarks.train_points --points_problem=elasticity \
        --points_runs="12:1 4:1 12:0.25 8:0.25,0.25,0.25,1" --points_file=points.json
    python -m benchmarks.train_points --points_file=points.json --points_page

Functional attention by the recipe `fast`, on samples of our own solvers. A run is
`epochs:shares`, shares as of --train_points. Every run has a learning rate that falls
to its own end, so that shorter runs are compared at their best. Processor time is that
of the steps; compilation is counted apart. The file grows by each run, and runs that it
holds are not made again.
"""

import dataclasses
import json
import pathlib
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags

from experiments import elasticity, pipe
from opjax.learn.cli import study
from opjax.learn.run import batches
from opjax.learn.run.batches import ArrayBatches
from opjax.learn.tables import median_and_range, table

_PROBLEM = flags.DEFINE_enum(
    "points_problem", "elasticity", ["elasticity", "pipe"], "Problem to learn"
)
_RUNS = flags.DEFINE_string(
    "points_runs", "", "Runs as epochs:fractions, separated by spaces"
)
_SEEDS = flags.DEFINE_list("points_seeds", ["0", "1", "2"], "Seeds of every run")
_SAMPLES = flags.DEFINE_integer("points_samples", 100, "Training samples", 2)
_FILE = flags.DEFINE_string("points_file", None, "JSON file of the runs", required=True)
_PAGE = flags.DEFINE_bool(
    "points_page", False, "Print the tables of the file without running anything"
)

_NUM_TEST = 50
_MAKE = {
    "elasticity": (elasticity.PRESETS["fast"], elasticity.PROGRAM.make_task),
    "pipe": (pipe.PRESETS["fast"], pipe.make_task),
}

Row = dict[str, Any]


def run(problem: str, epochs: int, shares: tuple[float, ...], seed: int) -> Row:
    """Trains functional attention once, and tests the model of the last step."""
    preset, make_task = _MAKE[problem]
    config = dataclasses.replace(
        preset,
        models=("functional",),
        seeds=(seed,),
        num_train=_SAMPLES.value,
        num_validation=0,
        num_test=_NUM_TEST,
        num_epochs=epochs,
        train_points=shares,
        convolution=False,  # needs the whole grid
    )
    (config,) = config.members().values()
    task = make_task(config, None)
    assert task.metric is not None
    source = ArrayBatches(task, task.settings(config))
    state = source.start(study.build(config, task))
    begin = time.process_time()
    source.prepare(state, 0)
    compiling, begin = time.process_time() - begin, time.process_time()
    step = 0
    while step < source.total:
        state, history = source.advance(state, step, None)
        step += len(np.asarray(history["loss"]))
    jax.block_until_ready(state)
    seconds = time.process_time() - begin
    errors = np.concatenate(
        [
            batches.evaluate(task.metric, state.model, bucket, batch_size=2)
            for bucket in task.test
        ]
    )
    return {
        "problem": problem,
        "epochs": epochs,
        "shares": shares,
        "seed": seed,
        "samples": _SAMPLES.value,
        "points": max(np.shape(b["mesh_points"])[1] for b in task.train),
        "steps": source.total,
        "seconds": seconds,
        "compile_seconds": compiling,
        "error": float(np.mean(errors)),
        "source": task.source,
    }


def text(rows: Sequence[Row]) -> str:
    """Returns a table for every problem, of medians and ranges over seeds."""
    found = ""
    for problem in dict.fromkeys(row["problem"] for row in rows):
        own = [row for row in rows if row["problem"] == problem]
        groups: dict[tuple[int, str], list[Row]] = {}
        for row in own:
            shares = ",".join(f"{share:g}" for share in row["shares"])
            groups.setdefault((row["epochs"], shares), []).append(row)
        lines = [
            [
                f"`{shares}`",
                str(epochs),
                str(group[0]["steps"]),
                str(len(group)),
                median_and_range([row["seconds"] for row in group]),
                median_and_range([row["compile_seconds"] for row in group]),
                median_and_range([row["error"] for row in group]),
            ]
            for (epochs, shares), group in groups.items()
        ]
        first = own[0]
        found += f"\n## {problem.capitalize()}, {first['points']} points\n\n"
        found += f"{first['samples']} training samples, {first['source']}.\n\n"
        heads = ["train_points", "epochs", "steps", "seeds", "seconds of steps"]
        found += table([*heads, "seconds of compilation", "test error"], lines) + "\n"
    return found


def _listed(runs: str) -> list[tuple[int, tuple[float, ...]]]:
    pairs = (one.split(":") for one in runs.split())
    return [(int(n), tuple(map(float, shares.split(",")))) for n, shares in pairs]


def main(argv: Sequence[str]) -> None:
    """Makes the runs that are missing, or prints the tables."""
    del argv
    file = pathlib.Path(_FILE.value)
    rows: list[Row] = json.loads(file.read_text()) if file.exists() else []
    if _PAGE.value:
        print(text(rows))
        return
    names = ("problem", "epochs", "shares", "seed", "samples")
    done = {json.dumps([row[name] for name in names]) for row in rows}
    for seed in map(int, _SEEDS.value):
        for epochs, shares in _listed(_RUNS.value):
            key = [_PROBLEM.value, epochs, shares, seed, _SAMPLES.value]
            if json.dumps(key) in done:
                continue
            rows.append(run(_PROBLEM.value, epochs, shares, seed))
            print(rows[-1], flush=True)
            file.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    app.run(main)
