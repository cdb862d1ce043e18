"""Mixtures of perceptrons with a gate at every point."""

from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers.initializers import Initializer, trunk_init
from opjax.nn.layers.linear import MLP
from opjax.nn.layers.stacks import stacked


class Experts(nnx.Module):
    r"""A mixture of experts with given gates, `sum_e gates_e MLP_e(x)`.

    Args:
      features: number of input and output channels.
      hidden_features: width of the hidden layers.
      num_experts: number of perceptrons.
      kernel_init: see `MLP`.
      rngs: source of the initial parameters.

    Raises:
      ValueError: if a count is not positive.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import layers
      >>> build = partial(layers.Experts, hidden_features=8, num_experts=3)
      >>> experts, gates = build(8, rngs=nnx.Rngs(0)), jnp.full((9, 3), 1 / 3)
      >>> experts(jnp.ones((9, 8)), gates).shape
      (9, 8)

    References:
      Hao et al., "GNOT: a general neural operator transformer for operator learning",
      ICML 2023 (arXiv:2302.14376).
    """

    def __init__(
        self,
        features: int,
        *,
        hidden_features: int,
        num_experts: int,
        kernel_init: Initializer | None = trunk_init,
        rngs: nnx.Rngs,
    ):
        _checks.positive(num_experts=num_experts)
        expert = partial(
            MLP, features, hidden_features, features, kernel_init=kernel_init
        )
        self.experts = stacked(expert, num_experts, rngs=rngs)

    def __call__(self, x: jax.Array, gates: jax.Array) -> jax.Array:
        """Maps features `(n, c)` and weights of the experts `(n, e)` to `(n, c)`."""
        values = jax.vmap(lambda expert: expert(x))(self.experts)
        return jnp.einsum("ne,enc->nc", gates.astype(values.dtype), values)
