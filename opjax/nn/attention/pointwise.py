"""Attentions that compare points with points, normalised per head."""

from typing import Unpack

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks, linalg
from opjax.attention._expansion import Expansion
from opjax.attention.functional import intention_coefficients, intention_of_gram
from opjax.attention.linear import (
    galerkin_coefficients,
    galerkin_of_gram,
    linear_expansion,
)
from opjax.attention.linformer import linformer_expansion, linformer_keys
from opjax.attention.nystrom import nystrom_expansion
from opjax.attention.performer import performer_expansion
from opjax.nn.attention.expanding import ExpandingAttention, TrialAttention
from opjax.nn.attention.key_sums import KeySums, SoftmaxKeySums, integrals
from opjax.nn.attention.points import Given, PointAttention, PointOptions
from opjax.nn.attention.sums import Added, Local, Sums
from opjax.nn.bases.expansions import Basis
from opjax.quadrature import active


def _or_equal(weights: jax.Array | None, values: jax.Array) -> jax.Array:
    """Returns the weights, `1 / n` each by default."""
    if weights is not None:
        return weights
    return jnp.full(values.shape[0], 1 / values.shape[0], values.dtype)


class GalerkinAttention(TrialAttention, KeySums):
    """Galerkin-type attention, `Q (K^T V) / n`, see `PointAttention`."""

    def coefficients(
        self, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns what `opjax.galerkin_attention` expands in the queries."""
        weights = _or_equal(weights, key)
        return galerkin_coefficients(key, value, key_weights=weights)

    def coefficients_of_gram(
        self, z: jax.Array, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns the same of keys `z key` and values `z value`."""
        gram = opjax.gram(z, quadrature_weights=_or_equal(weights, z))
        return galerkin_of_gram(gram, key, value)

    sums = KeySums.sums


class FourierAttention(PointAttention):
    """Fourier-type attention, `(Q K^T / sqrt(d + p)) V / n`, see `PointAttention`.

    Its cost is quadratic in the number of points.
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
        weights = _or_equal(weights, key)
        return opjax.fourier_attention(query, key, value, key_weights=weights)


class LinearAttention(ExpandingAttention, SoftmaxKeySums):
    """Linear attention by two softmax steps, over the number of points once more.

    As in the code of Cao (2021), its output vanishes under refinement of the mesh.
    """

    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Factorises `opjax.linear_attention` of one head over the number of points."""
        functions, averages = linear_expansion(query, key, value, key_weights=weights)
        if weights is None:
            return Expansion(functions, averages / key.shape[0])
        count = jnp.maximum(jnp.sum(active(weights)), 1)
        return Expansion(functions, averages / count.astype(averages.dtype))

    sums = SoftmaxKeySums.sums

    def combine(
        self,
        added: Added,
        totals: tuple[jax.Array, jax.Array],
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns averages over the number of points."""
        _, count = totals
        averages = super().combine(added, totals, shared)
        return averages / jnp.maximum(count, 1).astype(averages.dtype)


class SoftmaxAttention(PointAttention):
    """Softmax attention among all points, see `PointAttention`.

    Its cost is quadratic in the number of points.
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


class IntentionAttention(TrialAttention, KeySums):
    """Ridge regression of values on keys, in linear time, see `opjax.intention`.

    Keys and values are normalised as in the other attentions, and heads may see
    coordinates; the authors' has neither, `normalization=None` and `point_dim=0`.

    Args:
      features: channels `c`.
      ridge: fixed Tikhonov weight of the mean square of the keys.
      rngs: source of the initial parameters.
      **options: those of `PointAttention`.
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

    def coefficients(
        self, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns the regression of `opjax.intention` of one head."""
        weights = _or_equal(weights, key)
        return intention_coefficients(key, value, ridge=self.ridge, key_weights=weights)

    def coefficients_of_gram(
        self, z: jax.Array, key: jax.Array, value: jax.Array, weights: jax.Array | None
    ) -> jax.Array:
        """Returns the same of keys `z key` and values `z value`."""
        gram = opjax.gram(z, quadrature_weights=_or_equal(weights, z))
        return intention_of_gram(gram, key, value, ridge=self.ridge)

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
        totals: tuple[jax.Array, jax.Array],
        shared: Basis | None = None,
    ) -> jax.Array:
        """Returns the regressions of values on keys."""
        gram, right = jnp.split(super().combine(added, totals, shared), 2, axis=2)
        identity = jnp.eye(gram.shape[1], dtype=gram.dtype)
        system = gram + jnp.asarray(self.ridge, gram.dtype) * identity[None]
        return jax.vmap(linalg.solve)(system, right)


class PerformerAttention(ExpandingAttention):
    """Softmax attention estimated by positive random features, in linear time.

    The features are drawn once, from a seed; every head has the same.

    Args:
      features: channels `c`.
      num_features: random features; the more, the closer to `SoftmaxAttention`.
      seed: seed of the random features.
      rngs: source of the initial parameters.
      **options: those of `PointAttention`.
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

    @property
    def rank(self) -> int:
        """Number of random features."""
        return self.num_features

    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Factorises `opjax.performer_attention` of one head."""
        # Not a parameter: an array in the module would be trained.
        directions = opjax.orthogonal_random_features(
            jax.random.key(self.seed), self.num_features, query.shape[1]
        )
        return performer_expansion(
            query,
            key,
            value,
            projection_matrix=directions.astype(query.dtype),
            key_weights=weights,
        )


class NystromAttention(ExpandingAttention):
    """Softmax attention through landmarks, means over segments of the points.

    Args:
      features: channels `c`.
      num_landmarks: landmarks, at most as many as points.
      rngs: source of the initial parameters.
      **options: those of `PointAttention`.
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

    @property
    def rank(self) -> int:
        """Number of landmarks."""
        return self.num_landmarks

    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Factorises `opjax.nystrom_attention` of one head."""
        return nystrom_expansion(
            query,
            key,
            value,
            num_landmarks=self.num_landmarks,
            query_weights=weights,
            key_weights=weights,
        )


class LinformerAttention(ExpandingAttention):
    """Softmax attention to learned combinations of the points of one fixed mesh size.

    Args:
      features: channels `c`.
      num_points: points `n` of every mesh, in an order that means something.
      num_projected: combinations `k`.
      rngs: source of the initial parameters; projections start from N(0, 1/n).
      **options: those of `PointAttention`.
    """

    normalizes_queries = True
    shares_integrals = True

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

    @property
    def rank(self) -> int:
        """Number of combinations."""
        return self.value_projection.shape[1]

    def keys(self, given: Given):
        """Returns combinations `(h, k, d + p)` of the keys, before or after their map.

        One combination of the input serves all heads.
        """
        if given.is_linear("key") and given.sizes.folds_values(self.rank, shared=True):
            return self._combined(given.enriched(), given.weights) @ given.map_of("key")
        return jax.vmap(lambda key: self._combined(key, given.weights))(given.key())

    def expand(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> Expansion:
        """Factorises `opjax.linformer_attention` of one head, of combined keys."""
        return linformer_expansion(
            query,
            key,
            value,
            value_projection=self.value_projection[...],
            key_weights=_mask(weights, value),
        )

    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Returns `opjax.linformer_attention` of one head."""
        return super().attend(query, self._combined(key, weights), value, weights)

    def _combined(self, key: jax.Array, weights: jax.Array | None) -> jax.Array:
        return linformer_keys(
            key,
            key_projection=self.key_projection[...],
            key_weights=_mask(weights, key),
        )


def _mask(weights: jax.Array | None, points: jax.Array) -> jax.Array | None:
    """Returns zeros and ones: the projections are sums over the points of one mesh."""
    return None if weights is None else active(weights).astype(points.dtype)


ATTENTIONS = {
    "galerkin": GalerkinAttention,
    "linear": LinearAttention,
    "fourier": FourierAttention,
    "softmax": SoftmaxAttention,
}
