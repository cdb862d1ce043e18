"""Normalisers of the arrays of samples, fitted to those for training."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import normalize
from opjax.normalize import Normalizer
from opjax.samples import summaries
from opjax.samples.base import SCALARS, Sample
from opjax.samples.summaries import Summarized

_PHYSICAL = ("target", "target_scalars")  # what stays in physical units


def fit_normalizers(
    train: Sequence[Sample] | Summarized,
    *,
    points: bool,
    features: bool,
    target: bool,
    pointwise: bool = False,
    scalars: bool = True,
) -> dict[str, Normalizer]:
    """Fits a normaliser to every wanted array, over the points of all samples.

    A channel without variation keeps its scale: it would be divided by rounding errors.

    Args:
      train: training samples.
      points: map the box of the meshes to [-1, 1] along its longest side.
      features: normalise every channel of the features, where there are any.
      target: likewise, of the target.
      scalars: likewise, of the scalars and target scalars, over the samples.
      pointwise: normalise every point by itself, on grids that all samples share.

    Returns:
      Normalisers by the names of the arrays.
    """
    found, known = {}, summaries.of(train)
    fitting = {"features": features, "target": target}
    for name, wanted in (fitting | dict.fromkeys(SCALARS, scalars)).items():
        if not wanted or name not in known[0].ranges:
            continue
        if pointwise and name not in SCALARS and not isinstance(train, Summarized):
            values = np.stack([getattr(sample, name) for sample in train])
            fitted = normalize.fit(values, pointwise=True, unbiased=False)
            largest = np.abs(values).max(axis=0)
        else:
            low, high = summaries.limits(known, name)
            mean, std = summaries.mean_and_std(known, name)
            largest, dtype = np.maximum(np.abs(low), np.abs(high)), low.dtype
            fitted = Normalizer(
                jnp.asarray(mean, dtype), jnp.asarray(std + 1e-8, dtype)
            )
        size = np.abs(np.asarray(fitted.mean)) + largest
        constant = np.asarray(fitted.std) <= 1e-6 * size + 2e-8
        found[name] = fitted._replace(std=jnp.where(constant, 1, fitted.std))
    if points:
        low, high = summaries.limits(known, "mesh_points")
        half = np.full_like(low, np.max(high - low) / 2 or 1)
        found["mesh_points"] = Normalizer(
            jnp.asarray((low + high) / 2), jnp.asarray(half)
        )
    return found


def encode(
    arrays: Mapping[str, Any], normalizers: Mapping[str, Normalizer]
) -> dict[str, Any]:
    """Encodes the arrays of a sample, or of many; targets stay in physical units.

    Args:
      arrays: by their names, as from `samples.stack`.
      normalizers: of some of them.
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
    """Encodes as `encode` does, to the same bits, without compiling anything.

    Args:
      arrays: by their names, of samples after `samples.check`.
      normalizers: of some of them.
      target: encode the target, too, whose constant channels become zero.

    Returns:
      NumPy arrays, in the dtype that JAX would give them.
    """
    found = {name: np.asarray(array) for name, array in arrays.items()}
    for name, normalizer in normalizers.items():
        if name not in found:
            continue
        if name == "target" and target:
            found[name] = encode_target(found[name], normalizer)
        if name in _PHYSICAL:
            continue
        values = found[name]
        dtype = jax.dtypes.canonicalize_dtype(values.dtype)
        mean, std = (np.asarray(part).astype(dtype) for part in normalizer)
        found[name] = (values.astype(dtype, copy=False) - mean) / std
    return found


def encode_target(values: np.ndarray, normalizer: Normalizer) -> np.ndarray:
    """Encodes a target in double precision, for a loss in normalised units, float32.

    A channel without spread, `std = 0`, is constant and becomes zero. Several frames
    side by side, `(..., frames c)`, have the normaliser `(c,)` of one.
    """
    frames = values.shape[-1] // len(normalizer.mean)
    mean, std = (np.tile(np.asarray(part, np.float64), frames) for part in normalizer)
    shifted = (np.asarray(values, np.float64) - mean) * (std > 0)
    return (shifted / np.where(std > 0, std, 1)).astype(np.float32)


def varies(train: Sequence[Sample] | Summarized, name: str) -> np.ndarray:
    """Whether the channels of an array vary by more than rounding, `(c,)` booleans."""
    known = summaries.of(train)
    low, high = summaries.limits(known, name)
    mean, std = summaries.mean_and_std(known, name)
    largest = np.maximum(np.abs(low), np.abs(high))
    return std > 1e-6 * (np.abs(mean) + largest)
