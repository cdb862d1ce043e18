"""Time steps of an operator: from the last frames to the next, or to many."""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize
from opjax._trees import Arrays, Model
from opjax.learn.predict.description import Stepping
from opjax.learn.predict.prediction import predict_sample
from opjax.normalize import Normalizer
from opjax.rollouts import rollout


class Units(NamedTuple):
    """Normalisers of an operator that advances frames relative to the last frame.

    Frames are normalised with the mean and the standard deviation of the last input
    frame. So large offsets are subtracted before rounding, and increments are added to
    numbers of unit size.

    Attributes:
      frame: normaliser of the channels of a frame, `(c,)`, applied outside the step.
      features: normaliser of all model inputs, `(history c + k)`, applied outside the
        step.
      inner: normalisers of `features` and `target` in the step, in these units.
    """

    frame: Normalizer
    features: Normalizer
    inner: dict[str, Normalizer]


def units_of(how: Stepping, normalizers: Mapping[str, Normalizer]) -> Units:
    """Returns the units of the frames for an operator with a history."""
    stop, channels = how.history * how.channels, how.channels
    mean, std = (np.asarray(part, np.float64) for part in normalizers["features"])
    last = slice(stop - channels, stop)
    repeated = [np.tile(part[last], how.history) for part in (mean, std)]
    outer = [
        np.concatenate([part, own[stop:]])
        for part, own in zip(repeated, (mean, std), strict=True)
    ]
    inner_mean, inner_std = np.zeros_like(mean), np.ones_like(std)
    inner_mean[:stop] = (mean[:stop] - repeated[0]) / repeated[1]
    inner_std[:stop] = std[:stop] / repeated[1]
    target_mean, target_std = (
        np.asarray(part, np.float64) for part in normalizers["target"]
    )
    if not how.increments:
        target_mean = target_mean - mean[last]
    return Units(
        Normalizer(mean[last], std[last]),  # pyright: ignore[reportArgumentType]
        Normalizer(*outer),  # pyright: ignore[reportArgumentType]
        {
            "features": _single(inner_mean, inner_std),
            "target": _single(target_mean / std[last], target_std / std[last]),
        },
    )


def _single(mean: np.ndarray, std: np.ndarray) -> Normalizer:
    return Normalizer(jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32))


def pushed(how: Stepping, features: jax.Array, frame: jax.Array) -> jax.Array:
    """Model input with a new frame, without the oldest one, `(n, history c + k)`."""
    stop = how.history * how.channels
    parts = features[:, how.channels : stop], frame, features[:, stop:]
    return jnp.concatenate(parts, axis=1)


class Step(NamedTuple):
    """A time step: from the input frames to the next frame.

    Attributes:
      how: time stepping of the operator.
      normalizers: normaliser of `features`, unless they are encoded before the step or
        not at all; and of `target`, if the model predicts encoded values.
    """

    how: Stepping
    normalizers: Mapping[str, Normalizer]

    def next_frame(
        self,
        model: Model,
        sample: Arrays,
        features: jax.Array,
        lag: jax.Array,
        *,
        axis_name: str | None = None,
    ) -> jax.Array:
        """Predicts one frame, in physical units.

        Args:
          model: the model, which maps encoded arrays.
          sample: encoded points and weights; other arrays are ignored.
          features: the input frames, oldest first, and the constant inputs, `(n,
            history c + k)`; in physical units if the step encodes them.
          lag: time after the last of these frames, a scalar.
          axis_name: axis of the devices that hold the other points, if any.

        Returns:
          The frame, `(n, c)`.
        """
        how, seen = self.how, features
        if "features" in self.normalizers:
            seen = normalize.encode(self.normalizers["features"], features)
        value = predict_sample(
            self.normalizers,
            model,
            {**sample, "features": seen},
            time=lag / how.longest if how.timed else None,
            axis_name=axis_name,
        )
        if not how.increments:
            return value
        stop = how.history * how.channels
        return features[:, stop - how.channels : stop] + value

    def frames(
        self,
        model: Model,
        sample: Arrays,
        lags: jax.Array,
        *,
        checkpoint: bool = False,
        gradient: str = "all",
        axis_name: str | None = None,
    ) -> jax.Array:
        """Predicts frames one after another, each from the previous ones.

        In mode `"one_shot"`, every frame is predicted from the first ones.

        Args:
          model: the model, which maps encoded arrays.
          sample: encoded points and weights, and `features` as for `next_frame`.
          lags: times of the frames relative to the last known frame, or to the first
            one if `how.history` is zero, `(t,)`.
          checkpoint: see `rollout`.
          gradient: see `rollout`.
          axis_name: as for `next_frame`.

        Returns:
          The frames in physical units, `(t, n, c)`.
        """
        how = self.how
        features = jnp.asarray(sample["features"])
        stop = how.history * how.channels

        def predict(seen: jax.Array, lag: jax.Array) -> jax.Array:
            return self.next_frame(model, sample, seen, lag, axis_name=axis_name)

        if how.mode == "one_shot":
            return jax.lax.map(lambda lag: predict(features, lag), lags)

        def advance(seen: jax.Array, lag: jax.Array) -> jax.Array:
            return pushed(how, seen, predict(seen, lag))

        return rollout(
            advance,
            features,
            inputs=jnp.diff(lags, prepend=jnp.zeros(1, lags.dtype)),
            observe=lambda seen: seen[:, stop - how.channels : stop],
            checkpoint=checkpoint,
            gradient=gradient,
        )
