r"""Perceptrons of one coordinate, whose second map needs no product at the points.

    y(x) = relu(x a + b) W

is piecewise linear in the coordinate x, with a kink at -b_j / a_j for each of the h
hidden channels. Its slopes and intercepts between kinks are cumulative sums over the
channels in the order of the kinks, so n points take O((n + h) c) operations, where the
product takes O(n h c).
"""

import functools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from opjax.nn.layers import MLP, Initializer


class LinePerceptron(MLP):
    """A perceptron of one coordinate, with ReLU and at least two hidden layers.

    It has the parameters of an `MLP` and its values up to rounding.

    Args:
      hidden_features: widths of the hidden layers.
      out_features: channels out.
      kernel_init: initialiser of the kernels.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if there are fewer hidden layers, or points have more coordinates.
    """

    def __init__(
        self,
        hidden_features: Sequence[int],
        out_features: int,
        *,
        kernel_init: Initializer,
        rngs: nnx.Rngs,
    ):
        if len(hidden_features) < 2:
            raise ValueError(f"{hidden_features=} must be at least two layers.")
        super().__init__(
            1,
            hidden_features,
            out_features,
            activation="relu",
            kernel_init=kernel_init,
            rngs=rngs,
        )

    def last_hidden(
        self, x: jax.Array, *, linear: Callable[..., jax.Array] = lambda f, x: f(x)
    ) -> jax.Array:
        """Returns what the last linear map acts on, `(n, c)`, of points `(n, 1)`.

        `linear` applies the maps after the second one; the first two are one sum.
        """
        if x.ndim != 2 or x.shape[1] != 1:
            raise ValueError(f"points {x.shape} must have one coordinate, (n, 1).")
        first, second, *others = self.hidden
        assert first.bias is not None
        assert second.bias is not None
        parameters = first.kernel[...][0], first.bias[...], second.kernel[...]
        y = relu_map(x[:, 0], *parameters) + second.bias[...][None]
        for layer in others:
            y = linear(layer, jax.nn.relu(y))
        return jax.nn.relu(y)


def relu_map(
    x: Float[Array, " n"],
    weights: Float[Array, " h"],
    biases: Float[Array, " h"],
    kernel: Float[Array, "h c"],
) -> Float[Array, "n c"]:
    r"""Returns `relu(x weights + biases) kernel` from cumulative sums over channels.

        y(x) = x s(x) + t(x),   [s, t](x) = sum over active j of [a_j, b_j] W_j.

    Args:
      x: coordinate of the points, shape `(n,)`.
      weights: of the hidden channels, shape `(h,)`.
      biases: of the hidden channels, shape `(h,)`.
      kernel: the map that follows, shape `(h, c)`.

    Returns:
      The mapped channels, shape `(n, c)`.
    """
    constant = weights == 0
    kinks = jnp.where(constant, jnp.inf, -biases / jnp.where(constant, 1, weights))
    order = jnp.argsort(kinks)
    # Far to the left, channels of negative weight are active. At its kink a channel of
    # positive weight joins them, and one of negative weight leaves.
    active = jnp.where(constant, biases > 0, weights < 0)
    lines = jnp.stack([weights, biases], axis=1)
    first = jnp.where(active[:, None], lines, 0).T @ kernel
    changes = jnp.sign(weights)[:, None] * lines
    mapped = changes[:, :, None] * kernel[:, None, :]
    sums = first[None] + _sums_before(mapped[order])
    passed = sums[jnp.searchsorted(kinks[order], x)]
    return x[:, None] * passed[:, 0] + passed[:, 1]


def _sums_before(x: Float[Array, "h ..."]) -> Float[Array, "s ..."]:
    """Sums of the first 0, 1, ..., h rows: in blocks of rows, then over the blocks.

    The products of triangular matrices take a third of the time of `jnp.cumsum`.
    """
    rows = x.shape[0] + 1
    size = math.isqrt(rows - 1) + 1
    padded = jnp.pad(x.reshape(rows - 1, -1), ((1, size**2 - rows), (0, 0)))
    blocks = padded.reshape(size, size, -1)
    ones = jnp.ones((size, size), x.dtype)
    product = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)
    inside = jax.vmap(product, (None, 0))(jnp.tril(ones), blocks)
    before = product(jnp.tril(ones, -1), inside[:, -1])
    return (inside + before[:, None]).reshape(size**2, *x.shape[1:])
