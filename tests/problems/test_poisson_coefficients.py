"""Variable coefficients against dense matrices and solutions by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import poisson, poisson_coefficients
from tests import oracles
from tests.refused import value_error

solve = jax.jit(poisson_coefficients.solve)
KINDS = {"constant": 1.0, "channels": 1e3, "random": 1e3}


def matrix(coefficient):
    """The scheme, row by row."""
    n = len(coefficient) - 1
    matrix = np.zeros((n, n))
    for i in range(n):
        left, right = coefficient[i], coefficient[i + 1]
        matrix[i, i] = left + right
        if i > 0:
            matrix[i, i - 1] = -left
        if i < n - 1:
            matrix[i, i + 1] = -right
    return matrix * (n + 1) ** 2


def direct(right_side, coefficient):
    return np.linalg.solve(matrix(np.asarray(coefficient)), right_side)


@pytest.fixture(params=[1, 2, 37])
def sample(request, rng):
    n = request.param
    return rng.normal(size=n), rng.uniform(0.1, 3, size=n + 1)


def test_solution_is_that_of_a_dense_solve(sample):
    oracles.check_value(solve, direct, sample)


def test_gradients_are_those_of_a_dense_solve(rng):
    args = rng.normal(size=7), rng.uniform(0.5, 2, size=8)
    oracles.check_gradient(poisson_coefficients.solve, direct, args)


def test_transforms_change_nothing(rng):
    args = rng.normal(size=7), rng.uniform(0.5, 2, size=8)
    oracles.check_transforms(poisson_coefficients.solve, args)


def test_the_inverse_is_symmetric(rng):
    coefficient = poisson_coefficients.coefficient("random", 50, contrast=1e4, seed=2)
    every = jax.jit(jax.vmap(poisson_coefficients.solve, (1, None), 1))
    inverse = np.asarray(every(np.eye(50), coefficient))
    assert_allclose(inverse, inverse.T, rtol=1e-10, atol=1e-14)
    assert np.linalg.eigvalsh(inverse).min() > 0


def test_a_constant_coefficient_is_poisson(rng):
    f = rng.normal(size=41)
    found = solve(f, 2.5 * np.ones(42))
    assert_allclose(found, poisson.solve(f) / 2.5, rtol=1e-9)


def test_solution_converges_with_second_order():
    """`a = exp(x)`, `u = x (1 - x)`, and `f = -(a u')' = exp(x) (1 + 2 x)`."""

    def error(n):
        x = np.arange(1, n + 1) / (n + 1)
        middle = (np.arange(n + 1) + 0.5) / (n + 1)
        f = np.exp(x) * (1 + 2 * x)
        found = solve(f, np.exp(middle))
        return np.abs(found - x * (1 - x)).max()

    assert np.log2(error(31) / error(63)) == pytest.approx(2, abs=0.05)


def test_single_precision_is_accurate_to_its_rounding(rng):
    f = rng.normal(size=256)
    coefficient = poisson_coefficients.coefficient("channels", 256, contrast=1e3)
    single = solve(f.astype(np.float32), coefficient)
    assert single.dtype == jnp.float32
    exact = direct(f, coefficient)
    difference = np.linalg.norm(np.asarray(single, float) - exact)
    assert difference < 1e-5 * np.linalg.norm(exact)


@pytest.mark.parametrize("kind", KINDS)
def test_coefficients_have_the_contrast_and_converge(kind):
    given = functools.partial(
        poisson_coefficients.coefficient, kind, contrast=KINDS[kind]
    )
    values = given(256)
    assert values.shape == (257,)
    assert values.min() == 1
    assert_allclose(values.max() / values.min(), KINDS[kind])
    # A function of the place: every third value of three times as many cells.
    assert_array_equal(given(256), given(3 * 257 - 1)[1::3])
    assert_array_equal(values, given(256))


def test_five_channels_are_a_fifth_apart():
    values = poisson_coefficients.coefficient("channels", 999, contrast=10.0)
    assert set(values) == {1.0, 10.0}
    assert np.mean(values == 10) == pytest.approx(0.4, abs=0.01)
    assert np.sum(np.diff(values) > 0) == np.sum(np.diff(values) < 0) == 5


def test_random_coefficients_depend_on_the_seed():
    make = functools.partial(
        poisson_coefficients.coefficient, "random", 256, contrast=10.0
    )
    assert len(np.unique(make(seed=0))) == 64
    assert np.any(make(seed=0) != make(seed=1))


BAD_CALLS = {
    "kind": (("rough", 8, 2.0), "kind='rough' is unknown; choose from 'constant'"),
    "points": (("random", 0, 2.0), "num_points=0 must be positive"),
    "contrast of constant": (("constant", 8, 2.0), "has contrast 1, not 2.0"),
    "contrast": (("channels", 8, 1.0), "contrast=1.0 must be above 1"),
    "infinite": (("random", 8, np.inf), "contrast=inf must be above 1 and finite"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_coefficients_are_refused(case):
    (kind, num_points, contrast), message = BAD_CALLS[case]
    with value_error(message):
        poisson_coefficients.coefficient(kind, num_points, contrast=contrast)


def test_bad_right_sides_are_refused():
    with value_error(r"coefficient \(3,\) must have one value more"):
        poisson_coefficients.solve(np.ones(3), np.ones(3))
    with value_error("right_side has shape"):
        poisson_coefficients.solve(np.ones((3, 1)), np.ones(4))
    with pytest.raises(TypeError, match="right_side has dtype int64"):
        poisson_coefficients.solve(np.ones(3, int), np.ones(4))
