"""Attention between coefficients in any basis."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted
from opjax.attention._arguments import check_weights, features
from opjax.attention.pairwise import softmax_attention
from opjax.projection import (
    Means,
    Projection,
    check_projection,
    project,
    reconstruct,
)

Attention = Callable[[Array, Array, Array], Array]


def basis_attention(
    attention: Attention,
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    query_basis: Float[ArrayLike, "m kq"],
    key_basis: Float[ArrayLike, "n kk"],
    *,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
    projection: Projection = Means(),
) -> Float[Array, "m c"]:
    r"""Applies an attention function to coefficients in a basis instead of points.

        Phi A(P_Phi Q, P_Psi K, P_Psi V),

    where `P` projects features to coefficients. The basis, the projection and the
    attention can be chosen independently. With `A = transport` and a ridge, it equals
    `functional_attention`.

    Complexity: `O(m kq (d + c) + n kk (d + c))`, plus the cost of `A` with `kq` queries
    and `kk` keys.

    Args:
      attention: `A(q, k, v)` of coefficients `(kq, d)`, `(kk, d)`, `(kk, c)` to
        `(kq, c)`, such as `softmax_attention`.
      query: features at the `m` query points, shape `(m, d)`.
      key: features at the `n` mesh points, shape `(n, d)`.
      value: features to transport, at the mesh points, shape `(n, c)`.
      query_basis: basis functions at the query points, shape `(m, kq)`.
      key_basis: basis functions at the mesh points, shape `(n, kk)`.
      query_weights: quadrature weights of the query points, shape `(m,)`. With weights,
        the coefficients converge under mesh refinement; zero masks a point.
      key_weights: quadrature weights of the mesh points, shape `(n,)`.
      projection: computes coefficients from features, see `projection.project`.

    Returns:
      The attended features at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point or the projection is a name.
      ValueError: if points or channels do not match, or a weight or the number in the
        projection is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import basis_attention, softmax_attention
      >>> q, k, v, scores = jax.random.normal(jax.random.key(0), (4, 50, 4))
      >>> phi = jax.nn.softmax(scores)
      >>> basis_attention(softmax_attention, q, k, v, phi, phi).shape
      (50, 4)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4, 5 and Table 7.
    """
    coefficients = coefficients_of(
        *(query, key, value, query_basis, key_basis),
        query_weights=query_weights,
        key_weights=key_weights,
        projection=projection,
    )
    return reconstruct(attention(*coefficients), query_basis)


@jitted()
def physics_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    query_basis: Float[ArrayLike, "m kq"],
    key_basis: Float[ArrayLike, "n kk"],
    *,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Softmax attention between tokens, which are means of features over soft slices.

        Phi softmax(Qc Kc^T / sqrt(d)) Vc,
        Qc = (diag(Phi^T w) + 1e-5 mean(w) I)^{-1} Phi^T W Q,

    with `Kc`, `Vc` computed in the same way in the basis of the keys: `basis_attention`
    with `softmax_attention` and means. For self-attention, pass the same points and
    basis twice. A basis function without points gives a token of zeros, which is not
    masked.

    Complexity: `O(m kq (d + c) + n kk (d + c) + kq kk (d + c))`.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to average, at the mesh points, shape `(n, c)`.
      query_basis: slice weights of the query points, shape `(m, kq)`, of one sign, such
        as `softmax_basis`.
      key_basis: slice weights of the mesh points, shape `(n, kk)`.
      query_weights: quadrature weights of the query points, shape `(m,)`; ones by
        default, zero masks a point.
      key_weights: quadrature weights of the mesh points, shape `(n,)`.

    Returns:
      The attended features at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> from opjax.attention import physics_attention
      >>> q, k, v, scores = jax.random.normal(jax.random.key(0), (4, 50, 4))
      >>> phi = jax.nn.softmax(scores)  # soft slices
      >>> physics_attention(q, k, v, phi, phi).shape
      (50, 4)

    References:
      Wu et al., "Transolver: a fast transformer solver for PDEs on general geometries",
      ICML 2024; Xiao et al., 2026, App. D.2.
    """
    return basis_attention(
        softmax_attention,
        query,
        key,
        value,
        query_basis,
        key_basis,
        query_weights=query_weights,
        key_weights=key_weights,
    )


@jitted(projection=check_projection)
def coefficients_of(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    query_basis: Float[ArrayLike, "m kq"],
    key_basis: Float[ArrayLike, "n kk"],
    *,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
    projection: Projection,
) -> tuple[Float[Array, "kq d"], Float[Array, "kk d"], Float[Array, "kk c"]]:
    """Checks the arguments and projects queries, keys and values to coefficients."""
    query, key = features(query=query, key=key)
    value, query_basis, key_basis = _checks.arrays(
        2, value=value, query_basis=query_basis, key_basis=key_basis
    )
    _checks.same_points(query=query, query_basis=query_basis)
    _checks.same_points(key=key, value=value, key_basis=key_basis)
    if query_weights is not None:
        query_weights = jnp.asarray(query_weights)
        check_weights(query=query, query_weights=query_weights)
    if key_weights is not None:
        key_weights = jnp.asarray(key_weights)
        check_weights(key=key, key_weights=key_weights)

    def coefficients(values: Array, basis: Array, weights: Array | None) -> Array:
        return project(values, basis, projection=projection, quadrature_weights=weights)

    queries = coefficients(query, query_basis, query_weights)
    if not projection.needs_gram:
        keys, values = (coefficients(a, key_basis, key_weights) for a in (key, value))
        return queries, keys, values
    # Keys and values share a Gram matrix: one product, and one system to solve.
    together = jnp.result_type(key, value)
    joined = jnp.concatenate([key.astype(together), value.astype(together)], axis=1)
    both = coefficients(joined, key_basis, key_weights)
    keys, values = jnp.split(both, [key.shape[1]], axis=1)
    return queries, keys.astype(key.dtype), values.astype(value.dtype)
