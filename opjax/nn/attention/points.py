"""Common base classes of attention between points."""

import abc
from collections.abc import Callable
from functools import partial
from typing import Required, TypedDict

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.attention.heads import head_width, map_heads, merge_heads, split_heads
from opjax.nn.layers import FanInLinear, Initializer, Linear, normalized
from opjax.nn.layers.initializers import diagonal_xavier
from opjax.projection import check_weights

NORMALIZATIONS = ("layer", "instance")


class HeadNorm(nnx.Module):
    r"""Normalises every head separately, `s (x - mean) / sqrt(var + epsilon) + b`.

    Args:
      num_heads: heads `h`.
      width: channels `d` of a head; scale and shift have shape `(h, d)`.
      normalization: `"layer"`, over the channels of a point, or `"instance"`, over the
        points of a channel.
      epsilon: offset of the variance.

    Examples:
      >>> import jax
      >>> from opjax.nn.attention import HeadNorm
      >>> norm = HeadNorm(2, 4, normalization="layer", epsilon=1e-5)
      >>> heads = norm(jax.random.normal(jax.random.key(0), (2, 9, 4)))
      >>> heads.shape, bool(abs(heads.mean(axis=-1)).max() < 1e-5)
      ((2, 9, 4), True)
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
        return self._along(1, x, quadrature_weights)

    def columns(
        self, x: jax.Array, quadrature_weights: jax.Array | None = None
    ) -> jax.Array:
        """Maps heads `(h, d, m)` to the same shape."""
        return self._along(2, x, quadrature_weights)

    def _along(self, points: int, x: jax.Array, weights: jax.Array | None) -> jax.Array:
        """Normalises heads whose points are along the axis `points`."""
        if self.normalization == "layer":
            y = normalized(x, axis=3 - points, epsilon=self.epsilon)
        else:
            y = normalized(x, axis=points, epsilon=self.epsilon, weights=weights)
        scale, bias = (jnp.expand_dims(p[...], points) for p in (self.scale, self.bias))
        return y * scale + bias


class PointOptions(TypedDict, total=False):
    """Constructor options of all `PointAttention` classes, which document them.

    Attributes:
      num_heads: number of heads.
      point_dim: dimension of the coordinates.
      normalization: kind of the learned normalisation.
      epsilon: offset of its variances.
      kernel_init: initialiser of the projections.
      fan_in_init: whether the projections are initialised uniformly.
      use_bias: whether the projections have biases.
      out: constructor of the last projection.
    """

    num_heads: Required[int]
    point_dim: int
    normalization: str | None
    epsilon: float
    kernel_init: Initializer | None
    fan_in_init: bool
    use_bias: bool
    out: Callable[..., nnx.Linear]


class PointAttention(nnx.Module, abc.ABC):
    r"""Multi-head self-attention between points with coordinates.

    Per head of width `d`, with a learned normalisation, written with a tilde, and
    coordinates `x`,

        Q = [x, y W_q],    K = [x, ~(y W_k)],    V = [x, ~(y W_v)],

    or with queries normalised instead of values; the subclass defines how they are
    combined. The merged heads of width `d + p` are mapped back to `c` channels.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      point_dim: dimension `p` of the coordinates; zero for none.
      normalization: `"layer"`, over the channels of a head at every point;
        `"instance"`, over the points for every channel; or `None`.
      epsilon: offset of the variances in the normalisation.
      kernel_init: initialiser of the `c x c` projections; by default
        `diagonal_xavier()`.
      fan_in_init: whether projections and their biases are initialised from U(-b, b),
        `b = c^{-1/2}`, instead.
      use_bias: whether queries, keys and values have biases.
      out: constructor of the last projection, `out(in, out, rngs=)`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, the epsilon is not positive,
        the normalisation is unknown or both initialisations are requested.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> layer = nn.SoftmaxAttention(8, num_heads=2, point_dim=2, rngs=nnx.Rngs(0))
      >>> isinstance(layer, nn.attention.PointAttention)
      True
      >>> heads = layer.head_inputs(jnp.ones((9, 8)), mesh_points=jnp.ones((9, 2)))
      >>> [head.shape for head in heads]  # four channels of a head, two coordinates
      [(2, 9, 6), (2, 9, 6), (2, 9, 6)]

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 3-6 and 17.
    """

    # Whether queries rather than values are normalised besides the keys.
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
            raise ValueError(
                f"{fan_in_init=} has no effect with kernel_init; pass only one of them."
            )
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
            raise ValueError(
                f"{type(self).__name__} does not use a basis; omit `basis`."
            )
        _checks.layer_input(self.out.out_features, x=x)
        if quadrature_weights is not None:
            quadrature_weights = check_weights(quadrature_weights, x=x)
        return self.evaluate(x, mesh_points, quadrature_weights)

    @abc.abstractmethod
    def evaluate(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps the checked arguments of a call to features `(n, c)`."""

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns queries, keys and values of every head, each `(h, n, d + p)`."""
        points = coordinates(x, mesh_points, self.point_dim)

        def heads(name: str) -> jax.Array:
            made = split_heads(getattr(self, name)(x), self.num_heads)
            norm = self.norm_of(name)
            made = made if norm is None else norm(made, quadrature_weights)
            if points is None:
                return made
            shape = (self.num_heads, *points.shape)
            rows = jnp.broadcast_to(points.astype(x.dtype), shape)
            return jnp.concatenate([rows, made], axis=2)

        return heads("query"), heads("key"), heads("value")

    def norm_of(self, name: str) -> HeadNorm | None:
        """Returns the normalisation of `"query"`, `"key"` or `"value"`, if any."""
        partner = "query" if self.normalizes_queries else "value"
        return {"key": self.key_norm, partner: self.partner_norm}.get(name)


class HeadwiseAttention(PointAttention):
    """Attention between points, computed by a function of one head's arrays.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn.attention import HeadwiseAttention
      >>> class MeanOfValues(HeadwiseAttention):
      ...     def attend(self, query, key, value, weights):
      ...         return jnp.broadcast_to(value.mean(axis=0), value.shape)
      >>> MeanOfValues(8, num_heads=2, rngs=nnx.Rngs(0))(jnp.ones((9, 8))).shape
      (9, 8)
    """

    # Whether a matrix of all pairs of points is formed.
    forms_pairs = False

    @abc.abstractmethod
    def attend(
        self,
        query: jax.Array,
        key: jax.Array,
        value: jax.Array,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps queries, keys and values `(n, d + p)` of one head to `(n, d + p)`."""

    def evaluate(
        self,
        x: jax.Array,
        mesh_points: jax.Array | None,
        weights: jax.Array | None,
    ) -> jax.Array:
        """Maps the checked arguments of a call to features `(n, c)`."""
        heads = self.head_inputs(x, mesh_points=mesh_points, quadrature_weights=weights)

        def attend(query: jax.Array, key: jax.Array, value: jax.Array):
            return self.attend(query, key, value, weights)

        if not self.forms_pairs:
            return self.out(merge_heads(jax.vmap(attend)(*heads)))
        entries = self.num_heads * x.shape[0] ** 2
        return self.out(merge_heads(map_heads(attend, *heads, entries=entries)))


def coordinates(
    x: jax.Array, mesh_points: jax.Array | None, point_dim: int
) -> jax.Array | None:
    """Returns the checked coordinates of a layer with `point_dim`, else `None`.

    Raises:
      TypeError: if they are not floating point.
      ValueError: if their shape does not fit the layer or the points.
    """
    if point_dim == 0:
        return None
    where = f"features {x.shape} of a layer built with {point_dim=}"
    expected = (x.shape[0], point_dim)
    points = _checks.shaped("mesh_points", mesh_points, expected, where)
    _checks.floating(mesh_points=points)
    return points
