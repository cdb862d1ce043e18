"""The operator transformer: encoder, scanned pre-norm blocks, decoder."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

import opjax
from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn import division
from opjax.nn.attention.subdomains import MapsOfLevels, Subdomains
from opjax.nn.bases.expansions import Basis
from opjax.nn.division import PointExchange, Use
from opjax.nn.layers import MLP, LayerNorm, Linear, TimeEmbedding, stacked
from opjax.nn.layers.position import Position, check_points
from opjax.nn.models import chunks, packing
from opjax.nn.models._given import Points, joined, with_time
from opjax.nn.models.encoder import Attention, Block
from opjax.nn.models.modulation import Modulation
from opjax.precision import Precision


class OperatorTransformer(nnx.Module):
    """Learns an operator between functions on any mesh, with attention.

    An encoder lifts position features and input values to `features` channels. Blocks
    of attention and perceptrons follow, and a decoder computes the output. Parameters
    of the blocks are stacked along a leading axis and scanned, so that compile time
    does not grow with depth.

    Args:
      position: position features, `Coordinates(p)` or `ReferenceDistances(p, ...)`.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      attention: constructor of the attention of a block, `attention(features, rngs=)`:
        a `functools.partial` of `BasisAttention`, `GalerkinAttention` or another one.
      features: number `c` of channels of the hidden layers.
      num_layers: number of blocks.
      basis: constructor of a basis that all blocks share, `basis(features, rngs=)`, for
        an attention built with `basis=None`.
      mlp_ratio: width of the perceptrons' hidden layers, relative to `features`.
      residual_encoder: whether the encoder has two hidden layers of `features` channels
        with a residual, instead of one with `2 features`.
      decoder_norm: whether the decoder normalises features first.
      time_embedding: whether calls take a scalar `time`.
      rematerialize: whether to recompute the blocks in the backward pass, which stores
        only one array of features per block.
      chunk_size: default of the argument of calls, see `__call__`.
      scalar_dim: number of scalars, the last channels of the input function (see
        `constant_features`), that also modulate the norms of the blocks, see
        `Modulation`. With zero, scalars are only constant features.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the attention rejects its options or
        does not support chunks.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.OperatorTransformer(
      ...     position=nn.Coordinates(2),
      ...     feature_dim=1,
      ...     out_features=1,
      ...     attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=4),
      ...     features=8,
      ...     num_layers=2,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape  # any number of points
      (9, 1)

    References:
      Xiao et al., "Functional Attention", 2026, Fig. 1 and App. C.2.
    """

    chunk_size: int | None = None
    modulation: Modulation | None = None
    precision = Precision()  # see `with_precision`

    def __init__(
        self,
        *,
        position: Position,
        feature_dim: int,
        out_features: int,
        attention: Attention,
        features: int = 128,
        num_layers: int = 8,
        basis: Callable[..., Basis] | None = None,
        mlp_ratio: int = 1,
        residual_encoder: bool = False,
        decoder_norm: bool = True,
        time_embedding: bool = False,
        rematerialize: bool = False,
        chunk_size: int | None = None,
        scalar_dim: int = 0,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            point_dim=position.point_dim,
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
        )
        self.position, self.feature_dim = position, feature_dim
        self.rematerialize, self.chunk_size = rematerialize, chunk_size
        self.encoder = MLP(
            position.features + feature_dim,
            (features, features) if residual_encoder else 2 * features,
            features,
            residual=residual_encoder,
            rngs=rngs,
        )
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        self.basis = None if basis is None else basis(features, rngs=rngs)
        layer = partial(Block, features, mlp_ratio=mlp_ratio, attention=attention)
        self.blocks = stacked(layer, num_layers, rngs=rngs)
        self.decoder_norm = LayerNorm(features) if decoder_norm else None
        self.decoder = Linear(features, out_features, rngs=rngs)
        if not 0 <= scalar_dim <= feature_dim:
            raise ValueError(
                f"{scalar_dim=} must be between 0 and {feature_dim=}: scalars are the "
                "last channels of the input function."
            )
        if scalar_dim:  # the last parameters drawn: the others are as without
            self.modulation = Modulation(scalar_dim, features, num_layers, rngs=rngs)
        if chunk_size is not None:
            _checks.positive(chunk_size=chunk_size)
            chunks.check(self, "chunk_size", chunk_size)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        basis_functions: Array | None = None,
        subdomains: Subdomains | None = None,
        chunk_size: int | None = None,
        axis_name: str | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            see `BasisAttention`.
          time: scalar time, if the model has a time embedding.
          basis_functions: functions `(n, k)` of the mesh, for a `FixedBasis` without
            functions of its own.
          subdomains: for `SubdomainAttention` that is not of one grid.
          chunk_size: points that are computed at once, for attention that knows points
            by sums, see `obstacle`; the model's if None. Values and gradients are the
            same. Memory is that of the features in front of every
            block; a chunk that fits the cache of a core, 256 to 1024 points, is fastest
            there. There is no forward mode of differentiation.
          axis_name: axis of `jax.shard_map` over whose devices the points are split,
            for the same attention, and for attention on boxes of a grid. The other
            arrays are those of the points of a device, as many for each: pad with zero
            weights. Values and gradients are those of all points, if the loss adds up
            over the axis as well.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other, or an argument has
            no meaning for the model's attention.
        """
        if self.modulation is not None:
            return self.specialized(self._scalars(features))(
                mesh_points,
                features,
                quadrature_weights=quadrature_weights,
                time=time,
                basis_functions=basis_functions,
                subdomains=subdomains,
                chunk_size=chunk_size,
                axis_name=axis_name,
            )
        points = self.told(
            Points(mesh_points, quadrature_weights, basis_functions, subdomains)
        )
        chunk_size = self.chunk_size if chunk_size is None else chunk_size
        exchanges = isinstance(self.blocks.attention, PointExchange)
        if axis_name is not None and exchanges and chunk_size is None:
            chunks.check(self, "axis_name", axis_name)
            points = dataclasses.replace(points, axis_name=axis_name)
        elif chunk_size is not None or axis_name is not None:
            return chunks.evaluate(
                self,
                mesh_points,
                features,
                quadrature_weights=quadrature_weights,
                basis_functions=basis_functions,
                time=time,
                chunk_size=chunk_size,
                axis_name=axis_name,
            )
        z = self.encode(mesh_points, features, time=time)

        dtype = self.precision.storage
        if self.rematerialize and dtype is not None:

            def kept(z: Array, block: Block):
                return packing.recomputed(_apply, dtype, z, block, points), None

            return self.decode(lax.scan(kept, z, self.blocks)[0])

        def layer(z: Array, block: Block):
            return block(z, points), None

        policies = jax.checkpoint_policies
        layer = jax.checkpoint(
            layer,
            prevent_cse=False,
            policy=policies.nothing_saveable
            if self.rematerialize
            else policies.save_only_these_names("projected", "attended"),
        )
        z, _ = lax.scan(layer, z, self.blocks)
        return self.decode(z)

    def specialized(self, scalars: Array) -> "OperatorTransformer":
        """Returns the model for fixed scalars, whose norms no longer depend on them.

        It still takes them as constant features, the last channels of `features`.

        Args:
          scalars: scalars of the sample, normalised in the same way as features,
            `(scalar_dim,)`.

        Raises:
          ValueError: if the model was built without `scalar_dim`, or with a different
            one.
        """
        if self.modulation is None:
            raise ValueError("The model was built without scalar_dim.")
        model = jax.tree.map(lambda leaf: leaf, self)  # another module, same arrays
        self.modulation.apply(model.blocks, scalars)
        model.modulation = None
        return model

    def _scalars(self, features: Array | None) -> Array:
        """The scalars among the features, which are the same at all points."""
        assert self.modulation is not None
        if features is None or features.ndim != 2 or not len(features):
            raise ValueError(
                "features are None or empty, but their last channels are the scalars "
                f"of a model with scalar_dim={self.modulation.scalar_dim}."
            )
        return features[0, features.shape[1] - self.modulation.scalar_dim :]

    def obstacle(self, use: Use) -> str | None:
        """Returns why a use is not supported, see `nn.division`, or `None`."""
        if division.redefines(self, "__call__", "watch", known_by="obstacle"):
            return f"a {division.name(self)} has a call of its own"
        if use == "stream" and self.modulation is not None:
            return "scalars modulate its norms"
        return self.blocks.obstacle(use, self.basis)

    def encode(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        time: Array | None = None,
    ) -> Array:
        """Maps positions and input values to the features `(n, c)` of the blocks."""
        check_points(self.position, mesh_points)
        z = self.encoder(joined(self.position(mesh_points), features, self.feature_dim))
        return with_time(z, time, self.time_embedding)

    def decode(self, z: Array) -> Array:
        """Maps features `(n, c)` after the blocks to output values."""
        return self.decoder(z if self.decoder_norm is None else self.decoder_norm(z))

    def told(self, points: Points) -> Points:
        """Returns the data of the points for the attention, with the shared basis.

        Raises:
          ValueError: if the attention does not use an argument.
        """
        points = dataclasses.replace(points, basis=self.basis)
        points.check(type(self.blocks.attention))
        return points

    def inspect(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        time: Array | None = None,
        quadrature_weights: Array | None = None,
        basis_functions: Array | None = None,
        subdomains: Subdomains | None = None,
    ) -> opjax.MapBetweenBases | MapsOfLevels:
        """Returns the results of the attention's `inspect`, stacked over the layers.

        For attention in a basis, maps `(l, h, k, k)` and bases `(l, h, n, k)`.

        Raises:
          ValueError: if the attention has no map to inspect.
        """
        points = Points(mesh_points, quadrature_weights, basis_functions, subdomains)
        return self.watch("inspect", points, features, time=time)

    def condition_numbers(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        time: Array | None = None,
        quadrature_weights: Array | None = None,
        basis_functions: Array | None = None,
        subdomains: Subdomains | None = None,
    ) -> Array:
        """Returns the condition numbers of the small linear systems of a call.

            kappa((1 - a) K K^T + a I),    K the key coefficients of a head, (k, d).

        They bound the rounding errors of the solutions, see `opjax.condition_number`.

        Args:
          mesh_points: see `__call__`, also for the other arguments.
          features: values of the input function.
          time: scalar time, if the model has a time embedding.
          quadrature_weights: weights of the points.
          basis_functions: basis functions of the mesh.
          subdomains: subdomains of the mesh.

        Returns:
          One number per layer and head, shape `(l, h)`.

        Raises:
          ValueError: if the attention solves no linear system, or solves one in each
            subdomain.

        References:
          Xiao et al., "Functional Attention", 2026, App. D.2 and D.3 (Fig. 6 and 7).
        """
        points = Points(mesh_points, quadrature_weights, basis_functions, subdomains)
        return self.watch("condition_numbers", points, features, time=time)

    def watch(
        self,
        method: str,
        points: Points,
        features: Array | None,
        *,
        time: Array | None = None,
    ) -> Any:
        """Returns the results of an attention method, stacked over the layers."""
        if self.modulation is not None:
            model = self.specialized(self._scalars(features))
            return model.watch(method, points, features, time=time)
        attention = type(self.blocks.attention)
        if not hasattr(attention, method):
            raise ValueError(f"{attention.__name__} has no method {method}.")
        assert points.mesh_points is not None
        z = self.encode(points.mesh_points, features, time=time)
        points = self.told(points)

        def layer(z: Array, block: Block):
            look = getattr(block.attention, method)
            return block(z, points), points.attended(look, block.attention_norm(z))

        return lax.scan(layer, z, self.blocks)[1]


def _apply(z: Array, block: Block, points: Points) -> Array:
    return block(z, points)
