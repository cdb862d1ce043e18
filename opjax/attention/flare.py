"""Attention through a few latents, with two softmaxes of a score matrix."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg
from opjax._jitted import jitted
from opjax.attention._arguments import attended, features
from opjax.projection import Moments, check_weights, moments
from opjax.quadrature import active

# Divides by one where all points are masked; far below any other mass, which is at
# least the weight of the point of the highest score, and its square does not underflow.
_OFFSET = 1e-18


@jitted(scale=_checks.single_numbers)
def flare_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    latents: Float[ArrayLike, "k d"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
    scale: ArrayLike = 1.0,
) -> Float[Array, "m c"]:
    r"""Averages values from points to latents, and from latents to query points.

        softmax_k(s Q L^T) softmax_n(s L K^T + log w) V,

    with one softmax over the `k` latents and one over the `n` mesh points: a matrix of
    rank `k` whose rows sum to one. In self-attention, the queries are the keys, and
    both softmaxes are of the same matrix.

    Complexity: `O((m + n) k (d + c))`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      latents: learned queries `L`, shape `(k, d)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default. Zero masks a point; a common factor cancels.
      scale: factor `s` of the scores, one in the published runs.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import flare_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> latents = jax.random.normal(jax.random.key(1), (8, 4))
      >>> flare_attention(q, k, v, latents).shape
      (50, 4)

    References:
      Puri et al., "FLARE: fast low-rank attention routing engine", 2025
      (arXiv:2508.12594).
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    latents, _ = features(latents=latents, key=key)
    scale = jnp.asarray(scale, latents.dtype)

    # With keys for queries, the compiler finds that both are one.
    def scores(points: Array) -> Array:
        return linalg.at_least_single(scale * (points @ latents.T))

    shares = jax.nn.softmax(scores(query), axis=1)
    means = _softmax_means(value, scores(key), weights)
    return shares.astype(value.dtype) @ means


@jitted()
def softmax_means(
    values: Float[ArrayLike, "n d"],
    scores: Float[ArrayLike, "n k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "k d"]:
    r"""Averages values over the points with a softmax of each column of scores.

        z_j = sum_i w_i exp(s_ij) f_i / sum_i w_i exp(s_ij),

    with a softmax over the points, which converges under mesh refinement.

    Complexity: `O(n k d)`.

    Args:
      values: values `f` at the points, shape `(n, d)`.
      scores: scores `s` of the points, shape `(n, k)`.
      quadrature_weights: weights `w` of the points, shape `(n,)`; ones by default. Zero
        masks a point; a common factor cancels.

    Returns:
      The averages, shape `(k, d)`; zero if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the points do not match or a weight is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.attention import softmax_means
      >>> values = np.array([[1.0], [3.0]])
      >>> softmax_means(values, np.zeros((2, 1))).tolist()
      [[2.0]]

    References:
      Wang and Wang, "Latent neural operator for solving forward and inverse PDE
      problems", NeurIPS 2024 (arXiv:2406.03923).
    """
    values, scores = _checks.arrays(2, values=values, scores=scores)
    _checks.same_points(values=values, scores=scores)
    weights = None
    if quadrature_weights is not None:
        weights = check_weights(quadrature_weights, values=values)
    return _softmax_means(values, scores, weights)


def _softmax_means(
    values: Float[Array, "n d"],
    scores: Float[Array, "n k"],
    weights: Float[Array, " n"] | None,
) -> Float[Array, "k d"]:
    if not scores.shape[0]:  # as if all points were masked
        return jnp.zeros((scores.shape[1], values.shape[1]), values.dtype)
    top = highest_scores(scores, weights)
    whole = linalg.at_least_single(values)  # masses of half precision underflow
    return means_of(softmax_moments(whole, scores, weights, top)).astype(values.dtype)


def means_of(sums: Moments) -> Float[Array, "k d"]:
    """Returns the averages of `softmax_means` from `softmax_moments` of all points."""
    return sums.means(offset=_OFFSET)


def highest_scores(
    scores: Float[Array, "n k"], weights: Float[Array, " n"] | None
) -> Float[Array, " k"]:
    """Returns the highest score of every column, `(k,)`, over the unmasked points."""
    if weights is not None:
        lowest = jnp.finfo(scores.dtype).min
        scores = jnp.where(active(weights)[:, None], scores, lowest)
    return lax.stop_gradient(jnp.max(scores, axis=0))


def softmax_moments(
    values: Float[Array, "n d"],
    scores: Float[Array, "n k"],
    weights: Float[Array, " n"] | None,
    top: Float[Array, " k"],
) -> Moments:
    """Returns moments of values with `exp(scores - top)`, without checks.

    Their means equal those of a softmax over the points for any `top`, which keeps
    exponentials finite. With the same `top`, moments of several chunks add up.
    """
    if weights is not None:  # finite, so that derivatives of masked scores are
        scores = jnp.where(active(weights)[:, None], scores, top[None, :])
    exponentials = jnp.exp(scores - top[None, :]).astype(values.dtype)
    return moments(values, exponentials, quadrature_weights=weights)
