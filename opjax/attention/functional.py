"""Functional attention: coefficients, a small map between them, reconstruction."""

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg
from opjax._jitted import jitted
from opjax.attention._arguments import check_weights, features
from opjax.attention.bases import coefficients_of
from opjax.linalg import Additive, Convex, Ridge, check_ridge
from opjax.projection import InnerProducts, Projection, check_projection, reconstruct
from opjax.quadrature import active, select


class MapBetweenBases(NamedTuple):
    """A functional map and its two bases, for inspection.

    Attributes:
      functional_map: the operator between coefficients, shape `(kq, kk)`.
      query_basis: basis functions at the query points, shape `(m, kq)`.
      key_basis: basis functions at the mesh points, shape `(n, kk)`.

    Examples:
      >>> import jax
      >>> from opjax.attention import functional_attention_map
      >>> q, k, scores = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> phi = jax.nn.softmax(scores)
      >>> found = functional_attention_map(q, k, phi, phi, ridge=1e-3)
      >>> found.functional_map.shape, found.key_basis.shape
      ((4, 4), (50, 4))
    """

    functional_map: Float[Array, "kq kk"]
    query_basis: Float[Array, "m kq"]
    key_basis: Float[Array, "n kk"]


@jitted(ridge=check_ridge)
def functional_map(
    query: Float[ArrayLike, "kq d"],
    key: Float[ArrayLike, "kk d"],
    *,
    ridge: Ridge,
) -> Float[Array, "kq kk"]:
    r"""Returns the linear operator that maps key coefficients to query coefficients.

        C = argmin_C |C K - Q|_F^2 + ridge |C|_F^2 = Q K^T (K K^T + ridge I)^{-1}.

    With `Convex(ridge)`, `C = Q K^T ((1 - ridge) K K^T + ridge I)^{-1}`, as in the
    reference code. It is `1 + e` times the additive map of weight `e = ridge / (1 -
    ridge)`.

    Args:
      query: query coefficients, shape `(kq, d)`.
      key: key coefficients, shape `(kk, d)`.
      ridge: Tikhonov weight, or `Additive` or `Convex`, see `linalg.ridge_solve`.

    Returns:
      The functional map, shape `(kq, kk)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if channels do not match, or as from `linalg.ridge_solve`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.attention import functional_map
      >>> key = jnp.eye(3)
      >>> query = 2 * key  # the map doubles
      >>> float(functional_map(query, key, ridge=0.0)[0, 0])
      2.0

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 6 and 7.
      Ovsjanikov et al., "Functional Maps", ACM TOG 31(4), 2012.
    """
    query, key = features(query=query, key=key)
    identity = jnp.eye(key.shape[0], dtype=key.dtype)
    return query @ linalg.ridge_solve(key, identity, ridge=ridge)


@jitted(ridge=check_ridge)
def transport(
    query: Float[ArrayLike, "kq d"],
    key: Float[ArrayLike, "kk d"],
    value: Float[ArrayLike, "kk c"],
    *,
    ridge: Ridge,
) -> Float[Array, "kq c"]:
    r"""Applies the functional map to coefficients without forming it.

        C V = Q X,    X = argmin_X |K X - V|_F^2 + ridge |X|_F^2,

    with a linear system of `min(kk, d)` unknowns and `c` right-hand sides.

    Args:
      query: query coefficients, shape `(kq, d)`.
      key: key coefficients, shape `(kk, d)`.
      value: coefficients to transport, shape `(kk, c)`.
      ridge: Tikhonov weight, as in `functional_map`.

    Returns:
      The transported coefficients, shape `(kq, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if channels or basis functions do not match, or as from
        `linalg.ridge_solve`.

    Examples:
      >>> import numpy as np
      >>> from opjax.attention import transport
      >>> key, value = np.eye(2), np.array([[1.0], [2.0]])
      >>> transport(2 * key, key, value, ridge=0.0).tolist()  # the map doubles
      [[2.0], [4.0]]

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 8 and App. B.1.
    """
    query, key = features(query=query, key=key)
    (value,) = _checks.arrays(2, value=value)
    _checks.same_basis(key=key, value=value)
    return query @ linalg.ridge_solve(key, value, ridge=ridge)


@jitted(ridge=check_ridge, projection=check_projection)
def functional_attention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    query_basis: Float[ArrayLike, "m kq"],
    key_basis: Float[ArrayLike, "n kk"],
    *,
    ridge: Ridge,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
    projection: Projection = InnerProducts(),
) -> Float[Array, "m c"]:
    r"""Transports `value` from mesh points to query points by a functional map.

        FuncAttn(Q, K, V) = Phi [Qc Kc^T (Kc Kc^T + ridge I)^{-1}] Vc,

    where `Qc, Kc, Vc` are the coefficients of the features in the bases. The linear
    system is small for any number of points. It equals `basis_attention` with
    `transport`. For self-attention, pass the same points and basis twice;
    `functional_attention_map` returns the map.

    The defaults are those of the paper's text. The layer `nn.FunctionalAttention`
    follows the paper's code, which equals this function with `projection=Means()` and
    `ridge=Convex(r)`:

    | | default here | `nn.FunctionalAttention` |
    |---|---|---|
    | ridge | given | learned, `sigmoid(ridge_logit)` |
    | system | of a number: `K K^T + r I` | `Convex`: `(1 - r) K K^T + r I` |
    | projection | `InnerProducts()` | `Means()` |
    | weights left out | ones: coefficients grow with `n` | equal ones cancel |
    | query, key, value | features of points | linear maps of one set of means |

    The default projection of `basis_attention` and `physics_attention` is `Means`.

    Complexity: `O((m + n) d k + d k min(k, d) + min(k, d)^3)`.

    Args:
      query: features at the `m` query points, shape `(m, d)`.
      key: features at the `n` mesh points, shape `(n, d)`.
      value: features to transport, at the mesh points, shape `(n, c)`.
      query_basis: basis functions at the query points, shape `(m, kq)`.
      key_basis: basis functions at the mesh points, shape `(n, kk)`.
      ridge: Tikhonov weight of the map, in squared units of the coefficients, or
        `Additive` or `Convex`, see `functional_map`.
      query_weights: quadrature weights of the query points, shape `(m,)`. With weights,
        the coefficients converge under mesh refinement; zero masks a point.
      key_weights: quadrature weights of the mesh points, shape `(n,)`.
      projection: computes coefficients from features, see `projection.project`.

    Returns:
      The transported features at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point or the projection is a name.
      ValueError: if points or channels do not match, or a weight or a ridge is
        negative.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.attention import functional_attention
      >>> x = jnp.linspace(0, 1, 50)[:, None]
      >>> phi = jnp.maximum(0, 1 - jnp.abs(5 * x - jnp.arange(6.0)))  # hats
      >>> q = k = jnp.cos(x * jnp.arange(6.0))
      >>> functional_attention(q, k, jnp.exp(x), phi, phi, ridge=1e-3).shape
      (50, 1)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-8.
    """
    q, k, v = coefficients_of(
        *(query, key, value, query_basis, key_basis),
        query_weights=query_weights,
        key_weights=key_weights,
        projection=projection,
    )
    return reconstruct(transport(q, k, v, ridge=ridge), query_basis)


@jitted(ridge=check_ridge, projection=check_projection)
def functional_attention_map(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    query_basis: Float[ArrayLike, "m kq"],
    key_basis: Float[ArrayLike, "n kk"],
    *,
    ridge: Ridge,
    query_weights: Float[ArrayLike, " m"] | None = None,
    key_weights: Float[ArrayLike, " n"] | None = None,
    projection: Projection = InnerProducts(),
) -> MapBetweenBases:
    r"""Returns the functional map of `functional_attention`, with its bases.

        FuncAttn(Q, K, V) = Phi C Vc,    C = Qc Kc^T (Kc Kc^T + ridge I)^{-1}.

    Args:
      query: see `functional_attention`, also for the other arguments.
      key: features at the mesh points.
      query_basis: basis functions at the query points.
      key_basis: basis functions at the mesh points.
      ridge: Tikhonov weight of the map.
      query_weights: quadrature weights of the query points.
      key_weights: quadrature weights of the mesh points.
      projection: computes coefficients from features.

    Returns:
      The map `(kq, kk)` and its two bases.

    Raises:
      TypeError: as `functional_attention`.
      ValueError: as `functional_attention`.

    Examples:
      >>> import jax
      >>> from opjax.attention import functional_attention_map
      >>> q, k, scores = jax.random.normal(jax.random.key(0), (3, 50, 4))
      >>> phi = jax.nn.softmax(scores)
      >>> functional_attention_map(q, k, phi, phi, ridge=1e-3).functional_map.shape
      (4, 4)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 6 and 7.
    """
    bases = jnp.asarray(query_basis), jnp.asarray(key_basis)
    q, k, _ = coefficients_of(
        *(query, key, key, *bases),
        query_weights=query_weights,
        key_weights=key_weights,
        projection=projection,
    )
    return MapBetweenBases(functional_map(q, k, ridge=ridge), *bases)


@jitted(ridge=check_ridge)
def intention(
    query: Float[ArrayLike, "m d"],
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    ridge: Ridge,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "m c"]:
    r"""Predicts values at the queries by a ridge regression of values on keys.

        Intention(Q, K, V) = Q (K^T W K + ridge I_d)^{-1} K^T W V,

    which is functional attention with any orthonormal basis of all functions on the
    mesh. The smaller of the `d x d` and `n x n` systems is solved.

    Args:
      query: features at the query points, shape `(m, d)`.
      key: features at the mesh points, shape `(n, d)`.
      value: features to transport, shape `(n, c)`.
      ridge: Tikhonov weight, in squared units of the keys (times the units of the
        weights); a relative one in units of `trace(K^T W K) / d`.
      key_weights: quadrature weights `W = diag(w)` of the mesh points, shape `(n,)`;
        ones by default, zero masks a point.

    Returns:
      The predictions at the query points, shape `(m, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match, or a weight or the ridge is
        negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.attention import intention
      >>> key, value = np.array([[1.0], [2.0]]), np.array([[2.0], [4.0]])  # y = 2 x
      >>> round(float(intention(np.array([[5.0]]), key, value, ridge=0.0)[0, 0]), 3)
      10.0

    References:
      Garnelo and Czarnecki, "Exploring the space of key-value-query models with
      intention", 2023; Xiao et al., 2026, Eq. 46 and Prop. A.4.
    """
    query, key = features(query=query, key=key)
    return query @ intention_coefficients(
        key, value, ridge=ridge, key_weights=key_weights
    )


def intention_coefficients(
    key: Float[ArrayLike, "n d"],
    value: Float[ArrayLike, "n c"],
    *,
    ridge: Ridge,
    key_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "d c"]:
    """Returns the coefficients of `intention`, `(K^T W K + ridge I)^{-1} K^T W V`."""
    key, value = _checks.arrays(2, key=key, value=value)
    _checks.same_points(key=key, value=value)
    if key_weights is not None:
        weights = jnp.asarray(key_weights)
        check_weights(key_weights=weights, key=key)
        root = jnp.sqrt(jnp.where(active(weights), weights, 1))[:, None]
        key, value = (root.astype(a.dtype) * select(a, weights) for a in (key, value))
    if not isinstance(ridge, Additive | Convex) or not ridge.relative:
        return linalg.ridge_solve(key, value, ridge=ridge)
    # The mean eigenvalue of K^T W K, which masked points do not change.
    wide = linalg.at_least_single(key)
    unit = jnp.sqrt(jnp.sum(wide**2) / key.shape[1] + linalg.SMALLEST_UNIT)
    ridge = dataclasses.replace(ridge, relative=False)
    solution = linalg.ridge_solve(wide / unit, value, ridge=ridge)
    return (solution / unit).astype(value.dtype)


def regression(
    gram: Float[Array, "d d"], products: Float[Array, "d c"], *, ridge: ArrayLike
) -> Float[Array, "d c"]:
    """Solves for the coefficients of `intention` from `K^T W K` and `K^T W V`.

    Both matrices are sums over the points, so those of several chunks can be added.
    The arguments are not checked.
    """
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    system = gram + jnp.asarray(ridge, gram.dtype) * identity
    return linalg.solve(system, products)
