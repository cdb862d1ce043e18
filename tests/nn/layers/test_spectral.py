"""The layer of spectral convolutions: its frequencies and its start."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import nn
from opjax.nn.layers import initializers


def make(modes, grid_shape):
    return nn.layers.SpectralConvolution(
        3, 4, grid_shape=grid_shape, modes=modes, rngs=nnx.Rngs(0)
    )


@pytest.mark.parametrize(
    ("grid_shape", "modes", "shape"),
    [
        ((6, 5), 2, (4, 2)),
        ((6, 5), (3, 2), (3, 2)),
        ((6, 5), (6, 3), (6, 3)),
        # What the grid resolves of more: on odd axes as many of either sign.
        ((6, 5), 9, (6, 3)),
        ((5, 6), 3, (5, 3)),
        ((7, 7, 4), 3, (6, 6, 3)),
        ((5,), 4, (3,)),
    ],
)
def test_one_number_of_modes_counts_both_signs_of_leading_axes(
    grid_shape, modes, shape
):
    layer = jax.eval_shape(lambda: make(modes, grid_shape))
    assert layer.kernel.shape == (*shape, 3, 4, 2)


@pytest.mark.parametrize("grid_shape", [(5, 5), (5, 6), (7, 3)])
def test_on_an_odd_grid_more_modes_than_points_are_all_of_them(rng, grid_shape):
    """Frequencies keep their weights: the same function on a grid that resolves all."""
    clipped = make(9, grid_shape)
    wide = np.zeros((18, 9, 3, 4, 2))
    m, k = clipped.kernel.shape[:2]
    wide[9 - m // 2 : 9 + m - m // 2, :k] = clipped.kernel[...]
    values = rng.normal(size=(math.prod(grid_shape), 3))
    expected = opjax.spectral_convolution(values, wide, grid_shape=grid_shape)
    layer = jax.tree.map(lambda p: jnp.asarray(p, float), clipped)
    assert_allclose(jax.jit(layer)(values), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("modes", "message"),
    [
        ((7, 3), r"modes=\(7, 3\).*grid_shape=\(6, 5\), at most \(6, 3\)"),
        ((3, 0), r"modes=\(3, 0\) must have one positive number"),
        (0, r"modes=\(0, 0\) must have one positive number"),
        ((3,), r"modes=\(3,\).*per axis of grid_shape=\(6, 5\)"),
    ],
)
def test_modes_that_do_not_exist_are_refused(modes, message):
    with pytest.raises(ValueError, match=message):
        make(modes, (6, 5))


@pytest.mark.nightly
def test_the_layer_calls_the_pure_function_on_its_grid_or_another(rng):
    layer = nn.layers.SpectralConvolution(
        2, 3, grid_shape=(4, 5), modes=2, rngs=nnx.Rngs(0)
    )
    for grid_shape, given in (((4, 5), None), ((3, 3), (3, 3))):
        x = jnp.asarray(rng.normal(size=(math.prod(grid_shape), 2)), jnp.float32)
        expected = opjax.spectral_convolution(
            x, layer.kernel[...], grid_shape=grid_shape
        )
        assert_array_equal(layer(x, grid_shape=given), expected)


def test_initial_kernels_have_the_deviations_of_their_sources():
    shape = (24, 12, 16, 8, 2)
    expected = {
        initializers.spectral_variance: (0, (1 / 24) ** 0.5),
        initializers.spectral_uniform: (0.5 / 128, 12**-0.5 / 128),
        initializers.spectral_galerkin: (0, 1 / (128 * 12)),
        initializers.spectral_burgers: (0, (2 / (24 * 24)) ** 0.5 / 128),
    }
    for init, (mean, deviation) in expected.items():
        kernel = init(jax.random.key(0), shape, jnp.float32)
        assert kernel.shape == shape
        assert kernel.dtype == jnp.float32
        assert abs(float(jnp.mean(kernel)) - mean) < 0.02 * deviation
        assert_allclose(jnp.std(kernel), deviation, rtol=0.02)
