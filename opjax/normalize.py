"""Affine normalisation of fields: fit to training data, encode inputs, decode outputs.

A `Normalizer` is a pytree of two arrays, so it is saved with the checkpoint, passed to
jitted functions and batched like any other value. Nothing is normalised implicitly: the
program decodes a model's output exactly once, by an explicit call.

Units have no effect: for float64 data, an offset is subtracted before anything is
rounded to float32, and no threshold has the units of the data.
"""

from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks

# Values of a channel that spread over no more than so many units of rounding, of the
# largest of them, are constant.
_ROUNDING = 8
_LARGE_MEAN = 16  # deviations: float32 loses a digit and a half, and no more below


class Normalizer(NamedTuple):
    """Mean and standard deviation, broadcast over the leading axes of the values.

    Attributes:
      mean: shape `()` or `(c,)` per channel, `(n,)` or `(n, c)` pointwise.
      std: the same shape, with the guard against zero already added; zero where every
        value equals the mean: such values are encoded as zero, and decoded as the mean.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalizer = normalize.fit(np.array([[1.0, 3.0], [5.0, 7.0]]))
      >>> float(normalizer.mean), round(float(normalizer.std), 3)
      (4.0, 2.582)
    """

    mean: Float[Array | np.ndarray, " *shape"]
    std: Float[Array | np.ndarray, " *shape"]


def fit(
    values: Any, *, weights: Any = None, pointwise: bool = False, unbiased: bool = True
) -> Normalizer:
    r"""Computes the mean and standard deviation of a data set.

        mean = sum w x / W,
        std = (sum w (x - mean)^2 / (W - sum w^2 / W))^{1/2} + eps,

    with W = sum w, over samples and points (`eps = 1e-8`) or, pointwise, over samples
    only (`eps = 1e-5`), see `guard`. With weights of 0 and 1 the denominator is the
    number of kept entries less one. It is computed on the host in float64, for any
    dtype of the data. A channel that is constant up to rounding has `std = 1`.

    Args:
      values: data, shape `(samples, n)` for one channel or `(samples, n, c)`.
      weights: non-negative weights of the points, `(samples, n)` or `(n,)`; entries of
        zero weight are padding and ignored, even if they are NaN.
      pointwise: compute one mean and deviation per point (so the normaliser supports
        only this mesh) instead of one per channel.
      unbiased: use the denominator above, otherwise `W`.

    Returns:
      The normaliser, NumPy arrays in the dtype of `values`, or in float32 for half
      precision.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if shapes do not match, an entry is not finite, a weight is negative
        or not finite, or fewer than two entries remain to compute a deviation.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> samples = np.random.default_rng(0).normal(size=(8, 9, 2))  # of two channels
      >>> normalize.fit(samples).mean.shape
      (2,)
      >>> normalize.fit(samples, pointwise=True).mean.shape
      (9, 2)
    """
    _checks.floating(values=values)
    values = np.asarray(values)
    dtype = np.promote_types(values.dtype, np.float32)
    if values.ndim not in (2, 3):
        raise ValueError(
            f"values has shape {values.shape}, expected (samples, n) or (samples, "
            "n, c); flatten grids to one axis of points."
        )
    kept = np.ones(values.shape[:2]) if weights is None else _weights(weights, values)
    if values.ndim == 3:
        kept = kept[..., None]
    present = np.broadcast_to(kept > 0, values.shape)
    _finite(values, present)
    rounding = float(jnp.finfo(values.dtype).eps)
    values = np.where(present, values, 0).astype(np.float64)
    axes = 0 if pointwise else (0, 1)
    total = np.sum(kept, axis=axes)
    count = np.min(np.sum(kept > 0, axis=axes), initial=values.size)
    if count < 2:
        raise ValueError(
            f"A standard deviation needs two values, but only {count} of "
            f"{values.shape} remain for some mean; pass more samples or fewer zero "
            "weights" + (", or use pointwise=False." if pointwise else ".")
        )
    mean = np.sum(kept * values, axis=axes) / total
    square = np.sum(kept * (values - mean) ** 2, axis=axes)
    lost = np.sum(kept**2, axis=axes) / total if unbiased else 0
    std = np.sqrt(square / (total - lost))
    low = np.min(values, axis=(0, 1), where=present, initial=np.inf)
    high = np.max(values, axis=(0, 1), where=present, initial=-np.inf)
    constant = is_constant(low, high, rounding=rounding)
    spread = np.sqrt(np.mean(np.square(std), axis=0)) if pointwise else std
    std = np.where(constant, 1, std + guard(spread, 1e-5 if pointwise else 1e-8))
    return Normalizer(np.asarray(mean, dtype), np.asarray(std, dtype))


def guard(std: np.ndarray, eps: float) -> np.ndarray:
    """Offset added to deviations before data are divided by them.

    Published normalisers add `eps`, in the units of the data. This function does the
    same if the deviation is at least a thousandth, and reduces it otherwise: `eps
    min(1, 1000 std)`.

    Args:
      std: standard deviation of all values of a channel.
      eps: offset for data of usual size.

    Examples:
      >>> import numpy as np
      >>> from opjax.normalize import guard
      >>> guard(np.array([1.0]), 1e-8).tolist()
      [1e-08]
    """
    return eps * np.minimum(1, 1000 * std)


def is_constant(
    low: Any, high: Any, *, rounding: float, size: Any = None
) -> np.ndarray:
    """Whether the spread of values is within their rounding error.

        high - low <= 8 rounding size

    Args:
      low: minimum of every channel.
      high: maximum of each channel.
      rounding: the `eps` of the original dtype of the values.
      size: magnitude that determines rounding; by default the largest absolute value.

    Examples:
      >>> from opjax.normalize import is_constant
      >>> is_constant([0.0, 1.0], [1.0, 1.0], rounding=1e-7).tolist()
      [False, True]
    """
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if size is None:
        size = np.maximum(np.abs(low), np.abs(high))
    return high - low <= _ROUNDING * rounding * np.asarray(size)


def is_single(normalizer: Normalizer) -> bool:
    """Whether float32 represents the values of a normaliser accurately.

    It does not if the mean exceeds 16 standard deviations, because rounding would lose
    digits. A constant may be rounded. Deviations must lie between 1e-30 and 1e30.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalize.is_single(normalize.Normalizer(np.array(101325.0), np.array(1.0)))
      False
    """
    mean, std = (np.abs(np.asarray(part, np.float64)) for part in normalizer)
    held = (mean <= _LARGE_MEAN * std) & (std > 1e-30) & (std < 1e30)
    return bool(np.all(held | (std == 0)))


def encode_host(normalizer: Normalizer, values: np.ndarray) -> np.ndarray:
    """Applies `encode` to an array on the host with NumPy, without compilation.

    Values in float64 are rounded to JAX's dtype after the mean is subtracted; or
    before, with the same bits as `encode`, if that loses nothing, see `is_single`.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalizer = normalize.Normalizer(np.float32(4.0), np.float32(2.0))
      >>> normalize.encode_host(normalizer, np.array([2.0, 8.0])).tolist()
      [-1.0, 2.0]
    """
    dtype = jax.dtypes.canonicalize_dtype(values.dtype)
    early = is_single(normalizer) or jnp.finfo(dtype).bits >= 8 * values.dtype.itemsize
    inner = np.promote_types(dtype if early else values.dtype, np.float32)
    mean, std = (np.asarray(part).astype(inner) for part in normalizer)
    encoded = (values.astype(inner, copy=False) - mean) / np.where(std == 0, 1, std)
    return np.where(std == 0, 0, encoded).astype(dtype, copy=False)


def decode_host(normalizer: Normalizer, values: np.ndarray) -> np.ndarray:
    """Applies `decode` to an array on the host, in float64.

    Returns:
      Values in the dtype of `values` if it represents them accurately (see
      `is_single`), otherwise in float64.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalizer = normalize.Normalizer(np.float32(4.0), np.float32(2.0))
      >>> normalize.decode_host(normalizer, np.array([-1.0, 2.0])).tolist()
      [2.0, 8.0]
    """
    dtype = values.dtype if is_single(normalizer) else np.dtype(np.float64)
    # As rounded as in `decode`, whose product is not rounded where sums are fused.
    mean, std = (np.asarray(part, dtype).astype(np.float64) for part in normalizer)
    return (np.asarray(values, np.float64) * std + mean).astype(dtype)


def encode(
    normalizer: Normalizer, values: Float[ArrayLike, " *shape"]
) -> Float[Array, " *shape"]:
    """Maps values to zero mean and unit deviation, `(values - mean) / std`.

    For a NumPy array in float64, the mean is subtracted in float64, even if JAX only
    uses float32.

    Args:
      normalizer: normaliser from `fit`.
      values: one sample or a batch, with the normaliser's axes last.

    Returns:
      The normalised values, with the shape of `values` and the dtype that JAX uses for
      them.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the trailing axes do not match the normaliser.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalizer = normalize.Normalizer(np.float32(4.0), np.float32(2.0))
      >>> normalize.encode(normalizer, np.array([2.0, 8.0])).tolist()
      [-1.0, 2.0]
    """
    _check(normalizer, values)
    dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(values))
    if isinstance(values, np.ndarray | np.generic) and not _traced(normalizer):
        return jnp.asarray(encode_host(normalizer, np.asarray(values)), dtype)
    inner, mean, std = _broadcast(normalizer, values)
    safe = jnp.where(std == 0, 1, std)
    return jnp.where(std == 0, 0, (inner - mean) / safe).astype(dtype)


def decode(
    normalizer: Normalizer, values: Float[ArrayLike, " *shape"]
) -> Float[Array, " *shape"]:
    """Inverts `encode`, `values * std + mean`.

    Args:
      normalizer: normaliser from `fit`.
      values: normalised values, with the normaliser's axes last.

    Returns:
      The values in physical units, same shape and dtype as `values`.

    Raises:
      TypeError: if `values` is not floating point.
      ValueError: if the trailing axes do not match the normaliser.

    Examples:
      >>> import numpy as np
      >>> from opjax import normalize
      >>> normalizer = normalize.Normalizer(np.float32(4.0), np.float32(2.0))
      >>> normalize.decode(normalizer, np.array([-1.0, 2.0])).tolist()
      [2.0, 8.0]
    """
    _check(normalizer, values)
    inner, mean, std = _broadcast(normalizer, values)
    return (inner * std + mean).astype(jnp.result_type(values))


def _traced(normalizer: Normalizer) -> bool:
    return any(isinstance(part, jax.core.Tracer) for part in normalizer)


def _check(normalizer: Normalizer, values: ArrayLike) -> None:
    _checks.floating(values=values)
    shape, own = jnp.shape(values), jnp.shape(normalizer.mean)
    if shape[len(shape) - len(own) :] != own:
        raise ValueError(
            f"values has shape {shape}, but the normalizer was fitted to the "
            f"trailing axes {own}; use the same channels"
            + (" and points (or with pointwise=False)." if len(own) > 0 else ".")
        )


def _broadcast(normalizer: Normalizer, values: ArrayLike) -> tuple[Array, Array, Array]:
    """The values, and the mean and deviation of each, in float32 or better."""
    inner = _checks.at_least_single(jnp.asarray(values))
    mean, std = (
        jnp.broadcast_to(jnp.asarray(array, inner.dtype), inner.shape)
        for array in normalizer
    )
    return inner, mean, std


def _weights(weights: Any, values: np.ndarray) -> np.ndarray:
    weights = np.asarray(weights, np.float64)
    if weights.shape not in (values.shape[:2], values.shape[1:2]):
        raise ValueError(
            f"weights has shape {weights.shape}, expected {values.shape[:2]} or "
            f"{values.shape[1:2]}: one weight per point of values {values.shape}."
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
