"""Pointwise and convolutional layers with the initialisations of the papers."""

import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.convolution import grid_convolution

Initializer = Callable[..., jax.Array]

# The transformer trunk of the reference code starts from N(0, 0.02^2), zero biases.
trunk_init = jax.nn.initializers.normal(0.02)

ACTIVATIONS = {"relu": jax.nn.relu, "silu": jax.nn.silu}


def fan_in_uniform(fan_in: int) -> Initializer:
    """Returns the initialiser U(-b, b), `b = fan_in^{-1/2}`: the default of PyTorch."""
    bound = fan_in**-0.5

    def init(key: jax.Array, shape: Sequence[int], dtype=jnp.float32) -> jax.Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


def Linear(  # noqa: N802 - reads as the class it configures
    in_features: int,
    out_features: int,
    *,
    use_bias: bool = True,
    kernel_init: Initializer = trunk_init,
    bias_init: Initializer = jax.nn.initializers.zeros,
    rngs: nnx.Rngs,
) -> nnx.Linear:
    """Returns an `nnx.Linear` with the trunk's initialisation."""
    return nnx.Linear(
        in_features,
        out_features,
        use_bias=use_bias,
        kernel_init=kernel_init,
        bias_init=bias_init,
        rngs=rngs,
    )


def FanInLinear(  # noqa: N802 - reads as the class it configures
    in_features: int, out_features: int, *, use_bias: bool = True, rngs: nnx.Rngs
) -> nnx.Linear:
    """Returns an `nnx.Linear` with weights and biases `fan_in_uniform(in_features)`."""
    init = fan_in_uniform(in_features)
    return Linear(
        in_features,
        out_features,
        use_bias=use_bias,
        kernel_init=init,
        bias_init=init,
        rngs=rngs,
    )


class GridConvolution(nnx.Module):
    """A 3 x ... x 3 convolution on a uniform grid, zero beyond the boundary.

    Args:
      in_features: channels in.
      out_features: channels out.
      grid_shape: points per axis.
      use_bias: whether there is a bias.
      rngs: source of the initial parameters, U(-b, b) with `b = (3^p c)^{-1/2}`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        grid_shape: Sequence[int],
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        self.grid_shape = tuple(grid_shape)
        stencil = (3,) * len(self.grid_shape)
        init = fan_in_uniform(math.prod(stencil) * in_features)
        shape = (*stencil, in_features, out_features)
        self.kernel = nnx.Param(init(rngs.params(), shape))
        self.bias = (
            nnx.Param(init(rngs.params(), (out_features,))) if use_bias else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps values `(n, in_features)` on the grid to `(n, out_features)`."""
        y = grid_convolution(x, self.kernel[...], grid_shape=self.grid_shape)
        return y if self.bias is None else y + self.bias[...][None, :]


class LayerNorm(nnx.Module):
    r"""Normalises features of every point, `s (x - mean) / sqrt(var + epsilon) + b`.

    Our own because `nnx.LayerNorm` promotes dtypes implicitly and subtracts squares to
    get the variance, which cancels in float32.

    Args:
      features: channels.
      epsilon: offset of the variance, squared units of the features.

    Raises:
      ValueError: if the epsilon is not positive.
    """

    def __init__(self, features: int, *, epsilon: float = 1e-5):
        _checks.positive(epsilon=epsilon)
        self.epsilon = epsilon
        self.scale = nnx.Param(jnp.ones(features, jnp.float32))
        self.bias = nnx.Param(jnp.zeros(features, jnp.float32))

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps features `(n, c)` to `(n, c)`."""
        centred = x - jnp.mean(x, axis=1, keepdims=True)
        variance = jnp.mean(centred**2, axis=1, keepdims=True)
        normalized = centred * jax.lax.rsqrt(variance + self.epsilon)
        return normalized * self.scale[...][None, :] + self.bias[...][None, :]


class MLP(nnx.Module):
    """A perceptron of one hidden layer, `W_2 gelu(W_1 x + b_1) + b_2`, exact GELU.

    Args:
      in_features: channels in.
      hidden_features: width of the hidden layer.
      out_features: channels out.
      residual: whether a second hidden layer adds to the first,
        `y + gelu(W y + b)` for `y = gelu(W_1 x + b_1)`.
      rngs: source of the initial parameters, N(0, 0.02^2) and zero biases.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int,
        *,
        residual: bool = False,
        rngs: nnx.Rngs,
    ):
        self.hidden = Linear(in_features, hidden_features, rngs=rngs)
        self.residual = (
            Linear(hidden_features, hidden_features, rngs=rngs) if residual else None
        )
        self.out = Linear(hidden_features, out_features, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps features `(n, in_features)` to `(n, out_features)`."""
        y = jax.nn.gelu(self.hidden(x), approximate=False)
        if self.residual is not None:
            y = y + jax.nn.gelu(self.residual(y), approximate=False)
        return self.out(y)
