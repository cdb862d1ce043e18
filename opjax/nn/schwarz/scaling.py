"""Attention divided by the square root of points and rank, as the paper proposes."""

import jax
import jax.numpy as jnp
import numpy as np

from opjax import _checks
from opjax.nn.schwarz.calibration import Factored, Model, modules, with_factors
from opjax.nn.schwarz.factors import SchwarzAttention


def scale_products(
    model: Model, *, num_points: int | None = None
) -> tuple[Model, Model]:
    r"""Scales the products of all blocks by `1 / sqrt(n d_k)`.

        Q_i K_i^T  becomes  Q_i K_i^T / sqrt(n d_k).

    The factors include the scales: each is multiplied by `(n d_k)^{-1/4}`. `d_k` is the
    number of columns of a block, and `n` its number of points (or coarse functions), or
    one number for all blocks.

    Args:
      model: a `LowRankAttention` or `SchwarzAttention`.
      num_points: number `n` for all blocks; by default the number of points of each
        block.

    Returns:
      The scaled model, and a model of the same structure whose leaves are the numbers
      `(n d_k)^{-1/4}`. If its updates are multiplied by them, Adam trains the factors
      as if the products were scaled in every call, except for the epsilon in its
      denominators.

    Raises:
      ValueError: if `num_points` is not positive.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import schwarz
      >>> model = schwarz.LowRankAttention(8, rank=2, rngs=nnx.Rngs(0))
      >>> model, sizes = schwarz.scale_products(model)
      >>> float(jnp.ravel(sizes.query[...])[0])  # (8 * 2) ** -0.25
      0.5

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 7, name the scaling and do not try it.
    """
    if num_points is not None:
        _checks.positive(num_points=num_points)
    factors = []
    for level in modules(model):
        root = jnp.asarray(_products(level, num_points) ** -0.25, level.key.dtype)
        factors.append((jnp.broadcast_to(root, level.key.shape),) * 2)
    sizes = with_factors(model, factors)
    return jax.tree.map(jnp.multiply, model, sizes), sizes


def _products(level: Factored, num_points: int | None) -> np.ndarray:
    """`n d_k` of the blocks of a level, with one axis for each of its factors."""
    points, rank = level.key.shape[-2:]
    if not isinstance(level, SchwarzAttention):
        return np.full((1, 1), (num_points or points) * rank, float)
    sizes = level.cover.sizes.astype(float)
    return ((num_points or sizes) * np.minimum(rank, sizes))[:, None, None]
