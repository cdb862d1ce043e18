"""FLARE: an operator transformer with residual perceptrons and latent attention."""

from collections.abc import Callable
from functools import partial
from typing import Any

from flax import nnx

from opjax import _checks
from opjax.nn.layers import LayerNorm, ResidualMLP, TimeEmbedding, stacked
from opjax.nn.layers.position import Position
from opjax.nn.models import chunks
from opjax.nn.models.encoder import Attention, Block
from opjax.nn.models.operator import OperatorTransformer

_BLOCK = partial(ResidualMLP, num_layers=3)
_ENDS = partial(ResidualMLP, num_layers=2)


class FlareBlock(Block):
    """A pre-norm block with a perceptron of any kind, see `Block`.

    Args:
      features: channels `c`.
      attention: constructor of the attention, `attention(features, rngs=)`.
      perceptron: constructor of the perceptron, called like `ResidualMLP`.
      norm: constructor of the norms, `norm(features)`.
      rngs: source of the initial parameters.
    """

    def __init__(
        self,
        features: int,
        *,
        attention: Attention,
        perceptron: Callable[..., Any],
        norm: Callable[[int], Any],
        rngs: nnx.Rngs,
    ):
        self.attention_norm = norm(features)
        self.attention = attention(features, rngs=rngs)
        self.mlp_norm = norm(features)
        self.mlp = perceptron(features, features, rngs=rngs)


class Flare(OperatorTransformer):
    """Learns an operator between functions on any mesh, with attention to latents.

    An `OperatorTransformer` with different parts: residual perceptrons are the encoder,
    the decoder and the perceptrons of the blocks, in addition to those of keys and
    values in `FlareAttention`. The published runs have 64 channels, 8 blocks and
    coordinates as the only position features. They have no time; here it is embedded as
    in the other models.

    Args:
      position: position features, see `OperatorTransformer`.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      attention: constructor of the attention of a block, `attention(features, rngs=)`,
        a `functools.partial` of `FlareAttention`.
      features: number `c` of channels of the hidden layers.
      num_layers: number of blocks.
      perceptron: constructor of the perceptron of a block.
      ends: constructor of encoder and decoder, called like `ResidualMLP`.
      norm: constructor of the norms, `norm(features)`.
      decoder_norm: whether the decoder normalises features first.
      time_embedding: whether calls take a scalar `time`.
      rematerialize: see `OperatorTransformer`.
      chunk_size: see `OperatorTransformer`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the attention rejects its options.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.Flare(
      ...     position=nn.Coordinates(2),
      ...     feature_dim=1,
      ...     out_features=1,
      ...     attention=partial(nn.FlareAttention, num_heads=2, num_latents=4),
      ...     features=8,
      ...     num_layers=2,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)

    References:
      Puri et al., "FLARE: fast low-rank attention routing engine", 2025
      (arXiv:2508.12594).
    """

    def __init__(
        self,
        *,
        position: Position,
        feature_dim: int,
        out_features: int,
        attention: Attention,
        features: int = 64,
        num_layers: int = 8,
        perceptron: Callable[..., Any] = _BLOCK,
        ends: Callable[..., Any] = _ENDS,
        norm: Callable[[int], Any] = LayerNorm,
        decoder_norm: bool = True,
        time_embedding: bool = False,
        rematerialize: bool = False,
        chunk_size: int | None = None,
        rngs: nnx.Rngs,
    ):
        # All parts are others; what they do together is inherited.
        _checks.positive(
            point_dim=position.point_dim,
            out_features=out_features,
            features=features,
            num_layers=num_layers,
        )
        self.position, self.feature_dim = position, feature_dim
        self.rematerialize, self.basis = rematerialize, None
        self.chunk_size = chunk_size
        inputs = position.features + feature_dim
        self.encoder = ends(inputs, features, input_residual=False, rngs=rngs)
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        layer = partial(
            FlareBlock, features, attention=attention, perceptron=perceptron, norm=norm
        )
        self.blocks = stacked(layer, num_layers, rngs=rngs)
        self.decoder_norm = norm(features) if decoder_norm else None
        self.decoder = ends(
            features,
            out_features,
            hidden_features=features,
            output_residual=False,
            rngs=rngs,
        )
        if chunk_size is not None:
            _checks.positive(chunk_size=chunk_size)
            chunks.check(self, "chunk_size", chunk_size)
