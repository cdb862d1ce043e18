"""The operator transformer: encoder, scanned pre-norm blocks, decoder."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import opjax
from opjax import _checks, schwarz
from opjax.nn import galerkin
from opjax.nn.attention import FunctionalAttention
from opjax.nn.functional_schwarz import FunctionalSchwarzAttention, SchwarzTransport
from opjax.nn.galerkin import GalerkinAttention
from opjax.nn.layers import (
    MLP,
    LayerNorm,
    Linear,
    TimeEmbedding,
    reference_distances,
)
from opjax.nn.learned_basis import LearnedBasis
from opjax.nn.orthogonal import OrthogonalAttention
from opjax.nn.physics import PhysicsAttention
from opjax.schwarz import Cover

ATTENTIONS = {
    "functional": FunctionalAttention,
    "functional_schwarz": FunctionalSchwarzAttention,
    "orthogonal": OrthogonalAttention,
    "physics": PhysicsAttention,
    **{
        name: functools.partial(GalerkinAttention, attention=name)
        for name in galerkin.ATTENTIONS
    },
}
_WITH_RIDGE = ("functional", "functional_schwarz")


class Block(nnx.Module):
    """A pre-norm transformer block, `z + Attention(LN z)` then `z + MLP(LN z)`.

    Args:
      features: channels `c`.
      mlp_ratio: width of the hidden layer of the perceptron over `c`.
      attention: name of the attention, see `OperatorTransformer`.
      rngs: source of the initial parameters.
      **options: options of the attention.
    """

    def __init__(
        self,
        features: int,
        *,
        mlp_ratio: int,
        attention: str = "functional",
        rngs: nnx.Rngs,
        **options: Any,
    ):
        self.attention_norm = LayerNorm(features)
        self.attention = ATTENTIONS[attention](features, **options, rngs=rngs)
        self.mlp_norm = LayerNorm(features)
        self.mlp = MLP(features, mlp_ratio * features, features, rngs=rngs)

    def __call__(self, z: jax.Array, **given: Any) -> jax.Array:
        """Maps features `(n, c)`, and keyword arguments of the attention, to `(n, c)`.

        For attentions in a basis these are `basis` and `quadrature_weights`, for those
        of `GalerkinAttention` `mesh_points` and `quadrature_weights`.
        """
        z = z + self.attention(self.attention_norm(z), **given)
        return z + self.mlp(self.mlp_norm(z))


class OperatorTransformer(nnx.Module):
    """Learns an operator between functions on any mesh, by attention.

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
      attention: `"functional"`, `FunctionalAttention` of all points,
        `"functional_schwarz"`, `FunctionalSchwarzAttention` on subdomains,
        `"physics"`, `PhysicsAttention`: Transolver, with `shared_basis=False`, or
        `"orthogonal"`, `OrthogonalAttention`. Without a basis, and so without a use for
        its options: `"galerkin"`, `"linear"`, `"fourier"` or `"softmax"`, the
        `GalerkinAttention` of that name, which sees the coordinates as well.
      coarse: whether Schwarz attention has a coarse level.
      num_boxes: boxes per axis of the grid, as subdomains of calls without a cover;
        `None` if every call passes one.
      overlap: points by which a box grows on either side.
      coarse_hats: hats per axis as coarse space, see `schwarz.partition_hats`;
        `num_boxes + 1` if left out.
      shared_basis: whether all blocks share one basis module.
      reference_points: reference points per axis for distances as position features in
        place of coordinates, see `reference_distances`.
      reference_box: lower and upper corner of the box of the reference points; the unit
        cube by default.
      residual_encoder: whether the encoder has a second hidden layer, which adds to the
        first, both of `features` channels rather than one of `2 features`.
      decoder_norm: whether the decoder normalises features first.
      time_embedding: whether calls take a scalar `time`.
      ridge_logit: see `FunctionalAttention`; zero for attentions without a ridge.
      temperature: see `LearnedBasis`.
      temperature_bounds: see `LearnedBasis`.
      rematerialize: whether to recompute the blocks in the backward pass, which keeps
        one array of features per block.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, the heads do not divide the features, the
        grid has not the dimension of space, the attention is unknown, or boxes do not
        fit the grid or the attention.

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
        attention: str = "functional",
        coarse: bool = True,
        num_boxes: int | Sequence[int] | None = None,
        overlap: int = 2,
        coarse_hats: int | Sequence[int] | None = None,
        shared_basis: bool = True,
        reference_points: int | None = None,
        reference_box: tuple[Sequence[float], Sequence[float]] | None = None,
        residual_encoder: bool = False,
        decoder_norm: bool = True,
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
        if reference_box is not None and (
            not reference_points or [len(c) for c in reference_box] != [point_dim] * 2
        ):
            raise ValueError(
                f"{reference_box=} must be two corners of {point_dim=} coordinates and "
                f"goes with reference_points, which is {reference_points}."
            )
        _checks.option("attention", attention, ATTENTIONS)
        if ridge_logit and attention not in _WITH_RIDGE:
            raise ValueError(f"{ridge_logit=} has no meaning for {attention=}.")
        has_basis = attention not in galerkin.ATTENTIONS
        if grid_shape is not None and not has_basis:
            raise ValueError(
                f"{grid_shape=} is for convolutional projections, which {attention=} "
                "does not have; leave it out."
            )
        has_subdomains = attention == "functional_schwarz"
        if num_boxes is not None and (grid_shape is None or not has_subdomains):
            raise ValueError(
                f"{num_boxes=} needs a grid_shape and attention='functional_schwarz'; "
                f"got {grid_shape=}, {attention=}. On other meshes pass covers with "
                "every call."
            )
        if coarse_hats is not None and num_boxes is None:
            raise ValueError(f"{coarse_hats=} goes with num_boxes, which is None.")
        self.attention, self.has_coarse_level = attention, coarse
        self.boxes = None
        if grid_shape is not None and num_boxes is not None:
            boxes = _per_axis(num_boxes, point_dim)
            hats = [n + 1 for n in boxes] if coarse_hats is None else coarse_hats
            self.boxes = (tuple(grid_shape), boxes, overlap, _per_axis(hats, point_dim))
            grid_levels(*self.boxes)  # refuses boxes that do not fit
        basis_options = {
            "num_heads": num_heads,
            "num_basis": num_basis,
            "grid_shape": grid_shape,
            "temperature": temperature,
            "temperature_bounds": temperature_bounds,
        }
        self.point_dim, self.feature_dim = point_dim, feature_dim
        self.reference_points = reference_points
        self.reference_box = reference_box and tuple(map(tuple, reference_box))
        self.rematerialize = rematerialize
        positions = reference_points**point_dim if reference_points else point_dim
        self.encoder = MLP(
            positions + feature_dim,
            (features, features) if residual_encoder else 2 * features,
            features,
            residual=residual_encoder,
            rngs=rngs,
        )
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        self.basis = (
            LearnedBasis(features, **basis_options, rngs=rngs)
            if has_basis and shared_basis
            else None
        )
        attention_options: dict[str, Any] = (
            {**basis_options, "shared_basis": shared_basis}
            if has_basis
            else {"num_heads": num_heads, "point_dim": point_dim}
        )
        if attention in _WITH_RIDGE:
            attention_options["ridge_logit"] = ridge_logit
        if has_subdomains:
            attention_options["coarse"] = coarse

        def block(key: jax.Array) -> Block:
            return Block(
                features,
                mlp_ratio=mlp_ratio,
                attention=attention,
                **attention_options,
                rngs=nnx.Rngs(key),
            )

        self.blocks = jax.vmap(block)(jax.random.split(rngs.params(), num_layers))
        self.decoder_norm = LayerNorm(features) if decoder_norm else None
        self.decoder = Linear(features, out_features, rngs=rngs)

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
        cover: Cover | None = None,
        coarse_space: Cover | None = None,
    ) -> jax.Array:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point,
            see `FunctionalAttention`.
          time: scalar, if the model has a time embedding.
          cover: subdomains for Schwarz attention; by default those of the model's grid.
          coarse_space: their coarse functions; by default those of the model's grid, or
            the partition of unity of a cover that is given.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        z = self._encode(mesh_points, features, time)
        given = self._given(mesh_points, quadrature_weights, cover, coarse_space)

        def layer(z, block):
            return block(z, **given), None

        policies = jax.checkpoint_policies
        layer = jax.checkpoint(
            layer,
            prevent_cse=False,
            policy=policies.nothing_saveable
            if self.rematerialize
            else policies.save_only_these_names("projected", "attended"),
        )
        z, _ = lax.scan(layer, z, self.blocks)
        return self.decoder(z if self.decoder_norm is None else self.decoder_norm(z))

    def inspect(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
        cover: Cover | None = None,
        coarse_space: Cover | None = None,
    ) -> opjax.Transport | SchwarzTransport:
        """Returns what the attentions' `inspect` do, stacked over the layers.

        For functional and physics attention, maps `(l, h, k, k)` and bases
        `(l, h, n, k)`; other attentions on all points have no such maps.
        """
        if self.attention in galerkin.ATTENTIONS:
            raise ValueError(f"attention={self.attention!r} has no map to inspect.")
        z = self._encode(mesh_points, features, time)
        given = self._given(mesh_points, quadrature_weights, cover, coarse_space)
        return self._watch(lambda a, x, **given: a.inspect(x, **given), z, given)

    def condition_numbers(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the condition numbers of the small systems that a call solves.

            kappa((1 - a) K K^T + a I),    K the key coefficients of a head, (k, d).

        They bound what the solves lose to rounding, see `opjax.condition_number`.

        Args:
          mesh_points: see `__call__`; likewise the other arguments.
          features: values of the input function.
          quadrature_weights: weights of the points.
          time: scalar, if the model has a time embedding.

        Returns:
          One number per layer and head, shape `(l, h)`.

        Raises:
          ValueError: if the attention is not `"functional"`: others solve no such
            system, or, on subdomains, one in each of them.

        References:
          Xiao et al., "Functional Attention", 2026, App. D.2 and D.3 (Fig. 6 and 7).
        """
        if self.attention != "functional":
            raise ValueError(
                f"attention={self.attention!r} does not solve one system per head; "
                "condition_numbers is for models built with attention='functional'."
            )
        z = self._encode(mesh_points, features, time)
        given = self._given(mesh_points, quadrature_weights, None, None)
        return self._watch(FunctionalAttention.condition_numbers, z, given)

    def _watch(self, look, z, given):
        """Returns `look(attention, its input, **given)`, stacked over the layers."""

        def layer(z, block):
            seen = look(block.attention, block.attention_norm(z), **given)
            return block(z, **given), seen

        return lax.scan(layer, z, self.blocks)[1]

    def _given(self, mesh_points, quadrature_weights, cover, coarse_space):
        """Returns what a call gives to the attentions."""
        given = {"quadrature_weights": quadrature_weights}
        if self.attention in galerkin.ATTENTIONS:
            given["mesh_points"] = mesh_points
        else:
            given["basis"] = self.basis
        return given | self._levels(cover, coarse_space)

    def _levels(self, cover: Cover | None, coarse_space: Cover | None) -> dict:
        """Returns subdomains and coarse functions as arguments of the attention."""
        if self.attention != "functional_schwarz":
            if cover is not None or coarse_space is not None:
                raise ValueError(
                    "cover and coarse_space are for a model built with "
                    f"attention='functional_schwarz'; this one has {self.attention!r}."
                )
            return {}
        hats = cover
        if cover is None:
            if self.boxes is None:
                raise ValueError(
                    "Pass `cover`, the subdomains of the mesh, or build a model of a "
                    "grid with grid_shape and num_boxes: attention="
                    "'functional_schwarz' needs subdomains."
                )
            cover, hats = grid_levels(*self.boxes)
        if coarse_space is None and self.has_coarse_level:
            coarse_space = hats
        return {"cover": cover, "coarse_space": coarse_space}

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
            lower, upper = self.reference_box or (None, None)
            inputs = reference_distances(
                mesh_points,
                num_reference=self.reference_points,
                lower=lower,
                upper=upper,
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


@functools.lru_cache(maxsize=16)
def grid_levels(
    grid_shape: tuple[int, ...],
    num_boxes: tuple[int, ...],
    overlap: int,
    coarse_hats: tuple[int, ...],
) -> tuple[Cover, Cover]:
    """Returns the subdomains and the coarse functions of a model of a grid."""
    return (
        schwarz.box_cover(grid_shape, num_boxes, overlap=overlap),
        schwarz.partition_hats(grid_shape, coarse_hats),
    )


def _per_axis(count: int | Sequence[int], p: int) -> tuple[int, ...]:
    return (count,) * p if isinstance(count, int) else tuple(count)
