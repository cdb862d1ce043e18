"""Kernel attention of linear cost with random features."""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from opjax import _checks, linalg
from opjax._jitted import jitted
from opjax._sequential import one_by_one
from opjax.attention._arguments import attended
from opjax.quadrature import active, select

KERNELS = ("softmax", "relu")
OFFSETS = {"softmax": 1e-4, "relu": 1e-3}


@jitted(static=("kernel",), offset=_checks.non_negative)
def performer_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    projection_matrix: Float[ArrayLike, "r d"],
    kernel: str = "softmax",
    offset: ArrayLike | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages values with a kernel that is factorised by positive random features.

        Attention(Q, K, V)_i = phi(Q_i) sum_j w_j phi(K_j)^T V_j
                               / phi(Q_i) sum_j w_j phi(K_j)^T,
        softmax   phi(x) = exp(R x / d^{1/4} - |x|^2 / (2 sqrt(d)) - s) + offset,
        relu      phi(x) = max(0, R x / d^{1/4}) + offset.

    If the rows of `R` are from `orthogonal_random_features`, the softmax kernel is an
    unbiased estimate of the kernel of `softmax_attention`, except for the offset. The
    shifts `s`, the maximum entry of `R x / d^{1/4}` for each query and over all keys,
    bound the exponentials and are treated as constants in differentiation. Without
    offset they cancel: the result is then exact, but a small exponential may underflow.

    Complexity: `O((m + n) r (d + c))`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      projection_matrix: the random directions `R`, shape `(r, d)`.
      kernel: `"softmax"` or `"relu"`.
      offset: keeps the denominator positive; by default `1e-4` (softmax) or `1e-3`
        (relu), as in the published code.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default. Zero masks a point; a common factor cancels.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if the denominator is zero,
      for example if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match, a weight or the offset is
        negative, or the kernel is unknown.

    Examples:
      >>> import jax
      >>> from opjax.attention import orthogonal_random_features, performer_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> directions = orthogonal_random_features(jax.random.key(1), 16, 4)
      >>> performer_attention(q, k, v, projection_matrix=directions).shape
      (50, 4)

    References:
      Choromanski et al., "Rethinking attention with performers", ICLR 2021, Lemma 1
      and Section 2.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    (directions,) = _checks.arrays(2, projection_matrix=projection_matrix)
    _checks.same_channels(query=query, projection_matrix=directions)
    _checks.option("kernel", kernel, KERNELS)
    offset = OFFSETS[kernel] if offset is None else offset
    _checks.single_numbers(offset=offset)
    dtype = value.dtype
    query, key, value, directions = (
        linalg.at_least_single(a.astype(dtype)) for a in (query, key, value, directions)
    )
    small = jnp.asarray(offset, value.dtype)
    query_features = small + _query_features(query, directions, kernel)
    key_features = small + _key_features(key, directions, kernel, weights)
    if weights is not None:
        # A common factor cancels; without it gradients of tiny weights are not finite.
        largest = lax.stop_gradient(jnp.max(weights))
        weights = weights / jnp.where(largest > 0, largest, 1)
        key_features = weights[:, None].astype(value.dtype) * key_features
    denominator = query_features @ jnp.sum(key_features, axis=0)
    safe = jnp.where(denominator == 0, 1, denominator)
    averages = (query_features / safe[:, None]) @ (key_features.T @ value)
    return averages.astype(dtype)


@jitted(static=("num_features", "dim", "dtype"))
def orthogonal_random_features(
    key: Array, num_features: int, dim: int, *, dtype: DTypeLike = float
) -> Float[Array, "num_features dim"]:
    r"""Draws Gaussian directions that are orthogonal within blocks.

    Every row is a standard normal vector, and every `dim` successive rows are
    orthogonal. This reduces the variance of a kernel estimate, compared with
    independent rows.

    Complexity: `O(num_features dim^2)`.

    Args:
      key: random key.
      num_features: number `r` of directions, positive.
      dim: number `d` of channels of queries and keys, positive.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The directions, shape `(r, d)`, for `projection_matrix` of `performer_attention`.

    Raises:
      ValueError: if a number is not positive.

    Examples:
      >>> import jax
      >>> from opjax.attention import orthogonal_random_features
      >>> rows = orthogonal_random_features(jax.random.key(0), 16, 4)
      >>> rows.shape, bool(abs(rows[0] @ rows[1]) < 1e-4)
      ((16, 4), True)

    References:
      Choromanski et al., "Rethinking attention with performers", ICLR 2021, Section
      2.4; Yu et al., "Orthogonal random features", NeurIPS 2016.
    """
    _checks.positive(num_features=num_features, dim=dim)
    num_blocks = -(-num_features // dim)
    block_key, norm_key = jax.random.split(key)
    blocks = jax.random.normal(block_key, (num_blocks, dim, dim), dtype)
    norms = jax.random.normal(norm_key, (num_features, dim), dtype)
    return orthogonal_directions(blocks, norms)


def orthogonal_directions(
    blocks: Float[Array, "b d d"], norms: Float[Array, "r d"]
) -> Float[Array, "r d"]:
    """Orthonormalises Gaussian blocks `(b, d, d)`, with row lengths from `norms`."""
    q, r = jax.vmap(one_by_one(jnp.linalg.qr))(blocks)
    # LAPACK makes the first entry of every block negative; a positive diagonal of R
    # makes the rotation uniformly distributed.
    signs = jnp.sign(jnp.diagonal(r, axis1=1, axis2=2))
    rows = jnp.swapaxes(q * signs[:, None, :], 1, 2).reshape(-1, norms.shape[1])
    return rows[: len(norms)] * jnp.linalg.norm(norms, axis=1, keepdims=True)


def _query_features(query: Array, directions: Array, kernel: str) -> Array:
    """Returns positive features of every query, `(m, r)`, without offset."""
    projected, energy = _project(query, directions)
    if kernel == "relu":
        return jax.nn.relu(projected)
    shift = jnp.max(projected, axis=1, keepdims=True)
    return jnp.exp(projected - energy - lax.stop_gradient(shift))


def _key_features(
    key: Array, directions: Array, kernel: str, weights: Array | None
) -> Array:
    """Returns positive features of all keys, `(n, r)`, without offset."""
    projected, energy = _project(key, directions)
    if kernel == "relu":
        return jax.nn.relu(projected)
    shift = jnp.max(projected)
    if weights is not None:
        counted = active(weights)[:, None]
        among_counted = jnp.max(projected, where=counted, initial=-jnp.inf)
        shift = jnp.where(jnp.any(counted), among_counted, shift)
    # The exponential of a masked key, far above those of the others, could be infinite.
    exponent = projected - energy - lax.stop_gradient(shift)
    return jnp.exp(select(exponent, weights))


def _project(x: Array, directions: Array) -> tuple[Array, Array]:
    """Returns `R x / d^{1/4}` and `|x|^2 / (2 sqrt(d))`."""
    x = x.shape[1] ** -0.25 * x
    return x @ directions.T, 0.5 * jnp.sum(x**2, axis=1, keepdims=True)
