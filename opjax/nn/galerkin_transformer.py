"""The Galerkin transformer on two-dimensional grids: scalers around an encoder."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import lax

from opjax import _checks
from opjax.nn.galerkin import EncoderLayer
from opjax.nn.layers import (
    DownScaler,
    FanInLinear,
    PointwiseDecoder,
    SpectralDecoder,
    UpScaler,
)

DECODERS = ("spectral", "pointwise")
BOUNDARIES = ("dirichlet", "free")
POINT_DIM = 2


class GalerkinTransformer2d(nnx.Module):
    r"""Learns an operator between functions on grids, attending on a coarse grid.

    A `DownScaler` brings the input from its grid to features on a coarse one, encoder
    layers of attention without a softmax act there, an `UpScaler` brings them to the
    grid of the output, and a decoder reads off the output. Coordinates enter every
    attention head and the decoder. Parameters of the encoder layers are stacked and
    scanned, as those of `OperatorTransformer`; they start independently of each other,
    in the paper's code as copies of one layer.

    The paper's Darcy problem is `grid_shape=(141, 141), coarse_shape=(71, 71)`. Its
    inverse has `output_shape=(71, 71)` as well, a pointwise decoder with 192 features,
    a `"silu"` down-scaler and a free boundary. There is no dropout.

    Args:
      grid_shape: points per axis of the grid of the input.
      coarse_shape: points per axis of the grid of the attention; `None` for the input's
        own grid, without scalers: a linear map of values and coordinates instead.
      output_shape: points per axis of the grid of the output; `grid_shape` by default.
      in_features: channels of the input function.
      out_features: channels of the output function.
      features: channels `c` inside.
      num_layers: number of encoder layers.
      num_heads: heads, dividing `features`.
      hidden_features: width of the encoder's perceptrons.
      attention: `"galerkin"`, `"linear"`, `"fourier"` or `"softmax"`, see
        `GalerkinAttention`.
      normalization: normalisation inside attention, see `GalerkinAttention`.
      outer_norm: whether the encoder layers normalise, see `EncoderLayer`.
      epsilon: offset of the variances in all normalisations.
      down_shape: points per axis of the grid in the middle of the down-scaler.
      up_shape: points per axis of the grid in the middle of the up-scaler; both by
        default the geometric means, rounded.
      down_activation: `"relu"`, for inputs with jumps, or `"silu"`.
      up_activation: activation of the up-scaler.
      decoder: `"spectral"`, for smooth functions, or `"pointwise"`.
      decoder_features: channels of the decoder's layers.
      decoder_layers: layers of the decoder; by default 2 spectral or 1 pointwise.
      decoder_activation: activation of the decoder.
      modes: frequencies of the spectral decoder, see `SpectralConvolution`.
      last_activation: whether the last spectral layer has an activation.
      boundary: `"dirichlet"`, values at the boundary are zero or those of the call, or
        `"free"`.
      rematerialize: whether to recompute the encoder layers in the backward pass.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, a grid has not two axes, the grids of
        input and output differ without scalers, or as the parts.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Fig. 5, App. B.
    """

    def __init__(
        self,
        *,
        grid_shape: Sequence[int],
        coarse_shape: Sequence[int] | None,
        output_shape: Sequence[int] | None = None,
        in_features: int = 1,
        out_features: int = 1,
        features: int = 128,
        num_layers: int = 6,
        num_heads: int = 4,
        hidden_features: int = 256,
        attention: str = "galerkin",
        normalization: str | None = "layer",
        outer_norm: bool = False,
        epsilon: float = 1e-7,
        down_shape: Sequence[int] | None = None,
        up_shape: Sequence[int] | None = None,
        down_activation: str = "relu",
        up_activation: str = "silu",
        decoder: str = "spectral",
        decoder_features: int = 32,
        decoder_layers: int | None = None,
        decoder_activation: str = "silu",
        modes: int | Sequence[int] = 12,
        last_activation: bool = True,
        boundary: str = "dirichlet",
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            in_features=in_features, out_features=out_features, num_layers=num_layers
        )
        _checks.option("decoder", decoder, DECODERS)
        _checks.option("boundary", boundary, BOUNDARIES)
        self.grid_shape = tuple(grid_shape)
        self.output_shape = self.grid_shape
        if output_shape is not None:
            self.output_shape = tuple(output_shape)
        has_scalers = coarse_shape is not None
        self.coarse_shape = tuple(coarse_shape) if has_scalers else self.grid_shape
        for name in ("grid_shape", "coarse_shape", "output_shape"):
            if len(getattr(self, name)) != POINT_DIM:
                raise ValueError(f"{name}={getattr(self, name)} must have two axes.")
        if not has_scalers and self.output_shape != self.grid_shape:
            raise ValueError(
                f"output_shape={self.output_shape} must be {self.grid_shape=} without "
                "scalers; pass a coarse_shape."
            )
        self.in_features, self.out_features = in_features, out_features
        self.boundary = boundary
        self.rematerialize = rematerialize
        # Scalers, or without a coarse grid a map of values and coordinates.
        self.down = (
            DownScaler(
                in_features,
                features,
                grid_shape=self.grid_shape,
                middle_shape=down_shape,
                new_shape=self.coarse_shape,
                activation=down_activation,
                rngs=rngs,
            )
            if has_scalers
            else None
        )
        self.lift = (
            None
            if has_scalers
            else FanInLinear(in_features + POINT_DIM, features, rngs=rngs)
        )
        self.up = (
            UpScaler(
                features,
                grid_shape=self.coarse_shape,
                middle_shape=up_shape,
                new_shape=self.output_shape,
                activation=up_activation,
                rngs=rngs,
            )
            if has_scalers
            else None
        )

        def layer(key: jax.Array) -> EncoderLayer:
            return EncoderLayer(
                features,
                hidden_features=hidden_features,
                num_heads=num_heads,
                attention=attention,
                point_dim=POINT_DIM,
                normalization=normalization,
                outer_norm=outer_norm,
                epsilon=epsilon,
                rngs=nnx.Rngs(key),
            )

        self.layers = jax.vmap(layer)(jax.random.split(rngs.params(), num_layers))
        options = {
            "features": decoder_features,
            "point_dim": POINT_DIM,
            "activation": decoder_activation,
            "rngs": rngs,
        }
        if decoder_layers is not None:
            options["num_layers"] = decoder_layers
        if decoder == "pointwise":
            self.decoder = PointwiseDecoder(features, out_features, **options)
        else:
            self.decoder = SpectralDecoder(
                features,
                out_features,
                grid_shape=self.output_shape,
                modes=modes,
                last_activation=last_activation,
                **options,
            )

    def __call__(
        self,
        values: jax.Array,
        *,
        mean: jax.Array | None = None,
        std: jax.Array | None = None,
        boundary_values: jax.Array | None = None,
        coarse_points: jax.Array | None = None,
        output_points: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the operator on one sample.

        Args:
          values: values of the input function on its grid, row-major, shape
            `(n, in_features)`.
          mean: mean of the output function, added to the decoder's output; shape
            `(n_out, out_features)` or one that broadcasts, with two axes.
          std: deviation that the decoder's output is multiplied by first, likewise; add
            the offset of `normalize.fit` yourself.
          boundary_values: values on the boundary of the output's grid, zero by default,
            shape `(n_out, out_features)`; added everywhere, so zero inside.
          coarse_points: coordinates of the grid of the attention, shape
            `(n_coarse, 2)`; by default those in the unit square.
          output_points: coordinates of the grid of the output, shape `(n_out, 2)`,
            likewise.

        Returns:
          Values of the output function on its grid, shape `(n_out, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other, or boundary values
            are given to a model with a free boundary.
        """
        self._check(values, mean=mean, std=std, boundary_values=boundary_values)
        if coarse_points is None:
            coarse_points = grid_points(self.coarse_shape, values.dtype)
        if output_points is None:
            output_points = grid_points(self.output_shape, values.dtype)
        z = self.encode(self._extract(values, coarse_points), coarse_points)
        if self.up is not None:
            z = self.up(z)
        z = self.decoder(z, mesh_points=output_points)
        z = z if std is None else z * std
        z = z if mean is None else z + mean
        if self.boundary == "free":
            return z
        z = jnp.where(_is_interior(self.output_shape)[:, None], z, 0)
        return z if boundary_values is None else z + boundary_values

    def encode(self, z: jax.Array, mesh_points: jax.Array) -> jax.Array:
        """Maps features `(n, c)` at points `(n, 2)` through the encoder's layers."""

        def layer(z, parameters):
            return parameters(z, mesh_points=mesh_points), None

        if self.rematerialize:
            layer = jax.checkpoint(layer, prevent_cse=False)
        return lax.scan(layer, z, self.layers)[0]

    def _extract(self, values: jax.Array, coarse_points: jax.Array) -> jax.Array:
        """Returns the features `(n_coarse, c)` that enter the encoder."""
        if self.down is not None:
            return self.down(values)
        assert self.lift is not None
        return self.lift(jnp.concatenate([values, coarse_points], axis=1))

    def _check(self, values: jax.Array, **given: jax.Array | None) -> None:
        _checks.floating(values=values)
        _checks.rank(2, values=values)
        expected = (int(np.prod(self.grid_shape)), self.in_features)
        if values.shape != expected:
            raise ValueError(
                f"values {values.shape} must have shape {expected} for this model of "
                f"grid_shape={self.grid_shape}."
            )
        output = (int(np.prod(self.output_shape)), self.out_features)
        for name, array in given.items():
            if array is None:
                continue
            _checks.floating(**{name: array})
            # Two axes: `(n,)` would broadcast to a matrix.
            shape = jnp.shape(array)
            fits = len(shape) == 2 and all(
                a in (1, b) for a, b in zip(shape, output, strict=True)
            )
            if not fits:
                raise ValueError(
                    f"{name} {shape} must have shape {output}, or one in place of an "
                    f"entry, for this model of output_shape={self.output_shape}."
                )
        if given["boundary_values"] is not None and self.boundary == "free":
            raise ValueError(
                "boundary_values are for a model built with boundary='dirichlet'; this "
                "one has 'free'."
            )


def grid_points(
    grid_shape: Sequence[int], dtype: jax.typing.DTypeLike = float
) -> jax.Array:
    """Returns the points of a grid on the unit cube with its corners, `(n, p)`.

    Axis 0 of the grid is coordinate 0. The paper's code has them the other way round:
    the same model up to an exchange of two rows of its weights.
    """
    axes = [np.linspace(0, 1, n) for n in grid_shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return jnp.asarray(points.reshape(-1, len(axes)), dtype)


def _is_interior(grid_shape: tuple[int, ...]) -> np.ndarray:
    """Returns which points of a grid are not on its boundary, shape `(n,)`."""
    interior = np.zeros(grid_shape, bool)
    interior[tuple(slice(1, -1) for _ in grid_shape)] = True
    return interior.reshape(-1)
