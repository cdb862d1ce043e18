"""Affine normalisation of fields: fit on training data, encode inputs, decode outputs.

A `Normalizer` is two arrays in a pytree, so it is saved with the checkpoint, passed to
jitted functions and batched like any other value. Nothing is normalised implicitly: a
model's output is decoded exactly once, where the program says so.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks


class Normalizer(NamedTuple):
    """Mean and standard deviation, broadcast over the leading axes of the values.

    Attributes:
      mean: shape `()` or `(c,)` per channel, `(n,)` or `(n, c)` pointwise.
      std: the same shape, with the guard against zero already added.
    """

    mean: Float[Array, " *shape"]
    std: Float[Array, " *shape"]


def fit(
    values: Any, *, weights: Any = None, pointwise: bool = False, unbiased: bool = True
) -> Normalizer:
    r"""Measures the mean and standard deviation of a data set.

        mean = sum w x / W,
        std = (sum w (x - mean)^2 / (W - sum w^2 / W))^{1/2} + eps,

    with W = sum w, over samples and points (`eps = 1e-8`) or, pointwise, over samples
    only (`eps = 1e-5`). With weights of 0 and 1 the denominator is the number of kept
    entries less one. Runs on the host in float64, whatever the dtype of the data.

    Args:
      values: data, shape `(samples, n)` for one channel or `(samples, n, c)`.
      weights: non-negative weights of the points, `(samples, n)` or `(n,)`; entries of
        zero weight are padding, ignored even if they are NaN.
      pointwise: keep one mean and deviation for each point (which ties the normaliser
        to this mesh) instead of one for each channel.
      unbiased: the denominator above, or else `W`.

    Returns:
      The normaliser, in the dtype of `values`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if shapes do not match, an entry is not finite, a weight is negative
        or not finite, or fewer than two entries are left to measure a deviation with.
    """
    _checks.floating(values=values)
    dtype = jnp.asarray(values[:0]).dtype
    values = np.asarray(values)
    if values.ndim not in (2, 3):
        raise ValueError(
            f"values has shape {values.shape}, expected (samples, n) or (samples, n, "
            "c); reshape grids to one axis of points."
        )
    kept = np.ones(values.shape[:2]) if weights is None else _weights(weights, values)
    if values.ndim == 3:
        kept = kept[..., None]
    present = np.broadcast_to(kept > 0, values.shape)
    _finite(values, present)
    values = np.where(present, values, 0).astype(np.float64)
    axes = 0 if pointwise else (0, 1)
    total = np.sum(kept, axis=axes)
    count = np.min(np.sum(kept > 0, axis=axes), initial=values.size)
    if count < 2:
        raise ValueError(
            f"A standard deviation needs two values, but only {count} of {values.shape}"
            " are left for some mean; give more samples or fewer zero weights"
            + (", or use pointwise=False." if pointwise else ".")
        )
    mean = np.sum(kept * values, axis=axes) / total
    square = np.sum(kept * (values - mean) ** 2, axis=axes)
    lost = np.sum(kept**2, axis=axes) / total if unbiased else 0
    variance = square / (total - lost)
    std = np.sqrt(variance) + (1e-5 if pointwise else 1e-8)
    return Normalizer(jnp.asarray(mean, dtype), jnp.asarray(std, dtype))


def encode(
    normalizer: Normalizer, values: Float[ArrayLike, " *shape"]
) -> Float[Array, " *shape"]:
    """Maps values to zero mean and unit deviation, `(values - mean) / std`.

    Args:
      normalizer: as returned by `fit`.
      values: one sample or a batch, with the normaliser's axes last.

    Returns:
      The normalised values, same shape and dtype as `values`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the trailing axes do not match the normaliser.
    """
    values, mean, std = _broadcast(normalizer, values)
    return (values - mean) / std


def decode(
    normalizer: Normalizer, values: Float[ArrayLike, " *shape"]
) -> Float[Array, " *shape"]:
    """Undoes `encode`, `values * std + mean`.

    Args:
      normalizer: as returned by `fit`.
      values: normalised values, with the normaliser's axes last.

    Returns:
      The values in physical units, same shape and dtype as `values`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the trailing axes do not match the normaliser.
    """
    values, mean, std = _broadcast(normalizer, values)
    return values * std + mean


def _broadcast(normalizer: Normalizer, values: ArrayLike) -> tuple[Array, Array, Array]:
    _checks.floating(values=values)
    shape, own = jnp.shape(values), jnp.shape(normalizer.mean)
    if shape[len(shape) - len(own) :] != own:
        raise ValueError(
            f"values has shape {shape}, but the normalizer was fitted for trailing "
            f"axes {own}; fit it on the same channels"
            + (" and points (or with pointwise=False)." if len(own) > 0 else ".")
        )
    dtype = jnp.result_type(values)
    mean, std = (
        jnp.broadcast_to(jnp.asarray(array, dtype), shape)
        for array in (normalizer.mean, normalizer.std)
    )
    return jnp.asarray(values), mean, std


def _weights(weights: Any, values: np.ndarray) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    if weights.shape not in (values.shape[:2], values.shape[1:2]):
        raise ValueError(
            f"weights has shape {weights.shape}, expected {values.shape[:2]} or "
            f"{values.shape[1:2]}: one weight for each point of values {values.shape}."
        )
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError("weights must be non-negative and finite; use 0 for padding.")
    return np.broadcast_to(weights, values.shape[:2])


def _finite(values: np.ndarray, present: np.ndarray) -> None:
    bad = ~np.isfinite(values) & present
    if bad.any():
        samples = np.unique(np.nonzero(bad)[0])
        listed = ", ".join(map(str, samples[:5])) + (", ..." * (samples.size > 5))
        raise ValueError(
            f"values has {int(bad.sum())} non-finite entries, in sample(s) {listed} of "
            f"{values.shape[0]}; remove those samples, or give padded points zero "
            "weight."
        )
