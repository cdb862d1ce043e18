"""Normalisation and convolution on grids, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import oracles


def enlarged(module, factor=5.0):
    return jax.tree.map(lambda p: p.astype(float) * factor + 0.1, module)


def normalized(x, scale, bias):
    rows = [(row - row.mean()) / np.sqrt(row.var() + 1e-5) for row in x]
    return np.stack(rows) * scale + bias


def test_layer_norm_equals_its_formula_in_value_and_gradient(rng):
    def layer(x, scale, bias):
        module = nn.layers.LayerNorm(4)
        module.scale, module.bias = nnx.Param(scale), nnx.Param(bias)
        return module(x)

    args = rng.normal(size=(5, 4)), rng.normal(size=4), rng.normal(size=4)
    oracles.check(layer, normalized, args)


def test_layer_norm_adds_its_epsilon_to_the_variance(rng):
    x = rng.normal(size=(5, 4))
    expected = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(
        x.var(axis=1, keepdims=True) + 0.5
    )
    layer = jax.tree.map(lambda p: p.astype(float), nn.layers.LayerNorm(4, epsilon=0.5))
    assert_allclose(layer(x), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="epsilon=0 must be positive"):
        nn.layers.LayerNorm(4, epsilon=0)


def test_layer_norm_does_not_cancel_in_single_precision():
    x = 1e4 + np.arange(8.0, dtype=jnp.float32)[None, :]
    expected = normalized(np.asarray(x, np.float64), 1, 0)
    assert_allclose(nn.layers.LayerNorm(8)(x), expected, rtol=1e-4)


@pytest.mark.parametrize("grid_shape", [(7,), (3, 4), (2, 3, 2)])
def test_grid_convolution_sums_over_neighbours(rng, grid_shape):
    layer = enlarged(
        nn.layers.GridConvolution(2, 3, grid_shape=grid_shape, rngs=nnx.Rngs(0))
    )
    kernel, bias = np.asarray(layer.kernel[...]), np.asarray(layer.bias[...])
    x = rng.normal(size=(int(np.prod(grid_shape)), 2))
    field = x.reshape(*grid_shape, 2)
    expected = np.zeros((*grid_shape, 3)) + bias
    for node in np.ndindex(*grid_shape):
        for offset in np.ndindex(*kernel.shape[:-2]):
            neighbour = tuple(np.add(node, offset) - 1)
            if all(0 <= i < n for i, n in zip(neighbour, grid_shape, strict=True)):
                expected[node] += field[neighbour] @ kernel[offset]
    assert_allclose(layer(jnp.asarray(x)), expected.reshape(-1, 3), rtol=1e-9)


def test_rms_norm_equals_its_formula_in_value_and_gradient(rng):
    def layer(x, scale):
        module = nn.layers.RMSNorm(4, epsilon=0.3)
        module.scale = nnx.Param(scale)
        return module(x)

    def formula(x, scale):
        rows = [row / np.sqrt(np.mean(row**2) + 0.3) for row in x]
        return np.stack(rows) * scale

    args = rng.normal(size=(5, 4)), rng.normal(size=4)
    oracles.check(layer, formula, args)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_rms_norm_adds_the_machine_epsilon_of_the_features(dtype):
    layer = jax.tree.map(lambda p: p.astype(dtype), nn.layers.RMSNorm(4))
    epsilon = float(jnp.finfo(dtype).eps)
    x = np.full((1, 4), epsilon**0.5, dtype)
    assert_allclose(layer(x), 2**-0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="epsilon=0 must be positive"):
        nn.layers.RMSNorm(4, epsilon=0)
