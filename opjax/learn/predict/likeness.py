"""Whether a case is like the cases that an operator was calibrated with."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from opjax import uncertainty
from opjax.learn.predict import widths
from opjax.learn.predict.prediction import padded_size
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

RATE = 0.05  # of false alarms, where there are cases enough
# What `Reference.row` adds to a row.
ROW = ("unlike", "likeness_p_value", "likeness_distance")


class Reference(NamedTuple):
    """What calibration cases are like.

    Attributes:
      false_alarms: share of cases like these that an alarm is allowed for.
      features: one row of moments for each case, `(b, f)`.
    """

    false_alarms: float
    features: np.ndarray

    def row(
        self, trained: Trained, sample: Sample, prediction: np.ndarray
    ) -> dict[str, Any]:
        """Returns what a report says of a case.

        Args:
          trained: the operator.
          sample: the case.
          prediction: of the operator for it, `(n, q)`.

        Returns:
          `unlike`, `likeness_p_value` and `likeness_distance`, see
          `uncertainty.likeness`.
        """
        features = features_of(trained, sample, prediction)
        with jax.enable_x64(True):
            found = uncertainty.likeness(features, self.features)
        p_value, distance = float(found.p_value), float(found.distance)
        # Numbers too large to be squared are not alike either.
        finite = bool(np.isfinite(p_value))
        return {
            "unlike": not finite or p_value <= self.false_alarms,
            "likeness_p_value": p_value if finite else self.least,
            "likeness_distance": distance if finite else None,
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
    return Reference(rate, np.stack(features))


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
    given, count = sample.quadrature_weights, sample.num_points
    weights = np.ones(count) if given is None else np.asarray(given, np.float64)
    # Padded, so that meshes of many sizes are few programs.
    more = padded_size(count) - count
    with jax.enable_x64(True):
        found = uncertainty.field_moments(
            np.pad(np.concatenate(fields, axis=1), [(0, more), (0, 0)]),
            quadrature_weights=np.pad(weights, (0, more)),
        )
    if sample.scalars is None:
        return np.asarray(found)
    scalars = widths.encoded(trained, "scalars", sample.scalars)
    return np.concatenate([found, np.ravel(scalars)])
