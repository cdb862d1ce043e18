"""The error of a sample, which is minimised in training and selects the epoch."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics, normalize, training
from opjax._trees import Arrays, Batch, Model
from opjax.learn.predict.prediction import call_both, decode_target, predict_sample
from opjax.learn.predict.starting import of_both
from opjax.learn.tasks import scalars
from opjax.learn.tasks.field_losses import Form, Scales, Sizes
from opjax.normalize import Normalizer

# `loss(prediction, sample)` of a program, in physical units.
OwnLoss = Callable[..., jax.Array]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loss:
    """The loss of a training, a sum over the samples of a batch.

    Attributes:
      form: form of the error of a field, one of `field_losses.FORMS`; every field then
        has separate numbers. None for the error of all channels together.
      own: `own(prediction, sample)`, a loss of one sample in physical units, which
        replaces the error.
      over_points: whether this loss takes `axis_name=`, the axis of the devices that
        hold the other points, see `Task.over_points`.
      mean: divide the sum by the number of samples in the batch.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import learn
      >>> def largest(prediction, sample):
      ...     return jnp.max(jnp.abs(prediction - sample["target"]))
      >>> learn.Loss(own=largest, mean=True).mean
      True
      >>> learn.Loss(form="l1").form
      'l1'
    """

    form: Form | None = None
    own: OwnLoss | None = None
    over_points: bool = False
    mean: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SampleError:
    """The error of a sample, for its field, its scalars, or both.

    Attributes:
      normalizers: normalisers of all arrays.
      form: see `Loss`.
      scales: scales of the fields, if each has a separate error.
      field: whether a field is predicted.
      scalars: whether scalars are predicted.
      shares: factors of the model that adds to the baselines beside the targets, one
        per channel, `(q,)`; None if it does not add to a baseline.
    """

    normalizers: Mapping[str, Normalizer]
    form: Form | None = None
    scales: Scales | None = None
    field: bool = True
    scalars: bool = False
    shares: np.ndarray | None = None

    def __call__(
        self, model: Model, sample: Arrays, *, axis_name: str | None = None
    ) -> jax.Array:
        """Returns the error; `axis_name` is that of devices with the other points."""
        values, read = call_both(model, sample, axis_name=axis_name)
        if not self.scalars:
            return self._of_field(values, sample, axis_name)
        if not self.field:
            return self._of_scalars(read, sample)
        error = self._of_field(values, sample, axis_name)
        return error + scalars.WEIGHT * self._of_scalars(read, sample)

    def measured(self, model: Model, sample: Arrays) -> jax.Array | Sizes:
        """Returns the numbers for tables: the field error, or `Sizes` of all fields."""
        values, read = call_both(model, sample)
        if not self.field:
            return self._of_scalars(read, sample)
        if self._by_field is not None:
            return self._sizes(self._by_field[0], values, sample, None)
        return self._of_field(values, sample, None)

    @property
    def _by_field(self) -> tuple[Scales, Form] | None:
        if self.form is None or self.scales is None:
            return None
        return self.scales, self.form

    def _of_field(
        self, values: jax.Array, sample: Arrays, axis_name: str | None
    ) -> jax.Array:
        """The mean error of the fields, or that of all channels in physical units."""
        if self._by_field is not None:
            scales, form = self._by_field
            return jnp.mean(form(self._sizes(scales, values, sample, axis_name)))
        return metrics.relative_l2(
            decode_target(self.normalizers, values),
            sample["target"],
            quadrature_weights=sample.get("quadrature_weights"),
            axis_name=axis_name,
            rescale=False,
        )

    def _sizes(
        self,
        scales: Scales,
        values: jax.Array,
        sample: Arrays,
        axis_name: str | None,
    ) -> Sizes:
        target = sample["target"]
        if self.shares is not None:
            values, target = of_both(values, target, self.shares)
        return scales.sizes(
            values,
            target,
            quadrature_weights=sample.get("quadrature_weights"),
            axis_name=axis_name,
        )

    def _of_scalars(self, read: jax.Array | None, sample: Arrays) -> jax.Array:
        """The error of scalars over their deviation in training.

        With a form they are in units of it; of published programs, in physical units.
        """
        assert read is not None
        target = sample["target_scalars"]
        if self.form is not None:
            return scalars.over_std(read, target, jnp.ones_like(read))
        normalizer = self.normalizers["target_scalars"]
        predicted = normalize.decode(normalizer, read)
        std = jnp.asarray(normalizer.std, predicted.dtype)
        return scalars.over_std(predicted, target, std)


def of_sample(loss: Loss, error: SampleError) -> Callable[..., jax.Array]:
    """Returns `f(model, sample, axis_name=)`, the loss of a sample."""
    if loss.own is None:
        return error
    return partial(_own, loss.own, error.normalizers, over_points=loss.over_points)


def _own(
    loss: OwnLoss,
    normalizers: Mapping[str, Normalizer],
    model: Model,
    sample: Arrays,
    *,
    over_points: bool,
    axis_name: str | None = None,
) -> jax.Array:
    """The loss of a program for a sample, which may take the axis of the devices."""
    values = predict_sample(normalizers, model, sample, axis_name=axis_name)
    if over_points:
        return loss(values, sample, axis_name=axis_name)
    return loss(values, sample)


def total(
    of_sample: Callable[..., jax.Array],
    divisor: int | None,
    model: Model,
    batch: Batch,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The sum of a loss over the samples of a batch, divided by a divisor if given."""
    each = training.over_samples(partial(of_sample, model, axis_name=axis_name))
    value = jnp.sum(each(batch))
    return value if divisor is None else value / divisor
