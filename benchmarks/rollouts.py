r"""Compares ways to train operators in time: error over the steps of a rollout.

    python -m benchmarks.rollouts --data=data/flow
    opjax-train --train=data/flow/train --test=data/flow/test --grid_axes=2 \
      --time=one_step --workdir=runs/one
    opjax-train --train=data/flow/train --test=data/flow/test --grid_axes=2 \
      --time=unrolled --workdir=runs/four
    python -m benchmarks.rollouts --rollouts=runs/one,runs/four \
      --labels=one,four --curves=results/time.png

With `--data` it writes series of a `--problem_in_time`, see
`benchmarks.rollouts_data`, and with `--baselines` it prints what predictions without an
operator reach on series that it has written, see `benchmarks.rollouts_baselines`. With
`--rollouts` it prints a Markdown table, medians and
ranges over the seeds, and draws the error over the steps of a rollout with persistence.
Runs of the same name are seeds of each other. Seconds of a run include those of the run
that it started from, by `--init_from`. With `--strip` it draws frames of the first test
flow, true, predicted and their difference, of the last run. With `--high_waves=5` it
also prints the growth of the error, and the share of the energy of rollouts on periodic
grids in wave numbers from 5 on, for the first member of every name.
"""

import json
import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import rollouts_baselines, rollouts_data
from opjax.files import ReadOptions
from opjax.files.series import read_series
from opjax.learn.predict import trained
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.learn.tasks import outcome
from opjax.metrics_time import radial_spectrum

_DATA = flags.DEFINE_string("data", None, "Folder to write the series to")
_PROBLEM = flags.DEFINE_enum(
    "problem_in_time", "flow", list(rollouts_data.WRITERS), "Problem of the series"
)
_BASELINES = flags.DEFINE_bool(
    "baselines", False, "Evaluate baselines on the series in --data"
)
_RUNS = flags.DEFINE_list("rollouts", [], "Folders of finished runs of opjax-train")
_NAMES = flags.DEFINE_list("labels", [], "Names of the runs, in their order")
_FIGURE = flags.DEFINE_string("curves", None, "PNG file to write")
_STRIP = flags.DEFINE_string("strip", None, "PNG file of frames to write")
_HIGH = flags.DEFINE_integer(
    "high_waves",
    0,
    "Minimum wave number of the high-frequency energy. 0 prints no table",
)
_STEPS = rollouts_data.STEPS
_ERRORS = (
    *("step 1", "step 10", f"step {_STEPS}", "all steps"),
    *("steps to correlation 0.8", f"drift at step {_STEPS}"),
)


def members(runs: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    """Folders of the members of runs, one for each seed.

    Raises:
      FileNotFoundError: if a run has none.
    """
    found: list[pathlib.Path] = []
    for run in runs:
        here = sorted(path.parent for path in run.glob("*/result.json"))
        if not here:
            raise FileNotFoundError(f"{run} has no finished members.")
        found += here
    return found


def seconds(member: pathlib.Path) -> float:
    """Seconds of training of a member, and of those that it started from."""
    own = json.loads((member / "result.json").read_text())["seconds"]
    start = json.loads((member / "config.json").read_text()).get("init_from")
    return own + (sum(map(seconds, members([pathlib.Path(start)]))) if start else 0)


def rows(runs: Mapping[str, Sequence[pathlib.Path]]) -> list[list[str]]:
    """Rows of the table: medians over the seeds, and ranges."""
    found: list[list[str]] = []
    for name, folders in runs.items():
        each = members(folders)
        results = [json.loads((f / "result.json").read_text()) for f in each]
        columns = ["step_1", "step_10", f"step_{_STEPS}", "relative_l2"]
        columns += ["correlation_steps", "drift"]
        values = [[float(one[c]) for one in results] for c in columns]
        times = median_and_range([seconds(f) for f in each], digits=3)
        found.append([name, str(len(each)), *map(median_and_range, values), times])
    still = float(results[0]["persistence"])
    mean = float(results[0]["mean"])
    for name, value in (("persistence", still), ("mean of training", mean)):
        found.append([name, "", "", "", "", f"{value:.3g}", "", "", ""])
    return found


def draw(runs: Mapping[str, Sequence[pathlib.Path]]) -> Any:
    """Draws medians and ranges over the seeds of the error of every step."""
    figure = drawing.new_figure(7, 4, "constrained")
    axis = figure.subplots()
    for name, folders in runs.items():
        curves = [outcome.read(f).arrays for f in members(folders)]
        errors = np.stack([one["series"].mean(axis=0) for one in curves])
        steps = np.arange(1, errors.shape[1] + 1)
        (line,) = axis.plot(steps, np.median(errors, axis=0), label=name)
        ends = errors.min(axis=0), errors.max(axis=0)
        axis.fill_between(steps, *ends, color=line.get_color(), alpha=0.25, lw=0)
    still = curves[0]["series_baseline"]
    axis.plot(steps, still, "k--", label="persistence", linewidth=1)
    axis.set(yscale="log", xlabel="step", ylabel="relative L2 error")
    drawing.plain(axis)
    drawing.legend(axis)
    return figure


def high_share(values: np.ndarray, grid_shape: tuple[int, ...], lowest: int) -> float:
    """Share of the energy of a field on a periodic grid from a wave number on."""
    energies = np.asarray(radial_spectrum(values, grid_shape=grid_shape))
    return float(energies[lowest:].sum() / energies.sum())


def growth(
    name: str, run: pathlib.Path, lowest: int, *, shown: Sequence[int] = (10, _STEPS)
) -> list[list[str]]:
    """Rows of the growth of errors and of high wave numbers, and those of the truth.

    Args:
      name: of the run.
      run: its folder; of several members the first one.
      lowest: wave number from which energy counts as high.
      shown: steps, the last one of which is that of the growth.
    """
    found = trained.load(run)
    config = found.description.config
    files = sorted(pathlib.Path(config["test"]).glob("*.npz"))[:4]
    several = read_series(files, ReadOptions(grid_axes=config["grid_axes"])).series
    errors = outcome.read(members([run])[0]).arrays["series"].mean(axis=0)
    predicted, true = [], []
    for series in several:
        frames = list(found.rollout(series, max(shown)))
        share = partial(high_share, grid_shape=series.grid_shape, lowest=lowest)
        predicted.append([share(frames[step - 1][:, 0]) for step in shown])
        true.append([share(series.values[step][:, 0]) for step in shown])
    most = f"{errors[max(shown) - 1] / errors[0]:.1f}"
    rows = {(name, most): predicted, ("truth", ""): true}
    return [
        [*head, *(f"{100 * x:.2g} %" for x in np.mean(shares, axis=0))]
        for head, shares in rows.items()
    ]


def strip(run: pathlib.Path, shown: Sequence[int] = (1, 10, 25, _STEPS)) -> Any:
    """Draws frames of the first test flow: true, predicted, and their difference."""
    found = trained.load(run)
    config = found.description.config
    file = sorted(pathlib.Path(config["test"]).glob("*.npz"))[0]
    (series,), _ = read_series(file, ReadOptions(grid_axes=2))
    frames = list(found.rollout(series, max(shown)))
    figure = drawing.new_figure(2.2 * len(shown), 6)
    axes = figure.subplots(3, len(shown), sharex=True, sharey=True)
    truths = np.stack([series.values[step][:, 0] for step in shown])
    most = float(np.abs(truths).max())
    for column, (step, truth) in enumerate(zip(shown, truths, strict=True)):
        predicted = frames[step - 1][:, 0]
        pictures = {"true": truth, "predicted": predicted}
        pictures["difference"] = predicted - truth
        for row, (name, values) in enumerate(pictures.items()):
            axis = axes[row, column]
            image = drawing.field(
                axis,
                series.mesh_points,
                values,
                grid_shape=series.grid_shape,
                colours=drawing.Colours("RdBu_r", -most, most),
            )
            axis.set(xticks=[], yticks=[], title=f"step {step}" * (row == 0))
            if column == 0:
                axis.set_ylabel(name)
    drawing.add_colorbar(figure, image, axes)
    return figure


def main(argv: Sequence[str]) -> None:
    """Writes data, or the table and the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if _DATA.value and _BASELINES.value:
        found = rollouts_baselines.rows(_PROBLEM.value, pathlib.Path(_DATA.value))
        print(table(["baseline", *_ERRORS, "processor seconds a case"], found))
        return
    if _DATA.value:
        write = rollouts_data.WRITERS[_PROBLEM.value]
        write(pathlib.Path(_DATA.value), rollouts_data.COUNTS[_PROBLEM.value])
        return
    if not _RUNS.value or len(_RUNS.value) != len(_NAMES.value):
        raise app.UsageError("Give --data, or --rollouts and as many --labels.")
    runs: dict[str, list[pathlib.Path]] = {}
    for name, run in zip(_NAMES.value, _RUNS.value, strict=True):
        runs.setdefault(name, []).append(pathlib.Path(run))
    print(table(["training", "seeds", *_ERRORS, "seconds"], rows(runs)))
    if _HIGH.value:
        pairs = [(name, of[0]) for name, of in runs.items()]
        each = [growth(name, run, _HIGH.value) for name, run in pairs]
        head = ["training", f"error at step {_STEPS} / step 1", "high at step 10"]
        print(
            table([*head, f"at step {_STEPS}"], [one for one, _ in each] + each[0][1:])
        )
    if _FIGURE.value:
        drawing.save_lines(draw(runs), _FIGURE.value, dpi=80, colours=64)
    if _STRIP.value:
        picture = strip(pathlib.Path(_RUNS.value[-1]))
        drawing.save_lines(picture, _STRIP.value, dpi=55, colours=128)


if __name__ == "__main__":
    app.run(main)
