"""Attention that amplifies the modes of an orthonormal basis."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, basis
from opjax._jitted import jitted
from opjax.attention._arguments import check_weights, features
from opjax.projection import InnerProducts, project, reconstruct
from opjax.quadrature import select


@jitted(static=("orthonormalization",))
def orthogonal_attention(
    query: Float[ArrayLike, "k c"],
    key: Float[ArrayLike, "k c"],
    value: Float[ArrayLike, "n c"],
    key_basis: Float[ArrayLike, "n k"],
    *,
    key_weights: Float[ArrayLike, " n"] | None = None,
    orthonormalization: str = "qr",
) -> Float[Array, "n c"]:
    r"""Projects values to an orthonormal basis and amplifies the modes by attention.

        Phi (c + a * c),   c = Phi^T W V,   a = softmax(tanh(q * k / sqrt(d_k))),

    with entrywise products, the softmax over the `d_k` modes, and `Phi` the
    orthonormalised basis. Queries and keys are features of modes, not of points: `d_k`
    numbers per channel, which are linear functionals of the input. The documented layer
    has one channel; the caller adds a learned map at the points, a bypass and an
    activation. It allows any `d_k`, but its product of `a` and `c` needs one number per
    basis function: other lengths raise an error.

    Complexity: `O(n k^2 + n k c)`.

    Args:
      query: features of the modes, shape `(k, c)`.
      key: features of the modes, shape `(k, c)`.
      value: features to filter, at the mesh points, shape `(n, c)`.
      key_basis: linearly independent basis functions at the mesh points, shape `(n,
        k)`, which are orthonormalised.
      key_weights: quadrature weights `W = diag(w)` of the mesh points, shape `(n,)`;
        ones by default, zero masks a point.
      orthonormalization: `"qr"` or `"cholesky"`, see `basis.orthonormalize`.

    Returns:
      The filtered features at the mesh points, shape `(n, c)`; zero at masked points.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if points or channels do not match, there is not one query and key per
        basis function, there are fewer points than basis functions, a weight is
        negative, or the orthonormalisation is unknown.

    Examples:
      >>> import jax
      >>> from opjax.attention import orthogonal_attention
      >>> v, basis = jax.random.normal(jax.random.key(0), (2, 50, 4))
      >>> q, k = jax.random.normal(jax.random.key(1), (2, 4, 4))  # of modes
      >>> orthogonal_attention(q, k, v, basis).shape
      (50, 4)

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """
    query, key, value = features(query=query, key=key, value=value)
    (raw,) = _checks.arrays(2, key_basis=key_basis)
    _checks.same_points(value=value, key_basis=raw)
    _checks.option("orthonormalization", orthonormalization, basis.ORTHONORMALIZATIONS)
    for name, modes in (("query", query), ("key", key)):
        if modes.shape[0] != raw.shape[1]:
            raise ValueError(
                f"{name} {modes.shape} has {modes.shape[0]} modes (axis 0), key_basis "
                f"{raw.shape} has {raw.shape[1]} functions (axis 1); every basis "
                "function needs its own query and key."
            )
    weights = None
    if key_weights is not None:
        weights = jnp.asarray(key_weights)
        check_weights(key_weights=weights, value=value)
    orthonormal = basis.orthonormalize(
        raw, quadrature_weights=weights, method=orthonormalization
    )
    coefficients = project(
        select(value, weights),
        orthonormal,
        projection=InnerProducts(),
        quadrature_weights=weights,
    )
    gains = mode_gains(query, key).astype(value.dtype)
    return reconstruct(gains * coefficients, orthonormal)


@jitted()
def mode_gains(
    query: Float[ArrayLike, "k c"], key: Float[ArrayLike, "k c"]
) -> Float[Array, "k c"]:
    r"""Returns the gains of modes, in [1, 2], larger if query and key agree.

        1 + softmax(tanh(q * k / sqrt(d_k))),

    with entrywise products and the softmax over the `d_k` modes.

    Args:
      query: features of the modes, shape `(k, c)`.
      key: features of the modes, shape `(k, c)`.

    Returns:
      A gain for every mode and channel, shape `(k, c)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if modes or channels do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.attention import mode_gains
      >>> mode_gains(np.zeros((4, 1)), np.zeros((4, 1)))[:, 0].tolist()
      [1.25, 1.25, 1.25, 1.25]

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """
    query, key = features(query=query, key=key)
    _checks.same_axis(0, "modes (axis 0)", {"query": query, "key": key})
    scores = jnp.tanh(query.shape[0] ** -0.5 * query * key)
    return 1 + jax.nn.softmax(scores, axis=0)
