"""Variances of ridge regression in closed form."""

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, linalg


def ridge_variance(
    query: Float[ArrayLike, "m k"],
    key: Float[ArrayLike, "k n"],
    *,
    ridge: ArrayLike,
    noise_variance: ArrayLike = 1.0,
) -> Float[Array, " m"]:
    r"""Variance of the predictions of a ridge regression.

        sigma^2 q_j (K K^T + ridge I_k)^{-1} q_j^T,

    with one number for each row `q_j` of the query. With `n` observations `y = K^T c +
    e` of `k` coefficients, noise `e` of variance `sigma^2` and a prior variance
    `sigma^2 / ridge` of the coefficients, it is the posterior variance of `q_j c`: the
    ridge regression `ridge_solve(K^T, y, ridge=ridge)` is the mean of the same
    posterior. A new observation has an additional variance `sigma^2`.

    It depends on the locations of the observations, not on their values: it is only as
    accurate as the linear model, its ridge and its noise. To use it for an
    attention layer, pass the coefficients `(k, d)` of its keys as `key`, and its ridge.

    Args:
      query: basis functions or features at the prediction points, shape `(m, k)`.
      key: the same at the `n` observations, shape `(k, n)`.
      ridge: Tikhonov weight, in squared units of `key`; positive, unless the key has
        full rank. A traced value is not checked.
      noise_variance: noise variance `sigma^2`, in squared units of the values.

    Returns:
      The non-negative variances, shape `(m,)`; NaN if the system is singular.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, or a number is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import ridge_variance
      >>> round(float(ridge_variance(np.eye(1), np.eye(1), ridge=1.0)[0]), 4)
      0.5

    References:
      Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006,
      section 2.1.
    """
    query, key = jnp.asarray(query), jnp.asarray(key)
    _checks.floating(query=query, key=key)
    _checks.rank(2, query=query, key=key)
    if query.shape[1] != key.shape[0]:
        raise ValueError(
            f"query {query.shape} must have one column for each row of key "
            f"{key.shape}, for the same k functions."
        )
    _checks.single_numbers(ridge=ridge, noise_variance=noise_variance)
    _checks.non_negative(ridge=ridge, noise_variance=noise_variance)
    single = linalg.at_least_single(key)
    gram = jnp.matmul(single, single.T, precision=lax.Precision.HIGHEST)
    identity = jnp.eye(gram.shape[0], dtype=gram.dtype)
    system = gram + jnp.asarray(ridge, gram.dtype) * identity
    rows = linalg.at_least_single(query).astype(gram.dtype)
    # With L L^T the system, q L^{-T} has the squared norm that is wanted: no difference
    # of large numbers, and never negative.
    white = linalg.whiten(rows, system, repair=False)
    scale = jnp.asarray(noise_variance, gram.dtype)
    return (scale * jnp.sum(white * white, axis=1)).astype(query.dtype)
