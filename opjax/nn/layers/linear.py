"""Pointwise layers: linear maps and perceptrons."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers.initializers import Initializer, fan_in_uniform, trunk_init


def _exact_gelu(x: jax.Array) -> jax.Array:
    return jax.nn.gelu(x, approximate=False)


ACTIVATIONS = {
    "gelu": _exact_gelu,
    "gelu_tanh": jax.nn.gelu,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}


class Linear(nnx.Linear):
    """A linear map at every point: `nnx.Linear` with the initialisation of the blocks.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      use_bias: whether there is a bias.
      kernel_init: initialiser of the matrix, by default N(0, 0.02^2).
      bias_init: initialiser of the bias.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.Linear(4, 8, rngs=nnx.Rngs(0))(jnp.ones((9, 4))).shape
      (9, 8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        kernel_init: Initializer = trunk_init,
        bias_init: Initializer = jax.nn.initializers.zeros,
        rngs: nnx.Rngs,
    ):
        super().__init__(
            in_features,
            out_features,
            use_bias=use_bias,
            kernel_init=kernel_init,
            bias_init=bias_init,
            rngs=rngs,
        )

    def __call__(self, inputs: jax.Array, out_sharding: Any = None) -> jax.Array:
        """Maps channels `(..., in_features)` to `(..., out_features)`."""
        channels = self.kernel[...].shape[0]  # of the parameters that are there now
        if inputs.shape[-1:] != (channels,):
            raise ValueError(
                f"inputs {inputs.shape} must have {channels} channels along the "
                "last axis for this layer."
            )
        if out_sharding is None:  # which the lowest version of Flax does not take
            return super().__call__(inputs)
        return super().__call__(inputs, out_sharding)


class FanInLinear(Linear):
    """A linear map whose weights and biases are initialised by `fan_in_uniform`.

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      use_bias: whether there is a bias.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> layers.FanInLinear(4, 8, rngs=nnx.Rngs(0))(jnp.ones((9, 4))).shape
      (9, 8)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        use_bias: bool = True,
        rngs: nnx.Rngs,
    ):
        init = fan_in_uniform(in_features)
        super().__init__(
            in_features,
            out_features,
            use_bias=use_bias,
            kernel_init=init,
            bias_init=init,
            rngs=rngs,
        )


def is_affine(layer: object) -> bool:
    """Whether a layer is its kernel and bias and no more, unlike `nnx.LoRALinear`."""
    calls = nnx.Linear.__call__, Linear.__call__
    return isinstance(layer, nnx.Linear) and type(layer).__call__ in calls


def promoted(
    linear: nnx.Linear, x: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Returns input, kernel and bias of a layer in the dtype of its computation.

    Raises:
      TypeError: if the layer is more than its kernel and bias.
    """
    if not is_affine(linear):
        raise TypeError(f"A {type(linear).__name__} is more than its kernel and bias.")
    bias = None if linear.bias is None else linear.bias[...]
    return linear.promote_dtype((x, linear.kernel[...], bias), dtype=linear.dtype)


class MLP(nnx.Module):
    """A perceptron, `W_2 act(W_1 x + b_1) + b_2`, or one with other numbers of layers.

    Args:
      in_features: number of input channels.
      hidden_features: width of the hidden layer, or a tuple of widths, which may be
        empty.
      out_features: number of output channels.
      activation: `"gelu"` (exact), `"gelu_tanh"` (its approximation), `"relu"`,
        `"silu"` or `"tanh"`.
      residual: whether hidden layers after the first are residual, `y + act(W y + b)`.
      input_residual: whether the input is added to the first hidden layer.
      output_residual: whether the last hidden layer is added to the output.
      kernel_init: initialiser of the kernels, with zero biases; if None, kernels and
        biases are initialised from U(-b, b), `b = fan_in^{-1/2}`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a width is not positive, the activation is unknown, or a residual
        has a different width or no layer to add.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> perceptron = nn.MLP(4, (8, 8), 1, activation="silu", rngs=nnx.Rngs(0))
      >>> perceptron(jnp.ones((9, 4))).shape  # two hidden layers of width 8
      (9, 1)
    """

    def __init__(
        self,
        in_features: int,
        hidden_features: int | Sequence[int],
        out_features: int,
        *,
        activation: str = "gelu",
        residual: bool = False,
        input_residual: bool = False,
        output_residual: bool = False,
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
                f"{residual=} needs at least two hidden layers of equal width, but "
                f"{hidden_features=}."
            )
        if input_residual and (not hidden or widths[0] != widths[1]):
            raise ValueError(
                f"{input_residual=} needs a first hidden layer with the width of "
                f"the input, but {in_features=} and {hidden_features=}."
            )
        if output_residual and widths[-2] != widths[-1]:
            raise ValueError(
                f"{output_residual=} needs an output with the width of the last "
                f"hidden layer, but {hidden_features=} and {out_features=}."
            )
        self.activation, self.residual = activation, residual
        self.input_residual, self.output_residual = input_residual, output_residual

        def linear(features: int, width: int) -> nnx.Linear:
            if kernel_init is None:
                return FanInLinear(features, width, rngs=rngs)
            return Linear(features, width, kernel_init=kernel_init, rngs=rngs)

        *layers, self.out = (linear(*pair) for pair in itertools.pairwise(widths))
        self.hidden = nnx.List(layers)

    def __call__(
        self, x: jax.Array, *, linear: Callable[..., jax.Array] = lambda f, x: f(x)
    ) -> jax.Array:
        """Maps features `(n, in_features)` to `(n, out_features)`.

        `linear(layer, x)` applies one of the maps, where features are stored otherwise.
        """
        x = self.last_hidden(x, linear=linear)
        y = linear(self.out, x)
        return x + y if self.output_residual else y

    def last_map(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns `y`, `A` and `b` of the output `y A + b`; see `last_hidden`."""
        y, kernel, bias = promoted(self.out, self.last_hidden(x))
        assert bias is not None
        if self.output_residual:
            kernel = kernel + jnp.eye(kernel.shape[0], dtype=kernel.dtype)
        return y, kernel, bias

    def last_hidden(
        self, x: jax.Array, *, linear: Callable[..., jax.Array] = lambda f, x: f(x)
    ) -> jax.Array:
        """Returns the input of the last linear map, `(n, c)`."""
        activation = ACTIVATIONS[self.activation]
        for index, layer in enumerate(self.hidden):
            y = activation(linear(layer, x))
            adds = self.residual if index else self.input_residual
            x = x + y if adds else y
        return x


class ResidualMLP(MLP):
    """A perceptron with a residual wherever the widths agree.

        y_0 = act(A x) [+ x],    y_l = y_{l-1} + act(W_l y_{l-1}),    B y_L [+ y_L].

    Args:
      in_features: number of input channels.
      out_features: number of output channels.
      hidden_features: width of the hidden layers; `out_features` by default.
      num_layers: number `L` of hidden layers between the first and the last map.
      activation: see `MLP`.
      input_residual: whether `x` is added, if its width is that of the hidden layers.
      output_residual: whether `y_L` is added, if its width is that of the output.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a width is not positive, the number of layers is negative or the
        activation is unknown.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> perceptron = layers.ResidualMLP(8, 8, num_layers=2, rngs=nnx.Rngs(0))
      >>> perceptron(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Puri et al., "FLARE: fast low-rank attention routing engine", 2025
      (arXiv:2508.12594).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        hidden_features: int | None = None,
        num_layers: int = 3,
        activation: str = "gelu_tanh",
        input_residual: bool = True,
        output_residual: bool = True,
        rngs: nnx.Rngs,
    ):
        _checks.non_negative(num_layers=num_layers)
        width = out_features if hidden_features is None else hidden_features
        super().__init__(
            in_features,
            (width,) * (num_layers + 1),
            out_features,
            activation=activation,
            residual=num_layers > 0,
            input_residual=input_residual and in_features == width,
            output_residual=output_residual and out_features == width,
            rngs=rngs,
        )
