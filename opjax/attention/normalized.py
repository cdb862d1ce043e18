"""Attention with a positive kernel of softmaxed features, in linear time."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax._jitted import jitted
from opjax.attention._arguments import attended, integrand


@jitted()
def normalized_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values with inner products of softmaxed queries and keys as weights.

        Attention(Q, K, V)_i = sum_j w_j <q_i, k_j> V_j / sum_j w_j <q_i, k_j>,
        q_i = softmax(Q_i),   k_j = softmax(K_j),

    where both softmaxes are over the features, so the kernel is positive and of rank
    `d`. Rows sum to one, so constants are preserved. Layers of the general neural
    operator transformer add `q`, and the averages of several input functions.

    Complexity: `O((m + n) d c)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default. Zero masks a point; a common factor cancels.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import normalized_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> normalized_attention(q, k, v).shape
      (50, 4)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    q = jax.nn.softmax(query, axis=1).astype(value.dtype)
    k = integrand(jax.nn.softmax(key, axis=1), weights).astype(value.dtype)
    masses = q @ jnp.sum(k, axis=0)
    # Positive unless all points are masked.
    return q @ (k.T @ value) / jnp.where(masses > 0, masses, 1)[:, None]
