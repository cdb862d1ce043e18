r"""What predictions without an operator reach on the benchmarks, in seconds.

    python -m benchmarks.baselines --baselines_of=elasticity,airfoil,pipe,darcy
    python -m benchmarks.baselines --baselines_of=navier_stokes,bodies,heat

Prints Markdown tables of relative L2 errors, on the data of `--preset=fast` of each
program. Mean field, nearest case and POD with radial basis functions are those of the
tables of `opjax-train`, see `opjax.learn.baselines`. For linear regression points and
inputs of a case are expanded in the principal components of the training cases,
targets likewise, and a linear map between the coefficients is fitted. It needs cases
with the same number of points in the same order. The number of components of the
inputs, and whether each is divided by its deviation, are those with the smallest error
on the validation cases.

Of Navier-Stokes, ten frames of vorticity are predicted one by one: nothing changes; the
mean of training at each time; a ridge regression of the next frame from the last two,
whose ridge the validation flows choose; and the equation itself, on the grid of the
samples, from the last frame.

Of bodies, the velocity along an ellipsoid is a constant times the stream along its
surface, which the normals tell. The constant is that of an ellipsoid with the extent of
the body, or the same for all, fitted to the training bodies.

Heat over random shapes, of `benchmarks.unlike` and `benchmarks.uncertainty`: the input
times a constant, and its average over the points near a point, weighted by a Gaussian
function of the distance. Constant and width are fitted to other cases.
"""

import dataclasses
import functools
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags

from experiments import airfoil, bodies, darcy, elasticity, navier_stokes, pipe
from opjax import files
from opjax.datasets import heat
from opjax.learn.baselines.fitted import NAMES, Baselines
from opjax.learn.tables import table
from opjax.problems import navier_stokes as equation
from opjax.samples import Sample, Splits

_NAMES = flags.DEFINE_list("baselines_of", ["elasticity"], "Programs, see above")
_COUNTS = (2, 4, 8, 16, 32, 64)  # of components of the inputs
_MODES = 64  # of the targets
_RIDGES = (1e-6, 1e-4, 1e-2, 1e-1, 1.0)  # over the mean square of a value
_RESOLUTION, _BODIES = 12, 40  # of bodies, whose errors hardly depend on the points
_HEAT = 120, 340  # training and test cases, as in benchmarks.uncertainty
_ROUNDING = 1e-5  # of the first singular value: components below are rounding


SPLITS: dict[str, Callable[[], Splits]] = {
    name: functools.partial(program.splits, program.PRESETS["fast"])
    for name, program in {
        "elasticity": elasticity,
        "airfoil": airfoil,
        "pipe": pipe,
        "darcy": darcy,
    }.items()
}


def linear(known: np.ndarray, asked: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Linear regression with a constant."""
    rows, others = (np.insert(each, 0, 1, axis=1) for each in (known, asked))
    return others @ np.linalg.lstsq(rows, values, rcond=None)[0]


def coefficients(
    inputs: Sequence[np.ndarray], count: int, *, scaled: bool
) -> list[np.ndarray]:
    """Coefficients in the principal components of the first set.

    Args:
      inputs: sets of cases, `(b, m)` each.
      count: largest number of components; those below rounding are left out.
      scaled: whether each is divided by its deviation in the first set.

    Returns:
      The coefficients of each set, `(b, k)`.
    """
    mean = inputs[0].mean(axis=0)
    _, sizes, modes = np.linalg.svd(inputs[0] - mean, full_matrices=False)
    modes = modes[:count][sizes[:count] > _ROUNDING * sizes[0]]
    found = [(each - mean) @ modes.T for each in inputs]
    scale = found[0].std(axis=0)
    return [each / (scale if scaled else scale.max()) for each in found]


def rows(name: str) -> list[list[str]]:
    """Rows of the table: errors of the test cases."""
    splits = SPLITS[name]()
    begin, target = time.process_time(), np.stack(list(map(_target, splits.test)))
    fitted = Baselines.fit(splits.train)
    found: list[list[str]] = []
    for key in fitted.names:
        predicted = [fitted.predict(key, sample).ravel() for sample in splits.test]
        off, seconds = error(np.stack(predicted), target), time.process_time() - begin
        row = [name, NAMES[key], fitted.words(key), f"{off:.3g}", f"{seconds:.2g}"]
        found.append(row)
    return [*found, [name, "linear regression", *_by_regression(splits)]]


def _by_regression(splits: Splits) -> list[str]:
    """Components of the inputs, chosen by the validation cases, error and seconds."""
    begin = time.process_time()
    parts = splits.train, splits.validation, splits.test
    inputs = [np.stack([_inputs(one) for one in part]) for part in parts]
    targets = [np.stack([_target(one) for one in part]) for part in parts]
    mean = targets[0].mean(axis=0)
    modes = np.linalg.svd(targets[0] - mean, full_matrices=False)[2][:_MODES]
    values = (targets[0] - mean) @ modes.T
    options: dict[tuple[int, bool], tuple[float, float]] = {}
    for count in (c for c in _COUNTS if c < len(inputs[0])):
        for scaled in (False, True):
            known, *others = coefficients(inputs, count, scaled=scaled)
            if (known.shape[1], scaled) in options:
                continue
            each = [mean + linear(known, asked, values) @ modes for asked in others]
            errors = [error(*pair) for pair in zip(each, targets[1:], strict=True)]
            options[known.shape[1], scaled] = errors[0], errors[1]
    (count, scaled), (_, test) = min(options.items(), key=lambda item: item[1][0])
    shown = f"{count} components{', scaled' if scaled else ''}"
    return [shown, f"{test:.3g}", f"{time.process_time() - begin:.2g}"]


def error(predicted: np.ndarray, true: np.ndarray) -> float:
    """Mean relative L2 error of cases `(b, m)`."""
    off = np.linalg.norm(predicted - true, axis=1)
    return float(np.mean(off / np.linalg.norm(true, axis=1)))


def flow_rows(splits: Splits) -> list[list[str]]:
    """Rows of Navier-Stokes: errors of the ten frames, and of the first and last."""
    train, validation, test = map(
        _flows, (splits.train, splits.validation, splits.test)
    )
    known = train.shape[1] - splits.test[0].target.shape[1]

    def still(flows: np.ndarray) -> np.ndarray:
        return np.repeat(flows[:, known - 1 : known], flows.shape[1] - known, axis=1)

    def average(flows: np.ndarray) -> np.ndarray:
        return np.broadcast_to(train[:, known:].mean(axis=0), flows[:, known:].shape)

    def regression(ridge: float) -> Callable[[np.ndarray], np.ndarray]:
        before = np.concatenate([train[:, :-2], train[:, 1:-1]], axis=2)
        before = before.reshape(-1, before.shape[2])
        after = train[:, 2:].reshape(len(before), -1)
        weight = ridge * len(before) * np.mean(before**2)
        gram = before.T @ before + weight * np.eye(before.shape[1])
        step = np.linalg.solve(gram, before.T @ after)

        def predict(flows: np.ndarray) -> np.ndarray:
            seen = [flows[:, known - 2], flows[:, known - 1]]
            for _ in range(flows.shape[1] - known):
                seen.append(np.concatenate(seen[-2:], axis=1) @ step)
            return np.stack(seen[2:], axis=1)

        return predict

    def solver(flows: np.ndarray) -> np.ndarray:
        side = splits.test[0].grid_shape[0]
        force = np.asarray(equation.forcing(num_points=side), np.float32)
        last = np.asarray(flows[:, known - 1], np.float32).reshape(-1, side, side)
        count = flows.shape[1] - known
        each = [
            equation.solve(w, force, viscosity=1e-5, num_frames=count) for w in last
        ]
        return np.asarray(each, float).reshape(len(flows), count, -1)

    def judged(flows: np.ndarray, frames: np.ndarray) -> list[float]:
        true = flows[:, known:]
        shape = len(flows), -1
        all_frames = np.swapaxes(frames, 1, 2), np.swapaxes(true, 1, 2)
        together = error(*(each.reshape(shape) for each in all_frames))
        ends = [error(frames[:, place], true[:, place]) for place in (0, -1)]
        return [together, *ends]

    choices = {ridge: regression(ridge) for ridge in _RIDGES}
    best = min(_RIDGES, key=lambda r: judged(validation, choices[r](validation))[0])
    predictions = {
        "nothing changes": still,
        "mean of training": average,
        f"ridge regression, {best:g}": choices[best],
        "solver on the grid of the samples": solver,
    }
    return [
        [name, *(f"{x:.3g}" for x in judged(test, predict(test)))]
        for name, predict in predictions.items()
    ]


def body_rows(splits: Splits) -> list[list[str]]:
    """Rows of bodies: errors of pressure and velocity together."""

    def off(sample: Sample, size: float) -> float:
        normals, true = np.asarray(sample.features, float), np.asarray(sample.target)
        along = size * (np.eye(3)[0] - normals[:, :1] * normals)
        pressure = 1 - np.sum(along**2, axis=1, keepdims=True)
        roots = np.sqrt(np.asarray(sample.quadrature_weights, float))[:, None]
        both = np.concatenate([pressure, along], axis=1), true
        return error(*((roots * each).reshape(1, -1) for each in both))

    sizes = np.linspace(1, 2, 101)
    best = min(sizes, key=lambda size: np.mean([off(s, size) for s in splits.train]))
    found = {
        f"the same constant for all, {best:.3g}": [off(s, best) for s in splits.test],
        "an ellipsoid of the same extent": [
            off(s, slip_of_ellipsoid(s)) for s in splits.test
        ],
    }
    return [[name, f"{np.mean(each):.3g}"] for name, each in found.items()]


def slip_of_ellipsoid(sample: Sample) -> float:
    """Largest speed along an ellipsoid of the extent of a body, in a stream of 1."""
    from scipy.special import elliprd

    x, y, z = np.ptp(np.asarray(sample.mesh_points, float), axis=0) / 2
    return float(2 / (2 - 2 / 3 * x * y * z * elliprd(y**2, z**2, x**2)))


def heat_rows(train: Sequence[Sample], test: Sequence[Sample]) -> list[list[str]]:
    """Rows of heat."""

    def off(sample: Sample, predicted: np.ndarray) -> float:
        return error(predicted.reshape(1, -1), _target(sample)[None])

    def times(constant: float, sample: Sample) -> np.ndarray:
        return constant * np.asarray(sample.features, float)

    def average(width: float, sample: Sample) -> np.ndarray:
        points = np.asarray(sample.mesh_points, float)
        squares = np.sum((points[:, None] - points[None]) ** 2, axis=2)
        weights = np.exp(-squares / (2 * width**2))
        return (
            weights @ np.asarray(sample.features) / weights.sum(axis=1, keepdims=True)
        )

    options = {"the input times": times, "the average of the input over": average}
    found: list[list[str]] = []
    for name, predict in options.items():
        mean = {
            size: np.mean([off(s, predict(size, s)) for s in train])
            for size in np.linspace(0.05, 1, 39)
        }
        best = min(mean, key=lambda size: mean[size])
        each = [off(s, predict(best, s)) for s in test]
        found.append([f"{name} {best:.3g}", f"{np.mean(each):.3g}"])
    return found


def _heat(count: int, seed: int) -> list[Sample]:
    with tempfile.TemporaryDirectory() as folder:
        return files.read(heat.write(folder, count, seed=seed))


def _inputs(sample: Sample) -> np.ndarray:
    """All that models see of a case."""
    parts = [sample.mesh_points] + [sample.features] * (sample.features is not None)
    return np.concatenate([np.asarray(part, float).ravel() for part in parts])


def _target(sample: Sample) -> np.ndarray:
    return np.asarray(sample.target, float).ravel()


def _flows(samples: Sequence[Sample]) -> np.ndarray:
    """All frames of flows, `(b, t, n)`."""
    both = [np.concatenate([s.features, s.target], axis=1) for s in samples]
    return np.swapaxes(np.asarray(both, float), 1, 2)


def main(argv: Sequence[str]) -> None:
    """Prints the tables."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    unknown = set(_NAMES.value) - {*SPLITS, "navier_stokes", "bodies", "heat"}
    if unknown:
        raise app.UsageError(
            f"--baselines_of={','.join(sorted(unknown))} is none of "
            f"{', '.join(SPLITS)}, navier_stokes, bodies, heat."
        )
    found = [row for name in _NAMES.value if name in SPLITS for row in rows(name)]
    if found:
        head = ["problem", "prediction", "by", "test error"]
        print(table([*head, "processor seconds"], found))
    if "navier_stokes" in _NAMES.value:
        flows = navier_stokes.load(navier_stokes.PRESETS["fast"])
        head = ["prediction", "ten frames", "first", "last"]
        print(table(head, flow_rows(flows)))
    if "bodies" in _NAMES.value:
        config = dataclasses.replace(
            bodies.PRESETS["fast"], resolution=_RESOLUTION, num_train=_BODIES
        )
        made = bodies.splits(config)
        print(table(["prediction", "relative L2 error"], body_rows(made)))
    if "heat" in _NAMES.value:
        made = _heat(_HEAT[0], 1), _heat(_HEAT[1], 2)
        print(table(["prediction", "relative L2 error"], heat_rows(*made)))


if __name__ == "__main__":
    app.run(main)
