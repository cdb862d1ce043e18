import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad

from opjax.problems import bodies
from tests.refused import value_error


def smooth(*stretch):
    """A body without bumps."""
    none = np.zeros(0)
    return bodies.Body(np.array(stretch), none, none, np.zeros((0, 3)))


@pytest.fixture(scope="module")
def bumpy():
    """A body with its flow and the mesh that it is looked at on."""
    body = bodies.random_body(np.random.default_rng(2))
    return body, bodies.solve(body, num_sources=600), bodies.cubed_sphere(12)


@pytest.mark.parametrize(
    ("stretch", "depth", "error"),
    [((1.0, 1.0, 1.0), 0.45, 1e-6), ((1.4, 0.8, 1.1), 0.2, 1e-3)],
)
def test_the_flow_over_an_ellipsoid_is_the_closed_form(stretch, depth, error):
    body = smooth(*stretch)
    sources = bodies.solve(body, num_sources=800, depth=depth)
    found = bodies.surface(body, bodies.spread(101))
    squares = np.square(stretch)

    def integrand(t):
        return 1 / ((squares[0] + t) * np.sqrt(np.prod(squares + t)))

    alpha = np.prod(stretch) * quad(integrand, 0, np.inf)[0]
    along = np.eye(3)[0] - found.normals[:, :1] * found.normals
    expected = 2 / (2 - alpha) * along
    velocity = bodies.velocity(sources, found.points)
    assert_allclose(velocity, expected, atol=error)
    pressure = 1 - np.sum(expected**2, axis=1)
    assert_allclose(bodies.pressure(velocity), pressure, atol=3 * error)


def test_pressures_of_a_whole_body_add_up_to_nothing(bumpy):
    body, sources, mesh = bumpy
    found = bodies.surface(body, mesh.centres)
    areas = found.density * mesh.solid_angles
    pressure = bodies.pressure(bodies.velocity(sources, found.points))
    force = (pressure * areas) @ found.normals
    assert np.abs(force).max() < 2e-3 * np.abs(pressure * areas).sum()


def test_no_fluid_goes_through_the_body_or_comes_from_it(bumpy):
    body, sources, _ = bumpy
    assert sources.leak < 2e-3
    assert abs(sources.strengths.sum()) < 1e-6 * np.abs(sources.strengths).sum()
    far = bodies.velocity(sources, 1e3 * bodies.spread(7))
    assert_allclose(far, np.tile([1.0, 0, 0], (7, 1)), atol=1e-8)


def test_velocities_have_neither_divergence_nor_rotation(bumpy):
    _, sources, _ = bumpy
    point, step = np.array([1.2, 1.5, -0.9]), 1e-5
    steps = np.concatenate([point + step * np.eye(3), point - step * np.eye(3)])
    found = bodies.velocity(sources, steps)
    slopes = (found[:3] - found[3:]) / (2 * step)
    assert abs(np.trace(slopes)) < 1e-8
    assert_allclose(slopes, slopes.T, atol=1e-8)
    chunked = bodies.velocity(sources, steps, chunk_size=4)
    assert_allclose(chunked, found, rtol=1e-13)


def test_normals_and_areas_are_those_of_the_polygons(bumpy):
    body, _, _ = bumpy
    mesh = bodies.cubed_sphere(40)
    corners = bodies.surface(body, mesh.nodes).points[mesh.cells]
    crossed = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1]) / 2
    areas = np.linalg.norm(crossed, axis=1)
    found = bodies.surface(body, mesh.centres)
    assert_allclose(found.density * mesh.solid_angles, areas, rtol=5e-3)
    cosines = np.sum(crossed / areas[:, None] * found.normals, axis=1)
    assert cosines.min() > 0.9999


@pytest.mark.parametrize("resolution", [1, 5])
def test_cells_cover_the_sphere_once(resolution):
    mesh = bodies.cubed_sphere(resolution)
    assert mesh.cells.shape == (6 * resolution**2, 4)
    assert mesh.nodes.shape == (6 * (resolution + 1) ** 2, 3)
    assert_allclose(mesh.solid_angles.sum(), 4 * np.pi, rtol=1e-13)
    assert_allclose(mesh.solid_angles @ mesh.centres, 0, atol=1e-13)
    assert_allclose(np.linalg.norm(mesh.nodes, axis=1), 1)
    middles = mesh.nodes[mesh.cells].mean(axis=1)
    distances = np.linalg.norm(middles[:, None] - mesh.centres, axis=-1)
    assert_array_equal(distances.argmin(axis=1), np.arange(len(middles)))


def test_bad_input_is_refused():
    with value_error("resolution=0"):
        bodies.cubed_sphere(0)
    deep = smooth(1.0, 1.0, 1.0)._replace(
        heights=np.array([-1.5]), sharpness=np.ones(1), centres=np.eye(3)[:1]
    )
    with value_error("radius"):
        bodies.surface(deep, np.eye(3))
