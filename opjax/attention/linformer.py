"""Softmax attention with a fixed number of projected keys."""

from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted
from opjax.attention._arguments import attended
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
    named = {"key_projection": key_projection, "value_projection": value_projection}
    projections = _checks.arrays(2, **named)
    named = dict(zip(named, projections, strict=True))
    _checks.same_points(key=key, **named)
    _checks.same_axis(1, "projected points (axis 1)", named)
    keys, values = (
        galerkin_coefficients(columns, array, key_weights=weights)
        for columns, array in zip(projections, (key, value), strict=True)
    )
    shares = attention_matrix(query, keys, None)
    return shares.astype(values.dtype) @ values
