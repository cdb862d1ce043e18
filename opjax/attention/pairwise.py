"""Attentions that compare every query with every key."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax.attention._arguments import attended, integrand, log_weights


def softmax_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values by the softmax of scaled dot products of queries and keys.

        Attention(Q, K, V)_i = sum_j w_j e_ij V_j / sum_j w_j e_ij,
        e_ij = exp(<Q_i, K_j> / sqrt(d)).

    Complexity: `O(m n (d + c))`.

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
    query, key, value, weights = attended(query, key, value, key_weights)
    averages = attention_matrix(query, key, weights)
    return averages.astype(value.dtype) @ value


def attention_matrix(
    query: Float[Array, "m d"],
    key: Float[Array, "n d"],
    weights: Float[Array, " n"] | None,
) -> Float[Array, "m n"]:
    """Returns the averages of `softmax_attention` as a matrix, `(m, n)`, unchecked."""
    # At least single; `jax.nn.dot_product_attention` would round double to single.
    dtype = jnp.float32 if jnp.finfo(query.dtype).bits < 32 else query.dtype
    scores = jnp.matmul(query, key.T, preferred_element_type=dtype)
    scores = query.shape[1] ** -0.5 * scores + log_weights(weights, dtype)
    return jax.nn.softmax(scores, axis=1)


def fourier_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Integrates values against dot products of queries and keys, without a softmax.

        Attention(Q, K, V)_i = sum_j w_j <Q_i, K_j> / sqrt(d) V_j,

    a quadrature of a Fredholm integral with a kernel of rank `d`; the products are
    formed in the order of the paper, `galerkin_attention` forms them in linear time.

    Complexity: `O(m n (d + c))`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`, normalised by the caller.
      value: features to integrate, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, `1/n` each in the paper; zero masks a point.

    Returns:
      The integrals at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 5, with
      the scale `1/sqrt(d)` of the code.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    scores = query.shape[1] ** -0.5 * (query @ key.T)
    return scores.astype(value.dtype) @ integrand(value, weights)
