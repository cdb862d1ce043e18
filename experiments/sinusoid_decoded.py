"""Regression from a few observations by attention with encoded values."""

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from experiments.sinusoid_regressors import (
    check_heads,
    observations,
    relu_perceptron,
)
from opjax import _checks
from opjax.nn.attention.heads import merge_heads, split_heads
from opjax.nn.layers import Linear, fan_in_uniform


class _DecodedRegressor(nnx.Module):
    """Encoders of points and values and a decoder, around an attention."""

    def __init__(self, features, *, num_decoder_layers, point_dim, value_dim, rngs):
        _checks.positive(features=features, point_dim=point_dim, value_dim=value_dim)

        def perceptron(in_features, out_features, num_layers=3):
            return relu_perceptron(
                in_features, features, out_features, num_layers=num_layers, rngs=rngs
            )

        self.key = perceptron(point_dim, features)
        self.value = perceptron(value_dim, features)
        self.decoder = perceptron(features, value_dim, num_decoder_layers)

    def attend(self, query, key, value, weights):
        """Returns features `(m, d)` of the queries."""
        raise NotImplementedError

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
        attended = self.attend(
            self.key(query_points),
            self.key(points),
            self.value(values),
            context_weights,
        )
        return self.decoder(attended)


class SoftmaxAttentionRegressor(_DecodedRegressor):
    r"""Multi-head softmax attention between encoded points, with encoded values.

        y(x_q) = g(MultiHead(f(x_q), f(x), e(y))),

    three-layer encoders `f, e` and a two-layer decoder `g`.

    Args:
      features: channels of encoders and attention.
      num_heads: heads, dividing `features`.
      point_dim: coordinates `p` of a point.
      value_dim: channels `q` of the values.
      rngs: source of the initial parameters: of the attention U(-b, b) with
        `b = sqrt(6 / (4 features))`, the three maps being one matrix, and zero biases;
        of the rest `b = fan_in^{-1/2}`.

    Raises:
      ValueError: if the heads do not divide the features.

    References:
      Vaswani et al., "Attention is all you need", 2017; Garnelo and Czarnecki, 2023;
      Xiao et al., 2026, App. C.1.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        point_dim: int = 1,
        value_dim: int = 1,
        rngs: nnx.Rngs,
    ):
        check_heads(features, num_heads)
        self.num_heads = num_heads
        super().__init__(
            features,
            num_decoder_layers=2,
            point_dim=point_dim,
            value_dim=value_dim,
            rngs=rngs,
        )
        glorot = jax.nn.initializers.glorot_uniform()
        shape = (features, 3 * features)
        self.kernel = nnx.Param(glorot(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(3 * features, jnp.float32))
        init = fan_in_uniform(features)
        self.out = Linear(features, features, kernel_init=init, rngs=rngs)

    def attend(self, query, key, value, weights):
        """Returns features `(m, d)` of the queries."""
        kernels = jnp.split(self.kernel[...], 3, axis=1)
        biases = jnp.split(self.bias[...], 3)
        heads = [
            split_heads(x @ kernel + bias[None, :], self.num_heads)
            for x, kernel, bias in zip(
                (query, key, value), kernels, biases, strict=True
            )
        ]

        def head(query, key, value):
            return opjax.softmax_attention(query, key, value, key_weights=weights)

        return self.out(merge_heads(jax.vmap(head)(*heads)))


class LinearAttentionRegressor(_DecodedRegressor):
    r"""Linear attention between encoded points, with encoded values.

        y(x_q) = g(Q (K^T e(y))),   Q = softmax(f(x_q)) / sqrt(d), K likewise,

    both softmaxes over the features, which is no average: features grow with the number
    of observations. Three-layer encoders `f, e` and decoder `g`.

    Args:
      features: channels `d` of encoders and attention.
      point_dim: coordinates `p` of a point.
      value_dim: channels `q` of the values.
      rngs: source of the initial parameters, U(-b, b) with `b = fan_in^{-1/2}`.

    References:
      Shen et al., "Efficient attention: attention with linear complexities", 2021;
      Xiao et al., "Functional Attention", 2026, App. C.1.
    """

    def __init__(
        self,
        features: int,
        *,
        point_dim: int = 1,
        value_dim: int = 1,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            features,
            num_decoder_layers=3,
            point_dim=point_dim,
            value_dim=value_dim,
            rngs=rngs,
        )

    def attend(self, query, key, value, weights):
        """Returns features `(m, d)` of the queries."""
        scale = query.shape[1] ** -0.5
        query, key = (scale * jax.nn.softmax(x, axis=1) for x in (query, key))
        if weights is None:
            weights = jnp.ones(key.shape[0], key.dtype)
        return opjax.galerkin_attention(query, key, value, key_weights=weights)
