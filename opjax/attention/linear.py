"""Attention of linear cost: keys and values are integrated once for all queries."""

import jax
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax._jitted import jitted
from opjax.attention._arguments import attended, features, integrand
from opjax.attention.flare import softmax_means


@jitted()
def linear_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values with two softmaxes, over the points and over the features.

        Attention(Q, K, V)_i = sum_a p_ia sum_j r_ja V_j,
        p_ia = exp(Q_ia) / sum_b exp(Q_ib),
        r_ja = w_j exp(K_ja) / sum_l w_l exp(K_la):

    where each key feature averages the values over the mesh, and each query averages
    over the features. Rows of both softmaxes sum to one, so constants are preserved.
    The linear attention of Cao (2021) also divides the result by the number of points.

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
      >>> import numpy as np
      >>> from opjax.attention import linear_attention
      >>> q, k = jax.random.normal(jax.random.key(0), (2, 50, 4))
      >>> constant = linear_attention(q, k, np.ones((50, 1), "f4"))
      >>> bool(np.allclose(constant, 1))  # rows sum to one
      True

    References:
      Shen et al., "Efficient attention: attention with linear complexities", 2021.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    over_features = jax.nn.softmax(query, axis=1)
    averages = softmax_means(value, key, quadrature_weights=weights)
    return over_features.astype(value.dtype) @ averages


@jitted()
def galerkin_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Expands values in the queries, with inner products of keys and values.

        Attention(Q, K, V) = Q (K^T W V),   W = diag(w),

    where columns are functions: the columns of `Q` are trial functions, and their
    coefficients are inner products with the columns of `K`. It is a Petrov-Galerkin
    projection if the columns of `K` and `Q` are dual bases.

    Complexity: `O((m + n) d c)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: normalised features at the mesh points, shape `(n, d)`.
      value: normalised features to expand, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, `1/n` each in the paper; zero masks a point.

    Returns:
      The expansion at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import galerkin_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> galerkin_attention(q, k, v).shape
      (50, 4)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 6.
    """
    query, key = features(query=query, key=key)
    coefficients = galerkin_coefficients(key, value, key_weights=key_weights)
    return query.astype(coefficients.dtype) @ coefficients


def galerkin_coefficients(
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "d c"]:
    """Returns the coefficients of `galerkin_attention`, `K^T W V`."""
    _, key, value, weights = attended(key, key, value, key_weights)
    return key.T.astype(value.dtype) @ integrand(value, weights)
