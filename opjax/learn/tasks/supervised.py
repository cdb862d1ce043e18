"""The standard benchmark task: maps fields on meshes to fields on the same meshes."""

import dataclasses
import math
import pathlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import nnx

from opjax._trees import Model
from opjax.learn.config.start import START, StartOptions
from opjax.learn.messages import say
from opjax.learn.predict import trained
from opjax.learn.predict.field_errors import keys
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.scaling import Scaling
from opjax.learn.registry import operators
from opjax.learn.tasks import errors, model_data, points, scalars
from opjax.learn.tasks.errors import Loss
from opjax.learn.tasks.evaluation import Evaluation, Names
from opjax.learn.tasks.model_data import Encoding, ModelData
from opjax.learn.tasks.start import Build, build_from, started
from opjax.learn.tasks.task import Task
from opjax.learn.tasks.tuned import tuned_task
from opjax.samples import Sample, Splits
from opjax.samples.digests import digests

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
    start_options: StartOptions = START,
    notes: str = "",
    scaling: Scaling | None = None,
    from_baseline: bool = False,
) -> Task:
    """Builds the task of predicting the target from mesh and features.

        loss = sum_b |p_b - t_b| / |t_b|,

    in physical units: the relative L2 error over all points and channels of a sample,
    summed over the batch, as in most published runs (with gradient clipping, the scale
    of the loss matters). With `loss.form`, it is the mean of the errors of the fields,
    each relative to its spread, see `field_losses`. If samples have target scalars `s`,
    with predictions `r` and the standard deviation `d` over the training samples, every
    sample adds

        0.1 sqrt(mean_j ((r_j - s_j) / d_j)^2)

    to the loss and to the error that selects the epoch. Without a target field, both
    consist of this root only, without its factor.

    Args:
      config: configuration with `batch_size`, `num_buckets` and the fields of
        `ModelOptions`.
      splits: the samples; if they provide normalisers, these replace the fitted ones.
      encoding: which arrays are normalised.
      loss: the loss.
      evaluation: options of the evaluation on the test samples.
      names: names of the channels of `features` and `target`, to save.
      build: as in `Task`, for models that `operators.build` does not support;
        `learn.load` cannot read them.
      start: trained operator that provides the initial parameters and the normalisers.
      start_options: options of the training from `start`: its normalisers, its
        channels, and the parts that are trained.
      notes: as in `Task`.
      scaling: physical scales of the samples. All of the above then applies to scaled
        samples; files, figures and errors are in physical units.
      from_baseline: whether the model learns the difference from the best baseline, see
        `tasks.differences`.

    Returns:
      The task. It writes to the folder of every member the operator, see `trained`, and
      `predictions.npz`, see `outcome`.

    Raises:
      TypeError: if an array of a sample is not floating point.
      ValueError: if samples are damaged or inconsistent with each other or with the
        training data of `start`.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> x = np.random.default_rng(0).normal(size=(8, 6, 5))
      >>> cases = samples.from_arrays(features=x, target=np.sin(x))
      >>> splits = learn.Splits.divide(cases)._replace(source="sines")
      >>> task = learn.regression(learn.FieldOptions(), splits)
      >>> task.num_train, task.num_validation, task.num_test
      (5, 1, 2)
    """
    model_data.check(splits)
    data = ModelData.of(
        config,
        splits,
        names or {},
        encoding,
        loss,
        evaluation,
        scaling=scaling,
        start=start,
        how=start_options,
        from_baseline=from_baseline,
    )
    obstacle = _obstacle(
        data.splits.train[0], loss, encoding, own_model=build is not None
    )
    points.check(config, data.splits.train, data.sizes, obstacle=obstacle)
    error, test = data.error(loss), data.test_set()
    if not data.sizes.out_features:
        evaluation = dataclasses.replace(evaluation, numbers=scalars.mean_and_worst)
    save = None
    if build is None:
        description = data.description(_seen(splits, start))
        save = partial(
            trained.save, normalizers=data.normalizers, description=description
        )
    make = build or builder(data.sizes)
    sentences = [notes, "" if data.fields is None else data.fields.sentence()]
    if data.found is not None:
        say(f"Channels {data.found.sentence()}.")
    if start is not None:
        sentences.append(started(start, start_options, data.found))
    task = Task(
        train=data.stacked("train"),
        validation=data.stacked("validation"),
        test=test.buckets,
        build=make if start is None else build_from(start, make, data.found),
        loss=partial(
            errors.total,
            errors.of_sample(loss, error),
            config.batch_size if loss.mean else None,
        ),
        metric=error,
        evaluate=partial(
            save_and_evaluate, data.evaluator(test, error, evaluation), save
        ),
        extra=data.normalizers,
        source=splits.source,
        notes=" ".join(filter(None, sentences)),
        # Normalisers of every point are whole on every device.
        over_points=(loss.own is None or loss.over_points) and not encoding.pointwise,
        row=math.prod((data.sizes.grid_shape or (1,))[1:]),
        mean=loss.mean,
        draws_points=not obstacle,
        fields=() if data.fields is None else tuple(keys(data.fields.names)),
        baselines=data.baselines(test, loss, evaluation)
        if evaluation.baselines
        else None,
    )
    if start is None:
        return task
    return tuned_task(task, start_options, data.sizes, data.found)


def save_and_evaluate(
    evaluate: Callable[..., dict[str, float]],
    save: Callable[..., None] | None,
    model: Model,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Saves the operator, and evaluates it."""
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
        return "the target is on a different grid"
    return ""


def _seen(splits: Splits, start: Learned | None) -> list[str] | None:
    """Digests of the samples that train or choose the operator, where they are known.

    Of an operator to start with too: calibration refuses all of them.
    """
    own = digests(splits.train, splits.validation)
    before = [] if start is None else start.description.seen
    return None if own is None or before is None else [*before, *own]


def grid_sizes(
    splits: Splits,
    *,
    out_features: int | None = None,
    box: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    time_embedding: bool = False,
) -> operators.Sizes:
    """Checks samples that share one grid, and returns their `operators.sizes`.

    Args:
      splits: the samples.
      out_features: as in `operators.sizes`.
      box: as in `operators.sizes`.
      time_embedding: as in `operators.sizes`.

    Raises:
      ValueError: if they are on different grids, or as from `check`.
    """
    model_data.check(splits)
    sizes = operators.sizes(
        model_data.all_samples(splits),
        out_features=out_features,
        box=box,
        time_embedding=time_embedding,
    )
    if sizes.grid_shape is None:
        raise ValueError("The samples are on different grids; they must share one.")
    return sizes


def builder(sizes: operators.Sizes) -> Callable[[Any, nnx.Rngs], Any]:
    """Creates `Task.build` from `operators.build`, compiled as one program.

    Compiled one by one, the operations that draw the parameters take three times as
    long. The parameters equal those of `operators.build` except for rounding. A
    user-defined model is built without compilation, because it may contain code that
    cannot be compiled.
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
