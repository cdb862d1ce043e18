"""Quantities of interest against closed forms and plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from opjax import geometry, quantities
from tests import refused

_RNG = np.random.default_rng(0)
_VALUES, _WEIGHTS = _RNG.normal(size=(7, 2)), _RNG.uniform(0.5, 2, 7)


def _box(sizes=(2.0, 3.0, 0.5)):
    corners = np.array(
        [[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float
    )
    quads = [
        [0, 1, 3, 2],
        [4, 6, 7, 5],
        [0, 4, 5, 1],
        [2, 3, 7, 6],
        [0, 2, 6, 4],
        [1, 5, 7, 3],
    ]
    return corners * sizes + [1.0, -2, 0.3], np.array(quads), np.prod(sizes)


def _sphere(rings=24, around=48):
    """A sphere of triangles, and the volume of that polyhedron as divergences give."""
    theta = np.linspace(0, np.pi, rings + 1)[1:-1]
    phi = 2 * np.pi * np.arange(around) / around
    t, f = np.meshgrid(theta, phi, indexing="ij")
    middle = np.stack([np.sin(t) * np.cos(f), np.sin(t) * np.sin(f), np.cos(t)], -1)
    points = np.concatenate([[[0, 0, 1.0]], middle.reshape(-1, 3), [[0, 0, -1.0]]])
    faces, last = [], len(points) - 1
    for j in range(around):
        k = (j + 1) % around
        faces.append([0, 1 + j, 1 + k])
        for i in range(rings - 2):
            a, b = 1 + i * around + j, 1 + i * around + k
            faces += [[a, a + around, b + around], [a, b + around, b]]
        a = 1 + (rings - 2) * around
        faces.append([a + j, last, a + k])
    tetrahedra = np.linalg.det(points[np.array(faces)]) / 6
    return points, np.array(faces), tetrahedra.sum()


def _polygon():
    angles = np.sort(_RNG.uniform(0, 2 * np.pi, 31))
    points = np.stack([2 * np.cos(angles), np.sin(angles) + 0.3], -1)
    after = np.roll(points, -1, axis=0)
    area = np.sum(points[:, 0] * after[:, 1] - points[:, 1] * after[:, 0]) / 2
    sides = np.arange(31)
    return points, np.stack([sides, np.roll(sides, -1)], -1), area


SURFACES = {"box": _box(), "sphere": _sphere(), "polygon": _polygon()}


@pytest.mark.parametrize("name", SURFACES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constant_pressure_on_a_closed_surface_has_no_force(name, dtype):
    points, facets, _ = SURFACES[name]
    vectors = geometry.point_area_vectors(points, facets).astype(dtype)
    pressure = np.full(len(points), 1e5, dtype)
    area = np.linalg.norm(vectors, axis=1).sum()
    with jax.enable_x64(dtype == np.float64):
        found = quantities.force(pressure, vectors)
    assert found.dtype == dtype
    assert np.abs(found).max() < 1e-6 * area * 1e5


@pytest.mark.parametrize("name", SURFACES)
def test_linear_pressure_gives_the_buoyancy(name):
    points, facets, volume = SURFACES[name]
    vectors = geometry.point_area_vectors(points, facets)
    slope = np.arange(1.0, 1 + points.shape[1])
    with jax.enable_x64(True):
        found = quantities.force(points @ slope + 5, -vectors)
    assert_allclose(found, -slope * volume, rtol=1e-10)


def test_volume_of_the_sphere_converges():
    assert abs(SURFACES["sphere"][2] / (4 * np.pi / 3) - 1) < 0.01


def test_buoyancy_acts_at_the_centre_of_volume():
    corners = np.array([[1.0, -2], [3, -2], [3, 1], [1, 1]])
    sides, middle, slope = _closed(4), np.array([2.0, -0.5]), np.array([0.0, 2])
    where, vectors = _simpson(corners, sides)  # exact for quadratic functions
    with jax.enable_x64(True):
        given = where @ slope, -vectors, where
        about_middle = quantities.moment(*given, center=middle)
        about_origin = quantities.moment(*given, center=np.zeros(2))
    assert_allclose(about_middle, 0, atol=1e-12)
    assert_allclose(about_origin, -middle[0] * 2 * 6, rtol=1e-12)


def test_moment_in_space_moves_with_its_center():
    points, facets, _ = SURFACES["box"]
    vectors = geometry.facet_area_vectors(points, facets)
    where, pressure = points[facets].mean(axis=1), _RNG.normal(size=6)
    with jax.enable_x64(True):
        given = pressure, vectors, where
        found = [
            quantities.moment(*given, center=c) for c in (np.zeros(3), [1.0, 2, 3])
        ]
    forces = pressure[:, None] * vectors
    assert_allclose(found[0], np.cross(where, forces).sum(axis=0))
    assert_allclose(
        found[0] - found[1], np.cross([1.0, 2, 3], forces.sum(axis=0)), rtol=1e-10
    )


def _closed(count):
    return np.stack([np.arange(count), (np.arange(count) + 1) % count], -1)


def _simpson(corners, facets):
    vectors = geometry.facet_area_vectors(corners, facets)
    a, b = corners[facets[:, 0]], corners[facets[:, 1]]
    where = np.concatenate([a, (a + b) / 2, b])
    return where, np.concatenate([vectors / 6, 4 * vectors / 6, vectors / 6])


def test_integrals_means_and_extremes_are_those_of_numpy():
    with jax.enable_x64(True):
        given = _VALUES, _WEIGHTS
        assert_allclose(quantities.integral(*given), _WEIGHTS @ _VALUES)
        assert_allclose(
            quantities.mean(*given), np.average(_VALUES, axis=0, weights=_WEIGHTS)
        )
        assert_array_equal(quantities.maximum(*given), _VALUES.max(axis=0))
        assert_array_equal(quantities.minimum(_VALUES[:, 0]), _VALUES[:, 0].min())


@pytest.mark.parametrize("name", ["integral", "mean", "maximum", "minimum"])
def test_points_of_weight_zero_change_nothing(name):
    function = getattr(quantities, name)
    padded = np.concatenate([_VALUES, np.full((2, 2), np.nan)]).astype(np.float32)
    weights = np.append(_WEIGHTS, [0, 0]).astype(np.float32)
    expected = function(padded[:-2], weights[:-2])
    assert_allclose(function(padded, weights), expected, rtol=1e-6)
    slope = jax.jit(jax.grad(lambda v: function(v, weights).sum()))(padded)
    assert np.isfinite(slope).all()
    assert not np.any(slope[-2:])


def test_gradients_are_those_of_differences():
    vectors = _RNG.normal(size=(7, 2))
    shear, points = _RNG.normal(size=(2, 7, 2))
    center = np.array([0.2, -1])

    @jax.jit
    def all_of(values, weights, vectors, shear, points, angle):
        pressure = values[:, 0]
        force = quantities.force(pressure, vectors, shear=shear)
        turned = quantities.drag_and_lift(force, angle=angle)
        return (
            quantities.integral(values, weights),
            quantities.mean(values, weights),
            quantities.maximum(values, weights),
            quantities.minimum(values),
            quantities.coefficient(turned, speed=3.0, density=2.0, area=0.5),
            quantities.moment(pressure, vectors, points, center=center, shear=shear),
        )

    with jax.enable_x64(True):
        given = _VALUES, _WEIGHTS, vectors, shear, points, 0.3
        check_grads(all_of, jax.tree.map(jnp.asarray, given), order=1)


def test_shear_of_a_point_off_the_wall_has_a_finite_gradient():
    def total(vectors):
        return quantities.force(jnp.ones(2), vectors, shear=jnp.ones((2, 2))).sum()

    found = jax.jit(jax.grad(total))(jnp.array([[0.0, 0], [3, 4]]))
    assert_allclose(found, [[1, 1], [1 + 2 * 0.6, 1 + 2 * 0.8]], rtol=1e-6)


def test_forces_of_a_batch_are_those_of_its_samples():
    pressure = _RNG.normal(size=(3, 7)).astype(np.float32)
    vectors = _RNG.normal(size=(3, 7, 3)).astype(np.float32)
    found = jax.jit(jax.vmap(quantities.force))(pressure, vectors)
    expected = np.einsum("bn,bnp->bp", pressure, vectors)
    assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_drag_points_along_the_flow_and_lift_to_its_left():
    angle = 0.3
    along = np.array([np.cos(angle), np.sin(angle)], np.float32)
    across = np.array([-along[1], along[0]])
    for force, expected in ((along, [1, 0]), (across, [0, 1])):
        found = quantities.drag_and_lift(force, angle=angle)
        assert_allclose(found, expected, atol=1e-6)


def test_coefficients_divide_by_the_dynamic_pressure():
    found = quantities.coefficient(6.0, density=3.0, speed=2.0, area=4.0, length=0.5)
    assert found == 6 / (0.5 * 3 * 2**2 * 4 * 0.5)


test_what_does_not_fit_is_refused = refused.calls(
    (lambda: quantities.integral(np.ones(3), np.ones(4)), "Different numbers"),
    (lambda: quantities.integral(np.ones((1, 3, 1)), np.ones(1)), "jax.vmap"),
    (lambda: quantities.maximum(np.ones((1, 3, 1))), "jax.vmap"),
    (lambda: quantities.force(np.ones(3), np.ones(3)), "area_vectors"),
    (
        lambda: quantities.force(np.ones(3), np.ones((3, 2)), shear=np.ones((3, 3))),
        "channels",
    ),
    (
        lambda: quantities.moment(
            np.ones(3), np.ones((3, 2)), np.ones((3, 2)), center=np.ones(3)
        ),
        "center",
    ),
    (
        lambda: quantities.moment(
            np.ones(3), np.ones((3, 1)), np.ones((3, 1)), center=np.ones(1)
        ),
        "2 or 3",
    ),
    (lambda: quantities.drag_and_lift(np.ones(3), angle=0.0), r"expected \(2,\)"),
    (lambda: quantities.coefficient(1.0, area=0.0), "area=0.0"),
)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="values has dtype"):
        quantities.integral(np.ones(3, int), np.ones(3))


def _curve(count=400):
    turns = 2 * np.pi * np.arange(count) / count
    points = np.stack([np.cos(turns) + 0.2 * np.cos(3 * turns), 0.1 * np.sin(turns)], 1)
    return points, _closed(count)


@pytest.mark.parametrize("place", [0.0, 101325.0, 1e7, -1e12])
@pytest.mark.parametrize("unit", [1.0, 1e-9])
def test_an_absolute_pressure_has_the_force_and_moment_of_the_gauge(place, unit):
    for points, facets in (_curve(), SURFACES["sphere"][:2]):
        points = points * unit
        vectors = geometry.point_area_vectors(points, facets)
        gauge = (3 * points[:, 1] + points[:, 0] ** 2 / unit) / unit
        place_in_units = np.float64(place)
        gauge = (place_in_units + gauge) - place_in_units  # what float64 can hold
        expected = gauge @ -vectors
        center = np.full(points.shape[1], 0.3 * unit)
        arms, forces = points - center, -gauge[:, None] * vectors
        if points.shape[1] == 3:
            turned = np.cross(arms, forces).sum(axis=0)
        else:
            turned = (arms[:, 0] * forces[:, 1] - arms[:, 1] * forces[:, 0]).sum()
        given = place + gauge, -vectors
        size = (np.abs(gauge)[:, None] * np.abs(vectors)).sum()
        for double in (False, True):
            with jax.enable_x64(double):
                force = quantities.force(*given)
                found = quantities.moment(*given, points, center=center)
            assert force.dtype == (np.float64 if double else np.float32)
            assert_allclose(force, expected, atol=1e-6 * size)
            assert_allclose(found, turned, atol=2e-6 * size * unit)


def test_the_force_on_an_open_wall_keeps_its_constant():
    points, facets = _curve()
    vectors = geometry.point_area_vectors(points, facets[:120])
    pressure = 101325 + points[:, 1]
    expected = pressure @ vectors
    with jax.enable_x64(False):
        for arrays in ((pressure, vectors), map(jnp.asarray, (pressure, vectors))):
            found = quantities.force(*arrays)
            assert_allclose(found, expected, rtol=1e-6)


def test_arrays_of_jax_have_the_force_of_their_values_to_rounding():
    points, facets = _curve()
    vectors = -geometry.point_area_vectors(points, facets).astype(np.float32)
    pressure = (1e4 + 3 * points[:, 1]).astype(np.float32)
    exact = (pressure.astype(float) - 1e4) @ vectors.astype(float)
    found = quantities.force(jnp.asarray(pressure), jnp.asarray(vectors))
    assert_allclose(found, exact, rtol=1e-6, atol=1e-6)
    slope = jax.jit(jax.grad(lambda a: quantities.force(pressure, a)[0]))(vectors)
    assert_allclose(slope[:, 0], pressure, rtol=1e-6)


def test_pressures_off_the_wall_are_not_read():
    vectors = np.array([[1.0, 2], [0, 0], [-3, 1]])
    pressure = np.array([2.0, np.nan, 1])
    assert_allclose(quantities.force(pressure, vectors), [-1, 5], rtol=1e-6)
    found = quantities.force(jnp.asarray(pressure), jnp.asarray(vectors))
    assert_allclose(found, [-1, 5], rtol=1e-6)


def test_shear_acts_on_areas_of_any_size():
    for unit in (1e-18, 1.0, 1e18):
        vectors = unit * np.array([[3.0, 4], [0, 2]], np.float32)
        found = quantities.force(np.zeros(2), vectors, shear=np.ones((2, 2)))
        assert_allclose(found, [7 * unit] * 2, rtol=1e-6)
