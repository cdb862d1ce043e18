"""Resampling between a fine grid and the coarse grid of the attention."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.interpolation import interpolate_grid
from opjax.nn.layers.grid import GridConvolution
from opjax.nn.layers.linear import ACTIVATIONS, FanInLinear


class ConvolutionBlock(nnx.Module):
    r"""A 3 x ... x 3 convolution with activation; optionally two, and a residual.

        y = act(C x),    y = act(C x + R x)    or    y = act(C_2 act(C x) + R x),

    with `R` the identity, or a pointwise linear map if the channels differ.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      grid_shape: points per axis.
      activation: `"relu"` or `"silu"`.
      use_bias: whether the convolutions have a bias.
      residual: whether to add `R x`.
      double: whether there is a second convolution.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the activation is unknown.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> block = layers.ConvolutionBlock(2, 4, grid_shape=(3, 3), rngs=nnx.Rngs(0))
      >>> block(jnp.ones((9, 2))).shape
      (9, 4)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, App. B.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        activation: str = "silu",
        use_bias: bool = False,
        residual: bool = False,
        double: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.option("activation", activation, ACTIVATIONS)
        self.activation, self.residual = activation, residual

        def convolution(channels: int) -> GridConvolution:
            return GridConvolution(
                channels,
                out_features,
                grid_shape=grid_shape,
                use_bias=use_bias,
                rngs=rngs,
            )

        self.convolution = convolution(in_features)
        self.second = convolution(out_features) if double else None
        self.shortcut = (
            FanInLinear(in_features, out_features, rngs=rngs)
            if residual and in_features != out_features
            else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps values `(n, in_features)` on the grid to `(n, out_features)`."""
        activation = ACTIVATIONS[self.activation]
        y = self.convolution(x)
        if self.second is not None:
            y = self.second(activation(y))
        if self.residual:
            y = y + (x if self.shortcut is None else self.shortcut(x))
        return activation(y)


class DownScaler(nnx.Module):
    r"""Maps a function on a fine grid to features on a coarse grid.

        y = act(I_1 B_0 x),    y_1 = B_1 y,    y_2 = B_2 y_1,    y_3 = B_3 y_2,
        z = act(I_2 [y_1, y_2, y_3]),

    with interpolations `I_1` to the intermediate and `I_2` to the coarse grid, and
    blocks `B_i = act(C_i .)` of bias-free convolutions. The activation acts on both
    sides of an interpolation, as in the code of the paper: twice where it is no ReLU.

    Args:
      in_features: channels of the input function.
      out_features: number of output channels `c`, at least 3; a third, rounded down, in
        each of `y_1, y_2` and the rest in `y_3`.
      grid_shape: points per axis of the fine grid.
      new_shape: points per axis of the coarse grid.
      middle_shape: points per axis of the intermediate grid; by default the geometric
        means, rounded.
      activation: `"relu"`, for inputs with jumps, or `"silu"`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if there are fewer than 3 output channels, the grids differ in
        dimension, or the activation is unknown.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> down = partial(layers.DownScaler, grid_shape=(6, 6), new_shape=(3, 3))
      >>> down(1, 8, rngs=nnx.Rngs(0))(jnp.ones((36, 1))).shape
      (9, 8)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Fig. 6.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        new_shape: Sequence[int],
        middle_shape: Sequence[int] | None = None,
        activation: str = "relu",
        rngs: nnx.Rngs,
    ):
        if out_features < 3:
            raise ValueError(
                f"{out_features=} must be at least 3, because there are three blocks."
            )
        self.activation = activation
        self.shapes = three_grids(grid_shape, middle_shape, new_shape)
        third = out_features // 3

        def block(channels: int, out_channels: int, level: int) -> ConvolutionBlock:
            return ConvolutionBlock(
                channels,
                out_channels,
                grid_shape=self.shapes[level],
                activation=activation,
                rngs=rngs,
            )

        self.fine = block(in_features, out_features, 0)
        self.first = block(out_features, third, 1)
        self.second = block(third, third, 1)
        self.third = block(third, out_features - 2 * third, 1)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps values `(n, in_features)` on the fine grid to features on the coarse."""
        activation = ACTIVATIONS[self.activation]
        fine, middle, coarse = self.shapes
        y = self.fine(x)
        y = activation(interpolate_grid(y, grid_shape=fine, new_shape=middle))
        first = self.first(y)
        second = self.second(first)
        y = jnp.concatenate([first, second, self.third(second)], axis=1)
        return activation(interpolate_grid(y, grid_shape=middle, new_shape=coarse))


class UpScaler(nnx.Module):
    r"""Maps features on a coarse grid to a fine grid, `z = I_2 act(B I_1 x)`.

    `I_1, I_2` interpolate to the intermediate and to the fine grid, and `B = act(C .)`
    is a bias-free convolution on the intermediate grid. The activation acts twice, as
    in the code of the paper. Between equal grids this is `act(act(C x))`.

    Args:
      features: number of input and output channels `c`.
      grid_shape: points per axis of the coarse grid.
      new_shape: points per axis of the fine grid.
      middle_shape: points per axis of the intermediate grid; by default the geometric
        means, rounded.
      activation: `"relu"` or `"silu"`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the grids differ in dimension or the activation is unknown.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> up = partial(layers.UpScaler, grid_shape=(3, 3), new_shape=(6, 6))
      >>> up(8, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (36, 8)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Fig. 7.
    """

    def __init__(
        self,
        features: int,
        *,
        grid_shape: Sequence[int],
        new_shape: Sequence[int],
        middle_shape: Sequence[int] | None = None,
        activation: str = "silu",
        rngs: nnx.Rngs,
    ):
        self.activation = activation
        self.shapes = three_grids(grid_shape, middle_shape, new_shape)
        self.block = ConvolutionBlock(
            features,
            features,
            grid_shape=self.shapes[1],
            activation=activation,
            rngs=rngs,
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps features `(n, c)` on the coarse grid to features on the fine one."""
        coarse, middle, fine = self.shapes
        y = self.block(interpolate_grid(x, grid_shape=coarse, new_shape=middle))
        y = ACTIVATIONS[self.activation](y)
        return interpolate_grid(y, grid_shape=middle, new_shape=fine)


def three_grids(
    grid_shape: Sequence[int],
    middle_shape: Sequence[int] | None,
    new_shape: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Returns three shapes as tuples; a missing middle one is the geometric mean."""
    first, last = tuple(grid_shape), tuple(new_shape)
    if len(last) != len(first):
        raise ValueError(f"{new_shape=} must have one entry per axis of {grid_shape=}.")
    if middle_shape is None:
        pairs = zip(first, last, strict=True)
        middle = tuple(round(math.sqrt(n * m)) for n, m in pairs)
    else:
        middle = tuple(middle_shape)
    if len(middle) != len(first):
        raise ValueError(
            f"{middle_shape=} must have one entry per axis of {grid_shape=}."
        )
    _checks.positive(grid_shape=first, middle_shape=middle, new_shape=last)
    return first, middle, last
