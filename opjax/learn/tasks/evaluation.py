"""Evaluation of a model on the test samples, and its output files."""

import dataclasses
import functools
import pathlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from opjax import samples
from opjax._trees import Arrays, Batch, Model, PyTree
from opjax.learn.config.quantities import Quantity
from opjax.learn.named_types import HostArrays, Numbers
from opjax.learn.predict.field_errors import FieldErrors, errors_of
from opjax.learn.predict.prediction import call_both, in_units
from opjax.learn.predict.quantities import measure
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.learn.run import batches, buckets
from opjax.learn.tasks import outcome, scalars
from opjax.learn.tasks import quantities as measured
from opjax.learn.tasks.compared import OfErrors
from opjax.learn.tasks.field_losses import Sizes
from opjax.normalize import Normalizer
from opjax.samples import Sample, summaries
from opjax.samples.fields import Fields
from opjax.samples.narrowing import narrow
from opjax.samples.normalizers import Names


def mean_and_worst(errors: np.ndarray) -> Numbers:
    """Returns the mean and the largest error of the test samples."""
    worst = float(errors.max())
    return {"relative_l2": float(errors.mean()), "relative_l2_worst": worst}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Options of the evaluation on the test samples.

    Attributes:
      numbers: `numbers(errors)` returns the numbers for the errors of all channels
        together.
      quantities: quantities of predictions and targets, see `tasks.quantities`.
      window: left, right, bottom and top limits of figures; None for the full domain.
      baselines: also evaluate predictions without an operator, see `tasks.compared`.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn
      >>> def median(errors):
      ...     return {"median_error": float(np.median(errors))}
      >>> evaluation = learn.Evaluation(numbers=median)
      >>> evaluation.numbers(np.array([0.1, 0.2, 0.6]))
      {'median_error': 0.2}
    """

    numbers: OfErrors = mean_and_worst
    quantities: Sequence[Quantity] = ()
    window: tuple[float, float, float, float] | None = None
    baselines: bool = False

    def check(self, physical: Sequence[Sample], names: Names) -> None:
        """Raises ValueError if a requested quantity does not fit the targets."""
        for sample in physical if self.quantities else ():
            if sample.target is None:
                raise ValueError(
                    f"quantities={self.quantities[0].text} needs a predicted field, "
                    "but only scalars are predicted; name a field in target_names, "
                    "or omit it."
                )
            measure(self.quantities, sample, [sample.target], names)


class Scalars(NamedTuple):
    """Scalars of the test samples in physical units, `(b, t)`."""

    predicted: np.ndarray
    target: np.ndarray

    def arrays(self) -> HostArrays:
        """Returns the entries of `predictions.npz` for scalars."""
        return {"predicted_scalars": self.predicted, "target_scalars": self.target}

    def numbers(self, names: Names) -> Numbers:
        """Returns the numbers of each scalar, see `scalars.errors`."""
        return scalars.errors(self.predicted, self.target, names.get("target_scalars"))


class Seen(NamedTuple):
    """What a model makes of the test samples, from memory and in slices alike.

    Attributes:
      errors: of every sample, by which tables and figures order them.
      by_field: errors of each field; None where no field has an error of its own.
      scalars: if some are predicted.
      further: numbers, of all channels together and of quantities.
    """

    errors: np.ndarray
    by_field: FieldErrors | None = None
    scalars: Scalars | None = None
    further: Mapping[str, float] = types.MappingProxyType({})

    def arrays(self, fields: Fields | None, names: Names) -> dict[str, ArrayLike]:
        """Returns what `predictions.npz` has of them, and the names of channels."""
        arrays: dict[str, ArrayLike] = {
            f"{role}_names": np.asarray(listed, str)
            for role, listed in names.items()
            if listed
        }
        if self.scalars is not None:
            arrays |= self.scalars.arrays()
        if self.by_field is not None and fields is not None:
            arrays |= self.by_field.arrays(fields)
        return arrays

    def numbers(self, names: Names) -> Numbers:
        """Returns the errors shown in tables, the main one first."""
        numbers = {} if self.by_field is None else self.by_field.numbers()
        numbers |= self.further
        return numbers | ({} if self.scalars is None else self.scalars.numbers(names))


@dataclasses.dataclass(frozen=True, eq=False)
class TestSet:
    """Test samples, in physical units and encoded for a model.

    Attributes:
      samples: samples in physical units.
      buckets: the same samples, encoded and stacked.
      batch_size: number of samples evaluated at once.
      normalizers: normalisers of predictions.
      rows: indices in `samples` of the samples of every bucket; those of
        `samples.stack` if None.
      scaling: scaling of the samples, if the model receives them scaled.
      starts: predictions of the baselines that the model adds to, if any, for the
        scaled samples, `(n, q)` each.
      shares: factors of the model's output, `(q,)`.
    """

    samples: Sequence[Sample]
    buckets: tuple[Batch, ...]
    batch_size: int
    normalizers: Mapping[str, Normalizer] = dataclasses.field(default_factory=dict)
    rows: Sequence[np.ndarray] | None = None
    scaling: Scaling | None = None
    starts: Sequence[np.ndarray] | None = None
    shares: np.ndarray | None = None

    __test__ = False  # no class of tests

    @functools.cached_property
    def places(self) -> Sequence[np.ndarray]:
        """Indices in `samples` of the samples of every bucket."""
        if self.rows is not None:
            return self.rows
        counts = summaries.num_points(self.samples)
        return [chosen for _, chosen in samples.bucket_rows(counts)]

    @functools.cached_property
    def _where(self) -> dict[int, tuple[Batch, int]]:
        return {
            int(row): (bucket, place)
            for bucket, chosen in zip(self.buckets, self.places, strict=True)
            for place, row in enumerate(chosen)
        }

    def encoded(self, row: int) -> HostArrays:
        """Returns the encoded arrays of one sample, possibly padded."""
        bucket, place = self._where[row]
        arrays = buckets.rows(bucket, [place])
        return {name: np.asarray(array[0]) for name, array in arrays.items()}

    def predicted(self, model: Model, row: int) -> np.ndarray:
        """Returns the prediction for one sample in physical units, `(n, q)`."""
        sample = self.samples[row]
        target = sample.mesh_points if sample.target is None else sample.target
        if self.starts is not None and self.shares is not None:
            prediction = self.starts[row] + self.change(model, row) * self.shares
            prediction = prediction.astype(target.dtype)
        else:
            values = np.asarray(_values(model, self.encoded(row)))
            prediction = in_units(self.normalizers, "target", values)[: len(target)]
        if self.scaling is None:
            return prediction
        return self.scaling.physical(prediction, sample)

    def change(self, model: Model, row: int) -> np.ndarray:
        """Returns what the model adds to the baseline of a sample, `(n, q)`."""
        assert self.starts is not None
        values = np.asarray(_values(model, self.encoded(row)), np.float64)
        std = np.asarray(self.normalizers["target"].std)
        return values[: len(self.starts[row])] * std

    def fields(self, model: Model) -> Iterator[np.ndarray]:
        """Yields the predictions at the mesh points of all samples."""
        for row, sample in enumerate(self.samples):
            yield self.predicted(model, row)[: sample.num_points]

    def scalars(self, model: Model) -> Scalars:
        """Returns predicted and true scalars."""
        read = self.measured(_scalars_of, model).astype(np.float32)
        target = np.stack([np.asarray(one.target_scalars) for one in self.samples])
        predicted = in_units(self.normalizers, "target_scalars", read)
        predicted = scalars.physical(self.scaling, self.samples, predicted)
        return Scalars(predicted, narrow(target))

    def measured(self, error: Callable[..., PyTree], model: Model) -> PyTree:
        """Returns `error(model, sample)` for all samples in order, in float64."""
        parts = [
            batches.evaluate(error, model, bucket, batch_size=self.batch_size)
            for bucket in self.buckets
        ]
        order = np.argsort(np.concatenate(self.places))

        def ordered(*values: np.ndarray) -> np.ndarray:
            return np.concatenate(values).astype(np.float64)[order]

        return jax.tree.map(ordered, *parts)


def _scalars_of(model: Model, sample: Arrays) -> jax.Array:
    return call_both(model, sample).scalars


@jax.jit
def _values(model: Model, sample: Arrays) -> jax.Array:
    return operators.call(model, sample)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Evaluator:
    """Evaluates a model on the test samples and writes `predictions.npz`.

    Attributes:
      test: the test samples.
      error: `error(model, sample)` of one encoded sample, or its `Sizes`.
      what: options of the evaluation.
      fields: fields of the output function; each then has separate numbers.
      names: names of the channels.
      scalars: whether scalars are predicted.
    """

    test: TestSet
    error: Callable[..., jax.Array | Sizes]
    what: Evaluation = Evaluation()
    fields: Fields | None = None
    names: Names = dataclasses.field(default_factory=dict)
    scalars: bool = False

    def __call__(self, model: Model, folder: pathlib.Path) -> Numbers:
        """Returns the numbers of the test samples, the headline first."""
        test, names, what = self.test, self.names, self.what
        read = test.scalars(model) if self.scalars else None
        sizes = test.measured(self.error, model)
        errors, by_field = sizes, None
        further: Numbers = {}
        if isinstance(sizes, Sizes):
            assert self.fields is not None
            by_field = FieldErrors.of(self.fields.names, sizes.error, sizes.target)
            errors = by_field.of_samples
        else:  # of all channels together
            further |= what.numbers(errors)
            if self.fields is not None:
                by_field = errors_of(self.fields, test.samples, test.fields(model))
        if what.quantities:
            fields = test.fields(model)
            further |= measured.evaluate(
                what.quantities, test.samples, fields, names, folder
            )
        seen = Seen(errors, by_field, read, further)
        window = {} if what.window is None else {"window": what.window}
        chosen = outcome.rows(errors)
        first = test.samples[chosen[0]]
        outcome.write(
            folder,
            errors=errors,
            rows=chosen,
            samples=[test.samples[row] for row in chosen],
            predicted=[test.predicted(model, row) for row in chosen],
            inspected=outcome.inspect(
                model, test.encoded(chosen[0]), num_points=first.num_points
            ),
            extra=window | seen.arrays(self.fields, names),
        )
        return seen.numbers(names)
