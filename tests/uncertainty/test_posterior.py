"""Laplace's approximation: linear data, samples, and points that are no minimum."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import uncertainty


def test_the_posterior_of_linear_data_is_exact(rng):
    matrix, data = rng.normal(size=(5, 3)), rng.normal(size=5)

    def loss(z, data):
        return jnp.sum((matrix @ z - data) ** 2) / (2 * 0.1**2) + jnp.sum(z**2) / 2

    precision = matrix.T @ matrix / 0.1**2 + np.eye(3)
    mean = np.linalg.solve(precision, matrix.T @ data / 0.1**2)
    found = uncertainty.laplace(loss, mean, data)
    assert_allclose(found.mean, mean)
    expected = np.linalg.inv(precision)
    assert_allclose(found.covariance, expected, rtol=1e-9)
    assert_allclose(found.std, np.sqrt(np.diag(expected)))


def test_samples_have_the_covariance(rng):
    root = rng.normal(size=(2, 2))
    normal = uncertainty.Normal(jnp.ones(2), jnp.asarray(root @ root.T))
    drawn = normal.sample(jax.random.key(0), 20_000)
    assert_allclose(drawn.mean(axis=0), [1, 1], atol=0.05)
    assert_allclose(np.cov(drawn.T), normal.covariance, rtol=0.05)


@pytest.mark.parametrize(
    ("loss", "mode", "words"),
    [
        (lambda z: jnp.sum(z**2), np.ones(2), "Newton step is 2 standard deviations"),
        (lambda z: (z[0] - z[1]) ** 2, np.zeros(2), "do not determine the parameters"),
        (lambda z: z[0] ** 2 - z[1] ** 2, np.zeros(2), r"curvature there is -2"),
        (lambda z: jnp.sum(jnp.sqrt(z)), np.zeros(2), "are not finite"),
        (lambda z: jnp.sum(z), np.zeros((2, 1)), "mode"),
    ],
)
def test_what_is_no_minimum_is_refused(loss, mode, words):
    with pytest.raises(ValueError, match=words):
        uncertainty.laplace(loss, mode)
