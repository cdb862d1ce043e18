"""Mixtures of perceptrons."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import nn
from tests import refused
from tests.nn.parameters import layer_of


def make(**options):
    options = {"hidden_features": 5, "num_experts": 3} | options
    return nn.layers.Experts(4, **options, rngs=nnx.Rngs(0))


def test_a_mixture_is_the_weighted_sum_of_its_experts(rng):
    layer = make()
    x, gates = (jnp.asarray(rng.normal(size=(7, c)), jnp.float32) for c in (4, 3))
    alone = [layer_of(layer.experts, e)(x) for e in range(3)]
    expected = sum(np.asarray(gates)[:, e, None] * y for e, y in enumerate(alone))
    np.testing.assert_allclose(layer(x, gates), expected, rtol=1e-4, atol=1e-7)
    assert not np.allclose(alone[0], alone[1])


def test_impossible_mixtures_are_refused():
    refused.each(
        (lambda: make(num_experts=0), "num_experts=0 must be positive"),
        (lambda: make(hidden_features=0), "must be positive"),
    )
