"""Out-of-distribution test of cases against the calibration cases."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import uncertainty
from opjax.learn.named_types import HostArrays, Row
from opjax.learn.predict import widths
from opjax.learn.predict.prediction import padded_size, weights_of
from opjax.learn.predict.trained import Trained
from opjax.learn.predict.widths import Call
from opjax.samples import Sample
from opjax.samples.padding import with_zeros

RATE = 0.05  # of false alarms, where there are cases enough
_WAVES, _LENGTH = 96, 8.0  # number and size of wave vectors, see results/unlike.md
POWER = 0.8  # of the shifts that are said to be noticed
# What `Reference.row` adds to a row.
ROW = (
    *("unlike", "unlike_in", "likeness_p_value", "likeness_distance"),
    *("likeness_cases", "likeness_shifts"),
)
GROUPS = ("moments", "shape", "scalars")


class Shapes(NamedTuple):
    """Shape statistics of the calibration cases, beyond the moments.

    Attributes:
      waves: wave vectors divided by the training spread of the coordinates, `(d, k)`.
      means: `uncertainty.wave_means` of each case, `(b, 2 k)`.
      noise: inverse effective number of points of each case, `(b,)`.
    """

    waves: np.ndarray
    means: np.ndarray
    noise: np.ndarray


class Reference(NamedTuple):
    """Reference statistics of the calibration cases.

    Attributes:
      false_alarms: false-alarm rate.
      features: moments and scalars, one row per case, `(b, f)`.
      shapes: shape statistics; None for calibrations of an earlier opjax, which
        compared only moments and scalars, together.
      shifts: smallest detectable shifts, see `detectable`; None for calibrations of an
        earlier opjax.
    """

    false_alarms: float
    features: np.ndarray
    shapes: Shapes | None = None
    shifts: np.ndarray | None = None

    def compare(
        self, trained: Trained, sample: Sample, prediction: np.ndarray
    ) -> uncertainty.GroupedLikeness:
        """Compares a case with the calibration cases.

        Args:
          trained: the operator.
          sample: the case.
          prediction: prediction of the operator for the case, `(n, q)`.

        Returns:
          The result of `uncertainty.likeness_of_groups`, with one group for each of
          `GROUPS`; the last group exists only for operators with scalar inputs.
        """
        features = features_of(trained, sample, prediction)
        if self.shapes is None:
            with jax.enable_x64(True):
                likeness = uncertainty.likeness(features, self.features)
                return uncertainty.GroupedLikeness(
                    *(likeness.p_value, likeness.distance, likeness.distance),
                    jnp.zeros((), int),
                )
        means, own = shape_of(trained, sample, self.shapes.waves), noise_of(sample)
        with jax.enable_x64(True):
            return uncertainty.likeness_of_groups(
                self._groups(trained, self.shapes, features, means, own)
            )

    def _groups(
        self,
        trained: Trained,
        shapes: Shapes,
        features: ArrayLike,
        means: ArrayLike,
        noise: ArrayLike,
    ) -> list[uncertainty.Group]:
        """The groups of numbers of a case, beside those of the calibration cases."""
        noise_of_means = shapes.noise
        features, noise = jnp.asarray(features), jnp.asarray(noise)
        # Smallest and largest scalars of training.
        ends = trained.description.ranges.get("scalars")
        end = len(features) - (0 if ends is None else len(ends[0]))
        groups = [
            uncertainty.Group(
                features[:end], self.features[:, :end], noise, noise_of_means
            ),
            # Cosines and sines have half the variance of numbers of unit size.
            uncertainty.Group(means, shapes.means, noise / 2, noise_of_means / 2),
        ]
        if ends is not None and len(ends[0]):
            limits = widths.encoded(trained, "scalars", ends)
            groups += [
                uncertainty.Group(features[end:], self.features[:, end:], limits=limits)
            ]
        return groups

    def margin(self, trained: Trained, call: Call) -> jax.Array:
        """Returns `uncertainty.alarm_margin` of a case.

        Args:
          trained: the operator.
          call: a call of the operator, which JAX may trace.

        Raises:
          ValueError: if an earlier opjax made the reference, which then has no shapes.
        """
        if self.shapes is None:
            raise ValueError(
                f"The calibration of {trained.folder} is from an earlier opjax, which "
                "compared only moments; run opjax-calibrate again."
            )
        weights = call.case.sample.quadrature_weights
        fields, points = (
            jnp.concatenate(call.parts(), axis=1),
            call.encoded("mesh_points"),
        )
        numbers = uncertainty.field_moments(fields, quadrature_weights=weights)
        if "scalars" in call.case.arrays:
            scalars = jnp.asarray(call.encoded("scalars"), numbers.dtype)
            numbers = jnp.concatenate([numbers, scalars])
        waves = jnp.asarray(self.shapes.waves, points.dtype)
        means = uncertainty.wave_means(points, waves, quadrature_weights=weights)
        noise: Any = 1 / len(points)
        if weights is not None:
            noise = jnp.sum(weights**2) / jnp.sum(weights) ** 2
        return uncertainty.alarm_margin(
            self._groups(trained, self.shapes, numbers, means, noise),
            false_alarms=self.false_alarms,
        )

    def detectable(self, trained: Trained) -> np.ndarray | None:
        """Returns the smallest detectable shifts.

        Args:
          trained: the operator.

        Returns:
          `uncertainty.detectable_shifts` with a probability of `POWER`, one for each of
          `GROUPS`; the last group exists only for operators with scalar inputs. None
          without shape statistics.
        """
        if self.shapes is None:
            return None
        first = self.features[0], self.shapes.means[0], float(self.shapes.noise[0])
        with jax.enable_x64(True):
            groups = self._groups(trained, self.shapes, *first)
            shifts = uncertainty.detectable_shifts(
                groups, false_alarms=self.false_alarms, power=POWER
            )
        return np.asarray(shifts)

    def row(self, trained: Trained, sample: Sample, prediction: np.ndarray) -> Row:
        """Returns the report entries of a case.

        Args:
          trained: the operator.
          sample: the case.
          prediction: prediction of the operator for the case, `(n, q)`.

        Returns:
          `unlike`; `unlike_in`, one of `GROUPS` for an out-of-distribution case and
          None for others; `likeness_p_value` and `likeness_distance`, see `compare`;
          and the entries of `power`.
        """
        compared = self.compare(trained, sample, prediction)
        p_value, distance = float(compared.p_value), float(compared.distance)
        # Numbers too large to be squared are not alike either.
        finite = bool(np.isfinite(p_value))
        unlike = not finite or p_value <= self.false_alarms
        place = int(compared.group) if np.isfinite(distance) else 0
        return {
            "unlike": unlike,
            "unlike_in": GROUPS[place] if unlike else None,
            "likeness_p_value": p_value if finite else self.least,
            "likeness_distance": distance if np.isfinite(distance) else None,
            **self.power(),
        }

    def power(self) -> Row:
        """Returns the detection limits of the calibration cases, for a report.

        Returns:
          `likeness_cases`, the number of cases, and `likeness_shifts`, `shifts` by name
          of the group, with None if no shift is detectable. For a calibration of an
          earlier opjax, only the number.
        """
        numbers: Row = {"likeness_cases": len(self.features)}
        if self.shifts is not None:
            each = [float(t) if np.isfinite(t) else None for t in self.shifts]
            numbers["likeness_shifts"] = dict(zip(GROUPS, each, strict=False))
        return numbers

    def statement(self) -> str:
        """Describes in words which shifts the calibration cases can detect."""
        words = (
            f"{len(self.features)} calibration cases: the smallest possible p-value "
            f"is {self.least:.2g}, and a case is out of distribution at p <= "
            f"{self.false_alarms:g}"
        )
        shifts = self.power().get("likeness_shifts") or {}
        seen = [f"{t:.2g} ({name})" for name, t in shifts.items() if t is not None]
        unseen = [name for name, t in shifts.items() if t is None]
        if seen:
            words += (
                f". In {100 * POWER:.0f} % of cases, the test detects a shift of one "
                f"feature by {_listed(seen)} standard deviations"
            )
        if unseen:
            words += (
                f". It does not detect a shift of one feature of {_listed(unseen)} at "
                "this rate"
            )
        return f"{words}. Smaller differences remain undetected."

    def arrays(self) -> HostArrays:
        """Returns the arrays for `restore`, by name."""
        stored = {"likeness": self.features}
        if self.shapes is not None:
            parts = self.shapes._asdict()
            stored |= {f"likeness_{name}": array for name, array in parts.items()}
        if self.shifts is not None:
            stored["likeness_shifts"] = self.shifts
        return stored

    @property
    def least(self) -> float:
        """The smallest possible p-value."""
        return 1 / (len(self.features) + 1)


def _listed(words: Sequence[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def refer(
    trained: Trained,
    cases: Sequence[Sample],
    predictions: Sequence[np.ndarray],
    *,
    false_alarms: float | None,
) -> Reference | None:
    """Computes the reference statistics of calibration cases.

    Args:
      trained: the operator.
      cases: the cases.
      predictions: predictions of the operator for them.
      false_alarms: false-alarm rate, inside (0, 1); `RATE` if None.

    Returns:
      The reference; None if no rate is given and there are too few cases for `RATE`.

    Raises:
      ValueError: if there are too few cases for the rate, or it is not inside (0, 1).
    """
    rate = RATE if false_alarms is None else false_alarms
    least = least_cases(rate)
    if len(cases) < least:
        if false_alarms is None:
            return None
        raise ValueError(
            f"{len(cases)} calibration cases are too few for false_alarms={rate:g}: "
            f"at least {least} are needed. Use more cases, or a higher rate."
        )
    features = [
        features_of(trained, sample, values)
        for sample, values in zip(cases, predictions, strict=True)
    ]
    dim = cases[0].mesh_points.shape[1]
    waves = _LENGTH * np.random.default_rng(0).normal(size=(dim, _WAVES))
    means = np.stack([shape_of(trained, sample, waves) for sample in cases])
    noise = np.asarray([noise_of(sample) for sample in cases])
    reference = Reference(rate, np.stack(features), Shapes(waves, means, noise))
    return reference._replace(shifts=reference.detectable(trained))


def restore(
    false_alarms: float | None, arrays: Mapping[str, np.ndarray]
) -> Reference | None:
    """Restores a reference from the arrays of `Reference.arrays`.

    Args:
      false_alarms: see `Reference`; None if there was no reference.
      arrays: these arrays, possibly among others; or none of them.

    Raises:
      ValueError: if they are not the arrays of a reference.
    """
    features = arrays.get("likeness")
    if false_alarms is None or features is None:
        return None
    count = len(features)
    if count < least_cases(false_alarms) or not np.isfinite(features).all():
        raise ValueError("its moments are invalid")
    stored = [arrays.get(f"likeness_{name}") for name in Shapes._fields]
    present = [array for array in stored if array is not None]
    if not present:  # as an earlier opjax wrote it
        return Reference(false_alarms, features)
    if len(present) < len(stored) or not all(np.isfinite(a).all() for a in present):
        raise ValueError("its shapes are invalid")
    shapes = Shapes(*present)
    expected = (count, 2 * shapes.waves.shape[1]), (count,)
    if (shapes.means.shape, shapes.noise.shape) != expected:
        raise ValueError("its shapes belong to other cases")
    shifts = arrays.get("likeness_shifts")
    if shifts is not None and (np.ndim(shifts) != 1 or not np.all(shifts > 0)):
        raise ValueError("its shifts are invalid")
    return Reference(false_alarms, features, shapes, shifts)


def least_cases(false_alarms: float) -> int:
    """Returns the minimum number of cases for which an alarm is possible.

    Raises:
      ValueError: if the rate is not inside (0, 1).
    """
    if not 0 < false_alarms < 1:
        raise ValueError(
            f"{false_alarms=} must be inside (0, 1), for example 0.05 for one false "
            "alarm in twenty cases."
        )
    return uncertainty.least_cases(round(1 - false_alarms, 12))


def features_of(trained: Trained, sample: Sample, prediction: np.ndarray) -> np.ndarray:
    """Returns moments of points, input and prediction, and the scalars, `(f,)`.

    All are normalised as for the operator, and divided by their training spread.
    """
    fields = widths.parts_of(trained, sample, prediction)
    sample = trained.reduced(sample)
    with jax.enable_x64(True):
        moments = uncertainty.field_moments(
            _padded(np.concatenate(fields, axis=1)),
            quadrature_weights=_padded(weights_of(sample)),
        )
    if sample.scalars is None:
        return np.asarray(moments)
    scalars = widths.encoded(trained, "scalars", sample.scalars)
    return np.concatenate([moments, np.ravel(scalars)])


def shape_of(trained: Trained, sample: Sample, waves: np.ndarray) -> np.ndarray:
    """Returns wave means over the points, `(2 k,)`."""
    points = trained.reduced(sample).mesh_points
    points = widths.encoded(trained, "mesh_points", points)
    with jax.enable_x64(True):
        means = uncertainty.wave_means(
            _padded(points), waves, quadrature_weights=_padded(weights_of(sample))
        )
    return np.asarray(means)


def noise_of(sample: Sample) -> float:
    """Returns the inverse effective number of points, `sum w^2 / (sum w)^2`."""
    weights = weights_of(sample)
    return float(np.sum(weights**2) / np.sum(weights) ** 2)


def _padded(array: np.ndarray) -> np.ndarray:
    """An array with zeros below, so that meshes of many sizes are few programs."""
    return with_zeros(array, padded_size(len(array)))
