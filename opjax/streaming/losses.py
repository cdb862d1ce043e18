"""Losses of a whole mesh that are functions of sums over its points."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from opjax._trees import PyTree
from opjax.quadrature import active


@dataclasses.dataclass(frozen=True)
class SumLoss:
    """A loss `value(sum_i s_i)`, with sums over all points.

    Attributes:
      sums: `sums(values, target, weights)`, from arrays `(m, q)`, `(m, r)` and `(m,)`
        of some of the points to a pytree of their sums. Points of zero weight must not
        count, because the last chunk is padded with them. Weights are ones if the mesh
        has none.
      value: maps the sums of all points to the loss, a scalar; it also takes the
        parameters of `value_and_grads`, if there are any.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import streaming
      >>> def sums(values, target, weights):
      ...     return jnp.sum(weights[:, None] * (values - target) ** 2)
      >>> loss = streaming.SumLoss(sums, jnp.sqrt)
      >>> float(loss.value(loss.sums(jnp.ones((4, 1)), jnp.zeros((4, 1)), jnp.ones(4))))
      2.0
    """

    sums: Callable[[jax.Array, jax.Array, jax.Array], Any]
    value: Callable[..., jax.Array]


def _squares(values: jax.Array, target: jax.Array, weights: jax.Array) -> Any:
    """Weighted squares of errors and targets, and the weight of all their entries."""
    keep = active(weights)[:, None]
    column = jnp.where(keep, weights[:, None], 0)
    target = jnp.where(keep, target, 0)
    error = jnp.where(keep, values, 0) - target
    weight = target.shape[1] * jnp.sum(column)
    return jnp.sum(column * error**2), jnp.sum(column * target**2), weight


def _relative(sums: PyTree) -> jax.Array:
    error, target, _ = sums
    some = error > 0  # the gradient at no error is zero
    return jnp.where(some, jnp.sqrt(jnp.where(some, error, 1)), 0) / jnp.sqrt(target)


def _mean(sums: PyTree) -> jax.Array:
    error, _, weight = sums
    return error / weight


# (sum_i w_i |v_i - t_i|^2 / sum_i w_i |t_i|^2)^{1/2}, as `metrics.relative_l2`.
RELATIVE_L2 = SumLoss(_squares, _relative)
# sum_i w_i |v_i - t_i|^2 / (q sum_i w_i).
MEAN_SQUARED_ERROR = SumLoss(_squares, _mean)
