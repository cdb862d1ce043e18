import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples

draw = jax.jit(samples.draw_points, static_argnames="num_points")


@pytest.fixture
def sample(rng):
    """Returns eight points, the last three of them padding."""
    weights = np.array([0.2] * 5 + [0.0] * 3, np.float32)
    points = rng.normal(size=(8, 2)).astype(np.float32)
    return {
        "mesh_points": points,
        "target": points.sum(axis=1),
        "quadrature_weights": weights,
    }


def test_drawn_points_are_different_ones_with_their_own_values(sample):
    drawn = draw(sample, jax.random.key(0), num_points=4)
    points = np.asarray(drawn["mesh_points"])
    assert len(np.unique(points, axis=0)) == 4
    assert_allclose(drawn["target"], points.sum(axis=1), rtol=1e-6)
    assert float(jnp.sum(drawn["quadrature_weights"])) == pytest.approx(1)


def test_padding_is_drawn_last(sample):
    for seed in range(20):
        drawn = draw(sample, jax.random.key(seed), num_points=6)
        assert np.count_nonzero(drawn["quadrature_weights"]) == 5


def test_every_point_is_drawn_as_often(sample):
    plain = {"mesh_points": jnp.arange(8.0)[:, None]}
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = jax.jit(
        jax.vmap(lambda key: samples.draw_points(plain, key, num_points=3))
    )(keys)
    counts = np.bincount(np.asarray(drawn["mesh_points"]).astype(int).ravel())
    assert_allclose(counts / 4000, 3 / 8, atol=0.04)


def test_all_points_are_kept_if_there_are_no_more(sample):
    drawn = samples.draw_points(sample, jax.random.key(0), num_points=8)
    assert all(drawn[name] is array for name, array in sample.items())


def test_a_number_that_is_not_positive_is_refused(sample):
    with pytest.raises(ValueError, match="num_points=0 must be positive"):
        samples.draw_points(sample, jax.random.key(0), num_points=0)


def test_the_last_axis_of_a_grid_runs_first():
    expected = [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert_array_equal(samples.grid_points((2, 2)), expected)
