"""The ridge problem against stacked least squares, in every form and dtype."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import linalg
from tests import oracles, refused
from tests.selection import by_day

SHAPES = {"wide": (3, 6), "tall": (6, 3), "single": (1, 5)}
ORACLES = {
    opjax.Additive: oracles.ridge_lstsq,
    opjax.Convex: oracles.convex_ridge_lstsq,
}


@pytest.fixture(params=SHAPES)
def problem(request, rng):
    k, d = SHAPES[request.param]
    return rng.normal(size=(k, d)), rng.normal(size=(k, 2))


def solver(form=opjax.Additive):
    def function(matrix, target, ridge):
        return opjax.ridge_solve(matrix, target, ridge=form(ridge))

    return function


def oracle(form=opjax.Additive):
    return lambda a, b, ridge: ORACLES[form](a, b, ridge=ridge)


@pytest.mark.parametrize("form", ORACLES)
@pytest.mark.parametrize("ridge", by_day([1e-6, 1e-2, 0.9], [1e-6, 0.9]))
def test_ridge_solve_is_the_stacked_least_squares_fit(problem, ridge, form):
    args = (*problem, ridge)
    oracles.check_value(solver(form), oracle(form), args)
    if ridge == 0.9:
        oracles.check_gradient(solver(form), oracle(form), args)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("shape", "form"), [((3, 6), opjax.Additive), ((6, 3), opjax.Convex)]
)
def test_ridge_solve_transforms(rng, shape, form):
    problem = rng.normal(size=shape), rng.normal(size=(shape[0], 2))
    oracles.check_transforms(solver(form), (*problem, np.array(0.1)))


@pytest.mark.parametrize("shape", [(3, 6), (6, 3)])
@pytest.mark.parametrize("form", ORACLES)
def test_a_relative_ridge_follows_the_scale_of_the_data(rng, shape, form):
    matrix, target = rng.normal(size=shape), rng.normal(size=(shape[0], 2))
    ridge = form(0.3, relative=True)
    unit = np.trace(matrix @ matrix.T) / len(matrix)
    expected = ORACLES[form](matrix / unit**0.5, target, ridge=0.3) / unit**0.5
    for scale in (1.0, 1e3):
        actual = scale * opjax.ridge_solve(scale * matrix, target, ridge=ridge)
        assert_allclose(actual, expected, rtol=1e-10)
        condition = opjax.condition_number(scale * matrix, ridge=ridge)
        system = oracles.condition_number(
            matrix / unit**0.5,
            ridge=0.3,
            data_weight=0.7 if form is opjax.Convex else 1.0,
        )
        assert_allclose(condition, system, rtol=1e-9)


def test_ridges_of_heads_are_mapped_as_data(rng):
    matrix, target = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    ridges = opjax.Convex(jnp.array([0.1, 0.5]))
    found = jax.jit(
        jax.vmap(lambda ridge: opjax.ridge_solve(matrix, target, ridge=ridge))
    )(ridges)
    for row, ridge in zip(found, (0.1, 0.5), strict=True):
        expected = opjax.ridge_solve(matrix, target, ridge=opjax.Convex(ridge))
        assert_allclose(row, expected, rtol=1e-12)


@pytest.mark.parametrize("shape", [(3, 6), (6, 3)])
def test_the_smaller_system_is_solved(rng, shape):
    args = rng.normal(size=shape), rng.normal(size=(shape[0], 2)), 0.1
    program = jax.jit(solver()).lower(*args).as_text()
    assert "@lapack_dgetrf_ffi" in program
    (line,) = [x for x in program.splitlines() if "getrf_ffi" in x]
    assert "-> (tensor<3x3xf64>" in line


def test_convex_ridge_of_one_is_the_adjoint(problem):
    matrix, target = problem
    actual = opjax.ridge_solve(matrix, target, ridge=opjax.Convex(1.0))
    assert_allclose(actual, matrix.T @ target, rtol=1e-12)


def test_without_ridge_wide_data_are_interpolated(rng):
    matrix, target = rng.normal(size=(3, 6)), rng.normal(size=(3, 2))
    solution = opjax.ridge_solve(matrix, target, ridge=0.0)
    assert_allclose(matrix @ solution, target, rtol=1e-10)
    minimal_norm = np.linalg.pinv(matrix) @ target
    assert_allclose(solution, minimal_norm, rtol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_solved_in_single_and_returned_in_half(problem, half):
    rounded = [a.astype(half) for a in problem]
    actual = opjax.ridge_solve(*rounded, ridge=0.1)
    single = opjax.ridge_solve(*[a.astype(np.float32) for a in rounded], ridge=0.1)
    assert actual.dtype == half
    assert_array_equal(actual, np.asarray(single).astype(half))


def test_solve_is_a_linear_solve(rng):
    args = rng.normal(size=(4, 4)), rng.normal(size=(4, 2))
    oracles.check(linalg.solve, np.linalg.solve, args)
    oracles.check_transforms(linalg.solve, args)


def test_solve_keeps_the_dtype_of_the_right_hand_side(rng):
    system, rhs = np.eye(3) * 2, jnp.asarray(rng.normal(size=(3, 1)), jnp.bfloat16)
    solution = linalg.solve(jnp.asarray(system, jnp.bfloat16), rhs)
    assert solution.dtype == jnp.bfloat16
    assert_array_equal(solution, rhs / 2)


def test_every_product_of_ridge_solve_has_the_highest_precision(problem):
    jaxpr = jax.make_jaxpr(solver())(*problem, 0.1)
    products = [e for e in jaxpr.eqns if e.primitive.name == "dot_general"]
    highest = (jax.lax.Precision.HIGHEST,) * 2
    assert [e.params["precision"] for e in products] == [highest] * 2


@pytest.mark.parametrize(
    ("system", "rhs", "error", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 1)), ValueError, r"system has shape \(2, 3\)"),
        (np.eye(2), np.ones((3, 1)), ValueError, r"system \(2, 2\), rhs \(3, 1\)"),
        (np.eye(2), np.ones(2), ValueError, r"rhs has shape \(2,\)"),
        (np.eye(2), np.ones((2, 1), int), TypeError, "rhs has dtype int64"),
    ],
)
def test_solve_names_bad_input(system, rhs, error, message):
    with pytest.raises(error, match=message):
        linalg.solve(system, rhs)


@pytest.mark.parametrize(
    ("form", "data_weight"), [(opjax.Additive, 1.0), (opjax.Convex, 0.9)]
)
def test_condition_number_is_that_of_the_system(problem, form, data_weight):
    matrix, _ = problem

    def function(matrix):
        return opjax.condition_number(matrix, ridge=form(0.1))

    def oracle(matrix):
        return oracles.condition_number(matrix, ridge=0.1, data_weight=data_weight)

    oracles.check_value(function, oracle, (matrix,))
    if matrix.shape[0] > 1:  # a single row is perfectly conditioned, always
        oracles.check_gradient(function, oracle, (matrix,))
    oracles.check_transforms(function, (matrix,))


def test_condition_number_of_a_singular_system_is_infinite(rng):
    assert opjax.condition_number(rng.normal(size=(5, 2)), ridge=0.0) == np.inf
    assert np.isnan(opjax.condition_number(np.zeros((2, 3)), ridge=0.0))


def test_a_system_beyond_the_reach_of_its_gram_matrix_has_the_right_condition():
    matrix = np.diag([1.0, 1e-10])  # squared: below the resolution of float64
    actual = opjax.condition_number(matrix, ridge=0.0)
    assert_allclose(actual, 1e20, rtol=1e-10)


def _spaces(rng, r, d):
    """A form of `r` trial and `d` test functions at 40 points, and Gram matrices."""
    trial, test = rng.normal(size=(40, r)), rng.normal(size=(40, d))
    return trial.T @ test / 40, trial.T @ trial / 40, test.T @ test / 40


@pytest.mark.parametrize("shape", [(1, 3), (3, 3), (4, 6)])
def test_the_inf_sup_constant_is_that_of_the_eigenvalue_problem(rng, shape):
    function, oracle = opjax.inf_sup_constant, oracles.inf_sup_constant
    problem = _spaces(rng, *shape)
    oracles.check_value(function, oracle, problem)
    oracles.check_transforms(function, problem)

    def symmetric(form, *grams):
        return function(form, *((gram + gram.T) / 2 for gram in grams))

    def symmetric_oracle(form, *grams):
        return oracle(form, *((gram + gram.T) / 2 for gram in grams))

    oracles.check_gradient(symmetric, symmetric_oracle, problem, step=3e-4)


def test_the_inf_sup_constant_is_one_number_of_two_spaces(rng):
    form, trial_gram, test_gram = _spaces(rng, 3, 5)
    expected = opjax.inf_sup_constant(form, trial_gram, test_gram)
    s, t = rng.normal(size=(3, 3)), rng.normal(size=(5, 5))
    actual = opjax.inf_sup_constant(
        s.T @ form @ t, s.T @ trial_gram @ s, t.T @ test_gram @ t
    )
    assert_allclose(actual, expected, rtol=1e-9)
    one = opjax.inf_sup_constant(trial_gram @ s, trial_gram, s.T @ trial_gram @ s)
    assert_allclose(one, 1, rtol=1e-12)
    fewer = opjax.inf_sup_constant(form.T, test_gram, trial_gram)
    assert fewer == 0


def test_the_inf_sup_constant_checks_its_input():
    refused.each(
        (
            lambda: opjax.inf_sup_constant(np.ones((3, 2)), np.eye(3), np.eye(3)),
            r"trial_gram \(3, 3\) and test_gram \(3, 3\)",
        ),
        (
            lambda: opjax.inf_sup_constant(np.ones((3, 2), int), np.eye(3), np.eye(2)),
            "form has dtype int64",
        ),
    )


A, B = np.ones((3, 4)), np.ones((3, 2))
BAD = {
    "rows": (A, B[1:], {}, ValueError, r"rows: matrix \(3, 4\), target \(2, 2\)"),
    "axes": (A, B[0], {}, ValueError, r"target has shape \(2,\)"),
    "integers": (A.astype(int), B, {}, TypeError, "matrix has dtype int64"),
    "target integers": (A, B.astype(int), {}, TypeError, "target has dtype int64"),
    "negative": (A, B, {"ridge": -1.0}, ValueError, r"ridge=-1.0 must be non-neg"),
    "convex": (
        A,
        B,
        {"ridge": opjax.Convex(1.5)},
        ValueError,
        "ridge=1.5 must be at most 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_the_error(case):
    matrix, target, options, error, message = BAD[case]
    with pytest.raises(error, match=message):
        opjax.ridge_solve(matrix, target, **{"ridge": 0.1, **options})


def test_condition_number_checks_its_input():
    refused.each(
        (
            lambda: opjax.condition_number(A.astype(int), ridge=0.1),
            "matrix has dtype int64",
        ),
        (lambda: opjax.condition_number(A[0], ridge=0.1), r"matrix has shape \(4,\)"),
        (
            lambda: opjax.condition_number(A, ridge=opjax.Convex(2.0)),
            "ridge=2.0 must be at most 1",
        ),
    )


def test_whitened_columns_are_uncorrelated(rng):
    values = rng.normal(size=(20, 4)) @ rng.normal(size=(4, 4))
    covariance = values.T @ values / 20

    def whiten(values, matrix):
        return linalg.whiten(values, matrix + matrix.T)

    found = jax.jit(whiten)(values, covariance / 2)
    assert_allclose(found.T @ found / 20, np.eye(4), atol=1e-10)
    args = values[:3], covariance / 2 + np.eye(4)

    def oracle(values, matrix):
        factor = np.linalg.cholesky(matrix + matrix.T)
        return np.linalg.solve(factor, values.T).T

    oracles.check(whiten, oracle, args)


def test_an_indefinite_covariance_is_repaired_or_not(rng):
    values = rng.normal(size=(5, 3))
    for dtype, shift in ((float, 1e-8), (jnp.float32, 1e-6)):
        matrix = jnp.asarray(np.diag([1.0, 4.0, -5 * shift]), dtype)
        given = jnp.asarray(values, dtype)
        found = jax.jit(linalg.whiten)(given, matrix)
        scale = np.sqrt([1.0, 4.0, 5 * shift])
        assert_allclose(found, values / scale, rtol=1e-3)
        assert np.any(np.isnan(linalg.whiten(given, matrix, repair=False)))
    gradient = jax.jit(jax.grad(lambda m: jnp.sum(linalg.whiten(values, m) ** 2)))
    assert np.all(np.isfinite(jax.jit(gradient)(np.zeros((3, 3)))))
    with pytest.raises(ValueError, match=r"covariance \(3, 2\) must be square"):
        linalg.whiten(values, np.ones((3, 2)))
