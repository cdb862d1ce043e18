"""The orthogonal attention layer as documented: maps between two fixed grids."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jaxtyping import Float

import opjax
from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.nn.layers import Linear
from opjax.nn.layers.initializers import Initializer
from opjax.nn.models._given import refuse

Activation = Callable[[Array], Array]
_RELUS = (jax.nn.relu, jax.nn.leaky_relu, jax.nn.relu6)


class OrthogonalLayer(nnx.Module):
    r"""A layer from values on one grid to values on another, by an orthonormal basis.

        v = act(Attn(u) + W u + b),          Attn(u) = W_V Phi (c + a * c),
        c = Phi^T u,    a = softmax(tanh((W_Q u) * (W_K u) / sqrt(d_k))),

    where `Phi` are the orthonormalised columns of the learned `B`.
    `OrthogonalAttention` supports any mesh; this layer supports only its grids, and has

        2 d_k n + 2 m n + n k + m

    parameters (`m` fewer without bias) for `n` inputs, `m` outputs and `k` functions.

    Args:
      num_outputs: number `m` of output values.
      num_basis: number `k` of basis functions, at most `num_inputs`.
      key_dim: size `d_k` of queries and keys; the documented product of `a` and `c` is
        defined only for `num_basis`, the default.
      num_inputs: number `n` of input values.
      use_bias: whether there is a bias `b`.
      activation: function of the output, such as `jax.nn.silu`; none by default.
      kernel_init: initialiser of `W_Q`, `W_K`, `W_V`, `B` and `W`. By default LeCun's
        normal initialiser before `jax.nn.selu`, He's before `relu` and its variants,
        and Glorot's uniform one otherwise.
      bias_init: initialiser of the bias.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a size is not positive, there are more functions than inputs, or
        `key_dim` is not `num_basis`.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> layer = models.OrthogonalLayer(5, 4, num_inputs=9, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones(9)).shape  # from nine values to five
      (5,)

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena.
    """

    def __init__(
        self,
        num_outputs: int,
        num_basis: int,
        *,
        num_inputs: int,
        key_dim: int | None = None,
        use_bias: bool = True,
        activation: Activation | None = None,
        kernel_init: Initializer | None = None,
        bias_init: Initializer = jax.nn.initializers.zeros,
        rngs: nnx.Rngs,
    ):
        key_dim = num_basis if key_dim is None else key_dim
        _checks.positive(
            num_outputs=num_outputs, num_basis=num_basis, num_inputs=num_inputs
        )
        if key_dim != num_basis:
            raise ValueError(
                f"key_dim={key_dim} must be num_basis={num_basis}, because queries "
                "and keys multiply coefficients elementwise."
            )
        if num_basis > num_inputs:
            raise ValueError(
                f"num_basis={num_basis} orthonormal functions need at least as "
                f"many inputs, but num_inputs={num_inputs}."
            )
        init = kernel_init or _default_init(activation)

        def matrix(num: int, use_bias: bool = False) -> nnx.Linear:
            return Linear(
                *(num_inputs, num),
                use_bias=use_bias,
                kernel_init=init,
                bias_init=bias_init,
                rngs=rngs,
            )

        self.query, self.key = matrix(key_dim), matrix(key_dim)
        self.value = matrix(num_outputs)
        shape = (num_inputs, num_basis)
        self.basis = nnx.Param(init(rngs.params(), shape, jnp.float32))
        self.bypass = matrix(num_outputs, use_bias)
        self.activation = activation

    def __call__(self, u: Array) -> Array:
        """Maps values `(num_inputs,)` to `(num_outputs,)`.

        Raises:
          TypeError: if `u` is not floating point.
          ValueError: if `u` has another shape.
        """
        _checks.floating(u=u)
        _checks.shaped("u", u, self.basis.shape[:1], "this layer")
        query, key = self.query(u)[:, None], self.key(u)[:, None]
        attended = opjax.orthogonal_attention(query, key, u[:, None], self.basis[...])
        v = self.value(attended[:, 0]) + self.bypass(u)
        return v if self.activation is None else self.activation(v)


def _default_init(activation: Activation | None) -> Initializer:
    initializers = jax.nn.initializers
    if activation is jax.nn.selu:
        return initializers.lecun_normal()
    return (initializers.he_normal if activation in _RELUS else _glorot)()


_glorot = jax.nn.initializers.glorot_uniform


class OrthogonalNetwork(nnx.Module):
    """A sequence of several `OrthogonalLayer` with a dense output layer.

    It acts on all values of a sample at once, so it supports only one number of points.
    Positions are inputs only if there are no other features.

    Args:
      num_points: number `n` of points of every sample.
      in_features: channels of the input function, or of the points if there is none.
      out_features: channels of the output function.
      num_hidden: number of values between the layers.
      num_layers: number of layers before the output layer.
      num_basis: number of basis functions of each layer.
      activation: function after every layer.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a size is not positive or there are too many basis functions.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> model = models.OrthogonalNetwork(
      ...     num_points=9, in_features=1, out_features=1, num_hidden=9, num_layers=2,
      ...     num_basis=4, rngs=nnx.Rngs(0),
      ... )
      >>> model(jnp.ones((9, 2)), jnp.ones((9, 1))).shape
      (9, 1)

    References:
      Documentation of `orthogonal_attention_layer_type` of the Fortran library athena,
      second example.
    """

    def __init__(
        self,
        *,
        num_points: int,
        in_features: int,
        out_features: int,
        num_hidden: int,
        num_layers: int,
        num_basis: int,
        activation: Activation = jax.nn.silu,
        rngs: nnx.Rngs,
    ):
        _checks.positive(
            num_points=num_points,
            in_features=in_features,
            out_features=out_features,
            num_layers=num_layers,
        )
        self.shape = (num_points, in_features)
        sizes = [num_points * in_features] + [num_hidden] * (num_layers - 1)
        self.layers = nnx.List(
            OrthogonalLayer(
                num_hidden,
                num_basis,
                num_inputs=num_inputs,
                activation=activation,
                rngs=rngs,
            )
            for num_inputs in sizes
        )
        self.readout = Linear(
            num_hidden, num_points * out_features, kernel_init=_glorot(), rngs=rngs
        )

    @split_by_compiler
    def __call__(
        self,
        mesh_points: Float[Array, "n p"],
        features: Array | None = None,
        *,
        quadrature_weights: Array | None = None,
        time: Array | None = None,
    ) -> Float[Array, "n c"]:
        """Evaluates the network on one sample.

        Args:
          mesh_points: points, shape `(n, p)`; their values count only without features.
          features: values of the input function, shape `(n, in_features)`.
          quadrature_weights: none, the network has weights of its own.
          time: none.

        Returns:
          Values of the output function, shape `(n, out_features)`.

        Raises:
          ValueError: if shapes are not those of the network, or weights or a time are
            given.
        """
        refuse(
            "a network of one mesh", quadrature_weights=quadrature_weights, time=time
        )
        values = mesh_points if features is None else features
        _checks.shaped("The input", values, self.shape, "this network")
        u = jnp.ravel(values)
        for layer in self.layers:
            u = layer(u)
        return jnp.reshape(self.readout(u), (self.shape[0], -1))
