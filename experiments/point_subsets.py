"""Points drawn anew from a mesh at every step of training, and means over points."""

from typing import Any

import jax
import jax.numpy as jnp


def draw(sample: Any, key: jax.Array, num_points: int) -> Any:
    """Draws points without replacement, padding last; weights keep their sum.

    Args:
      sample: arrays with points along axis 0, as from `samples.stack`.
      key: PRNG key.
      num_points: how many; all of them if there are no more.

    Returns:
      The sample at these points.
    """
    n = sample["mesh_points"].shape[0]
    if num_points >= n:
        return sample
    weights = sample.get("quadrature_weights")
    order = jax.random.uniform(key, (n,), jnp.float32)
    if weights is not None:
        order = order + (weights <= 0).astype(order.dtype)
    _, rows = jax.lax.top_k(-order, num_points)
    drawn = {name: array[rows] for name, array in sample.items()}
    if weights is not None:
        factor = _size(weights) / _size(drawn["quadrature_weights"])
        drawn["quadrature_weights"] = factor * drawn["quadrature_weights"]
    return drawn


def mean(values: jax.Array, weights: jax.Array | None) -> jax.Array:
    """Mean over points `(n,)`; zero if all of them have zero weight."""
    if weights is None:
        return jnp.mean(values)
    return jnp.sum(weights * values) / _size(weights)


def _size(weights: jax.Array) -> jax.Array:
    size = jnp.sum(weights)
    return jnp.where(size > 0, size, 1)
