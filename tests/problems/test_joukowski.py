import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.problems import joukowski
from opjax.problems.airfoil_forces import (
    force_coefficients,
    wall_shear,
    wall_stencil,
)
from tests.refused import value_error

CENTRE = (-0.1, 0.06)


def velocity_at(point, speed, angle, centre):
    """The flow at one point of the circle's plane, from the potential's difference."""
    mu = complex(*centre)
    radius = abs(1 - mu)
    circulation = (
        4 * np.pi * speed * radius * np.sin(angle + np.arcsin(mu.imag / radius))
    )

    def potential(zeta):
        d = zeta - mu
        stream = np.exp(-1j * angle) * d + np.exp(1j * angle) * radius**2 / d
        return speed * stream + 1j * circulation / (2 * np.pi) * np.log(d)

    h = 1e-5
    slope = (potential(point + h) - potential(point - h)) / (2 * h)
    there = (point + h + 1 / (point + h)) - (point - h + 1 / (point - h))
    return np.conj(slope / (there / (2 * h)))


def test_velocity_is_the_gradient_of_the_potential():
    found = joukowski.flow(30.0, 0.1, CENTRE, num_radii=3, num_angles=5)
    mu = complex(*CENTRE)
    radius = abs(1 - mu)
    beta = np.arcsin(mu.imag / radius)
    for row, factor in enumerate((1, 2, 4)):
        for column in range(5):
            turn = 2 * np.pi * (column + 0.5) / 5 - beta
            zeta = mu + radius * factor * np.exp(1j * turn)
            expected = velocity_at(zeta, 30.0, 0.1, CENTRE)
            actual = complex(*np.asarray(found.velocity[row, column]))
            assert actual == pytest.approx(expected, rel=1e-6)


def test_the_airfoil_has_unit_chord_and_the_flow_follows_it():
    found = joukowski.flow(1.0, 0.2, CENTRE, num_angles=400)
    airfoil = np.asarray(found.points[0])
    assert airfoil[:, 0].min() == pytest.approx(0, abs=1e-4)
    assert airfoil[:, 0].max() == pytest.approx(1, abs=1e-3)
    through = np.sum(np.asarray(found.velocity[0]) * np.asarray(found.normals), axis=1)
    assert_allclose(through, 0, atol=1e-12)
    # The normals point away from the airfoil, to the next row.
    away = np.asarray(found.points[1]) - airfoil
    assert np.all(np.sum(away * np.asarray(found.normals), axis=1) > 0)


def test_far_away_the_flow_is_that_which_comes_in():
    found = joukowski.flow(2.0, 0.3, CENTRE, extent=1e6, num_radii=2)
    expected = 2 * np.array([np.cos(0.3), np.sin(0.3)])
    far = np.broadcast_to(expected, found.velocity[1].shape)
    assert_allclose(found.velocity[1], far, atol=1e-5)
    assert_allclose(found.pressure[1], 0, atol=1e-5)


def test_lift_of_a_thin_plate_is_that_of_thin_airfoil_theory():
    found = joukowski.flow(1.0, 0.05, (-1e-9, 0.0))
    assert float(found.lift) == pytest.approx(2 * np.pi * np.sin(0.05), rel=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("angle", [-0.1, 0.0, 0.15])
def test_pressure_gives_no_drag_and_the_lift_of_kutta_and_joukowski(angle):
    def error(num_angles):
        found = joukowski.flow(50.0, angle, CENTRE, num_radii=2, num_angles=num_angles)
        drag, lift = force_coefficients(
            found.points[0], found.pressure[0], speed=50.0, angle=angle
        )
        return np.hypot(drag, lift - found.lift)

    assert error(1024) < 1e-3
    assert np.log2(error(512) / error(1024)) == pytest.approx(2, abs=0.2)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_cylinder_with_circulation_has_lift_and_no_drag(reverse):
    turns = 2 * np.pi * np.arange(400) / 400
    turns = turns[::-1] if reverse else turns
    radius, speed, circulation, angle = 0.5, 3.0, 4.0, 0.7
    points = radius * np.stack([np.cos(turns), np.sin(turns)], axis=1)
    # Clockwise circulation lifts.
    around = -2 * speed * np.sin(turns - angle) - circulation / (2 * np.pi * radius)
    pressure = 7.0 + (speed**2 - around**2) / 2
    found = force_coefficients(points, pressure, speed=speed, angle=angle)
    assert_allclose(found[0], 0, atol=1e-12)
    assert_allclose(found[1], 2 * circulation / speed, rtol=2e-4)


def test_constant_shear_pulls_along_its_direction():
    turns = 2 * np.pi * np.arange(2000) / 2000
    points = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    shear = np.broadcast_to([0.3, 0.4], points.shape)
    found = force_coefficients(
        points, np.zeros(2000), shear=shear, speed=2.0, angle=np.pi / 2, area=2.0
    )
    expected = 2 / (4 * 2) * 2 * np.pi * np.array([0.4, -0.3])
    assert_allclose(found, expected, rtol=1e-5)


def strip(rng, dtype=np.float64):
    """Returns points, cells and wall of a distorted strip of quadrilaterals."""
    x, y = np.meshgrid(np.arange(4.0), np.array([0.0, 0.1, 0.3]), indexing="ij")
    points = np.stack([x, y], -1).reshape(-1, 2)
    points[:, 0] += 0.2 * rng.normal(size=len(points)) * (points[:, 1] > 0)
    index = np.arange(12).reshape(4, 3)
    corners = (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:])
    cells = np.stack([c.reshape(-1) for c in corners], axis=1)
    return points.astype(dtype), cells, index[:, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_wall_shear_of_linear_velocities_is_exact(dtype, rng):
    points, cells, wall = strip(rng)
    gradient = rng.normal(size=(2, 2))
    velocity = (points @ gradient).astype(dtype)
    normals = rng.normal(size=(4, 2))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    found = wall_shear(
        velocity,
        normals.astype(dtype),
        wall_stencil(points, cells, wall),
        viscosity=0.5,
    )
    strain = (gradient + gradient.T) / 2
    expected = normals @ (strain - np.trace(strain) * np.eye(2) / 3)
    assert found.dtype == dtype
    tolerance = 1e-12 if dtype == np.float64 else 1e-4
    assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_flow_along_a_wall_pulls_it_along(rng):
    points, cells, wall = strip(rng)
    velocity = np.stack([3 * points[:, 1], np.zeros(12)], axis=1)
    normals = np.broadcast_to([0.0, 1.0], (4, 2))
    found = wall_shear(velocity, normals, wall_stencil(points, cells, wall))
    assert_allclose(found, [[3 * 1.56e-5, 0]] * 4, atol=1e-18)


def test_bad_input_is_refused(rng):
    points, cells, wall = strip(rng)
    with value_error("1 points of the wall are in no cell"):
        wall_stencil(np.concatenate([points, [[9.0, 9.0]]]), cells, np.r_[wall, 12])
    with value_error("no area"):
        wall_stencil(points * [1.0, 0.0], cells, wall)
    with value_error(r"\(m, 2\)"):
        force_coefficients(points[:2], points[:2, 0], speed=1.0, angle=0.0)
    with value_error("numbers of points"):
        force_coefficients(points, points[:3, 0], speed=1.0, angle=0.0)
    with value_error("num_radii=1"):
        joukowski.flow(1.0, 0.0, CENTRE, num_radii=1)
    with pytest.raises(TypeError, match="int32"):
        joukowski.flow(1.0, 0.0, CENTRE, dtype=jnp.int32)


def test_flows_are_batched_and_keep_the_dtype():
    speeds = jnp.asarray([1.0, 2.0], jnp.float32)
    found = jax.vmap(
        lambda speed: joukowski.flow(speed, 0.1, CENTRE, dtype=jnp.float32)
    )(speeds)
    assert found.points.dtype == jnp.float32
    assert_allclose(found.pressure[1], 4 * found.pressure[0], rtol=2e-3, atol=1e-3)
