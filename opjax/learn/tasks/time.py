"""Time series tasks: operators that advance fields, trained on windows of frames."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import training
from opjax._trees import Arrays, Batch, Model
from opjax.files.series import SeriesSplits
from opjax.learn.config.start import START, StartOptions
from opjax.learn.config.time import TimeOptions
from opjax.learn.messages import say
from opjax.learn.predict.description import Stepping, describe
from opjax.learn.predict.field_errors import keys
from opjax.learn.predict.learned import Learned
from opjax.learn.predict.stepping import Step, units_of
from opjax.learn.tasks import time_data
from opjax.learn.tasks.field_losses import Form, Scales, relative, together
from opjax.learn.tasks.model_data import encoder
from opjax.learn.tasks.start import build_from, check_options, check_sizes
from opjax.learn.tasks.supervised import builder
from opjax.learn.tasks.task import Task
from opjax.learn.tasks.time_data import Data, WindowBucket
from opjax.learn.tasks.time_evaluation import Rolled, error, evaluate
from opjax.learn.tasks.tuned import tuned_task
from opjax.samples.series import Windows


def rollouts(
    config: Any,
    splits: SeriesSplits,
    *,
    start: Learned | None = None,
    form: Form | None = None,
    start_options: StartOptions = START,
) -> Task:
    """Builds the task of advancing the fields of series in time.

        loss = sum_b mean_s mean_f e_bsf,

    with the error `e` of each field of a frame, see `field_losses`, averaged over the
    frames of a window and summed over the batch. Validation and test use rollouts from
    the first frames of every series; the metric is the mean error of their frames, each
    limited to 1000.

    Args:
      config: configuration with `batch_size`, `num_buckets` and the fields of
        `ModelOptions` and `TimeOptions`.
      splits: the series.
      start: trained operator that provides the initial parameters and the normalisers.
        The time step and the range of times are taken from the new series.
      form: form of the error of a field. None for the relative error of all channels
        together, in physical units.
      start_options: the parts of `start` that are trained.

    Returns:
      The task. It writes the operator and `predictions.npz` to the folder of every
      member.

    Raises:
      ValueError: if series are too short, times do not fit the mode, or the mode needs
        a time embedding that the model lacks.
    """
    data = Data(config, splits)
    how, normalizers, sizes = data.how, data.normalizers, data.sizes
    if start is not None:
        check_options(start, config)
        _check_same_time(start, config)
        _tell_other_step(start, how)
        sizes = check_sizes(start, sizes, data.names, data.windows[0].summaries[0].axes)
        normalizers = start.normalizers
    units = units_of(how, normalizers)
    fields = data.fields if start is None else start.fields
    step = Step(how, units.inner)
    shown = Rolled(step, Scales(fields, units.frame))
    trained_by = shown
    if form is None:
        whole = together(fields, units.frame)
        trained_by = Rolled(step, Scales(whole, units.frame))
    # Frames are in units of the last one that the model sees; the step does the rest.
    early = {k: normalizers[k] for k in ("mesh_points", "scalars") if k in normalizers}
    early |= {"features": units.features, "target": units.frame}
    encode = encoder(early, target=True)

    def bucketed(windows: Windows, batch_size: int) -> tuple[WindowBucket, ...]:
        return time_data.bucketed(
            windows, encode, batch_size=batch_size, num_buckets=config.num_buckets
        )

    train, validation, test = map(bucketed, data.windows, data.batch_sizes)
    earlier = tuple(bucketed(stage, data.batch_sizes[0]) for stage in data.stages)
    noise = config.input_noise * np.asarray(units.inner["features"].std)
    noise[how.history * how.channels :] = 0  # constants are known
    description = describe(
        data.windows[0], sizes=sizes, names=data.names, fields=fields, time=how
    )
    make = builder(sizes)
    measured = form or relative
    task = Task(
        train=train,
        earlier=earlier,
        validation=validation,
        test=test,
        build=make if start is None else build_from(start, make),
        loss=_loss(config, trained_by, measured, noise),
        metric=partial(error, trained_by, measured),
        evaluate=partial(
            evaluate, shown, normalizers, units, description, data.test, test
        ),
        extra=normalizers,
        source=splits.source,
        needs_key=config.input_noise > 0,
        fields=tuple(keys(fields.names)),
        notes=f"Models see {how.history} frames. Errors are of rollouts from the first "
        "frames of a series, the mean over their frames; `persistence` is the error "
        "of the prediction that nothing changes, `mean` that of the mean of training. "
        f"{fields.sentence()}",
    )
    return task if start is None else tuned_task(task, start_options, sizes)


def _loss(
    config: TimeOptions, rolled: Rolled, form: Form, noise: np.ndarray
) -> Callable[..., jax.Array]:
    last = config.time == "unrolled" and config.unroll_gradient == "last"

    def one(model: Model, sample: Arrays, key: jax.Array | None = None) -> jax.Array:
        if key is not None:
            features = sample["features"]
            drawn = jax.random.normal(key, features.shape, features.dtype)
            sample = {**sample, "features": features + drawn * noise[None]}
        frames = rolled.frames(
            model,
            sample,
            checkpoint=len(sample["lags"]) > 1,
            gradient="last" if last else "all",
        )
        errors = jnp.mean(form(rolled.sizes(frames, sample)), axis=1)
        return errors[-1] if last else jnp.mean(errors)

    def total(model: Model, batch: Batch, *, key: jax.Array | None = None) -> jax.Array:
        if key is None:
            return jnp.sum(training.over_samples(partial(one, model))(batch))
        keys = jax.random.split(key, batch["lags"].shape[0])
        return jnp.sum(training.over_samples(partial(one, model))(batch, keys))

    return total


def _check_same_time(start: Learned, config: TimeOptions) -> None:
    """Raises ValueError if an operator advances time in another way."""
    how = start.stepping
    before = {"history": how.history, "timed": how.timed, "increment": how.increments}
    timed = config.time in ("time_conditional", "one_shot")
    increments = config.time_target == "increment"
    now = {"history": config.history, "timed": timed, "increment": increments}
    if before != now or (timed and how.mode != config.time):
        raise ValueError(
            f"init_from: {start.folder} was trained with time={how.mode}, "
            f"{before}, but this run has time={config.time}, {now}; use the same "
            "options."
        )


def _tell_other_step(start: Learned, now: Stepping) -> None:
    """Says that an operator takes steps of another time from now on."""
    before = start.stepping.interval
    if abs(now.interval - before) > 1e-3 * before:
        say(
            f"The operator in {start.folder} has a time step of {before:g}; after "
            f"training on these series, it has a time step of {now.interval:g}."
        )
