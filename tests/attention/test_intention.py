"""Intention with a ridge in units of its keys, and for any number of points."""

import jax
import numpy as np
import pytest
from jax import export
from numpy.testing import assert_allclose

import opjax

RELATIVE = [opjax.Additive(0.1, relative=True), opjax.Convex(0.1, relative=True)]


@pytest.fixture
def points(rng):
    return [rng.normal(size=shape) for shape in ((4, 3), (10, 3), (10, 2))]


@pytest.mark.parametrize("ridge", RELATIVE)
@pytest.mark.parametrize("count", [2, 10])  # fewer points than features, and more
def test_a_relative_ridge_is_in_units_of_the_gram_matrix_of_features(
    points, ridge, count, rng
):
    query, key, value = points[0], points[1][:count], points[2][:count]
    weights = rng.uniform(0.5, 1.5, count)
    gram = key.T @ (weights[:, None] * key)
    unit = np.trace(gram) / 3 * np.eye(3)
    share = 0.9 if isinstance(ridge, opjax.Convex) else 1
    products = key.T @ (weights[:, None] * value)
    expected = query @ np.linalg.solve(share * gram + 0.1 * unit, products)
    actual = opjax.intention(query, key, value, ridge=ridge, key_weights=weights)
    assert_allclose(actual, expected, rtol=1e-9)
    key, value = (
        np.concatenate([a, np.full((90, a.shape[1]), 7)]) for a in (key, value)
    )
    masked = np.concatenate([weights, np.zeros(90)])
    actual = opjax.intention(query, key, value, ridge=ridge, key_weights=masked)
    assert_allclose(actual, expected, rtol=1e-9)


def test_it_is_exported_for_any_number_of_points(points):
    def attend(key, value):
        return opjax.intention(points[0], key, value, ridge=0.1)

    (n,) = export.symbolic_shape("n")
    shapes = [jax.ShapeDtypeStruct((n, a.shape[1]), a.dtype) for a in points[1:]]
    call = export.export(jax.jit(attend))(*shapes).call
    for count in (2, 10):
        arrays = [a[:count] for a in points[1:]]
        assert_allclose(call(*arrays), attend(*arrays), rtol=1e-9)
