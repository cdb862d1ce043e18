"""The transformer of Burgers' equation, trained on one grid and evaluated on any."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from opjax import _checks
from opjax.nn import galerkin
from opjax.nn.galerkin import EncoderLayer
from opjax.nn.layers import FanInLinear, SpectralDecoder
from opjax.nn.layers.initializers import spectral_burgers

ATTENTIONS = ("functional", *galerkin.ATTENTIONS)


class SuperResolutionTransformer(nnx.Module):
    r"""Learns an operator between functions on an interval, for grids of any size.

        z = W a + b,
        z <- z + Attention(z, x),    z <- z + FF(z)    (every layer),
        y = Decoder(z),

    with a ReLU perceptron `FF` and a `SpectralDecoder` of two layers. Nothing in it is
    normalised, unless `outer_norm` or the attention does. Functional attention sees the
    coordinates `x` in its projections and has neither biases nor a ridge that heads
    share; the others have them as further channels of queries, keys and values, see
    `GalerkinAttention`. The encoder layers are stacked and scanned.

    The defaults are the published configuration, of 600,241 parameters. `"linear"`
    attention is over the number of points, so its output is not that of a finer grid.

    Args:
      features: channels inside.
      num_layers: number of encoder layers.
      num_heads: heads, dividing `features`.
      num_basis: basis functions per head of functional attention.
      attention: `"functional"`, `"galerkin"`, `"linear"`, `"fourier"` or `"softmax"`.
      feedforward_features: width of the hidden layer of `FF`.
      num_modes: wave numbers of the decoder's filters.
      decoder_features: channels of the decoder.
      feature_dim: channels of the input function.
      out_features: channels of the output function.
      outer_norm: whether layer norms follow both residuals of a layer.
      equal_layers: whether all layers start from the same parameters, as published.
      rngs: source of the initial parameters.
      **options: further options of the attention: of `FunctionalAttention` or
        `GalerkinAttention`.

    Raises:
      ValueError: if a count is not positive, the heads do not divide the features or
        the attention is unknown.

    References:
      Xiao et al., "Functional Attention", 2026, Sec. 5.6 and App. C.2; Cao, "Choose a
      Transformer: Fourier or Galerkin", NeurIPS 2021.
    """

    def __init__(
        self,
        *,
        features: int = 92,
        num_layers: int = 4,
        num_heads: int = 1,
        num_basis: int = 64,
        attention: str = "functional",
        feedforward_features: int = 200,
        num_modes: int = 16,
        decoder_features: int = 48,
        feature_dim: int = 1,
        out_features: int = 1,
        outer_norm: bool = False,
        equal_layers: bool = True,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        _checks.option("attention", attention, ATTENTIONS)
        _checks.positive(
            features=features,
            num_layers=num_layers,
            num_modes=num_modes,
            decoder_features=decoder_features,
            feature_dim=feature_dim,
            out_features=out_features,
        )
        self.feature_dim = feature_dim
        if attention == "functional":
            published = {
                "num_basis": num_basis,
                "ridge_logit": 2.0,
                "ridge_per_head": True,
                "use_bias": False,
                "fan_in_init": True,
            }
            options = published | options
        self.lift = FanInLinear(feature_dim, features, rngs=rngs)

        def layer(key: jax.Array) -> EncoderLayer:
            return EncoderLayer(
                features,
                hidden_features=feedforward_features,
                outer_norm=outer_norm,
                attention=attention,
                num_heads=num_heads,
                point_dim=1,
                rngs=nnx.Rngs(key),
                **options,
            )

        key = rngs.params()
        keys = jax.random.split(key, num_layers)
        if equal_layers:
            keys = jnp.broadcast_to(key, (num_layers,))
        self.layers = jax.vmap(layer)(keys)
        self.decoder = SpectralDecoder(
            features,
            out_features,
            features=decoder_features,
            grid_shape=(2 * num_modes,),  # the coarsest grid that resolves the modes
            modes=num_modes,
            hidden_features=decoder_features,
            kernel_init=spectral_burgers,
            rngs=rngs,
        )

    def __call__(self, mesh_points: jax.Array, features: jax.Array) -> jax.Array:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: coordinates of a uniform grid in their order, shape `(n, 1)`; the
            decoder takes its values for one period.
          features: values of the input function, shape `(n, feature_dim)`.

        Returns:
          Values of the output function, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        _checks.floating(mesh_points=mesh_points, features=features)
        _checks.rank(2, mesh_points=mesh_points, features=features)
        _checks.same_points(mesh_points=mesh_points, features=features)
        if (mesh_points.shape[1], features.shape[1]) != (1, self.feature_dim):
            raise ValueError(
                f"mesh_points {mesh_points.shape} must have shape (n, 1) and features "
                f"{features.shape} shape (n, {self.feature_dim}) for this model."
            )

        def step(z, layer):
            return layer(z, mesh_points=mesh_points), None

        z, _ = lax.scan(step, self.lift(features), self.layers)
        return self.decoder(z, grid_shape=(z.shape[0],))
