"""Attention layers of linear cost with a softmax of the queries over their features.

They are the attention layers of the general neural operator transformer and of the
orthogonal neural operator. Layers of one input function have the common interface.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks
from opjax.nn.attention import columns
from opjax.nn.attention.heads import head_width, merge_heads, split_heads
from opjax.nn.attention.key_sums import MeanKeySums, SoftmaxKeySums, TrialSums
from opjax.nn.attention.points import HeadNorm, HeadwiseAttention, PointAttention
from opjax.nn.attention.sums import Added, Local, Sums, Totals
from opjax.nn.bases.expansions import Basis
from opjax.nn.layers import FanInLinear, Initializer, Linear
from opjax.nn.layers.initializers import trunk_init


class _TrunkAttention(PointAttention):
    """An attention without coordinates or norms that starts as the trunk around it."""

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        kernel_init: Initializer | None = trunk_init,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        fan_in = kernel_init is None
        super().__init__(
            features,
            num_heads=num_heads,
            normalization=None,
            kernel_init=kernel_init,
            fan_in_init=fan_in,
            use_bias=use_bias,
            out=FanInLinear if fan_in else partial(Linear, kernel_init=kernel_init),
            rngs=rngs,
        )


class NormalizedAttention(_TrunkAttention, HeadwiseAttention):
    r"""Normalised linear attention of the general neural operator transformer.

    Per head, with softmaxes over the channels of the head,

        q = softmax(y W_q),    k = softmax(y W_k),    v = y W_v,
        q_i + sum_j w_j <q_i, k_j> v_j / sum_j w_j <q_i, k_j>.

    The query itself is added, as in the authors' code.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      kernel_init: initialiser of all kernels, with zero biases; if None, kernels and
        biases are initialised from U(-b, b), `b = c^{-1/2}`.
      use_bias: whether queries, keys and values have biases.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> layer = attention.NormalizedAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.normalized_attention` of one head, and its queries."""
        averages = opjax.normalized_attention(query, key, value, key_weights=weights)
        return averages + jax.nn.softmax(query, axis=1)


class MeanAttention(_TrunkAttention, MeanKeySums):
    r"""Like `NormalizedAttention`, with a mean over the points instead of the average.

        q_i + sum_j w_j <q_i, k_j> v_j / sum_j w_j.

    This is the default attention of the orthogonal neural operator in
    Neural-Solver-Library, and the type "galerkin" of the general neural operator
    transformer. The arguments are the same as for `NormalizedAttention`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> layer = attention.MeanAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)
    """

    def trial(self, query: jax.Array) -> jax.Array:
        """Returns softmaxes of the queries over their channels."""
        return columns.softmax(query)

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns integrals of values against the softmaxes of the keys."""
        query, key, value = local
        return super().sums((query, columns.softmax(key), value), weights, highest)

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns means plus the identity, which adds the queries."""
        means = super().combine(added, totals, shared)
        return means + jnp.eye(means.shape[1], dtype=means.dtype)[None]


class EfficientAttention(_TrunkAttention, SoftmaxKeySums):
    r"""Linear attention with one softmax over features and one over points.

    Per head,

        softmax_d(q) / sqrt(d) sum_j softmax_j(k_j) v_j^T.

    This is `opjax.linear_attention` divided by the square root of a head's width `d`,
    without biases except in the last map: the "linear" attention of the orthogonal
    neural operator, "selfAttention" in Neural-Solver-Library.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> layer = attention.EfficientAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Shen et al., "Efficient attention: attention with linear complexities", 2021.
    """

    def __init__(self, features: int, *, num_heads: int, rngs: nnx.Rngs):
        super().__init__(features, num_heads=num_heads, use_bias=False, rngs=rngs)

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns scaled averages."""
        averages = super().combine(added, totals, shared)
        return averages.shape[1] ** -0.5 * averages


class SharedNormAttention(TrialSums, MeanKeySums):
    r"""Galerkin-type attention with layer norms of keys and values shared by all heads.

        q_i sum_j w_j N(k_j) N(v_j)^T / sum_j w_j,

    without biases except in the last map: the "galerkin" attention of the orthogonal
    neural operator's own code. `GalerkinAttention` has separate norms for every head,
    and coordinates.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      epsilon: offset of the variances.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, or the epsilon is not
        positive.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> layer = attention.SharedNormAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)
    """

    def __init__(
        self, features: int, *, num_heads: int, epsilon: float = 1e-5, rngs: nnx.Rngs
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            kernel_init=trunk_init,
            use_bias=False,
            out=Linear,
            normalization="layer",
            epsilon=epsilon,
            rngs=rngs,
        )
        width = features // num_heads
        self.key_norm = HeadNorm(1, width, normalization="layer", epsilon=epsilon)
        self.partner_norm = HeadNorm(1, width, normalization="layer", epsilon=epsilon)


class NormalizedCrossAttention(nnx.Module):
    r"""Normalised linear attention from one function to several others.

    Per head, with softmaxes over the channels of the head,

        q = softmax(y W_q),    k^f = softmax(z^f W_k^f),    v^f = z^f W_v^f,
        q_i + sum_f (sum_j w_j <q_i, k_j^f> v_j^f / sum_j w_j <q_i, k_j^f>),

    for input functions `z^f`, each with its own points and weights.

    Args:
      features: channels `c` of all functions.
      num_heads: heads, dividing `features`.
      num_inputs: number of input functions `f`.
      kernel_init: see `NormalizedAttention`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, or there is no input
        function.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> layer = attention.NormalizedCrossAttention(8, num_heads=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), [jnp.ones((5, 8))]).shape  # five points of the input
      (9, 8)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_inputs: int = 1,
        kernel_init: Initializer | None = trunk_init,
        rngs: nnx.Rngs,
    ):
        head_width(features, num_heads)
        _checks.positive(num_inputs=num_inputs)
        self.num_heads = num_heads

        def linear() -> nnx.Linear:
            if kernel_init is None:
                return FanInLinear(features, features, rngs=rngs)
            return Linear(features, features, kernel_init=kernel_init, rngs=rngs)

        self.query = linear()
        self.keys = nnx.List([linear() for _ in range(num_inputs)])
        self.values = nnx.List([linear() for _ in range(num_inputs)])
        self.out = linear()

    def __call__(
        self,
        x: jax.Array,
        inputs: Sequence[jax.Array],
        *,
        input_weights: Sequence[jax.Array | None] | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          inputs: features of the input functions, each `(n_f, c)`.
          input_weights: weights of their points, each `(n_f,)` or None for ones; zero
            masks a point.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          ValueError: if there are not as many functions or weights as the layer takes.
        """
        weights = input_weights
        weights = [None] * len(inputs) if weights is None else list(weights)
        if not len(inputs) == len(weights) == len(self.keys):
            raise ValueError(
                f"Different numbers of input functions: {len(inputs)} inputs and "
                f"{len(weights)} input_weights for a layer with {len(self.keys)}."
            )
        for features in (x, *inputs):
            _checks.layer_input(self.out.out_features, features=features)
        query = split_heads(self.query(x), self.num_heads)
        out = jax.nn.softmax(query, axis=2)
        for function, w, to_key, to_value in zip(
            inputs, weights, self.keys, self.values, strict=True
        ):
            key, value = (
                split_heads(linear(function), self.num_heads)
                for linear in (to_key, to_value)
            )

            def attend(
                q: jax.Array, k: jax.Array, v: jax.Array, w: jax.Array | None = w
            ):
                return opjax.normalized_attention(q, k, v, key_weights=w)

            out = out + jax.vmap(attend)(query, key, value)
        return self.out(merge_heads(out))
