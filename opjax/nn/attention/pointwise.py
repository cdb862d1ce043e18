"""Attention that compares points with points, normalised per head."""

from functools import partial
from typing import Unpack

import jax
import jax.numpy as jnp
from flax import nnx
from jax import export

import opjax
from opjax import _checks
from opjax.attention.functional import regression
from opjax.nn.attention.heads import merge_heads
from opjax.nn.attention.key_sums import SoftmaxKeySums, TrialSums, integrals
from opjax.nn.attention.points import HeadwiseAttention, PointOptions
from opjax.nn.attention.sums import Added, Local, Sums, Totals
from opjax.nn.bases.expansions import Basis
from opjax.quadrature import active


class GalerkinAttention(TrialSums):
    """Galerkin-type attention, `Q (K^T V) / n`, see `PointAttention`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.GalerkinAttention(8, num_heads=2, point_dim=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2))).shape
      (9, 8)
    """


class FourierAttention(HeadwiseAttention):
    """Fourier-type attention, `(Q K^T / sqrt(d + p)) V / n`, see `PointAttention`.

    Its cost is quadratic in the number of points.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.FourierAttention(8, num_heads=2, point_dim=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2))).shape
      (9, 8)
    """

    forms_pairs = True
    normalizes_queries = True

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.fourier_attention` of one head."""
        if weights is None:
            n = key.shape[0]  # perhaps symbolic, in exports
            weights = jnp.full(n, 1 / n, key.dtype)
        return opjax.fourier_attention(query, key, value, key_weights=weights)


class LinearAttention(SoftmaxKeySums):
    """Linear attention with two softmaxes, divided once more by the number of points.

    As in the code of Cao (2021), its output vanishes under mesh refinement.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.LinearAttention(8, num_heads=2, point_dim=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2))).shape
      (9, 8)
    """

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns averages divided by the number of points."""
        _, count = totals
        averages = super().combine(added, totals, shared)
        return averages / jnp.maximum(count, 1).astype(averages.dtype)


class SoftmaxAttention(HeadwiseAttention):
    """Softmax attention between all points, see `PointAttention`.

    Its cost is quadratic in the number of points.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.SoftmaxAttention(8, num_heads=2, point_dim=2, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2))).shape
      (9, 8)
    """

    forms_pairs = True
    normalizes_queries = True

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.softmax_attention` of one head."""
        return opjax.softmax_attention(query, key, value, key_weights=weights)


class IntentionAttention(TrialSums):
    """Ridge regression of values on keys, in linear time, see `opjax.intention`.

    Keys and values are normalised as in the other layers, and heads may use
    coordinates. The authors' layer does neither: `normalization=None` and
    `point_dim=0`.

    Args:
      features: channels `c`.
      ridge: fixed Tikhonov weight, relative to the mean square of the keys.
      rngs: source of the initial parameters.
      **options: options of `PointAttention`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> build = partial(attention.IntentionAttention, num_heads=2, ridge=0.1)
      >>> layer = build(8, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)
    """

    def __init__(
        self,
        features: int,
        *,
        ridge: float = 1.0,
        rngs: nnx.Rngs,
        **options: Unpack[PointOptions],
    ):
        super().__init__(features, rngs=rngs, **options)
        _checks.non_negative(ridge=ridge)
        self.ridge = ridge

    def evaluate(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps the checked arguments of a call to features `(n, c)`.

        With fewer points than channels, `opjax.intention` solves the smaller system
        over the points.
        """
        n, width = x.shape[0], self.out.in_features // self.num_heads
        if export.is_symbolic_dim(n) or not 0 < n < width:
            return super().evaluate(x, mesh_points, weights)
        if weights is None:
            weights = jnp.full(n, 1 / n, x.dtype)
        heads = self.head_inputs(x, mesh_points=mesh_points, quadrature_weights=weights)
        attend = partial(opjax.intention, ridge=self.ridge, key_weights=weights)
        return self.out(merge_heads(jax.vmap(attend)(*heads)))

    def sums(
        self, local: Local, weights: jax.Array, highest: jax.Array | None = None
    ) -> Sums:
        """Returns inner products of keys with keys and with values, `(h, d, 2 d)`."""
        _, key, value = local
        with jax.default_matmul_precision("highest"):
            both = integrals(key, jnp.concatenate([key, value], axis=1), weights)
        return Sums((both,))

    def combine(
        self,
        added: Added,
        totals: Totals,
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the regression coefficients of values on keys."""
        gram, products = jnp.split(super().combine(added, totals, shared), 2, axis=2)
        return jax.vmap(partial(regression, ridge=self.ridge))(gram, products)


class PerformerAttention(HeadwiseAttention):
    """Softmax attention estimated by positive random features, in linear time.

    The features are drawn once from a seed and shared by all heads.

    Args:
      features: channels `c`.
      num_features: number of random features; more approximate `SoftmaxAttention`
        better.
      seed: seed of the random features.
      rngs: source of the initial parameters.
      **options: options of `PointAttention`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> build = partial(attention.PerformerAttention, num_heads=2, num_features=16)
      >>> build(8, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (9, 8)
    """

    normalizes_queries = True

    def __init__(
        self,
        features: int,
        *,
        num_features: int = 64,
        seed: int = 0,
        rngs: nnx.Rngs,
        **options: Unpack[PointOptions],
    ):
        super().__init__(features, rngs=rngs, **options)
        _checks.positive(num_features=num_features)
        self.num_features, self.seed = num_features, seed

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.performer_attention` of one head."""
        # Not a parameter: an array in the module would be trained.
        directions = opjax.orthogonal_random_features(
            jax.random.key(self.seed), self.num_features, query.shape[1]
        )
        return opjax.performer_attention(
            query,
            key,
            value,
            projection_matrix=directions.astype(query.dtype),
            key_weights=weights,
        )


class NystromAttention(HeadwiseAttention):
    """Softmax attention through landmarks, which are means over segments of points.

    Args:
      features: channels `c`.
      num_landmarks: number of landmarks, at most the number of points.
      rngs: source of the initial parameters.
      **options: options of `PointAttention`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> build = partial(attention.NystromAttention, num_heads=2, num_landmarks=3)
      >>> build(8, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (9, 8)
    """

    normalizes_queries = True

    def __init__(
        self,
        features: int,
        *,
        num_landmarks: int = 64,
        rngs: nnx.Rngs,
        **options: Unpack[PointOptions],
    ):
        super().__init__(features, rngs=rngs, **options)
        _checks.positive(num_landmarks=num_landmarks)
        self.num_landmarks = num_landmarks

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.nystrom_attention` of one head."""
        return opjax.nystrom_attention(
            query,
            key,
            value,
            num_landmarks=self.num_landmarks,
            query_weights=weights,
            key_weights=weights,
        )


class LinformerAttention(HeadwiseAttention):
    """Softmax attention to learned combinations of points, for one number of points.

    Args:
      features: channels `c`.
      num_points: number of points `n` of every mesh, in a meaningful order.
      num_projected: number of combinations `k`.
      rngs: source of the initial parameters; projections are initialised from N(0,
        1/n).
      **options: options of `PointAttention`.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> build = partial(attention.LinformerAttention, num_heads=2, num_projected=3)
      >>> build(8, num_points=9, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (9, 8)
    """

    normalizes_queries = True

    def __init__(
        self,
        features: int,
        *,
        num_points: int,
        num_projected: int = 64,
        rngs: nnx.Rngs,
        **options: Unpack[PointOptions],
    ):
        super().__init__(features, rngs=rngs, **options)
        _checks.positive(num_points=num_points, num_projected=num_projected)
        init = jax.nn.initializers.normal(num_points**-0.5)
        shape = (num_points, num_projected)
        self.key_projection = nnx.Param(init(rngs.params(), shape, jnp.float32))
        self.value_projection = nnx.Param(init(rngs.params(), shape, jnp.float32))

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.linformer_attention` of one head; weights only mask points.

        The projections are sums over the points of one mesh.
        """
        if weights is not None:
            weights = active(weights).astype(value.dtype)
        return opjax.linformer_attention(
            query,
            key,
            value,
            key_projection=self.key_projection[...],
            value_projection=self.value_projection[...],
            key_weights=weights,
        )


ATTENTIONS = {
    "galerkin": GalerkinAttention,
    "linear": LinearAttention,
    "fourier": FourierAttention,
    "softmax": SoftmaxAttention,
}
