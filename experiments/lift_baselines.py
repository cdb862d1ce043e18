"""What a practitioner would use for the flows of `experiments.lift`, on a fixed mesh.

The parameters of a case are those of its shape, the coefficients of the proper
orthogonal decomposition (POD) of the points at the wall, and its scalars. Pressures are
expanded in the POD of the training pressures. Radial basis functions (RBF) interpolate
the coefficients and the lift between the cases, with cubic functions and a linear part.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RBFInterpolator

from opjax.datasets import lift
from opjax.learn.config.quantities import Quantity
from opjax.learn.predict.quantities import measure
from opjax.learn.tasks.scalars import agreement
from opjax.samples import Sample

MODES = 50  # of the pressure
_SHAPE_TOLERANCE = 1e-5  # of the first singular value; shapes have seven numbers


class Baseline(NamedTuple):
    """Predictions for test samples.

    Attributes:
      pressure: `(num_test, n)`, by POD and RBF.
      lift: `(num_test,)`, by RBF.
      linear: the lift by linear regression, `(num_test,)`.
    """

    pressure: np.ndarray
    lift: np.ndarray
    linear: np.ndarray


def predict(train: Sequence[Sample], test: Sequence[Sample]) -> Baseline:
    """Fits to training samples, and predicts test samples.

    Args:
      train: as from `opjax.datasets.lift`, more than ten.
      test: likewise.
    """
    of_training, asked = _parameters(train, test)
    pressure = _stack(train, "target")
    mean = pressure.mean(axis=0)
    modes = np.linalg.svd(pressure - mean, full_matrices=False)[2][:MODES]
    lifts = _stack(train, "target_scalars")[:, 0]
    values = np.concatenate([(pressure - mean) @ modes.T, lifts[:, None]], axis=1)
    values_asked = RBFInterpolator(of_training, values, kernel="cubic", degree=1)(asked)
    straight = np.linalg.lstsq(_with_one(of_training), lifts, rcond=None)[0]
    return Baseline(
        mean + values_asked[:, :-1] @ modes,
        values_asked[:, -1],
        _with_one(asked) @ straight,
    )


def numbers(
    train: Sequence[Sample], test: Sequence[Sample], wanted: Quantity | None = None
) -> dict[str, float]:
    """Returns errors of the baselines: pressure, lift from it, lift directly.

    Args:
      train: as for `predict`.
      test: likewise.
      wanted: the lift as a quantity of the pressure, if it is to be measured too.
    """
    predicted = predict(train, test)
    true = _stack(test, "target")
    errors = np.linalg.norm(predicted.pressure - true, axis=1)
    errors /= np.linalg.norm(true, axis=1)
    lifts = _stack(test, "target_scalars")[:, 0]
    rows = {
        "pod_rbf_relative_l2": float(errors.mean()),
        "pod_rbf_lift_r2": _r_squared(predicted.lift, lifts),
        "pod_rbf_lift_error": float(np.abs(predicted.lift - lifts).mean()),
        "linear_lift_r2": _r_squared(predicted.linear, lifts),
        "linear_lift_error": float(np.abs(predicted.linear - lifts).mean()),
    }
    if wanted is not None:
        pairs = [
            measure((wanted,), one, [values[:, None], target[:, None]], lift.CHANNELS)
            for one, values, target in zip(test, predicted.pressure, true, strict=True)
        ]
        integrated = np.array([[row[wanted.text] for row in pair] for pair in pairs])
        rows[f"pod_rbf_r2_{wanted.key}"] = _r_squared(*integrated.T)
    return rows


def _r_squared(predicted: np.ndarray, true: np.ndarray) -> float:
    """NaN if all true values are equal."""
    return agreement(predicted, true).get("r2", math.nan)


def _parameters(
    train: Sequence[Sample], test: Sequence[Sample]
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the shape and scalars, scaled by the training samples."""
    shapes = [np.concatenate([_shape(one) for one in part]) for part in (train, test)]
    mean = shapes[0].mean(axis=0)
    _, sizes, modes = np.linalg.svd(shapes[0] - mean, full_matrices=False)
    modes = modes[sizes > _SHAPE_TOLERANCE * sizes[0]]
    of_training, asked = (
        np.concatenate([(shape - mean) @ modes.T, _stack(part, "scalars")], axis=1)
        for shape, part in zip(shapes, (train, test), strict=True)
    )
    middle, scale = of_training.mean(axis=0), of_training.std(axis=0)
    return (of_training - middle) / scale, (asked - middle) / scale


def _shape(sample: Sample) -> np.ndarray:
    assert sample.boundaries is not None
    wall = np.asarray(sample.mesh_points, np.float64)[sample.boundaries[lift.WALL]]
    return wall.reshape(1, -1)


def _stack(samples: Sequence[Sample], name: str) -> np.ndarray:
    arrays = [np.asarray(getattr(sample, name), np.float64) for sample in samples]
    return np.stack([array.reshape(-1) for array in arrays])


def _with_one(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
