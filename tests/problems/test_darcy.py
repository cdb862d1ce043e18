import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.interpolate
import scipy.ndimage
import scipy.sparse
import scipy.sparse.linalg
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import darcy
from tests.oracles import relative_error
from tests.refused import value_error

# Most tests share size and tolerance, so that this is compiled only once.
solve = functools.partial(darcy.solve, tolerance=1e-12)


def spline(values, start, end):
    """SciPy's tensor-product not-a-knot spline."""
    for axis in (0, 1):
        values = scipy.interpolate.CubicSpline(start, values, axis=axis)(end)
    return values


def direct_solve(coefficient, source=1.0):
    """The published discretisation, assembled edge by edge and solved directly."""
    n = len(coefficient)
    cells, nodes = (np.arange(n) + 0.5) / n, np.linspace(0, 1, n)
    a = spline(coefficient, cells, nodes)
    f = spline(np.broadcast_to(source, (n, n)), cells, nodes)
    index = np.arange(n * n).reshape(n, n)
    pairs = [(index[1:], index[:-1]), (index[:, 1:], index[:, :-1])]
    i, j = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    weight = (a.ravel()[i] + a.ravel()[j]) / 2 * (n - 1) ** 2
    entries = np.concatenate([weight, weight, -weight, -weight])
    where = np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i])
    matrix = scipy.sparse.coo_matrix((entries, where), (n * n, n * n)).tocsc()
    inner = index[1:-1, 1:-1].ravel()
    u = np.zeros(n * n)
    u[inner] = scipy.sparse.linalg.spsolve(matrix[inner][:, inner], f.ravel()[inner])
    return spline(u.reshape(n, n), nodes, cells)


def two_phase(num_points, seed=0):
    field = np.random.default_rng(seed).normal(size=(num_points, num_points))
    return np.where(scipy.ndimage.gaussian_filter(field, num_points / 10) > 0, 12.0, 3)


def smooth_coefficient(x, y):
    return 2 + np.cos(np.pi * x) * np.sin(2 * y)


def centres(num_points):
    points = (np.arange(num_points) + 0.5) / num_points
    return np.meshgrid(points, points, indexing="ij")


@pytest.mark.parametrize("num_points", [4, 20, 211])  # 211: sines by FFT
def test_solution_is_that_of_a_sparse_direct_solve(num_points):
    coefficient = two_phase(num_points)
    result = solve(coefficient)
    assert result.solution.dtype == jnp.float64
    assert relative_error(result.solution, direct_solve(coefficient)) < 1e-10
    assert result.residual < 2e-12
    assert 0 < result.iterations < 60


def test_source_may_vary(rng):
    coefficient, source = two_phase(20), rng.normal(size=(20, 20))
    result = solve(coefficient, source=source)
    assert relative_error(result.solution, direct_solve(coefficient, source)) < 1e-10
    constant = solve(coefficient, source=np.full((20, 20), 3.0))
    expected = solve(coefficient, source=3.0)
    assert_allclose(constant.solution, expected.solution, rtol=1e-8)


def test_solution_converges_with_second_order():
    def error(num_points):
        x, y = centres(num_points)
        exact = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
        a = smooth_coefficient(x, y)
        u_x = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
        u_y = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
        a_x = -np.pi * np.sin(np.pi * x) * np.sin(2 * y)
        a_y = 2 * np.cos(np.pi * x) * np.cos(2 * y)
        source = 5 * np.pi**2 * a * exact - a_x * u_x - a_y * u_y
        return relative_error(solve(a, source=source).solution, exact)

    assert np.log2(error(20) / error(39)) == pytest.approx(2, abs=0.1)


def test_symmetries_of_the_square_commute_with_the_solve():
    coefficient = two_phase(20)
    solution = solve(coefficient).solution
    for turn in (np.transpose, np.flipud, np.fliplr, np.rot90):
        turned = solve(turn(coefficient).copy()).solution
        assert_allclose(turned, turn(solution), rtol=1e-9, atol=1e-13)


def test_a_non_negative_source_gives_a_non_negative_solution(rng):
    x, y = centres(20)
    source = np.zeros((20, 20))
    source[5:9, 10:15] = rng.uniform(1, 2, size=(4, 5))
    source = scipy.ndimage.gaussian_filter(source, 1)
    solution = solve(smooth_coefficient(x, y), source=source).solution
    assert solution.min() >= 0


def test_solution_scales_inversely_with_the_coefficient():
    coefficient = two_phase(20)
    once, twice = (solve(c * coefficient).solution for c in (1, 2))
    assert_allclose(2 * twice, once, rtol=1e-12)


@pytest.mark.nightly
def test_iterations_do_not_grow_with_the_resolution():
    iterations = [
        solve(np.kron(two_phase(10), np.ones((m, m)))).iterations for m in (2, 12)
    ]
    assert iterations[1] <= iterations[0] + 6


def test_too_few_iterations_show_in_the_residual():
    result = darcy.solve(two_phase(20), max_iterations=3)
    assert result.iterations == 3
    assert result.residual > 1e-5


def test_a_zero_source_takes_no_iterations():
    result = solve(two_phase(20), source=0.0)
    assert result.iterations == 0
    assert result.residual == 0
    assert_array_equal(result.solution, 0)


@pytest.mark.parametrize("argument", ["coefficient", "source"])
def test_gradient_is_that_of_a_direct_solve(argument, rng):
    x, y = centres(9)
    inputs = {"coefficient": smooth_coefficient(x, y), "source": 1 + x * y}
    weights, direction = rng.normal(size=(2, 9, 9))

    def objective(solver, step):
        moved = inputs | {argument: inputs[argument] + step * direction}
        return (weights * solver(**moved)).sum()

    def solver(coefficient, source):
        return darcy.solve(coefficient, source=source, tolerance=1e-13).solution

    values = [objective(direct_solve, step) for step in (-2e-4, -1e-4, 1e-4, 2e-4)]
    expected = np.dot(values, [1, -8, 8, -1]) / 12e-4  # fourth order
    actual = jax.grad(functools.partial(objective, solver))(0.0)
    assert_allclose(actual, expected, rtol=1e-7)


def test_derivatives_agree_in_both_modes():
    x, y = centres(6)

    def solution(coefficient):
        return darcy.solve(coefficient, tolerance=1e-13).solution

    check_grads(solution, (smooth_coefficient(x, y),), order=1, rtol=1e-5, atol=1e-7)


def test_eager_jit_and_vmap_agree():
    batch = np.stack([two_phase(20, seed) for seed in range(3)])
    batched = jax.jit(jax.vmap(solve))(batch)
    for i, coefficient in enumerate(batch):
        single = solve(coefficient)
        assert_allclose(batched.solution[i], single.solution, rtol=1e-8)
        assert_array_equal(batched.iterations[i], single.iterations)


@pytest.mark.nightly
@pytest.mark.parametrize("num_points", [20, 211])
def test_float32_is_kept_and_accurate_to_its_rounding(num_points):
    coefficient = two_phase(num_points).astype(np.float32)
    result = darcy.solve(coefficient)
    assert result.solution.dtype == result.residual.dtype == jnp.float32
    assert result.iterations < 40
    assert result.residual < 1e-4
    assert relative_error(result.solution, direct_solve(coefficient)) < 1e-4


def test_threshold_has_two_phases():
    field = np.array([-1.0, 0.0, 2.0], np.float32)
    actual = darcy.threshold(field)
    assert actual.dtype == jnp.float32
    assert_array_equal(actual, [3, 12, 12])
    assert_array_equal(darcy.threshold(field, high=2.0, low=1.0), [1, 2, 2])


def test_sample_solves_finely_and_then_takes_every_stride_th_point():
    key = jax.random.key(0)
    fine, coarse = (darcy.sample(key, num_points=25, stride=s) for s in (1, 4))
    assert_array_equal(coarse.coefficient, fine.coefficient[::4, ::4])
    assert_allclose(coarse.solution, fine.solution[::4, ::4], rtol=1e-12)
    assert coarse.solution.shape == (7, 7)
    assert set(np.unique(fine.coefficient)) == {3.0, 12.0}
    expected = direct_solve(np.asarray(fine.coefficient))
    assert relative_error(fine.solution, expected) < 1e-8


@pytest.mark.parametrize(
    ("num_points", "stride", "size"),
    [(421, 5, 85), (421, 15, 29), (169, 2, 85), (141, 5, 29)],
)
def test_grids_of_the_paper(num_points, stride, size):
    draw = functools.partial(darcy.sample, num_points=num_points, stride=stride)
    result = jax.eval_shape(draw, jax.random.key(0))
    assert result.coefficient.shape == result.solution.shape == (size, size)


def test_published_sample_is_reproduced(shared_dir):
    path = shared_dir / "data" / "pde" / "fno_darcy421_sample_partial.npz"
    if not path.is_file():
        pytest.skip(f"no published sample at {path}")
    with np.load(path, allow_pickle=False) as file:
        published, mask = file["u"].astype(float), file["a_mask421_digitised"]
    result = darcy.solve(np.where(mask, 12.0, 3.0))
    solution = np.asarray(result.solution)[::2, ::2]
    # The plot that the solution was recovered from had noise added: 1.2 % of it.
    assert relative_error(solution, published) < 0.0125
    smooth, expected = (
        scipy.ndimage.gaussian_filter(u, 4.0) for u in (solution, published)
    )
    assert relative_error(smooth, expected) < 9e-4
    for edge in np.s_[0, :], np.s_[-1, :], np.s_[:, 0], np.s_[:, -1]:
        assert_allclose(solution[edge].mean(), published[edge].mean(), rtol=0.01)


@pytest.mark.nightly
def test_statistics_of_the_published_set():
    """Against boundary mean and interior RMS of the 421 x 421 set (1024 samples)."""
    key = jax.random.key(0)
    draw = functools.partial(darcy.sample, stride=1)
    samples = [draw(jax.random.fold_in(key, i)) for i in range(8)]
    assert max(sample.residual for sample in samples) < 2e-9
    u = np.stack([sample.solution for sample in samples])
    edges = np.abs(np.stack([u[:, 0], u[:, -1], u[:, :, 0], u[:, :, -1]]))
    assert edges.mean() == pytest.approx(5.17e-5, rel=0.1)
    assert np.sqrt(np.mean(u[:, 1:-1, 1:-1] ** 2)) == pytest.approx(6.95e-3, rel=0.1)


def test_wrong_arguments_are_named_in_the_error():
    good = np.ones((6, 6))
    with value_error(r"coefficient has shape \(6, 5\)"):
        darcy.solve(good[:, :5])
    with value_error("jax.vmap"):
        darcy.solve(good[None])
    with value_error("four points"):
        darcy.solve(good[:3, :3])
    with pytest.raises(TypeError, match="coefficient has dtype int64"):
        darcy.solve(good.astype(int))
    with value_error(r"source has shape \(6,\).*\(6, 6\)"):
        darcy.solve(good, source=good[0])
    with value_error("tolerance"):
        darcy.solve(good, tolerance=0.0)
    with value_error("max_iterations"):
        darcy.solve(good, max_iterations=0)
    with value_error("low"):
        darcy.threshold(good, low=0.0)
    with value_error(r"stride=5 must divide.*168.*166"):
        darcy.sample(jax.random.key(0), num_points=169, stride=5)
