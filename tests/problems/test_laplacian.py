"""The inverse Laplacian against dense matrices of differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.problems import laplacian
from tests import oracles

# One axis above 200 points: sines by FFT on all of them.
SHAPES = [
    (1,),
    (2,),
    (7,),
    (211,),
    (1, 1),
    (2, 7),
    (3, 211),
    (211, 2),
    (1, 2, 3),
    (4, 3, 5),
]


def matrix_on_axis(n):
    """(2 u_i - u_{i-1} - u_{i+1}) / h^2, row by row."""
    matrix = np.zeros((n, n))
    for i in range(n):
        matrix[i, i] = 2
        for j in (i - 1, i + 1):
            if 0 <= j < n:
                matrix[i, j] = -1
    return matrix * (n + 1) ** 2


def laplacian_matrix(shape):
    total = np.zeros((np.prod(shape),) * 2)
    for axis in range(len(shape)):
        factors = [np.eye(n) for n in shape]
        factors[axis] = matrix_on_axis(shape[axis])
        total += functools.reduce(np.kron, factors)
    return total


def inverse(values):
    return laplacian.laplacian_inverse(values.shape, values.dtype)(values)


def direct(values):
    solution = np.linalg.solve(laplacian_matrix(values.shape), values.ravel())
    return solution.reshape(values.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inverse_is_that_of_the_dense_matrix(shape, rng):
    oracles.check_value(jax.jit(inverse), direct, (rng.normal(size=shape),))


@pytest.mark.parametrize("shape", [(7,), (211,), (4, 3, 5)])
def test_gradient_is_that_of_the_dense_matrix(shape, rng):
    oracles.check_gradient(inverse, direct, (rng.normal(size=shape),))


@pytest.mark.parametrize("shape", [(7,), (211,), (4, 3, 5)])
def test_jit_vmap_and_single_precision_agree(shape, rng):
    oracles.check_transforms(inverse, (rng.normal(size=shape),))


def test_products_of_sines_are_eigenvectors():
    x, y = np.arange(1, 6) / 6, np.arange(1, 9) / 9
    waves = np.multiply.outer(np.sin(2 * np.pi * x), np.sin(3 * np.pi * y))
    eigenvalue = (12 * np.sin(np.pi * 2 / 12)) ** 2 + (18 * np.sin(np.pi * 3 / 18)) ** 2
    assert_allclose(inverse(waves), waves / eigenvalue, atol=1e-15)


@pytest.mark.parametrize("shape", [(9,), (211,), (4, 5)])
def test_inverse_is_symmetric_and_positive(shape, rng):
    first, second = rng.normal(size=(2, *shape))
    left, right = np.vdot(inverse(first), second), np.vdot(first, inverse(second))
    assert_allclose(left, right, rtol=1e-10)
    assert np.vdot(first, inverse(first)) > 0


@pytest.mark.parametrize("shape", [(150,), (4000,), (60, 60), (300, 300)])
def test_single_precision_is_accurate_to_its_rounding(shape, rng):
    values = rng.normal(size=shape)
    exact, single = (
        jax.jit(inverse)(values.astype(dtype)) for dtype in (np.float64, np.float32)
    )
    assert single.dtype == jnp.float32
    error = np.asarray(single, float) - np.asarray(exact)
    assert np.linalg.norm(error) < 1e-5 * np.linalg.norm(exact)
