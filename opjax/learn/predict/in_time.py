"""Rollouts of trained operators on series, frame by frame, in bounded memory."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize, samples
from opjax._trees import Model, PyTree
from opjax.learn.predict import prediction, stepping
from opjax.learn.predict.description import Stepping
from opjax.learn.predict.learned import Learned
from opjax.samples import Series
from opjax.samples import series as rules

# Times that agree up to this share of the interval are equal.
_EQUAL = 1e-3


def lags_of(
    trained: Learned, num_steps: int, time_step: float | None = None
) -> np.ndarray:
    """Returns the times of the steps of a rollout, relative to the last known frame.

    Warns about times outside the training range.

    Args:
      trained: an operator that was trained on series.
      num_steps: number of steps.
      time_step: time step; by default, that of the training data.

    Raises:
      ValueError: if a number is not positive, or the operator does not support this
        time step.
    """
    how = trained.stepping
    step = how.interval if time_step is None else time_step
    if num_steps < 1 or not (np.isfinite(step) and step > 0):
        raise ValueError(
            f"steps={num_steps} and time_step={step} must be positive and finite."
        )
    lags = step * np.arange(1, num_steps + 1)
    if not how.timed and abs(step - how.interval) > _EQUAL * how.interval:
        raise ValueError(
            f"time_step={step:g}, but the operator in {trained.folder} was trained "
            f"with time={how.mode} on frames {how.interval:g} apart and supports no "
            "other step; train with --time=time_conditional or one_shot."
        )
    _warn_beyond(how, lags)
    return lags


def lags_of_frames(trained: Learned, series: Series, lags: np.ndarray) -> np.ndarray:
    """Returns the times of a series' own frames after the first ones.

    Warns about times outside the training range.

    Args:
      trained: an operator that was trained on series.
      series: the series.
      lags: times of equal steps, from `lags_of`, which are returned if the operator
        supports only equal steps, the frames are fewer, or their times are these.
    """
    how = trained.stepping
    times = series.times[how.history - 1 :][: len(lags) + 1]
    own = times[1:] - times[0]
    if not how.timed or len(own) < len(lags):
        return lags
    if (abs(own - lags) <= _EQUAL * how.interval).all():
        return lags
    _warn_beyond(how, own)
    return own


def _warn_beyond(how: Stepping, lags: np.ndarray) -> None:
    """Warns about times outside the training range."""
    steps = lags if how.mode == "one_shot" else np.diff(lags, prepend=0.0)
    largest, smallest = steps.max(), steps.min()
    if how.timed and largest > (1 + _EQUAL) * how.longest:
        _warn(f"A time of {largest:g} is asked for, and {how.longest:g} is the longest")
    if how.timed and smallest < (1 - _EQUAL) * how.shortest:
        _warn(
            f"A time of {smallest:g} is asked for, and {how.shortest:g} is the shortest"
        )
    if how.mode != "one_shot" and lags[-1] > (1 + _EQUAL) * how.span:
        _warn(f"The rollout reaches {lags[-1]:g}, and the longest series {how.span:g}")


def _warn(what: str) -> None:
    warnings.warn(f"{what} of training; check the results beyond.", stacklevel=4)


def check_series(trained: Learned, series: Series) -> Stepping:
    """Raises ValueError unless an operator can start from a series.

    Returns:
      How the operator advances the series.
    """
    how = trained.stepping
    rules.check([series], min_frames=how.history)
    if series.values.shape[2] != how.channels:
        raise ValueError(
            f"{series.name} has {series.values.shape[2]} transient channels, but "
            f"the operator was trained with {how.channels}."
        )
    names = trained.channel_names.get("scalars")
    if names and tuple(names) != series.scalar_names:
        raise ValueError(
            f"{series.name} has the scalars {[*series.scalar_names]}, but the "
            f"operator in {trained.folder} was trained with {names}; pass these."
        )
    prediction.check(trained, series.seen(range(how.history)), weights=True)
    steps = np.diff(series.times[: how.history])
    if (abs(steps - how.interval) > _EQUAL * how.interval).any():
        raise ValueError(
            f"{series.name}: the first {how.history} frames are {steps} apart, but "
            f"the operator was trained with {how.interval:g}; pass frames at this "
            "interval."
        )
    return how


def frames(trained: Learned, series: Series, lags: np.ndarray) -> Iterator[np.ndarray]:
    """Predicts the frames of a series after its first ones, one by one.

    Args:
      trained: an operator that was trained on series.
      series: series with at least as many frames as the model receives; later ones are
        ignored.
      lags: times relative to the last of these frames, from `lags_of`.

    Returns:
      An iterator of frames `(n, c)` in physical units. Only one frame is in memory.

    Raises:
      ValueError: if the series does not fit the operator. From the iterator, if a frame
        is not finite.
    """
    how = check_series(trained, series)
    sample = series.seen(range(how.history))
    arrays = prediction.arrays_of(sample)
    if not trained.fixed_points:
        arrays = samples.pad(sample, prediction.padded_size(series.num_points))
    return _advance(trained, how, series, arrays, lags)


def _advance(
    trained: Learned,
    how: Stepping,
    series: Series,
    arrays: dict[str, Any],
    lags: np.ndarray,
) -> Iterator[np.ndarray]:
    units = stepping.units_of(how, trained.normalizers)
    early = {**trained.normalizers, "features": units.features}
    inputs = prediction.model_input(trained, arrays, early)
    seen = jnp.asarray(inputs.pop("features"))
    step = jax.jit(partial(_step, how))
    before = 0.0
    for number, lag in enumerate(lags, start=1):
        size = jnp.asarray(lag - before, jnp.float32)
        frame, later = step(units.inner, trained.model, inputs, seen, size)
        if how.mode != "one_shot":
            seen, before = later, lag
        values = np.asarray(frame)[: series.num_points]
        values = normalize.decode_host(units.frame, values)
        if not np.isfinite(values).all():
            raise ValueError(
                f"The rollout of {series.name} is not finite from step {number} on; "
                "use fewer steps, or train with --time=unrolled or more --unroll."
            )
        yield values


def _step(
    how: Stepping,
    normalizers: PyTree,
    model: Model,
    inputs: PyTree,
    seen: jax.Array,
    lag: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """The next frame, and what the model sees for the one after it."""
    frame = stepping.Step(how, normalizers).next_frame(model, inputs, seen, lag)
    return frame, stepping.pushed(how, seen, frame)
