import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import interpolate

from opjax.problems import pipe
from tests.refused import value_error

STRAIGHT = pipe.Centreline(np.zeros(5), np.zeros(5))
BENT = pipe.Centreline(
    np.array([0, 0.6, -0.4, 0.2, 0.8]), np.array([1.5, -1.0, 1.8, -0.5, 0.3])
)


def test_the_centreline_is_the_hermite_spline_of_scipy():
    x = np.linspace(0, 8, 41)
    knots = np.linspace(0, 8, 5)
    spline = interpolate.CubicHermiteSpline(knots, BENT.positions, BENT.slopes / 2)
    assert_allclose(pipe.height(BENT, x, length=8), spline(x), atol=1e-14)


def test_a_straight_pipe_has_the_flow_of_poiseuille():
    flow = pipe.solve(STRAIGHT, num_elements=3)
    x, y = np.moveaxis(flow.mesh_points, -1, 0)
    along = 0.25 * (1 - 4 * y**2)
    assert_allclose(flow.velocity[..., 0], along, atol=1e-13)
    assert_allclose(flow.velocity[..., 1], 0, atol=1e-13)
    pressure = 8 * 0.005 * 0.25 * (10 - x)
    assert_allclose(flow.pressure, pressure, atol=1e-13)


def test_boundary_values_are_those_of_the_problem():
    flow = pipe.solve(BENT, num_elements=6)
    t = np.linspace(0, 1, 13)
    assert_allclose(flow.velocity[0, :, 0], t * (1 - t), atol=1e-15)
    assert not flow.velocity[0, :, 1].any()
    assert not flow.velocity[:, [0, -1]].any()
    points = flow.mesh_points
    assert_allclose(points[:, 6, 1], pipe.height(BENT, points[:, 6, 0]))
    assert_allclose(points[:, -1, 1] - points[:, 0, 1], 1)


def test_what_flows_in_flows_out():
    flow = pipe.solve(BENT, num_elements=8)
    simpson = np.r_[1, np.tile([4, 2], 7), 4, 1] / 48
    assert simpson @ flow.velocity[-1, :, 0] == pytest.approx(1 / 6, rel=1e-10)
    # In between only up to the error of the elements, which falls with their size.
    lost = []
    for n in (8, 16):
        velocity = pipe.solve(BENT, num_elements=n).velocity
        simpson = np.r_[1, np.tile([4, 2], n - 1), 4, 1] / (6 * n)
        lost.append(np.abs(velocity[..., 0] @ simpson - 1 / 6).max())
    assert lost[1] < lost[0] / 3


def test_the_solution_of_a_bent_pipe_converges_with_third_order():
    coarse, middle, fine = (
        pipe.solve(BENT, num_elements=n).velocity for n in (8, 16, 32)
    )
    first = np.sqrt(np.mean((coarse - middle[::2, ::2]) ** 2))
    second = np.sqrt(np.mean((middle - fine[::2, ::2]) ** 2))
    assert 2 < np.log2(first / second) < 4
    assert second < 0.08 * np.sqrt(np.mean(fine**2))


def test_random_centrelines_start_at_zero_and_are_bounded():
    draws = jax.jit(jax.vmap(pipe.random_centreline))(
        jax.random.split(jax.random.key(0), 500)
    )
    positions, slopes = map(np.asarray, draws)
    assert not positions[:, 0].any()
    assert 0.98 < np.abs(positions).max() <= 1
    assert 1.98 < np.abs(slopes).max() <= 2
    assert np.abs(positions.mean(axis=0)).max() < 0.1
    assert np.abs(slopes.mean(axis=0)).max() < 0.2


def test_wrong_arguments_are_named_in_the_error():
    with value_error("viscosity"):
        pipe.solve(BENT, viscosity=0)
    with value_error("num_elements"):
        pipe.solve(BENT, num_elements=0)
    with value_error(r"positions has shape \(5,\) and slopes has shape \(4,\)"):
        pipe.height(pipe.Centreline(np.zeros(5), np.zeros(4)), 0.0)
    with value_error("must be finite"):
        pipe.height(pipe.Centreline(np.full(5, np.nan), np.zeros(5)), 0.0)
    with value_error(r"must lie in \[0, 10.0\]"):
        pipe.height(BENT, 11.0)
