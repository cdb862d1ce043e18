"""Entries of the registry that are whole models, around latents: FLARE and LNO."""

from functools import partial
from typing import Any

from flax import nnx

from opjax import nn
from opjax.learn.attentions import Entry


def _flare_attention(config: Any, sizes: Any, basis: None) -> Any:
    del sizes, basis
    return partial(
        nn.FlareAttention, num_heads=config.num_heads, num_latents=config.num_basis
    )


def _flare(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """FLARE as published, which sees coordinates only."""
    hidden = config.mlp_ratio * config.features
    return nn.Flare(
        position=nn.Coordinates(sizes.point_dim),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        attention=_flare_attention(config, sizes, None),
        features=config.features,
        num_layers=config.num_layers,
        perceptron=partial(nn.ResidualMLP, hidden_features=hidden),
        time_embedding=sizes.time_embedding,
        rematerialize=config.rematerialize,
        rngs=rngs,
    )


def _lno(config: Any, sizes: Any, rngs: nnx.Rngs) -> nnx.Module:
    """The latent neural operator as published; time is another coordinate."""
    return nn.LatentNeuralOperator(
        position=nn.Coordinates(sizes.point_dim),
        feature_dim=sizes.feature_dim,
        out_features=sizes.out_features,
        features=config.features,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_latents=config.num_basis,
        mlp_layers=config.mlp_layers,
        time_input=sizes.time_embedding,
        rngs=rngs,
    )


_SIZES = ("features", "num_layers", "num_heads", "num_basis")

# In other models, FLARE's attention has latents and heads only.
FLARE = Entry(
    attention=_flare_attention,
    model=_flare,
    options=(*_SIZES, "mlp_ratio", "rematerialize"),
)
LNO = Entry(model=_lno, options=(*_SIZES, "mlp_layers"))
