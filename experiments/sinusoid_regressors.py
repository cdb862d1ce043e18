"""Regression from a few observations: attention of queries to observed points.

All regressors have one signature, `model(context_points (n, p), context_values (n, q),
query_points (m, p)) -> (m, q)`, for one task and any number of observations; the
keyword `context_weights (n,)` weighs them, and zero masks one.
"""

import math

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks
from opjax.attention._arguments import check_weights, log_weights, select
from opjax.nn.attention.heads import split_heads
from opjax.nn.layers import MLP, Initializer, Linear, fan_in_uniform


class _TokenRegressor(nnx.Module):
    """Averages of encoded observations, one for each basis function on the context."""

    def __init__(self, features, *, point_dim, num_basis, kernel_init, rngs):
        _checks.positive(features=features, num_basis=num_basis)
        self.encoder = relu_perceptron(
            point_dim, features, features, kernel_init=kernel_init, rngs=rngs
        )
        # The bias cancels in a softmax over points; the reference code counts it.
        self.scores = Linear(
            features,
            num_basis,
            kernel_init=kernel_init or jax.nn.initializers.orthogonal(),
            bias_init=jax.nn.initializers.zeros
            if kernel_init
            else fan_in_uniform(features),
            rngs=rngs,
        )
        self.temperature = nnx.Param(jnp.asarray(0.5, jnp.float32))

    def tokens(
        self, points: jax.Array, values: jax.Array, weights: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns coefficients of features `(k, d)` and of values `(k, q)`."""
        encoded = self.encoder(points)
        scores = self.scores(encoded) / jnp.clip(self.temperature[...], 0.1, 5.0)
        basis = jax.nn.softmax(scores + log_weights(weights, scores.dtype).T, axis=0)
        return (
            opjax.project(encoded, basis, method="mean"),
            opjax.project(values, basis),
        )


class FunctionalRegressor(_TokenRegressor):
    r"""Functional attention from queries to observations.

    With one encoder `f`, a four-layer perceptron, and a basis on the context points,

        W = softmax over points of (f(x) A + b) / clip(temperature, 0.1, 5),
        S = W^T f(x) / (1 + 1e-5),   V = W^T y,
        y(x_q) = C V,   C = f(x_q) S^T ((1 - r) S S^T + r I)^{-1}.

    Args:
      features: channels of the encoder.
      num_basis: basis functions.
      ridge: fixed weight `r` of the convex regularisation, between zero and one.
      point_dim: coordinates `p` of a point.
      rngs: source of the initial parameters, N(0, 0.01^2) and zero biases.

    References:
      Xiao et al., "Functional Attention", 2026, Section 5.1 and App. C.1.
    """

    def __init__(
        self,
        features: int,
        *,
        num_basis: int,
        ridge: float,
        point_dim: int = 1,
        rngs: nnx.Rngs,
    ):
        _checks.non_negative(ridge=ridge)
        _checks.at_most(1, ridge=ridge)
        self.ridge = ridge
        super().__init__(
            features,
            point_dim=point_dim,
            num_basis=num_basis,
            kernel_init=jax.nn.initializers.normal(0.01),
            rngs=rngs,
        )

    def __call__(
        self,
        context_points: jax.Array,
        context_values: jax.Array,
        query_points: jax.Array,
        *,
        context_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts values `(m, q)` at the query points."""
        context = observations(context_points, context_values, context_weights)
        key, value = self.tokens(*context, context_weights)
        return opjax.transport(
            self.encoder(query_points),
            key,
            value,
            ridge=self.ridge,
            regularization="convex",
        )


class TransolverRegressor(_TokenRegressor):
    r"""Softmax attention from queries to the tokens of `FunctionalRegressor`.

        y(x_q) = softmax(f(x_q) S^T / sqrt(d / h)) V.

    Args:
      features: channels `d` of the encoder.
      num_basis: tokens.
      num_heads: the number `h`, of the scale only.
      point_dim: coordinates `p` of a point.
      rngs: source of the initial parameters, U(-b, b) with `b = fan_in^{-1/2}`; the
        map to scores starts orthogonal.

    References:
      Wu et al., "Transolver", 2024; Xiao et al., 2026, App. C.1.
    """

    def __init__(
        self,
        features: int,
        *,
        num_basis: int,
        num_heads: int,
        point_dim: int = 1,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_heads=num_heads)
        self.num_heads = num_heads
        super().__init__(
            features,
            point_dim=point_dim,
            num_basis=num_basis,
            kernel_init=None,
            rngs=rngs,
        )

    def __call__(
        self,
        context_points: jax.Array,
        context_values: jax.Array,
        query_points: jax.Array,
        *,
        context_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts values `(m, q)` at the query points."""
        context = observations(context_points, context_values, context_weights)
        key, value = self.tokens(*context, context_weights)
        query = math.sqrt(self.num_heads) * self.encoder(query_points)
        return opjax.softmax_attention(query, key, value)


class IntentionRegressor(nnx.Module):
    r"""Sum over heads of ridge regressions of observed values on encoded points.

        y(x_q) = sum_h Q_h K_h^T (K_h K_h^T + ridge I)^{-1} y.

    Args:
      features: channels of the four-layer encoders.
      num_heads: heads, dividing `features`.
      ridge: Tikhonov weight, squared units of the encoded points.
      shared_encoder: whether queries share the encoder of the keys.
      point_dim: coordinates `p` of a point.
      rngs: source of the initial parameters, N(0, 0.02^2) and zero biases.

    Raises:
      ValueError: if the heads do not divide the features.

    References:
      Garnelo and Czarnecki, "Exploring the space of key-value-query models with
      intention", 2023; Xiao et al., 2026, App. C.1.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        ridge: float,
        shared_encoder: bool = True,
        point_dim: int = 1,
        rngs: nnx.Rngs,
    ):
        check_heads(features, num_heads)
        _checks.non_negative(ridge=ridge)
        self.num_heads, self.ridge = num_heads, ridge

        def encoder():
            init = jax.nn.initializers.normal(0.02)
            return relu_perceptron(
                point_dim, features, features, kernel_init=init, rngs=rngs
            )

        self.key = encoder()
        self.query = None if shared_encoder else encoder()

    def __call__(
        self,
        context_points: jax.Array,
        context_values: jax.Array,
        query_points: jax.Array,
        *,
        context_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts values `(m, q)` at the query points."""
        points, values = observations(context_points, context_values, context_weights)
        encode_query = self.key if self.query is None else self.query

        def head(query, key):
            return opjax.intention(
                query, key, values, ridge=self.ridge, key_weights=context_weights
            )

        queries = split_heads(encode_query(query_points), self.num_heads)
        keys = split_heads(self.key(points), self.num_heads)
        return jnp.sum(jax.vmap(head)(queries, keys), axis=0)


def relu_perceptron(
    in_features: int,
    features: int,
    out_features: int,
    *,
    num_layers: int = 4,
    kernel_init: Initializer | None = None,
    rngs: nnx.Rngs,
) -> MLP:
    """Returns linear layers with ReLU between them."""
    return MLP(
        in_features,
        (features,) * (num_layers - 1),
        out_features,
        activation="relu",
        kernel_init=kernel_init,
        rngs=rngs,
    )


def observations(
    points: jax.Array, values: jax.Array, weights: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """Checks observations and zeroes the masked ones, which may be NaN."""
    _checks.floating(context_points=points, context_values=values)
    _checks.rank(2, context_points=points, context_values=values)
    _checks.same_points(context_points=points, context_values=values)
    if weights is not None:
        check_weights(context_points=points, context_weights=weights)
    return select(points, weights), select(values, weights)


def check_heads(features: int, num_heads: int) -> None:
    """Raises ValueError unless the heads divide the features."""
    if num_heads < 1 or features % num_heads:
        raise ValueError(f"{num_heads=} must divide {features=}.")
