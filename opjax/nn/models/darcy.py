"""The published Galerkin transformers of Darcy flow and of its inverse."""

from collections.abc import Callable, Sequence
from functools import partial

from flax import nnx

from opjax.nn.attention.pointwise import GalerkinAttention
from opjax.nn.layers import DownScaler, PointwiseDecoder, SpectralDecoder, UpScaler
from opjax.nn.models.galerkin2d import POINT_DIM, GalerkinTransformer2d

EPSILON = 1e-7
_DECODER_FEATURES = 32


def darcy_transformer(
    grid_shape: Sequence[int] = (141, 141),
    coarse_shape: Sequence[int] = (71, 71),
    *,
    features: int = 128,
    num_layers: int = 6,
    num_heads: int = 4,
    attention: Callable[..., nnx.Module] = GalerkinAttention,
    epsilon: float = EPSILON,
    outer_norm: bool = False,
    modes: int | Sequence[int] = 12,
    in_features: int = 1,
    out_features: int = 1,
    boundary: str = "dirichlet",
    rematerialize: bool = False,
    rngs: nnx.Rngs,
) -> GalerkinTransformer2d:
    """Returns the model of Darcy flow, from rough coefficients to smooth solutions.

    Args:
      grid_shape: points per axis of the grid of input and output.
      coarse_shape: points per axis of the grid of the attention.
      features: number of channels of the hidden layers.
      num_layers: number of encoder layers.
      num_heads: heads, dividing `features`.
      attention: class of the attention layer, also called with `num_heads`, `point_dim`
        and `epsilon`.
      epsilon: offset of the variances in the normalisations.
      outer_norm: whether to normalise after attention and perceptrons, as usual,
        instead of in the heads.
      modes: number of frequencies of the spectral decoder, see `SpectralConvolution`.
      in_features: number of input channels.
      out_features: number of output channels.
      boundary: see `GalerkinTransformer2d`.
      rematerialize: see `GalerkinTransformer2d`.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> model = models.darcy_transformer(
      ...     (6, 6), (3, 3), features=8, num_layers=1, num_heads=2, modes=2,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((36, 2)), jnp.ones((36, 1))).shape
      (36, 1)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Sec. 4, App. B.
    """
    if outer_norm:
        attention = partial(attention, normalization=None)
    return GalerkinTransformer2d(
        grid_shape=grid_shape,
        in_features=in_features,
        features=features,
        num_layers=num_layers,
        hidden_features=2 * features,
        attention=_attention(attention, num_heads, epsilon),
        down=partial(DownScaler, new_shape=coarse_shape),
        up=partial(UpScaler, new_shape=grid_shape),
        decoder=partial(
            SpectralDecoder,
            out_features=out_features,
            features=_DECODER_FEATURES,
            grid_shape=grid_shape,
            modes=modes,
            point_dim=POINT_DIM,
        ),
        outer_norm=outer_norm,
        epsilon=epsilon,
        boundary=boundary,
        rematerialize=rematerialize,
        rngs=rngs,
    )


def inverse_transformer(
    grid_shape: Sequence[int] = (141, 141),
    coarse_shape: Sequence[int] = (71, 71),
    *,
    features: int = 192,
    num_layers: int = 6,
    num_heads: int = 4,
    attention: Callable[..., nnx.Module] = GalerkinAttention,
    outer_norm: bool = False,
    rngs: nnx.Rngs,
) -> GalerkinTransformer2d:
    """Returns the transformer for inverse Darcy flow, whose outputs are discontinuous.

    Args:
      grid_shape: points per axis of the grid of the input.
      coarse_shape: points per axis of the grid of attention and output.
      features: number of channels of the hidden layers.
      num_layers: number of encoder layers.
      num_heads: number of heads; must divide `features`.
      attention: see `darcy_transformer`.
      outer_norm: see `darcy_transformer`.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> model = models.inverse_transformer(
      ...     (6, 6), (3, 3), features=8, num_layers=1, num_heads=2, rngs=nnx.Rngs(0)
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((36, 1))).shape  # on the coarse grid
      (9, 1)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Sec. 4, App. B.
    """
    if outer_norm:
        attention = partial(attention, normalization=None)
    return GalerkinTransformer2d(
        grid_shape=grid_shape,
        features=features,
        num_layers=num_layers,
        hidden_features=2 * features,
        attention=_attention(attention, num_heads, EPSILON),
        down=partial(DownScaler, new_shape=coarse_shape, activation="silu"),
        up=partial(UpScaler, new_shape=coarse_shape),
        decoder=partial(
            PointwiseDecoder, out_features=1, features=features, point_dim=POINT_DIM
        ),
        outer_norm=outer_norm,
        boundary="free",
        rngs=rngs,
    )


def _attention(
    attention: Callable[..., nnx.Module], num_heads: int, epsilon: float
) -> Callable[..., nnx.Module]:
    return partial(attention, num_heads=num_heads, point_dim=POINT_DIM, epsilon=epsilon)
