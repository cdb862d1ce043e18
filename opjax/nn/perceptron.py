"""A perceptron of any depth."""

import itertools
from collections.abc import Sequence

import jax
from flax import nnx

from opjax import _checks
from opjax.nn.layers import Initializer, Linear, fan_in_uniform


class Perceptron(nnx.Module):
    """Linear layers with ReLU between them.

    Args:
      widths: channels of the input and after every layer.
      kernel_init: initialiser of the kernels, with zero biases; both
        U(-b, b), `b = fan_in^{-1/2}`, if None.
      rngs: source of the initial parameters.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        kernel_init: Initializer | None = None,
        rngs: nnx.Rngs,
    ):
        _checks.positive(widths=widths)
        self.layers = nnx.List(
            _linear(i, o, kernel_init, rngs) for i, o in itertools.pairwise(widths)
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps features `(n, widths[0])` to `(n, widths[-1])`."""
        *hidden, last = self.layers
        for layer in hidden:
            x = jax.nn.relu(layer(x))
        return last(x)


def _linear(in_features, out_features, kernel_init, rngs):
    bias_init = jax.nn.initializers.zeros
    if kernel_init is None:
        kernel_init = bias_init = fan_in_uniform(in_features)
    return Linear(
        in_features,
        out_features,
        kernel_init=kernel_init,
        bias_init=bias_init,
        rngs=rngs,
    )
