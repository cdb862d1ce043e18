"""Initialisers of the papers that JAX does not have."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from opjax import _checks
from opjax.nn.layers import Initializer


def diagonal_xavier(scale: float = 1e-2, diagonal: float = 1e-2) -> Initializer:
    r"""Returns the initialiser of square matrices with a dominant diagonal.

        W = scale U + diagonal I,    U_ij ~ U(-sqrt(3 / d), sqrt(3 / d)).

    Attention without a softmax then starts near `x^T x` scaled by small numbers.

    Args:
      scale: weight `eta` of the random part.
      diagonal: weight `delta` of the identity.

    Returns:
      An initialiser of `d x d` matrices; it raises ValueError for other shapes.

    Raises:
      ValueError: if a weight is negative or not finite.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 17.
    """
    _checks.non_negative(scale=scale, diagonal=diagonal)
    xavier = jax.nn.initializers.xavier_uniform()

    def init(key: jax.Array, shape: Sequence[int], dtype=jnp.float32) -> jax.Array:
        shape = tuple(shape)
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"{shape=} must be square: the diagonal is an identity.")
        return scale * xavier(key, shape, dtype) + diagonal * jnp.eye(
            *shape, dtype=dtype
        )

    return init
