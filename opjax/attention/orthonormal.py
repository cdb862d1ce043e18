"""Attention with a kernel whose eigenfunctions are orthonormalised features."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg
from opjax._jitted import jitted
from opjax.projection import check_weights, gram, moments
from opjax.quadrature import select


@jitted()
def feature_covariance(
    features: Float[ArrayLike, "n k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "k k"]:
    r"""Returns the mean of the products of features, without centring.

        R = sum_i w_i psi_i psi_i^T / sum_i w_i.

    The covariance of several samples with equally many points is the mean of their
    covariances.

    Args:
      features: features `psi` at the points, shape `(n, k)`.
      quadrature_weights: weights `w`, shape `(n,)`; ones by default. Zero masks a
        point; a common factor cancels.

    Returns:
      The covariance, shape `(k, k)`; zero if all points are masked; float32 for
      half-precision features.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the points do not match or a weight is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.attention import feature_covariance
      >>> feature_covariance(np.array([[1.0, 0.0], [1.0, 2.0]])).tolist()
      [[1.0, 1.0], [1.0, 2.0]]

    References:
      Xiao et al., "Improved operator learning by orthogonal attention", ICML 2024
      (arXiv:2310.12487).
    """
    (features,) = _checks.arrays(2, features=features)
    features = linalg.at_least_single(features)
    products = gram(features, quadrature_weights=quadrature_weights)
    if quadrature_weights is None:
        return products / features.shape[0]
    total = jnp.sum(jnp.asarray(quadrature_weights)).astype(products.dtype)
    return products / jnp.where(total > 0, total, 1)


@jitted()
def orthonormal_attention(
    value: Float[ArrayLike, "n c"],
    features: Float[ArrayLike, "n k"],
    gains: Float[ArrayLike, " k"],
    *,
    covariance: Float[ArrayLike, "k k"] | None = None,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "n c"]:
    r"""Applies a kernel with orthonormalised features as its eigenfunctions.

        Phi diag(g) Phi^T W V,    Phi = Psi L^{-T},    R = L L^T,

    where `R` is the covariance of the features `Psi`, over this sample or over many, so
    that the functions `Phi` are orthonormal on average over all their points. The sum
    over points is not divided by their number, and `W` has mean one: the gains `g` are
    eigenvalues divided by the number of points. If rounding makes `R` indefinite, 1e-8
    times 1, 10, ... is added to its diagonal, 1e-6 in single precision.

    Complexity: `O(n k^2 + n k c)`.

    Args:
      value: features to filter, at the mesh points, shape `(n, c)`.
      features: features `Psi` of the mesh points, shape `(n, k)`.
      gains: one gain per eigenfunction, shape `(k,)`.
      covariance: covariance `R`, shape `(k, k)`; by default `feature_covariance` of
        these features.
      quadrature_weights: weights of the mesh points, shape `(n,)`; ones by default.
        Zero masks a point; a common factor cancels.

    Returns:
      The filtered features at the mesh points, shape `(n, c)`; zero at masked points.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or features do not match or a weight is negative.

    Examples:
      >>> import jax
      >>> import numpy as np
      >>> from opjax.attention import orthonormal_attention
      >>> value, features = jax.random.normal(jax.random.key(0), (2, 50, 4))
      >>> orthonormal_attention(value, features, np.ones(4)).shape
      (50, 4)

    References:
      Xiao et al., "Improved operator learning by orthogonal attention", ICML 2024
      (arXiv:2310.12487).
    """
    value, features = _checks.arrays(2, value=value, features=features)
    (gains,) = _checks.arrays(1, gains=gains)
    _checks.same_points(value=value, features=features)
    weights = None
    if quadrature_weights is not None:
        weights = check_weights(quadrature_weights, value=value)
        features = select(features, weights)
    if covariance is None:
        covariance = feature_covariance(features, quadrature_weights=weights)
    covariance = jnp.asarray(covariance)
    _checks.floating(covariance=covariance)
    k = features.shape[1]
    if covariance.shape != (k, k) or gains.shape != (k,):
        raise ValueError(
            f"covariance {covariance.shape} and gains {gains.shape} must have shapes "
            f"{(k, k)} and {(k,)} for features {features.shape}."
        )
    functions = linalg.whiten(features, covariance).astype(value.dtype)
    sums = moments(value, functions, quadrature_weights=weights)
    means = sums.integrals / sums.unit.astype(value.dtype)
    return functions @ (gains.astype(value.dtype)[:, None] * means)
