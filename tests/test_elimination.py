import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import _elimination, basis, linalg


def positive(rng, k):
    half = rng.normal(size=(k, k + 2))
    return half @ half.T


def test_the_solve_needs_pivots_and_takes_batches(rng):
    matrices = rng.normal(size=(3, 6, 6))
    matrices[0, 0, 0] = 0  # no pivot without exchange of rows
    rhs = rng.normal(size=(3, 6, 2))
    actual = jax.vmap(_elimination.solve)(matrices, rhs)
    assert_allclose(actual, np.linalg.solve(matrices, rhs), rtol=1e-9)


def test_the_half_solve_is_that_of_cholesky(rng):
    matrix, rhs = positive(rng, 5), rng.normal(size=(5, 3))
    expected = np.linalg.solve(np.linalg.cholesky(matrix), rhs)
    actual = _elimination.half_solve(jnp.asarray(matrix), jnp.asarray(rhs))
    assert_allclose(actual, expected, rtol=1e-9)


def test_an_indefinite_matrix_has_no_half_solve(rng):
    matrix = jnp.asarray(np.diag([1.0, -1.0]))
    assert not _elimination.is_positive(matrix)
    assert np.isnan(_elimination.half_solve(matrix, jnp.eye(2))).any()
    singular = _elimination.half_solve(jnp.ones((2, 2)), jnp.ones((2, 1)))
    assert np.isnan(singular).any()
    assert _elimination.is_positive(jnp.asarray(positive(rng, 4)))


def test_orthonormal_columns_are_those_of_qr(rng):
    matrix = jnp.asarray(rng.normal(size=(20, 4)))
    expected = basis._positive_qr(matrix)[0]
    actual = _elimination.orthonormal_columns(matrix)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


def test_columns_that_nearly_coincide_are_orthonormal_in_single_precision(rng):
    nearly = rng.normal(size=(9, 1)) + 1e-6 * rng.normal(size=(9, 3))
    matrix = jnp.asarray(np.stack([nearly, rng.normal(size=(9, 3))]), jnp.float32)
    q = jax.jit(jax.vmap(_elimination.orthonormal_columns))(matrix)
    assert q.dtype == jnp.float32
    transposed = jnp.swapaxes(q, 1, 2)
    assert_allclose(transposed @ q, np.stack([np.eye(3)] * 2), atol=1e-5)
    assert_allclose(q @ (transposed @ matrix), matrix, atol=1e-5)


@pytest.mark.parametrize("columns", [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 0.0]])
def test_columns_of_zeros_are_as_in_qr(columns, rng):
    matrix = jnp.asarray(rng.normal(size=(9, 3)) * columns, jnp.float32)
    expected = basis._positive_qr(matrix)[0]
    actual = _elimination.orthonormal_columns(matrix)
    assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize("smallest", [1.0, 0.0, -1e-7])
def test_both_forms_shift_a_matrix_alike(smallest):
    matrix = jnp.asarray(np.diag([1.0, smallest]))
    elementary = linalg._first_shift(matrix, _elimination.is_positive)
    assert_array_equal(elementary, linalg._shift(matrix))
