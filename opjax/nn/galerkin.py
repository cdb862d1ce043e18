"""Attention without a softmax, normalised per head, and the encoder layer around it."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks
from opjax.nn.attention import FunctionalAttention
from opjax.nn.heads import head_width, map_heads, merge_heads, split_heads
from opjax.nn.layers import FanInLinear, Initializer, LayerNorm, Linear
from opjax.nn.layers.initializers import diagonal_xavier

NORMALIZATIONS = ("layer", "instance")


def _linear_attention(query, key, value, *, key_weights=None):
    """Returns `opjax.linear_attention` over the number of points that count."""
    averages = opjax.linear_attention(query, key, value, key_weights=key_weights)
    if key_weights is None:
        return averages / key.shape[0]
    count = jnp.maximum(jnp.sum(key_weights != 0), 1)
    return averages / count.astype(averages.dtype)


# Name: function of one head, whether it forms a matrix of all pairs of points, and the
# partner of the keys in the normalisation.
ATTENTIONS = {
    "galerkin": (opjax.galerkin_attention, False, "value"),
    "linear": (_linear_attention, False, "value"),
    "fourier": (opjax.fourier_attention, True, "query"),
    "softmax": (opjax.softmax_attention, True, "query"),
}


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

        def mean(x):
            if self.normalization == "layer":
                return jnp.mean(x, axis=2, keepdims=True)
            if quadrature_weights is None:
                return jnp.mean(x, axis=1, keepdims=True)
            weights = quadrature_weights.astype(x.dtype)
            # All points masked: any positive sum will do for a mean of zeros.
            total = jnp.sum(weights)
            weights = weights / jnp.where(total > 0, total, jnp.ones_like(total))
            return jnp.sum(weights[None, :, None] * x, axis=1, keepdims=True)

        centred = x - mean(x)
        normalized = centred * jax.lax.rsqrt(mean(centred**2) + self.epsilon)
        return normalized * self.scale[...][:, None] + self.bias[...][:, None]


class GalerkinAttention(nnx.Module):
    r"""Multi-head self-attention without a softmax, on points with coordinates.

    Per head of width `d`, with `~` a learned normalisation and `x` the coordinates,

        Q = [x, y W_q],    K = [x, ~(y W_k)],    V = [x, ~(y W_v)],
        z = Q (K^T V) / n                    (`"galerkin"`),

    or the other attentions of the paper: `"linear"` with a softmax of `Q` over its
    features and of `K` over the points, and, with `~` on queries in place of values,
    `"fourier"`, `(Q K^T / sqrt(d + p)) V / n`, and `"softmax"`. Merged heads of width
    `d + p` are mapped back to `c` channels.

    Args:
      features: channels `c`.
      num_heads: heads, dividing `features`.
      attention: `"galerkin"`, `"linear"`, `"fourier"` or `"softmax"`; the cost of the
        latter two is quadratic in the number of points.
      point_dim: dimension `p` of the coordinates; zero for none.
      normalization: `"layer"`, over the channels of a head at every point,
        `"instance"`, over the points of every channel, or `None`.
      epsilon: offset of the variances in the normalisation.
      kernel_init: initialiser of the `c x c` projections; `diagonal_xavier()` if left
        out.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if the heads do not divide the features, the epsilon is not positive
        or an option is unknown.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 3-6 and 17.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        attention: str = "galerkin",
        point_dim: int = 0,
        normalization: str | None = "layer",
        epsilon: float = 1e-5,
        kernel_init: Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads)
        _checks.option("attention", attention, ATTENTIONS)
        _checks.non_negative(point_dim=point_dim)
        self.num_heads, self.point_dim, self.attention = num_heads, point_dim, attention
        init = diagonal_xavier() if kernel_init is None else kernel_init
        self.query = Linear(features, features, kernel_init=init, rngs=rngs)
        self.key = Linear(features, features, kernel_init=init, rngs=rngs)
        self.value = Linear(features, features, kernel_init=init, rngs=rngs)

        def norm():
            if normalization is None:
                return None
            return HeadNorm(
                num_heads, width, normalization=normalization, epsilon=epsilon
            )

        self.key_norm, self.partner_norm = norm(), norm()
        merged = num_heads * (width + point_dim)
        self.out = FanInLinear(merged, features, rngs=rngs)

    def __call__(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> jax.Array:
        """Evaluates the layer on one sample.

        Args:
          x: features at the points, shape `(n, c)`.
          mesh_points: coordinates of the points, shape `(n, p)`; `None` if `p` is zero.
          quadrature_weights: weights of the points, shape `(n,)`, `1/n` by default;
            zero masks a point, whose features must still be finite.

        Returns:
          Features at the points, shape `(n, c)`.

        Raises:
          TypeError: if the coordinates are not floating point.
          ValueError: if the coordinates do not fit the layer or the points.
        """
        function, forms_pairs, _ = ATTENTIONS[self.attention]
        heads = self.head_inputs(
            x, mesh_points=mesh_points, quadrature_weights=quadrature_weights
        )

        def attend(query, key, value):
            return function(query, key, value, key_weights=quadrature_weights)

        if forms_pairs:
            # The matrices of pairs are computed again in the backward pass.
            entries = self.num_heads * x.shape[0] ** 2
            head = jax.checkpoint(attend, prevent_cse=False)  # see `BasisAttention`
            attended = map_heads(head, *heads, entries=entries)
        else:
            attended = jax.vmap(attend)(*heads)
        return self.out(merge_heads(attended))

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        quadrature_weights: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns queries, keys and values of every head, each `(h, n, d + p)`."""
        heads = {
            "query": split_heads(self.query(x), self.num_heads),
            "key": split_heads(self.key(x), self.num_heads),
            "value": split_heads(self.value(x), self.num_heads),
        }
        partner = ATTENTIONS[self.attention][-1]
        for name, norm in (("key", self.key_norm), (partner, self.partner_norm)):
            if norm is not None:
                heads[name] = norm(heads[name], quadrature_weights)
        query, key, value = heads.values()
        points = self._points(x, mesh_points)
        if points is None:
            return query, key, value

        def enriched(values):
            return jnp.concatenate([points, values], axis=2)

        return enriched(query), enriched(key), enriched(value)

    def _points(self, x, mesh_points):
        """Returns the coordinates of every head, `(h, n, p)`, or `None`."""
        if (mesh_points is None) != (self.point_dim == 0):
            raise ValueError(
                f"mesh_points {None if mesh_points is None else mesh_points.shape} do "
                f"not fit a layer built with point_dim={self.point_dim}."
            )
        if mesh_points is None:
            return None
        _checks.floating(mesh_points=mesh_points)
        if mesh_points.shape != (x.shape[0], self.point_dim):
            raise ValueError(
                f"mesh_points {mesh_points.shape} must have shape "
                f"{(x.shape[0], self.point_dim)} for features {x.shape} and "
                f"point_dim={self.point_dim}."
            )
        points = mesh_points.astype(x.dtype)[None]
        return jnp.broadcast_to(points, (self.num_heads, *mesh_points.shape))


class EncoderLayer(nnx.Module):
    r"""A residual layer of attention and a ReLU perceptron, without pre-normalisation.

        z <- N_1(z + Attention(z)),    z <- N_2(z + W_2 relu(W_1 z + b_1) + b_2),

    where `N_1, N_2` are the identity, so that scales propagate (Eq. 4 of the paper), or
    layer norms, which remove them (Eq. 7).

    Args:
      features: channels `c`.
      hidden_features: width of the hidden layer of the perceptron.
      outer_norm: whether to normalise after both residuals; if so, the paper's code
        has no normalisation inside attention, `normalization=None`.
      attention: `"functional"`, `FunctionalAttention`, or a name that
        `GalerkinAttention` knows.
      epsilon: offset of the variances in all normalisations.
      rngs: source of the initial parameters.
      **options: other options of the attention.

    Raises:
      ValueError: if there are no hidden features, or as `GalerkinAttention`.

    References:
      Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021, Eq. 4 and 7.
    """

    def __init__(
        self,
        features: int,
        *,
        hidden_features: int,
        outer_norm: bool = False,
        attention: str = "galerkin",
        epsilon: float = 1e-5,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        _checks.option("attention", attention, ("functional", *ATTENTIONS))
        _checks.positive(hidden_features=hidden_features)
        self.attention = (
            FunctionalAttention(features, rngs=rngs, **options)
            if attention == "functional"
            else GalerkinAttention(
                features, attention=attention, epsilon=epsilon, rngs=rngs, **options
            )
        )
        self.attention_norm = (
            LayerNorm(features, epsilon=epsilon) if outer_norm else None
        )
        self.hidden = FanInLinear(features, hidden_features, rngs=rngs)
        self.out = FanInLinear(hidden_features, features, rngs=rngs)
        self.mlp_norm = LayerNorm(features, epsilon=epsilon) if outer_norm else None

    def __call__(self, z: jax.Array, **given: Any) -> jax.Array:
        """Maps features `(n, c)`, and arguments of the attention, to `(n, c)`."""
        z = z + self.attention(z, **given)
        if self.attention_norm is not None:
            z = self.attention_norm(z)
        z = z + self.out(jax.nn.relu(self.hidden(z)))
        return z if self.mlp_norm is None else self.mlp_norm(z)
