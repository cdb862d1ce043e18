"""Points drawn anew from a mesh at every step of training."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from opjax import _checks
from opjax.quadrature import active
from opjax.samples.base import SCALARS


def draw_points(
    sample: Mapping[str, jax.Array], key: jax.Array, *, num_points: int
) -> dict[str, jax.Array]:
    """Draws points of a sample without replacement, padding last.

    Args:
      sample: arrays with points along axis 0, `mesh_points` and maybe
        `quadrature_weights` among them, as from `samples.stack`; scalars stay.
      key: PRNG key.
      num_points: how many; all of them if there are no more.

    Returns:
      The sample at these points; its weights keep their sum.

    Raises:
      ValueError: if the number is not positive.
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
        name: array if name in SCALARS else array[rows]
        for name, array in sample.items()
    }
    if weights is not None:
        kept = jnp.sum(drawn["quadrature_weights"])
        factor = jnp.sum(weights) / jnp.where(kept > 0, kept, 1)
        drawn["quadrature_weights"] = factor * drawn["quadrature_weights"]
    return drawn
