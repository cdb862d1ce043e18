r"""Airfoils on other meshes than those of training: fewer points, in no order.

    python -m experiments.lift --preset=fast --data_seed=1 --point_features=geometry \
      --workdir=runs/any
    python -m benchmarks.lift_meshes --meshes_run=runs/any

Test meshes are thinned, so that the true pressure is known: every second point both
ways, or random points in random order. The operator is asked as it was trained. POD
with radial basis functions cannot be asked: it gets the wall at places equally far from
each other along it, by splines, and predicts pressures and places of the points of a
training mesh, between which its pressure is interpolated linearly.
"""

import json
import pathlib
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags
from scipy.interpolate import CubicSpline, LinearNDInterpolator, NearestNDInterpolator

from experiments import lift as program
from experiments import lift_baselines
from opjax import learn
from opjax.datasets import lift
from opjax.learn.run.folder import read_config
from opjax.learn.tasks.benchmark import load
from opjax.samples import Sample

_RUN = flags.DEFINE_string("meshes_run", "", "Folder of a run with geometry features.")
_COUNT = flags.DEFINE_integer("meshes_count", 30, "Number of test samples.")
# Of 1e-4 to 1e-1 the best on thinned meshes: splines add small modes to the shapes.
_SHAPE_TOLERANCE = 3e-2
Predictions = tuple[Sequence[np.ndarray], np.ndarray]  # pressures, lifts


def kept(sample: Sample, rows: np.ndarray) -> Sample:
    """A sample on some of its points, in their order, with geometry features."""
    assert sample.boundaries is not None
    assert sample.target is not None
    place = np.full(sample.num_points, -1)
    place[rows] = np.arange(len(rows))
    wall = place[sample.boundaries[lift.WALL]]
    thinned = sample._replace(
        mesh_points=sample.mesh_points[rows],
        target=sample.target[rows],
        boundaries={lift.WALL: wall[wall >= 0]},
        cells=None,
        grid_shape=None,
    )
    return thinned._replace(features=lift.geometry_features(thinned))


def halved(sample: Sample) -> Sample:
    """Every second point of the mesh, around and outwards."""
    assert sample.grid_shape is not None
    index = np.arange(sample.num_points).reshape(sample.grid_shape)
    return kept(sample, index[::2, ::2].ravel())


def scattered(sample: Sample, rng: np.random.Generator, share: float = 0.5) -> Sample:
    """Random points in random order; both of the trailing edge are among them."""
    assert sample.boundaries is not None
    edge = sample.boundaries[lift.WALL][[0, -1]]
    others = np.setdiff1d(np.arange(sample.num_points), edge)
    count = round(share * sample.num_points) - 2
    rows = np.concatenate([edge, rng.choice(others, count, replace=False)])
    return kept(sample, rng.permutation(rows))


def interpolated(train: Sequence[Sample], test: Sequence[Sample]) -> Predictions:
    """Predicts by POD and RBF, with the wall and the pressure interpolated."""
    asked = [_with_wall(sample, sample.target) for sample in test]

    def predict(target: Callable[[Sample], np.ndarray]) -> lift_baselines.Baseline:
        known = [_with_wall(sample, target(sample)) for sample in train]
        return lift_baselines.predict(known, asked, shape_tolerance=_SHAPE_TOLERANCE)

    found = predict(lambda sample: np.asarray(sample.target))
    places = predict(lambda sample: sample.mesh_points).pressure
    pressures = [
        _between(place.reshape(-1, 2), values, sample.mesh_points)
        for place, values, sample in zip(places, found.pressure, test, strict=True)
    ]
    return pressures, found.lift


def numbers(test: Sequence[Sample], predicted: Predictions) -> dict[str, float]:
    """Mean relative error of pressures, R² and mean error of lifts."""
    errors = [
        np.linalg.norm(values - np.ravel(np.asarray(sample.target)))
        / np.linalg.norm(np.asarray(sample.target))
        for values, sample in zip(predicted[0], test, strict=True)
    ]
    lifts = np.array([np.asarray(sample.target_scalars)[0] for sample in test])
    return {
        "pressure": float(np.mean(errors)),
        "lift_r2": lift_baselines.r_squared(predicted[1], lifts),
        "lift_error": float(np.abs(predicted[1] - lifts).mean()),
    }


def _with_wall(sample: Sample, target: np.ndarray | None) -> Sample:
    """The wall at 61 places along it, and an array that belongs to the sample."""
    assert sample.boundaries is not None
    wall = np.asarray(sample.mesh_points, float)[sample.boundaries[lift.WALL]]
    steps = np.linalg.norm(np.diff(wall, axis=0), axis=1)
    along = np.concatenate([[0], np.cumsum(steps)]) / steps.sum()
    places = CubicSpline(along, wall)(np.linspace(0, 1, 61))
    return sample._replace(
        mesh_points=places, target=target, boundaries={lift.WALL: np.arange(61)}
    )


def _between(places: np.ndarray, values: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Interpolates linearly; takes the nearest value outside of all triangles."""
    found = LinearNDInterpolator(places, values)(points)
    outside = np.isnan(found)
    found[outside] = NearestNDInterpolator(places, values)(points[outside])
    return found


def main(argv: Sequence[str]) -> None:
    """Prints a line for each mesh and method."""
    if len(argv) > 1 or not _RUN.value:
        raise app.UsageError("Give the folder of a run, --meshes_run=runs/any.")
    run = pathlib.Path(_RUN.value)
    config = read_config(run, program.Config)
    if config is None or config.point_features != "geometry":
        raise app.UsageError(f"{run} is no run with --point_features=geometry.")
    found = load(config, lift.splits, *program.OWN)
    trained = learn.load(run / f"{config.model}-{config.seed}")
    rng = np.random.default_rng(0)
    ways: dict[str, Callable[[Sample], Sample]] = {
        "as trained": lambda sample: sample,
        "every second point": halved,
        "random half": lambda sample: scattered(sample, rng),
    }
    for name, way in ways.items():
        test = [way(sample) for sample in found.test[: _COUNT.value]]
        both = [
            trained.both(sample._replace(target=None, target_scalars=None))
            for sample in test
        ]
        lifts = np.array([one.scalars[0] for one in both])
        model = [one.values[:, 0] for one in both], lifts
        for method, predicted in (
            ("operator", model),
            ("POD + RBF", interpolated(found.train, test)),
        ):
            row = {"mesh": name, "points": test[0].num_points, "method": method}
            print(json.dumps({**row, **numbers(test, predicted)}))


if __name__ == "__main__":
    app.run(main)
