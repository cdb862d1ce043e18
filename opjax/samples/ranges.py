"""Distance of a sample from the training samples of an operator."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from opjax.samples import summaries
from opjax.samples.base import Sample
from opjax.samples.summaries import Summarized

# What `compare` calls the scalars outside the training range.
BEYOND = "scalars_beyond"

Ranges = Mapping[str, Any]  # what `measure` returns, or a row of it


def measure(train: Sequence[Sample] | Summarized) -> dict[str, Any]:
    """Computes the ranges of the training samples.

    Args:
      train: training samples.

    Returns:
      `num_points`, minimum and maximum; `ranges`, minimum and maximum of every channel
      of `mesh_points`, `features`, `target`, `scalars` and `target_scalars`, if they
      exist; `rounding`, the `eps` of their original dtype; and, for samples that were
      read as a whole, `quantiles`, minimum and maximum over the samples of each
      quantile of the coordinates, see `summaries.SHARES`.
    """
    each = summaries.of(train)
    limits = {n: list(summaries.limits(each, n)) for n in each[0].ranges}
    counts = [summary.num_points for summary in each]
    measured: dict[str, Any] = {
        "num_points": [min(counts), max(counts)],
        "ranges": limits,
        "rounding": {name: summaries.rounding(each, name) for name in limits},
    }
    quantiles = [one.quantiles for one in each if one.quantiles is not None]
    if len(quantiles) == len(each):
        ends = np.min(quantiles, axis=0), np.max(quantiles, axis=0)
        measured["quantiles"] = list(ends)
    return measured


def compare(measured: Ranges, sample: Sample) -> dict[str, Any]:
    """Measures how far a sample lies outside the ranges of the training samples.

    A sample inside all ranges may still be out of distribution; a sample outside
    certainly is.

    Args:
      measured: ranges from `measure`.
      sample: any sample with the same channels.

    Returns:
      `points_outside`, the fraction of points outside the bounding box of the training
      meshes; `points_distance`, the largest distance from the box along an axis,
      divided by its width; `features_outside` and `features_distance`, the same for the
      values at the points (zero without features); the same for scalars, if the
      operator has scalar inputs, with `scalars_beyond`, value and training range of
      each scalar outside, by name; `num_points_factor`, the number of points relative
      to the largest training mesh, or that of the smallest relative to it (1 if in
      between).
    """
    distances = {}
    for name, label in (("mesh_points", "points"), ("features", "features")):
        array = getattr(sample, name)
        share, distance = 0.0, 0.0
        if array is not None:
            ends = measured["ranges"][name]
            share, distance = _outside(
                array, ends[0], ends[1], _rounding(measured, name, array)
            )
        distances[f"{label}_outside"] = share
        distances[f"{label}_distance"] = distance
    if sample.scalars is not None and "scalars" in measured["ranges"]:
        low, high = np.asarray(measured["ranges"]["scalars"], np.float64)
        rounding = _rounding(measured, "scalars", sample.scalars)
        each = [
            _outside(np.asarray([[value]]), [least], [most], rounding)
            for value, least, most in zip(sample.scalars, low, high, strict=True)
        ]
        share, distance = np.mean([s for s, _ in each]), max(d for _, d in each)
        distances["scalars_outside"] = float(share)
        distances["scalars_distance"] = float(distance)
        distances[BEYOND] = {
            name: {"value": float(value), "training": [float(least), float(most)]}
            for name, (outside, _), value, least, most in zip(
                _scalar_names(measured), each, sample.scalars, low, high, strict=True
            )
            if outside
        }
    fewest, most = measured["num_points"]
    n = sample.num_points
    distances["num_points_factor"] = max(n / most, fewest / n, 1.0)
    return distances


def _scalar_names(measured: Ranges) -> Sequence[str]:
    listed = measured.get("names", {}).get("scalars")
    count = len(measured["ranges"]["scalars"][0])
    return listed or [f"scalars_{i}" for i in range(count)]


def crowding(measured: Ranges, sample: Sample) -> float:
    """Measures whether points are locally denser than in training.

    Refining a mesh does not change the quantiles of its coordinates; moving its points
    does.

    Args:
      measured: ranges from `measure`.
      sample: any sample of the same dimension, read as a whole.

    Returns:
      How far a quantile of the coordinates lies outside the range in training, divided
      by the width of their box; zero if it is less than a tenth, explained by chance,
      or unknown.
    """
    if "quantiles" not in measured:
        return 0.0
    low, high = np.asarray(measured["quantiles"], np.float64)
    ends = np.asarray(measured["ranges"]["mesh_points"], np.float64)
    width = np.ptp(ends, axis=0).max()
    quantiles = summaries.quantiles_of(sample.mesh_points)
    beyond = np.maximum(np.maximum(low - quantiles, quantiles - high), 0).max()
    distance = float(beyond / width) if width > 0 else 0.0
    return distance if distance > 0.1 + sample.num_points**-0.5 else 0.0


def sentence(row: Ranges) -> str:
    """Describes the result of `compare`; empty if everything is inside.

    Args:
      row: result of `compare`, with `points_crowding` from `crowding`.
    """
    words = [
        f"{100 * row[f'{label}_outside']:.3g} % of the {label} lie outside the "
        f"training range, by up to {row[f'{label}_distance']:.3g} of its width"
        + (_named(row) if label == "scalars" else "")
        for label in ("points", "features", "scalars")
        if row.get(f"{label}_outside")
    ]
    if row.get("points_crowding"):
        words.append(
            "the points crowd where those of training did not, by "
            f"{row['points_crowding']:.2g} of its width, which may cost accuracy"
        )
    factor = row["num_points_factor"]
    if factor > 4:
        words += [f"the number of points is {factor:.3g} times off those of training"]
    return "; ".join(words)


def _named(row: Ranges) -> str:
    """The scalars outside the training range, by name and value."""
    words = [
        "{} = {:.6g} ({:.6g} to {:.6g} in training)".format(
            name, scalar["value"], *scalar["training"]
        )
        for name, scalar in row.get(BEYOND, {}).items()
    ]
    return f": {', '.join(words)}" if words else ""


def ends(sample: Sample) -> Sample:
    """Returns minimum and maximum of a sample's inputs, as two points."""
    points, features = (
        None if array is None else np.stack([array.min(axis=0), array.max(axis=0)])
        for array in (sample.mesh_points, sample.features)
    )
    assert points is not None
    return Sample(points, features=features, scalars=sample.scalars)


_UNITS = 100  # times as large, or as small: other units, it seems


def other_units(
    measured: Ranges,
    given: Sequence[Sample],
    names: Mapping[str, Sequence[str]],
) -> list[str]:
    """Names the inputs whose magnitude differs from training, as with other units.

    Args:
      measured: ranges from `measure`.
      given: samples to predict, or the `ends` of each.
      names: names of the channels of `features` and `scalars`.

    Returns:
      A sentence with both ranges for the coordinates and for each feature and scalar
      whose maximum size is at least a hundred times that in training, or at most a
      hundredth. Features that are zero everywhere are ignored.
    """
    notes: list[str] = []
    for role in ("mesh_points", "features", "scalars"):
        arrays = [getattr(sample, role) for sample in given]
        rows = [np.atleast_2d(array) for array in arrays if array is not None]
        if rows and role in measured["ranges"]:
            before = np.asarray(measured["ranges"][role], np.float64)
            now = np.stack([r.min(axis=0) for r in rows]).min(axis=0)
            until = np.stack([r.max(axis=0) for r in rows]).max(axis=0)
            here = np.stack([now, until]).astype(np.float64)
            notes += _other_sizes(role, before, here, names.get(role) or ())
    return notes


def _other_sizes(
    role: str, before: np.ndarray, here: np.ndarray, names: Sequence[str]
) -> list[str]:
    """Compares ranges `(2, channels)`, smallest and largest values."""
    named = names or range(before.shape[1])
    words = [f"The {role.removesuffix('s')} {name} is" for name in named]
    if role == "mesh_points":  # all axes together: one may be thin
        words = ["The coordinates are"]
        before, here = (
            np.array([[ends.min()], [ends.max()]]) for ends in (before, here)
        )
    notes: list[str] = []
    for text, (low, high), (now, until) in zip(words, before.T, here.T, strict=True):
        usual, size = max(abs(low), abs(high)), max(abs(now), abs(until))
        if not usual or (role != "scalars" and not size):
            continue
        if not usual / _UNITS < size < usual * _UNITS:
            notes.append(
                f"{text} {now:g} to {until:g} here, and {low:g} to {high:g} in "
                "training: is it in the same units?"
            )
    return notes


def _rounding(measured: Ranges, name: str, array: np.ndarray) -> float:
    """The `eps` that ranges and an array are known to; that of float32 in opjax 0.2."""
    eps = measured.get("rounding", {}).get(name, _SINGLE)
    return max(eps, float(np.finfo(array.dtype).eps))


_SINGLE = float(np.finfo(np.float32).eps)


def _outside(
    array: np.ndarray, low: ArrayLike, high: ArrayLike, rounding: float
) -> tuple[float, float]:
    """Share of rows outside a box, and the largest distance over the box's width.

    Differences within the rounding of the box's bounds count as inside. An axis without
    width is measured by the widest one, or by the size of its value.
    """
    equal = 8 * rounding
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    width = high - low
    size = np.maximum(np.abs(low), np.abs(high))
    scale = np.where(width > equal * size, width, max(width.max(), 1e-30))
    scale = np.where(scale > equal * size, scale, np.where(size > 0, size, 1))
    beyond = np.maximum(np.maximum(low - array, array - high), 0)
    distance = np.where(beyond > equal * np.maximum(size, scale), beyond / scale, 0)
    return float((distance > 0).any(axis=1).mean()), float(distance.max())
