"""Mahalanobis distances of cases from the mean of reference cases."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

from opjax import _checks, linalg

_FLOOR = 0.01


def matrix(features: ArrayLike, ridge: ArrayLike) -> tuple[Array, Array]:
    """Returns features and ridge as arrays, in single precision or higher.

    Raises:
      TypeError: if the features are not floating point.
      ValueError: if they do not have two axes, or the ridge is not positive.
    """
    _checks.floating(features=features)
    _checks.rank(2, features=features)
    _checks.single_numbers(ridge=ridge)
    _checks.positive(ridge=ridge)
    columns = linalg.at_least_single(jnp.asarray(features))
    return columns, jnp.asarray(ridge, columns.dtype)


def variance(features: Array) -> Array:
    """Variances of the columns, with a floor, `(1, f)`."""
    return jnp.var(features, axis=0, keepdims=True) + _FLOOR**2


@partial(jax.jit, static_argnames="count")
def distances(
    features: Array,
    ridge: Array,
    *,
    count: int | None = None,
    excess: Array | float = 0.0,
) -> Array:
    """Distances of all rows, with mean and covariance of the first `count` rows.

    Args:
      features: one row per case.
      ridge: see `shrunk_distances`.
      count: number of cases from which mean and covariance are computed; all if None.
      excess: additional variance of the features of each case, one per row.
    """
    white = whitened(features, ridge, count=count, excess=excess)
    # An exact zero has no gradient, which cases that all agree would have.
    squares = jnp.sum(white * white, axis=1)
    zero = squares == 0
    return jnp.where(zero, 0, jnp.sqrt(jnp.where(zero, 1, squares)))


def whitened(
    features: Array,
    ridge: Array,
    *,
    count: int | None = None,
    excess: Array | float = 0.0,
) -> Array:
    """Rows whose lengths and differences are distances; arguments as of `distances`."""
    own = features[:count]
    mean = jnp.mean(own, axis=0, keepdims=True)
    more = jnp.asarray(excess, features.dtype).reshape(-1, 1)
    z = (features - mean) / jnp.sqrt(variance(own) + more)
    highest = lax.Precision.HIGHEST
    covariance = jnp.matmul(z[:count].T, z[:count], precision=highest) / len(own)
    system = covariance + ridge * jnp.eye(z.shape[1], dtype=z.dtype)
    return linalg.whiten(z, system, repair=False)
