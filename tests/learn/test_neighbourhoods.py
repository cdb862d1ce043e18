"""What points nearby say of a point: an oracle by all distances, grids, few points."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.learn.predict import neighbourhoods


def oracle(points, count):
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    return np.argsort(apart, axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_features_are_those_of_all_distances(dim, rng):
    points, values = rng.random((40, dim)), rng.normal(size=(40, 2))
    found = neighbourhoods.local_features(points, values)
    assert found.shape == (40, neighbourhoods.local_count(2))
    parts = []
    for count in (9, 21):
        near = oracle(points, count)
        mean, deviation = values[near].mean(axis=1), values[near].std(axis=1)
        middle = np.linalg.norm(points[near].mean(axis=1) - points, axis=1)
        parts += [mean, np.log(deviation + 0.01), values - mean]
        parts += [np.abs(values - mean), 5 * middle[:, None]]
    assert_allclose(found, np.hstack(parts), rtol=1e-9, atol=1e-12)
    near = oracle(points, 9)
    assert_array_equal(
        neighbourhoods.local_largest(points, values), values[near].max(axis=1)
    )
    assert_allclose(
        neighbourhoods.local_mean(points, values), values[near].mean(axis=1)
    )


def test_permuting_points_permutes_their_features(rng):
    points, values = rng.random((30, 2)), rng.normal(size=(30, 1))
    order = rng.permutation(30)
    found = neighbourhoods.local_features(points, values)
    moved = neighbourhoods.local_features(points[order], values[order])
    assert_allclose(moved, found[order], rtol=1e-9, atol=1e-12)


def test_boundaries_of_a_grid_are_seen():
    axis = np.arange(11.0)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    found = neighbourhoods.local_features(points, points[:, :1])
    middle = found[:, neighbourhoods.local_count(1) // 2 - 1].reshape(11, 11)
    assert_allclose(middle[1:-1, 1:-1], 0, atol=1e-12)
    assert (middle[0] > 1).all()


def test_cases_of_few_points_have_fewer_neighbours(rng):
    for count in (1, 2, 5):
        points, values = rng.random((count, 2)), rng.normal(size=(count, 1))
        found = neighbourhoods.local_features(points, values)
        assert found.shape == (count, neighbourhoods.local_count(1))
        assert np.isfinite(found).all()
        largest = neighbourhoods.local_largest(points, values)
        assert_array_equal(largest, np.full((count, 1), values.max()))
