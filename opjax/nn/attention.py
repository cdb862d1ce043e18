"""Multi-head functional attention on irregular points and uniform grids."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax.nn.layers import GridConvolution, Linear, fan_in_uniform


class LearnedBasis(nnx.Module):
    """Features to expand and the softmax basis to expand them in, for every head.

    Two projections of the input, pointwise or 3 x ... x 3 convolutional, give the
    features and what the basis is computed from; one linear map from head width to
    scores serves all heads.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`, dividing `features`.
      num_basis: basis functions `k` per head.
      grid_shape: points per axis of a uniform grid for convolutional projections;
        `None` for pointwise projections on any mesh.
      temperature: initial temperature of the softmax, one per head.
      temperature_bounds: the range temperatures are clipped to, or `None`.
      rngs: source of the initial parameters; the map to scores starts orthogonal.

    Raises:
      ValueError: if the heads do not divide the features.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        grid_shape: Sequence[int] | None = None,
        temperature: float = 0.5,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rngs: nnx.Rngs,
    ):
        width = _head_width(features, num_heads)
        self.num_heads = num_heads
        self.temperature_bounds = temperature_bounds
        if grid_shape is None:
            init = fan_in_uniform(features)
            self.projection = Linear(
                features, 2 * features, kernel_init=init, bias_init=init, rngs=rngs
            )
        else:
            self.projection = GridConvolution(
                features, 2 * features, grid_shape=grid_shape, rngs=rngs
            )
        self.scores = Linear(
            width,
            num_basis,
            kernel_init=jax.nn.initializers.orthogonal(),
            bias_init=fan_in_uniform(width),
            rngs=rngs,
        )
        self.temperature = nnx.Param(jnp.full(num_heads, temperature))

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Maps `(n, c)` to features `(h, n, c / h)` and basis functions `(h, n, k)`."""
        both = split_heads(self.projection(x), 2 * self.num_heads)
        values, score_features = both[: self.num_heads], both[self.num_heads :]
        h, n, d = score_features.shape
        # One flat product: the weight gradient of a batched one is much slower.
        scores = self.scores(score_features.reshape(h * n, d)).reshape(h, n, -1)
        temperature = self.temperature[...]
        if self.temperature_bounds is not None:
            temperature = jnp.clip(temperature, *self.temperature_bounds)
        basis = jax.vmap(lambda s, tau: opjax.softmax_basis(s, temperature=tau))(
            scores, temperature
        )
        return values, basis


class FunctionalAttention(nnx.Module):
    r"""Multi-head functional self-attention in a learned basis.

    Per head, with features `f` and basis `Phi` from a `LearnedBasis`,

        S = D^{-1} Phi^T f,    y = Phi C (S W_v),
        C = Q K^T ((1 - a) K K^T + a I)^{-1},    Q = S W_q, K = S W_k,

    where `D = diag(Phi^T 1)` makes coefficients weighted means, which converge under
    mesh refinement, `a = sigmoid(ridge_logit)` is learned and `W_q, W_k, W_v` are
    shared by the heads. In the notation of the paper this is the ridge
    `exp(ridge_logit)` and a factor `1 + exp(ridge_logit)`.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features`.
      num_basis: basis functions per head.
      grid_shape: see `LearnedBasis`.
      shared_basis: whether a basis module is passed with every call, for sharing it
        across layers, rather than owned.
      ridge_logit: initial value of the learned logit.
      temperature_bounds: see `LearnedBasis`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features.

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9 and App. C.2.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        grid_shape: Sequence[int] | None = None,
        shared_basis: bool = False,
        ridge_logit: float = 0.0,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rngs: nnx.Rngs,
    ):
        width = _head_width(features, num_heads)
        self.basis = (
            None
            if shared_basis
            else LearnedBasis(
                features,
                num_heads=num_heads,
                num_basis=num_basis,
                grid_shape=grid_shape,
                temperature_bounds=temperature_bounds,
                rngs=rngs,
            )
        )
        self.query = Linear(width, width, use_bias=False, rngs=rngs)
        self.key = Linear(width, width, use_bias=False, rngs=rngs)
        self.value = Linear(width, width, use_bias=False, rngs=rngs)
        self.ridge_logit = nnx.Param(jnp.asarray(ridge_logit, jnp.float32))
        self.out = Linear(features, features, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`; see `coefficients` for the arguments."""
        values, phi = self._basis(basis)(x)
        query, key, value = self._coefficients(values, phi, quadrature_weights)
        ridge = jax.nn.sigmoid(self.ridge_logit[...])

        def transport(q, k, v):
            return opjax.transport(q, k, v, ridge=ridge, regularization="convex")

        transported = jax.vmap(transport)(query, key, value)
        return self.out(merge_heads(jax.vmap(opjax.reconstruct)(transported, phi)))

    def inspect(
        self,
        x: jax.Array,
        *,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> opjax.Transport:
        """Returns the functional maps `(h, k, k)` and bases `(h, n, k)` of a call."""
        values, phi = self._basis(basis)(x)
        query, key, _ = self._coefficients(values, phi, quadrature_weights)
        ridge = jax.nn.sigmoid(self.ridge_logit[...])

        def functional_map(q, k):
            return opjax.functional_map(q, k, ridge=ridge, regularization="convex")

        return opjax.Transport(jax.vmap(functional_map)(query, key), phi, phi)

    def _basis(self, shared: LearnedBasis | None) -> LearnedBasis:
        if (shared is None) == (self.basis is None):
            raise ValueError(
                "Pass `basis` to a layer built with shared_basis=True and to no other."
            )
        return self.basis if shared is None else shared

    def _coefficients(self, values, phi, quadrature_weights):
        def project(f, p):
            return opjax.project(
                f, p, quadrature_weights=quadrature_weights, method="mean"
            )

        coefficients = jax.vmap(project)(values, phi)
        return (
            self.query(coefficients),
            self.key(coefficients),
            self.value(coefficients),
        )


def split_heads(x: jax.Array, num_heads: int) -> jax.Array:
    """Turns `(n, h d)` into `(h, n, d)`; the head index is the slow one."""
    n, channels = x.shape
    return x.reshape(n, num_heads, channels // num_heads).swapaxes(0, 1)


def merge_heads(x: jax.Array) -> jax.Array:
    """Turns `(h, n, d)` back into `(n, h d)`."""
    h, n, d = x.shape
    return x.swapaxes(0, 1).reshape(n, h * d)


def _head_width(features: int, num_heads: int) -> int:
    if num_heads < 1 or features % num_heads:
        raise ValueError(f"{num_heads=} must divide {features=}.")
    return features // num_heads
