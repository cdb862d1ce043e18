"""Layers of one form whose parameters are stacked, so that they can be scanned."""

from collections.abc import Callable
from typing import TypeVar

import jax
from flax import nnx

_Layer = TypeVar("_Layer")


def stacked(build: Callable[..., _Layer], count: int, *, rngs: nnx.Rngs) -> _Layer:
    """Returns one layer with the parameters of `count` layers along axis 0.

    Args:
      build: constructor of a layer, `build(rngs=)`.
      count: number of layers, each with its own initial parameters.
      rngs: source of the initial parameters.

    Returns:
      The layer, each parameter of shape `(count, ...)`, for `jax.lax.scan` or `vmap`
      over axis 0.

    Examples:
      >>> from functools import partial
      >>> from flax import nnx
      >>> from opjax.nn.layers import stacked
      >>> layers = stacked(partial(nnx.Linear, 2, 3), 4, rngs=nnx.Rngs(0))
      >>> layers.kernel.shape
      (4, 2, 3)
    """

    def layer(key: jax.Array) -> _Layer:
        return build(rngs=nnx.Rngs(key))

    return jax.vmap(layer)(jax.random.split(rngs.params(), count))
