"""Width models of bands before calibration: estimates of the local error.

A width is a function of a case and its prediction, never of its target. Calibration
turns any width into a valid band; a better width gives a narrower band. Points of
weight zero do not affect the widths at other points; their own width is that of
`Constant` or of their own spread.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize
from opjax.learn.named_types import HostArrays
from opjax.learn.predict.functions import Case, Parameters, check_same_mesh
from opjax.learn.predict.neighbourhoods import (
    local_count,
    local_features,
    local_largest,
    local_mean,
    of_each,
    root,
)
from opjax.learn.predict.prediction import has_weight
from opjax.learn.predict.trained import Trained
from opjax.normalize import Normalizer
from opjax.samples import Sample

# Names of width models, as flags have them.
WIDTHS = ("constant", "ensemble", "residual", "combined")
# Those that need other seeds of the study, and those that need a fit.
OF_SEEDS, FITTED = ("ensemble", "combined"), ("residual", "combined")
# A width is at least this share of the spread of the training targets ...
_LEAST = 1e-5
# ... and, of an ensemble, this many times its root mean square over the case, see
# results/uncertainty.md for the choice.
_FLOOR = 3.0
_POINTS = 1024  # of a case, that a residual model is fitted to
_WAVES = 192
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25)
_FOLDS = 5


class Width(Protocol):
    """A width model."""

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the width at every point, positive, in the shape of a prediction."""
        ...

    def function(self, mesh: Sample | None) -> "WidthFunction":
        """Returns the width as a pure function.

        Args:
          mesh: provides the neighbours of each point; only some widths need it.

        Raises:
          ValueError: if the width needs a mesh and there is none.
        """
        ...

    def arrays(self) -> HostArrays:
        """Returns the arrays to save."""
        ...


class Call(NamedTuple):
    """A call of an operator, which JAX may trace.

    Attributes:
      normalizers: normalisers of the operator.
      given: arguments of the call after the parameters.
      case: its arrays.
      values: what the operator predicts, `(n, q)`.
    """

    normalizers: Mapping[str, Normalizer]
    given: tuple[Any, ...]
    case: Case
    values: Any

    def encoded(self, name: str) -> Any:
        """Returns a normalised array; `"target"` is the prediction."""
        predicted = name == "target"
        values = self.case.reduced(self.values) if predicted else self.case.arrays[name]
        if name not in self.normalizers:
            return values
        return normalize.encode(self.normalizers[name], values)

    def parts(self) -> list[Any]:
        """Returns the normalised coordinates, inputs and prediction."""
        inputs = ["features"] if "features" in self.case.arrays else []
        return [self.encoded(name) for name in ("mesh_points", *inputs, "target")]


WidthFunction = Callable[[Call], Any]


class Constant(NamedTuple):
    """A constant width: the spread of every channel in the training set.

    Attributes:
      scale: one number per channel of the target.
      trained: the operator, whose physical scales multiply the widths.
    """

    scale: np.ndarray
    trained: Trained | None = None

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the scale at every point."""
        scale = self.scale
        if self.trained is not None:
            scale = scale * self.trained.factor(sample)
        return np.broadcast_to(scale, prediction.shape)

    def function(self, mesh: Sample | None) -> WidthFunction:
        """Returns the constant width: the scale at every point."""
        del mesh
        return lambda call: call.case.physical(jnp.full_like(call.values, self.scale))

    def arrays(self) -> HostArrays:
        """Returns no arrays, because the scale is stored with the operator."""
        return {}


class Ensemble(NamedTuple):
    """The distance of other seeds of the same run from the prediction.

        h = d + floor (mean over points that count of d^2)^{1/2},
        d = (mean over seeds of (p_seed - p)^2)^{1/2}.

    Attributes:
      scale: one number per channel of the target.
      members: the other seeds.
      floor: added width; without it, bands are too narrow where all seeds agree by
        chance.
    """

    scale: np.ndarray
    members: Sequence[Trained]
    floor: float = _FLOOR

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns the distance, and the floor."""
        spread = spread_of(self.members, sample, prediction)
        typical = np.sqrt(np.mean(np.square(spread[has_weight(sample)]), axis=0))
        scale = self.scale * self.members[0].factor(sample)
        return spread + self.floor * typical + _LEAST * scale

    def function(self, mesh: Sample | None) -> WidthFunction:
        """Returns the spread of the seeds plus the floor."""
        del mesh
        spread_at = _spread_function(self.members)

        def width(call: Call) -> jax.Array:
            spread = spread_at(call)
            weights, counted = (
                call.case.sample.quadrature_weights,
                jnp.ones_like(spread),
            )
            if weights is not None:
                counted = (weights > 0).astype(spread.dtype)[:, None]
            squares = jnp.sum(counted * spread**2, axis=0, keepdims=True)
            typical = root(squares / jnp.sum(counted, axis=0, keepdims=True), jnp)
            scale = call.case.physical(jnp.full_like(spread, self.scale))
            return spread + self.floor * typical + _LEAST * scale

        return width

    def arrays(self) -> HostArrays:
        """Returns the floor; the members are stored in their folders."""
        return {"floor": np.asarray(self.floor, np.float64)}


class Residual(NamedTuple):
    """Ridge regression of the logarithm of the error.

        log h = phi(x) C,

    with features `phi` of a point: its coordinates, input and prediction; their means
    and standard deviations over the case; random Fourier features of them; and local
    features, see `neighbourhoods.local_features`. With `"combined"`, also the distance
    of other seeds from the prediction at the point, nearby and over the whole case.

    Attributes:
      scale: one number per channel of the target.
      trained: encodes the features in the same way as for the operator.
      coefficients: `C`, shape `(features, q)`.
      local: whether local features are used; False for calibrations of an earlier
        opjax.
      members: other seeds, for `"combined"`.
    """

    scale: np.ndarray
    trained: Trained
    coefficients: np.ndarray
    local: bool = True
    members: Sequence[Trained] = ()

    def __call__(self, sample: Sample, prediction: np.ndarray) -> np.ndarray:
        """Returns what the regression says, never far beyond what it has seen."""
        features = _all_features(
            self.trained, sample, prediction, members=self.members, local=self.local
        )
        scale = self.scale * self.trained.factor(sample)
        widths = widths_of(features, self.coefficients, scale)
        if len(widths) == len(prediction):
            return widths
        every = np.broadcast_to(scale, prediction.shape).astype(widths.dtype)
        every[has_weight(sample)] = widths
        return every

    def function(self, mesh: Sample | None) -> WidthFunction:
        """Returns the width that the regression predicts, with neighbours of a mesh."""
        if mesh is None:
            raise ValueError(
                "The width of the band depends on neighbouring points; pass the mesh, "
                "as in band_function(sample)."
            )
        case, rows = mesh, np.flatnonzero(has_weight(mesh))
        points = self.trained.reduced(mesh).mesh_points[rows]
        encoded_points = encoded(self.trained, "mesh_points", points)
        near = of_each(np.clip(encoded_points, -10, 10))
        near_spread = of_each(mesh.mesh_points[rows])
        spread_at = _spread_function(self.members)

        def width(call: Call) -> jax.Array:
            check_same_mesh("the width of the band", call.case.sample, case)
            parts = [part[rows] for part in call.parts()]
            features = _columns(parts, near if self.local else None, jnp)
            scale = call.case.physical(jnp.full_like(call.values, self.scale))
            if self.members:
                apart = (spread_at(call) / scale)[rows]
                beside = _of_spread(points, apart, near_spread, jnp)
                features = jnp.hstack([features, beside])
            coefficients = jnp.asarray(self.coefficients, features.dtype)
            over_scale = _width_over_scale(features @ coefficients)
            return scale.at[rows].multiply(over_scale, unique_indices=True)

        return width

    def arrays(self) -> HostArrays:
        """Returns the coefficients."""
        return {"residual": self.coefficients}


def scale_of(trained: Trained) -> np.ndarray:
    """Training spread of every channel of the target, `(q,)`."""
    count = trained.channels.target
    if "target" not in trained.normalizers:
        return np.ones(count, np.float32)
    std = np.asarray(trained.normalizers["target"].std, np.float32)
    std = np.broadcast_to(std.reshape(-1, std.shape[-1]).mean(axis=0), (count,))
    return np.where(std > 0, std, 1)  # of constant channels, which have no band


def scale_at(trained: Trained, sample: Sample) -> np.ndarray:
    """Training spread of every channel in the physical units of a case, `(q,)`."""
    return scale_of(trained) * trained.factor(sample)


def spread_of(
    members: Sequence[Trained], sample: Sample, prediction: np.ndarray
) -> np.ndarray:
    """Root mean square distance of other seeds from a prediction, `(n, q)`."""
    squares = [np.square(each(sample) - prediction) for each in members]
    return np.sqrt(np.mean(squares, axis=0))


def _spread_function(members: Sequence[Trained]) -> WidthFunction:
    """`spread_of` of a call."""
    calls = [(each.function, each.parameters) for each in members]

    def spread(call: Call) -> jax.Array:
        fields = [f(_as_precise(p, call.values), *call.given) for f, p in calls]
        squares = [(field - call.values) ** 2 for field in fields]
        return root(sum(squares) / len(squares), jnp)

    return spread


def _as_precise(parameters: Parameters, values: jax.Array) -> Parameters:
    """Returns parameters in double precision if the values of the call are."""
    if values.dtype != jnp.float64:
        return parameters

    def cast(leaf: jax.Array) -> jax.Array:
        real = jnp.issubdtype(leaf.dtype, jnp.floating)
        return jnp.asarray(leaf, values.dtype) if real else leaf

    return jax.tree.map(cast, parameters)


def fit_residual(
    trained: Trained,
    samples: Sequence[Sample],
    predictions: Sequence[np.ndarray],
    *,
    coverage: float = 0.9,
    members: Sequence[Trained] = (),
) -> Residual:
    """Fits a residual model to the errors of cases with targets.

        log h = power * phi(x) C,
        C from the ridge regression of the largest error among the 9 nearest points.

    The error itself is zero wherever it changes sign, which cannot be predicted and is
    not needed for a band. Therefore the regression target is a local maximum of the
    error. Ridge and power are selected by five-fold cross-validation over the cases for
    the narrowest whole-field band. A regression that underestimates the largest errors
    gives a wide band; a power below one reduces its influence, and zero gives a
    constant width.

    Args:
      trained: the operator.
      samples: cases that are not used for calibration.
      predictions: predictions of the operator for these cases.
      coverage: target coverage of the band whose width is minimised.
      members: other seeds of the study, for `"combined"`.

    Returns:
      The fitted model.
    """
    tables: list[WidthTable] = []
    for number, (sample, values) in enumerate(zip(samples, predictions, strict=True)):
        whole = table_of(trained, sample, values, members=members)
        rows = np.random.default_rng(number).permutation(len(whole.logs))[:_POINTS]
        tables.append(WidthTable(*(array[rows] for array in whole.arrays)))
    coefficients = fit_tables(tables, coverage=coverage)
    return Residual(scale_of(trained), trained, coefficients, members=members)


class WidthTable:
    """Regression data of one case, at its points.

    Attributes:
      features: features of a residual model, `(n, f)`.
      logs: logarithms of the errors divided by their scale, `(n, q)`.
      sizes: logarithms of the largest errors nearby, likewise scaled.
    """

    def __init__(
        self, features: np.ndarray, logs: np.ndarray, sizes: np.ndarray
    ) -> None:
        self.features, self.logs, self.sizes = self.arrays = features, logs, sizes

    @functools.cached_property
    def normal(self) -> tuple[np.ndarray, np.ndarray]:
        """Normal equations of the case."""
        left = self.features.T / len(self.logs)
        return left @ self.features, left @ self.sizes


def table_of(
    trained: Trained,
    sample: Sample,
    prediction: np.ndarray,
    *,
    members: Sequence[Trained] = (),
) -> WidthTable:
    """Returns the regression data of a case at its points of positive weight.

    See `fit_residual`.
    """
    assert sample.target is not None
    features = _all_features(trained, sample, prediction, members=members)
    keep = has_weight(sample)
    scale = scale_at(trained, sample)
    error = np.abs(prediction - sample.target)[keep] / scale
    largest = local_largest(sample.mesh_points[keep], error)
    logs, sizes = (
        np.log(np.maximum(a, _LEAST)).astype(np.float64) for a in (error, largest)
    )
    return WidthTable(features, logs, sizes)


def fit_tables(tables: Sequence[WidthTable], *, coverage: float) -> np.ndarray:
    """Returns the coefficients of a residual model; see `fit_residual`."""
    num_folds = min(_FOLDS, len(tables))
    folds = [tables[i::num_folds] for i in range(num_folds)]
    sums = [_normal(fold) for fold in folds]
    gram, right = (np.sum(parts, axis=0) for parts in zip(*sums, strict=True))

    def held_out(ridge: float) -> list[tuple[np.ndarray, np.ndarray]]:
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        for fold, (own_gram, own_right) in zip(folds, sums, strict=True):
            rest = len(tables) - len(fold)
            fitted = _solve(gram - own_gram, right - own_right, ridge * rest)
            pairs += [(table.features @ fitted, table.logs) for table in fold]
        return pairs

    losses: dict[tuple[float, float], float] = {}
    for ridge in _RIDGES:
        pairs = held_out(ridge)
        for power in _POWERS:
            losses[ridge, power] = _log_width(pairs, power, coverage)
    ridge, power = min(losses, key=lambda choice: losses[choice])
    return power * _solve(gram, right, ridge * len(tables))


def widths_of(
    features: np.ndarray, coefficients: np.ndarray, scale: np.ndarray
) -> np.ndarray:
    """Returns the widths of a residual model, limited to about its training range."""
    return _width_over_scale(features @ coefficients, np) * scale


def _width_over_scale(logs: Any, array: ModuleType = jnp) -> Any:
    return array.exp(array.clip(logs, math.log(_LEAST), 3.0))


def _log_width(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], power: float, coverage: float
) -> float:
    """Logarithm of the mean width of the band for whole fields.

    Args:
      pairs: fitted and true logarithms of the errors of every case.
      power: of the fitted widths.
      coverage: see `calibrate`.
    """
    scores = np.sort([np.max(true - power * fitted) for fitted, true in pairs])
    place = min(math.ceil((len(scores) + 1) * coverage), len(scores)) - 1
    widths = np.mean([np.mean(np.exp(power * fitted)) for fitted, _ in pairs])
    return float(scores[place] + np.log(widths))


def _normal(tables: Sequence[WidthTable]) -> tuple[np.ndarray, np.ndarray]:
    """Normal equations, summed over cases, in which each case counts the same."""
    grams, rights = zip(*(table.normal for table in tables), strict=True)
    return np.sum(grams, axis=0), np.sum(rights, axis=0)


def _solve(gram: np.ndarray, right: np.ndarray, ridge: float) -> np.ndarray:
    weights = np.full(len(gram), ridge)
    weights[0] = 1e-9 * ridge  # the constant is free
    return np.linalg.solve(gram + np.diag(weights), right)


def _all_features(
    trained: Trained,
    sample: Sample,
    prediction: np.ndarray,
    *,
    members: Sequence[Trained] = (),
    local: bool = True,
) -> np.ndarray:
    """What a residual model knows of every point that counts, with other seeds."""
    keep = has_weight(sample)
    inputs = None if sample.features is None else sample.features[keep]
    counted = sample._replace(mesh_points=sample.mesh_points[keep], features=inputs)
    parts = parts_of(trained, counted, prediction[keep])
    near = of_each(np.clip(parts[0], -10, 10)) if local else None
    features = _columns(parts, near)
    if not members:
        return features
    scale = scale_at(trained, sample)
    apart = spread_of(members, sample, prediction)[keep] / scale
    return np.hstack([features, _of_spread(counted.mesh_points, apart)])


def parts_of(
    trained: Trained, sample: Sample, prediction: np.ndarray
) -> list[np.ndarray]:
    """Returns normalised coordinates, inputs if any, and prediction of a case."""
    reduced = trained.reduced(sample)
    arrays = {"mesh_points": reduced.mesh_points, "features": reduced.features}
    arrays["target"] = trained.reduced_values(prediction, sample)
    return [encoded(trained, k, a) for k, a in arrays.items() if a is not None]


def _columns(
    parts: Sequence[Any], near: np.ndarray | None, array: ModuleType = np
) -> Any:
    """Returns the inputs of a residual model at every point, `(n, features)`.

    Args:
      parts: normalised coordinates, inputs if any, and prediction.
      near: neighbours of every point; None for calibrations without them.
      array: module to compute with.
    """
    own = array.clip(array.concatenate(parts, axis=1), -10, 10)
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(own.shape[1], _WAVES)) * rng.choice([1, 3], _WAVES)
    phases = rng.uniform(0, 2 * np.pi, _WAVES)
    waves = array.cos(
        own @ directions.astype(own.dtype) + phases.astype(own.dtype)[None]
    )
    case = array.concatenate([own.mean(axis=0), root(own.var(axis=0), array)])
    ones = array.ones((len(own), 1), own.dtype)
    columns = [ones, own, waves, array.broadcast_to(case, (len(own), len(case)))]
    if near is not None:
        dim = parts[0].shape[1]
        columns.append(local_features(own[:, :dim], own[:, dim:], near, array))
    return array.hstack(columns)


def _of_spread(
    points: np.ndarray,
    apart: Any,
    near: np.ndarray | None = None,
    array: ModuleType = np,
) -> Any:
    """How far other seeds are: at a point, nearby and in the whole case, `(n, 3 q)`."""
    squares = array.square(apart if array is jnp else np.asarray(apart, np.float64))
    around = local_mean(points, squares, near)
    whole = array.broadcast_to(squares.mean(axis=0), squares.shape)
    return array.log(root(array.hstack([squares, around, whole]), array) + 1e-3)


def encoded(trained: Trained, name: str, values: np.ndarray) -> np.ndarray:
    """Values encoded for the operator, in double precision."""
    values = np.asarray(values, np.float64)
    if name not in trained.normalizers:
        return values
    mean, std = (np.asarray(x, np.float64) for x in trained.normalizers[name])
    return (values - mean) / np.where(std > 0, std, 1)


def restore(
    name: str,
    trained: Trained,
    *,
    members: Sequence[Trained],
    arrays: Mapping[str, np.ndarray] | None = None,
) -> Width:
    """Creates a width model without a fit, or restores a saved one.

    Args:
      name: one of `WIDTHS`.
      trained: the operator.
      members: members of an ensemble.
      arrays: saved arrays; None for a new model.

    Raises:
      ValueError: if an array is missing or has another shape.
    """
    scale = scale_of(trained)
    if name == "constant":
        return Constant(scale, trained)
    if name == "ensemble":
        floor = np.float64(_FLOOR) if arrays is None else arrays.get("floor")
        if floor is None or np.shape(floor) != () or not 0 <= floor < np.inf:
            raise ValueError("no floor for an ensemble")
        return Ensemble(scale, members, float(floor))
    channels = trained.channels
    own = channels.mesh_points + channels.features + channels.target
    base, target = 1 + 3 * own + _WAVES, channels.target
    count = base + local_count(own - channels.mesh_points)
    count += 3 * target if name == "combined" else 0
    coefficients = (arrays or {}).get("residual")
    if coefficients is None or coefficients.dtype.kind != "f":
        raise ValueError("no coefficients")
    earlier = name == "residual" and coefficients.shape == (base, target)
    if coefficients.shape != (count, target) and not earlier:
        raise ValueError(f"no coefficients with shape {(count, target)}")
    seeds = members if name == "combined" else ()
    return Residual(scale, trained, coefficients, local=not earlier, members=seeds)
