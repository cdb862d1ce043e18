import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import elastoplastic as sheet
from opjax.problems import plasticity as problem
from opjax.problems.elastoplastic import STEEL
from tests.refused import value_error

COARSE = {"num_across": 5, "travel": 1.5, "num_frames": 4}


@pytest.fixture
def mesh(rng):
    """Returns nodes of an irregular mesh of 5 x 4 nodes."""
    nodes = problem.reference_mesh((5, 4))
    return nodes + rng.uniform(-1, 1, nodes.shape) * np.array([2.0, 1.0])[:, None, None]


def compliance():
    """Maps plane stress xx, yy, xy to strain, the shear one doubled."""
    rows = [[1, -STEEL.poisson, 0], [-STEEL.poisson, 1, 0]]
    return np.array([*rows, [0, 0, 2 * (1 + STEEL.poisson)]]) / STEEL.young


def mises(stress):
    xx, yy, xy = stress
    return np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


def linear(mesh, matrix):
    return np.einsum("ab,bij->aij", matrix, mesh)


def still(mesh, **changes):
    return sheet.initial_state(jnp.asarray(mesh))._replace(**changes)


def test_patch_of_irregular_elements_carries_uniform_stress(mesh):
    matrix = np.array([[2e-5, 3e-5], [1e-5, -1e-5]])
    state = still(mesh, velocity=jnp.asarray(linear(mesh, matrix)))
    state = sheet.update_stress(state, jnp.asarray(mesh), 1.0, STEEL)
    strain = [matrix[0, 0], matrix[1, 1], matrix[0, 1] + matrix[1, 0]]
    expected = np.linalg.solve(compliance(), strain)
    actual = np.asarray(state.stress).reshape(3, -1)
    assert_allclose(actual, expected[:, None] + 0 * actual, rtol=1e-4)
    assert_allclose(state.hourglass, 0, atol=1e-10)
    across = -STEEL.poisson / STEEL.young * (expected[0] + expected[1])
    assert_allclose(state.thickness, np.exp(across), rtol=1e-8)
    state = state._replace(thickness=jnp.ones_like(state.thickness))
    forces = sheet.internal_forces(jnp.asarray(mesh), state)
    inner, scale = np.asarray(forces)[:, 1:-1, 1:-1], np.abs(forces).max()
    assert_allclose(inner, 0, atol=1e-4 * scale)
    assert_allclose(np.sum(forces, axis=(1, 2)), 0, atol=1e-10 * scale)


def test_forces_do_the_work_of_the_stresses(mesh, rng):
    shape = 4, 3
    velocity = rng.normal(size=mesh.shape)
    stress, hold = rng.normal(size=(3, *shape)), rng.normal(size=(2, *shape))
    thickness = rng.uniform(0.5, 1.5, shape)
    state = still(mesh, stress=stress, hourglass=hold, thickness=thickness)
    power = np.sum(
        np.asarray(sheet.internal_forces(jnp.asarray(mesh), state)) * velocity
    )
    expected = 0.0
    for i, j in np.ndindex(*shape):
        corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)]
        x = np.array([mesh[:, a, b] for a, b in corners])
        v = np.array([velocity[:, a, b] for a, b in corners])
        # Derivatives of the bilinear functions at the centre of the element.
        local = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) / 4
        jacobian = x.T @ local
        shapes = local @ np.linalg.inv(jacobian)
        gradient = v.T @ shapes
        xx, yy, xy = stress[:, i, j]
        density = np.sum(np.array([[xx, xy], [xy, yy]]) * gradient)
        signs = np.array([1, -1, 1, -1])
        mode = v.T @ (signs - shapes @ (x.T @ signs))
        area = 4 * np.linalg.det(jacobian)
        expected -= thickness[i, j] * (area * density + hold[:, i, j] @ mode)
    assert power == pytest.approx(expected, rel=1e-12)


def test_turning_the_sheet_turns_its_stress_and_no_more(mesh, rng):
    angle = 0.7
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    stress, hold = rng.normal(size=(3, 4, 3)), rng.normal(size=(2, 4, 3))
    after = linear(mesh, turn)
    state = still(mesh, stress=stress, hourglass=hold, velocity=after - mesh)
    state = sheet.update_stress(state, jnp.asarray((mesh + after) / 2), 1.0, STEEL)
    xx, yy, xy = stress
    tensor = np.moveaxis(np.array([[xx, xy], [xy, yy]]), (0, 1), (2, 3))
    tensor = turn @ tensor @ turn.T
    expected = [tensor[..., 0, 0], tensor[..., 1, 1], tensor[..., 0, 1]]
    assert_allclose(state.stress, expected, atol=1e-9)
    assert_allclose(state.hourglass, linear(hold, turn), atol=1e-9)
    assert_allclose(state.thickness, 1, atol=1e-13)


def test_stresses_return_to_the_nearest_point_of_the_yield_surface(rng):
    trial = rng.normal(size=(3, 12)) * np.array([60.0, 60.0, 40.0])[:, None]
    mean, half, shear = trial
    trial_stress = np.stack([mean + half, mean - half, shear])
    assert 0 < np.sum(mises(trial_stress) > STEEL.yield_stress) < 12
    new, amount = map(np.asarray, sheet.return_to_yield(jnp.asarray(trial)))
    actual = np.stack([new[0] + new[1], new[0] - new[1], new[2]])
    for start, found, multiplier in zip(trial_stress.T, actual.T, amount, strict=True):
        if mises(start) <= STEEL.yield_stress:
            assert_allclose(found, start, rtol=1e-13)
            assert multiplier == 0
            continue
        assert mises(found) == pytest.approx(STEEL.yield_stress, rel=1e-9)
        # The associated flow of backward Euler is the projection in energy.
        nearest = scipy.optimize.minimize(
            lambda s, start=start: (s - start) @ compliance() @ (s - start) * 1e5,
            found * 0.5,
            constraints={"type": "ineq", "fun": lambda s: 1 - mises(s) / 70},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        assert_allclose(found, nearest.x, atol=2e-3)


def test_uniaxial_compression_yields_at_the_yield_stress():
    # Base and top only slide; held nodes keep their first speed.
    reference = problem.reference_mesh((6, 4)) * 0.1
    free = np.ones(reference.shape)
    free[1, :, [0, -1]] = 0
    free[0, 0, :] = 0
    height, speed = reference[1, 0, 0] - reference[1, 0, -1], 0.05
    step = sheet.time_step(reference)
    velocity = np.zeros(reference.shape)
    velocity[1] = -speed * (reference[1] - reference[1, 0, -1]) / height
    state = still(reference, velocity=jnp.asarray(velocity))
    advance = sheet.make_step(reference, free=free, step=jnp.asarray(step))
    zero = jnp.zeros_like(state.velocity)
    run = jax.jit(
        lambda state, n: jax.lax.fori_loop(0, n, lambda _, s: advance(s, zero), state)
    )

    def strain(state):
        return (
            float(state.displacement[1, 0, 0] - state.displacement[1, 0, -1]) / height
        )

    state = run(state, int(2e-4 * height / speed / step))
    elastic = np.mean(state.stress, axis=(1, 2))
    assert elastic[1] == pytest.approx(STEEL.young * strain(state), rel=0.03)
    assert abs(elastic[0]) < 0.03 * abs(elastic[1])
    state = run(state, int(0.02 * height / speed / step))
    assert strain(state) < -0.02
    stress = np.asarray(state.stress)
    assert_allclose(stress[1], -STEEL.yield_stress, rtol=0.01)
    assert_allclose(stress[[0, 2]], 0, atol=0.02 * STEEL.yield_stress)
    # Plastic flow keeps the volume, and both lateral strains are equal.
    lateral = -0.5 * np.log(1 + strain(state))
    assert_allclose(np.log(state.thickness), lateral, rtol=0.02)


@pytest.mark.parametrize("yield_stress", [1e6, 20.0])
def test_motion_deformation_and_plastic_work_share_the_energy(yield_stress):
    material = STEEL._replace(yield_stress=yield_stress)
    reference = problem.reference_mesh((9, 5)) * 0.1
    x, y = (reference - reference.mean(axis=(1, 2), keepdims=True)) / 2.5
    velocity = 3.0 * np.stack([np.sin(2 * x) + y * x, np.cos(3 * x) * y])
    masses = sheet.nodal_masses(reference, material)
    step = sheet.time_step(reference, material) / 4
    advance = sheet.make_step(
        reference,
        free=np.ones(masses.shape),
        step=jnp.asarray(step),
        material=material,
        bulk_viscosity=0.0,
    )
    mesh = jnp.asarray(reference)

    def energies(state):
        a, b, c, d = sheet._corners(mesh + state.displacement)
        p, q = c - a, d - b
        volume = state.thickness * (p[0] * q[1] - p[1] * q[0]) / 2
        xx, yy, xy = state.stress
        mean, half = (xx + yy) / 2, (xx - yy) / 2
        density = 2 * (1 - material.poisson) / material.young * mean**2
        density = (density + (half**2 + xy**2) / material.shear) / 2
        held = state.hourglass**2 / (2 * sheet._HOURGLASS * material.plane)
        stored = jnp.sum(volume * density) + jnp.sum(state.thickness[None] * held)
        return stored, jnp.sum(state.dissipated)

    def body(state, _):
        new = advance(state, jnp.zeros_like(mesh))
        squares = (state.velocity**2 + new.velocity**2) / 2
        kinetic = jnp.sum(jnp.asarray(masses)[None] * squares) / 2
        return new, jnp.stack([kinetic, *energies(state)])

    state = still(reference, velocity=jnp.asarray(velocity))
    history = np.asarray(
        jax.jit(lambda s: jax.lax.scan(body, s, length=2000)[1])(state)
    )
    assert_allclose(history.sum(axis=1), history[0].sum(), rtol=0.01)
    assert history[:, 0].min() < 0.9 * history[0, 0]
    dissipated = history[-1, 2] / history[0, 0]
    assert dissipated > 0.3 if yield_stress < 1e3 else dissipated == 0


@pytest.mark.nightly
def test_a_mirrored_die_gives_the_mirrored_motion():
    die = problem.die_profile(jax.random.key(0), num_points=13)
    motion, mirrored = (
        np.asarray(problem.solve(d, **COARSE)) for d in (die, die[::-1])
    )
    expected = mirrored[::-1].copy()
    middle = 0.35 - 25.0
    expected[..., 0] = 2 * middle - expected[..., 0]
    expected[..., 2] *= -1
    assert_allclose(motion, expected, atol=1e-7)
    assert np.abs(motion[..., 3]).max() > 1


def test_the_block_stays_below_the_die_and_on_its_base():
    die = problem.die_profile(jax.random.key(1), num_points=13)
    motion = np.asarray(problem.solve(die, **COARSE))
    reference = np.moveaxis(problem.reference_mesh((13, 5)), 0, -1)
    assert_array_equal(motion[:, :, 0, :2], reference)
    position, displacement = motion[..., :2], motion[..., 2:]
    assert_allclose(position - displacement, reference[:, :, None] + 0 * position)
    assert_array_equal(displacement[:, -1], 0)
    x = reference[:, 0, 0]
    for frame in range(4):
        upper = motion[:, 0, frame]
        lower = 14.9 + np.interp(-upper[:, 0], -x, die) - 1.5 * frame / 3
        assert (upper[:, 1] < lower + 0.02).all()
    # Somewhere it touches.
    assert (upper[:, 1] > lower - 0.02).any()


def test_nothing_moves_before_the_die_arrives():
    motion = problem.solve(jnp.full(9, 2.0), **COARSE)
    assert_array_equal(motion[..., 2:], 0)


@pytest.mark.nightly
def test_profiles_pass_through_eight_heights_without_a_kink():
    keys = jax.random.split(jax.random.key(0), 50)
    fine = jax.vmap(lambda key: problem.die_profile(key, num_points=7001))(keys)
    assert float(fine.min()) == 0
    assert 1 < float(jnp.mean(fine.max(axis=1))) < 3.5
    slopes = np.diff(np.asarray(fine), axis=1) * 1000  # per distance of the heights
    assert np.abs(np.diff(slopes, axis=1)).max() < 0.05
    coarse = problem.die_profile(keys[0], num_points=8)
    assert float(np.max(np.abs(coarse - fine[0, ::1000]))) < 0.2
    doubled = problem.die_profile(keys[0], num_points=8, amplitude=6.0)
    assert_allclose(doubled, 2 * coarse, rtol=1e-12)


@pytest.mark.nightly
def test_samples_are_solutions_below_their_die_in_single_precision_too():
    drawn = problem.sample(
        jax.random.key(2), num_points=(9, 4), num_frames=3, dtype=jnp.float32
    )
    assert drawn.motion.shape == (9, 4, 3, 4)
    assert drawn.motion.dtype == drawn.die.dtype == jnp.float32
    exact = problem.solve(drawn.die.astype(float), num_across=4, num_frames=3)
    difference = np.asarray(drawn.motion, float)[..., 2:] - exact[..., 2:]
    assert np.abs(difference).max() < 1e-2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"die": np.ones((3, 3))}, "die has shape"),
        ({"die": np.ones(1)}, "at least 2"),
        ({"num_across": 1}, "at least 2"),
        ({"num_frames": 1}, "num_frames=1"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"die": np.ones(5)} | changes
    with value_error(message):
        problem.solve(arguments.pop("die"), **arguments)


def test_bad_profiles_are_refused():
    with pytest.raises(TypeError, match="floating"):
        problem.solve(np.ones(5, int))
    with value_error("num_points=1"):
        problem.die_profile(jax.random.key(0), num_points=1)
    with value_error("amplitude=0"):
        problem.die_profile(jax.random.key(0), amplitude=0)
