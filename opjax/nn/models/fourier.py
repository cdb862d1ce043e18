"""The Fourier neural operator on uniform grids."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import (
    MLP,
    FanInLinear,
    Initializer,
    SpectralConvolution,
    TimeEmbedding,
    normalized,
    stacked,
)
from opjax.nn.layers.initializers import spectral_variance
from opjax.nn.layers.position import Coordinates, Position
from opjax.nn.models._given import refuse, with_time


class FourierBlock(nnx.Module):
    """A layer of the Fourier neural operator: spectral convolution plus pointwise map.

        y = act(N(F x) + W x + b),    and with a channel MLP
        z = act(N(MLP(y)) + g * x).

    `F` is the spectral convolution, `g` is one factor per channel, and `N` is the
    identity or the normalisation of every channel over the grid. Without activation (in
    the last layer), `act` is the identity.

    Args:
      features: channels `c`.
      grid_shape: points per axis, including padding.
      modes: see `SpectralConvolution`.
      channel_mlp_ratio: width of the channel MLP over `c`; `None` for no MLP.
      instance_norm: whether `N` normalises.
      kernel_init: initialiser of the spectral kernel.
      rngs: source of the initial parameters.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> build = partial(models.FourierBlock, grid_shape=(6, 6), modes=2)
      >>> build(8, rngs=nnx.Rngs(0))(jnp.ones((36, 8))).shape
      (36, 8)
    """

    def __init__(
        self,
        features: int,
        *,
        grid_shape: Sequence[int],
        modes: int | Sequence[int],
        channel_mlp_ratio: float | None = 0.5,
        instance_norm: bool = False,
        kernel_init: Initializer = spectral_variance,
        rngs: nnx.Rngs,
    ):
        self.instance_norm = instance_norm
        self.convolution = SpectralConvolution(
            features,
            features,
            grid_shape=grid_shape,
            modes=modes,
            kernel_init=kernel_init,
            rngs=rngs,
        )
        self.skip = FanInLinear(features, features, rngs=rngs)
        has_mlp = channel_mlp_ratio is not None
        hidden = max(1, round(channel_mlp_ratio * features)) if has_mlp else 0
        self.channel_mlp = (
            _mlp(features, hidden, features, rngs=rngs) if has_mlp else None
        )
        self.gate = nnx.Param(jnp.ones(features, jnp.float32)) if has_mlp else None

    def __call__(
        self,
        x: Array,
        *,
        activate: Array | bool = True,
        grid_shape: Sequence[int] | None = None,
    ) -> Array:
        """Maps features `(n, c)` on the grid to `(n, c)`.

        `activate` may be traced, so that a scan over the layers can stop activating.
        """

        def activation(z: Array) -> Array:
            return jnp.where(activate, jax.nn.gelu(z, approximate=False), z)

        y = self._norm(self.convolution(x, grid_shape=grid_shape))
        y = activation(y + self.skip(x))
        if self.channel_mlp is None or self.gate is None:
            return y
        y = self.channel_mlp(y) + self.gate[...][None, :] * x
        return activation(self._norm(y))

    def _norm(self, x: Array) -> Array:
        if not self.instance_norm:
            return x
        return normalized(x, axis=0, epsilon=1e-5)


class FourierNeuralOperator(nnx.Module):
    """Learns an operator between functions on a uniform grid, by spectral convolutions.

    A perceptron lifts positions and input values to `features` channels. Layers of
    `FourierBlock` follow, the last one without activation, and a perceptron projects to
    the output. Parameters of the layers are stacked and scanned, as in
    `OperatorTransformer`. The defaults are those of the neuraloperator package. The
    original has `projection_ratio=1`, `pad_multiple=16`, one number as `modes`, and
    blocks with `channel_mlp_ratio=None`, `kernel_init=spectral_uniform`.

    The layers treat the data as one period of a periodic function. For other functions,
    zero padding beyond the end of the domain separates the two ends.

    Args:
      grid_shape: points per axis of the grid that the model is built for, 1 to 3 axes.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      modes: number of frequencies on the padded grid, see `SpectralConvolution`.
      features: number `c` of channels of the hidden layers.
      num_layers: number of layers.
      block: constructor of a layer, `block(features, grid_shape=, modes=, rngs=)`: a
        `functools.partial` of `FourierBlock` with other options.
      projection_ratio: width of the projection's hidden layer over `c`.
      position: constructor of the position features, called with the number of axes,
        such as a `functools.partial` of `ReferenceDistances`; `None` for none.
      padding: zeros before and after an axis, as a fraction of its points; one number,
        or one per axis, for example zero for a periodic axis.
      pad_multiple: zeros appended to every axis until its length is a multiple of this
        number.
      time_embedding: whether calls take a scalar `time`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, there is no input, or padding or modes do
        not fit the grid.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.FourierNeuralOperator(
      ...     grid_shape=(6, 6), feature_dim=1, out_features=1, modes=2, features=8,
      ...     num_layers=2, rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((36, 2)), jnp.ones((36, 1))).shape
      (36, 1)

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), Fig. 2.
      Kossaifi et al., "A Library for Learning Neural Operators", 2024
      (arXiv:2412.10354).
    """

    def __init__(
        self,
        *,
        grid_shape: Sequence[int],
        feature_dim: int,
        out_features: int,
        modes: int | Sequence[int],
        features: int = 64,
        num_layers: int = 4,
        block: Callable[..., FourierBlock] = FourierBlock,
        projection_ratio: float = 2,
        position: Callable[[int], Position] | None = Coordinates,
        padding: float | Sequence[float] = 0.0,
        pad_multiple: int = 1,
        time_embedding: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            projection_ratio=projection_ratio,
            pad_multiple=pad_multiple,
        )
        _checks.non_negative(feature_dim=feature_dim)
        self.grid_shape, self.feature_dim = tuple(grid_shape), feature_dim
        self.padding = _per_axis(padding, self.grid_shape)
        self.pad_multiple = pad_multiple
        self.position = None if position is None else position(len(self.grid_shape))
        inputs = feature_dim + (0 if self.position is None else self.position.features)
        if inputs == 0:
            raise ValueError(
                f"{feature_dim=} and {position=} leave the model without inputs."
            )
        self.lifting = _mlp(inputs, 2 * features, features, rngs=rngs)
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )
        padded = self.padded_shape(self.grid_shape)
        layer = partial(block, features, grid_shape=padded, modes=modes)
        self.blocks = stacked(layer, num_layers, rngs=rngs)
        hidden = max(1, round(projection_ratio * features))
        self.projection = _mlp(features, hidden, out_features, rngs=rngs)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"] | None,
        features: Float[Array, "n f"] | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        grid_shape: Sequence[int] | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points of the grid in row-major order, shape `(n, p)`: features
            only, so `None` will do for a model without positions.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: none, the points of a uniform grid count alike.
          time: scalar time, if the model has a time embedding.
          grid_shape: points per axis of this sample's grid, if not the model's own; on
            one axis, the points of the sample. Frequencies that it does not resolve
            are left out.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other, or there are
            quadrature weights.
        """
        refuse(
            "a Fourier neural operator, of uniform grids without padding",
            quadrature_weights=quadrature_weights,
        )
        if grid_shape is not None:
            grid_shape = tuple(grid_shape)
        else:
            grid_shape = self._grid_of(mesh_points if features is None else features)
        if len(grid_shape) != len(self.grid_shape):
            raise ValueError(
                f"{grid_shape=} must have the axes of this model's grid, "
                f"{self.grid_shape}."
            )
        z = self.lift(mesh_points, features, time=time, grid_shape=grid_shape)
        z = self.pad(z, grid_shape)
        padded = self.padded_shape(grid_shape)

        def layer(
            z: Array, block_and_activate: tuple[FourierBlock, Array]
        ) -> tuple[Array, None]:
            block, activate = block_and_activate
            return block(z, activate=activate, grid_shape=padded), None

        num_layers = jax.tree.leaves(self.blocks)[0].shape[0]
        activate = jnp.arange(num_layers) < num_layers - 1
        z, _ = lax.scan(layer, z, (self.blocks, activate))
        return self.projection(self.crop(z, grid_shape))

    def lift(
        self,
        mesh_points: Array | None,
        features: Array | None,
        *,
        time: Array | None,
        grid_shape: tuple[int, ...],
    ) -> Array:
        """Returns the features `(n, c)` before the layers, without padding."""
        n, p = math.prod(grid_shape), len(grid_shape)
        inputs = []
        if self.position is not None or mesh_points is not None:
            _expect("mesh_points", mesh_points, (n, p), grid_shape)
        if self.position is not None:
            inputs.append(self.position(jnp.asarray(mesh_points)))
        if self.feature_dim or features is not None:
            _expect("features", features, (n, self.feature_dim), grid_shape)
            inputs.append(jnp.asarray(features))
        z = self.lifting(jnp.concatenate(inputs, axis=1))
        return with_time(z, time, self.time_embedding)

    def pad(self, z: Array, grid_shape: tuple[int, ...]) -> Array:
        """Pads features `(n, c)` on the grid."""
        widths = [*self._padding(grid_shape), (0, 0)]
        field = jnp.pad(z.reshape(*grid_shape, -1), widths)
        return field.reshape(-1, z.shape[1])

    def crop(self, z: Array, grid_shape: tuple[int, ...]) -> Array:
        """Removes the padding; returns features on the grid, `(n, c)`."""
        field = z.reshape(*self.padded_shape(grid_shape), -1)
        inside = tuple(
            slice(before, before + n)
            for n, (before, _) in zip(
                grid_shape, self._padding(grid_shape), strict=True
            )
        )
        return field[inside].reshape(-1, z.shape[1])

    def _padding(self, grid_shape: tuple[int, ...]) -> list[tuple[int, int]]:
        widths = []
        for n, padding in zip(grid_shape, self.padding, strict=True):
            margin = round(padding * n)
            filling = -(n + 2 * margin) % self.pad_multiple
            widths.append((margin, margin + filling))
        return widths

    def padded_shape(self, grid_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Returns the points per axis of the padded grid."""
        widths = self._padding(grid_shape)
        return tuple(n + sum(w) for n, w in zip(grid_shape, widths, strict=True))

    def _grid_of(self, array: Array | None) -> tuple[int, ...]:
        """Returns the grid of a sample: its own on one axis, else the model's."""
        if array is None or len(self.grid_shape) > 1:
            return self.grid_shape
        return jnp.shape(array)[:1]


def _per_axis(
    padding: float | Sequence[float], grid_shape: tuple[int, ...]
) -> tuple[float, ...]:
    p = len(grid_shape)
    widths = tuple(padding) if isinstance(padding, Sequence) else (padding,) * p
    _checks.non_negative(padding=widths)
    if len(widths) != p:
        raise ValueError(
            f"{padding=} must be one number, or one per axis of {grid_shape=}."
        )
    return widths


def _expect(
    name: str,
    array: Array | None,
    shape: tuple[int, ...],
    grid_shape: tuple[int, ...],
) -> None:
    _checks.shaped(name, array, shape, f"this model with {grid_shape=}")
    _checks.floating(**{name: array})


def _mlp(
    in_features: int, hidden_features: int, out_features: int, *, rngs: nnx.Rngs
) -> MLP:
    """Returns a perceptron with the initialisation of PyTorch."""
    return MLP(in_features, hidden_features, out_features, kernel_init=None, rngs=rngs)
