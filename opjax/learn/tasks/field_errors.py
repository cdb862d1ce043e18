"""Errors of the fields of a sample, in units of the spread of each field.

A field is a name: `U` with three channels is one, `p` is another. All that is trained,
chosen or shown is first a number for each field and then their mean, so that no unit
decides what is learned.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax.learn.predict.learned import Learned
from opjax.normalize import Normalizer
from opjax.quadrature import active, weighted_mean
from opjax.samples import Sample
from opjax.samples.fields import Field, Fields, fields_of
from opjax.samples.normalizers import varies

# A case that varies less than this share of what the training set does is measured as
# one that varies so much: cases may be constant, zero, or start from rest.
FLOOR = 0.1


class Sizes(NamedTuple):
    """Root mean squares over the points of a sample, over the spread of each field.

    Attributes:
      error: of prediction minus target, `(f,)`.
      target: of the target, `(f,)`.
      variation: of the target minus its mean over the points, `(f,)`.
    """

    error: Any
    target: Any
    variation: Any


def means_of_channels(
    values: jax.Array, *, quadrature_weights: jax.Array | None = None
) -> jax.Array:
    """Returns the weighted mean of each channel over the points, `(q,)`."""
    mean = partial(weighted_mean, quadrature_weights=quadrature_weights)
    return jax.vmap(mean, in_axes=1)(values)


class Scales:
    """Turns normalised channels into units of the spread of their fields.

    Args:
      fields: of the output function.
      normalizer: of its channels.
    """

    def __init__(self, fields: Fields, normalizer: Normalizer):
        mean, std = (np.asarray(part, np.float64) for part in normalizer)
        number, count = len(fields.varying), len(mean)
        self.belongs = np.zeros((number, count), np.float32)
        ratio, offset = np.zeros(count), np.zeros(count)
        for row, field in enumerate(fields.varying):
            channels = list(field.channels)
            self.belongs[row, channels] = 1
            ratio[channels] = std[channels] / field.spread
            offset[channels] = mean[channels] / field.spread
        self.ratio, self.offset = ratio.astype(np.float32), offset.astype(np.float32)

    def sizes(
        self,
        values: jax.Array,
        target: jax.Array,
        *,
        quadrature_weights: jax.Array | None = None,
        axis_name: str | None = None,
    ) -> Sizes:
        """Measures a sample.

        Args:
          values: normalised prediction, `(n, q)`.
          target: normalised target, `(n, q)`.
          quadrature_weights: of the points, `(n,)`; a zero masks a point.
          axis_name: axis of the devices which have the other points, if any.
        """
        weights = quadrature_weights
        if weights is None:
            weights = jnp.ones(values.shape[0], values.dtype)
        column = weights.astype(values.dtype)[:, None]
        keep = active(column)

        def total(array: jax.Array) -> jax.Array:
            found = jnp.sum(array, axis=0)
            return found if axis_name is None else jax.lax.psum(found, axis_name)

        share = jnp.where(keep, column, 0) / total(column)

        def root(array: jax.Array) -> jax.Array:
            square = self.belongs.astype(array.dtype) @ total(share * array * array)
            some = square > 0  # the root has no derivative at zero
            return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1)), 0)

        ratio, offset = (x.astype(values.dtype) for x in (self.ratio, self.offset))
        known = jnp.where(keep, target, 0) * ratio
        error = jnp.where(keep, values, 0) * ratio - known
        return Sizes(
            root(error), root(known + offset), root(known - total(share * known))
        )


# The error of each field, `(f,)`.
Form = Callable[[Sizes], jax.Array]


def relative(sizes: Sizes) -> jax.Array:
    """Error over the size of the target, `|p - t| / |t|`."""
    return sizes.error / sizes.target


def over_spread(sizes: Sizes) -> jax.Array:
    """Error over the spread of the field in the training set."""
    return sizes.error


def over_case(sizes: Sizes) -> jax.Array:
    """Error over the variation of the case, at least `FLOOR` of that of training."""
    return sizes.error / jnp.sqrt(sizes.variation**2 + FLOOR**2)


FORMS: Mapping[str, Form] = {
    "relative": relative,
    "spread": over_spread,
    "case": over_case,
}


def fields_of_training(
    train: Sequence[Sample],
    normalizer: Normalizer,
    names: Mapping[str, Sequence[str]] | None,
    *,
    start: Learned | None = None,
) -> Fields:
    """Returns the fields of the output function of a training.

    Args:
      train: training samples.
      normalizer: of the target.
      names: of the channels, by array.
      start: operator to start with, whose fields are kept.

    Raises:
      ValueError: if no channel varies.
    """
    if start is not None:
        return start.fields
    varying = varies(train, "target")
    listed = (names or {}).get("target")
    fields = fields_of(listed, np.asarray(normalizer.std), varying)
    if not fields.varying:
        raise ValueError(
            f"{', '.join(fields.constant)} are constant in all training samples: there "
            "is nothing to learn. Name other targets, or give samples that differ."
        )
    return fields


def together(fields: Fields, normalizer: Normalizer) -> Fields:
    """Returns all channels as one field, in physical units, as papers measure them."""
    std = np.asarray(normalizer.std, np.float64)[fields.channels]
    whole = Field("all", tuple(fields.channels), float(np.linalg.norm(std)))
    return Fields((whole,), fields.constant)


def without_constants(normalizer: Normalizer, fields: Fields) -> Normalizer:
    """Gives channels that are constant no deviation: they are predicted exactly."""
    std = np.asarray(normalizer.std)
    kept = np.isin(np.arange(len(std)), fields.channels)
    return normalizer._replace(std=jnp.where(kept, normalizer.std, 0))


class FieldErrors(NamedTuple):
    """Errors of the fields of many samples, on the host.

    Attributes:
      names: of the fields.
      relative: relative L2 errors, `(b, f)`; NaN where a target is zero.
      over_spread: root mean square errors over the spread in training, `(b, f)`.
    """

    names: tuple[str, ...]
    relative: np.ndarray
    over_spread: np.ndarray

    @classmethod
    def of(cls, names: tuple[str, ...], sizes: Sizes) -> "FieldErrors":
        """Makes errors of what `Scales.sizes` measured of many samples."""
        error, target = (np.asarray(x, np.float64) for x in sizes[:2])
        with np.errstate(divide="ignore", invalid="ignore"):
            # In units of the spread, so this is rounding and no small field.
            relative = np.where(target > 1e-6, error / target, np.nan)
        return cls(names, relative, error)

    @property
    def filled(self) -> np.ndarray:
        """Relative errors; over the spread where a target is zero, `(b, f)`."""
        return np.where(np.isnan(self.relative), self.over_spread, self.relative)

    @property
    def of_samples(self) -> np.ndarray:
        """The mean over the fields of each sample, `(b,)`."""
        return self.filled.mean(axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what `predictions.npz` has of them."""
        return {
            "field_names": np.asarray(self.names, str),
            "field_errors": self.relative,
            "field_errors_over_spread": self.over_spread,
        }

    def numbers(self) -> dict[str, float]:
        """Returns the numbers of a table.

        `relative_l2` and `error_over_spread` are the means over samples and fields;
        of several fields, each has its own numbers, too.
        """
        each = [self._of_field(i) for i in range(len(self.names))]
        found: dict[str, float] = {}
        known = [one["relative_l2"] for one in each if "relative_l2" in one]
        if known:
            found["relative_l2"] = float(np.mean(known))
            found["relative_l2_worst"] = float(self.of_samples.max())
        found["error_over_spread"] = float(self.over_spread.mean())
        if len(each) > 1:
            for name, numbers in zip(self.names, each, strict=True):
                found |= {f"{key}_{name}": value for key, value in numbers.items()}
        return found

    def _of_field(self, place: int) -> dict[str, float]:
        relative = self.relative[:, place]
        relative = relative[~np.isnan(relative)]
        found: dict[str, float] = {}
        if relative.size:  # not if the field is zero in all samples
            found["relative_l2"] = float(relative.mean())
            found["relative_l2_worst"] = float(relative.max())
        return found | {"error_over_spread": float(self.over_spread[:, place].mean())}
