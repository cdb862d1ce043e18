"""The operator transformer: encoder, scanned pre-norm blocks, decoder."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import opjax
from opjax import _checks
from opjax.nn.attention import FunctionalAttention, LearnedBasis
from opjax.nn.embedding import TimeEmbedding, reference_distances
from opjax.nn.layers import MLP, LayerNorm, Linear


class Block(nnx.Module):
    """A pre-norm transformer block, `z + Attention(LN z)` then `z + MLP(LN z)`.

    Args:
      features: channels `c`.
      mlp_ratio: width of the hidden layer of the perceptron over `c`.
      rngs: source of the initial parameters.
      **attention: options of `FunctionalAttention`.
    """

    def __init__(self, features: int, *, mlp_ratio: int, rngs: nnx.Rngs, **attention):
        self.attention_norm = LayerNorm(features)
        self.attention = FunctionalAttention(features, **attention, rngs=rngs)
        self.mlp_norm = LayerNorm(features)
        self.mlp = MLP(features, mlp_ratio * features, features, rngs=rngs)

    def __call__(
        self,
        z: jax.Array,
        *,
        basis: LearnedBasis | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`."""
        z = z + self.attention(
            self.attention_norm(z), basis=basis, quadrature_weights=quadrature_weights
        )
        return z + self.mlp(self.mlp_norm(z))


class OperatorTransformer(nnx.Module):
    """Learns an operator between functions on any mesh, by functional attention.

    An encoder lifts position features and input values to `features` channels, blocks
    of attention and perceptrons act on them, and a decoder reads off the output.
    Parameters of the blocks are stacked along a leading axis and scanned, so that
    compile time does not grow with depth.

    Args:
      point_dim: dimension `p` of space.
      feature_dim: channels of the input function; zero if the mesh is the input.
      out_features: channels of the output function.
      features: channels `c` inside.
      num_layers: number of blocks.
      num_heads: heads, dividing `features`.
      num_basis: basis functions per head.
      mlp_ratio: width of the perceptrons' hidden layers over `features`.
      grid_shape: points per axis of a uniform grid, for convolutional projections;
        `None` for pointwise projections on any mesh.
      shared_basis: whether all blocks share one basis module.
      reference_points: reference points per axis for distances as position features in
        place of coordinates, see `reference_distances`.
      time_embedding: whether calls take a scalar `time`.
      ridge_logit: see `FunctionalAttention`.
      temperature: see `LearnedBasis`.
      temperature_bounds: see `LearnedBasis`.
      rematerialize: whether to recompute the blocks in the backward pass, which keeps
        one array of features per block.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, the heads do not divide the features, or
        the grid has not the dimension of space.

    References:
      Xiao et al., "Functional Attention", 2026, Fig. 1 and App. C.2.
    """

    def __init__(
        self,
        *,
        point_dim: int,
        feature_dim: int,
        out_features: int,
        features: int = 128,
        num_layers: int = 8,
        num_heads: int = 8,
        num_basis: int = 64,
        mlp_ratio: int = 1,
        grid_shape: Sequence[int] | None = None,
        shared_basis: bool = True,
        reference_points: int | None = None,
        time_embedding: bool = False,
        ridge_logit: float = 0.0,
        temperature: float = 0.5,
        temperature_bounds: tuple[float, float] | None = (0.1, 5.0),
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            point_dim=point_dim,
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            num_basis=num_basis,
            mlp_ratio=mlp_ratio,
        )
        if grid_shape is not None and len(grid_shape) != point_dim:
            raise ValueError(f"{grid_shape=} must have one entry per {point_dim=}.")
        if reference_points == 1:
            raise ValueError(f"{reference_points=} must be at least 2, or None.")
        basis_options = {
            "num_heads": num_heads,
            "num_basis": num_basis,
            "grid_shape": grid_shape,
            "temperature": temperature,
            "temperature_bounds": temperature_bounds,
        }
        self.point_dim, self.feature_dim = point_dim, feature_dim
        self.reference_points = reference_points
        self.rematerialize = rematerialize
        positions = reference_points**point_dim if reference_points else point_dim
        self.encoder = MLP(positions + feature_dim, 2 * features, features, rngs=rngs)
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        self.basis = (
            LearnedBasis(features, **basis_options, rngs=rngs) if shared_basis else None
        )

        def block(key: jax.Array) -> Block:
            return Block(
                features,
                mlp_ratio=mlp_ratio,
                shared_basis=shared_basis,
                ridge_logit=ridge_logit,
                **basis_options,
                rngs=nnx.Rngs(key),
            )

        self.blocks = jax.vmap(block)(jax.random.split(rngs.params(), num_layers))
        self.decoder_norm = LayerNorm(features)
        self.decoder = Linear(features, out_features, rngs=rngs)

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            see `FunctionalAttention`.
          time: scalar, if the model has a time embedding.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        z = self._encode(mesh_points, features, time)

        def layer(z, block):
            z = block(z, basis=self.basis, quadrature_weights=quadrature_weights)
            return z, None

        policies = jax.checkpoint_policies
        layer = jax.checkpoint(
            layer,
            prevent_cse=False,
            policy=policies.nothing_saveable
            if self.rematerialize
            else policies.save_only_these_names("projected", "attended"),
        )
        z, _ = lax.scan(layer, z, self.blocks)
        return self.decoder(self.decoder_norm(z))

    def inspect(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> opjax.Transport:
        """Returns maps `(l, h, k, k)` and bases `(l, h, n, k)` of all layers."""
        z = self._encode(mesh_points, features, time)
        given = {"basis": self.basis, "quadrature_weights": quadrature_weights}

        def layer(z, block):
            seen = block.attention.inspect(block.attention_norm(z), **given)
            return block(z, **given), seen

        return lax.scan(layer, z, self.blocks)[1]

    def _encode(self, mesh_points, features, time):
        _checks.floating(mesh_points=mesh_points)
        _checks.rank(2, mesh_points=mesh_points)
        if mesh_points.shape[1] != self.point_dim:
            raise ValueError(
                f"mesh_points {mesh_points.shape} must have shape (n, "
                f"{self.point_dim}) for this model's point_dim={self.point_dim}."
            )
        channels = 0 if features is None else jnp.shape(features)[-1]
        if channels != self.feature_dim:
            raise ValueError(
                f"features {None if features is None else jnp.shape(features)} must "
                f"have {self.feature_dim} channels for this model."
            )
        if (time is None) != (self.time_embedding is None):
            raise ValueError(
                f"{time=} does not fit a model built with "
                f"time_embedding={self.time_embedding is not None}."
            )
        inputs = mesh_points
        if self.reference_points:
            inputs = reference_distances(
                mesh_points, num_reference=self.reference_points
            )
        if features is not None:
            _checks.floating(features=features)
            _checks.rank(2, features=features)
            _checks.same_points(mesh_points=mesh_points, features=features)
            inputs = jnp.concatenate([inputs, features], axis=1)
        z = self.encoder(inputs)
        if self.time_embedding is not None:
            z = z + self.time_embedding(time)[None, :]
        return z
