"""Mistakes of callers of pure functions that are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import geometry, quadrature, schwarz


def test_a_number_is_no_shape_of_a_grid():
    with pytest.raises(TypeError, match=r"grid_shape=20 is not a tuple; pass \(20,\)"):
        opjax.grid_weights(20)


def test_a_local_operator_that_loses_points_is_named():
    cover = schwarz.box_cover(20, 2, overlap=1)
    with pytest.raises(ValueError, match="local operators return .* must keep the 11"):
        schwarz.additive(jnp.ones((20, 3)), cover, lambda f: f[:3])


def test_softmax_over_no_points_is_that_over_masked_ones():
    query, none = jnp.ones((4, 3)), jnp.ones((0, 3))
    found = opjax.softmax_attention(query, none, jnp.ones((0, 2)))
    masked = opjax.softmax_attention(
        query, jnp.ones((2, 3)), jnp.ones((2, 2)), key_weights=jnp.zeros(2)
    )
    assert_array_equal(found, np.zeros((4, 2)))
    assert_array_equal(found, masked)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_frequencies_of_half_precision_are_those_of_single(rng, dtype):
    values, kernel = rng.normal(size=(16, 2)), rng.normal(size=(5, 2, 3, 2))
    single, half = (
        opjax.spectral_convolution(
            jnp.asarray(values, kind), jnp.asarray(kernel, kind), grid_shape=(16,)
        )
        for kind in (jnp.float32, dtype)
    )
    assert half.dtype == dtype
    assert_allclose(np.float32(half), single, rtol=0.05, atol=0.1)


CELLS = np.array([[0, 1, 2]])
ON_HOST = {
    "cell_weights": lambda p: quadrature.cell_weights(p, CELLS),
    "distance": lambda p: geometry.distance(p, p, CELLS[:, :2]),
    "partition_cover": lambda p: schwarz.partition_cover(
        np.zeros(3, int), overlap=0.1, mesh_points=p
    ),
    "partition_points": lambda p: schwarz.partition_points(p, num_subdomains=2),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_functions_of_the_host_say_so_where_they_are_traced(name):
    with pytest.raises(TypeError, match="points.*: this function runs on the host"):
        jax.jit(ON_HOST[name])(jnp.ones((3, 2)))
