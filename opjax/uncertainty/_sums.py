"""Sums in doubled precision, for many terms in single precision."""

import math
from fractions import Fraction
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax


class Double(NamedTuple):
    """Numbers `high + low`, where `low` is the rounding error of `high`.

    References:
      Dekker, "A floating-point technique for extending the available precision",
      Numerische Mathematik 18, 1971.
    """

    high: Array
    low: Array


def add(a: Double, b: Double) -> Double:
    """Adds two numbers."""
    high = a.high + b.high
    second = high - a.high
    low = (a.high - (high - second)) + (b.high - second)
    return _normal(high, low + (a.low + b.low))


def divide(a: Array, b: Double) -> Double:
    """Divides a single-precision number by a double-word number."""
    ratio = a / b.high
    product = ratio * b.high
    (a_high, a_low), (b_high, b_low) = _halves(ratio), _halves(b.high)
    rounded = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + (
        a_low * b_low
    )
    return _normal(ratio, ((a - product) - rounded - ratio * b.low) / b.high)


def running(a: Double) -> Double:
    """Cumulative sums along axis 0."""
    return Double(*lax.associative_scan(add, a))


def total(a: Double) -> Double:
    """Sums along axis 0."""
    while (rows := len(a.high)) > 1:
        half = rows // 2
        first, second, rest = (
            Double(a.high[part], a.low[part])
            for part in (slice(half), slice(half, 2 * half), slice(2 * half, rows))
        )
        a = Double(*map(_joined, add(first, second), rest))
    return Double(a.high[0], a.low[0])


def _joined(a: Array, b: Array) -> Array:
    return jnp.concatenate([a, b])


def exact(value: Fraction, dtype: np.dtype) -> Double:
    """A fraction as a double-word number."""
    high = float(np.asarray(float(value), dtype))
    low = float(value - Fraction(high))
    return Double(jnp.asarray(high, dtype), jnp.asarray(low, dtype))


def _normal(high: Array, low: Array) -> Double:
    total = high + low
    return Double(total, low - (total - high))


def _halves(a: Array) -> tuple[Array, Array]:
    """A number as the sum of two with half of its digits."""
    digits = math.ceil((jnp.finfo(a.dtype).nmant + 1) / 2)
    scaled = (2.0**digits + 1) * a
    high = scaled - (scaled - a)
    return high, a - high
