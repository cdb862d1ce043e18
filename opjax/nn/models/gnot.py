"""The general neural operator transformer, in the version that most papers compare."""

from collections.abc import Sequence
from functools import partial

import jax
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.attention.softmaxed import NormalizedAttention, NormalizedCrossAttention
from opjax.nn.layers import MLP, Experts, Initializer, LayerNorm, TimeEmbedding, stacked
from opjax.nn.layers.initializers import trunk_init
from opjax.nn.layers.position import Position, check_points
from opjax.nn.models._given import joined, with_time


class GNOTBlock(nnx.Module):
    r"""Cross-attention and self-attention, each followed by experts gated by position.

        z <- z + Cross(N z, N y_1, ..., N y_f),    z <- z + N(sum_e g_e MLP_e(z)),
        z <- z + Self(N z),                        z <- z + N(sum_e g_e MLP'_e(z)),

    with gates `g = softmax(MLP(x))`; the MLP has two hidden layers and acts on the
    coordinates `x`.

    Args:
      features: channels `c`.
      point_dim: dimension of the coordinates.
      num_heads: heads, dividing `features`.
      num_inputs: number of input functions `y`.
      num_experts: number `e` of perceptrons in each mixture.
      mlp_ratio: width of all hidden layers, relative to `c`.
      kernel_init: see `MLP`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, or a count is not positive.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> block = models.GNOTBlock(8, point_dim=2, num_heads=2, rngs=nnx.Rngs(0))
      >>> inputs = [jnp.ones((5, 8))]  # one function, of five points
      >>> block(jnp.ones((9, 8)), inputs, jnp.ones((9, 2))).shape
      (9, 8)
    """

    def __init__(
        self,
        features: int,
        *,
        point_dim: int,
        num_heads: int,
        num_inputs: int = 1,
        num_experts: int = 3,
        mlp_ratio: int = 1,
        kernel_init: Initializer | None = trunk_init,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_experts=num_experts, mlp_ratio=mlp_ratio)
        hidden = mlp_ratio * features
        experts = partial(
            Experts,
            features,
            hidden_features=hidden,
            num_experts=num_experts,
            kernel_init=kernel_init,
            rngs=rngs,
        )
        self.gates = MLP(
            point_dim,
            (hidden, hidden),
            num_experts,
            kernel_init=kernel_init,
            rngs=rngs,
        )
        self.cross_norm = LayerNorm(features)
        self.input_norms = nnx.List([LayerNorm(features) for _ in range(num_inputs)])
        self.cross_attention = NormalizedCrossAttention(
            features,
            num_heads=num_heads,
            num_inputs=num_inputs,
            kernel_init=kernel_init,
            rngs=rngs,
        )
        self.cross_experts = experts()
        self.cross_experts_norm = LayerNorm(features)
        self.self_norm = LayerNorm(features)
        self.self_attention = NormalizedAttention(
            features, num_heads=num_heads, kernel_init=kernel_init, rngs=rngs
        )
        self.self_experts = experts()
        self.self_experts_norm = LayerNorm(features)

    def __call__(
        self,
        z: Array,
        inputs: Sequence[Array],
        mesh_points: Array,
        *,
        quadrature_weights: Array | None = None,
        input_weights: Sequence[Array | None] | None = None,
    ) -> Array:
        """Evaluates the block on one sample.

        Args:
          z: features at the points, shape `(n, c)`.
          inputs: features of the input functions, each `(n_f, c)`.
          mesh_points: coordinates of the points of `z`, shape `(n, p)`.
          quadrature_weights: weights of these points, shape `(n,)`.
          input_weights: see `NormalizedCrossAttention`.

        Returns:
          Features at the points, shape `(n, c)`.
        """
        gates = jax.nn.softmax(self.gates(mesh_points.astype(z.dtype)), axis=1)
        normed = [norm(y) for norm, y in zip(self.input_norms, inputs, strict=True)]
        z = z + self.cross_attention(
            self.cross_norm(z), normed, input_weights=input_weights
        )
        z = z + self.cross_experts_norm(self.cross_experts(z, gates))
        z = z + self.self_attention(
            self.self_norm(z), quadrature_weights=quadrature_weights
        )
        return z + self.self_experts_norm(self.self_experts(z, gates))


class GNOT(nnx.Module):
    r"""The general neural operator transformer, as in Neural-Solver-Library.

        x = MLP(p),    f <- MLP([p, f]) + e(t),    f <- Block_l(x, f),    u = MLP(f),

    with position features `p`. Every block starts again from the embedding `x` of the
    points; the results of earlier blocks enter only through cross-attention. Most
    papers compare with this model. The authors' own model is `OriginalGNOT`: there,
    features pass from block to block, and several input functions are supported.

    Args:
      position: position features, `Coordinates(p)` or `ReferenceDistances(p, ...)`; the
        gates of the experts depend on coordinates.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      features: number `c` of channels of the hidden layers.
      num_layers: number of blocks.
      num_heads: heads, dividing `features`.
      num_experts: number of perceptrons in each mixture.
      mlp_ratio: width of the blocks' hidden layers, relative to `c`.
      time_embedding: whether calls take a scalar `time`.
      rematerialize: whether to recompute the blocks in the backward pass.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the heads do not divide the features.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.GNOT(
      ...     position=nn.Coordinates(2), feature_dim=1, out_features=1, features=8,
      ...     num_layers=1, num_heads=2, rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """

    def __init__(
        self,
        *,
        position: Position,
        feature_dim: int,
        out_features: int,
        features: int = 128,
        num_layers: int = 3,
        num_heads: int = 8,
        num_experts: int = 3,
        mlp_ratio: int = 2,
        time_embedding: bool = False,
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
        )
        self.position, self.feature_dim = position, feature_dim
        self.rematerialize = rematerialize
        hidden, inputs = 2 * features, position.features + feature_dim
        self.point_encoder = MLP(position.features, hidden, features, rngs=rngs)
        self.encoder = MLP(inputs, hidden, features, rngs=rngs)
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        layer = partial(
            GNOTBlock,
            features,
            point_dim=position.point_dim,
            num_heads=num_heads,
            num_experts=num_experts,
            mlp_ratio=mlp_ratio,
        )
        self.blocks = stacked(layer, num_layers, rngs=rngs)
        self.decoder = MLP(features, hidden, out_features, rngs=rngs)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample, see `OperatorTransformer`."""
        x, f = self.encode(mesh_points, features, time=time)
        return self.decode(x, f, mesh_points, quadrature_weights=quadrature_weights)

    def encode(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        time: Array | None = None,
    ) -> tuple[Array, Array]:
        """Returns the embeddings `(n, c)` of the points and of the input function."""
        check_points(self.position, mesh_points)
        p = self.position(mesh_points)
        f = self.encoder(joined(p, features, self.feature_dim))
        return self.point_encoder(p), with_time(f, time, self.time_embedding)

    def decode(
        self,
        x: Array,
        f: Array,
        mesh_points: Array,
        *,
        quadrature_weights: Array | None = None,
    ) -> Array:
        """Maps both embeddings `(n, c)`, at these points, to output values."""
        weights = quadrature_weights

        def layer(f: Array, block: GNOTBlock) -> tuple[Array, None]:
            return block(
                x,
                (f,),
                mesh_points,
                quadrature_weights=weights,
                input_weights=(weights,),
            ), None

        if self.rematerialize:
            layer = jax.checkpoint(layer, prevent_cse=False)
        f, _ = lax.scan(layer, f, self.blocks)
        return self.decoder(f)
