import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import darcy_notch
from tests.refused import value_error

pytest.importorskip("skfem")


@pytest.fixture(scope="module")
def operator():
    return darcy_notch.operator(num_columns=12)


def test_mesh_fills_the_triangle_without_the_notch():
    mesh = darcy_notch.mesh()
    x, y = mesh.p
    a, b, c = mesh.p[:, mesh.t].transpose(1, 2, 0)
    areas = _areas(a, b, c)
    assert areas.min() > 1e-5
    assert areas.sum() == pytest.approx(np.sqrt(3) / 4 - 0.02 * 0.4, rel=1e-12)
    assert mesh.nvertices == 2257
    assert not ((np.abs(x - 0.5) < 0.0099) & (y < 0.3999)).any()
    mirrored = {(u, v) for u, v in np.stack([1 - x, y], 1).round(9)}
    assert mirrored == {(u, v) for u, v in np.stack([x, y], 1).round(9)}
    assert {(0.49, 0.4), (0.51, 0.4)} <= mirrored


def _areas(a, b, c):
    (u, v), (p, q) = (b - a).T, (c - a).T
    return np.abs(u * q - v * p) / 2


def test_constant_and_linear_boundary_values_continue_inside(operator):
    harmonic = operator.response
    assert_allclose(harmonic.sum(axis=1), 1, rtol=1e-11)
    x = np.linspace(0, 1, 101)
    assert_allclose(harmonic @ x, operator.points[:, 0], atol=1e-11)
    assert harmonic.min() > -0.02


def test_a_parabola_is_solved_to_the_error_of_its_boundary_values():
    """For `u = -5 x^2` only linear interpolation errs, by `5 h^2 / 4` at most."""

    def error(num_values):
        found = darcy_notch.operator(num_columns=6, num_values=num_values)
        values = -5 * np.linspace(0, 1, num_values) ** 2
        exact = -5 * found.points[:, 0] ** 2
        difference = np.abs(found(values) - exact)
        assert difference.max() <= 1.01 * 1.25 / (num_values - 1) ** 2
        return difference.mean()

    assert np.log2(error(11) / error(21)) == pytest.approx(2, abs=0.3)


def test_finer_meshes_converge(operator):
    values = np.cos(5 * np.linspace(0, 1, 101))
    points = operator.points
    fine = darcy_notch.operator(points, num_columns=48)(values)
    coarse, middle = (
        np.abs(darcy_notch.operator(points, num_columns=n)(values) - fine).max()
        for n in (6, 12)
    )
    assert middle < coarse / 2
    assert middle < 2e-3


def test_nodes_and_given_points_agree(operator):
    again = darcy_notch.operator(operator.points, num_columns=12)
    assert_allclose(again.response, operator.response, atol=1e-6)
    assert_allclose(again.source, operator.source, atol=1e-6)
    assert again.cells is None
    assert operator.cells.max() == len(operator.points) - 1


def test_points_outside_have_the_value_of_the_nearest_boundary_point():
    points = [[-0.3, -0.2], [0.2, -1], [0, 1], [0.497, 0.1], [2, 3], [0.3, 0]]
    found = darcy_notch.operator(points, num_columns=4)
    x = np.linspace(0, 1, 101)
    expected = [0, 0.2, np.sqrt(3) / 4, 0.49, 0.5, 0.3]
    assert_allclose(found.response @ x, expected, atol=1e-9)
    assert_array_equal(found.source, 0)


def test_the_notch_may_be_zero():
    walls = [[0.49, 0.2], [0.51, 0.01], [0.5, 0.4], [0.49, 0.4]]
    lower_ends = [[0.49, 0.0], [0.51, 0.0]]
    found = darcy_notch.operator(walls + lower_ends, num_columns=6, notch="zero")
    assert_allclose(found(np.ones(101)), [0, 0, 0, 0, 1, 1], atol=1e-12)
    inside = [[0.52, 0.2]]
    given, zero = (
        darcy_notch.operator(inside, num_columns=6, notch=notch)(np.full(101, 3.0))
        for notch in darcy_notch.NOTCHES
    )
    assert zero[0] < 2 < 3 < given[0]


def test_boundary_values_have_the_covariance_of_their_process():
    keys = jax.random.split(jax.random.key(0), 4000)
    draw = lambda key: darcy_notch.boundary_values(key, num_values=11)  # noqa: E731
    values = np.asarray(jax.jit(jax.vmap(draw))(keys))
    x = np.linspace(0, 1, 11)
    expected = np.exp(-((x[:, None] - x) ** 2) / (2 * 0.2**2))
    assert_allclose(values.T @ values / 4000, expected, atol=0.08)
    assert_allclose(values.mean(axis=0), 0, atol=0.06)


def test_published_solutions_are_reproduced(shared_dir):
    with np.load(shared_dir / "data/pde/lu_darcy_notch_ls0.2.npz") as file:
        boundary, points, expected = (file[k][:] for k in ("bc", "xy", "u"))
    found = darcy_notch.operator(points)(boundary.astype(float))
    difference = np.linalg.norm(found - expected, axis=1)
    errors = difference / np.linalg.norm(expected, axis=1)
    assert errors.mean() < 4.5e-4
    assert errors.max() < 1.4e-3


def test_wrong_arguments_are_named_in_the_error():
    with value_error("num_columns=1 must be at least 2"):
        darcy_notch.mesh(num_columns=1)
    with value_error("num_values=1"):
        darcy_notch.operator(num_values=1)
    with value_error("notch='none' is unknown"):
        darcy_notch.operator(notch="none")
    with value_error(r"\(4, 3\), expected \(n, 2\)"):
        darcy_notch.operator(np.zeros((4, 3)))
    with value_error("length_scale"):
        darcy_notch.boundary_values(jax.random.key(0), length_scale=0.0)
