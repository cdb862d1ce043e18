import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import airfoil
from tests.refused import value_error

SIZES = {"num_airfoil": 32, "num_wake": 12, "num_radial": 14}


@functools.cache
def solved(mach=0.8, tolerance=1e-6):
    """The flow around the undeformed profile."""
    mesh = airfoil.mesh(np.zeros(8), **SIZES)
    return airfoil.solve(mesh, num_wake=12, mach=mach, tolerance=tolerance)


def test_the_undeformed_profile_is_naca_0012():
    x, y = np.asarray(airfoil.profile(np.zeros(8))).T
    assert_allclose(y[:61], -y[:59:-1], atol=1e-15)
    assert y.max() == pytest.approx(0.06, abs=1e-4)
    assert_allclose([x[0], x[60], x[-1]], [1, 0, 1], atol=1e-15)
    assert x[59] == pytest.approx(x[58] / 4)
    assert_allclose(np.diff(x[:59]), -1 / 59, rtol=1e-12)


def test_displacements_move_the_corners_of_the_box():
    """Equal ones shift, linear ones turn, opposite ones thicken the profile."""
    x, y = np.asarray(airfoil.profile(np.zeros(8), num_airfoil=20)).T
    shifted = airfoil.profile(np.full(8, 0.02), num_airfoil=20)
    assert_allclose(shifted[:, 1], y + 0.02, atol=1e-14)
    knots = np.array([-0.25, 0.25, 0.75, 1.25])
    turned = airfoil.profile(0.1 * np.append(knots, knots[::-1]), num_airfoil=20)
    assert_allclose(turned[:, 1], y + 0.1 * x, atol=1e-14)
    thick = airfoil.profile(np.repeat([-0.02, 0.02], 4), num_airfoil=20)
    assert_allclose(thick[:, 1], 1.2 * y, atol=1e-14)
    cubic = airfoil.profile(np.append(knots, knots[::-1]) ** 3, num_airfoil=20)
    assert_allclose(cubic[:, 1], y + x**3, atol=1e-13)


def test_the_mesh_is_the_published_one():
    mesh = np.asarray(airfoil.mesh(np.zeros(8)))
    assert mesh.shape == (221, 51, 2)
    assert_array_equal(mesh[:51, 0], mesh[:169:-1, 0])
    assert_allclose(mesh[50:171, 0], airfoil.profile(np.zeros(8)))
    assert_allclose(mesh[0, 0], [40, 0])
    assert_allclose(mesh[[0, -1], -1], [[40, 40], [40, -40]])
    radius = np.hypot(*(mesh[50:171, -1] - [1, 0]).T)
    assert_allclose(radius, 40)
    share = mesh[0, :, 1] / 40
    assert share[1] * 40 == pytest.approx(2 / 120, rel=1e-6)
    growth = np.diff(share)[1:] / np.diff(share)[:-1]
    assert_allclose(growth[:36], 1.02, rtol=1e-6)
    assert_allclose(growth[37:], growth[37], rtol=1e-6)


@pytest.mark.nightly
def test_a_symmetric_airfoil_has_a_symmetric_flow():
    flow = solved()
    assert_allclose(flow.mach, flow.mach[::-1], atol=1e-10)
    assert_allclose(flow.velocity[..., 1], -flow.velocity[::-1, :, 1], atol=1e-10)
    assert float(flow.residual) <= 1e-6
    assert 1.05 < float(flow.mach.max()) < 1.4  # a supersonic pocket


@pytest.mark.nightly
def test_total_enthalpy_is_constant_and_the_stagnation_pressure_isentropic():
    flow = solved(mach=0.5)
    speed = np.sum(np.square(flow.velocity), axis=-1)
    enthalpy = 3.5 * flow.pressure / flow.density + speed / 2
    expected = 3.5 + 1.4 * 0.5**2 / 2
    assert np.sqrt(np.mean((enthalpy / expected - 1) ** 2)) < 3e-3
    assert float(flow.pressure.max()) == pytest.approx(1.05**3.5, rel=0.08)
    ahead = np.asarray(flow.pressure / flow.density**1.4)[20:37, 1:]
    assert_allclose(ahead, 1, atol=0.02)


@pytest.mark.nightly
def test_float32_gives_the_same_flow():
    mesh = airfoil.mesh(np.zeros(8, np.float32), **SIZES)
    flow = airfoil.solve(mesh, num_wake=12, tolerance=1e-4)
    assert flow.mach.dtype == jnp.float32
    expected = np.asarray(solved().mach)
    error = np.linalg.norm(np.asarray(flow.mach) - expected)
    assert error < 2e-3 * np.linalg.norm(expected)


def test_random_displacements_are_bounded_and_the_first_is_zero():
    keys = jax.random.split(jax.random.key(0), 300)
    draws = np.asarray(jax.jit(jax.vmap(airfoil.random_displacements))(keys))
    assert not draws[:, 0].any()
    assert 0.049 < np.abs(draws).max() <= 0.05
    assert np.abs(draws.mean(axis=0)).max() < 0.01


def test_wrong_arguments_are_named_in_the_error():
    mesh = np.asarray(airfoil.mesh(np.zeros(8), **SIZES))
    with value_error(r"\(7,\), expected \(8,\)"):
        airfoil.profile(np.zeros(7))
    with value_error("num_airfoil=21 must be even"):
        airfoil.mesh(np.zeros(8), num_airfoil=21)
    with pytest.raises(TypeError, match="displacements"):
        airfoil.profile(np.zeros(8, int))
    with value_error(r"expected \(n \+ 1, m \+ 1, 2\)"):
        airfoil.solve(mesh[0], num_wake=12)
    with value_error("num_wake=28 must be positive, and smaller"):
        airfoil.solve(mesh, num_wake=28)
    with value_error("that num_wake=14 is that of the mesh"):
        airfoil.solve(mesh, num_wake=14)
    wrong = mesh.copy()
    wrong[20, 5] = wrong[20, 9]
    with value_error("cells of the mesh are inverted"):
        airfoil.solve(wrong, num_wake=12)
    with value_error("mach"):
        airfoil.solve(mesh, num_wake=12, mach=0.0)
