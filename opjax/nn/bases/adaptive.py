"""The basis of Transolver++, and random noise of layers in training."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import opjax
from opjax import _checks
from opjax.nn.attention.heads import head_width, split_heads
from opjax.nn.bases.expansions import Basis, HeadInputs, refuse_functions
from opjax.nn.division import Use
from opjax.nn.layers import ACTIVATIONS, MLP, Linear


class AdaptiveBasis(Basis):
    r"""A softmax basis with a temperature for every point.

    One projection of the input gives features `f`, from which everything else is
    computed,

        phi = softmax(s(f) / tau(f)),    tau = max(gelu(t(f)) + b_h, min_temperature),

    with a linear map `s` and a perceptron `t` shared by all heads, and a number `b_h`
    per head. In training, Gumbel noise is added to the scores, see `with_noise`.

    Args:
      features: channels `c` of the input.
      num_heads: heads `h`, dividing `features` unless `head_features` is given.
      num_basis: number `k` of basis functions per head, and hidden width of `t`.
      head_features: channels `d` of a head, `c / h` by default.
      point_dim: number of coordinates that calls append to the channels.
      temperature: initial value of every `b_h`.
      min_temperature: lower limit of the temperature; below it, the gradient is zero.
      rngs: source of the initial parameters, N(0, 0.02^2) with zero biases.

    Raises:
      ValueError: if the heads do not divide the features, there is no basis function,
        or a temperature is not positive.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax import nn
      >>> basis = partial(nn.bases.AdaptiveBasis, num_basis=4)
      >>> layer = nn.BasisAttention(8, num_heads=2, basis=basis, rngs=nnx.Rngs(0))
      >>> layer(jnp.ones((9, 8))).shape
      (9, 8)

    References:
      Luo et al., "Transolver++: an accurate neural solver for PDEs on million-scale
      geometries", ICML 2025 (arXiv:2502.02414); its code has a perceptron where the
      text has a linear map.
    """

    def __init__(
        self,
        features: int,
        *,
        num_heads: int,
        num_basis: int,
        head_features: int | None = None,
        point_dim: int = 0,
        temperature: float = 0.5,
        min_temperature: float = 0.01,
        rngs: nnx.Rngs,
    ):
        width = head_width(features, num_heads, head_features)
        _checks.positive(
            num_basis=num_basis,
            temperature=temperature,
            min_temperature=min_temperature,
        )
        self.num_heads, self.num_basis = num_heads, num_basis
        self.point_dim, self.min_temperature = point_dim, min_temperature
        self.projection = Linear(features + point_dim, num_heads * width, rngs=rngs)
        self.scores = Linear(width, num_basis, rngs=rngs)
        self.temperature = MLP(width, num_basis, 1, rngs=rngs)
        self.temperature_bias = nnx.Param(jnp.full(num_heads, temperature, jnp.float32))

    def from_projected(
        self,
        projected: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Splits features `(n, h d)` into heads; `local` are the same features."""
        refuse_functions(basis_functions)
        values = split_heads(projected, self.num_heads)
        return HeadInputs(values, values, self.temperature_bias[...])

    def functions(
        self,
        local: jax.Array,
        shared: Any,
        quadrature_weights: jax.Array | None,
        *,
        uniform: jax.Array | None = None,
    ) -> jax.Array:
        """Returns the softmax of the scores, `(n, k)`, with noise from `(n, k)`."""
        temperature = ACTIVATIONS["gelu"](self.temperature(local)[:, 0]) + shared
        temperature = jnp.maximum(temperature, self.min_temperature)
        return opjax.softmax_basis(
            self.scores(local), temperature=temperature, uniform=uniform
        )

    def with_noise(self, key: jax.Array) -> "NoisyBasis":
        """Returns the basis with noise, for one training step."""
        keys = jax.random.split(key, self.temperature_bias.shape)
        return NoisyBasis(self, keys)


class NoisyBasis(Basis):
    """An `AdaptiveBasis` with Gumbel noise in its scores, drawn from a key.

    Args:
      inner: the basis without noise.
      keys: one key per head, shape `(h,)`.
    """

    def __init__(self, inner: AdaptiveBasis, keys: jax.Array):
        self.inner, self.keys = inner, nnx.Variable(keys)
        self.num_heads, self.num_basis = inner.num_heads, inner.num_basis
        self.point_dim = inner.point_dim

    def head_inputs(
        self,
        x: jax.Array,
        *,
        mesh_points: jax.Array | None = None,
        basis_functions: jax.Array | None = None,
    ) -> HeadInputs:
        """Returns the head inputs of the basis without noise, and the keys."""
        inputs = self.inner.head_inputs(
            x, mesh_points=mesh_points, basis_functions=basis_functions
        )
        return inputs._replace(shared=(inputs.shared, self.keys[...]))

    def functions(
        self, local: jax.Array, shared: Any, quadrature_weights: jax.Array | None
    ) -> jax.Array:
        """Returns the functions `(n, k)`."""
        inner, key = shared
        shape = (local.shape[0], self.num_basis)
        uniform = self.uniform(key, shape, local.dtype)
        return self.inner.functions(local, inner, quadrature_weights, uniform=uniform)

    def obstacle(self, use: Use) -> str | None:
        """Returns that chunks are not supported, because noise needs all points."""
        if use == "narrow":
            return super().obstacle(use)
        return "the noise of a training step is drawn for all points together"

    def uniform(self, key: jax.Array, shape: tuple[int, int], dtype: Any) -> jax.Array:
        """Draws uniform random numbers on [0, 1)."""
        return jax.random.uniform(key, shape, dtype)


def draws_noise(model: Any) -> bool:
    """Whether a model has layers with random noise in training.

    Examples:
      >>> from flax import nnx
      >>> from opjax import nn
      >>> layer = nn.PhysicsAttention(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> nn.bases.draws_noise(layer)
      False
    """
    return any(map(_is_noisy, jax.tree.leaves(model, is_leaf=_is_noisy)))


def with_noise(model: Any, key: jax.Array) -> Any:
    """Returns the model of one training step, with noise in its layers.

    A layer with noise has a method `with_noise(key)`, which returns the layer that
    replaces it in training. Without this call, as in evaluation, there is no noise.
    Every sample of a batch needs its own key.

    Args:
      model: any pytree of modules.
      key: PRNG key, from which every layer gets its own key.

    Returns:
      The model; the same object if it has no such layer.

    Examples:
      >>> from flax import nnx
      >>> import jax
      >>> from opjax import nn
      >>> build = nn.attention.EideticAttention
      >>> layer = build(8, num_heads=2, num_basis=4, rngs=nnx.Rngs(0))
      >>> noisy = nn.bases.with_noise(layer, jax.random.key(0))  # in training
      >>> x = jax.random.normal(jax.random.key(1), (9, 8))
      >>> bool((noisy(x) != layer(x)).any())
      True
    """
    leaves, structure = jax.tree.flatten(model, is_leaf=_is_noisy)
    noisy = [
        leaf.with_noise(jax.random.fold_in(key, index)) if _is_noisy(leaf) else leaf
        for index, leaf in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, noisy)


def _is_noisy(node: Any) -> bool:
    return isinstance(node, nnx.Module) and hasattr(node, "with_noise")
