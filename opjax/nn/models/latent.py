"""The latent neural operator: attention between a few means over the points."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import opjax
from opjax import _checks
from opjax.nn.attention.pointwise import SoftmaxAttention
from opjax.nn.layers import MLP
from opjax.nn.layers.position import Position, check_points
from opjax.nn.models._given import joined
from opjax.nn.models.encoder import Block


class LatentNeuralOperator(nnx.Module):
    r"""Learns an operator between functions on any mesh, in a latent space.

    There are perceptrons of the positions `x` (trunk) and of positions and input values
    `u` (branch), and scores between points and latents that depend only on positions,

        z = softmax_n(s(t(x)))^T b(x, u),    z <- blocks(z),    softmax_k(s(t(y))) z

    at the query points `y`, from which a last perceptron computes the output. Blocks
    are pre-norm, with softmax attention between latents and a perceptron. Means over
    the points use quadrature weights here, but not in the published code.

    Args:
      position: position features, `Coordinates(p)` or `ReferenceDistances(p, ...)`.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      features: number `c` of channels of the hidden layers.
      num_layers: number of blocks; without blocks, only the means are used.
      num_heads: number of heads of the attention between latents, dividing `features`.
      num_latents: number `k` of latents.
      mlp_layers: number of residual hidden layers after the first, in all perceptrons
        except those of the blocks.
      own_decoder_scores: whether the decoder has separate scores, for queries at other
        points than the data.
      time_input: whether calls take a scalar `time`, an additional coordinate of all
        points.
      rngs: source of the initial parameters, U(-b, b) with `b = fan_in^{-1/2}`.

    Raises:
      ValueError: if a count is not positive or the heads do not divide the features.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> model = nn.LatentNeuralOperator(
      ...     position=nn.Coordinates(2), feature_dim=1, out_features=1, features=8,
      ...     num_layers=1, num_heads=2, num_latents=4, rngs=nnx.Rngs(0),
      ... )
      >>> points, values = jnp.ones((9, 2)), jnp.ones((9, 1))
      >>> model(points, values, query_points=jnp.zeros((5, 2))).shape
      (5, 1)

    References:
      Wang and Wang, "Latent neural operator for solving forward and inverse PDE
      problems", NeurIPS 2024 (arXiv:2406.03923).
    """

    def __init__(
        self,
        *,
        position: Position,
        feature_dim: int,
        out_features: int,
        features: int = 128,
        num_layers: int = 8,
        num_heads: int = 8,
        num_latents: int = 256,
        mlp_layers: int = 2,
        own_decoder_scores: bool = False,
        time_input: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            point_dim=position.point_dim,
            out_features=out_features,
            features=features,
            num_latents=num_latents,
            mlp_layers=mlp_layers,
        )
        _checks.non_negative(num_layers=num_layers)
        self.position, self.feature_dim = position, feature_dim
        self.time_input = time_input

        def perceptron(in_features: int, out_features: int) -> MLP:
            hidden = (features,) * (mlp_layers + 1)
            return MLP(
                in_features,
                hidden,
                out_features,
                residual=True,
                kernel_init=None,
                rngs=rngs,
            )

        channels = position.features + time_input
        self.trunk = perceptron(channels, features)
        self.branch = perceptron(channels + feature_dim, features)
        self.scores = perceptron(features, num_latents)
        self.decoder_scores = (
            perceptron(features, num_latents) if own_decoder_scores else None
        )
        keys = jax.random.split(rngs.params(), num_layers)
        attention = partial(
            SoftmaxAttention, num_heads=num_heads, normalization=None, fan_in_init=True
        )

        def block(key: jax.Array) -> Block:
            return Block(
                features,
                mlp_ratio=2,
                attention=attention,
                kernel_init=None,
                rngs=nnx.Rngs(key),
            )

        self.blocks = jax.vmap(block)(keys) if num_layers else None
        self.decoder = perceptron(features, out_features)

    def __call__(
        self,
        mesh_points: jax.Array,
        features: jax.Array | None = None,
        *,
        quadrature_weights: jax.Array | None = None,
        time: jax.Array | None = None,
        query_points: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`, equal ones by
            default; zero masks a point, whose values must still be finite.
          time: scalar, if the model takes time.
          query_points: points where the output is asked, shape `(m, p)`; the mesh
            points by default.

        Returns:
          Values of the output function, shape `(n, out_features)`, or
          `(m, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        positions = self._positions(mesh_points, time)
        trunk = self.trunk(positions)
        values = self.branch(joined(positions, features, self.feature_dim))
        means = opjax.softmax_means(
            values, self.scores(trunk), quadrature_weights=quadrature_weights
        )
        latents = self.mix(means)
        if query_points is not None:
            trunk = self.trunk(self._positions(query_points, time))
        score = self.scores if self.decoder_scores is None else self.decoder_scores
        shares = opjax.softmax_basis(score(trunk))
        return self.decoder(opjax.reconstruct(latents, shares))

    def mix(self, latents: jax.Array) -> jax.Array:
        """Maps latents `(k, c)` through the blocks."""
        if self.blocks is None:
            return latents
        return lax.scan(lambda z, block: (block(z), None), latents, self.blocks)[0]

    def _positions(self, points: jax.Array, time: jax.Array | None) -> jax.Array:
        """Returns what the trunk sees, `(n, position.features)` and maybe time."""
        check_points(self.position, points)
        if (time is None) == self.time_input:
            raise ValueError(
                f"{time=} does not match a model built with {self.time_input=}."
            )
        seen = self.position(points)
        if time is None:
            return seen
        _checks.floating(time=time)
        _checks.rank(0, time=time)
        column = jnp.broadcast_to(time.astype(seen.dtype), (len(seen), 1))
        return jnp.concatenate([seen, column], axis=1)
