"""Softmax attention through landmarks, with the Nystrom method."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg
from opjax._jitted import jitted
from opjax.attention._arguments import attended, check_weights
from opjax.attention.pairwise import attention_matrix
from opjax.quadrature import active, select


@jitted(
    static=("num_landmarks", "num_iterations", "zero_fill"), start_norm=_checks.positive
)
def nystrom_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    num_landmarks: int,
    num_iterations: int = 6,
    start_norm: ArrayLike | None = None,
    zero_fill: bool = False,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values with a low-rank approximation of the softmax matrix.

        Attention(Q, K, V) = S(Q, K~) S(Q~, K~)^+ S(Q~, K) V,
        S(Q, K)_ij = w_j e_ij / sum_l w_l e_il,   e_ij = exp(<Q_i, K_j> / sqrt(d)),

    with landmarks `Q~`, `K~`, the means over `l` segments of successive points of
    nearly equal length. The weight of a landmark is the sum of the weights of its
    points. The pseudo-inverse is computed by the third-order iteration

        Z <- Z (13 I - X (15 I - X (7 I - X))) / 4,   X = A Z,   Z_0 = A^T / start_norm.

    The order of points matters, the order of their features does not. With a landmark
    at every point, many iterations converge to `softmax_attention`.

    Complexity: `O((m + n) l (d + c) + num_iterations l^3)`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      num_landmarks: number of segments `l`, at most `m` and at most `n` without
        `zero_fill`.
      num_iterations: number of iterations for the pseudo-inverse.
      start_norm: positive scalar, at least the squared spectral norm of `A`. The
        default is the product of its maximum row sum and column sum. The published code
        uses the largest row and column sum of all heads and samples, see
        `row_and_column`.
      zero_fill: as in the published code, all segments have equally many points. Zeros
        are prepended to complete the first segment; these queries, keys and values are
        not masked.
      query_weights: quadrature weights of the query points, shape `(m,)`; ones by
        default, zero masks a point.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default. Zero masks a point; a common factor cancels.

    Returns:
      The averages at the query points, shape `(m, c)`. Masked query points have those
      of a zero query; all are zero if all mesh points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match, a weight is negative, or a number
        is out of range.

    Examples:
      >>> import jax
      >>> from opjax.attention import nystrom_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> nystrom_attention(q, k, v, num_landmarks=5).shape
      (50, 4)

    References:
      Xiong et al., "Nystromformer: a Nystrom-based algorithm for approximating
      self-attention", AAAI 2021, Eq. 11 and 13.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    query_mass = None
    if query_weights is not None:
        query_mass = jnp.asarray(query_weights)
        check_weights(query_weights=query_mass, query=query)
        query = select(query, query_mass)
    _check_numbers(num_landmarks, num_iterations, zero_fill, query=query, key=key)
    if start_norm is not None:
        _checks.single_numbers(start_norm=start_norm)
    segments = num_landmarks, zero_fill
    query_landmarks, query_masses = _landmarks(query, query_mass, *segments)
    key_landmarks, key_masses = _landmarks(key, weights, *segments)
    to_landmarks = attention_matrix(query, key_landmarks, key_masses)
    # Landmarks without points: their rows vanish, then so do those of the inverse.
    between = select(
        attention_matrix(query_landmarks, key_landmarks, key_masses), query_masses
    )
    if zero_fill:
        key, value, weights = _with_zeros(key, value, weights, num_landmarks)
    from_landmarks = attention_matrix(query_landmarks, key, weights)
    values = from_landmarks.astype(value.dtype) @ value
    inverse = _pseudo_inverse(between, num_iterations, start_norm)
    averages = to_landmarks @ (inverse @ values.astype(inverse.dtype))
    return averages.astype(value.dtype)


def row_and_column(
    query: Array,
    key: Array,
    *,
    num_landmarks: int,
    zero_fill: bool = False,
    weights: Array | None = None,
) -> tuple[Array, Array]:
    """Returns the maximum row and column sum of the matrix between landmarks.

    Args:
      query: features at the points, shape `(n, d)`.
      key: features at the same points, shape `(n, d)`.
      num_landmarks: as in `nystrom_attention`.
      zero_fill: as in `nystrom_attention`.
      weights: quadrature weights of the points, shape `(n,)`.

    Returns:
      Two scalars, whose product is a `start_norm`.
    """
    query, key = select(query, weights), select(key, weights)
    segments = num_landmarks, zero_fill
    query_landmarks, query_masses = _landmarks(query, weights, *segments)
    key_landmarks, key_masses = _landmarks(key, weights, *segments)
    between = select(
        attention_matrix(query_landmarks, key_landmarks, key_masses), query_masses
    )
    return jnp.max(jnp.sum(between, axis=1)), jnp.max(jnp.sum(between, axis=0))


def _landmarks(
    points: Array, weights: Array | None, num_landmarks: int, zero_fill: bool
) -> tuple[Array, Array]:
    """Returns the means of segments, `(l, d)`, and their masses, `(l,)`.

    Masked points are left out of the count: padding does not move the segments.
    """
    if weights is None:
        weights = jnp.ones(points.shape[0], points.dtype)
    counted = active(weights)
    position = jnp.cumsum(counted) - 1
    weights = weights.astype(linalg.at_least_single(points).dtype)
    if zero_fill:
        length, zeros, unit = _zeros(weights, num_landmarks)
        segment = (position + zeros) // length
        filled = jnp.clip(zeros - length * jnp.arange(num_landmarks), 0, length)
        filled = filled.astype(weights.dtype) * unit
    else:
        segment = position * num_landmarks // jnp.maximum(jnp.sum(counted), 1)
        filled = jnp.zeros(num_landmarks, weights.dtype)
    masses = filled + jax.ops.segment_sum(weights, segment, num_landmarks)
    sums = jax.ops.segment_sum(
        weights[:, None] * points.astype(weights.dtype), segment, num_landmarks
    )
    means = sums / jnp.where(masses == 0, 1, masses)[:, None]
    return means.astype(points.dtype), masses


def _zeros(weights: Array, num_landmarks: int) -> tuple[Array, Array, Array]:
    """Returns the points of a segment, the zeros among all, and what each weighs."""
    counted = active(weights)
    count = jnp.maximum(jnp.sum(counted), 1)
    length = -(-count // num_landmarks)
    unit = jnp.sum(select(weights, weights)) / count.astype(weights.dtype)
    return length, length * num_landmarks - count, unit


def _with_zeros(
    key: Array, value: Array, weights: Array | None, num_landmarks: int
) -> tuple[Array, Array, Array]:
    """Appends one zero that weighs as much as all that fill the segments up."""
    if weights is None:
        weights = jnp.ones(key.shape[0], linalg.at_least_single(key).dtype)
    _, zeros, unit = _zeros(weights, num_landmarks)
    mass = zeros.astype(unit.dtype) * unit
    ends = ((0, 1), (0, 0))
    return (
        jnp.pad(key, ends),
        jnp.pad(value, ends),
        jnp.concatenate([weights, mass[None].astype(weights.dtype)]),
    )


def _pseudo_inverse(
    matrix: Array, num_iterations: int, start_norm: ArrayLike | None
) -> Array:
    if start_norm is None:
        rows, columns = jnp.sum(matrix, axis=1), jnp.sum(matrix, axis=0)
        norm = jnp.max(rows) * jnp.max(columns)
    else:
        norm = jnp.asarray(start_norm, matrix.dtype)
    identity = jnp.eye(matrix.shape[0], dtype=matrix.dtype)

    def product(a: Array, b: Array) -> Array:
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)

    def step(_: Any, z: Array) -> Array:
        x = product(matrix, z)
        inner = 15 * identity - product(x, 7 * identity - x)
        return 0.25 * product(z, 13 * identity - product(x, inner))

    start = matrix.T / jnp.where(norm == 0, 1, norm)
    return lax.fori_loop(0, num_iterations, step, start)


def _check_numbers(
    num_landmarks: int,
    num_iterations: int,
    zero_fill: bool,
    *,
    query: Array,
    key: Array,
) -> None:
    for name, points in (("query", query), ("key", key)):
        if num_landmarks < 1 or not (zero_fill or num_landmarks <= points.shape[0]):
            raise ValueError(
                f"num_landmarks={num_landmarks} must be at least 1 and, without "
                f"zero_fill, at most the number of points (axis 0): {name} "
                f"{points.shape}."
            )
    _checks.non_negative(num_iterations=num_iterations)
