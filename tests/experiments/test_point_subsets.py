import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import point_subsets


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
    drawn = point_subsets.draw(sample, jax.random.key(0), 4)
    points = np.asarray(drawn["mesh_points"])
    assert len(np.unique(points, axis=0)) == 4
    np.testing.assert_allclose(drawn["target"], points.sum(axis=1), rtol=1e-6)
    assert float(jnp.sum(drawn["quadrature_weights"])) == pytest.approx(1)


def test_padding_is_drawn_last(sample):
    for seed in range(20):
        drawn = point_subsets.draw(sample, jax.random.key(seed), 6)
        assert np.count_nonzero(drawn["quadrature_weights"]) == 5


def test_every_point_is_drawn_as_often(sample):
    plain = {"mesh_points": jnp.arange(8.0)[:, None]}
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = jax.vmap(lambda key: point_subsets.draw(plain, key, 3))(keys)
    counts = np.bincount(np.asarray(drawn["mesh_points"]).astype(int).ravel())
    np.testing.assert_allclose(counts / 4000, 3 / 8, atol=0.04)


def test_all_points_are_kept_if_there_are_no_more(sample):
    assert point_subsets.draw(sample, jax.random.key(0), 8) is sample


def test_means_leave_padding_out():
    values = jnp.asarray([1.0, 2.0, 9.0])
    assert float(point_subsets.mean(values, None)) == 4
    assert float(point_subsets.mean(values, jnp.asarray([0.5, 1.5, 0.0]))) == 1.75
    assert float(point_subsets.mean(values, jnp.zeros(3))) == 0
