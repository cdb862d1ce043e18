from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import burgers, poisson, random_fields, sinusoid
from tests.refused import value_error


def test_deviations_follow_the_spectrum_and_leave_out_the_constant():
    k = np.arange(12)
    squares = np.pi**2 * (k[:, None] ** 2 + k**2)
    expected = 12 * 7.0**1.5 * (squares + 49) ** (-2.5 / 2)
    expected[0, 0] = 0
    actual = random_fields.spectral_deviations(num_points=12, alpha=2.5, tau=7.0)
    assert_allclose(actual, expected, rtol=1e-13)


@pytest.mark.parametrize("num_points", [1, 4, 9])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_synthesis_is_the_orthonormal_inverse_cosine_transform(num_points, dtype, rng):
    coefficients = rng.normal(size=(num_points, num_points)).astype(dtype)
    expected = scipy.fft.idctn(coefficients.astype(float), norm="ortho")
    actual = jax.jit(random_fields.cosine_synthesis)(coefficients)
    assert actual.dtype == dtype
    assert_allclose(actual, expected, atol=20 * np.finfo(dtype).eps)


def test_synthesis_samples_cosines_at_cell_centres():
    coefficients = np.zeros((8, 8))
    coefficients[2, 0] = 1
    centres = (np.arange(8) + 0.5) / 8
    expected = np.sqrt(2) / 8 * np.cos(2 * np.pi * centres)[:, None] * np.ones(8)
    actual = random_fields.cosine_synthesis(coefficients)
    assert_allclose(actual, expected, atol=1e-15)


def test_field_has_the_analytic_spectrum():
    keys = jax.random.split(jax.random.key(1), 2000)
    draw = jax.vmap(lambda key: random_fields.gaussian_random_field(key, num_points=8))
    coefficients = scipy.fft.dctn(np.asarray(draw(keys)), axes=(1, 2), norm="ortho")
    deviations = np.array(random_fields.spectral_deviations(num_points=8))
    assert_allclose(coefficients[:, 0, 0], 0, atol=1e-14)
    coefficients[:, 0, 0] = deviations[0, 0] = 1
    variances = np.mean((coefficients / deviations) ** 2, axis=0)
    # Five standard errors of a mean of 2000 squares of standard normals.
    assert_allclose(variances, 1, atol=5 * np.sqrt(2 / 2000))


def test_pointwise_variance_hardly_depends_on_the_resolution():
    def variance(num_points):
        deviations = random_fields.spectral_deviations(num_points=num_points)
        return float(jnp.sum(deviations**2)) / num_points**2

    assert variance(32) == pytest.approx(variance(128), rel=1e-2)


PROBLEM = poisson.fourier_problem(24, num_modes=3)
DRAWS = {
    "gaussian": partial(random_fields.gaussian_random_field, num_points=16),
    "burgers": partial(burgers.initial_state, num_points=16),
    "poisson": partial(poisson.sample, problem=PROBLEM, num_samples=64),
    "sinusoid": partial(sinusoid.sample, num_tasks=2, num_context=5, num_query=7),
}


@pytest.mark.parametrize("name", DRAWS)
def test_the_same_key_gives_the_same_bits_and_another_key_others(name):
    draw = jax.jit(DRAWS[name])
    first, again, other = (jax.tree.leaves(draw(jax.random.key(s))) for s in (0, 0, 1))
    for a, b, c in zip(first, again, other, strict=True):
        assert_array_equal(a, b)
        assert np.abs(a - c).max() > 0.01 * np.abs(a).max()


def test_dtype_is_the_one_asked_for():
    key = jax.random.key(0)
    for dtype in (jnp.float32, "float64"):
        field = random_fields.gaussian_random_field(key, num_points=5, dtype=dtype)
        assert field.dtype == dtype
    with jax.enable_x64(False):
        field = random_fields.gaussian_random_field(key, num_points=5)
        assert field.dtype == jnp.float32


def test_unavailable_dtypes_are_named_in_the_error():
    key = jax.random.key(0)
    with pytest.raises(TypeError, match="int32"):
        random_fields.gaussian_random_field(key, num_points=5, dtype="int32")
    with jax.enable_x64(False), pytest.raises(TypeError, match="jax_enable_x64"):
        random_fields.gaussian_random_field(key, num_points=5, dtype="float64")


def test_wrong_arguments_are_named_in_the_error():
    with value_error("num_points"):
        random_fields.spectral_deviations(num_points=0)
    with value_error("tau"):
        random_fields.gaussian_random_field(jax.random.key(0), num_points=4, tau=-1.0)
    with value_error(r"coefficients has shape \(3, 4\)"):
        random_fields.cosine_synthesis(np.ones((3, 4)))
    with value_error("2 axes"):
        random_fields.cosine_synthesis(np.ones((2, 3, 3)))
    with pytest.raises(TypeError, match="coefficients"):
        random_fields.cosine_synthesis(np.ones((3, 3), int))
