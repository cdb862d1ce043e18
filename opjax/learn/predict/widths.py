"""Widths of bands before calibration: what is known of where an operator errs.

A width is any function of a case and its prediction, never of its target: calibration
makes a band of each, and a better one makes a narrower band.
"""

import types
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

# Names of width models, as flags have them.
WIDTHS = ("constant", "ensemble", "residual")
# A width is at least this share of the spread of the training targets ...
_LEAST = 1e-5
# ... and, of an ensemble, this share of its root mean square over the case.
_FLOOR = 0.3
_POINTS = 1024  # of a case, that a residual model is fitted to
_WAVES = 192
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


class Width(Protocol):
    """A width model."""

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the width at every point, positive, in the shape of a prediction."""
        ...

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns what is to be saved of it."""
        ...


class Constant(NamedTuple):
    """The same width everywhere: the spread of every channel in the training set.

    Attributes:
      scale: one number for each channel of the target.
    """

    scale: np.ndarray

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the scale at every point."""
        del sample
        return np.broadcast_to(self.scale, prediction.shape)

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns nothing: the scale is the operator's."""
        return {}


class Ensemble(NamedTuple):
    """How far other seeds of the same run are from the prediction.

        h = (mean over seeds of (p_seed - p)^2)^{1/2} + floor.

    Attributes:
      scale: one number for each channel of the target.
      members: the other seeds.
    """

    scale: np.ndarray
    members: Sequence[Trained]

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the spread, with a floor where all seeds agree by chance."""
        squares = [np.square(each(sample) - prediction) for each in self.members]
        spread = np.sqrt(np.mean(squares, axis=0))
        typical = np.sqrt(np.mean(np.square(spread), axis=0))
        return spread + _FLOOR * typical + _LEAST * self.scale

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns nothing: the members have folders of their own."""
        return {}


class Residual(NamedTuple):
    """A ridge regression of the logarithm of the error.

        log h = phi(x) C,

    with features `phi` of a point: its coordinates, input and prediction, their means
    and deviations over the case, and random waves of them.

    Attributes:
      scale: one number for each channel of the target.
      trained: encodes the features as the operator sees them.
      coefficients: `C`, shape `(features, q)`.
    """

    scale: np.ndarray
    trained: Trained
    coefficients: np.ndarray

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns what the regression says, never far beyond what it has seen."""
        logs = _features(self.trained, sample, prediction) @ self.coefficients
        return np.exp(np.clip(logs, np.log(_LEAST), 3.0)) * self.scale

    def arrays(self) -> dict[str, np.ndarray]:
        """Returns the coefficients."""
        return {"residual": self.coefficients}


def scale_of(trained: Trained) -> np.ndarray:
    """Spread of every channel of the target in the training set, `(q,)`."""
    count = trained.description["channels"]["target"]
    if "target" not in trained.normalizers:
        return np.ones(count, np.float32)
    std = np.asarray(trained.normalizers["target"].std, np.float32)
    return np.broadcast_to(std.reshape(-1, std.shape[-1]).mean(axis=0), (count,))


def fit_residual(
    trained: Trained, samples: Sequence[Sample], predictions: Sequence[np.ndarray]
) -> Residual:
    """Fits a residual model to the errors of cases with targets.

    The ridge is the one that is best on every fifth of the cases, fitted to the others.

    Args:
      trained: the operator.
      samples: cases that calibrate nothing.
      predictions: of the operator on these.

    Returns:
      The model.
    """
    scale, tables = scale_of(trained), []
    for number, (sample, values) in enumerate(zip(samples, predictions, strict=True)):
        features = _features(trained, sample, values)
        assert sample.target is not None
        error = np.abs(values - sample.target) / scale
        logs = np.log(np.maximum(error, _LEAST)).astype(np.float64)
        rows = np.random.default_rng(number).permutation(len(logs))[:_POINTS]
        tables.append((features[rows], logs[rows]))
    held, kept = tables[::5], [t for i, t in enumerate(tables) if i % 5]
    gram, right = _normal(kept or held)

    def loss(ridge: float) -> float:
        fitted = _solve(gram, right, ridge)
        return float(np.mean([np.mean((f @ fitted - y) ** 2) for f, y in held]))

    best = min(_RIDGES, key=loss)
    return Residual(scale, trained, _solve(*_normal(tables), best))


def _normal(
    tables: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations, in which each case counts the same."""
    gram = sum(f.T @ f / len(f) for f, _ in tables)
    right = sum(f.T @ y / len(f) for f, y in tables)
    return np.asarray(gram) / len(tables), np.asarray(right) / len(tables)


def _solve(gram: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray:
    weights = np.full(len(gram), ridge)
    weights[0] = 1e-9  # the constant is free
    return np.linalg.solve(gram + np.diag(weights), right)


def _features(trained: Trained, sample: Sample, prediction: np.ndarray) -> np.ndarray:
    """What a residual model knows of every point, `(n, features)`."""
    parts = [encoded(trained, "mesh_points", sample.mesh_points)]
    if sample.features is not None:
        parts.append(encoded(trained, "features", sample.features))
    parts.append(encoded(trained, "target", prediction))
    own = np.clip(np.concatenate(parts, axis=1), -10, 10)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(own.shape[1], _WAVES)) * rng.choice([1, 3], _WAVES)
    waves = np.cos(own @ directions + rng.uniform(0, 2 * np.pi, _WAVES))
    case = np.concatenate([own.mean(axis=0), own.std(axis=0)])
    ones = np.ones((len(own), 1))
    return np.hstack([ones, own, waves, np.broadcast_to(case, (len(own), len(case)))])


def encoded(trained: Trained, name: str, values: np.ndarray) -> np.ndarray:
    """Values as the operator sees them, in double precision."""
    values = np.asarray(values, np.float64)
    if name not in trained.normalizers:
        return values
    mean, std = (np.asarray(x, np.float64) for x in trained.normalizers[name])
    return (values - mean) / std


def restore(
    name: str,
    trained: Trained,
    *,
    members: Sequence[Trained],
    arrays: Mapping[str, np.ndarray] = types.MappingProxyType({}),
) -> Width:
    """Returns a width model that needs no fit, or whose fit was saved.

    Raises:
      ValueError: if an array is missing or has another shape.
    """
    scale = scale_of(trained)
    if name == "constant":
        return Constant(scale)
    if name == "ensemble":
        return Ensemble(scale, members)
    channels = trained.description["channels"]
    own = channels["mesh_points"] + channels["features"] + channels["target"]
    shape = (1 + 3 * own + _WAVES, channels["target"])
    found = arrays.get("residual")
    if found is None or found.shape != shape or found.dtype.kind != "f":
        raise ValueError(f"no coefficients of shape {shape}")
    return Residual(scale, trained, found)
