"""The orthogonal neural operator, in the authors' version and in the compared one."""

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jaxtyping import Float

import opjax
from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import MLP, LayerNorm, Linear, TimeEmbedding
from opjax.nn.layers.position import Position, check_points
from opjax.nn.models._given import NO_POINTS, Points, joined, with_time
from opjax.nn.models.encoder import Attention, Block


class ONOBlock(nnx.Module):
    r"""A transformer block on mesh features, whose modes filter a second function.

        x <- x + Attention(N x),    x <- x + MLP(N x),
        f <- f + Phi diag(softplus(mu)) Phi^T f,    f <- MLP(N f),

    where `Phi` are the orthonormalised modes `x W`, see `opjax.orthonormal_attention`.
    The last map has no residual; in the last block it is linear.

    Args:
      features: number `c` of channels of either stream.
      attention: constructor of the attention, `attention(features, rngs=)`.
      num_modes: number of columns of `Phi`.
      mlp_ratio: width of the perceptrons' hidden layers, relative to `c`.
      out_features: number of output channels, for the last block.
      batch_axis: name of the `jax.vmap` axis of samples that share a covariance.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the attention rejects its options.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax
      >>> from opjax import nn
      >>> attention = partial(nn.attention.MeanAttention, num_heads=2)
      >>> build = partial(nn.models.ONOBlock, attention=attention, num_modes=4)
      >>> x, f = jax.random.normal(jax.random.key(0), (2, 9, 8))
      >>> x, f, covariance = build(8, rngs=nnx.Rngs(0))(x, f)
      >>> f.shape, covariance.shape
      ((9, 8), (4, 4))
    """

    def __init__(
        self,
        features: int,
        *,
        attention: Attention,
        num_modes: int,
        mlp_ratio: int = 1,
        out_features: int | None = None,
        batch_axis: str | None = None,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_modes=num_modes)
        self.batch_axis = batch_axis
        self.mesh = Block(features, mlp_ratio=mlp_ratio, attention=attention, rngs=rngs)
        self.modes = Linear(features, num_modes, rngs=rngs)
        self.gain_logits = nnx.Param(jnp.zeros(num_modes, jnp.float32))
        self.norm = LayerNorm(features)
        if out_features is None:
            self.out = MLP(features, mlp_ratio * features, features, rngs=rngs)
        else:
            self.out = Linear(features, out_features, rngs=rngs)

    def __call__(
        self,
        x: Array,
        f: Array,
        points: Points = NO_POINTS,
        *,
        covariance: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """Evaluates the block on one sample.

        Args:
          x: features of the mesh, shape `(n, c)`.
          f: features of the function, shape `(n, c)`.
          points: where the features are.
          covariance: of the modes, shape `(k, k)`; their own by default.

        Returns:
          Both streams after the block, and the covariance that was taken.
        """
        weights = points.quadrature_weights
        x = self.mesh(x, points)
        modes = self.modes(x)
        if covariance is None:
            covariance = self._covariance(modes, weights)
        gains = jax.nn.softplus(self.gain_logits[...])
        f = f + opjax.orthonormal_attention(
            f, modes, gains, covariance=covariance, quadrature_weights=weights
        )
        return x, self.out(self.norm(f)), covariance

    def _covariance(self, modes: Array, weights: Array | None) -> Array:
        """Returns the covariance of the modes, the mean of a batch with an axis."""
        own = opjax.feature_covariance(modes, quadrature_weights=weights)
        return own if self.batch_axis is None else lax.pmean(own, self.batch_axis)


class ONO(nnx.Module):
    r"""The orthogonal neural operator: features of the mesh filter those of a function.

        x = MLP([p, f]),    f <- MLP'([p, f]) + e(t),    (x, f) <- ONOBlock_l(x, f),

    with position features `p`, as in Neural-Solver-Library. With `joint_encoder`, one
    perceptron with `2 c` channels embeds both streams, and the time is added to the
    mesh stream, as in the authors' own code.

    The published code computes the covariance that makes modes orthonormal from a
    batch. Here it is computed from every sample, in training and afterwards. So the
    output of a sample does not depend on others, and one function serves training and
    prediction. For batches of one sample, training is the same as in the published
    code. That code differs in two ways:

    - In training it uses the mean over the batch. A model with `batch_axis` does the
      same under `jax.vmap(model, axis_name=batch_axis)`, for samples of one size.
    - In evaluation it uses a running mean from training, `r <- 0.9 r + 0.1 R`. Compute
      `R` of a sample with `covariances`, and pass such means as the argument
      `covariances`.

    Args:
      position: position features, `Coordinates(p)` or `ReferenceDistances(p, ...)`.
      feature_dim: channels of the input function; zero if the mesh is the only input.
      out_features: channels of the output function.
      attention: constructor of the attention of a block, `attention(features, rngs=)`:
        a `functools.partial` of `NystromformerAttention` or another one.
      features: number `c` of channels of either stream.
      num_layers: number of blocks.
      num_modes: number of eigenfunctions per block.
      mlp_ratio: width of the blocks' hidden layers, relative to `c`.
      joint_encoder: whether one perceptron embeds both streams.
      time_embedding: whether calls take a scalar `time`.
      batch_axis: see above.
      rematerialize: whether to recompute the blocks in the backward pass.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive, or the attention rejects its options.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax
      >>> from opjax import nn
      >>> model = nn.ONO(
      ...     position=nn.Coordinates(2),
      ...     feature_dim=1,
      ...     out_features=1,
      ...     attention=partial(nn.attention.MeanAttention, num_heads=2),
      ...     features=8,
      ...     num_layers=2,
      ...     num_modes=4,
      ...     rngs=nnx.Rngs(0),
      ... )
      >>> points = jax.random.uniform(jax.random.key(0), (9, 2))
      >>> model(points, points[:, :1]).shape
      (9, 1)

    References:
      Xiao et al., "Improved operator learning by orthogonal attention", ICML 2024
      (arXiv:2310.12487).
    """

    def __init__(
        self,
        *,
        position: Position,
        feature_dim: int,
        out_features: int,
        attention: Attention,
        features: int = 128,
        num_layers: int = 8,
        num_modes: int = 8,
        mlp_ratio: int = 1,
        joint_encoder: bool = False,
        time_embedding: bool = False,
        batch_axis: str | None = None,
        rematerialize: bool = False,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            out_features=out_features,
            features=features,
            num_layers=num_layers,
            mlp_ratio=mlp_ratio,
        )
        self.position, self.feature_dim = position, feature_dim
        self.joint_encoder, self.rematerialize = joint_encoder, rematerialize
        inputs, hidden = position.features + feature_dim, 2 * features
        if joint_encoder:
            self.encoder = MLP(inputs, hidden, 2 * features, rngs=rngs)
        else:
            self.mesh_encoder = MLP(inputs, hidden, features, rngs=rngs)
            self.encoder = MLP(inputs, hidden, features, rngs=rngs)
        self.time_embedding = (
            TimeEmbedding(features, rngs=rngs) if time_embedding else None
        )

        def block(key: Array, out_features: int | None = None) -> ONOBlock:
            return ONOBlock(
                features,
                attention=attention,
                num_modes=num_modes,
                mlp_ratio=mlp_ratio,
                out_features=out_features,
                batch_axis=batch_axis,
                rngs=nnx.Rngs(key),
            )

        *keys, last = jax.random.split(rngs.params(), num_layers)
        self.blocks = jax.vmap(block)(jnp.stack(keys)) if keys else None
        self.last = block(last, out_features)

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
        covariances: Array | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the operator on one sample.

        Args:
          mesh_points: points, shape `(n, p)`.
          features: values of the input function, shape `(n, feature_dim)`; `None` if
            `feature_dim` is zero.
          quadrature_weights: weights of the points, shape `(n,)`; zero masks a point.
          time: scalar time, if the model has a time embedding.
          covariances: of the modes of every block, shape `(l, k, k)`; the sample's own
            by default.

        Returns:
          Values of the output function at the mesh points, shape `(n, out_features)`.

        Raises:
          TypeError: if an array is not floating point.
          ValueError: if shapes do not match the model or each other.
        """
        return self._evaluate(
            mesh_points, features, quadrature_weights, time, covariances
        )[0]

    def covariances(
        self,
        mesh_points: Array,
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
    ) -> Array:
        """Returns the covariances of the modes of every block, `(l, k, k)`.

        The arguments are those of a call.
        """
        return self._evaluate(mesh_points, features, quadrature_weights, time, None)[1]

    def _evaluate(
        self,
        mesh_points: Array,
        features: Array | None,
        quadrature_weights: Array | None,
        time: Array | None,
        covariances: Array | None,
    ) -> tuple[Array, Array]:
        """Returns values `(n, q)` and the covariances of all blocks, `(l, k, k)`."""
        x, f = self._encode(mesh_points, features, time)
        first, last = None, None
        if covariances is not None:
            k = self.last.gain_logits.shape[0]
            layers = 1 + (0 if self.blocks is None else len(self.blocks.gain_logits))
            expected = (layers, k, k)
            _checks.shaped("covariances", covariances, expected, "this model")
            first, last = covariances[:-1], covariances[-1]

        def layer(
            streams: tuple[Array, Array],
            block_and_covariance: tuple[ONOBlock, Array | None],
        ) -> tuple[tuple[Array, Array], Array]:
            block, covariance = block_and_covariance
            x, f, taken = block(
                *streams,
                Points(mesh_points, quadrature_weights),
                covariance=covariance,
            )
            return (x, f), taken

        if self.rematerialize:
            layer = jax.checkpoint(layer, prevent_cse=False)
        each: list[Array] = []
        if self.blocks is not None:
            (x, f), stacked = lax.scan(layer, (x, f), (self.blocks, first))
            each = [stacked]
        (_, values), one = layer((x, f), (self.last, last))
        return values, jnp.concatenate([*each, one[None]])

    def _encode(
        self,
        mesh_points: Array,
        features: Array | None,
        time: Array | None,
    ) -> tuple[Array, Array]:
        """Returns the embeddings of the mesh and of the input function, `(n, c)`."""
        check_points(self.position, mesh_points)
        positions = self.position(mesh_points)
        inputs = joined(positions, features, self.feature_dim)
        if self.joint_encoder:
            x, f = jnp.split(self.encoder(inputs), 2, axis=1)
            return with_time(x, time, self.time_embedding), f
        x, f = self.mesh_encoder(inputs), self.encoder(inputs)
        return x, with_time(f, time, self.time_embedding)
