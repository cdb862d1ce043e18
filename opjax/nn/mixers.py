r"""Mixers: maps between the coefficients of a head in basis attention.

A mixer holds the parameters that the heads of one layer share, and maps coefficients
`(k, d)` of one head to new ones. `own()` returns the parameters that each head has
separately.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import opjax
from opjax import _checks, linalg
from opjax.linalg import Ridge
from opjax.nn import division
from opjax.nn.layers import FanInLinear, Linear

# What the ridge of a functional map is measured in.
RIDGE_UNITS = ("one", "mean")

# Parameters of one head, a pytree of arrays; None where heads have none of their own.
Own = Any


class Mixer(nnx.Module, abc.ABC):
    """Query, key and value maps of coefficients; the subclass combines them.

    Args:
      width: number `d` of channels of a head.
      num_heads: number of heads.
      fan_in_init: whether kernels are initialised from U(-b, b), `b = d^{-1/2}`,
        instead of N(0, 0.02^2).
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> class Values(mixers.Mixer):
      ...     def attend(self, query, key, value, **own):
      ...         return value
      >>> mixer = Values(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer(jnp.ones((3, 4))).shape  # three coefficients of one head
      (3, 4)
    """

    def __init__(
        self, width: int, *, num_heads: int, fan_in_init: bool = False, rngs: nnx.Rngs
    ):
        linear = FanInLinear if fan_in_init else Linear
        self.query = linear(width, width, use_bias=False, rngs=rngs)
        self.key = linear(width, width, use_bias=False, rngs=rngs)
        self.value = linear(width, width, use_bias=False, rngs=rngs)

    def own(self) -> Own:
        """Returns the separate parameters of each head, arrays `(h, ...)`, or None.

        The other methods take the entry of one head.
        """
        return None

    def __call__(self, coefficients: jax.Array, own: Own = None) -> jax.Array:
        """Maps coefficients `(k, d)` of one head to `(k, d)`."""
        maps = self.query, self.key, self.value
        return self.attend(*(linear(coefficients) for linear in maps), own=own)

    @abc.abstractmethod
    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Returns the new coefficients `(k, d)`, computed from `value`."""

    def matrix(self, coefficients: jax.Array, own: Own = None) -> jax.Array:
        """Returns the map `(k, k)` that is applied to the value coefficients."""
        query, key = self.query(coefficients), self.key(coefficients)
        identity = jnp.eye(key.shape[0], dtype=key.dtype)
        return self.attend(query, key, identity, own)


class _RegularisedMap(Mixer):
    """A functional map, the solution of a linear system with a ridge."""

    @abc.abstractmethod
    def _system(
        self, query: jax.Array, key: jax.Array, own: Own
    ) -> tuple[jax.Array, jax.Array, Ridge]:
        """Returns the queries and keys of the system of one head, and its ridge."""

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Applies the functional map to `value`, see `opjax.transport`."""
        query, key, ridge = self._system(query, key, own)
        return opjax.transport(query, key, value, ridge=ridge)

    def matrix(self, coefficients: jax.Array, own: Own = None) -> jax.Array:
        """Returns the functional map `(k, k)`, or what a subclass makes of it."""
        if division.redefines(self, "attend", known_by="matrix"):
            return super().matrix(coefficients, own)
        query, key, ridge = self._system(
            self.query(coefficients), self.key(coefficients), own
        )
        return opjax.functional_map(query, key, ridge=ridge)

    def condition_number(self, coefficients: jax.Array, own: Own = None) -> jax.Array:
        """Returns the condition number of the linear system `(k, k)`."""
        _, key, ridge = self._system(
            self.query(coefficients), self.key(coefficients), own
        )
        return opjax.condition_number(key, ridge=ridge)


class FunctionalMap(_RegularisedMap):
    r"""The regularised functional map of functional attention.

        C = Q K^T ((1 - a) K K^T + a u I)^{-1},    a = sigmoid(ridge_logit) learned.

    In the notation of the paper, this is the ridge `exp(ridge_logit)` and a factor `1 +
    exp(ridge_logit)`, with `u = 1`. Coefficients are small initially, so this ridge
    dominates `K K^T` and the map is almost zero. With the unit `u = trace(K K^T) / k`,
    the mean eigenvalue, the map does not depend on the scale of the coefficients.

    Args:
      width: number `d` of channels of a head.
      num_heads: number of heads.
      ridge_logit: initial value of the learned logit.
      ridge_unit: `"one"`, as published, or `"mean"`, the mean eigenvalue.
      ridge_per_head: whether every head learns a separate logit.
      fan_in_init: see `Mixer`.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> mixer = mixers.FunctionalMap(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> coefficients = jnp.ones((3, 4))
      >>> mixer(coefficients).shape, mixer.matrix(coefficients).shape
      ((3, 4), (3, 3))
      >>> float(mixer.ridge)  # at the start
      0.5

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 6-8 and App. C.2.
    """

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        ridge_logit: float = 0.0,
        ridge_unit: str = "one",
        ridge_per_head: bool = False,
        fan_in_init: bool = False,
        rngs: nnx.Rngs,
    ):
        super().__init__(width, num_heads=num_heads, fan_in_init=fan_in_init, rngs=rngs)
        _checks.option("ridge_unit", ridge_unit, RIDGE_UNITS)
        self.ridge_unit = ridge_unit
        shape = (num_heads,) if ridge_per_head else ()
        self.ridge_logit = nnx.Param(jnp.full(shape, ridge_logit, jnp.float32))

    @property
    def ridge(self) -> jax.Array:
        """Weight of the convex regularisation, between zero and one."""
        return jax.nn.sigmoid(self.ridge_logit[...])

    def own(self) -> Own:
        """Returns the ridges `(h,)`, if every head has a separate one."""
        return self.ridge if self.ridge.ndim else None

    def _system(
        self, query: jax.Array, key: jax.Array, own: Own
    ) -> tuple[jax.Array, jax.Array, opjax.Convex]:
        ridge = opjax.Convex(self.ridge if own is None else own)
        return *self._in_units(query, key), ridge

    def _in_units(
        self, query: jax.Array, key: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Divides both by `u^{1/2}`, which is as good as multiplying the ridge."""
        if self.ridge_unit == "one":
            return query, key
        wide = linalg.at_least_single(key)
        # Keys of no size at all keep a map with finite gradients, of next to nothing.
        factor = lax.rsqrt(jnp.sum(wide**2) / key.shape[0] + linalg.SMALLEST_UNIT)
        return query * factor.astype(query.dtype), key * factor.astype(key.dtype)


class FixedRidgeMap(FunctionalMap):
    """A functional map with a constant ridge, `sigmoid(ridge_logit)`, not learned.

    Args:
      width: number `d` of channels of a head.
      num_heads: number of heads.
      ridge_logit: logit of the ridge.
      ridge_unit: see `FunctionalMap`.
      fan_in_init: see `Mixer`.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> from opjax.nn import mixers
      >>> build = mixers.FixedRidgeMap
      >>> mixer = build(4, num_heads=2, ridge_logit=-3.0, rngs=nnx.Rngs(0))
      >>> round(float(mixer.ridge), 3)
      0.047
    """

    def __init__(
        self,
        width: int,
        *,
        num_heads: int,
        ridge_logit: float = 0.0,
        ridge_unit: str = "one",
        fan_in_init: bool = False,
        rngs: nnx.Rngs,
    ):
        Mixer.__init__(
            self, width, num_heads=num_heads, fan_in_init=fan_in_init, rngs=rngs
        )
        _checks.option("ridge_unit", ridge_unit, RIDGE_UNITS)
        self.ridge_unit, self.fixed_logit = ridge_unit, ridge_logit

    @property
    def ridge(self) -> jax.Array:
        """Weight of the convex regularisation, between zero and one."""
        return jax.nn.sigmoid(self.fixed_logit)


class CrossValidatedMap(_RegularisedMap):
    r"""A functional map with a ridge selected from the data by cross-validation.

        C = Q K^T (K K^T + r I)^{-1},    r = gcv_ridge(K^T, Q^T),

    the weight with which `C` best predicts channels of `Q` that were left out of the
    fit. It is selected in every head for every sample. It has no learned parameter, and
    it scales with the keys.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax.nn import mixers
      >>> mixer = mixers.CrossValidatedMap(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer.matrix(jax.random.normal(jax.random.key(0), (3, 4))).shape
      (3, 3)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 6-8, with the ridge that its App. D
        sweeps; see `opjax.gcv_ridge`.
    """

    def _system(
        self, query: jax.Array, key: jax.Array, own: Own
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        return query, key, opjax.gcv_ridge(key.T, query.T)


class SoftmaxMap(Mixer):
    r"""Softmax attention between coefficients, the tokens of Transolver.

        C = softmax(Q K^T / sqrt(d)).

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> mixer = mixers.SoftmaxMap(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer(jnp.ones((3, 4))).shape
      (3, 4)

    References:
      Wu et al., "Transolver", 2024, Eq. 3.
    """

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Returns averages `(k, d)` of `value` by the softmax of query and key."""
        return opjax.softmax_attention(query, key, value)


class GalerkinMap(Mixer):
    """Galerkin-type attention between coefficients, `Q (K^T V) / k`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> mixer = mixers.GalerkinMap(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer(jnp.ones((3, 4))).shape
      (3, 4)
    """

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Returns the expansion in the queries of the inner products with the keys."""
        return opjax.galerkin_attention(query, key, value) / key.shape[0]


class ModeGains(Mixer):
    r"""Gains of the modes of a basis, one per coefficient.

        c -> v + a * v,    a = softmax(tanh(q * k / sqrt(k_modes))),

    with `q, k, v` linear in the coefficients and the softmax over the modes. In an
    orthonormal basis this is the orthogonal attention layer.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> mixer = mixers.ModeGains(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer(jnp.ones((3, 4))).shape
      (3, 4)

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Multiplies `value` by the gains of its modes."""
        return opjax.mode_gains(query, key) * value

    def matrix(self, coefficients: jax.Array, own: Own = None) -> jax.Array:
        """Raises ValueError: gains differ between channels, so there is no map."""
        raise ValueError(
            "Mode gains have no single map between coefficients: they multiply "
            "each coefficient by a gain."
        )


class IdentityMap(Mixer):
    """Value map only: coefficients are projected and expanded without mixing.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import mixers
      >>> mixer = mixers.IdentityMap(4, num_heads=2, rngs=nnx.Rngs(0))
      >>> mixer(jnp.ones((3, 4))).shape
      (3, 4)
    """

    def attend(
        self, query: jax.Array, key: jax.Array, value: jax.Array, own: Own = None
    ) -> jax.Array:
        """Returns `value`."""
        return value
