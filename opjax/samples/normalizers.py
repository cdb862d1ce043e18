"""Normalisers of the arrays of samples, fitted to those for training."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from opjax import normalize
from opjax.normalize import Normalizer
from opjax.samples import summaries
from opjax.samples.base import SCALARS, Sample
from opjax.samples.summaries import Summarized, Summary

TARGETS = ("target", "target_scalars")

Names = Mapping[str, Sequence[str]]  # of the channels of arrays


def fit_normalizers(
    train: Sequence[Sample] | Summarized,
    *,
    points: bool,
    features: bool,
    target: bool,
    pointwise: bool = False,
    scalars: bool = True,
    names: Names | None = None,
) -> dict[str, Normalizer]:
    """Fits a normaliser to every wanted array, over the points of all samples.

    All is computed in float64. A channel is constant if it varies by no more than the
    rounding of the type that its values came in, at the size of its field, which are
    the channels of the same name. A constant input keeps its scale: it would be divided
    by rounding errors. A constant target has deviation zero: whatever a model says of
    it, it is decoded as it was.

    Args:
      train: training samples.
      points: map the box of the meshes to [-1, 1] along its longest side.
      features: normalise every channel of the features, where there are any.
      target: likewise, of the target.
      scalars: likewise, of the scalars and target scalars, over the samples.
      pointwise: normalise every point by itself, on grids that all samples share.
      names: of the channels, by array; channels without are a field each.

    Returns:
      Normalisers by the names of the arrays, NumPy arrays in float64.

    Raises:
      ValueError: if a channel varies, but by little more than its type rounds its
        values. The message names it.
    """
    known = summaries.of(train)
    wanted = {"features": features, "target": target} | dict.fromkeys(SCALARS, scalars)
    found: dict[str, Normalizer] = {}
    for name in (key for key, is_wanted in wanted.items() if is_wanted):
        if name not in known[0].ranges:
            continue
        constant = _constant(known, name, (names or {}).get(name))
        if pointwise and name not in SCALARS and not isinstance(train, Summarized):
            values = np.stack([getattr(sample, name) for sample in train])
            fitted = normalize.fit(values, pointwise=True, unbiased=False)
            mean, std = (np.asarray(part, np.float64) for part in fitted)
        else:
            mean, std = summaries.mean_and_std(known, name)
            std = std + normalize.guard(std, 1e-8)
        std = np.where(constant, 0 if name in TARGETS else 1, std)
        found[name] = Normalizer(mean, std)
    if points:
        found["mesh_points"] = _of_box(known)
    return found


def _constant(
    known: Sequence[Summary], name: str, channels: Sequence[str] | None
) -> np.ndarray:
    """Which channels of an array are constant up to rounding.

    Raises:
      ValueError: if a channel varies by so little that rounding takes part of it.
    """
    low, high = (np.asarray(end, np.float64) for end in summaries.limits(known, name))
    rounding = _rounding(known, name)
    size = np.maximum(np.abs(low), np.abs(high))
    fields = list(channels or range(len(size)))
    of_field = np.array(
        [
            max(s for s, f in zip(size, fields, strict=True) if f == one)
            for one in fields
        ]
    )
    found = normalize.is_constant(low, high, rounding=rounding, size=of_field)
    _, std = summaries.mean_and_std(known, name)
    for channel in np.flatnonzero(~found & (std < 1e-6 * (rounding / _SINGLE) * size)):
        label = f"{fields[channel]}, " if channels else ""
        raise ValueError(
            f"Channel {channel} of the {name} ({label}{low[channel]:.9g} to "
            f"{high[channel]:.9g}) varies, but by so little that its type rounds much "
            f"of that away, by {rounding * size[channel]:.1g}. Give it in float64, or "
            "subtract its mean before it is saved; if it is meant to be constant, "
            "leave it out."
        )
    return found


_SINGLE = float(np.finfo(np.float32).eps)


def _rounding(known: Sequence[Summary], name: str) -> float:
    """The largest `eps` of the types that the values of an array came in."""
    types = {summary.ranges[name][0].dtype for summary in known}
    return max(float(np.finfo(dtype).eps) for dtype in types)


def _of_box(known: Sequence[Summary]) -> Normalizer:
    """Maps the box of all meshes to [-1, 1] along its longest side.

    Raises:
      ValueError: if coordinates are rounded to a large part of the box.
    """
    low, high = summaries.limits(known, "mesh_points")
    width, rounding = float(np.max(high - low)), _rounding(known, "mesh_points")
    size = max(float(np.abs(low).max()), float(np.abs(high).max()))
    if 0 < width < _FEWEST * rounding * size:
        raise ValueError(
            f"The coordinates lie between {low} and {high}, where their type rounds to "
            f"{rounding * size:.1g}, much of the {width:.3g} that the meshes are wide. "
            "Give them in float64, or subtract their offset before they are saved."
        )
    half = np.full_like(low, width / 2 or 1)
    return Normalizer(np.asarray((low + high) / 2, np.float64), half.astype(np.float64))


_FEWEST = 64  # places that coordinates can be told apart at


def encode(
    arrays: Mapping[str, Any], normalizers: Mapping[str, Normalizer]
) -> dict[str, Any]:
    """Encodes the arrays of a sample, or of many; targets stay in physical units.

    For traced arrays, in the precision of JAX; of those on the host see
    `encode_stored`.

    Args:
      arrays: by their names, as from `samples.stack`.
      normalizers: of some of them.
    """
    return {
        name: normalize.encode(normalizers[name], array)
        if name in normalizers and name not in TARGETS
        else array
        for name, array in arrays.items()
    }


def encode_stored(
    arrays: Mapping[str, np.ndarray],
    normalizers: Mapping[str, Normalizer],
    *,
    physical: Collection[str] = TARGETS,
) -> dict[str, np.ndarray]:
    """Encodes arrays on the host, see `normalize.encode_host`: nothing is compiled.

    Args:
      arrays: by their names, of samples after `samples.check`.
      normalizers: of some of them.
      physical: names of arrays that stay in physical units; none with `()`.

    Returns:
      NumPy arrays, in the dtype that JAX would give them.
    """
    found = {name: np.asarray(array) for name, array in arrays.items()}
    for name in (normalizers.keys() & found.keys()) - set(physical):
        found[name] = normalize.encode_host(normalizers[name], found[name])
    return found
