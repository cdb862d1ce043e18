"""Position features, time embedding and plain layers, against NumPy."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import refused


@pytest.mark.parametrize("p", [1, 2, 3])
def test_reference_distances_are_euclidean(rng, p):
    points = rng.uniform(size=(6, p))
    grid = list(itertools.product(np.linspace(0, 1, 3), repeat=p))
    expected = [[math.dist(x, r) for r in grid] for x in points]
    actual = nn.layers.reference_distances(jnp.asarray(points), num_reference=3)
    assert_allclose(actual, expected, rtol=1e-12)


def test_reference_distances_have_a_gradient_at_a_reference_point():
    def total(x):
        return jnp.sum(nn.layers.reference_distances(x, num_reference=2))

    gradient = jax.jit(jax.grad(total))(np.zeros((1, 2)))
    # Towards (0,1), (1,0) and (1,1); the coincident point contributes nothing.
    assert_allclose(gradient, [[-1 - 0.5**0.5, -1 - 0.5**0.5]], rtol=1e-12)


@pytest.mark.parametrize("low", [0.0, 1000.0])
def test_rounded_points_have_the_gradient_of_reference_points(low, rng):
    """Points stored in float32 and differentiated in float64: central differences."""
    direction = rng.normal(size=(8, 1))
    exact = np.linspace(low, low + 1, 8)[:, None]
    points = exact.astype(np.float32).astype(float)
    box = {"lower": (low,), "upper": (low + 1,)}

    @jax.jit
    def total(x):
        distances = nn.layers.reference_distances(x, num_reference=8, **box)
        return jnp.sum(jnp.exp(-distances))

    slope = jnp.vdot(jax.grad(total)(points), direction)
    ends = [total(exact + step * direction) for step in (1e-3, -1e-3)]
    assert_allclose(slope, (ends[0] - ends[1]) / 2e-3, rtol=1e-3)


def test_a_box_moves_the_reference_points():
    actual = nn.layers.reference_distances(
        jnp.asarray([[2.0, 3.0]]), num_reference=2, lower=(2.0, 3.0), upper=(3.0, 5.0)
    )
    assert_allclose(actual, [[0, 2, 1, 5**0.5]], rtol=1e-12)


def test_one_reference_point_is_refused():
    with pytest.raises(ValueError, match="num_reference=1"):
        nn.layers.reference_distances(np.zeros((1, 2)), num_reference=1)


def test_time_embedding_equals_its_formula():
    layer = nn.layers.TimeEmbedding(6, rngs=nnx.Rngs(0))
    layer = jax.tree.map(lambda p: p.astype(float) * 20, layer)
    w = [10000 ** (-m / 3) for m in range(3)]
    waves = np.array([math.cos(0.3 * v) for v in w] + [math.sin(0.3 * v) for v in w])
    hidden = waves @ np.asarray(layer.hidden.kernel[...])
    expected = (hidden / (1 + np.exp(-hidden))) @ np.asarray(layer.out.kernel[...])
    assert_allclose(layer(jnp.asarray(0.3)), expected, rtol=1e-10)


def test_an_odd_time_embedding_is_refused():
    with pytest.raises(ValueError, match="features=5"):
        nn.layers.TimeEmbedding(5, rngs=nnx.Rngs(0))


def test_a_time_that_is_no_floating_scalar_is_refused():
    layer = nn.layers.TimeEmbedding(4, rngs=nnx.Rngs(0))
    refused.each(
        (lambda: layer(jnp.asarray(1)), "time has dtype int"),
        (lambda: layer(np.ones(2)), r"time has shape \(2,\)"),
    )
