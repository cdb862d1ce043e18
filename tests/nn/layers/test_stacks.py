"""Layers that are stacked for a scan."""

from functools import partial

import jax
import numpy as np
from flax import nnx

from opjax.nn import layers


def test_stacked_layers_are_those_of_their_keys():
    build = partial(nnx.Linear, 2, 3)
    stack = layers.stacked(build, 4, rngs=nnx.Rngs(0))
    for i, key in enumerate(jax.random.split(nnx.Rngs(0).params(), 4)):
        one = build(rngs=nnx.Rngs(key))
        np.testing.assert_array_equal(stack.kernel[...][i], one.kernel[...])
