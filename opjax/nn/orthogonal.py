"""Attention that amplifies the modes of a learned orthonormal basis."""

from typing import Any

import jax
from flax import nnx

import opjax
from opjax import _checks
from opjax.nn.attention import BasisAttention, CoefficientMaps, means
from opjax.nn.layers import ACTIVATIONS, Linear
from opjax.nn.learned_basis import LearnedBasis


class ModeMaps(CoefficientMaps):
    """Maps of coefficients that amplify modes by `opjax.orthogonal_attention`."""

    def attend(
        self,
        values: jax.Array,
        phi: jax.Array,
        quadrature_weights: jax.Array | None,
    ) -> jax.Array:
        """Filters features `(n, d)` of one head in the span of the basis `(n, k)`."""
        coefficients = means(values, phi, quadrature_weights)
        return opjax.orthogonal_attention(
            self.query(coefficients),
            self.key(coefficients),
            self.value(values),
            phi,
            key_weights=quadrature_weights,
        )


class OrthogonalAttention(BasisAttention, ModeMaps):
    r"""Multi-head attention on the modes of an orthonormal basis, with a bypass.

        y = act(Attn(x) + W x),

    where every head of `Attn` has features `f` and basis functions from a
    `LearnedBasis`, `Phi` orthonormal with their span, and

        Attn = Phi (c + a * c),    c = Phi^T W (f W_v),
        a = softmax(tanh(q * k / sqrt(d_k))),    q = S W_q, k = S W_k,

    with the weighted means `S` of `BasisAttention`. The documented layer belongs to one
    grid: its basis, queries and keys are one learned number per grid point. Here they
    are functions of the input, so that the layer acts on any mesh. Softmax functions
    are nearly dependent where scores vary little: in single precision the trailing
    modes of a large basis on smooth features are rounding, so prefer a small
    `num_basis`.

    The product of `a` and `c` needs one number per basis function, whatever the key
    dimension `d_k` that the documentation allows: others are refused.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features` unless there are `head_features`.
      num_basis: basis functions `k` per head, at most as many as points.
      key_dim: `d_k`; `num_basis` by default, and nothing else.
      activation: `"relu"`, `"silu"` or `None`.
      rngs: source of the initial parameters.
      **options: further options of `BasisAttention`.

    Raises:
      ValueError: if the key dimension is not the number of basis functions, the heads
        do not divide the features or the activation is unknown.

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        key_dim: int | None = None,
        activation: str | None = None,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        if key_dim not in (None, num_basis):
            raise ValueError(
                f"{key_dim=} must be {num_basis=}: attention weights multiply the "
                "coefficients of the basis functions one by one."
            )
        if activation is not None:
            _checks.option("activation", activation, ACTIVATIONS)
        super().__init__(
            features, num_heads=num_heads, num_basis=num_basis, rngs=rngs, **options
        )
        self.activation = activation
        self.bypass = Linear(features, features, use_bias=False, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample, see `BasisAttention`."""
        attended = super().__call__(
            x,
            mesh_points=mesh_points,
            basis=basis,
            quadrature_weights=quadrature_weights,
        )
        y = attended + self.bypass(x)
        return y if self.activation is None else ACTIVATIONS[self.activation](y)

    def inspect(self, x: jax.Array, **given: Any) -> opjax.Transport:
        """Raises ValueError: every channel has gains of its own, there is no map."""
        raise ValueError(
            "Orthogonal attention has no functional map to inspect: it multiplies the "
            "coefficients of every channel by gains of their own."
        )
