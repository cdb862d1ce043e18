"""Random subsets of the points of a mesh, drawn anew in every training step."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from opjax import _checks
from opjax.quadrature import active
from opjax.samples.base import SCALARS


def draw_points(
    sample: Mapping[str, jax.Array],
    key: jax.Array,
    *,
    num_points: int,
    unbiased: bool = False,
) -> dict[str, jax.Array]:
    """Draws points of a sample without replacement; padding is drawn last.

    Of `r` points that are not padding, `d` are drawn. Their weights `w` become `w
    sum(all w) / sum(drawn w)`, which preserves the sum, or `w r / d`, which preserves
    the expectation of every sum `sum_i w_i f_i` over points.

    Args:
      sample: arrays with points along axis 0, including `mesh_points` and optionally
        `quadrature_weights`, as from `samples.stack`; scalars are unchanged.
      key: PRNG key.
      num_points: number of drawn points; all if there are fewer.
      unbiased: preserve the expectation of sums over points instead of the sum of the
        weights. Without weights, when models use `1 / n` each, both are the same.

    Returns:
      The sample at these points, with the new weights.

    Raises:
      ValueError: if the number is not positive.

    Examples:
      >>> import jax
      >>> import numpy as np
      >>> from opjax import samples
      >>> sample = {"mesh_points": np.random.default_rng(0).uniform(size=(9, 2))}
      >>> drawn = samples.draw_points(sample, jax.random.key(0), num_points=4)
      >>> drawn["mesh_points"].shape
      (4, 2)
    """
    _checks.positive(num_points=num_points)
    n = sample["mesh_points"].shape[0]
    if num_points >= n:
        return dict(sample)
    weights = sample.get("quadrature_weights")
    order = jax.random.uniform(key, (n,), jnp.float32)
    if weights is not None:
        order = order + (~active(weights)).astype(order.dtype)
    _, rows = jax.lax.top_k(-order, num_points)
    drawn = {
        name: array if name in SCALARS else jnp.asarray(array)[rows]
        for name, array in sample.items()
    }
    if weights is not None:
        before, after = weights, drawn["quadrature_weights"]
        if unbiased:
            before, after = active(before), active(after)
        kept = jnp.sum(after, dtype=weights.dtype)
        factor = jnp.sum(before, dtype=weights.dtype) / jnp.where(kept > 0, kept, 1)
        drawn["quadrature_weights"] = factor * drawn["quadrature_weights"]
    return drawn
