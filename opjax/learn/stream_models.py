"""Entries of the registry that are whole models of two streams: ONO, GNOT, DeepONet."""

from functools import partial
from typing import Any

from flax import nnx

from opjax import nn
from opjax.learn.attentions import Entry, position

# Attentions of the orthogonal neural operator, and what else they read.
ONO_ATTENTIONS = {
    "nystrom": nn.NystromformerAttention,
    "mean": nn.MeanAttention,
    "efficient": nn.EfficientAttention,
    "galerkin": nn.SharedNormAttention,
}


def _ono_attention(config: Any) -> Any:
    options = {"num_heads": config.num_heads}
    if config.ono_attention == "nystrom":
        options["num_landmarks"] = config.num_landmarks
    return partial(ONO_ATTENTIONS[config.ono_attention], **options)


def _ono(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The orthogonal neural operator, of every sample on its own."""
    return nn.ONO(
        position=position(config, sizes),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=_ono_attention(config),
        features=config.features,
        num_layers=config.num_layers,
        num_modes=config.num_basis,
        mlp_ratio=config.mlp_ratio,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _ono_original(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The same with the encoder of the authors, which sees coordinates only."""
    return nn.ONO(
        position=nn.Coordinates(sizes.point_dim),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=_ono_attention(config),
        features=config.features,
        num_layers=config.num_layers,
        num_modes=config.num_basis,
        mlp_ratio=config.mlp_ratio,
        joint_encoder=True,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _gnot(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The general neural operator transformer of most tables."""
    return nn.GNOT(
        position=position(config, sizes),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_experts=config.num_experts,
        mlp_ratio=config.mlp_ratio,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _gnot_original(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The authors' own, with one input function at the mesh points."""
    return nn.OriginalGNOT(
        point_dim=sizes.point_dim,
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_experts=config.num_experts,
        mlp_ratio=config.mlp_ratio,
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _deeponet(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The deep operator network, with as many functions per output as channels."""
    hidden = (config.features,) * config.num_layers
    widths = (*hidden, config.features * sizes.out_features)
    return nn.DeepONet(
        point_dim=sizes.point_dim,
        num_sensors=sizes.num_points,
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        branch_features=widths,
        trunk_features=widths,
        time_embedding=sizes.time_embedding,
        rngs=rngs,
    )


_SIZES = ("features", "num_layers", "num_heads", "mlp_ratio", "rematerialize")
_ONO = (*_SIZES, "num_basis", "num_landmarks", "ono_attention")
_GNOT = (*_SIZES, "num_experts")

ONO = Entry(model=_ono, options=(*_ONO, "reference_points"))
ONO_ORIGINAL = Entry(model=_ono_original, options=_ONO)
GNOT = Entry(model=_gnot, options=(*_GNOT, "reference_points"))
GNOT_ORIGINAL = Entry(model=_gnot_original, options=_GNOT)
DEEPONET = Entry(model=_deeponet, options=("features", "num_layers"), fixed_points=True)
