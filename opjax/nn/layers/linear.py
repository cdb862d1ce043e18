"""Pointwise layers: linear maps and perceptrons."""

import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers.initializers import Initializer, fan_in_uniform, trunk_init


def _exact_gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS = {
    "gelu": _exact_gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


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


class MLP(nnx.Module):
    """A perceptron, `W_2 act(W_1 x + b_1) + b_2`, or one of more hidden layers.

    Args:
      in_features: channels in.
      hidden_features: width of the hidden layer, or of several.
      out_features: channels out.
      activation: `"gelu"`, the exact one, `"relu"`, `"silu"` or `"tanh"`.
      residual: whether a hidden layer after the first adds to it,
        `y + act(W y + b)`.
      kernel_init: initialiser of the kernels, with zero biases; both
        U(-b, b), `b = fan_in^{-1/2}`, if None.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a width is not positive, the activation is unknown, or there is no
        second hidden layer, or one of another width, to be added.
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int | Sequence[int],
        out_features: int,
        *,
        activation: str = "gelu",
        residual: bool = False,
        kernel_init: Initializer | None = trunk_init,
        rngs: nnx.Rngs,
    ):
        hidden = hidden_features
        hidden = (hidden,) if isinstance(hidden, int) else tuple(hidden)
        widths = (in_features, *hidden, out_features)
        _checks.positive(widths=widths)
        _checks.option("activation", activation, ACTIVATIONS)
        if residual and (len(hidden) < 2 or len(set(hidden)) > 1):
            raise ValueError(
                f"{residual=} needs at least two hidden layers, of equal width; got "
                f"{hidden_features=}."
            )
        self.activation, self.residual = activation, residual

        def linear(features: int, width: int) -> nnx.Linear:
            if kernel_init is None:
                return FanInLinear(features, width, rngs=rngs)
            return Linear(features, width, kernel_init=kernel_init, rngs=rngs)

        *layers, self.out = (linear(*pair) for pair in itertools.pairwise(widths))
        self.hidden = nnx.List(layers)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps features `(n, in_features)` to `(n, out_features)`."""
        activation = ACTIVATIONS[self.activation]
        for index, layer in enumerate(self.hidden):
            y = activation(layer(x))
            x = x + y if self.residual and index else y
        return self.out(x)
