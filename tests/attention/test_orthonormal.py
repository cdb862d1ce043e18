"""The kernel of orthonormalised features against sums over pairs of points."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from tests import oracles, refused
from tests.nn.parameters import all_finite

N, K, C = 11, 4, 3


@pytest.fixture
def sample(rng):
    """Value, features and gains."""
    return rng.normal(size=(N, C)), rng.normal(size=(N, K)), rng.uniform(1, 2, K)


@pytest.fixture
def weights(rng):
    return rng.uniform(0.5, 1.5, N)


def covariance(features, weights=None):
    weights = np.ones(len(features)) if weights is None else weights
    products = [w * np.outer(f, f) for w, f in zip(weights, features, strict=True)]
    return sum(products) / sum(weights)


def kernel(value, features, gains, weights=None):
    """Gram-Schmidt in the mean over points is what Cholesky does."""
    weights = np.ones(len(value)) if weights is None else weights
    shares = weights / weights.sum()
    functions = oracles.gram_schmidt(features, shares)
    rows = []
    for one in functions:
        pairs = zip(weights / weights.mean(), functions, value, strict=True)
        rows.append(sum(w * (one @ (gains * other)) * v for w, other, v in pairs))
    return np.array(rows)


attend = jax.jit(opjax.orthonormal_attention)


def test_values_and_gradients_match_the_oracle(sample):
    oracles.check(opjax.orthonormal_attention, kernel, sample)
    oracles.check_transforms(opjax.orthonormal_attention, sample, rtol32=1e-3)


def test_weighted_values_and_gradients_match_the_oracle(sample, weights):
    def weighted(value, features, gains, w):
        return opjax.orthonormal_attention(value, features, gains, quadrature_weights=w)

    oracles.check(weighted, kernel, (*sample, weights))


def test_the_covariance_is_the_mean_of_products(sample, weights):
    _, features, _ = sample
    for w in (None, weights):
        found = opjax.feature_covariance(features, quadrature_weights=w)
        assert_allclose(found, covariance(features, w), rtol=1e-12)


def test_another_covariance_is_as_if_features_were_mixed(sample, rng):
    value, features, gains = sample
    given = np.cov(rng.normal(size=(K, 20)))
    functions = np.linalg.solve(np.linalg.cholesky(given), features.T).T
    expected = functions @ (gains[:, None] * (functions.T @ value))
    assert_allclose(
        attend(value, features, gains, covariance=given), expected, rtol=1e-9
    )


def test_equal_gains_do_not_see_the_basis_of_the_features(sample, rng):
    value, features, _ = sample
    gains, mixed = np.full(K, 0.7), features @ rng.normal(size=(K, K))
    assert_allclose(
        attend(value, mixed, gains), attend(value, features, gains), rtol=1e-8
    )


def test_permutations_and_units_of_the_weights(sample, weights, rng):
    value, features, gains = sample
    order = rng.permutation(N)
    expected = attend(*sample, quadrature_weights=weights)
    actual = attend(
        value[order], features[order], gains, quadrature_weights=5 * weights[order]
    )
    assert_allclose(actual, expected[order], rtol=1e-9)


def test_zero_weights_remove_points(sample, weights):
    """Masked values and features may be NaN; neither value nor gradient sees them."""
    value, features, gains = sample
    kept = np.array([0, 1, 3, 4, 6, 7, 8, 10])
    masked = np.setdiff1d(np.arange(N), kept)
    padded = [np.array(a) for a in (value, features, weights)]
    for array, fill in zip(padded, (np.nan, np.nan, 0.0), strict=True):
        array[masked] = fill

    def energy(value, features, gains, weights):
        output = opjax.orthonormal_attention(
            value, features, gains, quadrature_weights=weights
        )
        return jnp.sum(output**3), output

    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2), has_aux=True))
    expected, output = grad(value[kept], features[kept], gains, weights[kept])
    actual, padded_output = grad(padded[0], padded[1], gains, padded[2])
    assert_allclose(padded_output[kept], output, rtol=1e-9)
    assert_array_equal(padded_output[masked], 0)
    for a, b in zip(actual[:2], expected[:2], strict=True):
        assert_allclose(a[kept], b, rtol=1e-7, atol=1e-9)
        assert_array_equal(a[masked], 0)
    assert_allclose(actual[2], expected[2], rtol=1e-8)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [jnp.float32, float])
def test_fewer_points_than_features_stay_finite(sample, dtype):
    value, features, gains = (jnp.asarray(a, dtype) for a in sample)

    def energy(value, features):
        return jnp.sum(opjax.orthonormal_attention(value, features, gains) ** 2)

    for n in (1, 2):
        found = jax.jit(jax.value_and_grad(energy, (0, 1)))(value[:n], features[:n])
        assert all_finite(found)
    zeros = attend(value, features, gains, quadrature_weights=np.zeros(N, dtype))
    assert_array_equal(zeros, 0)


def test_half_precision_keeps_its_dtype(sample):
    half = attend(*[jnp.asarray(a, jnp.bfloat16) for a in sample])
    assert half.dtype == jnp.bfloat16
    expected = attend(*sample)
    error = np.asarray(half, float) - expected
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(expected)


def test_bad_input_is_named_in_the_error(sample):
    value, features, gains = sample
    function = functools.partial(opjax.orthonormal_attention, value)
    refused.each(
        (lambda: function(features[1:], gains), r"value \(11, 3\), features \(10, 4\)"),
        (
            lambda: function(features, gains[1:]),
            r"gains \(3,\) must .* features \(11, 4\)",
        ),
        (
            lambda: function(features, gains, covariance=np.eye(3)),
            r"covariance \(3, 3\) .* \(4, 4\)",
        ),
        (
            lambda: function(features, gains, quadrature_weights=np.ones(3)),
            r"quadrature_weights \(3,\), value",
        ),
        (lambda: function(features.astype(int), gains), "features has dtype int64"),
        (
            lambda: opjax.feature_covariance(np.stack([features] * 2)),
            r"features has shape \(2, 11, 4\)",
        ),
    )
