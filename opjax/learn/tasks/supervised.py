"""The ordinary benchmark task: fields on meshes to fields on the same meshes."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import normalize, samples
from opjax._trees import Model
from opjax.learn.predict import trained
from opjax.learn.predict.description import describe
from opjax.learn.predict.field_errors import keys
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.learn.run import buckets
from opjax.learn.tasks import compared, errors, points, quantities, scalars
from opjax.learn.tasks.differences import Decision, Difference
from opjax.learn.tasks.errors import Loss, SampleError
from opjax.learn.tasks.evaluation import Evaluation, Evaluator, Names, TestSet
from opjax.learn.tasks.field_losses import Scales, fields_of_training, without_constants
from opjax.learn.tasks.start import Build, build_from, check_options, check_sizes
from opjax.learn.tasks.task import Task
from opjax.normalize import Normalizer
from opjax.samples import Sample, Splits, summaries
from opjax.samples.digests import digests
from opjax.samples.normalizers import encode_stored, fit_normalizers
from opjax.samples.stored import Stored


@dataclasses.dataclass(frozen=True, kw_only=True)
class Encoding:
    """What is normalised.

    Attributes:
      points: map the box of the training meshes to [-1, 1] along its longest side, for
        coordinates in any unit.
      features: normalise every channel of the features.
      target: normalise every channel of the target.
      pointwise: normalise every point by itself, on grids that all samples share.
    """

    points: bool = False
    features: bool = True
    target: bool = True
    pointwise: bool = False


LOSS, EVALUATION, ENCODING = Loss(), Evaluation(), Encoding()  # by default


def regression(
    config: Any,
    splits: Splits,
    *,
    encoding: Encoding = ENCODING,
    loss: Loss = LOSS,
    evaluation: Evaluation = EVALUATION,
    names: Names | None = None,
    build: Build | None = None,
    start: Learned | None = None,
    renew: bool = False,
    notes: str = "",
    scaling: Scaling | None = None,
    from_baseline: bool = False,
) -> Task:
    """Builds the task to predict the target from mesh and features.

        loss = sum_b |p_b - t_b| / |t_b|,

    in physical units, the relative L2 error over all points and channels of a sample,
    summed over the batch, as in most published runs: with clipping, scale matters. With
    `loss.form` it is the mean of the errors of the fields, each in units of its own,
    see `field_losses`. Where samples have target scalars `s`, with predictions `r` and
    their standard deviation `d` over the training samples, every sample adds

        0.1 sqrt(mean_j ((r_j - s_j) / d_j)^2)

    to the loss and to the error that chooses the epoch. Without a target, this root
    without its factor is both of them.

    Args:
      config: has `batch_size`, `num_buckets` and the fields of `ModelOptions`.
      splits: the samples; their own normalisers, if they have some, take the place of
        the fitted ones.
      encoding: what is normalised.
      loss: what is minimised.
      evaluation: what is said of the test samples.
      names: of the channels of `features` and `target`, to be saved.
      build: as in `Task`, for models that `operators.build` does not know; `learn.load`
        cannot read them.
      start: trained operator whose parameters the training starts with, and whose
        normalisers take the place of the fitted ones.
      renew: fit normalisers to the samples all the same.
      notes: as in `Task`.
      scaling: what samples are divided by first, so that all of the above is that of
        scaled samples; files, figures and errors are in physical units.
      from_baseline: the model learns the difference to the best baseline, see
        `tasks.differences`.

    Returns:
      The task. The folder of every member gets the operator, see `trained`, and
      `predictions.npz`, see `outcome`.

    Raises:
      TypeError: if an array of a sample is not floating point.
      ValueError: if samples are damaged or do not agree with each other, or with what
        the operator to start with was trained on.
    """
    check(splits)
    names = names or {}
    physical = splits
    if start is not None and start.scaling != scaling:
        raise ValueError(
            f"init_from: the operator in {start.folder} was trained with other scales "
            "or angles; give those of that run."
        )
    if scaling is not None:
        splits = _scaled(scaling, splits, loss)
    seen = names if scaling is None else scaling.reduced_names()
    own, fitted = _normalizers(splits, encoding, loss, seen)
    tested: Sequence[Sample] = physical.test
    if "features" in own:
        tested = [_decoded(own["features"], sample) for sample in tested]
    evaluation.check(tested, names)
    if start is not None:
        check_options(start, config)
    sizes = operators.sizes(all_samples(splits), fitted | own)
    if start is not None:
        sizes = check_sizes(start, sizes, names)
        if not renew:
            fitted = {name: start.normalizers[name] for name in fitted}
    fields = None
    by_channel = "target" in fitted and not encoding.pointwise
    if by_channel and (loss.form is not None or sizes.out_features > 1):
        kept = None if renew else start
        fields = fields_of_training(splits.train, fitted["target"], names, start=kept)
    if loss.form is not None and fields is not None:
        fitted["target"] = without_constants(fitted["target"], fields)
    scales = None if fields is None else Scales(fields, fitted["target"])
    difference = None
    if from_baseline:
        by_field = None if loss.form is None or loss.own is not None else fields
        difference = Difference.fit(splits, by_field, fitted.get("target"))
        fitted["target"] = difference.normalizer
        assert fields is not None
        scales = Scales(fields, difference.normalizer)
    obstacle = _obstacle(splits.train[0], loss, encoding, own_model=build is not None)
    points.check(config, splits.train, sizes, obstacle=obstacle)
    normalizers = fitted | own
    error = SampleError(
        normalizers=normalizers,
        form=loss.form,
        scales=scales,
        field=sizes.out_features > 0,
        scalars=sizes.target_scalars > 0,
        shares=None if difference is None else np.ones(sizes.out_features),
    )
    stacked = partial(
        _stacked,
        config,
        splits if difference is None else difference.beside(splits),
        encoder(fitted, target=loss.form is not None),
    )
    test = TestSet(
        tested,
        stacked("test"),
        config.batch_size,
        normalizers,
        [chosen for _, chosen in _rows(config, physical, "test")],
        scaling=scaling,
        starts=None if difference is None else difference.parts[2],
    )
    if not sizes.out_features:
        evaluation = dataclasses.replace(evaluation, numbers=scalars.mean_and_worst)
    evaluate = Evaluator(
        test=test,
        error=error.measured,
        what=evaluation,
        fields=fields,
        names=names,
        scalars=sizes.target_scalars > 0,
    )
    save = None
    if build is None:
        description = describe(
            physical.train,
            sizes=sizes,
            names=names,
            fields=fields,
            seen=_seen(physical, start),
            scaling=scaling,
        )
        save = partial(trained.save, normalizers=normalizers, description=description)
    if difference is not None:
        validation = dataclasses.replace(
            test,
            samples=splits.validation,
            buckets=stacked("validation"),
            rows=[chosen for _, chosen in _rows(config, splits, "validation")],
            starts=difference.parts[1],
        )
        evaluate = Decision(difference, validation, error, evaluate)
    make = build or builder(sizes)
    return Task(
        train=stacked("train"),
        validation=stacked("validation"),
        test=test.buckets,
        build=make if start is None else build_from(start, make),
        loss=partial(
            errors.total,
            errors.of_sample(loss, error),
            config.batch_size if loss.mean else None,
        ),
        metric=error,
        evaluate=partial(_save_and_evaluate, evaluate, save),
        extra=normalizers,
        source=splits.source,
        notes=" ".join(
            filter(None, [notes, "" if fields is None else fields.sentence()])
        ),
        # Normalisers of every point are whole on every device.
        over_points=(loss.own is None or loss.over_points) and not encoding.pointwise,
        row=math.prod((sizes.grid_shape or (1,))[1:]),
        mean=loss.mean,
        draws_points=not obstacle,
        fields=() if fields is None else tuple(keys(fields.names)),
        baselines=partial(
            compared.compare,
            splits,
            compared.Measure(
                fields,
                joint=None if loss.form is not None else evaluation.numbers,
                scalars=scalars.names_of(names, sizes.target_scalars),
                restore=partial(_restored, scaling, test.samples),
                quantities=partial(_quantities, evaluation, scaling, test, names)
                if evaluation.quantities
                else None,
            ),
        )
        if evaluation.baselines
        else None,
    )


def _restored(
    scaling: Scaling | None, physical: Sequence[Sample], scalars: np.ndarray
) -> np.ndarray:
    """Predicted scalars of the test samples in physical units."""
    if scaling is None:
        return scalars
    pairs = zip(scalars, physical, strict=True)
    return np.stack([scaling.restore(*pair, role="target_scalars") for pair in pairs])


def _quantities(
    evaluation: Evaluation,
    scaling: Scaling | None,
    test: TestSet,
    names: Names,
    predicted: Sequence[np.ndarray],
) -> dict[str, float]:
    """Numbers of quantities of interest of fields over the scales of the samples."""
    if scaling is not None:
        pairs = zip(predicted, test.samples, strict=True)
        predicted = [scaling.restore(*pair) for pair in pairs]
    return quantities.compare(evaluation.quantities, test.samples, predicted, names)[0]


def _scaled(scaling: Scaling, splits: Splits, loss: Loss) -> Splits:
    """Samples over their scales.

    Raises:
      ValueError: if the loss, or the samples, are not in physical units.
    """
    if loss.form is None:
        raise ValueError(
            "loss=joint is an error in physical units, which scales and angles leave; "
            "give another loss, or leave them out."
        )
    if splits.normalizers:
        raise ValueError("Scales are for samples in physical units, not encoded ones.")
    return scaling.splits(splits)


def _normalizers(
    splits: Splits, encoding: Encoding, loss: Loss, names: Names
) -> tuple[dict[str, Normalizer], dict[str, Normalizer]]:
    """Those that the samples have, and those that are fitted to them."""
    own = dict(splits.normalizers or {})
    fitted = fit_normalizers(
        splits.train,
        points=encoding.points,
        features=encoding.features and "features" not in own,
        target=encoding.target and "target" not in own,
        pointwise=encoding.pointwise,
        names=names,
        published=loss.form is None,
    )
    return own, fitted


def _save_and_evaluate(
    evaluate: Callable[..., dict[str, float]],
    save: Callable[..., None] | None,
    model: Model,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Saves the operator first."""
    if save is not None:
        save(folder, model)
    return evaluate(model, folder)


def _obstacle(
    sample: Sample, loss: Loss, encoding: Encoding, *, own_model: bool
) -> str:
    """What needs all points of a sample in training; empty if nothing does."""
    if loss.own is not None or own_model:
        return "the loss or the model of this program needs all points"
    if encoding.pointwise:
        return "every point is normalised by itself"
    if sample.target_grid is not None:
        return "the target is on a grid of its own"
    return ""


def _seen(splits: Splits, start: Learned | None) -> list[str] | None:
    """Digests of the samples that train or choose the operator, where they are known.

    Of an operator to start with too: calibration refuses all of them.
    """
    found = digests(splits.train, splits.validation)
    before = [] if start is None else start.description.seen
    return None if found is None or before is None else [*before, *found]


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
        batch_size, epochs = config.batch_size, points.epochs_of(config, counts)
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
