r"""Compares ways to train operators in time: error over the steps of a rollout.

    python -m benchmarks.rollouts --data=data/flow
    opjax-train --train=data/flow/train --test=data/flow/test --grid_axes=2 \
      --time=one_step --workdir=runs/one_step
    python -m benchmarks.rollouts --runs=runs/one_step,runs/unrolled \
      --names=one step,four steps --figure=results/time.png

Without `--runs` it writes flows: the vorticity of smooth flows on a periodic square of
16 x 16 points, viscosity 1e-3, 51 frames one unit of time apart, from our solver with
64 x 64 points. With `--runs` it prints a Markdown table with medians and ranges over
the seeds, and draws the error over the steps of a rollout with persistence.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.learn.tasks import outcome
from opjax.problems import navier_stokes

_DATA = flags.DEFINE_string("data", None, "Folder to write the flows to")
_RUNS = flags.DEFINE_list("runs", [], "Folders of finished runs of opjax-train")
_NAMES = flags.DEFINE_list("names", [], "What the runs are called, in their order")
_FIGURE = flags.DEFINE_string("figure", None, "PNG file to write")
_POINTS, _STRIDE, _VISCOSITY, _STEPS = 64, 4, 1e-3, 50
_SPLITS = {"train": 100, "test": 8}


def write_flows(folder: pathlib.Path) -> None:
    """Writes flows from seeds of their own, one `.npz` file each."""
    force = navier_stokes.forcing(num_points=_POINTS)

    @jax.jit
    def flow(key: jax.Array) -> jax.Array:
        first = navier_stokes.initial_vorticity(key, num_points=_POINTS)
        later = navier_stokes.solve(
            first, force, viscosity=_VISCOSITY, num_frames=_STEPS
        )
        return jnp.concatenate([first[None], later])[:, ::_STRIDE, ::_STRIDE]

    number = 0
    for part, count in _SPLITS.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            frames = np.asarray(flow(jax.random.key(number)), np.float32)
            times = np.arange(_STEPS + 1.0)
            np.savez(folder / part / f"flow_{i:04d}.npz", target=frames, times=times)
            number += 1


def members(run: pathlib.Path) -> list[pathlib.Path]:
    """Folders of the members of a run, one for each seed.

    Raises:
      FileNotFoundError: if there is none.
    """
    found = sorted(path.parent for path in run.glob("*/result.json"))
    if not found:
        raise FileNotFoundError(f"{run} has no finished members.")
    return found


def rows(runs: Mapping[str, pathlib.Path]) -> list[list[str]]:
    """Rows of the table: medians over the seeds, and ranges."""
    found: list[list[str]] = []
    for name, run in runs.items():
        results = [json.loads((f / "result.json").read_text()) for f in members(run)]
        columns = ["step_1", "step_10", f"step_{_STEPS}", "persistence_steps"]
        values = [[float(one[c]) for one in results] for c in [*columns, "seconds"]]
        found.append([name, str(len(results)), *map(median_and_range, values)])
    return found


def draw(runs: Mapping[str, pathlib.Path], path: pathlib.Path) -> None:
    """Draws medians and ranges over the seeds of the error of every step."""
    plt = drawing.pyplot()
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, run in runs.items():
        curves = [outcome.read(f).arrays for f in members(run)]
        errors = np.stack([one["series"].mean(axis=0) for one in curves])
        steps = np.arange(1, errors.shape[1] + 1)
        (line,) = axes.plot(steps, np.median(errors, axis=0), label=name)
        axes.fill_between(
            steps,
            errors.min(axis=0),
            errors.max(axis=0),
            color=line.get_color(),
            alpha=0.25,
            linewidth=0,
        )
    still: Any = curves[0]["series_baseline"]
    axes.plot(np.arange(1, len(still) + 1), still, "k--", label="persistence")
    axes.set(yscale="log", xlabel="step", ylabel="relative $L^2$ error")
    axes.legend()
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str]) -> None:
    """Writes data, or the table and the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if _DATA.value:
        write_flows(pathlib.Path(_DATA.value))
        return
    if not _RUNS.value or len(_RUNS.value) != len(_NAMES.value):
        raise app.UsageError("Give --data, or --runs and as many --names.")
    runs = dict(zip(_NAMES.value, map(pathlib.Path, _RUNS.value), strict=True))
    head = ["training", "seeds", "step 1", "step 10", f"step {_STEPS}"]
    print(table([*head, "steps better than persistence", "seconds"], rows(runs)))
    if _FIGURE.value:
        draw(runs, pathlib.Path(_FIGURE.value))


if __name__ == "__main__":
    app.run(main)
