"""Whether a case is like the cases that an operator was calibrated with."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import uncertainty
from opjax.learn.predict import widths
from opjax.learn.predict.prediction import padded_size
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

RATE = 0.05  # of false alarms, where there are cases enough
_WAVES, _LENGTH = 96, 8.0  # number and size of wave vectors, see results/unlike.md
# What `Reference.row` adds to a row.
ROW = ("unlike", "unlike_in", "likeness_p_value", "likeness_distance")
GROUPS = ("moments", "shape")


class Shapes(NamedTuple):
    """Details of the shapes of calibration cases, which moments do not see.

    Attributes:
      waves: wave vectors over the spread of the coordinates in training, `(d, k)`.
      means: `uncertainty.wave_means` of each case, `(b, 2 k)`.
      noise: one over the effective number of points of each case, `(b,)`.
    """

    waves: np.ndarray
    means: np.ndarray
    noise: np.ndarray


class Reference(NamedTuple):
    """What calibration cases are like.

    Attributes:
      false_alarms: share of cases like these that an alarm is allowed for.
      features: one row of moments for each case, `(b, f)`.
      shapes: None for calibrations of an earlier opjax, which compared moments alone.
    """

    false_alarms: float
    features: np.ndarray
    shapes: Shapes | None = None

    def compare(
        self, trained: Trained, sample: Sample, prediction: np.ndarray
    ) -> uncertainty.GroupedLikeness:
        """Compares a case with the calibration cases.

        Args:
          trained: the operator.
          sample: the case.
          prediction: of the operator for it, `(n, q)`.

        Returns:
          What `uncertainty.likeness_of_groups` says, with a group for each of `GROUPS`.
        """
        features = features_of(trained, sample, prediction)
        if self.shapes is None:
            with jax.enable_x64(True):
                found = uncertainty.likeness(features, self.features)
                return uncertainty.GroupedLikeness(
                    *(found.p_value, found.distance, found.distance), jnp.zeros((), int)
                )
        waves, known, noise = self.shapes
        means, own = shape_of(trained, sample, waves), noise_of(sample)
        with jax.enable_x64(True):
            groups = [
                uncertainty.Group(features, self.features, own, noise),
                # Cosines and sines have half the variance of numbers of unit size.
                uncertainty.Group(means, known, own / 2, noise / 2),
            ]
            return uncertainty.likeness_of_groups(groups)

    def row(
        self, trained: Trained, sample: Sample, prediction: np.ndarray
    ) -> dict[str, Any]:
        """Returns what a report says of a case.

        Args:
          trained: the operator.
          sample: the case.
          prediction: of the operator for it, `(n, q)`.

        Returns:
          `unlike`, `unlike_in`, one of `GROUPS` for a case that is unlike and None for
          others, `likeness_p_value` and `likeness_distance`, see `compare`.
        """
        found = self.compare(trained, sample, prediction)
        p_value, distance = float(found.p_value), float(found.distance)
        # Numbers too large to be squared are not alike either.
        finite = bool(np.isfinite(p_value))
        unlike = not finite or p_value <= self.false_alarms
        place = int(found.group) if np.isfinite(distance) else 0
        return {
            "unlike": unlike,
            "unlike_in": GROUPS[place] if unlike else None,
            "likeness_p_value": p_value if finite else self.least,
            "likeness_distance": distance if np.isfinite(distance) else None,
        }

    @property
    def least(self) -> float:
        """The smallest p-value that there is."""
        return 1 / (len(self.features) + 1)


def refer(
    trained: Trained,
    cases: Sequence[Sample],
    predictions: Sequence[np.ndarray],
    *,
    false_alarms: float | None,
) -> Reference | None:
    """Makes a reference of calibration cases.

    Args:
      trained: the operator.
      cases: the cases.
      predictions: of the operator for them.
      false_alarms: promised rate, inside (0, 1); `RATE` if None.

    Returns:
      The reference; None if no rate is asked for and cases are too few for `RATE`.

    Raises:
      ValueError: if cases are too few for the rate, or it is not inside (0, 1).
    """
    rate = RATE if false_alarms is None else false_alarms
    least = least_cases(rate)
    if len(cases) < least:
        if false_alarms is None:
            return None
        raise ValueError(
            f"{len(cases)} calibration cases are too few for false_alarms={rate:g}: "
            f"at least {least} are needed. Give more cases, or a higher rate."
        )
    features = [
        features_of(trained, sample, values)
        for sample, values in zip(cases, predictions, strict=True)
    ]
    dim = cases[0].mesh_points.shape[1]
    waves = _LENGTH * np.random.default_rng(0).normal(size=(dim, _WAVES))
    means = np.stack([shape_of(trained, sample, waves) for sample in cases])
    noise = np.asarray([noise_of(sample) for sample in cases])
    return Reference(rate, np.stack(features), Shapes(waves, means, noise))


def least_cases(false_alarms: float) -> int:
    """Returns the least number of cases for which there can be an alarm.

    Raises:
      ValueError: if the rate is not inside (0, 1).
    """
    if not 0 < false_alarms < 1:
        raise ValueError(
            f"{false_alarms=} must be inside (0, 1), for example 0.05 for one alarm in "
            "twenty cases that are like the calibration cases."
        )
    return uncertainty.least_cases(round(1 - false_alarms, 12))


def features_of(trained: Trained, sample: Sample, prediction: np.ndarray) -> np.ndarray:
    """Returns moments of points, input and prediction, and the scalars, `(f,)`.

    All of them as the operator sees them, over their spread in training.
    """
    fields = [widths.encoded(trained, "mesh_points", sample.mesh_points)]
    if sample.features is not None:
        fields.append(widths.encoded(trained, "features", sample.features))
    fields.append(widths.encoded(trained, "target", prediction))
    with jax.enable_x64(True):
        found = uncertainty.field_moments(
            _padded(np.concatenate(fields, axis=1)),
            quadrature_weights=_padded(_weights(sample)),
        )
    if sample.scalars is None:
        return np.asarray(found)
    scalars = widths.encoded(trained, "scalars", sample.scalars)
    return np.concatenate([found, np.ravel(scalars)])


def shape_of(trained: Trained, sample: Sample, waves: np.ndarray) -> np.ndarray:
    """Returns means of waves over the points, `(2 k,)`."""
    points = widths.encoded(trained, "mesh_points", sample.mesh_points)
    with jax.enable_x64(True):
        found = uncertainty.wave_means(
            _padded(points), waves, quadrature_weights=_padded(_weights(sample))
        )
    return np.asarray(found)


def noise_of(sample: Sample) -> float:
    """Returns one over the effective number of points, `sum w^2 / (sum w)^2`."""
    weights = _weights(sample)
    return float(np.sum(weights**2) / np.sum(weights) ** 2)


def _weights(sample: Sample) -> np.ndarray:
    given = sample.quadrature_weights
    if given is None:
        return np.ones(sample.num_points)
    return np.asarray(given, np.float64)


def _padded(array: np.ndarray) -> np.ndarray:
    """An array with zeros below, so that meshes of many sizes are few programs."""
    more = padded_size(len(array)) - len(array)
    return np.pad(array, [(0, more)] + [(0, 0)] * (array.ndim - 1))
