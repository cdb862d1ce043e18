"""Attentions that compare every query with every key."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from opjax import _checks
from opjax.attention._arguments import check_weights, features


def softmax_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    key_weights: ArrayLike | None = None,
) -> jax.Array:
    r"""Averages values by the softmax of scaled dot products of queries and keys.

        Attention(Q, K, V)_i = sum_j w_j e_ij V_j / sum_j w_j e_ij,
        e_ij = exp(<Q_i, K_j> / sqrt(d)).

    Complexity: `O(m n d)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, zero masks a point.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    References:
      Vaswani et al., "Attention is all you need", 2017; Xiao et al., 2026, Eq. 1.
    """
    query, key = features(query=query, key=key)
    value = jnp.asarray(value)
    _checks.floating(value=value)
    _checks.rank(2, value=value)
    _checks.same_points(key=key, value=value)
    # At least single; `jax.nn.dot_product_attention` would round double to single.
    dtype = jnp.float32 if jnp.finfo(query.dtype).bits < 32 else query.dtype
    bias = jnp.zeros((1, 1), dtype)
    if key_weights is not None:
        weights = jnp.asarray(key_weights)
        check_weights(key_weights=weights, key=key)
        masked = weights == 0
        logarithm = jnp.log(jnp.where(masked, 1, weights)).astype(dtype)
        # Not where all are masked: the average of the zeroed values is zero, not NaN.
        dropped = masked & ~jnp.all(masked)
        bias = jnp.where(dropped, -jnp.inf, logarithm)[None, :]
        key, value = (jnp.where(masked[:, None], 0, a) for a in (key, value))
    scores = jnp.matmul(query, key.T, preferred_element_type=dtype)
    attended = jax.nn.softmax(query.shape[1] ** -0.5 * scores + bias, axis=1)
    return attended.astype(value.dtype) @ value
