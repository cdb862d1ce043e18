"""Exponential moving average of the weights, as part of the optimizer.

It is part of the optimizer's state, so a resumed run has the same average, and a
skipped update leaves it unchanged.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.tree_util import Partial

from opjax import _checks
from opjax._trees import PyTree


class AverageState(NamedTuple):
    """State of `averaged`.

    Attributes:
      inner: state of the optimizer.
      total: weighted sum of the parameters of all steps.
      weight: sum of the weights, `1 - decay^t` after `t` steps.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.averaged(training.adamw(1e-3, weight_decay=0.0), 0.9)
      >>> state = optimizer.init({"w": jnp.ones(2)})
      >>> float(state.weight)  # no step so far
      0.0
    """

    inner: Any
    total: Any
    weight: Array


def averaged(
    optimizer: optax.GradientTransformation, decay: float
) -> optax.GradientTransformation:
    r"""Adds an average of the parameters to an optimizer; updates do not change.

        a_t = (1 - decay) sum_{s=1}^t decay^{t-s} p_s / (1 - decay^t),

    where `p_s` are the parameters after step `s`. The initial parameters are not
    included, and the weights sum to one from the first step on. `average_of` returns
    the average.

    Args:
      optimizer: any gradient transformation whose updates are added to the parameters.
      decay: decay in [0, 1); the average is over about `1 / (1 - decay)` steps.

    Returns:
      The gradient transformation; its state is an `AverageState`.

    Raises:
      ValueError: if `decay` is not in [0, 1); from `update`, if parameters are missing.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> optimizer = training.averaged(training.adamw(0.1, weight_decay=0.0), 0.9)
      >>> params = {"w": jnp.ones(2)}
      >>> updates, state = optimizer.update(params, optimizer.init(params), params)
      >>> [round(float(w), 2) for w in training.average_of(state, params)["w"]]
      [0.9, 0.9]

    References:
      Polyak and Juditsky, "Acceleration of stochastic approximation by averaging",
      1992.
    """
    _checks.non_negative(decay=decay)
    if not decay < 1:
        raise ValueError(f"{decay=} must be below 1.")

    return optax.GradientTransformation(
        Partial(_init, optimizer.init),
        Partial(_update, optimizer.update, 1 - decay),  # pyright: ignore[reportArgumentType]
    )


def _init(inner: PyTree, params: PyTree) -> AverageState:
    total = jax.tree.map(jnp.zeros_like, params)
    return AverageState(inner(params), total, jnp.zeros((), float))


def _update(
    inner: PyTree, rest: PyTree, updates: PyTree, state: PyTree, params: PyTree = None
) -> tuple[Any, AverageState]:
    """An update; `rest` is one minus the decay."""
    if params is None:
        raise ValueError(
            "The moving average needs the parameters: pass params to update."
        )
    updates, kept = inner(updates, state.inner, params)
    new = jax.tree.map(jnp.add, params, updates)
    total, weight = jax.tree.map(
        lambda old, x: old + rest * (x - old),
        (state.total, state.weight),
        (new, jnp.ones_like(state.weight)),
    )
    return updates, AverageState(kept, total, weight)


def average_of(optimizer_state: PyTree, params: PyTree) -> Any:
    """Returns the average in an optimizer state, or the parameters if there is none.

    Before the first step, it also returns the parameters.

    Args:
      optimizer_state: state of `averaged`, of a chain that contains it, or of another
        optimizer; also of several replicas along axis 0.
      params: the parameters after the last step.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> params = {"w": jnp.ones(2)}
      >>> optimizer = training.averaged(training.adamw(0.1, weight_decay=0.0), 0.9)
      >>> training.average_of(optimizer.init(params), params)["w"].tolist()
      [1.0, 1.0]
    """

    def is_average(node: PyTree) -> bool:
        return isinstance(node, AverageState)

    nodes = jax.tree.leaves(optimizer_state, is_leaf=is_average)
    found = next(filter(is_average, nodes), None)
    if found is None:
        return params

    def mean(total: Array, p: Array) -> Array:
        axes = (..., *(None,) * (total.ndim - found.weight.ndim))
        weight = found.weight[axes].astype(total.dtype)
        return jnp.where(weight > 0, total / jnp.where(weight > 0, weight, 1), p)

    return jax.tree.map(mean, found.total, params)
