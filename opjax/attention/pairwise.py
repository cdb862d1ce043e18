"""Attention functions that compare every query with every key.

Scores are computed for one tile of queries at a time, and again in the backward pass,
so memory grows linearly with the number of points. A tile fits in the cache of a CPU;
on other platforms it is larger.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, export, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax._jitted import jitted
from opjax.attention._arguments import attended, integrand, log_weights

_TILE = 64  # queries, on a CPU; at least as many elsewhere
_ENTRIES_IN_CACHE = 2**17
# Of a tile on an accelerator, 16 MiB of scores for each head of a sample: on a GPU
# gradients of 4096 points take less than half the time of tiles of 64 queries.
_ENTRIES_AT_ONCE = 2**22


@jitted()
def softmax_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values with a softmax of scaled dot products of queries and keys.

        Attention(Q, K, V)_i = sum_j w_j e_ij V_j / sum_j w_j e_ij,
        e_ij = exp(<Q_i, K_j> / sqrt(d)).

    Complexity: `O(m n (d + c))`, memory `O(m + n)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, zero masks a point.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if all points are masked,
      or if there are no points.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import softmax_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> softmax_attention(q[:7], k, v).shape  # at seven query points
      (7, 4)

    References:
      Vaswani et al., "Attention is all you need", 2017; Xiao et al., 2026, Eq. 1.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    if not key.shape[0]:  # as if all points were masked
        return jnp.zeros((query.shape[0], value.shape[1]), value.dtype)
    dtype = _score_dtype(query)
    offsets = log_weights(weights, dtype).T

    def averages(tile: Array) -> Array:
        scores = offsets + _scores(tile, key, dtype)
        # A softmax does not depend on what is subtracted, so neither do derivatives.
        shifted = scores - lax.stop_gradient(jnp.max(scores, axis=0, keepdims=True))
        factors = jnp.exp(shifted)
        sums = jnp.matmul(
            value.T, factors.astype(value.dtype), preferred_element_type=dtype
        )
        return (sums / jnp.sum(factors, axis=0, keepdims=True)).T.astype(value.dtype)

    return _in_tiles(averages, query, key)


def _in_tiles(function: Callable[[Array], Array], query: Array, key: Array) -> Array:
    """Applies a function of queries `(b, d)` to tiles of them; returns `(m, c)`."""
    m, n = query.shape[0], key.shape[0]
    symbolic = any(export.is_symbolic_dim(size) for size in (m, n))
    if symbolic or m <= _TILE or m * n <= _ENTRIES_IN_CACHE:
        return function(query)
    large = max(_TILE, _ENTRIES_AT_ONCE // n)

    def by_platform(query: Array) -> Array:
        small = functools.partial(_mapped, function, size=_TILE)
        if large == _TILE:
            return small(query)
        default = functools.partial(_mapped, function, size=large)
        return lax.platform_dependent(query, cpu=small, default=default)

    # Keeps the arguments of both branches alone, which are the same.
    return jax.checkpoint(by_platform, prevent_cse=False)(query)


def _mapped(function: Callable[[Array], Array], query: Array, *, size: int) -> Array:
    """Applies a function to so many queries after the other."""
    m = query.shape[0]
    if m <= size:
        return function(query)
    count = -(-m // size)
    padded = jnp.pad(query, ((0, count * size - m), (0, 0)))
    # No CSE crosses the body of a loop.
    tile = jax.checkpoint(function, prevent_cse=False)
    tiles = lax.map(tile, padded.reshape(count, size, -1))
    return tiles.reshape(count * size, -1)[:m]


def _scores(query: Array, key: Array, dtype: jax.typing.DTypeLike) -> Array:
    """Returns scaled dot products, `(n, b)`: keys first is twice as fast on a CPU."""
    scaled = query.shape[1] ** -0.5 * query
    return jnp.matmul(key, scaled.T, preferred_element_type=dtype)


def _score_dtype(query: Array) -> jax.typing.DTypeLike:
    """At least single; `jax.nn.dot_product_attention` would round double to single."""
    return jnp.float32 if jnp.finfo(query.dtype).bits < 32 else query.dtype


def attention_matrix(
    query: Float[Array, "m d"],
    key: Float[Array, "n d"],
    weights: Float[Array, " n"] | None,
) -> Float[Array, "m n"]:
    """Returns the matrix `(m, n)` of `softmax_attention`, without checks."""
    dtype = _score_dtype(query)
    scores = jnp.matmul(query, key.T, preferred_element_type=dtype)
    scores = query.shape[1] ** -0.5 * scores + log_weights(weights, dtype)
    return jax.nn.softmax(scores, axis=1)


@jitted()
def fourier_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Integrates values against dot products of queries and keys, without a softmax.

        Attention(Q, K, V)_i = sum_j w_j <Q_i, K_j> / sqrt(d) V_j,

    which is a quadrature of a Fredholm integral with a kernel of rank `d`. The products
    are computed in the order of the paper; `galerkin_attention` computes them in linear
    time.

    Complexity: `O(m n (d + c))`, memory `O(m + n)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: normalised features at the mesh points, shape `(n, d)`.
      value: features to integrate, shape `(n, c)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, `1/n` each in the paper; zero masks a point.

    Returns:
      The integrals at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import fourier_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> fourier_attention(q[:7], k, v).shape  # at seven query points
      (7, 4)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 5, with
      the scale `1/sqrt(d)` of the code.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    integrands = integrand(value, weights)

    def integrals(tile: Array) -> Array:
        scores = _scores(tile, key, query.dtype).astype(value.dtype)
        return (integrands.T @ scores).T

    return _in_tiles(integrals, query, key)
