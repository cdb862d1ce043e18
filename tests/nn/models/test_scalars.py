"""Scalars as constant features, and scalars that are read off a function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax.nn.models import ScalarHead, ScalarOperator, constant_features


@pytest.fixture(scope="module")
def head():
    return ScalarHead(3, 2, width=8, rngs=nnx.Rngs(0))


def _values(x):
    return jnp.stack([jnp.sin(x), x**2, jnp.exp(-x)], axis=1)


def test_scalars_stand_behind_the_features_of_every_point():
    features, scalars = np.ones((4, 2), np.float32), np.array([3, 5], np.float32)
    found = constant_features(jnp.asarray(features), jnp.asarray(scalars), 4)
    assert_array_equal(found, [[1, 1, 3, 5]] * 4)
    alone = constant_features(None, jnp.asarray(scalars), 4)
    assert_array_equal(alone, [[3, 5]] * 4)
    slope = jax.jit(jax.grad(lambda s: constant_features(None, s, 4).sum()))(scalars)
    assert_array_equal(slope, [4, 4])
    with pytest.raises(ValueError, match="scalars"):
        constant_features(None, np.ones((2, 2)), 4)


@pytest.mark.nightly
def test_a_head_is_a_perceptron_of_weighted_means(head):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(7, 3)).astype(np.float32)
    weights = rng.random(7).astype(np.float32)
    expected = head.of_means(jnp.asarray(weights @ values / weights.sum()))
    found = jax.jit(lambda v, w: head(v, w))(values, weights)
    assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert_allclose(
        head(values), head.of_means(jnp.asarray(values.mean(axis=0))), atol=1e-6
    )
    batch = jax.jit(jax.vmap(head))(
        jnp.stack([values, -values]), jnp.stack([weights] * 2)
    )
    assert_allclose(batch[0], expected, rtol=1e-4, atol=1e-6)
    step = 1e-2
    slope = jax.jit(jax.grad(lambda v: head(v, weights)[0]))(jnp.asarray(values))
    moved = values.copy()
    moved[2, 1] += step
    ahead = head(moved, weights)[0]
    moved[2, 1] -= 2 * step
    central = (ahead - head(moved, weights)[0]) / (2 * step)
    assert_allclose(slope[2, 1], central, rtol=2e-2, atol=1e-5)


def test_padded_points_do_not_matter(head):
    values = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    weights = np.full(5, 0.2, np.float32)
    padded = np.concatenate([values, np.full((3, 3), np.nan, np.float32)])
    zero = np.concatenate([weights, np.zeros(3, np.float32)])
    assert_allclose(head(padded, zero), head(values, weights), atol=1e-6)
    slope = jax.jit(jax.grad(lambda v: head(v, zero).sum()))(jnp.asarray(padded))
    assert np.isfinite(slope).all()


def test_scalars_converge_as_a_mesh_is_refined_wherever_its_points_crowd(head):
    def read(n, power):
        edges = np.linspace(0, 1, n + 1) ** power
        x, w = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
        return np.asarray(head(_values(x.astype(np.float32)), w.astype(np.float32)))

    limit = read(4096, 1)
    for power in (1, 3):
        off = [np.abs(read(n, power) - limit).max() for n in (8, 32, 128)]
        assert off[0] > 4 * off[1]
        assert off[1] > 4 * off[2]
        assert off[2] < 1e-4


def test_a_model_of_any_kind_gets_a_head(head):
    def model(points, features=None, *, quadrature_weights=None):
        return jnp.concatenate([points, _values(points[:, 0])], axis=1)

    both = ScalarOperator(model, head, 1)
    points = np.linspace(0, 1, 6, dtype=jnp.float32)[:, None]
    field, scalars = both.both(points, quadrature_weights=np.ones(6, jnp.float32))
    assert_array_equal(field, points)
    assert_array_equal(both(points), points)
    assert_allclose(scalars, head(_values(points[:, 0])), atol=1e-6)
