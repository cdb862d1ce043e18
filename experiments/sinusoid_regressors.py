"""Regression from a few observations: attention of queries to observed points.

All regressors have one signature, `model(context_points (n, 1), context_values (n, 1),
query_points (m, 1)) -> (m, 1)`, for one task and any number of observations; the
keyword `context_weights (n,)` weighs them, and zero masks one. Points and values have
one channel. Layers start from U(-b, b) with `b = fan_in^{-1/2}` unless said otherwise.

References:
  Xiao et al., "Functional Attention", 2026, Section 5.1 and App. C.1.
"""

import abc
import math

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from experiments.line_perceptron import LinePerceptron
from opjax import _checks
from opjax.attention._arguments import check_weights, log_weights, select
from opjax.attention.functional import intention_coefficients
from opjax.nn.attention.heads import head_width, merge_heads, split_heads
from opjax.nn.layers import MLP, Initializer, Linear, fan_in_uniform
from opjax.nn.layers.initializers import orthogonal

_normal = jax.nn.initializers.normal


class Regressor(nnx.Module, abc.ABC):
    """Checks observations and masks some of them, for all kinds of attention."""

    @abc.abstractmethod
    def attend(
        self,
        query: jax.Array,
        points: jax.Array,
        values: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Predicts from observations whose masked ones are zero."""

    def __call__(
        self,
        context_points: jax.Array,
        context_values: jax.Array,
        query_points: jax.Array,
        *,
        context_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Predicts values `(m, q)` at the query points."""
        observed = {"context_points": context_points, "context_values": context_values}
        _checks.floating(**observed)
        _checks.rank(2, **observed)
        _checks.same_points(**observed)
        if context_weights is not None:
            check_weights(
                context_points=context_points, context_weights=context_weights
            )
        # Masked observations may be NaN.
        points, values = (select(array, context_weights) for array in observed.values())
        return self.attend(query_points, points, values, context_weights)


class _TokenRegressor(Regressor):
    """Averages of encoded observations, one for each basis function on the context."""

    kernel_init: Initializer | None = staticmethod(_normal(0.01))

    def __init__(self, features: int, *, num_basis: int, rngs: nnx.Rngs):
        _checks.positive(features=features, num_basis=num_basis)
        kernel_init = self.kernel_init
        self.encoder = _perceptron(
            1, features, features, kernel_init=kernel_init, rngs=rngs
        )
        zeros, bias_init = jax.nn.initializers.zeros, fan_in_uniform(features)
        # The bias cancels in a softmax over points; the reference code counts it.
        self.scores = Linear(
            features,
            num_basis,
            kernel_init=kernel_init or orthogonal,
            bias_init=zeros if kernel_init else bias_init,
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
            opjax.project(encoded, basis, projection=opjax.Means()),
            opjax.project(values, basis, projection=opjax.InnerProducts()),
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
      ridge: weight `r` of the convex regularisation, between zero and one.
      learn_ridge: whether `r` is the sigmoid of a learned number; `ridge` is its start.
      rngs: source of the initial parameters, N(0, 0.01^2) and zero biases.
    """

    def __init__(
        self,
        features: int,
        *,
        num_basis: int,
        ridge: float,
        learn_ridge: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.non_negative(ridge=ridge)
        _checks.at_most(1, ridge=ridge)
        if learn_ridge and not 0 < ridge < 1:
            raise ValueError(
                f"{ridge=} must be between zero and one, and neither, to be learned."
            )
        self.fixed_ridge = None if learn_ridge else ridge
        super().__init__(features, num_basis=num_basis, rngs=rngs)
        if learn_ridge:
            logit = math.log(ridge) - math.log1p(-ridge)
            self.ridge_logit = nnx.Param(jnp.asarray(logit, jnp.float32))

    @property
    def ridge(self) -> float | jax.Array:
        """The weight of the convex regularisation."""
        fixed = self.fixed_ridge
        return jax.nn.sigmoid(self.ridge_logit[...]) if fixed is None else fixed

    def attend(self, query, points, values, weights):
        """Transports values by the functional map."""
        key, value = self.tokens(points, values, weights)
        ridge = opjax.Convex(self.ridge)
        return opjax.transport(self.encoder(query), key, value, ridge=ridge)


class CrossValidatedRegressor(_TokenRegressor):
    r"""A `FunctionalRegressor` whose ridge the observed points choose in every task.

        y(x_q) = C V,   C = f(x_q) S^T (S S^T + r I)^{-1},   r = gcv_ridge(S^T, F^T),

    with the features `F` of the observed points, each counted as often as its weight
    says: the ridge with which the tokens best predict channels of these features that
    they were not fitted to. It depends on no query and on no value.

    Args:
      features: channels of the encoder.
      num_basis: basis functions.
      rngs: source of the initial parameters, N(0, 0.01^2) and zero biases.

    References:
      Xiao et al., "Functional Attention", 2026, App. C.1, which fixes the ridge; see
        `opjax.gcv_ridge`.
    """

    def attend(self, query, points, values, weights):
        """Transports values by the functional map."""
        key, value = self.tokens(points, values, weights)
        observed = self.encoder(points)
        if weights is not None:
            observed *= jnp.sqrt(weights)[:, None]
        ridge = opjax.gcv_ridge(key.T, observed.T)
        return opjax.transport(self.encoder(query), key, value, ridge=ridge)


class TransolverRegressor(_TokenRegressor):
    r"""Softmax attention from queries to the tokens of `FunctionalRegressor`.

        y(x_q) = softmax(f(x_q) S^T / sqrt(d / h)) V.

    Args:
      features: channels `d` of the encoder.
      num_basis: tokens.
      num_heads: the number `h`, of the scale only.
      rngs: source of the initial parameters; the map to scores starts orthogonal.
    """

    kernel_init = None

    def __init__(
        self, features: int, *, num_basis: int, num_heads: int, rngs: nnx.Rngs
    ):
        _checks.positive(num_heads=num_heads)
        self.num_heads = num_heads
        super().__init__(features, num_basis=num_basis, rngs=rngs)

    def attend(self, query, points, values, weights):
        """Averages the values of the tokens."""
        key, value = self.tokens(points, values, weights)
        query = math.sqrt(self.num_heads) * self.encoder(query)
        return opjax.softmax_attention(query, key, value)


class IntentionRegressor(Regressor):
    r"""Sum over heads of ridge regressions of observed values on encoded points.

        y(x_q) = sum_h Q_h K_h^T (K_h K_h^T + ridge I)^{-1} y.

    Args:
      features: channels of the four-layer encoders.
      num_heads: heads, dividing `features`.
      ridge: Tikhonov weight, squared units of the encoded points.
      shared_encoder: whether queries share the encoder of the keys.
      rngs: source of the initial parameters, N(0, 0.02^2) and zero biases.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        ridge: float,
        shared_encoder: bool = True,
        rngs: nnx.Rngs,
    ):
        head_width(features, num_heads)  # refuses heads of unequal width
        _checks.non_negative(ridge=ridge)
        self.num_heads, self.ridge = num_heads, ridge

        def encoder() -> MLP:
            init, hidden = _normal(0.02), (features,) * 3
            return LinePerceptron(hidden, features, kernel_init=init, rngs=rngs)

        self.key = encoder()
        self.query = None if shared_encoder else encoder()

    def attend(self, query, points, values, weights):
        """Sums the regressions of the heads.

        Predictions are linear in the encoded queries `F A + b`, so the encoder's last
        map acts on the coefficients of the regressions, once a task, not at queries.
        """
        if self.query is None:  # in one product
            together = jnp.concatenate([points, query])
            hidden, kernel, bias = self.key.last_map(together)
            of_points, hidden = jnp.split(hidden, points.shape[:1])
            encoded = of_points @ kernel + bias[None]
        else:
            encoded = self.key(points)
            hidden, kernel, bias = self.query.last_map(query)

        def head(key):
            return intention_coefficients(
                key, values, ridge=self.ridge, key_weights=weights
            )

        keys = split_heads(encoded, self.num_heads)
        coefficients = jnp.concatenate(jax.vmap(head)(keys))
        return hidden @ (kernel @ coefficients) + (bias @ coefficients)[None]


class _DecodedRegressor(Regressor):
    """Encoders of points and values and a decoder, around an attention."""

    decoder_layers = 3

    def __init__(self, features: int, *, rngs: nnx.Rngs):
        _checks.positive(features=features)
        self.key = _perceptron(1, features, features, 3, rngs=rngs)
        self.value = _perceptron(1, features, features, 3, rngs=rngs)
        layers = self.decoder_layers
        self.decoder = _perceptron(features, features, 1, layers, rngs=rngs)

    @abc.abstractmethod
    def mix(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns features `(m, d)` of the queries."""

    def attend(self, query, points, values, weights):
        """Decodes what the attention makes of encoded points and values."""
        encoded = self.key(query), self.key(points), self.value(values)
        return self.decoder(self.mix(*encoded, weights))


class SoftmaxAttentionRegressor(_DecodedRegressor):
    r"""Multi-head softmax attention between encoded points, with encoded values.

        y(x_q) = g(MultiHead(f(x_q), f(x), e(y))),

    three-layer encoders `f, e` and a two-layer decoder `g`.

    Args:
      features: channels of encoders and attention.
      num_heads: heads, dividing `features`.
      rngs: source of the initial parameters; of the attention U(-b, b) with
        `b = sqrt(6 / (4 features))`, the three maps being one matrix, and zero biases.
    """

    decoder_layers = 2

    def __init__(self, features: int, *, num_heads: int, rngs: nnx.Rngs):
        head_width(features, num_heads)  # refuses heads of unequal width
        self.num_heads = num_heads
        super().__init__(features, rngs=rngs)
        glorot = jax.nn.initializers.glorot_uniform()
        shape = (features, 3 * features)
        self.kernel = nnx.Param(glorot(rngs.params(), shape, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(3 * features, jnp.float32))
        init = fan_in_uniform(features)
        self.out = Linear(features, features, kernel_init=init, rngs=rngs)

    def mix(self, query, key, value, weights):
        """Returns features `(m, d)` of the queries."""
        kernels = jnp.split(self.kernel[...], 3, axis=1)
        biases = jnp.split(self.bias[...], 3)
        parts = zip((query, key, value), kernels, biases, strict=True)
        heads = [split_heads(x @ a + b[None, :], self.num_heads) for x, a, b in parts]

        def head(query, key, value):
            return opjax.softmax_attention(query, key, value, key_weights=weights)

        return self.out(merge_heads(jax.vmap(head)(*heads)))


class LinearAttentionRegressor(_DecodedRegressor):
    r"""Linear attention between encoded points, with encoded values.

        y(x_q) = g(Q (K^T e(y))),   Q = softmax(f(x_q)) / sqrt(d), K likewise,

    both softmaxes over the features, which is no average: features grow with the number
    of observations. Three-layer encoders `f, e` and decoder `g`.
    """

    def mix(self, query, key, value, weights):
        """Returns features `(m, d)` of the queries."""
        scale = query.shape[1] ** -0.5
        query, key = (scale * jax.nn.softmax(x, axis=1) for x in (query, key))
        if weights is None:
            weights = jnp.ones(key.shape[0], key.dtype)
        return opjax.galerkin_attention(query, key, value, key_weights=weights)


def _perceptron(
    in_features: int,
    features: int,
    out_features: int,
    num_layers: int = 4,
    *,
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
