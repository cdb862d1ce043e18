"""Rollouts on test series: errors over time, and what they are compared with."""

import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics_time
from opjax.learn.predict import stepping, trained
from opjax.learn.predict.stepping import Stepping
from opjax.learn.tasks import outcome
from opjax.learn.tasks.time_data import WindowBucket
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series
from opjax.samples.series import Window

# Rollouts that blow up count as this error, which is no number otherwise.
LARGEST_ERROR = 1e3
_SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps with a number of their own


def frame_errors(
    how: Stepping,
    normalizers: Mapping[str, Normalizer],
    model: Any,
    sample: Mapping[str, Any],
    *,
    checkpoint: bool = False,
    gradient: str = "all",
) -> jax.Array:
    """Errors of the frames of a window, `(t,)`; the last arguments as for `rollout`."""
    known = {k: v for k, v in sample.items() if k not in ("target", "lags")}
    predicted = stepping.frames(
        how,
        normalizers,
        model,
        known,
        sample["lags"],
        checkpoint=checkpoint,
        gradient=gradient,
    )
    return metrics_time.errors_of_frames(
        predicted,
        targets(how, sample),
        quadrature_weights=sample.get("quadrature_weights"),
    )


def step_errors(
    how: Stepping,
    normalizers: Mapping[str, Normalizer],
    model: Any,
    sample: Mapping[str, Any],
    *,
    axis_name: str | None = None,
) -> jax.Array:
    """Errors of the frames of a window, each from the true ones before it, `(t,)`.

    All steps of a window of many frames at once, where training has no rollout.

    Args:
      how: of the operator, of mode `"one_step"`.
      normalizers: see `stepping.next_frame`.
      model: between encoded arrays.
      sample: encoded points and weights, the frames that the model sees first and what
        is constant, `features (n, history c + k)`, and those after them, `target`.
      axis_name: axis of the devices which have the other points, if any.
    """
    stop, features = how.history * how.channels, jnp.asarray(sample["features"])
    known = {k: v for k, v in sample.items() if k not in ("features", "target", "lags")}
    frames = jnp.concatenate([features[:, :stop], sample["target"]], axis=1)
    lag = jnp.full((), how.interval, features.dtype)

    def predict(start: jax.Array) -> jax.Array:
        seen = jax.lax.dynamic_slice_in_dim(frames, start, stop, axis=1)
        seen = jnp.concatenate([seen, features[:, stop:]], axis=1)
        return stepping.next_frame(
            how, normalizers, model, known, seen, lag, axis_name=axis_name
        )

    target = targets(how, sample)
    return metrics_time.errors_of_frames(
        jax.vmap(predict)(how.channels * jnp.arange(len(target))),
        target,
        quadrature_weights=sample.get("quadrature_weights"),
        axis_name=axis_name,
    )


def targets(how: Stepping, sample: Mapping[str, Any]) -> jax.Array:
    """The true frames of a window, `(t, n, c)`."""
    target = jnp.asarray(sample["target"])
    return jnp.moveaxis(target.reshape(len(target), -1, how.channels), 1, 0)


def error(
    how: Stepping, normalizers: Mapping[str, Normalizer], model: Any, sample: Any
) -> jax.Array:
    """The mean error of the frames of a rollout, without repeated ones."""
    found = frame_errors(how, normalizers, model, sample)
    lags = sample["lags"]
    real = jnp.diff(lags, prepend=jnp.zeros(1, lags.dtype)) > 0
    return jnp.sum(jnp.where(real, _bounded(found), 0)) / jnp.sum(real)


def _bounded(errors: jax.Array) -> jax.Array:
    """Errors up to `LARGEST_ERROR`, also for those that are no numbers."""
    return jnp.where(errors < LARGEST_ERROR, errors, LARGEST_ERROR)


class _Seen(NamedTuple):
    """What is measured of a rollout, with steps along axis 0 of arrays."""

    errors: Any
    persistence: Any
    mean: Any
    drift: Any
    correlation_steps: Any
    persistence_steps: Any
    last: Any


def evaluate(
    how: Stepping,
    normalizers: Mapping[str, Normalizer],
    description: Mapping[str, Any],
    tests: Sequence[Series],
    test: tuple[WindowBucket, ...],
    model: Any,
    folder: pathlib.Path,
) -> dict[str, float]:
    """Rolls out the test series; writes the operator and `predictions.npz`."""
    trained.save(folder, model, normalizers, description)
    look = jax.jit(partial(_look, how, normalizers))
    seen: dict[int, _Seen] = {}
    first: dict[str, np.ndarray] = {}
    for bucket in test:
        for row, window in enumerate(bucket.found.where):
            arrays = bucket.encode(bucket.read([row]))
            one = {name: array[0] for name, array in arrays.items()}
            found = jax.tree.map(np.asarray, look(model, one))
            seen[window.series] = _shortened(found, bucket.found.where[row])
            if window.series == 0:
                first = one
    ordered = [seen[number] for number in range(len(tests))]
    errors = np.array([one.errors.mean() for one in ordered])
    shortest = min(len(one.errors) for one in ordered)
    series = np.stack([one.errors[:shortest] for one in ordered])
    still = np.mean([one.persistence[:shortest] for one in ordered], axis=0)
    rows = outcome.rows(errors)
    known = {k: v for k, v in first.items() if k not in ("target", "lags")}
    seen_at = jnp.ones((), jnp.float32) if how.timed else None
    outcome.write(
        folder,
        errors=errors,
        rows=rows,
        samples=[_ends(tests[row], how, len(ordered[row].errors)) for row in rows],
        predicted=[ordered[row].last[: tests[row].num_points] for row in rows],
        inspected=outcome.inspect(
            model, known, num_points=tests[0].num_points, time=seen_at
        ),
        extra={"series": series, "series_name": "step", "series_baseline": still},
    )
    return _numbers(errors, series, ordered)


def _look(
    how: Stepping, normalizers: Mapping[str, Normalizer], model: Any, sample: Any
) -> _Seen:
    known = {k: v for k, v in sample.items() if k not in ("target", "lags")}
    found = stepping.frames(how, normalizers, model, known, sample["lags"])
    target = targets(how, sample)
    stop = how.history * how.channels
    first = jnp.asarray(sample["features"])[:, stop - how.channels : stop]
    weights = sample.get("quadrature_weights")
    errors = partial(metrics_time.errors_of_frames, quadrature_weights=weights)
    mean = jnp.broadcast_to(
        normalizers["features"].mean[None, None, : how.channels], target.shape
    )
    still = metrics_time.persistence(first, len(target))
    drift = metrics_time.mean_drift(found, first, quadrature_weights=weights)
    truth = metrics_time.mean_drift(target, first, quadrature_weights=weights)
    correlated = metrics_time.correlations_of_frames(
        found, target, quadrature_weights=weights
    )
    own, trivial = errors(found, target), errors(still, target)
    return _Seen(
        _bounded(own),
        trivial,
        errors(mean.astype(target.dtype), target),
        _bounded(jnp.max(jnp.abs(drift - truth), axis=1)),
        correlated >= 0.8,
        own <= trivial,
        found,
    )


def _shortened(found: _Seen, window: Window) -> _Seen:
    """What was measured of the frames that a series has, and the last one."""
    count = len(set(window.targets))
    parts = _Seen(*(part[:count] for part in found))
    return parts._replace(
        correlation_steps=np.asarray(
            metrics_time.steps_until(~parts.correlation_steps)
        ),
        persistence_steps=np.asarray(
            metrics_time.steps_until(~parts.persistence_steps)
        ),
        last=parts.last[-1],
    )


def _ends(series: Series, how: Stepping, steps: int) -> Sample:
    """The last known frame of a series and the last predicted one, to be shown."""
    return Sample(
        series.mesh_points,
        target=series.values[how.history + steps - 1],
        features=series.values[how.history - 1],
        quadrature_weights=series.quadrature_weights,
        cells=series.cells,
        grid_shape=series.grid_shape,
        name=series.name,
    )


def _numbers(
    errors: np.ndarray, series: np.ndarray, found: Sequence[_Seen]
) -> dict[str, float]:
    steps = [step for step in _SHOWN if step < series.shape[1]] + [series.shape[1]]

    def mean(name: str) -> float:
        return float(np.mean([np.mean(getattr(one, name)) for one in found]))

    return {
        "relative_l2": float(errors.mean()),
        **{f"step_{t}": float(series[:, t - 1].mean()) for t in steps},
        "relative_l2_worst": float(errors.max()),
        "persistence": mean("persistence"),
        "mean": mean("mean"),
        "correlation_steps": mean("correlation_steps"),
        "persistence_steps": mean("persistence_steps"),
        "drift": float(np.mean([one.drift[-1] for one in found])),
    }
