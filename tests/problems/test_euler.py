import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.problems import airfoil, euler

STREAM = np.array([1.0, 0.8 * np.sqrt(1.4), 0.1, 1.0])


residual = jax.jit(euler.residual, static_argnames="num_wake")
flux, metrics = jax.jit(euler.flux), jax.jit(euler.metrics)


def states(rng, *shape):
    """Primitive states near the free stream."""
    noise = rng.uniform(-0.3, 0.3, size=(4, *shape))
    return STREAM.reshape(4, *[1] * len(shape)) + noise


def physical_flux(state, normals):
    density, u, v, pressure = state
    nx, ny = normals
    q = u * nx + v * ny
    energy = pressure / 0.4 + density * (u**2 + v**2) / 2
    return np.stack(
        [
            density * q,
            density * u * q + pressure * nx,
            density * v * q + pressure * ny,
            (energy + pressure) * q,
        ]
    )


def body(**sizes):
    given = {"num_airfoil": 16, "num_wake": 5, "num_radial": 6, "radius": 5.0} | sizes
    displacements = np.array([0, 0.03, -0.04, 0.02, 0.05, -0.01, 0.02, -0.03])
    return airfoil.mesh(displacements, **given)


def test_the_flux_of_equal_states_is_the_physical_one(rng):
    state, normals = states(rng, 50), rng.normal(size=(2, 50))
    actual = flux(state, state, normals)
    assert_allclose(actual, physical_flux(state, normals), atol=1e-12)


def test_the_flux_does_not_depend_on_the_side_it_is_seen_from(rng):
    left, right = states(rng, 50), states(rng, 50)
    normals = rng.normal(size=(2, 50))
    there = flux(left, right, normals)
    back = flux(right, left, -normals)
    assert_allclose(there, -back, atol=1e-12)


def test_supersonic_flow_is_upwind(rng):
    left, right = states(rng, 20), states(rng, 20)
    for state in (left, right):
        state[1] += 4
    normals = np.stack([np.ones(20), np.zeros(20)])
    expected = physical_flux(left, normals)
    assert_allclose(flux(left, right, normals), expected, atol=1e-12)
    expected = physical_flux(right, -normals)
    assert_allclose(flux(left, right, -normals), expected, atol=1e-12)


def test_a_contact_at_rest_is_kept():
    left, right = np.array([1.0, 0, 0.3, 1]), np.array([0.2, 0, -0.5, 1])
    flow = flux(left[:, None], right[:, None], np.array([[2.0], [0.0]]))
    assert_allclose(flow[:, 0], [0, 2, 0, 0], atol=1e-14)


def test_primitive_and_conserved_states_are_inverse(rng):
    state = states(rng, 3, 4)
    again = euler.primitive(euler.conserved(jnp.asarray(state)))
    assert_allclose(again, state, rtol=1e-12)


def test_faces_of_a_cell_close_and_volumes_are_areas_in_both_orientations():
    points = body()
    for mesh in (points, points[::-1], points * jnp.array([[[1.0, -1.0]]])):
        first, second, volumes = metrics(mesh)
        total = jnp.diff(first, axis=1) + jnp.diff(second, axis=2)
        assert_allclose(total, 0, atol=1e-12)
        assert (volumes > 0).all()
        corners = np.asarray(mesh)[[2, 3, 3, 2], [1, 1, 2, 2]]
        x, y = corners.T
        area = abs(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
        assert_allclose(volumes[2, 1], area, rtol=1e-12)
    outward = metrics(points).second_faces[:, 13, 0]
    assert float(outward @ (points[13, 1] - points[13, 0])) > 0


def test_a_uniform_stream_stays_uniform_on_the_curved_mesh_but_at_the_wall():
    geometry = metrics(body())
    uniform = jnp.broadcast_to(STREAM[:, None, None], (4, 26, 6))
    rate = residual(euler.conserved(uniform), geometry, jnp.asarray(STREAM), num_wake=5)
    assert_allclose(rate[:, :, 1:], 0, atol=1e-11)
    assert_allclose(rate[:, [0, 1, 2, 3, 4, -5, -1], 0], 0, atol=1e-12)
    assert np.abs(rate[:, 5:-5, 0]).max() > 1e-3


def test_nothing_flows_through_walls(rng):
    """All that leaves the cells leaves through the outer boundary."""
    geometry = metrics(body())
    state = states(rng, 26, 6)
    state[:, :, 1:] = STREAM[:, None, None]
    state[:, [0, 1, -1, -2]] = STREAM[:, None, None]
    rate = residual(
        euler.conserved(jnp.asarray(state)), geometry, jnp.asarray(STREAM), num_wake=5
    )
    # The outer boundary is closed up to the wake, whose two ends meet at a point.
    total = np.asarray(rate).sum(axis=(1, 2))
    assert_allclose(total[[0, 3]], 0, atol=1e-10)
    assert np.abs(np.asarray(rate)[[0, 3]]).sum() > 1


def test_linear_states_are_linear_at_nodes():
    n, m, num_wake = 12, 5, 3
    i, j = np.meshgrid(np.arange(n) + 0.5, np.arange(m) + 0.5, indexing="ij")
    # Symmetric about the wake: odd in j there would be a jump.
    state = jnp.asarray(np.stack([1 + 0.0 * i, np.abs(i - n / 2), i * 0, 2 + j * 0]))
    nodes = euler.at_nodes(state, num_wake=num_wake)
    assert nodes.shape == (4, n + 1, m + 1)
    expected = np.abs(np.arange(n + 1.0) - n / 2)
    assert_allclose(nodes[1, 1:5, 2], expected[1:5], atol=1e-12)
    rising = state.at[2].set(jnp.asarray(j))
    wall = euler.at_nodes(rising, num_wake=num_wake)[2, 4:-4, 0]
    assert_allclose(wall, 0, atol=1e-12)
    both = euler.at_nodes(state.at[3].set(jnp.asarray(i)), num_wake=num_wake)[3, :, 0]
    assert_allclose(both[:4], both[::-1][:4], atol=1e-12)


@pytest.mark.nightly
def test_one_state_of_a_batch_is_that_of_a_single_one():
    stream = jnp.asarray(STREAM)
    meshes = jnp.stack([body(), body(radius=6.0)])

    def steady(mesh):
        return euler.steady(
            metrics(mesh), stream, num_wake=5, tolerance=1e-2, max_steps=100
        )

    batch = jax.jit(jax.vmap(steady))(meshes)
    single = jax.jit(steady)(meshes[0])
    assert int(batch.num_steps[0]) == int(single.num_steps)
    assert_allclose(batch.state[0], single.state, atol=1e-10)
    assert float(single.residual) < 1e-2 or int(single.num_steps) == 100


@pytest.mark.parametrize("mach", [0.3, 2.0])
def test_mach_numbers(mach):
    state = jnp.array([1.3, mach * 0.6, mach * 0.8, 1.3 / 1.4])
    assert float(euler.mach_number(state)) == pytest.approx(mach)
