"""Entries of the registry that are whole models: what their constructors are given."""

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flax import nnx

from opjax import nn, spectral
from opjax.learn.attentions import Entry, position

PADDING = 0.1  # zeros before and after each axis of fno, over its points
# Attentions of the orthogonal neural operator.
ONO_ATTENTIONS = {
    "nystrom": nn.NystromformerAttention,
    "mean": nn.MeanAttention,
    "efficient": nn.EfficientAttention,
    "galerkin": nn.SharedNormAttention,
}


def whole(
    construct: Callable[..., Any],
    *options: str,
    sees: Callable[[Any, Any], Any] | None = None,
    more: Callable[[Any, Any], dict[str, Any]] | None = None,
    reads: Sequence[str] = (),
    **needs: Any,
) -> Entry:
    """A whole model; it is given what its constructor names of the samples' sizes.

    Args:
      construct: the constructor.
      *options: those that are arguments of the same name.
      sees: `sees(config, sizes)`, how the model sees points.
      more: `more(config, sizes)`, further arguments.
      reads: options that those are made of.
      **needs: further fields of the entry.
    """
    # The metaclass of modules takes anything; their constructor does not.
    of: Any = construct.__init__ if isinstance(construct, type) else construct
    named = inspect.signature(of).parameters

    def build(config: Any, sizes: Any, rngs: nnx.Rngs) -> Any:
        if sizes.time_embedding and not {"time_embedding", "time_input"} & {*named}:
            raise ValueError(
                f"models={config.models[0]!r} has no time; take another model."
            )
        given = {k: value for k, value in sizes._asdict().items() if k in named}
        given |= {name: getattr(config, name) for name in options}
        given |= {} if sees is None else {"position": sees(config, sizes)}
        given |= {} if more is None else more(config, sizes)
        model = construct(**given, rngs=rngs)
        if "storage_dtype" in reads:
            nn.with_precision(model, _precision(config))
        if "initial_kernels" in reads and config.initial_kernels == "unit_variance":
            nn.unit_variance(model)
        return nn.with_dropout(model, config.dropout) if "dropout" in reads else model

    return Entry(model=build, options=(*options, *reads), **needs)


def around(found: Entry, **options: Any) -> Entry:
    """The operator transformer around an attention, and further options of it."""

    def more(config: Any, sizes: Any) -> dict[str, Any]:
        assert found.attention is not None
        basis = None if found.basis is None else found.basis(config, sizes)
        shared = basis is not None and found.may_share_basis and config.shared_basis
        attention = found.attention(config, sizes, None if shared else basis)
        given = {"attention": attention, "basis": basis if shared else None}
        return {**given, "chunk_size": config.chunk_size or None, **options}

    reads = ("num_heads", "reference_points", "chunk_size")
    reads += ("compute_dtype", "storage_dtype", "initial_kernels")
    return whole(
        nn.OperatorTransformer, *_BLOCKS, sees=position, more=more, reads=reads
    )


def _precision(config: Any) -> nn.Precision:
    types = config.compute_dtype, config.storage_dtype
    return nn.Precision(*(None if dtype == "float32" else dtype for dtype in types))


def _coordinates(config: Any, sizes: Any) -> nn.Coordinates:
    del config
    return nn.Coordinates(sizes.point_dim)


def _flare_attention(config: Any, sizes: Any, basis: None) -> Any:
    del sizes, basis
    return partial(
        nn.FlareAttention, num_heads=config.num_heads, num_latents=config.num_basis
    )


def _flare(config: Any, sizes: Any) -> dict[str, Any]:
    hidden = config.mlp_ratio * config.features
    return {
        "attention": _flare_attention(config, sizes, None),
        "perceptron": partial(nn.ResidualMLP, hidden_features=hidden),
    }


def _lno(config: Any, sizes: Any) -> dict[str, Any]:
    """Time is another coordinate."""
    return {"num_latents": config.num_basis, "time_input": sizes.time_embedding}


def _ono(config: Any, sizes: Any) -> dict[str, Any]:
    del sizes
    options = {"num_heads": config.num_heads}
    if config.ono_attention == "nystrom":
        options["num_landmarks"] = config.num_landmarks
    attention = partial(ONO_ATTENTIONS[config.ono_attention], **options)
    return {"attention": attention, "num_modes": config.num_basis}


def _ono_original(config: Any, sizes: Any) -> dict[str, Any]:
    return _ono(config, sizes) | {"joint_encoder": True}


def _deeponet(config: Any, sizes: Any) -> dict[str, Any]:
    """As many functions per output as channels."""
    hidden = (config.features,) * config.num_layers
    widths = (*hidden, config.features * sizes.out_features)
    sensors = {"num_sensors": sizes.num_points}
    return sensors | {"branch_features": widths, "trunk_features": widths}


def kept_modes(num_modes: int, grid_shape: Sequence[int]) -> tuple[int, ...]:
    """Returns the frequencies per axis of a spectral kernel, clipped to a grid."""
    wanted = *(2 * num_modes for _ in grid_shape[1:]), num_modes
    return tuple(map(min, wanted, spectral.largest_modes(grid_shape)))


def _fno(config: Any, sizes: Any) -> dict[str, Any]:
    modes = kept_modes(config.num_modes, sizes.grid_shape)
    return {"modes": modes, "padding": PADDING}


def _on_coarse_grid(attention: Any, config: Any, sizes: Any) -> dict[str, Any]:
    coarse = [config.coarse_points or (n + 1) // 2 for n in sizes.grid_shape]
    return {
        "attention": attention,
        "coarse_shape": tuple(coarse),
        "in_features": sizes.feature_dim,
        "epsilon": config.norm_epsilon,
        "modes": kept_modes(config.num_modes, sizes.grid_shape),
        "boundary": "free",  # nothing is known of the solution at the ends of the grid
    }


def on_coarse_grid(attention: Any, **needs: Any) -> Entry:
    """An attention on a coarse grid, between scalers and a spectral decoder."""
    return whole(
        nn.darcy_transformer,
        *(*_DEPTH, "num_heads", "outer_norm", "rematerialize"),
        more=partial(_on_coarse_grid, attention),
        reads=("num_modes", "coarse_points", "norm_epsilon", "dropout"),
        grid_axes=(2,),
        **needs,
    )


def _orthogonal_network(config: Any, sizes: Any) -> dict[str, Any]:
    """Of at least as many values as functions."""
    hidden = max(config.features, config.num_basis)
    return {"in_features": sizes.feature_dim or sizes.point_dim, "num_hidden": hidden}


_DEPTH = ("features", "num_layers")
_BLOCKS = (*_DEPTH, "mlp_ratio", "rematerialize")
_ONO = ("num_heads", "num_basis", "num_landmarks", "ono_attention")
_GNOT = (*_BLOCKS, "num_heads", "num_experts")

# As published FLARE, LNO and the authors' own ONO and GNOT see coordinates only.
FLARE = whole(
    nn.Flare,
    *_DEPTH,
    "rematerialize",
    sees=_coordinates,
    more=_flare,
    reads=("num_heads", "num_basis", "mlp_ratio"),
    attention=_flare_attention,  # of other models, with latents and heads only
)
LNO = whole(
    nn.LatentNeuralOperator,
    *_DEPTH,
    "num_heads",
    "mlp_layers",
    sees=_coordinates,
    more=_lno,
    reads=("num_basis",),
)
ONO = whole(
    nn.ONO, *_BLOCKS, sees=position, more=_ono, reads=(*_ONO, "reference_points")
)
ONO_ORIGINAL = whole(
    nn.ONO, *_BLOCKS, sees=_coordinates, more=_ono_original, reads=_ONO
)
GNOT = whole(nn.GNOT, *_GNOT, sees=position, reads=("reference_points",))
GNOT_ORIGINAL = whole(nn.OriginalGNOT, *_GNOT)
DEEPONET = whole(nn.DeepONet, more=_deeponet, reads=_DEPTH, fixed_points=True)
FNO = whole(
    nn.FourierNeuralOperator,
    *_DEPTH,
    more=_fno,
    reads=("num_modes",),
    grid_axes=(1, 2),
)
ORTHOGONAL_NETWORK = whole(
    nn.OrthogonalNetwork,
    "num_layers",
    "num_basis",
    more=_orthogonal_network,
    reads=("features",),
    fixed_points=True,
)
