"""Attentions that compare points with points, normalised per head."""

import abc
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks
from opjax.nn.attention.heads import head_width, map_heads, merge_heads, split_heads
from opjax.nn.layers import FanInLinear, Initializer, Linear, normalized
from opjax.nn.layers.initializers import diagonal_xavier
from opjax.quadrature import active

NORMALIZATIONS = ("layer", "instance")


class HeadNorm(nnx.Module):
    r"""Normalises every head on its own, `s (x - mean) / sqrt(var + epsilon) + b`.

    Args:
      num_heads: heads `h`.
      width: channels `d` of a head; scale and shift have shape `(h, d)`.
      normalization: `"layer"`, over the channels of a point, or `"instance"`, over the
        points of a channel.
      epsilon: offset of the variance.
    """

    def __init__(
        self, num_heads: int, width: int, *, normalization: str, epsilon: float
    ):
        _checks.option("normalization", normalization, NORMALIZATIONS)
        _checks.positive(epsilon=epsilon)
        self.normalization, self.epsilon = normalization, epsilon
        self.scale = nnx.Param(jnp.ones((num_heads, width), jnp.float32))
        self.bias = nnx.Param(jnp.zeros((num_heads, width), jnp.float32))

    def __call__(
        self, x: jax.Array, quadrature_weights: jax.Array | None = None
    ) -> jax.Array:
        """Maps heads `(h, n, d)` to the same shape; means over points are weighted."""
        if self.normalization == "layer":
            y = normalized(x, axis=2, epsilon=self.epsilon)
        else:
            y = normalized(x, axis=1, epsilon=self.epsilon, weights=quadrature_weights)
        return y * self.scale[...][:, None] + self.bias[...][:, None]


class PointAttention(nnx.Module, abc.ABC):
    r"""Multi-head self-attention among points with coordinates.

    Per head of width `d`, with `~` a learned normalisation and `x` the coordinates,

        Q = [x, y W_q],    K = [x, ~(y W_k)],    V = [x, ~(y W_v)],

    or `~` on queries in place of values, and what a subclass makes of them. Merged
    heads of width `d + p` are mapped back to `c` channels.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      point_dim: dimension `p` of the coordinates; zero for none.
      normalization: `"layer"`, over the channels of a head at every point,
        `"instance"`, over the points of every channel, or `None`.
      epsilon: offset of the variances in the normalisation.
      kernel_init: initialiser of the `c x c` projections; `diagonal_xavier()` if left
        out.
      fan_in_init: whether they start from U(-b, b), `b = c^{-1/2}`, with their biases,
        instead.
      use_bias: whether queries, keys and values have biases.
      out: constructor of the last projection, `out(in, out, rngs=)`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, the epsilon is not positive,
        the normalisation is unknown or there are two initialisers.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 3-6 and 17.
    """

    # Whether a matrix of all pairs of points is formed, and whether queries rather than
    # values are normalised besides the keys.
    forms_pairs = False
    normalizes_queries = False

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        point_dim: int = 0,
        normalization: str | None = "layer",
        epsilon: float = 1e-5,
        kernel_init: Initializer | None = None,
        fan_in_init: bool = False,
        use_bias: bool = True,
        out: Callable[..., nnx.Linear] = FanInLinear,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads)
        if fan_in_init and kernel_init is not None:
            raise ValueError(f"{fan_in_init=} leaves nothing to kernel_init.")
        _checks.non_negative(point_dim=point_dim)
        self.num_heads, self.point_dim = num_heads, point_dim
        init = diagonal_xavier() if kernel_init is None else kernel_init
        linear = FanInLinear if fan_in_init else partial(Linear, kernel_init=init)
        self.query = linear(features, features, use_bias=use_bias, rngs=rngs)
        self.key = linear(features, features, use_bias=use_bias, rngs=rngs)
        self.value = linear(features, features, use_bias=use_bias, rngs=rngs)

        def norm():
            if normalization is None:
                return None
            return HeadNorm(
                num_heads, width, normalization=normalization, epsilon=epsilon
            )

        self.key_norm, self.partner_norm = norm(), norm()
        merged = num_heads * (width + point_dim)
        self.out = out(merged, features, rngs=rngs)

    @abc.abstractmethod
    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps queries, keys and values `(n, d + p)` of one head to `(n, d + p)`."""

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis: None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: coordinates of the points, shape `(n, p)`.
          basis: `None`: there is no basis.
          quadrature_weights: weights of the points, shape `(n,)`, `1/n` by default;
            zero masks a point, whose features must still be finite.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          TypeError: if the coordinates are not floating point.
          ValueError: if the coordinates do not fit the layer or the points, or there
            is a basis.
        """
        if basis is not None:
            raise ValueError(f"{type(self).__name__} attends without a basis.")
        heads = self.head_inputs(
            x, mesh_points=mesh_points, quadrature_weights=quadrature_weights
        )

        def attend(query, key, value):
            return self.attend(query, key, value, quadrature_weights)

        if not self.forms_pairs:
            return self.out(merge_heads(jax.vmap(attend)(*heads)))
        # The matrices of pairs are computed again in the backward pass.
        entries = self.num_heads * x.shape[0] ** 2
        head = jax.checkpoint(attend, prevent_cse=False)  # see `BasisAttention`
        return self.out(merge_heads(map_heads(head, *heads, entries=entries)))

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns queries, keys and values of every head, each `(h, n, d + p)`."""
        points = self._points(x, mesh_points)
        query, key, value = (
            split_heads(linear(x), self.num_heads)
            for linear in (self.query, self.key, self.value)
        )
        if self.key_norm is not None and self.partner_norm is not None:
            key = self.key_norm(key, quadrature_weights)
            if self.normalizes_queries:
                query = self.partner_norm(query, quadrature_weights)
            else:
                value = self.partner_norm(value, quadrature_weights)
        if points is None:
            return query, key, value

        def enriched(values):
            return jnp.concatenate([points, values], axis=2)

        return enriched(query), enriched(key), enriched(value)

    def _points(self, x, mesh_points):
        """Returns the coordinates of every head, `(h, n, p)`, or `None`."""
        if self.point_dim == 0:
            return None
        expected = (x.shape[0], self.point_dim)
        if mesh_points is None or mesh_points.shape != expected:
            raise ValueError(
                f"mesh_points {None if mesh_points is None else mesh_points.shape} "
                f"must have shape {expected} for features {x.shape} of a layer built "
                f"with point_dim={self.point_dim}."
            )
        _checks.floating(mesh_points=mesh_points)
        points = mesh_points.astype(x.dtype)[None]
        return jnp.broadcast_to(points, (self.num_heads, *mesh_points.shape))


def _or_equal(weights: jax.Array | None, values: jax.Array) -> jax.Array:
    """Returns the weights, `1 / n` each by default."""
    if weights is not None:
        return weights
    return jnp.full(values.shape[0], 1 / values.shape[0], values.dtype)


class GalerkinAttention(PointAttention):
    """Galerkin-type attention, `Q (K^T V) / n`, see `PointAttention`."""

    def attend(self, query, key, value, weights):
        """Returns `opjax.galerkin_attention` of one head."""
        weights = _or_equal(weights, key)
        return opjax.galerkin_attention(query, key, value, key_weights=weights)


class FourierAttention(PointAttention):
    """Fourier-type attention, `(Q K^T / sqrt(d + p)) V / n`, see `PointAttention`.

    Its cost is quadratic in the number of points.
    """

    forms_pairs = True
    normalizes_queries = True

    def attend(self, query, key, value, weights):
        """Returns `opjax.fourier_attention` of one head."""
        weights = _or_equal(weights, key)
        return opjax.fourier_attention(query, key, value, key_weights=weights)


class LinearAttention(PointAttention):
    """Linear attention by two softmax steps, over the number of points once more.

    As in the code of Cao (2021), its output vanishes under refinement of the mesh.
    """

    def attend(self, query, key, value, weights):
        """Returns `opjax.linear_attention` of one head over the number of points."""
        averages = opjax.linear_attention(query, key, value, key_weights=weights)
        if weights is None:
            return averages / key.shape[0]
        count = jnp.maximum(jnp.sum(active(weights)), 1)
        return averages / count.astype(averages.dtype)


class SoftmaxAttention(PointAttention):
    """Softmax attention among all points, see `PointAttention`.

    Its cost is quadratic in the number of points.
    """

    forms_pairs = True
    normalizes_queries = True

    def attend(self, query, key, value, weights):
        """Returns `opjax.softmax_attention` of one head."""
        return opjax.softmax_attention(query, key, value, key_weights=weights)


class IntentionAttention(PointAttention):
    """Ridge regression of values on keys, in linear time, see `opjax.intention`.

    Keys and values are normalised as in the other attentions, and heads may see
    coordinates; the authors' has neither, `normalization=None` and `point_dim=0`.

    Args:
      features: channels `c`.
      ridge: fixed Tikhonov weight of the mean square of the keys.
      **options: those of `PointAttention`.
    """

    def __init__(self, features: int, *, ridge: float = 1.0, **options):
        super().__init__(features, **options)
        _checks.non_negative(ridge=ridge)
        self.ridge = ridge

    def attend(self, query, key, value, weights):
        """Returns `opjax.intention` of one head."""
        given = {"ridge": self.ridge, "key_weights": _or_equal(weights, key)}
        return opjax.intention(query, key, value, **given)


class PerformerAttention(PointAttention):
    """Softmax attention estimated by positive random features, in linear time.

    The features are drawn once, from a seed; every head has the same.

    Args:
      features: channels `c`.
      num_features: random features; the more, the closer to `SoftmaxAttention`.
      seed: seed of the random features.
      **options: those of `PointAttention`.
    """

    normalizes_queries = True

    def __init__(
        self, features: int, *, num_features: int = 64, seed: int = 0, **options
    ):
        super().__init__(features, **options)
        _checks.positive(num_features=num_features)
        self.num_features, self.seed = num_features, seed

    def attend(self, query, key, value, weights):
        """Returns `opjax.performer_attention` of one head."""
        # Not a parameter: an array in the module would be trained.
        directions = opjax.orthogonal_random_features(
            jax.random.key(self.seed), self.num_features, query.shape[1]
        )
        return opjax.performer_attention(
            query,
            key,
            value,
            projection_matrix=directions.astype(query.dtype),
            key_weights=weights,
        )


class NystromAttention(PointAttention):
    """Softmax attention through landmarks, means over segments of the points.

    Args:
      features: channels `c`.
      num_landmarks: landmarks, at most as many as points.
      **options: those of `PointAttention`.
    """

    normalizes_queries = True

    def __init__(self, features: int, *, num_landmarks: int = 64, **options):
        super().__init__(features, **options)
        _checks.positive(num_landmarks=num_landmarks)
        self.num_landmarks = num_landmarks

    def attend(self, query, key, value, weights):
        """Returns `opjax.nystrom_attention` of one head."""
        return opjax.nystrom_attention(
            query,
            key,
            value,
            num_landmarks=self.num_landmarks,
            query_weights=weights,
            key_weights=weights,
        )


class LinformerAttention(PointAttention):
    """Softmax attention to learned combinations of the points of one fixed mesh size.

    Args:
      features: channels `c`.
      num_points: points `n` of every mesh, in an order that means something.
      num_projected: combinations `k`.
      rngs: source of the initial parameters; projections start from N(0, 1/n).
      **options: those of `PointAttention`.
    """

    normalizes_queries = True

    def __init__(
        self,
        features: int,
        *,
        num_points: int,
        num_projected: int = 64,
        rngs: nnx.Rngs,
        **options,
    ):
        super().__init__(features, rngs=rngs, **options)
        _checks.positive(num_points=num_points, num_projected=num_projected)
        init = jax.nn.initializers.normal(num_points**-0.5)
        shape = (num_points, num_projected)
        self.key_projection = nnx.Param(init(rngs.params(), shape, jnp.float32))
        self.value_projection = nnx.Param(init(rngs.params(), shape, jnp.float32))

    def attend(self, query, key, value, weights):
        """Returns `opjax.linformer_attention` of one head."""
        if weights is not None:
            # Masks only: the projections are sums over the points of one mesh.
            weights = active(weights).astype(key.dtype)
        return opjax.linformer_attention(
            query,
            key,
            value,
            key_projection=self.key_projection[...],
            value_projection=self.value_projection[...],
            key_weights=weights,
        )


ATTENTIONS = {
    "galerkin": GalerkinAttention,
    "linear": LinearAttention,
    "fourier": FourierAttention,
    "softmax": SoftmaxAttention,
}
