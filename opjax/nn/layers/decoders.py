"""Decoders of the Galerkin transformer: from features to values of the output."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers.initializers import Initializer, spectral_galerkin
from opjax.nn.layers.linear import ACTIVATIONS, MLP, FanInLinear
from opjax.nn.layers.spectral import SpectralConvolution


class SpectralLayer(nnx.Module):
    r"""A spectral convolution plus a pointwise linear map, `act(F x + W x + b)`.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      grid_shape: points per axis of the grid that the layer is built for.
      modes: number of frequencies, see `SpectralConvolution`.
      activation: `"relu"`, `"silu"` or `None`.
      kernel_init: initialiser of the spectral kernel.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the activation is unknown or the modes do not fit the grid.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> build = partial(layers.SpectralLayer, grid_shape=(6, 6), modes=2)
      >>> build(4, 8, rngs=nnx.Rngs(0))(jnp.ones((36, 4))).shape
      (36, 8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        modes: int | Sequence[int],
        activation: str | None = "silu",
        kernel_init: Initializer = spectral_galerkin,
        rngs: nnx.Rngs,
    ):
        if activation is not None:
            _checks.option("activation", activation, ACTIVATIONS)
        self.activation = activation
        self.convolution = SpectralConvolution(
            in_features,
            out_features,
            grid_shape=grid_shape,
            modes=modes,
            kernel_init=kernel_init,
            rngs=rngs,
        )
        self.skip = FanInLinear(in_features, out_features, rngs=rngs)

    def __call__(
        self, x: jax.Array, *, grid_shape: Sequence[int] | None = None
    ) -> jax.Array:
        """Maps values `(n, in_features)` on a grid to `(n, out_features)`."""
        y = self.convolution(x, grid_shape=grid_shape) + self.skip(x)
        return y if self.activation is None else ACTIVATIONS[self.activation](y)


class SpectralDecoder(nnx.Module):
    r"""Decodes smooth functions on a grid with spectral layers and a perceptron.

        y = W_0 [x, coordinates],    y <- act(F_l y + W_l y)    for every layer,
        z = W_2 act(W_1 y + b_1) + b_2,

    where the coordinates enter only the first map. The weights do not depend on the
    grid, so a call may use another grid.

    Args:
      in_features: number of input channels.
      out_features: channels of the output function.
      features: channels of the spectral layers.
      grid_shape: points per axis of the grid that the decoder is built for.
      modes: number of frequencies, see `SpectralConvolution`.
      num_layers: number of spectral layers.
      hidden_features: width of the perceptron's hidden layer; by default `4 features`.
      point_dim: dimension of the coordinates appended to the features; zero for none.
      last_activation: whether the last spectral layer has an activation function.
      activation: `"relu"` or `"silu"`.
      kernel_init: initialiser of the spectral kernels.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, the activation is unknown or the modes do
        not fit the grid.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> sizes = {"features": 8, "modes": 2}
      >>> build = partial(layers.SpectralDecoder, grid_shape=(6, 6), **sizes)
      >>> decoder = build(4, 1, rngs=nnx.Rngs(0))
      >>> decoder(jnp.ones((36, 4))).shape
      (36, 1)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Sec. 4 and App. B.
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Eq. 4 and 5.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        features: int,
        grid_shape: Sequence[int],
        modes: int | Sequence[int],
        num_layers: int = 2,
        hidden_features: int | None = None,
        point_dim: int = 0,
        last_activation: bool = True,
        activation: str = "silu",
        kernel_init: Initializer = spectral_galerkin,
        rngs: nnx.Rngs,
    ):
        hidden = 4 * features if hidden_features is None else hidden_features
        _checks.positive(features=features, num_layers=num_layers)
        self.point_dim = point_dim
        self.lift = _lift(in_features, features, point_dim=point_dim, rngs=rngs)
        first = in_features if self.lift is None else features

        def layer(index: int) -> SpectralLayer:
            last = index == num_layers - 1
            return SpectralLayer(
                features if index else first,
                features,
                grid_shape=grid_shape,
                modes=modes,
                activation=None if last and not last_activation else activation,
                kernel_init=kernel_init,
                rngs=rngs,
            )

        self.layers = nnx.List([layer(index) for index in range(num_layers)])
        self.perceptron = MLP(
            features,
            hidden,
            out_features,
            activation=activation,
            kernel_init=None,
            rngs=rngs,
        )

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        grid_shape: Sequence[int] | None = None,
    ) -> jax.Array:
        """Evaluates the decoder on one sample.

        Args:
          x: features at the grid points in row-major order, shape `(n, in_features)`.
          mesh_points: their coordinates, shape `(n, point_dim)`; `None` without.
          grid_shape: points per axis, if not those the decoder is built for.

        Returns:
          Values at the grid points, shape `(n, out_features)`.

        Raises:
          TypeError: if the coordinates are not floating point.
          ValueError: if points do not match each other, the grid or the decoder.
        """
        x = _append(x, mesh_points, point_dim=self.point_dim)
        if self.lift is not None:
            x = self.lift(x)
        for layer in self.layers:
            x = layer(x, grid_shape=grid_shape)
        return self.perceptron(x)


class PointwiseDecoder(nnx.Module):
    r"""Decodes rough functions point by point on any mesh.

        y = W_0 [x, coordinates],    y <- act(W_l y + b_l)    for every layer,
        z = W y + b,

    where the coordinates enter only the first map.

    Args:
      in_features: number of input channels.
      out_features: channels of the output function.
      features: channels of the layers.
      num_layers: number of layers.
      point_dim: dimension of the coordinates appended to the features; zero for none.
      activation: `"relu"` or `"silu"`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive or the activation is unknown.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> build = partial(layers.PointwiseDecoder, features=8, point_dim=2)
      >>> decoder = build(4, 1, rngs=nnx.Rngs(0))
      >>> decoder(jnp.ones((9, 4)), mesh_points=jnp.ones((9, 2))).shape
      (9, 1)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Sec. 4.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        features: int,
        num_layers: int = 1,
        point_dim: int = 0,
        activation: str = "silu",
        rngs: nnx.Rngs,
    ):
        _checks.positive(features=features, num_layers=num_layers)
        self.point_dim = point_dim
        self.lift = _lift(in_features, features, point_dim=point_dim, rngs=rngs)
        first = in_features if self.lift is None else features
        self.perceptron = MLP(
            first,
            (features,) * num_layers,
            out_features,
            activation=activation,
            kernel_init=None,
            rngs=rngs,
        )

    def __call__(
        self, x: jax.Array, *, mesh_points: jax.Array | None = None
    ) -> jax.Array:
        """Maps features `(n, in_features)`, and coordinates, to `(n, out_features)`."""
        x = _append(x, mesh_points, point_dim=self.point_dim)
        if self.lift is not None:
            x = self.lift(x)
        return self.perceptron(x)


def _lift(
    in_features: int, features: int, *, point_dim: int, rngs: nnx.Rngs
) -> nnx.Linear | None:
    _checks.non_negative(point_dim=point_dim)
    if point_dim == 0:
        return None
    return FanInLinear(in_features + point_dim, features, rngs=rngs)


def _append(
    x: jax.Array, mesh_points: jax.Array | None, *, point_dim: int
) -> jax.Array:
    """Returns features with coordinates behind them, for a decoder that takes some."""
    shape = None if mesh_points is None else mesh_points.shape
    if shape != ((x.shape[0], point_dim) if point_dim else None):
        raise ValueError(
            f"mesh_points {shape} do not fit features {x.shape} and a decoder built "
            f"with {point_dim=}."
        )
    if mesh_points is None:
        return x
    _checks.floating(mesh_points=mesh_points)
    return jnp.concatenate([x, mesh_points.astype(x.dtype)], axis=1)
