r"""Compares widths of error bars at equal coverage.

    python -m benchmarks.uncertainty --bands_folder=bands --bands_figure=bands.png

Trains three seeds of functional attention on each problem and predicts the held-out
cases once. Then it divides these 20 times into calibration and test cases. Runs and
predictions stay in the folder, so that a second call only compares. It prints a
Markdown table: means over the divisions, medians and ranges of the seeds.

Widths are those of `opjax-calibrate`, one in proportion to the size of the prediction
of a case, and ensembles with the floors of `--bands_floors`. `--bands_oracles` adds
widths that know the errors, and the narrowest bands that there are, see `bounds`.
`--bands_cases=3` draws other held-out cases, on which a floor may be chosen.

- heat: the demonstration of `opjax-train`, 120 to 200 points scattered over random
  shapes.
- elasticity: unit cells with a random void, 288 points.
- darcy: flow on 22 x 22 points, from solves with 43 x 43.
"""

import dataclasses
import functools
import math
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags

from opjax import files, learn, metrics, uncertainty
from opjax.datasets import darcy, elasticity, heat
from opjax.learn.predict import widths
from opjax.learn.predict.neighbourhoods import nearest
from opjax.learn.report import drawing
from opjax.learn.tables import median_and_range, table
from opjax.samples import Sample, Splits

_FOLDER = flags.DEFINE_string("bands_folder", None, "Folder of runs and predictions")
_PROBLEMS = flags.DEFINE_list("bands_problems", [], "Problems. By default, all")
_CASES = flags.DEFINE_integer("bands_cases", 2, "Seed of the held-out cases")
_FLOORS = flags.DEFINE_list("bands_floors", ["0.3"], "Other floors of the ensemble")
_ORACLES = flags.DEFINE_bool("bands_oracles", False, "Also evaluate oracle widths")
_FIGURE = flags.DEFINE_string("bands_figure", None, "PNG file to write: reliability")
_COVERAGE, _DIVISIONS, _SEEDS = 0.9, 20, (0, 1, 2)
_TRAIN, _VALIDATION, _HELD_OUT, _EPOCHS = 120, 8, 340, 40
_CALIBRATION = 150  # of the held-out cases, of which a residual model takes a third
_LEVELS = np.linspace(0.05, 0.95, 19)


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


def _darcy(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    return darcy.generate(
        count, seed=seed, num_points=43, stride=2, cache_dir=folder / "cache"
    )


def _elasticity(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    sizes = {"num_around": 16, "num_across": 2}
    return elasticity.generate(count, seed=seed, cache_dir=folder / "cache", **sizes)


def _heat(count: int, seed: int, folder: pathlib.Path) -> list[Sample]:
    heat.write(folder / f"heat-{seed}", count, seed=seed)
    return files.read(str(folder / f"heat-{seed}"))[:count]


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
    problem: str, folder: pathlib.Path, *, cases_seed: int, epochs: int = _EPOCHS
) -> tuple[list[Sample], list[Known]]:
    """Held-out cases of a problem, and what every seed predicts for them."""
    make = PROBLEMS[problem]
    seen = make(_TRAIN + _VALIDATION, 1, folder)
    cases = make(_HELD_OUT, cases_seed, folder)
    # The test set of a run is never looked at here, and the same for all cases.
    parts = seen[:_TRAIN], seen[_TRAIN:], make(2, 2, folder)
    splits = Splits(*parts, source="benchmarks.uncertainty")
    runs: list[tuple[learn.Trained, list[np.ndarray], float]] = []
    for seed in _SEEDS:
        name = f"{problem}-{seed}"
        operator = train(splits, seed, folder / name, epochs=epochs)
        kept = folder / f"{name}-{cases_seed}.npz"
        runs.append((operator, *predict(operator, cases, kept)))
    found: list[Known] = []
    for operator, values, seconds in runs:
        others = [other for _, other, _ in runs if other is not values]
        found.append(Known(operator, values, others, seconds))
    return cases, found


class Stored(NamedTuple):
    """A prediction of another seed, in place of its operator."""

    values: np.ndarray

    def __call__(self, _: Sample) -> np.ndarray:
        """Returns the prediction."""
        return self.values

    def factor(self, _: Sample) -> np.ndarray:
        """Cases are not scaled."""
        return np.ones(self.values.shape[1])


def ensemble(known: Known, floor: float | None) -> list[np.ndarray]:
    """Widths by the distance of the other seeds, for all cases."""
    scale = widths.scale_of(known.operator)
    found: list[np.ndarray] = []
    for place, values in enumerate(known.predictions):
        members: Any = [Stored(each[place]) for each in known.others]
        width = widths.Ensemble(scale, members)
        if floor is not None:
            width = width._replace(floor=floor)
        found.append(width(Sample(values, values), values))
    return found


def relative(known: Known) -> list[np.ndarray]:
    """Widths in proportion to the root mean square of the prediction of a case."""
    return [
        np.full_like(values, np.sqrt(np.mean(np.square(values))))
        for values in known.predictions
    ]


class Fitted:
    """Widths of residual models, whose features are the same in all divisions."""

    def __init__(self, known: Known, cases: Sequence[Sample], *, seeds: bool) -> None:
        """Takes the tables of all cases, with the distance of other seeds or not."""
        self.scale = widths.scale_of(known.operator)
        places = {id(case): i for i, case in enumerate(cases)}
        members: list[Any] = [
            lambda case, each=each: each[places[id(case)]] for each in known.others
        ]
        self.tables = [
            widths.table_of(
                known.operator, case, values, members=members if seeds else ()
            )
            for case, values in zip(cases, known.predictions, strict=True)
        ]

    def __call__(self, fit: Sequence[int]) -> list[np.ndarray]:
        """Returns the widths of all cases, by a fit to some of them."""
        tables = [self.tables[i] for i in fit]
        found = widths.fit_tables(tables, coverage=_COVERAGE)
        return [widths.widths_of(t.features, found, self.scale) for t in self.tables]


def judge(
    errors: Sequence[np.ndarray],
    half: Sequence[np.ndarray],
    calibration: Sequence[int],
    test: Sequence[int],
) -> tuple[dict[str, float], np.ndarray]:
    """What a width is worth in one division.

    Args:
      errors: of all cases, `(n,)` each.
      half: widths before calibration, likewise.
      calibration: numbers of the calibration cases.
      test: numbers of the test cases.

    Returns:
      Shares of whole fields and of points inside their bands; the mean width of the
      band for whole fields; rank correlations of width and error over the cases, by
      mean width and root mean square error, and over the points of a case, on average
      (NaN for equal widths); and the coverage that is reached at every level.
    """
    scores = [np.abs(e) / h for e, h in zip(errors, half, strict=True)]
    whole = np.array([each.max() for each in scores])
    with jax.enable_x64(True):
        factor = float(
            uncertainty.conformal_quantile(whole[calibration], coverage=_COVERAGE)
        )
        curve = uncertainty.calibration_curve(whole[calibration], whole[test], _LEVELS)
    points, weights = (
        np.zeros((len(calibration), max(map(len, scores)))) for _ in range(2)
    )
    for row, place in enumerate(calibration):
        points[row, : len(scores[place])] = scores[place]
        weights[row, : len(scores[place])] = 1
    with jax.enable_x64(True):
        of_points = float(
            uncertainty.pointwise_quantile(
                points, coverage=_COVERAGE, quadrature_weights=weights
            )
        )
    sizes = np.array([np.sqrt(np.mean(errors[i] ** 2)) for i in test])
    means = np.array([half[i].mean() for i in test])
    found = {
        "coverage": float(np.mean(whole[test] <= factor)),
        "pointwise": float(np.mean([np.mean(scores[i] <= of_points) for i in test])),
        "width": 2 * factor * float(means.mean()),
        "rank_cases": _rank(sizes, means),
        "rank_points": float(
            np.mean([_rank(np.abs(errors[i]), half[i]) for i in test])
        ),
    }
    return found, np.asarray(curve)


def bounds(errors: Sequence[np.ndarray]) -> dict[str, dict[str, float]]:
    """Scores of the narrowest bands that hold for the promised share of the cases.

    No width can do better on these cases, whatever it knows: where a band holds, its
    half width is at least the error. It is zero for the cases with the largest errors.

    Args:
      errors: of the test cases, `(n,)` each.

    Returns:
      By name, `coverage` and `width` as in `judge`: of bands that are equal at all
      points of a case, and of any bands.
    """
    kept = math.ceil(_COVERAGE * len(errors))
    sizes = {
        "bound for widths that are constant within a case": [
            np.abs(e).max() for e in errors
        ],
        "bound": [np.abs(e).mean() for e in errors],
    }
    share, missing = kept / len(errors), {"pointwise": math.nan}
    missing |= {"rank_cases": math.nan, "rank_points": math.nan}
    return {
        name: {
            **missing,
            "coverage": share,
            "width": float(2 * np.sum(np.sort(each)[:kept]) / len(errors)),
        }
        for name, each in sizes.items()
    }


def _rank(one: np.ndarray, other: np.ndarray) -> float:
    if np.ptp(other) <= 1e-5 * np.max(other):  # equal up to rounding
        return math.nan
    return float(_rank_correlation(np.float32(one), np.float32(other)))


def _mean(values: Sequence[float]) -> float:
    """The mean, where widths that are equal in some divisions have no correlation."""
    return (
        float(np.mean(np.nan_to_num(values))) if np.isfinite(values).any() else np.nan
    )


_rank_correlation = jax.jit(metrics.rank_correlation)


class Compared(NamedTuple):
    """Scores of every width of a seed: means over the divisions.

    Attributes:
      scores: of `judge`, with the width relative to `constant`, and `seconds` for a
        fit and the widths of all cases.
      curves: coverage at every level.
    """

    scores: dict[str, dict[str, float]]
    curves: dict[str, np.ndarray]


def oracles(
    cases: Sequence[Sample], errors: Sequence[np.ndarray]
) -> dict[str, Callable[[], list[np.ndarray]]]:
    """Widths that know the errors of all cases, and are no bounds for others.

    They are calibrated as the others are. See `bounds` for bounds.

    Args:
      cases: held out.
      errors: of one channel, `(n,)` each.

    Returns:
      By name: the mean error at a point over the cases, if they share a mesh; and the
      root mean square error among the nearest points, with a tenth of that of the case.
    """

    def of_points() -> list[np.ndarray]:
        return [np.mean(np.abs(errors), axis=0)] * len(errors)

    def nearby(count: int) -> list[np.ndarray]:
        return [
            np.sqrt(np.mean(e[nearest(case.mesh_points, count)] ** 2, axis=1))
            + 0.1 * np.sqrt(np.mean(e**2))
            for case, e in zip(cases, errors, strict=True)
        ]

    found: dict[str, Callable[[], list[np.ndarray]]] = {}
    if len({case.mesh_points.tobytes() for case in cases}) == 1:
        found["oracle: mean error of each point over the cases"] = of_points
    for count in (100, 9):
        found[f"oracle: RMS error of the nearest {count} points"] = functools.partial(
            nearby, count
        )
    return found


def compare(
    cases: Sequence[Sample],
    known: Known,
    floors: Sequence[float],
    *,
    with_oracles: bool = False,
) -> Compared:
    """Compares widths over random divisions of the cases.

    Args:
      cases: held out.
      known: what a seed predicts for them.
      floors: of more ensembles.
      with_oracles: whether widths that know the errors are compared too.
    """
    errors = [
        (values - np.asarray(case.target)).ravel()
        for case, values in zip(cases, known.predictions, strict=True)
    ]
    scale = widths.scale_of(known.operator)
    constant = widths.Constant(scale)
    fixed: dict[str, Callable[[], list[np.ndarray]]] = {
        "constant": lambda: list(map(constant, cases, known.predictions)),
        "relative": lambda: relative(known),
        "ensemble": lambda: ensemble(known, None),
    }
    for floor in floors:
        name = f"ensemble, floor {floor:g}"
        fixed[name] = functools.partial(ensemble, known, floor)
    if with_oracles:
        fixed |= oracles(cases, errors)
    seconds: dict[str, list[float]] = {}
    once: dict[str, float] = {}  # features, which divisions share
    rows: dict[str, list[dict[str, float]]] = {}
    curves: dict[str, list[np.ndarray]] = {}

    def timed(name: str, make: Callable[[], list[np.ndarray]]) -> list[np.ndarray]:
        begin = time.monotonic()
        found = make()
        seconds.setdefault(name, []).append(time.monotonic() - begin)
        return [each.ravel() for each in found]

    known_widths = {name: timed(name, make) for name, make in fixed.items()}
    fitted: dict[str, Fitted] = {}
    for name, with_seeds in (("residual", False), ("combined", True)):
        begin = time.monotonic()
        fitted[name] = Fitted(known, cases, seeds=with_seeds)
        once[name] = time.monotonic() - begin
    for division in range(_DIVISIONS):
        order = np.random.default_rng(division).permutation(len(cases))
        first, test = order[:_CALIBRATION], order[_CALIBRATION:]
        fit, rest = np.split(first, [_CALIBRATION // 3])
        each = {name: (half, first) for name, half in known_widths.items()}
        for name, model in fitted.items():
            half = timed(name, functools.partial(model, fit))
            each[name] = half, rest
        for name, (half, calibration) in each.items():
            row, curve = judge(errors, half, calibration, test)
            rows.setdefault(name, []).append(row)
            curves.setdefault(name, []).append(curve)
        if with_oracles:
            for name, row in bounds([errors[i] for i in test]).items():
                rows.setdefault(name, []).append(row)
    means = {
        name: {key: _mean([row[key] for row in found]) for key in found[0]}
        for name, found in rows.items()
    }
    base = means["constant"]["width"]
    for name, found in means.items():
        extra = (
            known.seconds
            * len(known.others)
            * name.startswith(("ensemble", "combined"))
        )
        own = float(np.mean(seconds[name])) if name in seconds else math.nan
        found["seconds"] = own + once.get(name, 0.0) + extra
        found["width"] /= base
    return Compared(means, {k: np.mean(v, axis=0) for k, v in curves.items()})


_COLUMNS = {
    "coverage": "whole fields inside",
    "pointwise": "points inside",
    "width": "width / constant",
    "rank_cases": "rank correlation, cases",
    "rank_points": "rank correlation, points",
    "seconds": "seconds",
}


def lines(problem: str, found: Sequence[Compared]) -> list[list[str]]:
    """Rows of the table, a width each: medians and ranges of the seeds."""
    rows: list[list[str]] = []
    for name in found[0].scores:
        row = [problem, name]
        for key in _COLUMNS:
            values = [one.scores[name][key] for one in found]
            known = not any(map(math.isnan, values))
            row.append(median_and_range(values, digits=3) if known else "")
        rows.append(row)
    return rows


def draw(found: Mapping[str, Sequence[Compared]]) -> Any:
    """Draws the coverage that is reached over the one that is asked for."""
    figure = drawing.new_figure(2.4 * len(found), 2.6, "constrained")
    axes = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
    for axis, (problem, seeds) in zip(axes, found.items(), strict=True):
        axis.plot([0, 1], [0, 1], "k:", linewidth=1)
        for name in ("constant", "ensemble", "residual", "combined"):
            curve = np.mean([one.curves[name] for one in seeds], axis=0)
            axis.plot(_LEVELS, curve, label=name, linewidth=1)
        axis.set(title=problem, xlabel="coverage asked for")
        drawing.plain(axis)
    axes[0].set_ylabel("coverage reached")
    drawing.legend(axes[0])
    return figure


def main(argv: Sequence[str]) -> None:
    """Prints the table, and draws the figure."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if not _FOLDER.value:
        raise app.UsageError("Give a folder for runs and predictions, --bands_folder.")
    unknown = set(_PROBLEMS.value) - set(PROBLEMS)
    if unknown:
        raise app.UsageError(
            f"--bands_problems={','.join(sorted(unknown))} is none of "
            f"{', '.join(PROBLEMS)}."
        )
    folder = pathlib.Path(_FOLDER.value)
    folder.mkdir(parents=True, exist_ok=True)
    floors = [float(floor) for floor in _FLOORS.value]
    rows: list[list[str]] = []
    found: dict[str, list[Compared]] = {}
    for problem in _PROBLEMS.value or PROBLEMS:
        cases, known = prepare(problem, folder, cases_seed=_CASES.value)
        found[problem] = [
            compare(cases, each, floors, with_oracles=_ORACLES.value) for each in known
        ]
        rows += lines(problem, found[problem])
        seconds = median_and_range([each.seconds for each in known], digits=3)
        print(f"{problem}: {len(cases)} predictions of a seed take {seconds} s")
    print(table(["problem", "width", *_COLUMNS.values()], rows))
    if _FIGURE.value:
        drawing.save(draw(found), _FIGURE.value)


if __name__ == "__main__":
    app.run(main)
