"""Intervals of predicted scalars and of quantities of interest."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from opjax import uncertainty
from opjax._trees import Json
from opjax.learn.config.quantities import parse
from opjax.learn.messages import say
from opjax.learn.named_types import Numbers, Row
from opjax.learn.predict import quantities
from opjax.learn.predict.prediction import Predicted
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

# Half of the width of the interval of every number, by its kind and its name.
HalfWidths = dict[str, Numbers]
# What a report calls predicted and true numbers of a kind.
KINDS = {
    "scalars": ("predicted_scalars", "target_scalars"),
    "quantities": ("quantities", "true_quantities"),
}
# What `row_of` adds to a row.
ROW = tuple(f"{kind}_{end}" for kind in KINDS for end in ("lower", "upper"))


def calibrate(
    trained: Trained,
    cases: Sequence[Sample],
    predictions: Sequence[Predicted],
    *,
    coverage: float,
) -> HalfWidths:
    """Returns the half-widths of the intervals of all predicted numbers.

        the k-th smallest |error| of n cases,    k = ceil((n + 1) coverage).

    The coverage holds for each number separately, not for all of them jointly.

    Args:
      trained: the operator.
      cases: cases with targets.
      predictions: predictions of the operator for them.
      coverage: target coverage.

    Raises:
      ValueError: if a quantity cannot be computed for a case, or is not finite.
    """
    errors: dict[str, dict[str, list[float]]] = {}
    asked = parse(trained.config.get("quantities", ""))
    listed = trained.channel_names.get("target_scalars") or []
    for sample, predicted in zip(cases, predictions, strict=True):
        pairs: Row = {}
        if asked:
            assert sample.target is not None
            fields = [predicted.values, sample.target]
            names = trained.channel_names
            pairs["quantities"] = quantities.measure(asked, sample, fields, names)
        if predicted.scalars is not None:
            if sample.target_scalars is None:
                say(f"No intervals for scalars: {sample.name} does not have them.")
                predictions = [p._replace(scalars=None) for p in predictions]
                return calibrate(trained, cases, predictions, coverage=coverage)
            both = predicted.scalars, sample.target_scalars
            pairs["scalars"] = [named(listed, values) for values in both]
        for kind, (guess, true) in pairs.items():
            for name, value in guess.items():
                each = errors.setdefault(kind, {}).setdefault(name, [])
                each.append(abs(value - true[name]))
    return {
        kind: {name: _quantile(name, e, coverage) for name, e in of_names.items()}
        for kind, of_names in errors.items()
    }


def _quantile(name: str, errors: Sequence[float], coverage: float) -> float:
    if not np.isfinite(errors).all():
        raise ValueError(f"{name} is not finite for one of the calibration cases.")
    with jax.enable_x64(True):
        quantile = uncertainty.conformal_quantile(np.asarray(errors), coverage=coverage)
    return float(quantile)


def named(listed: Sequence[str], values: np.ndarray) -> Numbers:
    """Target scalars by name, as in reports."""
    names = listed or [f"target_scalars_{i}" for i in range(len(values))]
    return dict(zip(names, map(float, values), strict=True))


def row_of(known: Mapping[str, Mapping[str, float]], row: Json) -> Row:
    """Returns the interval bounds of the numbers in a report row.

    Quantities that were not calibrated are omitted.
    """
    bounds: Row = {}
    for kind, (predicted, _) in KINDS.items():
        values: Mapping[str, float] = row.get(predicted) or {}
        half = {name: known.get(kind, {}).get(name) for name in values}
        for end, sign in (("lower", -1), ("upper", 1)):
            ends = {
                n: values[n] + sign * _outwards(values[n], h)
                for n, h in half.items()
                if h is not None
            }
            if ends:
                bounds[f"{kind}_{end}"] = ends
    return bounds


def _outwards(value: float, half: float) -> float:
    """A half width that is no smaller than the error that gave it, after rounding."""
    return half + float(np.finfo(np.float32).eps) * (abs(value) + half)


def summary(rows: Sequence[Mapping[str, Any]]) -> Numbers:
    """Returns `coverage_NAME`, the fraction of cases inside the interval, by quantity.

    Quantities without true values or intervals are omitted.
    """
    inside: dict[str, list[bool]] = {}
    for row in rows:
        for kind, (_, true) in KINDS.items():
            values: Mapping[str, float] = row.get(true) or {}
            for name, low in (row.get(f"{kind}_lower") or {}).items():
                if name in values:
                    high = row[f"{kind}_upper"][name]
                    key = "".join(c if c.isalnum() else "_" for c in name)
                    inside.setdefault(key, []).append(low <= values[name] <= high)
    return {f"coverage_{key}": float(np.mean(each)) for key, each in inside.items()}
