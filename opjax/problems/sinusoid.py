"""Few-shot regression of sine waves: observations at some points, queries at others."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from opjax import _checks

POINTS = (-6.0, 6.0)
AMPLITUDES = (0.1, 5.0)
PHASES = (0.0, math.pi)


class Tasks(NamedTuple):
    """Regression tasks; the axis of tasks comes first.

    Attributes:
      context_points: where a wave is observed, shape `(t, n, 1)`.
      context_values: its values there, shape `(t, n, 1)`.
      query_points: where it is asked for, shape `(t, m, 1)`.
      query_values: its values there, shape `(t, m, 1)`.
    """

    context_points: jax.Array
    context_values: jax.Array
    query_points: jax.Array
    query_values: jax.Array


def sample(
    key: jax.Array, *, num_tasks: int, num_context: int, num_query: int
) -> Tasks:
    r"""Draws sine waves and points to observe and to query them at.

        f(x) = a sin(x - g),   a ~ U(0.1, 5),   g ~ U(0, pi),   x ~ U(-6, 6),

    all independent, of the default floating-point dtype.

    Args:
      key: PRNG key.
      num_tasks: waves `t`.
      num_context: observations `n` of each.
      num_query: queries `m` of each.

    Returns:
      The tasks.

    Raises:
      ValueError: if a number is not positive.

    References:
      Finn et al., "Model-agnostic meta-learning", ICML 2017, Section 5.1; Xiao et al.,
      "Functional Attention", 2026, App. C.1.
    """
    _checks.positive(num_tasks=num_tasks, num_context=num_context, num_query=num_query)
    keys = jax.random.split(key, 3)
    wave = (num_tasks, 1, 1)
    points = (num_tasks, num_context + num_query, 1)
    amplitude, phase, x = (
        jax.random.uniform(key, shape, minval=low, maxval=high)
        for key, shape, (low, high) in zip(
            keys, (wave, wave, points), (AMPLITUDES, PHASES, POINTS), strict=True
        )
    )
    y = amplitude * jnp.sin(x - phase)
    seen, asked = slice(None, num_context), slice(num_context, None)
    return Tasks(x[:, seen], y[:, seen], x[:, asked], y[:, asked])
