"""Rollouts on test series: errors over time, and baselines."""

import pathlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import metrics_time, normalize
from opjax._trees import Arrays, Model
from opjax.learn.named_types import HostArrays, Numbers
from opjax.learn.predict import trained
from opjax.learn.predict.description import Description, Stepping
from opjax.learn.predict.field_errors import FieldErrors, keys
from opjax.learn.predict.stepping import Step, Units
from opjax.learn.tasks import outcome
from opjax.learn.tasks.field_losses import Form, Scales, Sizes, means_of_channels
from opjax.learn.tasks.time_data import WindowBucket
from opjax.normalize import Normalizer
from opjax.samples import Sample, Series
from opjax.samples.series import Window

# Rollouts that blow up count as this error, which is no number otherwise.
LARGEST_ERROR = 1e3
_SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)  # steps with a number of their own


def frame_errors(step: Step, model: Model, sample: Arrays) -> jax.Array:
    """Errors of the frames of a window, `(t,)`."""
    return metrics_time.errors_of_frames(
        step.frames(model, sample, sample["lags"]),
        targets(step.how, sample),
        quadrature_weights=sample.get("quadrature_weights"),
        rescale=False,
    )


def step_errors(
    step: Step, model: Model, sample: Arrays, *, axis_name: str | None = None
) -> jax.Array:
    """Errors of the frames of a window, each predicted from true frames, `(t,)`.

    All steps of a window are computed at once; used if training has no rollout.

    Args:
      step: step of an operator with mode `"one_step"`.
      model: the model, which maps encoded arrays.
      sample: encoded points and weights; `features (n, history c + k)`, the first input
        frames and the constant inputs; and `target`, the following frames.
      axis_name: axis of the devices that hold the other points, if any.
    """
    how, features = step.how, jnp.asarray(sample["features"])
    stop = how.history * how.channels
    frames = jnp.concatenate([features[:, :stop], sample["target"]], axis=1)
    lag = jnp.full((), how.interval, features.dtype)

    def predict(start: jax.Array) -> jax.Array:
        seen = jax.lax.dynamic_slice_in_dim(frames, start, stop, axis=1)
        seen = jnp.concatenate([seen, features[:, stop:]], axis=1)
        return step.next_frame(model, sample, seen, lag, axis_name=axis_name)

    target = targets(how, sample)
    return metrics_time.errors_of_frames(
        jax.vmap(predict)(how.channels * jnp.arange(len(target))),
        target,
        quadrature_weights=sample.get("quadrature_weights"),
        axis_name=axis_name,
        rescale=False,
    )


def targets(how: Stepping, sample: Arrays) -> jax.Array:
    """The true frames of a window, `(t, n, c)`."""
    target = jnp.asarray(sample["target"])
    return jnp.moveaxis(target.reshape(len(target), -1, how.channels), 1, 0)


class Rolled(NamedTuple):
    """Rollouts of an operator and their errors, in units of frames.

    Attributes:
      step: step of the operator between frames in these units, see `stepping.units_of`.
      scales: scales of the fields of a frame.
    """

    step: Step
    scales: Scales

    def frames(
        self,
        model: Model,
        sample: Arrays,
        *,
        checkpoint: bool = False,
        gradient: str = "all",
    ) -> jax.Array:
        """Predicts the frames of a window, `(t, n, c)`, see `Step.frames`."""
        lags = sample["lags"]
        return self.step.frames(
            model, sample, lags, checkpoint=checkpoint, gradient=gradient
        )

    def sizes(self, frames: jax.Array, sample: Arrays) -> Sizes:
        """Returns the `Sizes` of predicted frames, `(t, f)` each."""
        weights = sample.get("quadrature_weights")
        measure = partial(self.scales.sizes, quadrature_weights=weights)
        return jax.vmap(measure)(frames, targets(self.step.how, sample))


def error(rolled: Rolled, form: Form, model: Model, sample: Arrays) -> jax.Array:
    """The mean error of the frames of a rollout, without repeated frames."""
    sizes = rolled.sizes(rolled.frames(model, sample), sample)
    of_frames = jnp.mean(form(sizes), axis=1)
    lags = sample["lags"]
    real = jnp.diff(lags, prepend=jnp.zeros(1, lags.dtype)) > 0
    return jnp.sum(jnp.where(real, _bounded(of_frames), 0)) / jnp.sum(real)


def _bounded(errors: Any) -> Any:
    """Errors up to `LARGEST_ERROR`, also for those that are no numbers."""
    return jnp.where(errors < LARGEST_ERROR, errors, LARGEST_ERROR)


class _Seen(NamedTuple):
    """What is measured of a rollout, with steps along axis 0 of arrays.

    Attributes:
      sizes: of the prediction, `(t, f)` each.
      persistence: of the prediction that nothing changes.
      mean: of the mean of training.
      drift: difference in the change of the mean over the points, over the spread of
        the field, `(t, f)`.
      correlated: whether fields correlate with the true ones by 0.8, `(t, f)`.
      last: the last frame in physical units, or all of them, `(t, n, c)`.
    """

    sizes: Any
    persistence: Any
    mean: Any
    drift: Any
    correlated: Any
    last: Any


def evaluate(
    rolled: Rolled,
    normalizers: Mapping[str, Normalizer],
    units: Units,
    description: Description,
    tests: Sequence[Series],
    test: tuple[WindowBucket, ...],
    model: Model,
    folder: pathlib.Path,
) -> Numbers:
    """Rolls out the test series; writes the operator and `predictions.npz`."""
    how = rolled.step.how
    trained.save(folder, model, normalizers, description)
    look = jax.jit(partial(_look, rolled))
    seen: dict[int, _Seen] = {}
    first: HostArrays = {}
    for bucket in test:
        for row, window in enumerate(bucket.found.where):
            arrays = bucket.encode(bucket.read([row]))
            one = {name: array[0] for name, array in arrays.items()}
            measured = jax.tree.map(np.asarray, look(model, one))
            seen[window.series] = _shortened(measured, window, units.frame)
            if window.series == 0:
                first = one
    ordered = [seen[number] for number in range(len(tests))]
    fields = description.fields
    assert fields is not None
    names = fields.names
    outcomes = [_Errors(*(_of(names, part) for part in one[:3])) for one in ordered]
    errors = np.array([one.own.of_samples.mean() for one in outcomes])
    shortest = min(len(one.own.relative) for one in outcomes)
    series = np.stack([one.own.of_samples[:shortest] for one in outcomes])
    still = np.mean([one.still.of_samples[:shortest] for one in outcomes], axis=0)
    each = np.mean([one.own.filled[:shortest] for one in outcomes], axis=0)
    rows = outcome.rows(errors)
    inputs = {k: v for k, v in first.items() if k not in ("target", "lags")}
    if "features" in inputs:
        inputs["features"] = np.asarray(
            normalize.encode(units.inner["features"], inputs["features"])
        )
    seen_at = jnp.ones((), jnp.float32) if how.timed else None
    by_field = _of_cases(names, [one.own for one in outcomes])
    outcome.write(
        folder,
        errors=errors,
        rows=rows,
        samples=[_ends(tests[row], how, len(ordered[row].drift)) for row in rows],
        predicted=[ordered[row].last[: tests[row].num_points] for row in rows],
        inspected=outcome.inspect(
            model, inputs, num_points=tests[0].num_points, time=seen_at
        ),
        extra={"series": series, "series_name": "step", "series_baseline": still}
        | {"field_series": each}
        | by_field.arrays(fields),
    )
    return _numbers(names, ordered, outcomes, errors, series, by_field)


def _look(rolled: Rolled, model: Model, sample: Arrays) -> _Seen:
    how, scales = rolled.step.how, rolled.scales
    predicted, target = rolled.frames(model, sample), targets(how, sample)
    stop = how.history * how.channels
    first = jnp.asarray(sample["features"])[:, stop - how.channels : stop]
    weights = sample.get("quadrature_weights")
    still = metrics_time.persistence(first, len(target))

    def change(frames: jax.Array) -> jax.Array:
        """Of the mean over the points, over the spread of the field, `(t, c)`."""
        mean = jax.vmap(partial(means_of_channels, quadrature_weights=weights))
        return (mean(frames) - mean(still)) * scales.ratio[None]

    apart = change(predicted) - change(target)
    drift = jnp.sqrt(apart**2 @ scales.belongs.T)
    correlations = [
        metrics_time.correlations_of_frames(
            predicted[..., channels], target[..., channels], quadrature_weights=weights
        )
        for channels in map(np.flatnonzero, scales.belongs)
    ]
    return _Seen(
        rolled.sizes(predicted, sample),
        rolled.sizes(still, sample),
        rolled.sizes(jnp.zeros_like(target), sample),
        _bounded(drift),
        jnp.stack(correlations, axis=1) >= 0.8,
        predicted,
    )


def _shortened(found: _Seen, window: Window, frame: Normalizer) -> _Seen:
    """What was measured of the frames that a series has, and the last one."""
    count = len(set(window.targets))
    parts: _Seen = jax.tree.map(lambda part: part[:count], found)
    return parts._replace(last=normalize.decode_host(frame, parts.last[-1]))


class _Errors(NamedTuple):
    """Errors of the frames of one rollout, of nothing that changes, of the mean."""

    own: FieldErrors
    still: FieldErrors
    mean: FieldErrors


def _of(names: Sequence[str], sizes: Sizes) -> FieldErrors:
    of_fields = FieldErrors.of(names, sizes.error, sizes.target)
    relative = np.where(
        np.isnan(of_fields.relative), np.nan, _bounded(of_fields.relative)
    )
    return of_fields._replace(
        relative=np.asarray(relative),
        over_spread=np.asarray(_bounded(of_fields.over_spread)),
    )


def _of_cases(names: Sequence[str], rollouts: Sequence[FieldErrors]) -> FieldErrors:
    """Means over the frames of each rollout, where an error is relative."""

    def mean(array: np.ndarray) -> np.ndarray:
        there = ~np.isnan(array)
        total = np.where(there, array, 0).sum(axis=0)
        return np.where(
            there.any(axis=0), total / np.maximum(there.sum(axis=0), 1), np.nan
        )

    return FieldErrors(
        tuple(names),
        np.stack([mean(one.relative) for one in rollouts]),
        np.stack([mean(one.over_spread) for one in rollouts]),
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
    names: Sequence[str],
    seen: Sequence[_Seen],
    outcomes: Sequence[_Errors],
    errors: np.ndarray,
    series: np.ndarray,
    by_field: FieldErrors,
) -> Numbers:
    """The numbers of a table: means over fields, then those of each of several."""
    steps = [step for step in _SHOWN if step < series.shape[1]] + [series.shape[1]]
    still, mean = (
        _of_cases(names, [one[place] for one in outcomes]) for place in (1, 2)
    )
    # Steps before a field no longer correlates, or is worse than nothing that changes.
    lasting = np.array(
        [[_until(~column) for column in one.correlated.T] for one in seen]
    )
    better = [one.own.over_spread <= one.still.over_spread for one in outcomes]
    useful = np.array([[_until(~column) for column in one.T] for one in better])
    drift = np.array([one.drift[-1] for one in seen])
    each = {
        "persistence": still.filled,
        "mean": mean.filled,
        "correlation_steps": lasting,
        "persistence_steps": useful,
        "drift": drift,
    }
    own = by_field.numbers()
    whole = {k: v for k, v in own.items() if k in ("relative_l2", "error_over_spread")}
    numbers = {
        "relative_l2": float(errors.mean()),
        **{f"step_{t}": float(series[:, t - 1].mean()) for t in steps},
        "relative_l2_worst": float(errors.max()),
        **{name: float(np.mean(values)) for name, values in each.items()},
        **{k: v for k, v in own.items() if k not in whole},
        "error_over_spread": whole["error_over_spread"],
    }
    for place, field in enumerate(keys(names)):
        columns = {k: float(np.mean(v[:, place])) for k, v in each.items()}
        numbers |= {f"{name}_{field}": value for name, value in columns.items()}
    return numbers


def _until(condition: np.ndarray) -> int:
    return int(metrics_time.steps_until(condition))
