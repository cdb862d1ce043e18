"""Any basis with any attention among its coefficients, for Tables 7 and 12."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import nn
from opjax.nn.attention.bases import SoftmaxBasis
from opjax.nn.attention.heads import merge_heads
from opjax.nn.layers import MLP, LayerNorm, Linear

BASES = ("fourier", "orthonormal", "learned")
PROJECTIONS = ("mean", "transpose", "pseudo_inverse")
_PSEUDO_INVERSE_RIDGE = 1e-2  # relative to the mean square of the basis functions


def _functional(q, k, v, ridge):
    return opjax.transport(q, k, v, ridge=ridge, regularization="convex")


def _galerkin(q, k, v, ridge):
    del ridge
    return opjax.galerkin_attention(q, k, v) / k.shape[0]


def _softmax(q, k, v, ridge):
    del ridge
    return opjax.softmax_attention(q, k, v)


ATTENTIONS: dict[str, Callable[..., jax.Array]] = {
    "galerkin": _galerkin,
    "softmax": _softmax,
    "functional": _functional,
}


class ChosenAttention(nnx.Module):
    """Multi-head self-attention among coefficients in a chosen basis.

    Args:
      features: channels `c`.
      attention: one of `ATTENTIONS`.
      basis: one of `BASES`.
      projection: one of `PROJECTIONS`, how features become coefficients.
      num_heads: heads, dividing `features`.
      rngs: source of the initial parameters.
      **options: options of `SoftmaxBasis`.
    """

    def __init__(
        self,
        features: int,
        *,
        attention: str,
        basis: str,
        projection: str,
        num_heads: int,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        self.attention, self.choice, self.projection = attention, basis, projection
        width = features // num_heads
        self.basis = SoftmaxBasis(features, num_heads=num_heads, rngs=rngs, **options)
        self.query = Linear(width, width, use_bias=False, rngs=rngs)
        self.key = Linear(width, width, use_bias=False, rngs=rngs)
        self.value = Linear(width, width, use_bias=False, rngs=rngs)
        self.ridge_logit = nnx.Param(jnp.zeros((), jnp.float32))
        self.out = Linear(features, features, rngs=rngs)

    def __call__(self, x: jax.Array, fourier: jax.Array) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`, with Fourier modes `(n, k)` at hand."""
        values, learned = self.basis(x)
        ridge = jax.nn.sigmoid(self.ridge_logit[...])

        def head(values, phi):
            if self.choice == "fourier":
                phi = fourier
            elif self.choice == "orthonormal":
                phi = opjax.orthonormalize(phi)
            coefficients = self._coefficients(values, phi)
            maps = self.query, self.key, self.value
            q, k, v = (linear(coefficients) for linear in maps)
            attended = ATTENTIONS[self.attention](q, k, v, ridge)
            return opjax.reconstruct(attended, phi)

        return self.out(merge_heads(jax.vmap(head)(values, learned)))

    def _coefficients(self, values, phi):
        # Orthonormal functions have no mean to divide by.
        if self.choice != "learned":
            return opjax.project(values, phi)
        if self.projection == "pseudo_inverse":
            ridge = _PSEUDO_INVERSE_RIDGE * jnp.mean(jnp.sum(phi**2, axis=0))
            return opjax.project(values, phi, method="pseudo_inverse", ridge=ridge)
        weights = jnp.full(phi.shape[0], 1 / phi.shape[0], phi.dtype)
        return opjax.project(
            values, phi, quadrature_weights=weights, method=self.projection
        )


class ChosenBlock(nnx.Module):
    """A pre-norm block: attention, then a perceptron.

    Args:
      features: channels.
      mlp_ratio: width of the perceptron's hidden layer over `features`.
      rngs: source of the initial parameters.
      **options: options of `ChosenAttention`.
    """

    def __init__(
        self, features: int, *, mlp_ratio: int, rngs: nnx.Rngs, **options: Any
    ):
        self.attention_norm = LayerNorm(features)
        self.attention = ChosenAttention(features, rngs=rngs, **options)
        self.mlp_norm = LayerNorm(features)
        self.mlp = MLP(features, mlp_ratio * features, features, rngs=rngs)

    def __call__(self, z: jax.Array, fourier: jax.Array) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`, with Fourier modes `(n, k)` at hand."""
        z = z + self.attention(self.attention_norm(z), fourier)
        return z + self.mlp(self.mlp_norm(z))


class ChosenOperator(nnx.Module):
    """`OperatorTransformer` on a square grid with `ChosenAttention` in its blocks.

    Args:
      config: has the model fields of `experiments.darcy.Config`.
      attention: one of `ATTENTIONS`.
      basis: one of `BASES`.
      projection: one of `PROJECTIONS`.
      rngs: source of the initial parameters.
    """

    def __init__(
        self, config: Any, *, attention: str, basis: str, projection: str = "mean", rngs
    ):
        features, references = config.features, config.reference_points
        self.reference_points = references
        # The most square of modes that k functions hold.
        self.num_frequencies = max((int(config.num_basis**0.5) - 1) // 2, 1)
        positions = references**2 if references else 2
        num_basis = config.num_basis
        if basis == "fourier":
            num_basis = (2 * self.num_frequencies + 1) ** 2
        self.encoder = MLP(positions + 1, 2 * features, features, rngs=rngs)
        self.blocks = nnx.List(
            ChosenBlock(
                features,
                mlp_ratio=config.mlp_ratio,
                attention=attention,
                basis=basis,
                projection=projection,
                num_heads=config.num_heads,
                num_basis=num_basis,
                grid_shape=config.grid_shape if config.convolution else None,
                temperature=config.temperature,
                temperature_bounds=(config.min_temperature, config.max_temperature),
                rngs=rngs,
            )
            for _ in range(config.num_layers)
        )
        self.decoder_norm = LayerNorm(features)
        self.decoder = Linear(features, 1, rngs=rngs)

    def __call__(self, mesh_points: jax.Array, features: jax.Array) -> jax.Array:
        """Maps a coefficient `(n, 1)` at the points `(n, 2)` to a solution `(n, 1)`."""
        inputs = mesh_points
        if self.reference_points:
            inputs = nn.reference_distances(
                mesh_points, num_reference=self.reference_points
            )
        # Twice the domain: modes need not be periodic on it.
        fourier = opjax.fourier_basis(
            mesh_points, num_frequencies=self.num_frequencies, lengths=(2.0, 2.0)
        )
        fourier = fourier * mesh_points.shape[0] ** -0.5
        z = self.encoder(jnp.concatenate([inputs, features], axis=1))
        for block in self.blocks:
            z = block(z, fourier)
        return self.decoder(self.decoder_norm(z))
