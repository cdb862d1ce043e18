"""Modulation of the norms in transformer blocks by scalars of a case."""

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import _checks
from opjax.nn.layers import FanInLinear, Linear
from opjax.nn.models.encoder import Block


class Modulation(nnx.Module):
    r"""Scales and shifts the norms of all blocks by functions of scalars.

        g_l <- g_l (1 + a_l(s)),    b_l <- b_l + d_l(s),    l = 1..2L,
        (a, d)(s) = W_2 silu(W_1 s + b_1) + b_2,

    for the scales `g` and the biases `b` of both norms of each of `L` blocks. `W_2` and
    `b_2` are initialised with zero, so that modulation initially has no effect.

    Args:
      scalar_dim: number of scalars.
      features: number of channels of the blocks.
      num_layers: number of blocks.
      rngs: source of the initial parameters.

    Examples:
      >>> from flax import nnx
      >>> import jax.numpy as jnp
      >>> from opjax.nn import models
      >>> modulation = models.Modulation(2, 8, 3, rngs=nnx.Rngs(0))
      >>> modulation(jnp.array([0.5, 2.0])).shape  # both norms of three blocks
      (96,)

    References:
      Perez et al., "FiLM: Visual Reasoning with a General Conditioning Layer", AAAI
      2018.
    """

    def __init__(
        self, scalar_dim: int, features: int, num_layers: int, *, rngs: nnx.Rngs
    ):
        _checks.positive(
            scalar_dim=scalar_dim, features=features, num_layers=num_layers
        )
        self.scalar_dim = scalar_dim
        self.hidden = FanInLinear(scalar_dim, features, rngs=rngs)
        zeros = jax.nn.initializers.zeros
        size = 4 * num_layers * features
        self.out = Linear(features, size, kernel_init=zeros, rngs=rngs)

    def __call__(self, scalars: jax.Array) -> jax.Array:
        """Maps scalars `(scalar_dim,)` to `a, d` of all norms, shape `(4 L c,)`."""
        _checks.rank(1, scalars=scalars)
        return self.out(jax.nn.silu(self.hidden(scalars)))

    def apply(self, blocks: Block, scalars: jax.Array) -> None:
        """Modulates the norms of stacked blocks, in place.

        Args:
          blocks: blocks whose parameters have the layers along their first axis.
          scalars: shape `(scalar_dim,)`, normalised in the same way as features.
        """
        norms = blocks.attention_norm, blocks.mlp_norm
        num_layers, features = norms[0].scale[...].shape
        parts = jnp.reshape(self(scalars), (2, 2, num_layers, features))
        for norm, (scale, bias) in zip(norms, parts, strict=True):
            norm.scale[...] = norm.scale[...] * (1 + scale)
            norm.bias[...] = norm.bias[...] + bias
