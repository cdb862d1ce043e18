r"""Cases that are unlike the training: are they noticed, and what of their bands?

    python -m benchmarks.unlike --unlike_data=data/unlike
    opjax-train --preset=quick --train=data/unlike/heat --test_fraction=0.1 \
      --models=functional --width=32 --num_layers=2 --num_heads=4 --num_basis=16 \
      --num_epochs=60 --seeds=0,1,2 --workdir=runs/heat
    python -m benchmarks.unlike --unlike_runs=runs/heat --unlike_problem=heat

With `--unlike_data` it writes 100 training cases of two problems: heat from random
spots over random shapes, and stresses around a random void. Operators of Darcy flow are
those that `benchmarks.uncertainty` leaves in its folder. With `--unlike_runs` it
calibrates every seed of a run on 100 other cases, and prints a Markdown table for 40
cases of each kind: area under the curve and share of alarms at 5 % of `opjax-predict`,
area under the curve by the coefficients of all attention layers, relative L2 error, and
coverage of the 90 % band for whole fields. Medians and ranges over the seeds.
"""

import pathlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from opjax import files, learn, metrics, streaming, uncertainty
from opjax.datasets import darcy as darcy_data
from opjax.datasets import heat
from opjax.learn.predict import calibration, prediction
from opjax.learn.predict.trained import Trained
from opjax.learn.tables import median_and_range, table
from opjax.problems import darcy, elasticity, random_fields
from opjax.samples import Sample

_DATA = flags.DEFINE_string("unlike_data", None, "Folder to write training cases to")
_RUNS = flags.DEFINE_string("unlike_runs", None, "Folder of a finished run")
_PROBLEM = flags.DEFINE_enum(
    "unlike_problem",
    "heat",
    ("heat", "elasticity", "darcy"),
    "Problem that the run has learned",
)
_TRAIN, _CALIBRATION, _CASES = 100, 100, 40
_MIDDLE = (0.5, 0.5)  # of the elastic cell
_HEAD = ["cases", "area under the curve", "alarms at 5 %", "by coefficients"]
_HEAD += ["relative L2 error", "coverage of the 90 % band"]
Points = Callable[[np.random.Generator, int], np.ndarray]


def heat_cases(
    count: int, seed: int, num_points: tuple[int, int] = (120, 200)
) -> list[Sample]:
    """Heat over random shapes, as in training."""
    with tempfile.TemporaryDirectory() as folder:
        return files.read(heat.write(folder, count, seed=seed, num_points=num_points))


def heat_on(
    points: Points, count: int, *, spots: int = 3, width: float | None = None
) -> list[Sample]:
    """Heat over other shapes, or from other spots."""
    found: list[Sample] = []
    for i in range(count):
        rng = np.random.default_rng((7, i))
        x, centres = points(rng, int(rng.integers(120, 201))), points(rng, spots)
        variances = rng.uniform(0.05, 0.2, spots) ** 2
        variances = variances if width is None else np.full(spots, width**2)
        sizes = rng.uniform(0.5, 1.5, spots)
        squares = np.sum((x[:, None] - centres[None]) ** 2, axis=2)
        fields = []
        for time in (0.02, 0.0):
            spread = variances + 2 * time
            each = sizes * variances / spread * np.exp(-squares / (2 * spread))
            fields.append(each.sum(axis=1, keepdims=True).astype(np.float32))
        found.append(Sample(x.astype(np.float32), *fields, name=str(i)))
    return found


def _wavy(rng: np.random.Generator, count: int) -> np.ndarray:
    """The shapes of training."""
    angle = rng.uniform(0, 2 * np.pi, count)
    waves, depth, phase = rng.integers(2, 5), rng.uniform(0, 0.3), rng.uniform(0, 6)
    radius = 1 + depth * np.cos(waves * angle + phase)
    return _polar(angle, radius * np.sqrt(rng.uniform(0, 1, count)))


def _ellipse(rng: np.random.Generator, count: int) -> np.ndarray:
    disc = _polar(rng.uniform(0, 2 * np.pi, count), np.sqrt(rng.uniform(0, 1, count)))
    return disc * np.asarray([1.5, 1 / 1.5])


def _corner(rng: np.random.Generator, count: int) -> np.ndarray:
    square = rng.uniform(-1, 1, (20 * count, 2))
    return square[(square < 0).any(axis=1)][:count]


def _ring(rng: np.random.Generator, count: int) -> np.ndarray:
    angle = rng.uniform(0, 2 * np.pi, count)
    return _polar(angle, np.sqrt(rng.uniform(0.5, 1, count)))


def _polar(angle: np.ndarray, radius: np.ndarray) -> np.ndarray:
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def heat_kinds() -> Iterator[tuple[str, list[Sample]]]:
    """Kinds of cases, those like the training first."""
    same = heat_cases(_CASES, 2)
    yield "as in training", same
    yield "other shapes: ellipses", heat_on(_ellipse, _CASES)
    yield "other shapes: squares without a quarter", heat_on(_corner, _CASES)
    yield "other shapes: rings", heat_on(_ring, _CASES)
    yield "other inputs: 9 spots, not 3", heat_on(_wavy, _CASES, spots=9)
    yield "other inputs: spots 2 to 8 times as wide", heat_on(_wavy, _CASES, width=0.4)
    yield "rotated by 45 degrees", [rotated(s, 45) for s in same]
    yield "5 times as many points", heat_cases(_CASES, 2, (600, 1000))
    yield "a third of the points", heat_cases(_CASES, 2, (40, 66))
    yield "coordinates times 1000", [scaled(s, points=1e3) for s in same]
    yield "input times 1000", [scaled(s, features=1e3) for s in same]


def rotated(
    sample: Sample, degrees: float, centre: tuple[float, float] = (0.0, 0.0)
) -> Sample:
    """A case that is turned around the centre of its domain, with all that acts on it.

    Values at the points stay, as those of scalar fields do: a load turns with the mesh.
    """
    angle, middle = np.radians(degrees), np.asarray(centre, np.float32)
    turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    points = (sample.mesh_points - middle) @ np.asarray(turn, np.float32) + middle
    return sample._replace(mesh_points=points)


def moved(sample: Sample, shift: tuple[float, float]) -> Sample:
    """A case in another place."""
    points = sample.mesh_points + np.asarray(shift, np.float32)
    return sample._replace(mesh_points=points)


def scaled(sample: Sample, points: float = 1.0, features: float = 1.0) -> Sample:
    """A case in other units."""
    values = None if sample.features is None else sample.features * features
    return sample._replace(mesh_points=sample.mesh_points * points, features=values)


def cells(
    count: int,
    seed: int,
    *,
    radius: Callable[[np.random.Generator, np.ndarray], np.ndarray] | None = None,
    num_around: int = 36,
    num_across: int = 3,
) -> list[Sample]:
    """Stress around voids; those of training if no radius of the angle is given."""
    mesh = elasticity.reference_mesh(num_around=num_around, num_across=num_across)
    found: list[Sample] = []
    for i in range(count):
        if radius is None:
            key = jax.random.fold_in(jax.random.key(seed), i)
            voided = elasticity.morphed_mesh(
                mesh, np.asarray(elasticity.void_modes(key))
            )
        else:
            voided = _with_void(mesh, radius, np.random.default_rng((seed, i)))
        solution = elasticity.solve(voided)
        stress = np.asarray(elasticity.von_mises(solution.stress), np.float32)[:, None]
        points = np.asarray(solution.points, np.float32)
        found.append(Sample(points, stress, name=str(i)))
    return found


def _with_void(
    mesh: Any,
    radius: Callable[[np.random.Generator, np.ndarray], np.ndarray],
    rng: np.random.Generator,
) -> Any:
    """Moves nodes as `elasticity.morphed_mesh` does, for a void of any radius."""
    ray = mesh.doflocs - np.reshape(_MIDDLE, (2, 1))
    rho = np.hypot(*ray)
    growth = radius(rng, np.arctan2(ray[1], ray[0])) - 0.3
    outer = rho + growth * np.maximum(0.5 - rho, 0) / 0.2
    return type(mesh)(np.reshape(_MIDDLE, (2, 1)) + ray * (outer / rho), mesh.t)


def _slot(rng: np.random.Generator, angle: np.ndarray) -> np.ndarray:
    turned = angle - rng.uniform(0, np.pi)
    a, b = 0.4, rng.uniform(0.1, 0.15)
    return a * b / np.hypot(b * np.cos(turned), a * np.sin(turned))


def _star(rng: np.random.Generator, angle: np.ndarray) -> np.ndarray:
    return 0.3 + rng.uniform(0.06, 0.09) * np.cos(7 * angle + rng.uniform(0, 6))


def _pinhole(rng: np.random.Generator, angle: np.ndarray) -> np.ndarray:
    return np.full_like(angle, rng.uniform(0.1, 0.15))


def elasticity_kinds() -> Iterator[tuple[str, list[Sample]]]:
    """Kinds of cases, those like the training first."""
    same = cells(_CASES, 2)
    yield "as in training", same
    yield "other shapes: slots", cells(_CASES, 3, radius=_slot)
    yield "other shapes: stars with seven points", cells(_CASES, 3, radius=_star)
    yield (
        "other shapes: round holes of half the size",
        cells(_CASES, 3, radius=_pinhole),
    )
    for degrees in (90, 10):
        turned = [rotated(s, degrees, _MIDDLE) for s in same]
        yield f"rotated by {degrees} degrees about the centre", turned
    yield "moved by its own length", [moved(s, (-1, 0)) for s in same]
    yield "1.8 times as many points", cells(_CASES, 2, num_around=48, num_across=4)
    yield "half of the points", cells(_CASES, 2, num_around=28, num_across=2)
    yield "coordinates times 1000", [scaled(s, points=1e3) for s in same]


def flows(
    count: int,
    seed: int,
    *,
    tau: float = 3.0,
    high: float = 12.0,
    smooth: bool = False,
    num_points: int = 43,
    stride: int = 2,
) -> list[Sample]:
    """Darcy flow on a grid, in float64; as in training if nothing else is given.

    Args:
      count: number of cases.
      seed: of the cases.
      tau: of the Gaussian field; larger for finer phases.
      high: larger coefficient; the smaller one is 3.
      smooth: the coefficient is `6 exp(field)`, instead of two phases.
      num_points: of the grid of the solve, on each side.
      stride: of the points that are kept.
    """
    coefficients, solutions = [], []
    with jax.enable_x64(True):
        for i in range(count):
            field = random_fields.gaussian_random_field(
                jax.random.fold_in(jax.random.key(seed), i),
                num_points=num_points,
                tau=tau,
                dtype="float64",
            )
            known = 6 * jnp.exp(field) if smooth else darcy.threshold(field, high=high)
            found = darcy.solve(known)
            coefficients.append(np.asarray(known)[::stride, ::stride])
            solutions.append(np.asarray(found.solution)[::stride, ::stride])
    return darcy_data.to_samples(np.stack(coefficients), np.stack(solutions))


def darcy_kinds() -> Iterator[tuple[str, list[Sample]]]:
    """Kinds of cases, those like the training first."""
    same = flows(_CASES, 102)
    yield "as in training", same
    yield "finer phases (tau = 9, not 3)", flows(_CASES, 103, tau=9.0)
    yield "coarser phases (tau = 1)", flows(_CASES, 103, tau=1.0)
    yield "contrast 8, not 4", flows(_CASES, 103, high=24.0)
    yield "contrast 2, not 4", flows(_CASES, 103, high=6.0)
    yield "smooth coefficients", flows(_CASES, 103, smooth=True)
    yield "43 x 43 points, not 22 x 22", flows(_CASES, 102, stride=1)
    yield "15 x 15 points", flows(_CASES, 102, stride=3)
    yield "coordinates times 1000", [scaled(s, points=1e3) for s in same]
    yield "input times 1000", [scaled(s, features=1e3) for s in same]


PROBLEMS: Mapping[str, tuple[Callable[[int, int], list[Sample]], Any]] = {
    "heat": (heat_cases, heat_kinds),
    "elasticity": (cells, elasticity_kinds),
    "darcy": (lambda count, seed: flows(count, 100 + seed), darcy_kinds),
}


class Measured(NamedTuple):
    """What is known of the cases of one kind, by one seed.

    Attributes:
      distance: score of `opjax-predict`, one for each case.
      alarm: one where the case is called unlike.
      by_coefficients: distance by the coefficients of all layers.
      error: relative L2 error.
      inside: one where the whole field lies inside the band.
    """

    distance: np.ndarray
    alarm: np.ndarray
    by_coefficients: np.ndarray
    error: np.ndarray
    inside: np.ndarray


def coefficients(trained: Trained, sample: Sample) -> np.ndarray:
    """Coefficients of all attention layers of a case, padded for few programs."""
    n = sample.num_points
    missing = prediction.padded_size(n) - n
    arrays = {
        name: np.concatenate([array, np.repeat(array[-1:], missing, axis=0)])
        for name, array in prediction.arrays_of(sample).items()
    }
    arrays["quadrature_weights"] = np.append(np.full(n, 1 / n), np.zeros(missing))
    source = prediction.encoded(trained, arrays)
    return np.ravel(
        streaming.coefficients(trained.model, source, streaming.Chunks(2**14))
    )


def measure(
    found: calibration.Calibration, reference: np.ndarray, cases: Sequence[Sample]
) -> Measured:
    """Measures cases of one kind by a calibrated operator."""
    rows: list[tuple[float, ...]] = []
    for sample in cases:
        assert sample.target is not None
        values = found.trained(sample)
        assert found.reference is not None
        known = found.reference.row(found.trained, sample, values)
        score = float(found.reference.compare(found.trained, sample, values).score)
        features = coefficients(found.trained, sample)
        row = calibration.row_of(
            found.band(sample, values),
            sample,
            found.trained.fields,
            kind="whole_field",
            coverage=0.9,
        )
        error = metrics.relative_l2(jnp.asarray(values), sample.target)
        other = float(uncertainty.likeness(features, reference).distance)
        rows.append(
            (
                score if np.isfinite(score) else np.inf,
                float(known["unlike"]),
                other if np.isfinite(other) else np.inf,
                float(error),
                float(row["inside"]),
            )
        )
    return Measured(*np.asarray(rows).T)


def study(run: pathlib.Path, problem: str) -> list[list[str]]:
    """Rows of the table."""
    draw, kinds = PROBLEMS[problem]
    # Of a study, or of several ones of a seed each, as benchmarks.uncertainty has them.
    places = sorted([*run.glob(f"{problem}-*/*/operator"), *run.glob("*/operator")])
    seeds = [learn.load(path.parent) for path in places]
    cases = draw(_CALIBRATION, 1)
    calibrated = [learn.calibrate(one, cases, coverage=0.9) for one in seeds]
    references = [np.stack([coefficients(t, s) for s in cases]) for t in seeds]
    rows: list[list[str]] = []
    alike: list[Measured] = []
    for name, several in kinds():
        each = [
            measure(c, r, several) for c, r in zip(calibrated, references, strict=True)
        ]
        alike = alike or each
        areas = [
            [
                float(uncertainty.area_under_curve(one[place], other[place]))
                for one, other in zip(alike, each, strict=True)
            ]
            for place in (0, 2)
        ]
        columns = [areas[0], [m.alarm.mean() for m in each], areas[1]]
        columns += [[m.error.mean() for m in each], [m.inside.mean() for m in each]]
        rows.append([name, *(median_and_range(c, digits=2) for c in columns)])
        print(rows[-1], flush=True)
    return rows


def main(argv: Sequence[str]) -> None:
    """Writes data, or the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    if bool(_DATA.value) == bool(_RUNS.value):
        raise app.UsageError("Give --unlike_data or --unlike_runs.")
    if _DATA.value:
        for name in ("heat", "elasticity"):
            draw, _ = PROBLEMS[name]
            for i, sample in enumerate(draw(_TRAIN, 0)):
                path = pathlib.Path(_DATA.value) / name / f"{i:04d}.npz"
                files.write(path, sample._replace(name=""))
        return
    print(table(_HEAD, study(pathlib.Path(_RUNS.value), _PROBLEM.value)))


if __name__ == "__main__":
    app.run(main)
