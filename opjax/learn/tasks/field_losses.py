"""Errors of the fields of a sample, relative to the spread of each field.

A field is identified by a name: `U` with three channels is one field, `p` is another.
Losses, metrics and displayed errors are first computed for each field and then
averaged, so that units have no effect on training.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax.learn.predict.learned import Learned
from opjax.learn.predict.neighbourhoods import root
from opjax.metrics import power_below
from opjax.normalize import Normalizer
from opjax.quadrature import active, weighted_mean
from opjax.samples import Sample
from opjax.samples.fields import Field, Fields, fields_of
from opjax.samples.normalizers import varies
from opjax.samples.summaries import Summarized

# A case that varies less than this share of what the training set does is measured as
# one that varies so much: cases may be constant, zero, or start from rest.
FLOOR = 0.1


class Sizes(NamedTuple):
    """Root mean squares over the points of a sample, relative to each field's spread.

    Attributes:
      error: RMS of prediction minus target, `(f,)`.
      target: RMS of the target, `(f,)`.
      variation: RMS of the target minus its mean over the points, `(f,)`.
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
    """Converts normalised channels to units of the spread of their fields.

    Args:
      fields: fields of the output function.
      normalizer: normaliser of its channels.
    """

    def __init__(self, fields: Fields, normalizer: Normalizer):
        mean, std = (np.asarray(part, np.float64) for part in normalizer)
        number, count = len(fields.varying), len(mean)
        self.names = fields.names
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
        """Computes the sizes of a sample.

        Args:
          values: normalised prediction, `(n, q)`.
          target: normalised target, `(n, q)`.
          quadrature_weights: weights of the points, `(n,)`; zero masks a point.
          axis_name: axis of the devices that hold the other points, if any.
        """
        weights = quadrature_weights
        if weights is None:
            weights = jnp.ones(values.shape[0], values.dtype)
        # Volumes of a mesh in nanometres would underflow in a product.
        weights = weights / power_below(weights, axis_name=axis_name)
        sums = self.sums(values, target, weights)
        if axis_name is not None:
            sums = jax.lax.psum(sums, axis_name)
        return self.of_sums(sums)

    def sums(
        self, values: jax.Array, target: jax.Array, weights: jax.Array
    ) -> "PointSums":
        """Returns sums over points, which may be a subset of a sample's points."""
        column = weights.astype(values.dtype)[:, None]
        keep = active(column)
        column = jnp.where(keep, column, 0)
        ratio, offset = (
            x.astype(values.dtype)[None] for x in (self.ratio, self.offset)
        )
        truth = jnp.where(keep, target, 0) * ratio
        error = jnp.where(keep, values, 0) * ratio - truth
        of_channels = (error**2, (truth + offset) ** 2, truth**2)
        error, size, square = (
            self._of_fields(jnp.sum(column * array, axis=0)) for array in of_channels
        )
        mean = jnp.sum(column * truth, axis=0)
        return PointSums(error, size, square, mean, jnp.sum(column))

    def _of_fields(self, of_channels: jax.Array) -> jax.Array:
        """Sums over the channels of each field; no field sees another's NaN."""
        return jnp.sum(jnp.where(self.belongs > 0, of_channels[None], 0), axis=1)

    def of_sums(self, sums: "PointSums") -> Sizes:
        """Computes the sizes from the sums over all points."""
        mass = sums.mass
        mean = self._of_fields((sums.mean / mass) ** 2)
        variation = jnp.maximum(sums.square / mass - mean, 0)
        return Sizes(
            root(sums.error / mass, jnp),
            root(sums.target / mass, jnp),
            jnp.sqrt(variation),
        )


class PointSums(NamedTuple):
    """Weighted sums over points, in units of the spread of each field.

    Attributes:
      error: sum of squares of prediction minus target, `(f,)`.
      target: sum of squares of the target, `(f,)`.
      square: sum of squares of the target minus the training mean, `(f,)`.
      mean: sum of the target minus the training mean, `(q,)`.
      mass: sum of the weights, a scalar.
    """

    error: Any
    target: Any
    square: Any
    mean: Any
    mass: Any


# The error of each field, `(f,)`.
Form = Callable[[Sizes], jax.Array]


def relative(sizes: Sizes) -> jax.Array:
    """Error relative to the size of the target, `|p - t| / |t|`."""
    return sizes.error / sizes.target


def over_spread(sizes: Sizes) -> jax.Array:
    """Error relative to the spread of the field in the training set."""
    return sizes.error


def over_case(sizes: Sizes) -> jax.Array:
    """Error relative to the variation of the case, at least `FLOOR` of training's."""
    return sizes.error / jnp.sqrt(sizes.variation**2 + FLOOR**2)


FORMS: Mapping[str, Form] = {
    "case": over_case,
    "spread": over_spread,
    "relative": relative,
}


def fields_of_training(
    train: Sequence[Sample] | Summarized,
    normalizer: Normalizer,
    names: Mapping[str, Sequence[str]] | None,
    *,
    start: Learned | None = None,
) -> Fields:
    """Returns the fields of the output function, from the training samples.

    Args:
      train: training samples.
      normalizer: normaliser of the target.
      names: names of the channels, by array.
      start: initial operator, whose fields are kept.

    Raises:
      ValueError: if no channel varies.
    """
    if start is not None:
        return start.fields
    listed = (names or {}).get("target")
    varying = varies(train, "target", listed)
    fields = fields_of(listed, np.asarray(normalizer.std), varying)
    if not fields.varying:
        raise ValueError(
            f"{', '.join(fields.constant)} are constant in all training samples, "
            "so there is nothing to learn. Use other targets, or samples that "
            "differ."
        )
    return fields


def together(fields: Fields, normalizer: Normalizer) -> Fields:
    """Returns all channels as one field in physical units, as measured in papers."""
    std = np.asarray(normalizer.std, np.float64)[fields.channels]
    whole = Field("all", tuple(fields.channels), float(np.linalg.norm(std)))
    return Fields((whole,), fields.constant)


def without_constants(normalizer: Normalizer, fields: Fields) -> Normalizer:
    """Sets the deviation of constant channels to zero: their prediction is exact."""
    std = np.asarray(normalizer.std)
    kept = np.isin(np.arange(len(std)), fields.channels)
    return normalizer._replace(std=np.where(kept, std, 0))
