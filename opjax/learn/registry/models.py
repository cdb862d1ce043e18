"""Registry of whole models: how each one is built from options and sizes.

Every function `(config, sizes, rngs)` passes arguments by name.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from flax import nnx

from opjax import nn, spectral
from opjax.learn.config import ModelOptions
from opjax.learn.registry import attentions
from opjax.learn.registry.attentions import position
from opjax.learn.registry.entries import Entry, Layer, Operator, Sizes

PADDING = 0.1  # zeros before and after each axis of fno, as a share of its points


class Layout(NamedTuple):
    """Encoder and decoder settings of an `nn.OperatorTransformer` that are not options.

    Attributes:
      residual_encoder: see `nn.OperatorTransformer`.
      decoder_norm: see `nn.OperatorTransformer`.
    """

    residual_encoder: bool = False
    decoder_norm: bool = True


# What `transformer` reads, besides the options of the attention.
TRANSFORMER_OPTIONS = (
    "width",
    "num_layers",
    "num_heads",
    "mlp_ratio",
    "rematerialize",
    "reference_points",
    "chunk_size",
    "compute_dtype",
    "storage_dtype",
    "initial_kernels",
    "scalar_modulation",
    "dropout",
)


def transformer(
    found: Entry,
    config: ModelOptions,
    sizes: Sizes,
    rngs: nnx.Rngs,
    *,
    layout: Layout,
) -> nn.OperatorTransformer:
    """Builds the operator transformer with the attention of an entry."""
    assert found.attention is not None
    basis = None if found.basis is None else found.basis(config, sizes)
    shared = basis is not None and found.may_share_basis and config.shared_basis
    model = nn.OperatorTransformer(
        position=position(config, sizes),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=found.attention(config, sizes, None if shared else basis),
        features=config.width,
        num_layers=config.num_layers,
        basis=basis if shared else None,
        mlp_ratio=config.mlp_ratio,
        residual_encoder=layout.residual_encoder,
        decoder_norm=layout.decoder_norm,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        chunk_size=config.chunk_size or None,
        scalar_dim=_modulating(config, sizes),
        rngs=rngs,
    )
    precision = nn.Precision(
        _reduced(config.compute_dtype), _reduced(config.storage_dtype)
    )
    nn.with_precision(model, precision)
    if config.initial_kernels == "unit_variance":
        nn.unit_variance(model)
    return nn.models.with_dropout(model, config.dropout)


def _modulating(config: ModelOptions, sizes: Sizes) -> int:
    """How many scalars modulate norms."""
    if not config.scalar_modulation:
        return 0
    if not sizes.scalar_dim:
        raise ValueError(
            "scalar_modulation=True has no effect on samples without scalars; "
            "pass some with --scalar_names, or omit it."
        )
    return sizes.scalar_dim


def _reduced(dtype: str) -> str | None:
    """The type to round to, or None for no rounding."""
    return None if dtype == "float32" else dtype


# As published, FLARE, LNO and the authors' own ONO and GNOT see coordinates only.


def _flare(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> nn.Flare:
    return nn.Flare(
        position=nn.Coordinates(sizes.point_dim),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=attentions.flare(config, sizes, None),
        features=config.width,
        num_layers=config.num_layers,
        perceptron=partial(
            nn.layers.ResidualMLP, hidden_features=config.mlp_ratio * config.width
        ),
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        chunk_size=config.chunk_size or None,
        rngs=rngs,
    )


def _lno(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> nn.LatentNeuralOperator:
    """Time is another coordinate."""
    return nn.LatentNeuralOperator(
        position=nn.Coordinates(sizes.point_dim),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_latents=config.num_basis,
        mlp_layers=config.mlp_layers,
        time_input=sizes.time_embedding,
        rngs=rngs,
    )


def _with_heads(layer: type[nnx.Module]) -> Callable[[ModelOptions], Layer]:
    return lambda config: partial(layer, num_heads=config.num_heads)


# Attention layers that the published programs use on some data sets.
ONO_ATTENTIONS: dict[str, Callable[[ModelOptions], Layer]] = {
    "nystrom": lambda config: partial(
        nn.attention.NystromformerAttention,
        num_heads=config.num_heads,
        num_landmarks=config.num_landmarks,
    ),
    "mean": _with_heads(nn.attention.MeanAttention),
    "efficient": _with_heads(nn.attention.EfficientAttention),
    "galerkin": _with_heads(nn.attention.SharedNormAttention),
}


def _ono(
    config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs, *, original: bool = False
) -> nn.ONO:
    coordinates = nn.Coordinates(sizes.point_dim)
    return nn.ONO(
        position=coordinates if original else position(config, sizes),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=ONO_ATTENTIONS[config.ono_attention](config),
        features=config.width,
        num_layers=config.num_layers,
        num_modes=config.num_basis,
        mlp_ratio=config.mlp_ratio,
        joint_encoder=original,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _gnot(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> nn.GNOT:
    return nn.GNOT(
        position=position(config, sizes),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_experts=config.num_experts,
        mlp_ratio=config.mlp_ratio,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _gnot_original(
    config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs
) -> nn.models.OriginalGNOT:
    return nn.models.OriginalGNOT(
        point_dim=sizes.point_dim,
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.width,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_experts=config.num_experts,
        mlp_ratio=config.mlp_ratio,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _deeponet(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> nn.DeepONet:
    """As many functions per output as channels."""
    hidden = (config.width,) * config.num_layers
    widths = (*hidden, config.width * sizes.out_features)
    return nn.DeepONet(
        point_dim=sizes.point_dim,
        num_sensors=sizes.points,
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        branch_features=widths,
        trunk_features=widths,
        time_embedding=sizes.time_embedding,
        rngs=rngs,
    )


def kept_modes(num_modes: int, grid_shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the frequencies per axis of a spectral kernel, limited by the grid."""
    modes = *(2 * num_modes for _ in grid_shape[1:]), num_modes
    return tuple(map(min, modes, spectral.largest_modes(grid_shape)))


def _fno(
    config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs
) -> nn.FourierNeuralOperator:
    return nn.FourierNeuralOperator(
        grid_shape=sizes.grid,
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        modes=kept_modes(config.num_modes, sizes.grid),
        features=config.width,
        num_layers=config.num_layers,
        padding=PADDING,
        time_embedding=sizes.time_embedding,
        rngs=rngs,
    )


def _orthogonal_network(
    config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs
) -> nn.models.OrthogonalNetwork:
    """Layers have at least as many values as functions."""
    return nn.models.OrthogonalNetwork(
        num_points=sizes.points,
        in_features=sizes.feature_dim or sizes.point_dim,
        out_features=sizes.out_features,
        num_hidden=max(config.width, config.num_basis),
        num_layers=config.num_layers,
        num_basis=config.num_basis,
        rngs=rngs,
    )


def on_coarse_grid(
    layer: type[nn.attention.PointAttention], *, quadratic: bool = False
) -> Entry:
    """Attention on a coarse grid, between resampling layers and a spectral decoder."""

    def build(config: ModelOptions, sizes: Sizes, rngs: nnx.Rngs) -> Operator:
        half = tuple((n + 1) // 2 for n in sizes.grid)
        points = config.coarse_points
        model = nn.models.darcy_transformer(
            sizes.grid,
            (points,) * len(half) if points else half,
            features=config.width,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            attention=layer,
            epsilon=config.norm_epsilon,
            outer_norm=config.outer_norm,
            modes=kept_modes(config.num_modes, sizes.grid),
            in_features=sizes.feature_dim,
            out_features=sizes.out_features,
            # Nothing is known of the solution at the ends of the grid.
            boundary="free",
            rematerialize=config.rematerialize,
            rngs=rngs,
        )
        return nn.models.with_dropout(model, config.dropout)

    return Entry(
        model=build,
        options=(
            "width",
            "num_layers",
            "num_heads",
            "outer_norm",
            "rematerialize",
            "num_modes",
            "coarse_points",
            "norm_epsilon",
            "dropout",
        ),
        grid_axes=(2,),
        quadratic=quadratic,
        takes_time=False,
    )


_DEPTH = ("width", "num_layers")
_BLOCKS = (*_DEPTH, "mlp_ratio", "rematerialize")
_ONO = (*_BLOCKS, "num_heads", "num_basis", "num_landmarks", "ono_attention")
_GNOT = (*_BLOCKS, "num_heads", "num_experts")

FLARE = Entry(
    model=_flare,
    attention=attentions.flare,
    options=(*_BLOCKS, "num_heads", "num_basis", "chunk_size"),
    splits_points=True,
)
LNO = Entry(model=_lno, options=(*_DEPTH, "num_heads", "mlp_layers", "num_basis"))
ONO = Entry(model=_ono, options=(*_ONO, "reference_points"))
ONO_ORIGINAL = Entry(model=partial(_ono, original=True), options=_ONO)
GNOT = Entry(model=_gnot, options=(*_GNOT, "reference_points"))
GNOT_ORIGINAL = Entry(model=_gnot_original, options=_GNOT)
DEEPONET = Entry(model=_deeponet, options=_DEPTH, fixed_points=True)
FNO = Entry(model=_fno, options=(*_DEPTH, "num_modes"), grid_axes=(1, 2))
ORTHOGONAL_NETWORK = Entry(
    model=_orthogonal_network,
    options=(*_DEPTH, "num_basis"),
    fixed_points=True,
    takes_time=False,
)
