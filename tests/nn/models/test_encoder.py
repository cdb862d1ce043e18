"""Blocks of attention and a perceptron, against their parts."""

from functools import partial

import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests.nn.attention.layers import enlarged, numpy

C = 6


@pytest.fixture
def x(rng):
    return rng.normal(size=(9, C))


@pytest.fixture
def points(rng):
    return rng.uniform(size=(9, 2))


GALERKIN = partial(nn.GalerkinAttention, num_heads=2, point_dim=2)


@pytest.mark.parametrize("outer_norm", [False, True])
def test_an_encoder_layer_adds_attention_and_then_a_perceptron(x, points, outer_norm):
    layer = nn.models.EncoderLayer(
        C,
        hidden_features=5,
        attention=GALERKIN,
        outer_norm=outer_norm,
        epsilon=1e-3,
        rngs=nnx.Rngs(0),
    )
    layer = enlarged(layer)
    expected = layer(x, nn.models.Points(points))
    z = np.asarray(x + layer.attention(x, mesh_points=points))
    layer = numpy(layer)

    def outer(norm, z):
        if not outer_norm:
            return z
        rows = [(r - r.mean()) / np.sqrt(r.var() + 1e-3) for r in z]
        return np.stack(rows) * norm.scale[...] + norm.bias[...]

    z = outer(layer.attention_norm, z)
    hidden = np.maximum(z @ layer.hidden.kernel[...] + layer.hidden.bias[...], 0)
    z = z + hidden @ layer.out.kernel[...] + layer.out.bias[...]
    z = outer(layer.mlp_norm, z)
    assert_allclose(expected, z, rtol=1e-10)


def test_an_encoder_layer_has_hidden_features():
    with pytest.raises(ValueError, match="hidden_features=0 must be positive"):
        nn.models.EncoderLayer(
            C, hidden_features=0, attention=GALERKIN, rngs=nnx.Rngs(0)
        )


def test_a_block_adds_attention_and_then_a_perceptron(x):
    attention = partial(nn.FunctionalAttention, num_heads=2, num_basis=3)
    block = nn.models.Block(C, mlp_ratio=2, attention=attention, rngs=nnx.Rngs(0))
    block = enlarged(block)
    attended = block.attention(block.attention_norm(x))
    middle = x + attended
    expected = middle + block.mlp(block.mlp_norm(middle))
    assert_allclose(block(x), expected, rtol=1e-12)
    assert_array_equal(block.add(x, attended), block(x))
    assert block.mlp.hidden[0].kernel.shape == (C, 2 * C)
