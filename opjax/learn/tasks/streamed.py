"""The regression task for meshes larger than memory, read in slices of points."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize, streaming
from opjax._trees import Model, PyTree
from opjax.files import SlicedSplits
from opjax.learn.predict import trained
from opjax.learn.predict.description import describe
from opjax.learn.predict.field_errors import FieldErrors, joined, keys
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import Encoded, Limits, Means, in_units, of_function
from opjax.learn.registry import operators
from opjax.learn.run.settings import Settings
from opjax.learn.tasks import compared, outcome, scalars
from opjax.learn.tasks.evaluation import Names, Scalars, Seen
from opjax.learn.tasks.field_losses import (
    Form,
    Scales,
    fields_of_training,
    relative,
    together,
    without_constants,
)
from opjax.learn.tasks.start import build_from, check_sizes
from opjax.learn.tasks.supervised import builder, save_and_evaluate
from opjax.learn.tasks.task import BaseTask, EpochOptions
from opjax.nn.models import block_parts
from opjax.normalize import Normalizer
from opjax.samples import Sample, summaries
from opjax.samples.fields import Fields
from opjax.samples.normalizers import encode_target, fit_normalizers
from opjax.samples.sliced import Column, Sliced, WithConstants
from opjax.training import Gradient

_SHOWN = 2**14  # points of a figure


Columns = Mapping[str, Column]
Arrays = Mapping[str, Any]  # columns as the model sees them


@dataclasses.dataclass(frozen=True, eq=False)
class _Fields:
    """The error of the fields of a sample, from sums over its points."""

    scales: Scales
    form: Form

    def value(self, sums: PyTree, parameters: object = None) -> jax.Array:
        """The mean of the errors of the fields."""
        del parameters
        return jnp.mean(self.form(self.scales.of_sums(sums)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Both:
    """The error of `regression`, of a field if there is one, and of scalars.

    The channels behind the field are those that scalars are read off.
    """

    fields: _Fields | None
    out_features: int

    def sums(self, values: jax.Array, target: jax.Array, weights: jax.Array) -> Any:
        """Returns sums over points."""
        field, read = jnp.split(values, [self.out_features], axis=1)
        read = jnp.where(weights[:, None] > 0, read, 0)
        sums: dict[str, Any] = {"read": weights @ read, "mass": jnp.sum(weights)}
        if self.fields is not None:
            sums["fields"] = self.fields.scales.sums(field, target, weights)
        return sums

    def value(self, sums: PyTree, parameters: PyTree) -> jax.Array:
        """Returns the error from these sums, of normalised scalars."""
        head, truth = parameters
        read = head.of_means(sums["read"] / sums["mass"])
        error = scalars.over_std(read, truth, jnp.ones_like(read))
        if self.fields is None:
            return error
        return self.fields.value(sums["fields"]) + scalars.WEIGHT * error


@dataclasses.dataclass(frozen=True, kw_only=True)
class StreamedTask(BaseTask):
    """A task on meshes that may each be larger than memory.

    Attributes:
      train: the training samples, on disk.
      gradient: `gradient(model, arrays)` returns loss and gradients of one sample.
    """

    train: Sliced
    gradient: Callable[[Any, Columns], tuple[jax.Array, Any]]

    @property
    def value_and_grad(self) -> Gradient:
        """The sums over the samples of a batch, of which one is there at a time."""
        return partial(_sum_over, self.gradient)

    @property
    def num_train(self) -> int:
        """Number of training samples."""
        return len(self.train)

    def _settings(self, config: EpochOptions) -> Settings:
        return Settings(
            num_epochs=config.num_epochs,
            batch_size=config.batch_size,
            seed=config.seed,
            optimizer=config.make_optimizer,
            eval_every=config.eval_every,
            checkpoint_every=config.checkpoint_every,
        )


def streamed_regression(
    splits: SlicedSplits,
    limits: Limits,
    *,
    names: Names | None = None,
    start: Learned | None = None,
    form: Form | None = None,
) -> StreamedTask:
    """Builds the `regression` task for samples that are read in slices.

    Loss, metric and normalisers are the same as in `regression` with normalised points:
    the errors of the fields and of target scalars, summed over the samples of a batch.
    Sums over points are rounded differently; the channels that target scalars are
    computed from are summed chunk by chunk.

    Args:
      splits: the samples.
      limits: number of points that are computed at once, and memory of a step, which
        determines how much of the data of a mesh is stored.
      names: names of the channels of `features` and `target`, to save.
      start: as for `regression`.
      form: as for `regression`.

    Returns:
      The task. It writes to the folder of every member the operator and
      `predictions.npz`, which contains a subset of the points of the first test sample.
    """
    train = splits.train
    normalizers = fit_normalizers(train, points=True, features=True, target=True)
    sizes = _sizes(splits, normalizers)
    if start is not None:
        sizes = check_sizes(start, sizes, names or {}, train.summaries[0].axes)
        normalizers = {name: start.normalizers[name] for name in normalizers}
    fields, of_fields = None, None
    if sizes.out_features:
        fields = fields_of_training(train, normalizers["target"], names, start=start)
        normalizers["target"] = without_constants(normalizers["target"], fields)
        measured = fields
        if form is None:
            measured = together(fields, normalizers["target"])
        scales = Scales(measured, normalizers["target"])
        of_fields = _Fields(scales, form or relative)
    data = StreamedData(normalizers, limits, of_fields, fields, names or {})
    description = describe(train, sizes=sizes, names=names, fields=fields)
    save = partial(trained.save, normalizers=normalizers, description=description)
    build = builder(sizes)
    return StreamedTask(
        train=train,
        gradient=data.gradient,
        metric=data.metric if len(splits.validation) else None,
        validation=(splits.validation,) if len(splits.validation) else (),
        test=(splits.test,),
        build=build if start is None else build_from(start, build),
        evaluate=partial(save_and_evaluate, partial(data.evaluate, splits.test), save),
        extra=normalizers,
        source=splits.source,
        notes="" if fields is None else fields.sentence(),
        over_batch=False,
        fields=() if fields is None else tuple(keys(fields.names)),
        baselines=partial(compared.none, "meshes are read in slices"),
    )


class _Look(NamedTuple):
    """What a model makes of a sample.

    Attributes:
      errors: of the fields, those of one sample; None where scalars alone are
        predicted.
      metric: of fields and scalars, which chooses the epoch.
      shown: the field at one point of many, `(m, q)`.
      read: predicted scalars, `(t,)`, and what they are; None without.
    """

    errors: FieldErrors | None
    metric: float
    shown: np.ndarray
    read: tuple[np.ndarray, np.ndarray] | None


@dataclasses.dataclass(frozen=True, eq=False)
class StreamedData:
    """How a model sees samples that are read in slices, and how it is measured.

    Attributes:
      normalizers: of the arrays.
      limits: points at once, and memory.
      of_fields: the error that is minimised; None where scalars alone are predicted.
      fields: of the output function.
      names: of the channels, by array.
    """

    normalizers: Mapping[str, Normalizer]
    limits: Limits
    of_fields: _Fields | None
    fields: Fields | None
    names: Names

    def encode(self, columns: Columns) -> Arrays:
        """Returns the arrays of a sample as the model sees them, and predicts them."""
        arrays: dict[str, Any] = {
            name: _encoded(column, self.normalizers.get(name))
            for name, column in columns.items()
        }
        n = len(columns["mesh_points"])
        if "scalars" in arrays:
            numbers = arrays.pop("scalars")[:]
            arrays["features"] = WithConstants(arrays.get("features"), numbers, n)
        if "target" not in arrays:
            arrays["target"] = np.zeros((n, 0), np.float32)
        return arrays

    @functools.cached_property
    def loss(self) -> streaming.SumLoss:
        """The loss of a sample, of its field, its scalars or both.

        It is the same object in every step, so that programs are compiled once.
        """
        of_fields = self.of_fields
        if "target_scalars" in self.normalizers:
            width = 0 if of_fields is None else len(of_fields.scales.ratio)
            both = _Both(of_fields, width)
            return streaming.SumLoss(both.sums, both.value)
        assert of_fields is not None
        return streaming.SumLoss(of_fields.scales.sums, of_fields.value)

    def gradient(self, model: PyTree, columns: Columns) -> tuple[jax.Array, Any]:
        """Returns loss and gradients of one sample."""
        inputs = dict(self.encode(columns))
        scalars_of_case = inputs.pop("target_scalars", None)
        chunks = streaming.Chunks(
            self.limits.chunk_size, memory_limit=self.limits.memory_gib * 2**30
        )
        if scalars_of_case is None:
            return streaming.value_and_grad(model, inputs, chunks, loss=self.loss)
        parameters = model.head, jnp.asarray(scalars_of_case[:])
        value, (of_operator, (of_head, _)) = streaming.value_and_grads(
            model.operator, parameters, inputs, chunks, loss=self.loss
        )
        parts = {"operator": of_operator, "head": of_head}
        waiting = {name: iter(jax.tree.leaves(part)) for name, part in parts.items()}
        leaves, structure = jax.tree_util.tree_flatten_with_path(model)
        gradients = [next(waiting[block_parts.first_name(path)]) for path, _ in leaves]
        return value, jax.tree.unflatten(structure, gradients)

    def metric(self, model: Model, columns: Columns) -> float:
        """Returns the error of fields and scalars, which chooses the epoch."""
        return self.look(model, columns).metric

    def look(self, model: Model, columns: Columns) -> _Look:
        """Returns errors of a sample, and its prediction at one point of many."""
        arrays, normalizers = self.encode(columns), self.normalizers
        q, n = arrays["target"].shape[1], len(arrays["mesh_points"])
        shown: list[np.ndarray] = []
        of_parts: list[Any] = []
        start, means = 0, Means(model)
        inputs = {k: array for k, array in arrays.items() if not k.startswith("target")}
        chunks = streaming.Chunks(self.limits.chunk_size)
        scales = self._scales()
        for part in streaming.predict(of_function(model), inputs, chunks):
            rows = slice(start, start + len(part))
            weights = np.ones(len(part), np.float32)
            if "quadrature_weights" in arrays:
                weights = np.asarray(arrays["quadrature_weights"][rows], np.float32)
            if scales:
                pair = jnp.asarray(part[:, :q]), jnp.asarray(arrays["target"][rows])
                of_parts.append([s.sums(*pair, jnp.asarray(weights)) for s in scales])
            means.add(part, weights)
            values = in_units(normalizers, "target", part[:, :q]) if q else part[:, :0]
            shown.append(values[-start % _stride(n) :: _stride(n)])
            start += len(part)
        errors, metric = None, 0.0
        if self.of_fields is not None:
            total, own = jax.tree.map(lambda *x: sum(x), *of_parts)
            metric, sizes = float(self.of_fields.value(total)), scales[1].of_sums(own)
            errors = FieldErrors.of(
                scales[1].names, sizes.error[None], sizes.target[None]
            )
        predicted_scalars, read = means.scalars(normalizers), None
        if predicted_scalars is not None:
            true_scalars = arrays["target_scalars"][:]
            true_scalars = in_units(normalizers, "target_scalars", true_scalars)
            read = predicted_scalars, true_scalars
            std = np.asarray(normalizers["target_scalars"].std)
            over = float(np.sqrt(np.mean(((read[0] - read[1]) / std) ** 2) + 1e-12))
            metric = metric + scalars.WEIGHT * over if q else over
        return _Look(errors, metric, np.concatenate(shown), read)

    def _scales(self) -> list[Scales]:
        """Those of the error that is minimised, and of each field apart."""
        if self.of_fields is None or self.fields is None:
            return []
        each = Scales(self.fields, self.normalizers["target"])
        return [self.of_fields.scales, each]

    def evaluate(
        self, test: Sliced, model: Model, folder: pathlib.Path
    ) -> dict[str, float]:
        """Evaluates the operator on one test sample after the other."""
        looks: list[_Look] = []
        for row in range(len(test)):
            with test.open(row) as columns:
                one = self.look(model, columns)
                looks.append(one if not row else one._replace(shown=one.shown[:0]))
        with test.open(0) as columns:
            sample = _every(columns, _stride(len(columns["mesh_points"])))
        seen = Seen(np.asarray([one.metric for one in looks]))
        if self.fields is None:
            seen = seen._replace(further=scalars.mean_and_worst(seen.errors))
        else:
            by_field = joined([one.errors for one in looks if one.errors is not None])
            seen = seen._replace(errors=by_field.of_samples, by_field=by_field)
        if pairs := [one.read for one in looks if one.read is not None]:
            read = Scalars(*map(np.stack, zip(*pairs, strict=True)))
            seen = seen._replace(scalars=read)
        outcome.write(
            folder,
            errors=seen.errors,
            rows=[0],
            samples=[sample],
            predicted=[looks[0].shown],
            extra=seen.arrays(self.fields, self.names),
        )
        return seen.numbers(self.names)


def _sizes(
    splits: SlicedSplits, normalizers: Mapping[str, Normalizer]
) -> operators.Sizes:
    """Sizes of all samples, in normalised coordinates."""
    parts = splits.train, splits.validation, splits.test
    every = [summary for part in parts for summary in part.summaries]
    channels = every[0].channels
    scalar_dim = channels.get("scalars", 0)
    low, high = summaries.limits(every, "mesh_points")
    corners = normalize.encode(normalizers["mesh_points"], np.stack([low, high]))
    lower, upper = (tuple(map(float, corner)) for corner in corners)
    return operators.Sizes(
        point_dim=channels["mesh_points"],
        feature_dim=channels.get("features", 0) + scalar_dim,
        out_features=channels.get("target", 0),
        box=(lower, upper),
        scalar_dim=scalar_dim,
        target_scalars=channels.get("target_scalars", 0),
    )


def _encoded(column: Column, normalizer: Normalizer | None) -> Any:
    """A column, encoded in double precision where it is sliced, float32."""
    if normalizer is None:
        return column
    return Encoded(column, partial(encode_target, normalizer=normalizer))


def _sum_over(
    gradient: Callable[[Any, Columns], tuple[jax.Array, Any]],
    model: PyTree,
    batch: Iterable[Columns],
    key: None = None,
) -> Any:
    """Loss and gradients of a batch, see `BaseTask.value_and_grad`."""
    del key  # the loss is deterministic
    each = (gradient(model, arrays) for arrays in batch)
    total = functools.reduce(partial(jax.tree.map, jnp.add), each)
    return (total[0], {}), total[1]


def _stride(num_points: int) -> int:
    """Every so many-th point is shown."""
    return -(-num_points // _SHOWN)


def _every(arrays: Columns, stride: int) -> Sample:
    """A sample of every so many-th point."""
    n, step = len(arrays["mesh_points"]), 2**16 // stride * stride or stride

    def chosen(name: str) -> np.ndarray:
        column = arrays[name]
        parts = [column[i : min(i + step, n)][::stride] for i in range(0, n, step)]
        return np.concatenate(parts)

    features = chosen("features") if "features" in arrays else None
    target = chosen("target") if "target" in arrays else None
    return Sample(chosen("mesh_points"), target, features)
