"""Softmax attention among slices of any mesh, the Physics-Attention of Transolver."""

import jax
import jax.numpy as jnp

import opjax
from opjax.nn.attention import BasisAttention, CoefficientMaps, means


class TokenMaps(CoefficientMaps):
    """Maps of coefficients that attend to each other by a softmax."""

    def transport(
        self, query: jax.Array, key: jax.Array, value: jax.Array
    ) -> jax.Array:
        """Returns averages `(k, d)` of `value` by the softmax of query and key."""
        return opjax.softmax_attention(query, key, value)

    def functional_map(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
    ) -> jax.Array:
        """Returns the stochastic matrix `(k, k)` that averages the coefficients."""
        coefficients = means(values, phi, quadrature_weights)
        identity = jnp.eye(phi.shape[1], dtype=coefficients.dtype)
        return opjax.softmax_attention(
            self.query(coefficients), self.key(coefficients), identity
        )


class PhysicsAttention(BasisAttention, TokenMaps):
    r"""Multi-head softmax self-attention among coefficients in a learned basis.

    Per head, with features `f` and basis `Phi` from a `LearnedBasis`,

        S = D^{-1} Phi^T W f,    y = Phi C (S W_v),
        C = softmax(Q K^T / sqrt(d)),    Q = S W_q, K = S W_k,

    with the weighted means `S` of `BasisAttention`: `FunctionalAttention` whose map of
    coefficients averages instead of solving. The paper calls basis functions slices
    and their coefficients tokens.

    Args and errors are those of `BasisAttention`. Published models clip temperatures on
    grids and not on other meshes, `temperature_bounds=None`.

    References:
      Wu et al., "Transolver", 2024, Eq. 1-4.
    """
