"""Checks of fields and their weights, shared by scores and bands."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from opjax import _checks
from opjax.quadrature import active


def fields(**arrays: Any) -> list[Array]:
    """Returns arrays of one shape, `(n,)` or `(n, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes differ or have other numbers of axes.
    """
    _checks.floating(**arrays)
    fields = {name: jnp.asarray(array) for name, array in arrays.items()}
    (first, one), *others = fields.items()
    if one.ndim not in (1, 2):
        raise ValueError(
            f"{first} has shape {one.shape}, expected (n,) or (n, c) for one case; "
            "use `jax.vmap` for several."
        )
    for name, other in others:
        if other.shape != one.shape:
            raise ValueError(
                f"{first} has shape {one.shape}, but {name} has shape "
                f"{other.shape}; they must be equal."
            )
    return list(fields.values())


def weights_of(field: Array, quadrature_weights: ArrayLike | None) -> Array:
    """Returns one weight per value of a field, ones by default.

    Raises:
      TypeError: if the weights are not floating point.
      ValueError: if there is not one weight per point.
    """
    if quadrature_weights is None:
        return jnp.ones_like(field)
    _checks.floating(quadrature_weights=quadrature_weights)
    weights = jnp.asarray(quadrature_weights, field.dtype)
    if weights.shape != field.shape[:1]:
        raise ValueError(
            f"quadrature_weights has shape {weights.shape}, expected "
            f"{field.shape[:1]}: one weight per point."
        )
    weights = weights.reshape(weights.shape + (1,) * (field.ndim - 1))
    return jnp.broadcast_to(weights, field.shape)


def shares(field: Array, quadrature_weights: ArrayLike | None) -> tuple[Array, Array]:
    """Whether each point counts, and its share of the sum of the weights, `(n,)`."""
    weights = weights_of(field, quadrature_weights)[:, 0]
    keep = weights > 0
    share = jnp.where(keep, weights, 0)
    return keep, share / jnp.sum(share)


def mean(values: Array, weights: Array) -> Array:
    """Weighted mean over the values with positive weight; others are ignored."""
    keep = active(weights)
    kept = jnp.where(keep, weights, 0)
    return jnp.sum(kept * jnp.where(keep, values, 0)) / jnp.sum(kept)
