"""The ordinary benchmark task: fields on meshes to fields on the same meshes."""

import functools
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import metrics, normalize, samples, training
from opjax.learn.config.quantities import Quantity
from opjax.learn.predict import trained
from opjax.learn.predict.field_errors import FieldErrors, errors_of, keys
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.prediction import (
    call_both,
    decode_target,
    in_units,
    predict_sample,
)
from opjax.learn.predict.quantities import measure
from opjax.learn.registry import operators
from opjax.learn.run import batches, buckets
from opjax.learn.tasks import outcome, points, scalars
from opjax.learn.tasks import quantities as measured
from opjax.learn.tasks.field_losses import (
    Form,
    Scales,
    Sizes,
    fields_of_training,
    without_constants,
)
from opjax.learn.tasks.start import build_from, check_options, check_sizes
from opjax.learn.tasks.task import Task
from opjax.normalize import Normalizer
from opjax.samples import Sample, Splits, summaries
from opjax.samples.digests import digests
from opjax.samples.fields import Fields
from opjax.samples.narrowing import narrow
from opjax.samples.normalizers import encode_stored, fit_normalizers
from opjax.samples.stored import Stored


def regression(
    config: Any,
    splits: Splits,
    *,
    encode_points: bool = False,
    encode_features: bool = True,
    encode_target: bool = True,
    notes: str = "",
    names: Mapping[str, Sequence[str]] | None = None,
    window: tuple[float, float, float, float] | None = None,
    loss: Callable[..., jax.Array] | None = None,
    build: Callable[[Any, nnx.Rngs], Any] | None = None,
    numbers: Callable[[np.ndarray], dict[str, float]] | None = None,
    pointwise: bool = False,
    mean: bool = False,
    over_points: bool = False,
    start: Learned | None = None,
    quantities: Sequence[Quantity] = (),
    form: Form | None = None,
) -> Task:
    """Builds the task to predict the target from mesh and features.

        loss = sum_b |p_b - t_b| / |t_b|,

    in physical units, the relative L2 error over all points and channels of a sample,
    summed over the batch, as in most published runs: with clipping, scale matters. With
    `form` it is the mean of the errors of the fields, each in units of its own, see
    `field_losses`. Where samples have target scalars `s`, with predictions `r` and
    their standard deviation `d` over the training samples, every sample adds

        0.1 sqrt(mean_j ((r_j - s_j) / d_j)^2)

    to the loss and to the error that chooses the epoch. Without a target, this root
    without its factor is both of them.

    Args:
      config: has `batch_size`, `num_buckets` and the fields of `ModelOptions`.
      splits: the samples; their own normalisers, if they have some, take the place of
        the fitted ones.
      encode_points: map the box of the training meshes to [-1, 1] along its longest
        side, for coordinates in any unit.
      encode_features: normalise every channel of the features.
      encode_target: normalise every channel of the target.
      notes: as in `Task`.
      names: of the channels of `features` and `target`, to be saved.
      window: left, right, bottom and top of what figures show; None for all.
      loss: `loss(prediction, sample)` of a sample, in physical units, in place of the
        error.
      over_points: whether that loss takes `axis_name=`, the axis of the devices that
        have the other points, see `Task.over_points`.
      build: as in `Task`, for models that `operators.build` does not know; `learn.load`
        cannot read them.
      numbers: `numbers(errors)` of the test samples, `mean_and_worst` by default.
      pointwise: normalise every point by itself, on grids that all samples share.
      mean: divide the loss by the samples of the batch.
      start: trained operator whose parameters the training starts with, and whose
        normalisers take the place of the fitted ones.
      quantities: computed of predictions and targets of the test samples, see
        `tasks.quantities`.
      form: of the error of a field, one of `field_losses.FORMS`; every field then has
        its own numbers. None for the error of all channels together.

    Returns:
      The task. The folder of every member gets the operator, see `trained`, and
      `predictions.npz`, see `outcome`.

    Raises:
      TypeError: if an array of a sample is not floating point.
      ValueError: if samples are damaged or do not agree with each other, or with what
        the operator to start with was trained on.
    """
    check(splits)
    given = dict(splits.normalizers or {})
    fitted = fit_normalizers(
        splits.train,
        points=encode_points,
        features=encode_features and "features" not in given,
        target=encode_target and "target" not in given,
        pointwise=pointwise,
        names=names,
        published=form is None,
    )
    if start is not None:
        check_options(start, config)
    found = operators.sizes(all_samples(splits), fitted | given)
    if start is not None:
        found = check_sizes(start, found, names or {})
        fitted = {name: start.normalizers[name] for name in fitted}
    fields = None
    by_channel = "target" in fitted and not pointwise
    if by_channel and (form is not None or found.out_features > 1):
        fields = fields_of_training(splits.train, fitted["target"], names, start=start)
    if form is not None and fields is not None:
        fitted["target"] = without_constants(fitted["target"], fields)
    obstacle = _obstacle(splits.train[0], loss=loss, build=build, pointwise=pointwise)
    points.check(config, splits.train, found, obstacle=obstacle)
    normalizers = fitted | given
    predict = partial(predict_sample, normalizers)
    stacked = partial(
        _stacked, config, splits, encoder(fitted, target=form is not None)
    )

    of_values: OfValues = partial(_together, normalizers)
    error: Callable[..., Any] = partial(_error, of_values)
    if form is not None and fields is not None:
        scales = Scales(fields, fitted["target"])
        of_values = partial(_by_field, scales, form)
        error = partial(_sizes_of_fields, scales)
    metric = partial(_error, of_values)
    if found.target_scalars:
        read = normalizers["target_scalars"] if form is None else None
        metric = partial(_error_of_both, of_values, read)
        if not found.out_features:
            error = metric = partial(_error_of_scalars, read)
            numbers = scalars.mean_and_worst

    of_sample = metric
    if loss is not None:
        of_sample = partial(_own_loss, predict, loss, over_points=over_points)

    make = build or builder(found)
    shown: dict[str, Any] = {} if window is None else {"window": window}
    for role, listed in (names or {}).items():
        shown[f"{role}_names"] = np.asarray(listed, str)
    description = trained.describe(
        splits.train, sizes=found, names=names, fields=fields
    )
    description |= _seen(splits, start)
    physical: Sequence[Sample] = splits.test
    if "features" in given:
        physical = [_decoded(given["features"], sample) for sample in splits.test]
    if quantities:
        _check_quantities(quantities, physical, names or {})
    test = stacked("test")
    rows = [chosen for _, chosen in _rows(config, splits, "test")]

    def also(values: Iterator[np.ndarray], folder: pathlib.Path) -> dict[str, float]:
        if not quantities:
            return {}
        return measured.evaluate(quantities, physical, values, names or {}, folder)

    look = evaluator(
        config,
        physical,
        test,
        error,
        operators.call,
        numbers,
        decode=partial(in_units, normalizers, "target"),
        rows=rows,
        further=also,
        fields=fields,
    )

    def evaluate(model: Any, folder: pathlib.Path) -> dict[str, float]:
        if build is None:
            trained.save(folder, model, normalizers, description)
        if not found.target_scalars:
            return look(model, folder, shown)
        read = scalars.predicted(call_both, model, test, rows, config.batch_size)
        read = in_units(normalizers, "target_scalars", read)
        known = narrow(np.stack([s.target_scalars for s in splits.test]))  # pyright: ignore
        arrays = {"predicted_scalars": read, "target_scalars": known}
        listed = (names or {}).get("target_scalars")
        return look(model, folder, shown | arrays) | scalars.errors(read, known, listed)

    return Task(
        train=stacked("train"),
        validation=stacked("validation"),
        test=test,
        build=make if start is None else build_from(start, make),
        loss=partial(_total, of_sample, config.batch_size if mean else None),
        metric=metric,
        evaluate=evaluate,
        extra=normalizers,
        source=splits.source,
        notes=" ".join(
            filter(None, [notes, "" if fields is None else fields.sentence()])
        ),
        # Normalisers of every point are whole on every device.
        over_points=(loss is None or over_points) and not pointwise,
        row=math.prod((found.grid_shape or (1,))[1:]),
        mean=mean,
        draws_points=not obstacle,
        fields=() if fields is None else tuple(keys(fields.names)),
    )


def _own_loss(
    predict: Callable[..., jax.Array],
    loss: Callable[..., jax.Array],
    model: Any,
    sample: Any,
    *,
    over_points: bool,
    axis_name: str | None = None,
) -> jax.Array:
    """The loss of a program for a sample, which may take the axis of the devices."""
    values = predict(model, sample, axis_name=axis_name)
    if over_points:
        return loss(values, sample, axis_name=axis_name)
    return loss(values, sample)


def _total(
    of_sample: Callable[..., jax.Array],
    divisor: int | None,
    model: Any,
    batch: Any,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The sum of a loss over the samples of a batch, divided if there is a divisor."""
    each = training.over_samples(partial(of_sample, model, axis_name=axis_name))
    value = jnp.sum(each(batch))
    return value if divisor is None else value / divisor


def _check_quantities(
    quantities: Sequence[Quantity],
    physical: Sequence[Sample],
    names: Mapping[str, Sequence[str]],
) -> None:
    """Raises, before any training, where quantities of targets cannot be computed."""
    for sample in physical:
        if sample.target is None:
            raise ValueError(
                f"quantities={quantities[0].text} is one of predicted fields, but "
                "scalars alone are predicted; name a field, target_names=..., or "
                "leave it out."
            )
        measure(quantities, sample, [sample.target], names)


def _obstacle(
    sample: Sample, *, loss: object | None, build: object | None, pointwise: bool
) -> str:
    """What needs all points of a sample in training; empty if nothing does."""
    if loss is not None or build is not None:
        return "the loss or the model of this program needs all points"
    if pointwise:
        return "every point is normalised by itself"
    if sample.target_grid is not None:
        return "the target is on a grid of its own"
    return ""


def _seen(splits: Splits, start: Learned | None) -> dict[str, list[str]]:
    """Digests of the samples that train or choose the operator, where they are known.

    Of an operator to start with too: calibration refuses all of them.
    """
    found = digests(splits.train, splits.validation)
    before = [] if start is None else start.description.get("seen")
    return {} if found is None or before is None else {"seen": [*before, *found]}


# `of_values(values, sample, axis_name=)`: the error of normalised predictions.
OfValues = Callable[..., jax.Array]


def _together(
    normalizers: Mapping[str, Normalizer],
    values: jax.Array,
    sample: Any,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The relative error of all channels together, in physical units."""
    return metrics.relative_l2(
        decode_target(normalizers, values),
        sample["target"],
        quadrature_weights=sample.get("quadrature_weights"),
        axis_name=axis_name,
        rescale=False,
    )


def _sizes(
    scales: Scales, values: jax.Array, sample: Any, axis_name: str | None
) -> Sizes:
    return scales.sizes(
        values,
        sample["target"],
        quadrature_weights=sample.get("quadrature_weights"),
        axis_name=axis_name,
    )


def _by_field(
    scales: Scales,
    form: Form,
    values: jax.Array,
    sample: Any,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The mean of the errors of the fields."""
    return jnp.mean(form(_sizes(scales, values, sample, axis_name)))


def _sizes_of_fields(scales: Scales, model: Any, sample: Any) -> Sizes:
    return _sizes(scales, call_both(model, sample).values, sample, None)


def _error(
    of_values: OfValues, model: Any, sample: Any, *, axis_name: str | None = None
) -> jax.Array:
    """The error of a sample.

    `axis_name` is that of the devices that have the other points, if there are any.
    """
    values = operators.call(model, sample, axis_name=axis_name)
    return of_values(values, sample, axis_name=axis_name)


def _error_of_both(
    of_values: OfValues,
    normalizer: Normalizer | None,
    model: Any,
    sample: Any,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The error of a sample, and that of its scalars over their deviation."""
    values, read = call_both(model, sample, axis_name=axis_name)
    error = of_values(values, sample, axis_name=axis_name)
    return error + scalars.WEIGHT * _over_std(normalizer, read, sample)


def _error_of_scalars(
    normalizer: Normalizer | None,
    model: Any,
    sample: Any,
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """The error of the scalars of a sample over their deviation."""
    read = call_both(model, sample, axis_name=axis_name).scalars
    return _over_std(normalizer, read, sample)


def _over_std(normalizer: Normalizer | None, read: Any, sample: Any) -> jax.Array:
    """The error of scalars, which are in units of their deviation without a normaliser.

    Of published programs they are in physical units.
    """
    known = sample["target_scalars"]
    if normalizer is None:
        return scalars.over_std(read, known, jnp.ones_like(read))
    found = normalize.decode(normalizer, read)
    return scalars.over_std(found, known, jnp.asarray(normalizer.std, found.dtype))


def _stacked(
    config: Any,
    splits: Splits,
    encode: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
    name: str,
) -> tuple[Any, ...]:
    """Returns buckets of the samples of one part, normalised."""
    found, sizes = getattr(splits, name), _padded_sizes(config, splits, name)
    batch_size = config.batch_size if name == "train" else 1
    if isinstance(found, Stored):
        return buckets.of(found, encode, batch_size=batch_size, sizes=sizes)
    return tuple(map(encode, samples.stack(found, batch_size=batch_size, sizes=sizes)))


def _padded_sizes(config: Any, splits: Splits, name: str) -> tuple[int, ...] | None:
    """Sizes that the samples of one part are padded to; None if all have one size.

    Those of the training where they fit, so that all parts share what is compiled.
    """
    found = getattr(splits, name)
    if not found:
        return None
    counts = summaries.num_points(found)
    batch_size, epochs = 1, 1
    if name == "train":
        batch_size, epochs = config.batch_size, getattr(config, "num_epochs", 1)
    else:
        sizes = _padded_sizes(config, splits, "train")
        fitting = None if sizes is None else samples.fitting_sizes(counts, sizes)
        if fitting is not None:
            return fitting
    if len(set(counts)) == 1:
        return None
    number = config.num_buckets or samples.cheapest_num_buckets(
        counts, batch_size=batch_size, num_epochs=epochs
    )
    rows = samples.bucket_rows(counts, batch_size=batch_size, num_buckets=number)
    return tuple(size for size, _ in rows)


def _rows(config: Any, splits: Splits, name: str) -> list[tuple[int, np.ndarray]]:
    """Sizes and rows of the samples of one part, as in `_stacked`, but for training."""
    counts = summaries.num_points(getattr(splits, name))
    return samples.bucket_rows(counts, sizes=_padded_sizes(config, splits, name))


def encoder(
    fitted: Mapping[str, Normalizer], *, target: bool = False
) -> Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]:
    """Makes what encodes stacked samples, outside of JAX; see `encode_stored`."""
    known = {name: Normalizer(*map(np.asarray, one)) for name, one in fitted.items()}  # pyright: ignore
    return partial(encode_stored, normalizers=known, target=target)


def check(splits: Splits) -> None:
    """Raises an error unless all samples agree, see `samples.check`."""
    for name in ("train", "validation", "test"):
        found = getattr(splits, name)
        if name == "validation" and not found:  # the last epoch is taken
            continue
        if isinstance(found, Stored):  # checked in the first pass, and when read
            known = (summary.channels for summary in found.summaries)
            targets = all({"target", "target_scalars"} & c.keys() for c in known)
        else:
            try:
                samples.check(found)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{name} samples: {error}") from None
            targets = all(
                sample.target is not None or sample.target_scalars is not None
                for sample in found
            )
        if not targets:
            raise ValueError(
                f"{name} samples: there are no targets to learn from; give "
                "Sample.target, or Sample.target_scalars."
            )
        samples.check_same_channels(splits.train[0], found[0], names=("train", name))


def all_samples(splits: Splits) -> Sequence[Sample]:
    """All samples of a benchmark."""
    parts = splits.train, splits.validation, splits.test
    if all(isinstance(part, Stored) for part in parts):
        return functools.reduce(Stored.__add__, parts)  # pyright: ignore
    return [sample for part in parts for sample in part]


def grid_sizes(
    splits: Splits,
    *,
    out_features: int | None = None,
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    time_embedding: bool = False,
) -> operators.Sizes:
    """Checks samples that share one grid, and finds their `operators.sizes`.

    Args:
      splits: the samples.
      out_features: as in `operators.sizes`.
      box: as in `operators.sizes`.
      time_embedding: as in `operators.sizes`.

    Raises:
      ValueError: if they are on different grids, or as from `check`.
    """
    check(splits)
    found = operators.sizes(
        all_samples(splits),
        out_features=out_features,
        box=box,
        time_embedding=time_embedding,
    )
    if found.grid_shape is None:
        raise ValueError("The samples are on different grids; they must share one.")
    return found


def builder(sizes: operators.Sizes) -> Callable[[Any, nnx.Rngs], Any]:
    """Makes `Task.build` of `operators.build`, compiled in one piece.

    One by one, the operations that draw the parameters take three times as long to
    compile. The parameters are those of `operators.build` but for rounding. A model of
    your own is built as it is: it may do what cannot be compiled.
    """

    def build(config: Any, rngs: nnx.Rngs) -> Any:
        def whole(rngs: nnx.Rngs) -> Any:
            return operators.build(config, sizes, rngs=rngs)

        if any(map(operators.is_own, config.models)):
            return whole(rngs)
        # The program runs once: the compiler need not optimise it.
        on_cpu = jax.default_backend() == "cpu"
        fast = {"xla_backend_optimization_level": 0} if on_cpu else None
        return jax.jit(whole, compiler_options=fast)(rngs)

    return build


def _decoded(normalizer: Normalizer, sample: Sample) -> Sample:
    """A sample whose features were encoded by its data set, in physical units."""
    features = normalize.decode(normalizer, jnp.asarray(sample.features))
    return sample._replace(features=np.asarray(features))


def evaluator(
    config: Any,
    physical: Sequence[Sample],
    test: tuple[Any, ...],
    error: Callable[[Any, Any], Any],
    predict: Callable[[Any, Any], Any],
    numbers: Callable[[np.ndarray], dict[str, float]] | None = None,
    *,
    decode: Callable[[np.ndarray], np.ndarray] = np.asarray,
    rows: Sequence[np.ndarray] | None = None,
    further: Callable[[Iterator[np.ndarray], pathlib.Path], dict[str, float]]
    | None = None,
    fields: Fields | None = None,
) -> Callable[[Any, pathlib.Path, Mapping[str, Any]], dict[str, float]]:
    """Makes what evaluates a model on the test samples and writes `predictions.npz`.

    Args:
      config: has `batch_size`.
      physical: the test samples, in physical units.
      test: the same, encoded and stacked.
      error: `error(model, sample)`, of one encoded sample, or its `Sizes`.
      predict: `predict(model, sample)`.
      numbers: `numbers(errors)`, what to return of them.
      decode: gives predictions in physical units, on the host.
      rows: places of the samples of every bucket in `physical`; those of
        `samples.stack` if None.
      further: `further(predictions, folder)`, further numbers of the predictions for
        all samples in their order, in physical units.
      fields: of the output function, each of which then has its own numbers.
    """
    if rows is None:
        counts = summaries.num_points(physical)
        rows = [chosen for _, chosen in samples.bucket_rows(counts)]
    where = {
        int(row): (bucket, place)
        for bucket, chosen in zip(test, rows, strict=True)
        for place, row in enumerate(chosen)
    }

    def one(row: int) -> dict[str, np.ndarray]:
        bucket, place = where[row]
        arrays = buckets.rows(bucket, [place])
        return {name: np.asarray(array[0]) for name, array in arrays.items()}

    shown = jax.jit(predict)

    def predicted(model: Any, row: int) -> np.ndarray:
        return decode(np.asarray(shown(model, one(row))))

    def evaluate(
        model: Any, folder: pathlib.Path, extra: Mapping[str, Any]
    ) -> dict[str, float]:
        looked = _of_buckets(error, model, test, rows, config.batch_size)

        def values() -> Iterator[np.ndarray]:
            for row, sample in enumerate(physical):
                yield predicted(model, row)[: sample.num_points]

        errors, by_field = looked, None
        if isinstance(looked, Sizes):
            assert fields is not None
            by_field = FieldErrors.of(fields.names, looked.error, looked.target)
            errors = by_field.of_samples
        elif fields is not None:
            by_field = errors_of(fields, physical, values())
        known = dict(extra)
        if fields is not None and by_field is not None:
            known |= by_field.arrays(fields)
        chosen = outcome.rows(errors)
        kept = [physical[row] for row in chosen]
        outcome.write(
            folder,
            errors=errors,
            rows=chosen,
            samples=kept,
            predicted=[
                predicted(model, int(row))[: _num_rows(sample)]
                for row, sample in zip(chosen, kept, strict=True)
            ],
            inspected=outcome.inspect(
                model, one(chosen[0]), num_points=kept[0].num_points
            ),
            extra=known,
        )
        found = {} if by_field is None else by_field.numbers()
        if not isinstance(looked, Sizes):  # of all channels together
            found |= (numbers or mean_and_worst)(errors)
        return found if further is None else found | further(values(), folder)

    return evaluate


def _of_buckets(
    look: Callable[[Any, Any], Any],
    model: Any,
    test: Sequence[Any],
    rows: Sequence[np.ndarray],
    batch_size: int,
) -> Any:
    """What `look(model, sample)` returns of all samples in their order, float64."""
    parts = [batches.evaluate(look, model, b, batch_size=batch_size) for b in test]
    order = np.argsort(np.concatenate(rows))

    def ordered(*values: Any) -> np.ndarray:
        return np.concatenate(values).astype(np.float64)[order]

    return jax.tree.map(ordered, *parts)


def _num_rows(sample: Sample) -> int:
    """Rows of the target, which may be on a grid of its own."""
    return len(sample.mesh_points if sample.target is None else sample.target)


def mean_and_worst(errors: np.ndarray) -> dict[str, float]:
    """Returns the mean and the largest error of the test samples."""
    worst = float(errors.max())
    return {"relative_l2": float(errors.mean()), "relative_l2_worst": worst}
