"""The Galerkin transformer on two-dimensional grids, with resampling layers."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.interpolation import interpolate_grid
from opjax.nn.layers import (
    DownScaler,
    FanInLinear,
    PointwiseDecoder,
    SpectralDecoder,
    UpScaler,
    stacked,
)
from opjax.nn.models._given import Points, refuse
from opjax.nn.models.encoder import EncoderLayer

BOUNDARIES = ("dirichlet", "free")
POINT_DIM = 2
_KIND = "a Galerkin transformer, of uniform grids"


class GalerkinTransformer2d(nnx.Module):
    r"""Learns an operator between functions on grids, with attention on a coarse grid.

    A `DownScaler` maps the input from its grid to features on a coarse grid. Encoder
    layers with attention without softmax act there. An `UpScaler` maps them to the
    output grid, and a decoder computes the output. Coordinates are inputs of every
    attention head and of the decoder. Parameters of the encoder layers are stacked and
    scanned, as in `OperatorTransformer`. They are initialised independently of each
    other; in the paper's code they are copies of one layer. There is no dropout.

    The published models are `darcy_transformer` and `inverse_transformer`.

    Args:
      grid_shape: points per axis of the grid of the input.
      in_features: channels of the input function.
      features: number `c` of channels of the hidden layers.
      num_layers: number of encoder layers.
      hidden_features: width of the encoder's perceptrons.
      attention: constructor of the attention, `attention(features, rngs=)`, for points
        with two coordinates.
      down: constructor of a down-scaler, `down(in_features, features, grid_shape=,
        rngs=)`: a `functools.partial` of `DownScaler`. `None` for attention on the
        input grid, after a linear map of values and coordinates.
      up: constructor of an up-scaler, `up(features, grid_shape=, rngs=)`; `None` for an
        output on the grid of the attention.
      decoder: constructor of the decoder, `decoder(features, rngs=)`: a
        `functools.partial` of `SpectralDecoder`, for smooth functions, or of
        `PointwiseDecoder`, both with `point_dim=2`.
      outer_norm: whether the encoder layers normalise, see `EncoderLayer`.
      epsilon: offset of the variances in their norms.
      boundary: `"dirichlet"`, boundary values are zero or passed with the call; or
        `"free"`.
      rematerialize: whether to recompute the encoder layers in the backward pass.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, a grid does not have two axes, the
        boundary is unknown, or the parts raise it.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> decoder = partial(nn.layers.PointwiseDecoder, features=8, point_dim=2)
      >>> model = nn.GalerkinTransformer2d(
      ...     grid_shape=(3, 3),
      ...     features=8,
      ...     num_layers=1,
      ...     hidden_features=8,
      ...     attention=partial(nn.GalerkinAttention, num_heads=2, point_dim=2),
      ...     decoder=partial(decoder, out_features=1),
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Fig. 5, App. B.
    """

    def __init__(
        self,
        *,
        grid_shape: Sequence[int],
        in_features: int = 1,
        features: int = 128,
        num_layers: int = 6,
        hidden_features: int = 256,
        attention: Callable[..., Any],
        down: Callable[..., DownScaler] | None = None,
        up: Callable[..., UpScaler] | None = None,
        decoder: Callable[..., SpectralDecoder | PointwiseDecoder],
        outer_norm: bool = False,
        epsilon: float = 1e-7,
        boundary: str = "dirichlet",
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(in_features=in_features, num_layers=num_layers)
        _checks.option("boundary", boundary, BOUNDARIES)
        self.grid_shape = tuple(grid_shape)
        if len(self.grid_shape) != POINT_DIM:
            raise ValueError(f"{grid_shape=} must have two axes.")
        self.in_features, self.boundary = in_features, boundary
        self.rematerialize = rematerialize
        self.down = (
            None
            if down is None
            else down(in_features, features, grid_shape=self.grid_shape, rngs=rngs)
        )
        self.lift = (
            FanInLinear(in_features + POINT_DIM, features, rngs=rngs)
            if down is None
            else None
        )
        self.coarse_shape = _last_shape(self.down, self.grid_shape)
        self.up = (
            None
            if up is None
            else up(features, grid_shape=self.coarse_shape, rngs=rngs)
        )
        self.output_shape = _last_shape(self.up, self.coarse_shape)
        layer = partial(
            EncoderLayer,
            features,
            hidden_features=hidden_features,
            attention=attention,
            outer_norm=outer_norm,
            epsilon=epsilon,
        )
        self.layers = stacked(layer, num_layers, rngs=rngs)
        self.decoder = decoder(features, rngs=rngs)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        mean: Array | None = None,
        std: Array | None = None,
        boundary_values: Array | None = None,
        coarse_points: Array | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: nodes of the grid of the output, row-major, shape `(n_out, 2)`.
            Where axis 0 of the grid is coordinate 1, as in the paper's code, two rows
            of some weights change places.
          features: values of the input function on its grid, row-major, shape
            `(n, in_features)`.
          quadrature_weights: none, the points of a uniform grid count alike.
          time: none, the model has no time embedding.
          mean: mean of the output function, added to the decoder's output; shape
            `(n_out, out_features)` or one that broadcasts, with two axes.
          std: deviation that the decoder's output is multiplied by first, likewise; add
            the offset of `normalize.fit` yourself.
          boundary_values: values on the boundary of the output's grid, zero by default,
            shape `(n_out, out_features)`; added everywhere, so zero inside.
          coarse_points: nodes of the grid of the attention, shape `(n_coarse, 2)`; by
            default those of the output, interpolated.

        Returns:
          Values of the output function at the mesh points, `(n_out, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other, there are
            quadrature weights or a time, or boundary values for a free boundary.
        """
        refuse(_KIND, quadrature_weights=quadrature_weights, time=time)
        if boundary_values is not None and self.boundary == "free":
            raise ValueError(
                "boundary_values need a model built with boundary='dirichlet'; this "
                "one has 'free'."
            )
        values, points = self._checked(mesh_points, features, coarse_points)
        z = self.encode(self._extract(values, points), points)
        if self.up is not None:
            z = self.up(z)
        z = self.decoder(z, mesh_points=mesh_points)
        _check_output(z, mean=mean, std=std, boundary_values=boundary_values)
        z = z if std is None else z * std
        z = z if mean is None else z + mean
        if self.boundary == "free":
            return z
        z = jnp.where(_is_interior(self.output_shape)[:, None], z, 0)
        return z if boundary_values is None else z + boundary_values

    def encode(self, z: Array, mesh_points: Array) -> Array:
        """Maps features `(n, c)` at points `(n, 2)` through the encoder's layers."""
        return self._through(z, mesh_points, keep=False)[0]

    def latents(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        coarse_points: Array | None = None,
    ) -> Array:
        """Returns the features before the encoder and after each of its layers.

        Args:
          mesh_points: see `__call__`, also for the other arguments.
          features: values of the input function.
          coarse_points: nodes of the grid of the attention.

        Returns:
          Shape `(num_layers + 1, n_coarse, c)`, on the grid `coarse_shape`.
        """
        values, points = self._checked(mesh_points, features, coarse_points)
        first = self._extract(values, points)
        _, after = self._through(first, points, keep=True)
        assert after is not None
        return jnp.concatenate([first[None], after])

    def _through(
        self, z: Array, points: Array, *, keep: bool
    ) -> tuple[Array, Array | None]:
        """Features after the encoder's layers, and after each, if they are kept."""

        def layer(
            z: Array, encoder_layer: Callable[..., Array]
        ) -> tuple[Array, Array | None]:
            z = encoder_layer(z, Points(points))
            return z, z if keep else None

        if self.rematerialize:
            layer = jax.checkpoint(layer, prevent_cse=False)
        return lax.scan(layer, z, self.layers)

    def _checked(
        self,
        mesh_points: Array,
        features: Array | None,
        coarse_points: Array | None,
    ) -> tuple[Array, Array]:
        """Checks the arrays of a call.

        Returns:
          The values of the input function, and the points of the attention.
        """
        _check("mesh_points", mesh_points, self.output_shape, POINT_DIM)
        values = _check("features", features, self.grid_shape, self.in_features)
        if coarse_points is None:
            coarse_points = interpolate_grid(
                mesh_points, grid_shape=self.output_shape, new_shape=self.coarse_shape
            )
        _check("coarse_points", coarse_points, self.coarse_shape, POINT_DIM)
        return values, coarse_points

    def _extract(self, values: Array, coarse_points: Array) -> Array:
        """Returns the features `(n_coarse, c)` that enter the encoder."""
        if self.down is not None:
            return self.down(values)
        assert self.lift is not None
        points = coarse_points.astype(values.dtype)
        return self.lift(jnp.concatenate([values, points], axis=1))


def _check(
    name: str, array: Array | None, grid_shape: tuple[int, ...], channels: int
) -> Array:
    """Returns the values of one sample on a grid, if they have its shape."""
    where = f"one sample of this model, on the grid {grid_shape}; use `jax.vmap` for "
    expected = (int(np.prod(grid_shape)), channels)
    values = _checks.shaped(name, array, expected, where + "batches")
    _checks.floating(**{name: values})
    return values


def _last_shape(
    scaler: DownScaler | UpScaler | None, grid_shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Returns the grid behind a scaler, if there is one."""
    return grid_shape if scaler is None else scaler.shapes[-1]


def _check_output(z: Array, **given: Array | None) -> None:
    for name, array in given.items():
        if array is None:
            continue
        _checks.floating(**{name: array})
        # Two axes: `(n,)` would broadcast to a matrix.
        shape = jnp.shape(array)
        if len(shape) != 2 or any(
            a not in (1, b) for a, b in zip(shape, z.shape, strict=True)
        ):
            raise ValueError(
                f"{name} {shape} must have the shape {z.shape} of the output, or "
                "broadcast to it with axes of length one."
            )


def _is_interior(grid_shape: tuple[int, ...]) -> np.ndarray:
    """Returns which points of a grid are not on its boundary, shape `(n,)`."""
    interior = np.zeros(grid_shape, bool)
    interior[tuple(slice(1, -1) for _ in grid_shape)] = True
    return interior.reshape(-1)
