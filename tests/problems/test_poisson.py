"""Poisson's equation and its right-hand sides against the text of the paper."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import poisson
from tests import oracles, refused
from tests.oracles import relative_error
from tests.problems import test_laplacian


def grid(n):
    return np.arange(1, n + 1) / (n + 1)


# solve


@pytest.mark.parametrize("shape", test_laplacian.SHAPES, ids=str)
def test_solution_is_that_of_a_dense_solve(shape, rng):
    values = rng.normal(size=shape)
    oracles.check_value(jax.jit(poisson.solve), test_laplacian.direct, (values,))


@pytest.mark.parametrize("shape", [(7,), (211,), (3, 4, 5)])
def test_gradient_is_the_adjoint(shape, rng):
    values, cotangent = rng.normal(size=(2, *shape))
    oracles.check_gradient(poisson.solve, test_laplacian.direct, (values,))
    solve = jax.jit(poisson.solve)
    (gradient,) = jax.jit(lambda v, c: jax.vjp(solve, v)[1](c))(values, cotangent)
    assert_allclose(gradient, solve(cotangent), rtol=1e-10)


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_solution_converges_with_second_order(dimension):
    def error(n):
        # u = prod_i x_i (1 - x_i) exp(x_i), and f = -Laplace u by hand.
        x = grid(n)
        u, minus_u2 = x * (1 - x) * np.exp(x), (x**2 + 3 * x) * np.exp(x)
        f = np.zeros((n,) * dimension)
        for axis in range(dimension):
            factors = [u] * dimension
            factors[axis] = minus_u2
            f += functools.reduce(np.multiply.outer, factors)
        exact = functools.reduce(np.multiply.outer, [u] * dimension)
        return relative_error(jax.jit(poisson.solve)(f), exact)

    assert np.log2(error(15) / error(31)) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("shape", [(150,), (1000,), (40, 40)])
def test_single_precision_is_accurate_to_its_rounding(shape, rng):
    values = rng.normal(size=shape)
    single, double = (
        jax.jit(poisson.solve)(values.astype(dtype)) for dtype in (np.float32, float)
    )
    assert single.dtype == jnp.float32
    assert relative_error(single, double) < 1e-5


# problem


def paper_modes(n, num_modes):
    """The rows of section 5.3 before they are normalised."""
    rows = []
    for m in range(1, num_modes + 1):
        rows.append([math.sin(math.pi * m * x) for x in grid(n)])
        rows.append([math.cos(math.pi * m * x) for x in grid(n)])
    return np.array(rows)


def test_modes_and_damping_are_those_of_the_paper():
    problem = poisson.fourier_problem(20)
    assert_allclose(problem.modes.T, paper_modes(20, 16), atol=1e-13)
    damping = [m**-1.5 for m in range(1, 17) for _ in "sc"]
    assert_allclose(problem.damping, damping, rtol=1e-13)


def test_modes_in_several_dimensions_are_products():
    problem = poisson.fourier_problem((3, 5), num_modes=2, decay=1.0)
    x, y = paper_modes(3, 2), paper_modes(5, 2)
    for i in range(4):
        for j in range(4):
            column = 4 * i + j
            mode = np.reshape(problem.modes[:, column], (3, 5))
            assert_allclose(mode, np.outer(x[i], y[j]), atol=1e-14)
            expected = 1 / ((1 + i // 2) * (1 + j // 2))
            assert_allclose(problem.damping[column], expected)


@pytest.mark.parametrize("shape", [(20,), (3, 4, 5)])
def test_solutions_are_those_of_the_modes(shape):
    problem = poisson.fourier_problem(shape, num_modes=2)
    for f, u in zip(problem.modes.T, problem.solutions.T, strict=True):
        expected = test_laplacian.direct(np.reshape(f, shape)).ravel()
        assert_allclose(u, expected, rtol=1e-10, atol=1e-14)


def test_another_solver_solves_for_the_modes_and_is_compared_with(rng):
    matrix = rng.normal(size=(9, 9))
    problem = poisson.fourier_problem(9, num_modes=2, solver=lambda f: matrix @ f)
    assert_allclose(problem.solutions, matrix @ problem.modes, rtol=1e-10)
    error = poisson.operator_error(
        lambda f: 1.25 * matrix @ f, (9,), solver=lambda f: matrix @ f
    )
    assert_allclose(error, 0.25, rtol=1e-9)


def test_a_number_of_points_stands_for_one_axis():
    for one, other in zip(
        poisson.fourier_problem(9, num_modes=2),
        poisson.fourier_problem((9,), num_modes=2),
        strict=True,
    ):
        assert_array_equal(one, other)


def test_problem_and_samples_have_the_dtype_asked_for():
    single = poisson.fourier_problem(40, num_modes=4, dtype=jnp.float32)
    double = poisson.fourier_problem(40, num_modes=4)
    for s, d in zip(single, double, strict=True):
        assert s.dtype == jnp.float32
        assert d.dtype == jnp.float64
        assert relative_error(s, d) < 1e-6
    right_sides, solutions = draw(single, 7)
    assert right_sides.dtype == solutions.dtype == np.float32
    exact = np.linalg.solve(test_laplacian.matrix_on_axis(40), right_sides)
    assert relative_error(solutions, exact) < 1e-4


# samples


@pytest.fixture(scope="module")
def problem():
    return poisson.fourier_problem(24, num_modes=3)


compiled_sample = jax.jit(poisson.sample, static_argnames="num_samples")


def draw(problem, num_samples, seed=0):
    key = jax.random.key(seed)
    samples = compiled_sample(key, problem, num_samples=num_samples)
    return [np.asarray(columns) for columns in samples]


def normalized_modes(problem):
    modes = np.asarray(problem.modes)
    return modes / np.linalg.norm(modes, axis=0)


def is_pure(problem, right_sides):
    """Whether a right-hand side is plus or minus a normalised mode."""
    products = np.abs(normalized_modes(problem).T @ right_sides)
    return products.max(axis=0) > 1 - 1e-12


def test_half_of_the_samples_are_single_modes_and_all_have_unit_norm(problem):
    right_sides, solutions = draw(problem, 65)
    assert right_sides.shape == (24, 65)
    assert is_pure(problem, right_sides).sum() == 32
    assert_allclose(np.linalg.norm(right_sides, axis=0), 1, rtol=1e-14)
    expected = np.linalg.solve(test_laplacian.matrix_on_axis(24), right_sides)
    assert_allclose(solutions, expected, rtol=1e-9, atol=1e-15)


def test_single_modes_are_drawn_evenly_with_both_signs_and_shuffled(problem):
    right_sides, _ = draw(problem, 40_000)
    pure = is_pure(problem, right_sides)
    overlaps = normalized_modes(problem).T @ right_sides[:, pure]
    count = 20_000 / 12
    for products in overlaps:
        for sign in (1, -1):
            actual = np.count_nonzero(sign * products > 1 - 1e-12)
            assert abs(actual - count) < 5 * count**0.5
    assert abs(pure[:20_000].sum() - 10_000) < 5 * 10_000**0.5


def paper_samples(rng, n, num_modes, count):
    """The combinations of section 5.3: loops, in NumPy."""
    rows = paper_modes(n, num_modes)
    f = np.zeros((count, n))
    for m in range(1, num_modes + 1):
        scale = 1 / m**1.5
        f += scale * rng.normal(size=(count, 1)) * rows[None, 2 * m - 2]
        f += scale * rng.normal(size=(count, 1)) * rows[None, 2 * m - 1]
    return f / np.linalg.norm(f, axis=1, keepdims=True)


def test_combinations_are_distributed_like_those_of_the_paper(problem, rng):
    right_sides, _ = draw(problem, 40_000)
    actual = right_sides[:, ~is_pure(problem, right_sides)].T
    expected = paper_samples(rng, 24, 3, len(actual))
    for power in (2, 4):  # moments of the sine coefficients, decaying with the mode
        sines = np.sin(np.pi * np.outer(grid(24), np.arange(1, 24))) * (2 / 25) ** 0.5
        first, second = ((f @ sines) ** power for f in (actual, expected))
        error = np.sqrt((first.var(axis=0) + second.var(axis=0)) / len(actual))
        difference = np.abs(first.mean(axis=0) - second.mean(axis=0))
        assert np.all(difference < 5 * error)


def test_decay_damps_high_modes():
    means = []
    for decay in (0.0, 1.5, 4.0):
        problem = poisson.fourier_problem(24, num_modes=3, decay=decay)
        right_sides, _ = draw(problem, 40_000)
        mixed = right_sides[:, ~is_pure(problem, right_sides)]
        last = np.sin(3 * np.pi * grid(24)) * (2 / 25) ** 0.5
        means.append(np.mean((last @ mixed) ** 2))
    assert means[0] > 2 * means[1] > 4 * means[2]


@pytest.mark.nightly
def test_eager_jit_and_vmap_draw_the_same(problem):
    sample = functools.partial(poisson.sample, num_samples=5)
    keys = jax.random.split(jax.random.key(0), 2)
    mapped = jax.jit(jax.vmap(sample, in_axes=(0, None)))(keys, problem)
    compiled = jax.jit(sample)(keys[1], problem)
    eager = sample(keys[1], problem)
    for a, b, c in zip(eager, compiled, mapped, strict=True):
        assert_allclose(b, a, rtol=1e-12, atol=1e-15)
        assert_allclose(c[1], a, rtol=1e-12, atol=1e-15)


# moments


def moment(problem, num_samples=100_000):
    return poisson.population_moment(
        jax.random.key(1), problem, num_samples=num_samples
    )


def test_moment_is_symmetric_positive_definite_in_double_precision():
    problem = poisson.fourier_problem(24, num_modes=3, dtype=jnp.float32)
    actual = moment(problem, 1000)
    assert actual.dtype == np.float64
    assert actual.shape == (6, 6)
    assert_allclose(actual, actual.T, rtol=1e-12)
    assert np.linalg.eigvalsh(actual).min() > 0


@pytest.mark.parametrize("kind", ["random", "damped inverse", "zero"])
def test_trace_is_the_mean_of_the_weighted_errors(problem, kind, rng):
    n = 24
    matrix = {
        "random": 0.1 * rng.normal(size=(n, n)) / n**0.5,
        "damped inverse": 0.9 * np.linalg.inv(test_laplacian.matrix_on_axis(n)),
        "zero": np.zeros((n, n)),
    }[kind]
    error = matrix @ np.asarray(problem.modes) - np.asarray(problem.solutions)
    actual = np.trace(error.T @ error @ moment(problem))
    found = poisson.population_mse(lambda f: matrix @ f, problem, moment(problem))
    assert_allclose(found, actual, rtol=1e-8)
    f, u = draw(problem, 40_000, seed=2)
    losses = np.sum((matrix @ f - u) ** 2, axis=0) / np.sum(u**2, axis=0)
    if kind != "random":  # the same loss in every sample
        assert_allclose(actual, losses, rtol=1e-8)
        return
    standard_error = losses.std() * np.sqrt(1 / 40_000 + 1 / 100_000)
    assert abs(losses.mean() - actual) < 4 * standard_error < 0.05 * actual


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(7,), (17, 18)])
def test_errors_of_operators_are_those_of_dense_matrices(shape, rng):
    n = math.prod(shape)
    exact = np.linalg.inv(test_laplacian.laplacian_matrix(shape))
    matrix = exact + 0.1 * rng.normal(size=(n, n)) * np.abs(exact).max()
    expected = np.linalg.norm(matrix - exact) / np.linalg.norm(exact)
    found = jax.jit(lambda m: poisson.operator_error(lambda f: m @ f, shape))(matrix)
    assert_allclose(found, expected, rtol=1e-9)
    none = poisson.operator_error(jax.vmap(poisson.solve, 1, 1), (n,))
    assert none < 1e-12


def test_moment_depends_on_the_key_and_its_error_falls(problem):
    reference = moment(problem, 200_000)
    draws = {
        n: [
            poisson.population_moment(jax.random.key(k), problem, num_samples=n)
            for k in range(4)
        ]
        for n in (500, 50_000)
    }
    assert not np.array_equal(*draws[500][:2])
    few, many = (
        np.mean([relative_error(m, reference) for m in ms]) for ms in draws.values()
    )
    assert few > 4 * many


# weighted mse


def paper_weighted_mse(prediction, solution, floor=1e-30):
    """Eq. 21 in loops: squared errors over squared norms, both as means."""
    total = 0.0
    for p, u in zip(prediction.T, solution.T, strict=True):
        error = sum((a - b) ** 2 for a, b in zip(p, u, strict=True)) / len(u)
        total += error / max(sum(b**2 for b in u) / len(u), floor)
    return np.array(total / solution.shape[1])


def test_weighted_mse_is_that_of_the_paper(rng):
    args = rng.normal(size=(2, 7, 3)) * np.array([1.0, 2.0, 4.0])
    oracles.check_value(poisson.weighted_mse, paper_weighted_mse, args)
    oracles.check_gradient(poisson.weighted_mse, paper_weighted_mse, args)
    oracles.check_transforms(poisson.weighted_mse, args)


def test_weighted_mse_of_zero_is_one_and_of_the_solution_zero(rng):
    solution = rng.normal(size=(7, 3))
    assert poisson.weighted_mse(np.zeros((7, 3)), solution) == 1
    assert poisson.weighted_mse(solution, solution) == 0


def test_weighted_mse_is_free_of_units_sample_by_sample(rng):
    prediction, solution = rng.normal(size=(2, 7, 3))
    units = np.array([1e-6, 1.0, 1e6])
    actual = poisson.weighted_mse(units * prediction, units * solution)
    assert_allclose(actual, poisson.weighted_mse(prediction, solution))


def test_small_solutions_are_divided_by_the_floor(rng):
    prediction, solution = rng.normal(size=(2, 7, 3))
    args = prediction, solution * np.array([1e-3, 1, 0])
    floored = functools.partial(poisson.weighted_mse, floor=0.1)
    oracle = functools.partial(paper_weighted_mse, floor=0.1)
    oracles.check_value(floored, oracle, args)
    oracles.check_gradient(floored, oracle, args)


def test_zero_solutions_have_finite_errors_and_gradients():
    zero, small = np.zeros((5, 2)), np.full((5, 2), 1e-15)
    value_and_grad = jax.jit(jax.value_and_grad(poisson.weighted_mse))
    for dtype in (np.float32, np.float64):
        value, gradient = value_and_grad(zero.astype(dtype), zero.astype(dtype))
        assert value == 0
        assert_array_equal(gradient, 0)
        error, _ = value_and_grad(small.astype(dtype), zero.astype(dtype))
        assert_allclose(error, 1, rtol=1e-6)  # (1e-15)^2 / 1e-30


# errors

ONES = np.ones((4, 2))
BAD_CALLS = {
    "solve number": (lambda: poisson.solve(1.0), r"right_side has shape \(\)"),
    "solve empty": (
        lambda: poisson.solve(np.ones((3, 0))),
        r"right_side has shape \(3, 0\)",
    ),
    "solve dtype": (
        lambda: poisson.solve(np.ones(3, int)),
        "right_side has dtype int64",
    ),
    "problem points": (
        lambda: poisson.fourier_problem((4, 0)),
        r"grid_shape=\(4, 0\) must be positive",
    ),
    "problem modes": (
        lambda: poisson.fourier_problem(4, num_modes=0),
        "num_modes=0 must be positive",
    ),
    "problem decay": (
        lambda: poisson.fourier_problem(4, num_modes=1, decay=-1.0),
        "decay=-1.0 must be non-negative",
    ),
    "sample number": (
        lambda: draw(poisson.fourier_problem(4, num_modes=1), 0),
        "num_samples=0 must be positive",
    ),
    "too many modes": (
        lambda: poisson.fourier_problem(4, num_modes=5),
        r"num_modes=5 is more than the grid grid_shape=\(4,\)",
    ),
    "too many modes on one axis": (
        lambda: poisson.fourier_problem((9, 4), num_modes=5),
        r"num_modes=5 is more than the grid grid_shape=\(9, 4\)",
    ),
    "problem dtype": (
        lambda: poisson.fourier_problem(4, num_modes=1, dtype=int),
        "dtype=int64 must be a floating-point dtype",
    ),
    "moment number": (
        lambda: poisson.population_moment(
            jax.random.key(0), poisson.fourier_problem(4, num_modes=1), num_samples=0
        ),
        "num_samples=0 must be positive",
    ),
    "mse points": (
        lambda: poisson.weighted_mse(ONES, ONES[1:]),
        r"points .*prediction \(4, 2\), solution \(3, 2\)",
    ),
    "mse samples": (
        lambda: poisson.weighted_mse(ONES[:, 1:], ONES),
        r"prediction \(4, 1\), solution \(4, 2\)",
    ),
    "mse axes": (
        lambda: poisson.weighted_mse(ONES[0], ONES),
        r"prediction has shape \(2,\), expected 2 axes",
    ),
    "mse dtype": (
        lambda: poisson.weighted_mse(ONES, ONES.astype(int)),
        "solution has dtype int64",
    ),
    "mse floor": (
        lambda: poisson.weighted_mse(ONES, ONES, floor=-1.0),
        "floor=-1.0 must be non-negative",
    ),
}


test_bad_input_is_named_in_the_error = refused.calls(*BAD_CALLS.values())


def test_the_number_of_modes_is_whole():
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        poisson.fourier_problem(4, num_modes=1.5)
