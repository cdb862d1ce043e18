"""Attention layers named after their papers: each is a basis with a mixer."""

from functools import partial
from typing import Unpack

import jax
from flax import nnx

from opjax import _checks
from opjax.nn.attention.basis import BasisAttention
from opjax.nn.bases.adaptive import AdaptiveBasis
from opjax.nn.bases.expansions import (
    Basis,
    OrthonormalBasis,
    SoftmaxBasis,
    SoftmaxBasisOptions,
)
from opjax.nn.division import Use
from opjax.nn.layers import ACTIVATIONS, Linear
from opjax.nn.mixers import FunctionalMap, ModeGains, SoftmaxMap


class FunctionalAttention(BasisAttention):
    """Functional attention: a functional map in a learned softmax basis.

    The ridge is convex, `(1 - a) K K^T + a I` with `a = sigmoid(ridge_logit)` learned.
    Coefficients are weighted means. `opjax.functional_attention` of one head's queries,
    keys and values computes the same with `projection=Means()` and `ridge=Convex(r)`;
    by default the two differ:

    | | `opjax.functional_attention` | this layer |
    |---|---|---|
    | ridge | given | learned, `sigmoid(ridge_logit)` |
    | system | of a number: `K K^T + r I` | `Convex`, as the paper's code |
    | projection | `InnerProducts()` | means |
    | weights left out | ones | equal ones cancel |
    | query, key, value | features of points | linear maps of one set of means |

    Args:
      features: channels of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      num_basis: basis functions per head.
      ridge_logit: see `FunctionalMap`.
      ridge_per_head: see `FunctionalMap`.
      head_features: channels of a head.
      use_bias: whether the maps of features have biases.
      rngs: source of the initial parameters.
      **basis_options: `point_dim`, `grid_shape`, `temperature` and
        `temperature_bounds` of `SoftmaxBasis`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.FunctionalAttention(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape  # nine points of eight channels
      (9, 8)

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 4-9 and App. C.2.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        ridge_logit: float = 0.0,
        ridge_per_head: bool = False,
        head_features: int | None = None,
        use_bias: bool = True,
        rngs: nnx.Rngs,
        **basis_options: Unpack[SoftmaxBasisOptions],
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            basis=partial(
                SoftmaxBasis,
                num_basis=num_basis,
                head_features=head_features,
                use_bias=use_bias,
                **basis_options,
            ),
            mixer=partial(
                FunctionalMap, ridge_logit=ridge_logit, ridge_per_head=ridge_per_head
            ),
            head_features=head_features,
            use_bias=use_bias,
            rngs=rngs,
        )


class PhysicsAttention(BasisAttention):
    """The attention of Transolver: a softmax among tokens in soft slices.

    Published models clip temperatures on grids, but not on other meshes
    (`temperature_bounds=None`).

    Args:
      features: channels of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      num_basis: tokens per head.
      head_features: channels of a head.
      use_bias: whether the maps of features have biases.
      rngs: source of the initial parameters.
      **basis_options: `point_dim`, `grid_shape`, `temperature` and
        `temperature_bounds` of `SoftmaxBasis`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.PhysicsAttention(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Wu et al., "Transolver", 2024, Eq. 1-4.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        head_features: int | None = None,
        use_bias: bool = True,
        rngs: nnx.Rngs,
        **basis_options: Unpack[SoftmaxBasisOptions],
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            basis=partial(
                SoftmaxBasis,
                num_basis=num_basis,
                head_features=head_features,
                use_bias=use_bias,
                **basis_options,
            ),
            mixer=SoftmaxMap,
            head_features=head_features,
            use_bias=use_bias,
            rngs=rngs,
        )


class EideticAttention(BasisAttention):
    """The attention of Transolver++: a softmax among tokens in an `AdaptiveBasis`.

    Noise is added only in training; the authors' code also adds it in evaluation.

    Args:
      features: channels of input and output.
      num_heads: heads, dividing `features` unless `head_features` is given.
      num_basis: tokens per head.
      head_features: channels of a head.
      temperature: see `AdaptiveBasis`.
      rngs: source of the initial parameters.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import attention
      >>> build = partial(attention.EideticAttention, num_heads=2, num_basis=4)
      >>> layer = build(8, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Luo et al., "Transolver++", ICML 2025 (arXiv:2502.02414).
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        head_features: int | None = None,
        temperature: float = 0.5,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            features,
            num_heads=num_heads,
            basis=partial(
                AdaptiveBasis,
                num_basis=num_basis,
                head_features=head_features,
                temperature=temperature,
            ),
            mixer=SoftmaxMap,
            head_features=head_features,
            rngs=rngs,
        )


class OrthogonalAttention(BasisAttention):
    r"""Multi-head attention on the modes of an orthonormal basis, with a bypass.

        y = act(Attn(x) + W x),

    where `Attn` is `BasisAttention` with `ModeGains` in an `OrthonormalBasis` of
    softmax functions. The documented layer, `OrthogonalLayer`, supports only one grid:
    its basis, queries and keys have learned numbers for every grid point. Here they are
    functions of the input, so the layer supports any mesh. Softmax functions are nearly
    dependent if the scores vary little. In single precision, the trailing modes of a
    large basis on smooth features are then rounding errors, so prefer a small
    `num_basis`.

    Args:
      features: channels `c` of input and output.
      num_heads: heads, dividing `features`.
      num_basis: basis functions `k` per head, at most as many as points.
      activation: `"relu"`, `"silu"` or `None`.
      rngs: source of the initial parameters.
      **basis_options: `point_dim`, `grid_shape`, `temperature` and
        `temperature_bounds` of `SoftmaxBasis`.

    Raises:
      ValueError: if the heads do not divide the features or the activation is unknown.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.OrthogonalAttention(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        activation: str | None = None,
        rngs: nnx.Rngs,
        **basis_options: Unpack[SoftmaxBasisOptions],
    ):
        if activation is not None:
            _checks.option("activation", activation, ACTIVATIONS)
        inner = partial(SoftmaxBasis, num_basis=num_basis, **basis_options)
        super().__init__(
            features,
            num_heads=num_heads,
            basis=partial(OrthonormalBasis, inner=inner),
            mixer=ModeGains,
            rngs=rngs,
        )
        self.activation = activation
        self.bypass = Linear(features, features, use_bias=False, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: Basis | None = None,
        basis_functions: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample, see `BasisAttention`."""
        y = super().__call__(
            x,
            mesh_points=mesh_points,
            basis=basis,
            basis_functions=basis_functions,
            quadrature_weights=quadrature_weights,
        )
        y = y + self.bypass(x)
        return y if self.activation is None else ACTIVATIONS[self.activation](y)

    def obstacle(self, use: Use, shared: Basis | None = None) -> str | None:
        """Returns why it is not supported: its basis is orthonormal over all points."""
        return self.choose_basis(shared).obstacle(use)
