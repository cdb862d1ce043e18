"""Softmax attention with a fixed number of projected keys."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted
from opjax.attention._arguments import attended, features
from opjax.attention._expansion import Expansion
from opjax.attention.linear import galerkin_coefficients
from opjax.attention.pairwise import attention_matrix


@jitted()
def linformer_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    key_projection: Float[ArrayLike, "n r"],
    value_projection: Float[ArrayLike, "n r"],
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Averages projected values with a softmax of the scores of projected keys.

        Attention(Q, K, V) = softmax(Q (E^T W K)^T / sqrt(d)) F^T W V,   W = diag(w).

    Learned projections depend on the number of points and their order. If the columns
    are functions, evaluated at the points, with quadrature weights, the attention is
    independent of the mesh.

    Complexity: `O((m + n) k (d + c))`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, shape `(n, c)`.
      key_projection: columns `E` against which keys are integrated, shape `(n, k)`.
      value_projection: columns `F` for the values, shape `(n, k)`.
      key_weights: quadrature weights `w` of the mesh points, shape `(n,)`; ones by
        default, zero masks a point.

    Returns:
      The averages at the query points, shape `(m, c)`; zero if all points are masked.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points, channels or columns do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import linformer_attention
      >>> q, k, v = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> e, f = jax.random.normal(jax.random.key(1), (2, 50, 8)) / 50
      >>> linformer_attention(q, k, v, key_projection=e, value_projection=f).shape
      (50, 4)

    References:
      Wang et al., "Linformer: self-attention with linear complexity", 2020, Eq. 7.
    """
    query, key, value, weights = attended(query, key, value, key_weights)
    projections = jnp.asarray(key_projection), jnp.asarray(value_projection)
    keys = ("key_projection", "value_projection")
    named: dict[str, Array] = dict(zip(keys, projections, strict=True))
    _checks.floating(**named)
    _checks.rank(2, **named)
    _checks.same_points(key=key, **named)
    _checks.same_axis(1, "projected points (axis 1)", named)
    key = linformer_keys(key, key_projection=projections[0], key_weights=weights)
    found = linformer_expansion(
        query, key, value, value_projection=projections[1], key_weights=weights
    )
    return found.evaluate()


def linformer_keys(
    key: Float[ArrayLike, "n d"],
    *,
    key_projection: Float[ArrayLike, "n r"],
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "r d"]:
    """Returns the projected keys `E^T W K` of `linformer_attention`."""
    projection, key = jnp.asarray(key_projection), jnp.asarray(key)
    _checks.same_points(key=key, key_projection=projection)
    return galerkin_coefficients(projection, key, key_weights=key_weights)


def linformer_expansion(
    query: Float[ArrayLike, "m d"],
    projected_key: Float[ArrayLike, "r d"],
    value: Float[ArrayLike, "n c"],
    *,
    value_projection: Float[ArrayLike, "n r"],
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Expansion:
    """Returns the two factors of `linformer_attention` from keys `E^T W K`."""
    query, key = features(query=query, projected_key=projected_key)
    coefficients = galerkin_coefficients(
        value_projection, value, key_weights=key_weights
    )
    shares = attention_matrix(query, key, None)
    return Expansion(shares.astype(coefficients.dtype), coefficients)
