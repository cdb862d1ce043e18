r"""Few-shot regression of sine waves; each task is one wave.

    f(x) = amplitude sin(x - phase),    x in [-6, 6],

with amplitude and phase uniform in [0.1, 5] and [0, pi]. A model receives the values at
some points of a task, the context, and predicts the values at other points, the
queries.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike

from opjax import _checks
from opjax.problems.random_fields import available_dtype

_DOMAIN = (-6.0, 6.0)
_AMPLITUDE = (0.1, 5.0)
_PHASE = (0.0, math.pi)


class WaveTasks(NamedTuple):
    """A batch of tasks.

    Attributes:
      context_points: points with known values, shape `(num_tasks, num_context, 1)`.
      context_values: values of the wave there, with the same shape.
      query_points: points of the predictions, shape `(num_tasks, num_query, 1)`.
      query_values: values of the wave there, with the same shape.
      amplitude: amplitude, shape `(num_tasks,)`.
      phase: phase, shape `(num_tasks,)`, in radians.

    Examples:
      >>> import jax
      >>> from opjax.problems import sinusoid
      >>> tasks = sinusoid.sample(
      ...     jax.random.key(0), num_tasks=2, num_context=5, num_query=7
      ... )
      >>> tasks.context_points.shape, tasks.query_values.shape, tasks.phase.shape
      ((2, 5, 1), (2, 7, 1), (2,))
    """

    context_points: jax.Array
    context_values: jax.Array
    query_points: jax.Array
    query_values: jax.Array
    amplitude: jax.Array
    phase: jax.Array


@partial(jax.jit, static_argnames=("num_tasks", "num_context", "num_query", "dtype"))
def sample(
    key: jax.Array,
    *,
    num_tasks: int,
    num_context: int,
    num_query: int,
    dtype: DTypeLike | None = None,
) -> WaveTasks:
    """Draws tasks, with all points independent and uniform in [-6, 6].

    The wave and the query points of a task do not depend on `num_context`.

    Args:
      key: PRNG key.
      num_tasks: number of tasks in the batch.
      num_context: number of context points of each task.
      num_query: number of query points of each task.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The tasks.

    Raises:
      ValueError: if a number is not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import sinusoid
      >>> numbers = {"num_tasks": 2, "num_context": 5, "num_query": 7}
      >>> tasks = sinusoid.sample(jax.random.key(0), **numbers)
      >>> tasks.query_points.shape, bool(abs(tasks.query_points).max() <= 6)
      ((2, 7, 1), True)

    References:
      Xiao et al., "Functional Attention", ICML 2026 (arXiv:2605.31559), App. C.1.
      Finn et al., "Model-Agnostic Meta-Learning", ICML 2017 (arXiv:1703.03400).
    """
    _checks.positive(num_tasks=num_tasks, num_context=num_context, num_query=num_query)
    dtype = available_dtype(dtype)

    def task(key: jax.Array) -> WaveTasks:
        keys = iter(jax.random.split(key, 4))

        def uniform(bounds: tuple[float, float], *shape: int) -> jax.Array:
            return jax.random.uniform(next(keys), shape, dtype, *bounds)

        amplitude, phase = uniform(_AMPLITUDE), uniform(_PHASE)
        context = uniform(_DOMAIN, num_context, 1)
        query = uniform(_DOMAIN, num_query, 1)
        values = (amplitude * jnp.sin(x - phase) for x in (context, query))
        context_values, query_values = values
        return WaveTasks(context, context_values, query, query_values, amplitude, phase)

    return jax.vmap(task)(jax.random.split(key, num_tasks))


def errors_by_context(
    model: Callable[..., jax.Array],
    tasks: WaveTasks,
    sizes: Sequence[int],
    *,
    batch_size: int = 20,
) -> jax.Array:
    """Mean square errors at the queries for several numbers of context points.

    Args:
      model: a pytree that is called for one task, `model(context_points,
        context_values, query_points, context_weights=)`, such as the models of
        `experiments.sinusoid`.
      tasks: tasks with at least as many context points as the largest size.
      sizes: numbers of context points; the first ones of every task are used.
      batch_size: number of tasks that are computed at once.

    Returns:
      The errors, shape `(num_tasks, len(sizes))`.

    Raises:
      ValueError: if the tasks have fewer context points.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.problems import sinusoid
      >>> def zero(points, values, query, *, context_weights):
      ...     return jnp.zeros_like(query)
      >>> numbers = {"num_tasks": 2, "num_context": 5, "num_query": 7}
      >>> tasks = sinusoid.sample(jax.random.key(0), **numbers)
      >>> sinusoid.errors_by_context(jax.tree_util.Partial(zero), tasks, [1, 5]).shape
      (2, 2)
    """
    available = tasks.context_points.shape[1]
    if max(sizes) > available:
        raise ValueError(f"{sizes=} must be at most the {available} context points.")

    def of_task(task: WaveTasks) -> jax.Array:
        *arguments, target = task[:4]

        def of_size(size: jax.Array) -> jax.Array:
            weights = (jnp.arange(available) < size).astype(target.dtype)
            return jnp.mean((model(*arguments, context_weights=weights) - target) ** 2)

        return jax.vmap(of_size)(jnp.asarray(sizes))

    return jax.lax.map(of_task, tasks, batch_size=batch_size)
