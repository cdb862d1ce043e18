"""Argument checks of attention functions, and handling of quadrature weights."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from opjax import _checks
from opjax.quadrature import active, select


def check_weights(**arrays: jax.Array) -> None:
    """Checks the argument `quadrature_weights` against the points."""
    weights = {name: a for name, a in arrays.items() if name.endswith("_weights")}
    _checks.floating(**weights)
    _checks.rank(1, **weights)
    _checks.same_points(**arrays)
    _checks.non_negative(**weights)


def features(**arrays: ArrayLike) -> list[jax.Array]:
    """Converts feature arrays, which must have the same number of channels."""
    converted = _checks.arrays(2, **arrays)
    _checks.same_channels(**dict(zip(arrays, converted, strict=True)))
    return converted


def attended(
    query: ArrayLike, key: ArrayLike, value: ArrayLike, key_weights: ArrayLike | None
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Converts and checks the arguments; zeroes keys and values of masked points."""
    query, key = features(query=query, key=key)
    (value,) = _checks.arrays(2, value=value)
    _checks.same_points(key=key, value=value)
    if key_weights is None:
        return query, key, value, None
    weights = jnp.asarray(key_weights)
    check_weights(key_weights=weights, key=key)
    return query, select(key, weights), select(value, weights), weights


def integrand(array: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Multiplies an array at points by weights."""
    return array if weights is None else weights[:, None].astype(array.dtype) * array


def log_weights(weights: jax.Array | None, dtype: jax.typing.DTypeLike) -> jax.Array:
    """Returns the logarithms of weights, which are added to scores before a softmax.

    Minus infinity masks a point. If all points are masked, none is minus infinity: the
    softmax then averages their zeros instead of returning NaN.
    """
    if weights is None:
        return jnp.zeros((1, 1), dtype)
    masked = ~active(weights)
    logarithm = jnp.log(jnp.where(masked, 1, weights)).astype(dtype)
    dropped = masked & ~jnp.all(masked)
    return jnp.where(dropped, -jnp.inf, logarithm)[None, :]
