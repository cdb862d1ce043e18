"""Normalisation: the formula, and the layer over the channels of every point."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import _checks


def normalized(
    x: jax.Array,
    *,
    axis: int,
    epsilon: float,
    weights: jax.Array | None = None,
) -> jax.Array:
    r"""Returns `(x - mean) / sqrt(var + epsilon)` along an axis.

    The variance is the mean square of the centred values, because the difference of two
    mean squares would cancel in float32.

    Args:
      x: values of any shape.
      axis: axis of the means.
      epsilon: offset of the variance, in squared units of the values.
      weights: weights of the means, one per entry along the axis; equal weights if
        None. Zero masks an entry. If all weights are zero, the means are zero.

    Returns:
      The normalised values, with the shape of `x`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.normalized(jnp.array([1.0, 3.0]), axis=0, epsilon=0.0).tolist()
      [-1.0, 1.0]
    """
    if weights is None:

        def mean(values: jax.Array) -> jax.Array:
            return jnp.mean(values, axis=axis, keepdims=True)

    else:
        shares = weights.astype(x.dtype)
        total = jnp.sum(shares)
        shares = shares / jnp.where(total > 0, total, jnp.ones_like(total))
        ones = [1] * x.ndim
        ones[axis] = -1
        shares = shares.reshape(ones)

        def mean(values: jax.Array) -> jax.Array:
            return jnp.sum(shares * values, axis=axis, keepdims=True)

    centred = x - mean(x)
    return centred * lax.rsqrt(mean(centred**2) + epsilon)


class LayerNorm(nnx.Module):
    r"""Normalises features per point, `s (x - mean) / sqrt(var + epsilon) + b`.

    We do not use `nnx.LayerNorm`, because it promotes dtypes implicitly and computes
    the variance as a difference of squares, which cancels in float32.

    Args:
      features: number of channels.
      epsilon: offset of the variance, in squared units of the features.

    Raises:
      ValueError: if the epsilon is not positive.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.LayerNorm(2)(jnp.array([[1.0, 3.0]])).round(3).tolist()
      [[-1.0, 1.0]]
    """

    def __init__(self, features: int, *, epsilon: float = 1e-5):
        _checks.positive(epsilon=epsilon)
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))

    def __call__(self, x: jax.Array, *, axis: int = 1) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`; or `(c, n)`, with channels on axis 0."""
        y = normalized(x, axis=axis, epsilon=self.epsilon)
        scale, bias = (
            jnp.expand_dims(p[...], 1 - axis) for p in (self.scale, self.bias)
        )
        return y * scale + bias


class RMSNorm(nnx.Module):
    r"""Scales the features of a point to mean square one, `s x / sqrt(mean(x^2) + e)`.

    Args:
      features: number of channels.
      epsilon: offset `e` of the mean square; by default the machine epsilon of the
        features' dtype.

    Raises:
      ValueError: if the epsilon is not positive.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.RMSNorm(2)(jnp.array([[3.0, 3.0]])).round(3).tolist()
      [[1.0, 1.0]]
    """

    def __init__(self, features: int, *, epsilon: float | None = None):
        if epsilon is not None:
            _checks.positive(epsilon=epsilon)
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))

    def __call__(self, x: jax.Array, *, axis: int = 1) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`; or `(c, n)`, with channels on axis 0."""
        epsilon = jnp.finfo(x.dtype).eps if self.epsilon is None else self.epsilon
        squares = jnp.mean(x**2, axis=axis, keepdims=True)
        shift = jnp.asarray(epsilon, x.dtype)
        scale = jnp.expand_dims(self.scale[...], 1 - axis)
        return x * lax.rsqrt(squares + shift) * scale
