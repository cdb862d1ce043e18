"""Normalisers of the arrays of samples, fitted to the training samples."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from opjax import normalize
from opjax.normalize import Normalizer
from opjax.samples import summaries
from opjax.samples.base import SCALARS, Sample
from opjax.samples.summaries import Summarized, Summary

_PHYSICAL = ("target", "target_scalars")  # what stays in physical units

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
    published: bool = False,
) -> dict[str, Normalizer]:
    """Fits a normaliser to every requested array, over the points of all samples.

    Everything is computed in float64. A constant channel, see `varies`, keeps its
    scale, because it would be divided by rounding errors.

    Args:
      train: training samples.
      points: map the bounding box of the meshes to [-1, 1] along its longest side.
      features: normalise every channel of the features, if there are any.
      target: normalise every channel of the target.
      scalars: normalise scalars and target scalars, over the samples.
      pointwise: normalise every point separately, on a grid that all samples share.
      names: names of the channels, by array; each channel without a name is a separate
        field.
      published: add 1e-8 to every standard deviation, as in published programs. This
        distorts data whose values are of that size.

    Returns:
      Normalisers by array name, as NumPy arrays in float64.

    Raises:
      ValueError: if a channel varies only by little more than the rounding of its
        dtype. The message names it.
    """
    each = summaries.of(train)
    normalized = {"features": features, "target": target} | dict.fromkeys(
        SCALARS, scalars
    )
    normalizers: dict[str, Normalizer] = {}
    for name in (key for key, is_wanted in normalized.items() if is_wanted):
        if name not in each[0].ranges:
            continue
        varying = varies(train, name, (names or {}).get(name))
        if pointwise and name not in SCALARS and not isinstance(train, Summarized):
            values = np.stack([getattr(sample, name) for sample in train])
            fitted = normalize.fit(values, pointwise=True, unbiased=False)
            mean, std = (np.asarray(part, np.float64) for part in fitted)
        else:
            mean, std = summaries.mean_and_std(each, name)
            std = std + 1e-8 if published else std
        normalizers[name] = Normalizer(mean, np.where(varying, std, 1))
    if points:
        normalizers["mesh_points"] = _of_box(each)
    return normalizers


def varies(
    train: Sequence[Sample] | Summarized,
    name: str,
    channels: Sequence[str] | None = None,
) -> np.ndarray:
    """Whether the channels of an array vary by more than rounding, `(c,)` booleans.

    Rounding is that of the original dtype of the values, relative to the size of the
    field, which consists of the channels with the same name: `U_z = 1e-17` beside `U_x
    = 1` is constant.

    Args:
      train: training samples.
      name: name of the array.
      channels: names of its channels; each channel without a name is a separate field.

    Raises:
      ValueError: if a channel varies by so little that rounding dominates.
    """
    each = summaries.of(train)
    low, high = (np.asarray(end, np.float64) for end in summaries.limits(each, name))
    rounding = summaries.rounding(each, name)
    size = np.maximum(np.abs(low), np.abs(high))
    fields = np.asarray(channels or range(len(size)))
    of_field = np.array([size[fields == field].max() for field in fields])
    varying = ~normalize.is_constant(low, high, rounding=rounding, size=of_field)
    _, std = summaries.mean_and_std(each, name)
    for channel in np.flatnonzero(varying & (std <= _LOST * rounding * size)):
        label = f" ({fields[channel]})" if channels else ""
        raise ValueError(
            f"Channel {channel} of the {name}{label} varies, from {low[channel]:.9g} "
            f"to {high[channel]:.9g}, but its data type rounds such numbers by up to "
            f"{rounding * size[channel]:.1g}. Save it in float64, or subtract its "
            "mean before saving; if it is constant, omit it."
        )
    return varying


_LOST = 8  # units of rounding: a smaller deviation cannot be learned


def _of_box(known: Sequence[Summary]) -> Normalizer:
    """Maps the box of all meshes to [-1, 1] along its longest side.

    Raises:
      ValueError: if coordinates are rounded to a large part of the box.
    """
    low, high = summaries.limits(known, "mesh_points")
    width, rounding = (
        float(np.max(high - low)),
        summaries.rounding(known, "mesh_points"),
    )
    size = max(float(np.abs(low).max()), float(np.abs(high).max()))
    if 0 < width < _FEWEST * rounding * size:
        raise ValueError(
            f"The coordinates lie between {low} and {high}, where their data type "
            f"rounds by {rounding * size:.1g}, a large fraction of the width "
            f"{width:.3g} of the meshes. Save them in float64, or subtract their "
            "offset before saving."
        )
    half = np.full_like(low, width / 2 or 1)
    return Normalizer(np.asarray((low + high) / 2, np.float64), half.astype(np.float64))


_FEWEST = 64  # places that coordinates can be told apart at


def encode(
    arrays: Mapping[str, jax.Array], normalizers: Mapping[str, Normalizer]
) -> dict[str, jax.Array]:
    """Encodes the arrays of one or many samples; targets stay in physical units.

    It computes in JAX's precision, for traced arrays; for arrays on the host, see
    `encode_stored`.

    Args:
      arrays: arrays by name, as from `samples.stack`.
      normalizers: normalisers of some of them.
    """
    return {
        name: normalize.encode(normalizers[name], array)
        if name in normalizers and name not in _PHYSICAL
        else array
        for name, array in arrays.items()
    }


def encode_stored(
    arrays: Mapping[str, np.ndarray],
    normalizers: Mapping[str, Normalizer],
    *,
    target: bool = False,
) -> dict[str, np.ndarray]:
    """Encodes arrays on the host, without compilation; see `normalize.encode_host`.

    Args:
      arrays: arrays by name, of samples after `samples.check`.
      normalizers: normalisers of some of them.
      target: also encode targets; constant channels become zero.

    Returns:
      NumPy arrays, in the dtype that JAX would use.
    """
    encoded = {name: np.asarray(array) for name, array in arrays.items()}
    for name in normalizers.keys() & encoded.keys():
        if name not in _PHYSICAL:
            encoded[name] = normalize.encode_host(normalizers[name], encoded[name])
        elif target:
            encoded[name] = encode_target(encoded[name], normalizers[name])
    return encoded


def encode_target(values: np.ndarray, normalizer: Normalizer) -> np.ndarray:
    """Encodes a target in double precision, for a loss in normalised units, float32.

    A channel without spread, `std = 0`, is constant and becomes zero. Several frames
    side by side, `(..., frames c)`, use the normaliser `(c,)` of one frame.
    """
    frames = values.shape[-1] // len(normalizer.mean)
    mean, std = (np.tile(np.asarray(part, np.float64), frames) for part in normalizer)
    shifted = (np.asarray(values, np.float64) - mean) * (std > 0)
    return (shifted / np.where(std > 0, std, 1)).astype(np.float32)
