"""The transformer of Burgers' equation, trained on one grid and evaluated on any."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.attention.basis import BasisAttention
from opjax.nn.bases.expansions import SoftmaxBasis
from opjax.nn.layers import FanInLinear, SpectralDecoder
from opjax.nn.layers.initializers import spectral_burgers
from opjax.nn.mixers import FunctionalMap
from opjax.nn.models._given import Points, refuse
from opjax.nn.models.encoder import EncoderLayer


def coordinate_attention(
    *, num_heads: int = 1, num_basis: int = 64
) -> Callable[..., BasisAttention]:
    """Returns the constructor of the functional attention in the published model.

    Its basis functions depend on the coordinates. It has no biases, and a separate
    ridge for every head.

    Args:
      num_heads: number of heads, dividing the features.
      num_basis: basis functions per head.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> build = models.coordinate_attention(num_heads=2, num_basis=4)
      >>> layer = build(8, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 1))).shape
      (9, 8)
    """
    return partial(
        BasisAttention,
        num_heads=num_heads,
        basis=partial(SoftmaxBasis, num_basis=num_basis, point_dim=1, use_bias=False),
        mixer=partial(
            FunctionalMap, ridge_logit=2.0, ridge_per_head=True, fan_in_init=True
        ),
        use_bias=False,
        fan_in_init=True,
    )


class SuperResolutionTransformer(nnx.Module):
    r"""Learns an operator between functions on an interval, for grids of any size.

        z = W a + b,
        z <- N(z + Attention(z, x)),    z <- N(z + FF(z))    (every layer),
        y = Decoder(z),

    with a ReLU perceptron `FF` and a `SpectralDecoder` of two layers. `N` is the
    identity, or with `outer_norm` a layer norm. The encoder layers are stacked and
    scanned; all start from the same parameters, as published.

    The defaults are the published configuration with 600,241 parameters. The output of
    `LinearAttention` is divided by the number of points, so it changes under grid
    refinement.

    Args:
      features: number of channels of the hidden layers.
      num_layers: number of encoder layers.
      attention: constructor of the attention, `attention(features, rngs=)`, for points
        with one coordinate; by default `coordinate_attention()`.
      hidden_features: width of the hidden layer of `FF`.
      modes: number of wave numbers of the decoder's filters.
      decoder_features: number of channels of the decoder.
      feature_dim: channels of the input function.
      out_features: channels of the output function.
      outer_norm: whether layer norms follow both residuals of a layer.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the attention rejects its options.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.SuperResolutionTransformer(
      ...     features=8, num_layers=1, hidden_features=8, modes=2, decoder_features=4,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 1)), jnp.ones((9, 1))).shape
      (9, 1)
      >>> model(jnp.ones((16, 1)), jnp.ones((16, 1))).shape  # a finer grid
      (16, 1)

    References:
      Xiao et al., "Functional Attention", 2026, Sec. 5.6 and App. C.2; Cao, "Choose a
      Transformer: Fourier or Galerkin", NeurIPS 2021.
    """

    def __init__(
        self,
        *,
        features: int = 92,
        num_layers: int = 4,
        attention: Callable[..., Any] | None = None,
        hidden_features: int = 200,
        modes: int = 16,
        decoder_features: int = 48,
        feature_dim: int = 1,
        out_features: int = 1,
        outer_norm: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            features=features,
            num_layers=num_layers,
            modes=modes,
            decoder_features=decoder_features,
            feature_dim=feature_dim,
            out_features=out_features,
        )
        self.feature_dim = feature_dim
        self.lift = FanInLinear(feature_dim, features, rngs=rngs)

        def layer(key: Array) -> EncoderLayer:
            return EncoderLayer(
                features,
                hidden_features=hidden_features,
                attention=coordinate_attention() if attention is None else attention,
                outer_norm=outer_norm,
                rngs=nnx.Rngs(key),
            )

        keys = jnp.broadcast_to(rngs.params(), (num_layers,))
        self.layers = jax.vmap(layer)(keys)
        self.decoder = SpectralDecoder(
            features,
            out_features,
            features=decoder_features,
            grid_shape=(2 * modes,),  # the coarsest grid that resolves the modes
            modes=modes,
            hidden_features=decoder_features,
            kernel_init=spectral_burgers,
            rngs=rngs,
        )

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
    ) -> Float[Array, "m c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: coordinates of a uniform grid in their order, shape `(n, 1)`; the
            decoder takes its values for one period.
          features: values of the input function, shape `(n, feature_dim)`.
          quadrature_weights: none, the points of a uniform grid count alike.
          time: none, the model has no time embedding.

        Returns:
          Values of the output function, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other, or there are
            quadrature weights or a time.
        """
        refuse(
            "a super-resolution transformer, of uniform grids",
            quadrature_weights=quadrature_weights,
            time=time,
        )
        z, _ = self._encode(mesh_points, features, keep=False)
        return self.decoder(z, grid_shape=(z.shape[0],))

    def latents(self, mesh_points: Array, features: Array | None = None) -> Array:
        """Returns the features before the layers and after each of them.

        Args:
          mesh_points: see `__call__`, also for the other arguments.
          features: values of the input function.

        Returns:
          Shape `(num_layers + 1, n, c)`.
        """
        _, (first, after) = self._encode(mesh_points, features, keep=True)
        assert after is not None
        return jnp.concatenate([first[None], after])

    def _encode(
        self, mesh_points: Array, features: Array | None, *, keep: bool
    ) -> tuple[Array, tuple[Array, Array | None]]:
        """Features after the layers; before and after each, if they are kept."""
        if features is None:
            raise ValueError(
                "features is None, but must have shape (n, c) for this model."
            )
        _checks.floating(mesh_points=mesh_points, features=features)
        _checks.rank(2, mesh_points=mesh_points, features=features)
        _checks.same_points(mesh_points=mesh_points, features=features)
        if (mesh_points.shape[1], features.shape[1]) != (1, self.feature_dim):
            raise ValueError(
                f"mesh_points {mesh_points.shape} must have shape (n, 1) and features "
                f"{features.shape} shape (n, {self.feature_dim}) for this model."
            )

        def step(z: Array, layer: Callable[..., Array]) -> tuple[Array, Array | None]:
            z = layer(z, Points(mesh_points))
            return z, z if keep else None

        first = self.lift(features)
        last, after = lax.scan(step, first, self.layers)
        return last, (first, after)
