r"""Compares widths of error bars at equal coverage.

    python -m benchmarks.uncertainty --bands_folder=bands --bands_figure=bands.png

Trains three seeds of functional attention on each problem, from our own solvers, and
predicts the held-out cases once. Then it divides these 20 times into calibration and
test cases. Widths are those of `opjax-calibrate`, and two more that were tried: an
ensemble whose floor is chosen on cases of their own, and the geometric mean of ensemble
and residual. Runs and predictions stay in the folder, so that a second call only
compares. It prints a Markdown table: means over the divisions, median [smallest,
largest] of the seeds.

- darcy: flow on 22 x 22 points, from solves with 43 x 43.
- elasticity: unit cells with a random void, 288 points.
- heat: the demonstration of `opjax-train`, 120 to 200 points scattered over random
  shapes.
"""

import dataclasses
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from opjax import files, learn, uncertainty
from opjax.datasets import darcy, elasticity, heat
from opjax.learn.predict import widths
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.samples import Sample, Splits

_FOLDER = flags.DEFINE_string("bands_folder", None, "Folder of runs and predictions")
_PROBLEMS = flags.DEFINE_list("bands_problems", [], "Problems; all by default")
_FIGURE = flags.DEFINE_string("bands_figure", None, "PNG file of reliability to write")
_COVERAGE, _DIVISIONS, _SEEDS = 0.9, 20, (0, 1, 2)
_TRAIN, _VALIDATION = 120, 8
_TUNE, _CALIBRATION, _TEST = 40, 150, 150
_FLOORS = (0.1, 0.3, 1.0, 3.0)
_EPOCHS = 40


class Known(NamedTuple):
    """What a seed of a problem predicts for the held-out cases.

    Attributes:
      operator: of this seed.
      predictions: its predictions, one for each case.
      others: those of the other seeds.
      seconds: of the predictions of this seed.
    """

    operator: learn.Trained
    predictions: list[np.ndarray]
    others: list[list[np.ndarray]]
    seconds: float


class Found(NamedTuple):
    """What a width is worth, each a mean over divisions.

    Attributes:
      coverage: share of test cases whose whole field lies inside.
      coverage_pointwise: share of points, with the band for points.
      width: mean width of the band for whole fields.
      rank_cases: rank correlation over cases of mean width and root mean square error.
      rank_points: mean over cases of that of width and error at the points.
      seconds: of a fit and of the widths of all cases, without predictions.
    """

    coverage: float
    coverage_pointwise: float
    width: float
    rank_cases: float
    rank_points: float
    seconds: float


def _darcy(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    return darcy.generate(
        count, seed=seed, num_points=43, stride=2, cache_dir=folder / "cache"
    )


def _elasticity(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    sizes = {"num_around": 16, "num_across": 2}
    return elasticity.generate(count, seed=seed, cache_dir=folder / "cache", **sizes)


def _heat(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    return files.read(str(heat.write(folder / f"heat-{seed}", count, seed=seed)))


PROBLEMS: dict[str, Callable[[int, int, pathlib.Path], list[Sample]]] = {
    "heat": _heat,
    "elasticity": _elasticity,
    "darcy": _darcy,
}


def train(
    splits: Splits, seed: int, folder: pathlib.Path, *, epochs: int = _EPOCHS
) -> learn.Trained:
    """Trains a small model by the recipe `fast`, or reads it."""
    sizes = {"width": 32, "num_layers": 3, "num_heads": 4, "num_basis": 16}
    config = dataclasses.replace(
        learn.TRAIN_PRESETS["fast"], **sizes, num_epochs=epochs, seeds=(seed,)
    )
    return learn.train(splits, config=config, workdir=folder)


def predict(
    operator: learn.Trained, cases: Sequence[Sample], path: pathlib.Path
) -> tuple[list[np.ndarray], float]:
    """Predictions for all cases, kept in a file, and their seconds."""
    if not path.is_file():
        operator(cases[0])  # compiles
        begin = time.monotonic()
        arrays = [operator(case) for case in cases]
        seconds = time.monotonic() - begin
        np.savez(path, *arrays, seconds=seconds)
    with np.load(path) as found:
        values = [found[f"arr_{i}"] for i in range(len(cases))]
        return values, float(found["seconds"])


def prepare(
    problem: str, folder: pathlib.Path, *, epochs: int = _EPOCHS
) -> tuple[list[Sample], list[Known]]:
    """Held-out cases of a problem, and what every seed predicts for them."""
    make = PROBLEMS[problem]
    seen = make(_TRAIN + _VALIDATION, 1, folder)
    cases = make(_TUNE + _CALIBRATION + _TEST, 2, folder)
    parts = seen[:_TRAIN], seen[_TRAIN:], cases[:2]  # no test errors are used
    splits = Splits(*parts, source="benchmarks.uncertainty")
    operators, predictions, seconds = [], [], []
    for seed in _SEEDS:
        place = folder / f"{problem}-{seed}"
        operators.append(train(splits, seed, place, epochs=epochs))
        values, taken = predict(operators[-1], cases, folder / f"{problem}-{seed}.npz")
        predictions.append(values)
        seconds.append(taken)
    found: list[Known] = []
    for i, (operator, values, taken) in enumerate(
        zip(operators, predictions, seconds, strict=True)
    ):
        others = [other for j, other in enumerate(predictions) if j != i]
        found.append(Known(operator, values, others, taken))
    return cases, found
