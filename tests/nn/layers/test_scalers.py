"""Convolution blocks and scalers between grids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import interpolate_grid, nn
from tests.nn.parameters import enlarged


def silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_a_convolution_block_activates_after_the_sum(rng, residual, double):
    block = nn.layers.ConvolutionBlock(
        3, 4, grid_shape=(5, 4), residual=residual, double=double, rngs=nnx.Rngs(0)
    )
    block = enlarged(block)
    x = rng.normal(size=(20, 3))
    y = block.convolution(x)
    if double:
        y = block.second(jnp.asarray(silu(np.asarray(y))))
    if residual:
        y = y + block.shortcut(x)
    assert_allclose(block(x), silu(np.asarray(y)), rtol=1e-10)
    assert block.convolution.bias is None


def test_a_residual_of_equal_channels_is_the_identity(rng):
    block = nn.layers.ConvolutionBlock(
        3, 3, grid_shape=(4,), activation="relu", residual=True, rngs=nnx.Rngs(0)
    )
    assert block.shortcut is None
    x = rng.normal(size=(4, 3))
    block = enlarged(block)
    assert_allclose(block(x), relu(block.convolution(x) + x), rtol=1e-12)


def test_a_convolution_without_bias_is_linear(rng):
    layer = nn.layers.GridConvolution(
        2, 3, grid_shape=(4, 4), use_bias=False, rngs=nnx.Rngs(0)
    )
    x = jnp.asarray(rng.normal(size=(16, 2)), jnp.float32)
    assert_allclose(layer(2 * x), 2 * layer(x), rtol=1e-5)
    assert len(jax.tree.leaves(layer)) == 1


@pytest.mark.parametrize(("activation", "act"), [("relu", relu), ("silu", silu)])
def test_the_down_scaler_activates_on_both_sides_of_an_interpolation(
    rng, activation, act
):
    shapes = (9, 7), (6, 5), (4, 3)
    scaler = nn.layers.DownScaler(
        2,
        8,
        grid_shape=shapes[0],
        middle_shape=shapes[1],
        new_shape=shapes[2],
        activation=activation,
        rngs=nnx.Rngs(0),
    )
    scaler = enlarged(scaler)
    x = rng.normal(size=(63, 2))

    def block(block, x):
        return jnp.asarray(act(np.asarray(block.convolution(x))))

    def move(x, level):
        old, new = shapes[level], shapes[level + 1]
        return jnp.asarray(act(interpolate_grid(x, grid_shape=old, new_shape=new)))

    first = block(scaler.first, move(block(scaler.fine, x), 0))
    second = block(scaler.second, first)
    stacked = jnp.concatenate([first, second, block(scaler.third, second)], axis=1)
    assert_allclose(scaler(x), move(stacked, 1), rtol=1e-10)
    assert [first.shape[1], second.shape[1], stacked.shape[1]] == [2, 2, 8]


def test_the_up_scaler_between_equal_grids_activates_twice(rng):
    scaler = nn.layers.UpScaler(
        3, grid_shape=(4, 5), new_shape=(4, 5), rngs=nnx.Rngs(0)
    )
    scaler = enlarged(scaler)
    x = rng.normal(size=(20, 3))
    expected = silu(silu(np.asarray(scaler.block.convolution(x))))
    assert_allclose(scaler(x), expected, rtol=1e-10)


def test_the_middle_grid_is_the_geometric_mean():
    scaler = nn.layers.UpScaler(3, grid_shape=(71,), new_shape=(141,), rngs=nnx.Rngs(0))
    assert scaler.shapes == ((71,), (100,), (141,))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"new_shape": (4,)}, "one entry per axis"),
        ({"middle_shape": (4,)}, "one entry per axis"),
        ({"new_shape": (4, 0)}, "must be positive"),
        ({"activation": "sine"}, "activation='sine' is unknown"),
    ],
)
def test_bad_scalers_are_named(options, match):
    options = {"grid_shape": (5, 5), "new_shape": (3, 3)} | options
    with pytest.raises(ValueError, match=match):
        nn.layers.UpScaler(3, rngs=nnx.Rngs(0), **options)
    with pytest.raises(ValueError, match=match):
        nn.layers.DownScaler(1, 3, rngs=nnx.Rngs(0), **options)


def test_the_down_scaler_needs_three_channels():
    with pytest.raises(ValueError, match="out_features=2 must be at least 3"):
        nn.layers.DownScaler(1, 2, grid_shape=(5,), new_shape=(3,), rngs=nnx.Rngs(0))
