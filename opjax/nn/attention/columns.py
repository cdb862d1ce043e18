"""Layers on blocks of points in column layout: features are `(c, m)`.

With points along the last axis, all matrix products have long rows, heads are split
without a copy, and sums over channels and basis functions are vectorised over points.
"""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import Moments
from opjax.nn.layers.linear import is_affine
from opjax.precision import product


def linear(layer: nnx.Linear, x: jax.Array) -> jax.Array:
    """Applies a linear map to features `(c, m)`."""
    if not is_affine(layer):
        return layer(x.T).T
    if layer.dot_general is lax.dot_general:
        y = layer.kernel[...].T @ x
    else:
        y = layer.dot_general(layer.kernel[...], x, (((0,), (0,)), ((), ())))
    return y if layer.bias is None else y + layer.bias[...][:, None]


@jax.custom_vjp
def softmax(scores: jax.Array) -> jax.Array:
    """Returns the softmax over axis 1 of scores `(h, k, m)`.

    On CPU, the differentiation rule of `jax.nn.softmax` would make a chunked step 5 %
    slower.
    """
    exponentials = jnp.exp(scores - jnp.max(scores, axis=1, keepdims=True))
    return exponentials / jnp.sum(exponentials, axis=1, keepdims=True)


def _softmax_forward(scores: jax.Array) -> tuple[jax.Array, jax.Array]:
    phi = softmax(scores)
    return phi, phi


def _softmax_backward(phi: jax.Array, cotangent: jax.Array) -> tuple[jax.Array]:
    mean = jnp.sum(phi * cotangent, axis=1, keepdims=True)
    return (phi * (cotangent - mean),)


softmax.defvjp(_softmax_forward, _softmax_backward)


def moments(
    values: jax.Array,
    phi: jax.Array,
    weights: jax.Array,
    *,
    with_gram: bool,
    compute_dtype: str | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    r"""Returns integrals `(h, k, d)`, masses `(h, k)` and Gram matrices of a chunk.

        Phi^T W f,    Phi^T w,    (Phi^T W Phi),

    as in `opjax.Moments` for every head; they add up over chunks.

    Args:
      values: features, shape `(h, d, m)`.
      phi: basis functions, shape `(h, k, m)`.
      weights: quadrature weights, shape `(m,)`; zero masks a point.
      with_gram: whether to compute Gram matrices `(h, k, k)`; None otherwise.
      compute_dtype: dtype to which factors of the integrals are rounded, if there are
        no Gram matrices.
    """
    gram, row = None, weights[None, None, :]
    if with_gram:
        weighted = phi * row
        precise = lax.Precision.HIGHEST
        gram = jnp.einsum("hkm,hlm->hkl", weighted, phi, precision=precise)
        compute_dtype = None  # the system and its right-hand side belong together
    ones = jnp.broadcast_to(row, (values.shape[0], 1, weights.shape[0]))
    both = jnp.concatenate([values * row, ones], axis=1)
    integrals = product("hkm,hdm->hkd", phi, both, compute_dtype)
    return integrals[..., :-1], integrals[..., -1], gram


def of_heads(
    found: tuple[jax.Array | None, ...], weight: jax.Array, count: jax.Array
) -> Moments:
    """Returns the moments of all heads, from the sums over all chunks."""
    integrals, masses, gram = found
    assert integrals is not None
    assert masses is not None
    heads = masses.shape[:1]
    weight, count = (jnp.broadcast_to(x, heads) for x in (weight, count))
    return Moments(integrals, masses, weight, count, gram)


def reconstruct(
    coefficients: jax.Array, phi: jax.Array, *, compute_dtype: str | None = None
) -> jax.Array:
    """Returns `Phi c` for all heads, `(h d, m)`, from coefficients `(h, k, d)`."""
    heads = product("hkd,hkm->hdm", coefficients, phi, compute_dtype)
    return heads.reshape(-1, phi.shape[2])
