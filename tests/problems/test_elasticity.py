import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.problems import elasticity
from tests.refused import value_error

skfem = pytest.importorskip("skfem")


@pytest.fixture
def modes():
    """Returns the modes of a void without symmetry."""
    return np.asarray(elasticity.void_modes(jax.random.key(1)))


def direct_stress(strain, *, c1=1.863e5, c2=9.79e3):
    """The law in three dimensions, one strain at a time."""
    right = np.eye(3)
    right[:2, :2] += 2 * strain
    right[2, 2] = 1 / np.linalg.det(right[:2, :2])
    elastic = 2 * c1 * np.eye(3) + 2 * c2 * (right + np.trace(right) * np.eye(3))
    inverse = np.linalg.inv(right)
    pressure = elastic[2, 2] / inverse[2, 2]
    found = elastic - pressure * inverse
    assert abs(found[2, 2]) < 1e-6
    return found[:2, :2]


def test_radius_of_the_void_is_a_bounded_sum_of_waves(modes):
    angles = np.linspace(-4, 4, 7)
    expected = []
    for t in angles:
        s = 0.0
        for k in range(1, 6):
            wave = modes[0, k - 1] * np.cos(k * t) + modes[1, k - 1] * np.sin(k * t)
            s += 16 * wave / (np.sqrt(np.pi) * (k * k + 9))
        expected.append(0.2 + 0.2 / (1 + np.exp(s)))
    actual = elasticity.void_radius(modes, angles)
    assert_allclose(actual, expected, rtol=1e-13)
    many = elasticity.void_radius(40 * modes, np.linspace(0, 7, 100))
    assert 0.2 <= many.min() < 0.201
    assert 0.399 < many.max() <= 0.4


def test_a_void_of_jax_arrays_has_the_gradient_of_differences(rng):
    modes, angles = rng.normal(size=(2, 5)), rng.uniform(-4, 4, 20)

    def radii(modes):
        return elasticity.void_radius(jnp.asarray(modes), angles)

    assert_allclose(radii(modes), elasticity.void_radius(modes, angles))
    jax.test_util.check_grads(jax.jit(radii), (modes,), order=1, atol=1e-6, rtol=1e-6)


def test_reference_mesh_fills_the_square_without_a_disc():
    mesh = elasticity.reference_mesh()
    assert mesh.t.shape == (4, 108)
    basis = elasticity.vector_basis(mesh)
    assert basis.dx.size == 972
    assert basis.dx.min() > 0
    assert basis.dx.sum() == pytest.approx(1 - 0.09 * np.pi, rel=1e-6)
    corners = {(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)}
    assert corners <= {(x, y) for x, y in mesh.p.T.round(12)}


def test_morphed_mesh_has_the_radius_of_the_void_and_the_sides_of_the_cell(modes):
    mesh = elasticity.reference_mesh()
    moved = elasticity.morphed_mesh(mesh, modes)
    before, after = mesh.doflocs - 0.5, moved.doflocs - 0.5
    angle = np.arctan2(*before[::-1])
    assert_allclose(np.arctan2(*after[::-1]), angle, atol=1e-12)
    void = np.hypot(*before) < 0.3 + 1e-9
    assert void.sum() == 72
    expected = elasticity.void_radius(modes, angle[void])
    assert_allclose(np.hypot(*after[:, void]), expected, rtol=1e-12)
    far = np.hypot(*before) >= 0.5
    assert_allclose(after[:, far], before[:, far], atol=1e-15)
    unmoved = elasticity.morphed_mesh(mesh, 0 * modes)
    assert_allclose(unmoved.doflocs, mesh.doflocs, atol=1e-15)


def test_stress_is_that_of_the_law_in_three_dimensions(rng):
    strain = 0.05 * rng.normal(size=(2, 3, 2, 2))
    strain += strain.swapaxes(-1, -2)
    expected = [[direct_stress(e) for e in row] for row in strain]
    assert_allclose(elasticity.stress(strain), expected, rtol=1e-10)


def test_small_strains_are_those_of_an_incompressible_sheet(rng):
    strain = rng.normal(size=(2, 2))
    strain += strain.T
    shear = 2 * 1.863e5 + 10 * 9.79e3
    expected = 2 * shear * (strain + np.trace(strain) * np.eye(2))
    actual = elasticity.stress(1e-6 * strain) / 1e-6
    assert_allclose(actual, expected, rtol=1e-4, atol=10)


def test_von_mises_of_tension_and_shear_in_any_direction():
    turn = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])
    stress = np.array([[[3.0, 0], [0, 0]], [[0, 2.0], [2.0, 0]], [[1.0, 0], [0, 1.0]]])
    turned = turn @ stress @ turn.T
    assert_allclose(elasticity.von_mises(turned), [3, 2 * np.sqrt(3), 1])


def test_elements_converge_with_third_order_and_stresses_with_second():
    """The load is the inner work of a given displacement, zero on the lower side."""
    size = 1e-3

    def given(x, y):
        field = np.array([y * np.sin(3 * x), y * y * np.cos(2 * x)])
        gradient = np.array(
            [
                [3 * y * np.cos(3 * x), np.sin(3 * x)],
                [-2 * y * y * np.sin(2 * x), 2 * y * np.cos(2 * x)],
            ]
        )
        return size * field, size * gradient

    def symmetric_stress(gradient):
        strain = (gradient + gradient.swapaxes(0, 1)) / 2
        stress = elasticity.stress(np.moveaxis(strain, (0, 1), (2, 3)))
        return np.moveaxis(stress, (2, 3), (0, 1))

    def errors(num_across):
        mesh = elasticity.reference_mesh(
            num_around=8 * num_across, num_across=num_across
        )
        basis = elasticity.vector_basis(mesh)
        field, gradient = given(*np.asarray(basis.global_coordinates()))
        stress = symmetric_stress(gradient)
        load = skfem.LinearForm(
            lambda v, w: skfem.helpers.ddot(w["s"], skfem.helpers.sym_grad(v))
        ).assemble(basis, s=stress)
        found = basis.interpolate(elasticity.equilibrium(basis, load))
        differences = (
            np.asarray(found) - field,
            symmetric_stress(np.asarray(found.grad)) - stress,
        )
        return np.array([np.sqrt((d**2 * basis.dx).sum()) for d in differences])

    orders = np.log2(errors(2) / errors(4))
    assert orders[0] == pytest.approx(3, abs=0.25)
    assert orders[1] == pytest.approx(2, abs=0.25)


def test_stress_balances_the_traction(modes):
    """With the virtual displacement `(0, y)` the work of the traction is itself."""
    mesh = elasticity.morphed_mesh(elasticity.reference_mesh(), modes)
    solution = elasticity.solve(mesh)
    average = (solution.weights[:, None, None] * solution.stress).sum(axis=0)
    assert average[1, 1] == pytest.approx(100, rel=1e-9)
    assert solution.points.shape == solution.displacement.shape == (972, 2)
    twice = elasticity.solve(mesh, traction=200.0)
    ratio = twice.displacement[:, 1].max() / solution.displacement[:, 1].max()
    assert ratio == pytest.approx(2, rel=5e-3)
    assert 1e-4 < solution.displacement[:, 1].max() < 1e-3


def test_stresses_are_in_the_published_range(modes):
    """Of 2000 samples: means from 150 to 258, largest values from 475 to 1440."""
    mesh = elasticity.reference_mesh()
    for factor in (1, -1):
        solution = elasticity.solve(elasticity.morphed_mesh(mesh, factor * modes))
        values = elasticity.von_mises(solution.stress)
        assert 140 < values.mean() < 270
        assert 420 < values.max() < 1500
        assert values.min() < 40


def test_stresses_agree_with_those_on_the_published_mesh(shared_dir, modes):
    with np.load(shared_dir / "data/pde/unitcell_mesh_q9.npz") as file:
        used, cells = np.unique(file["matrix_q9"], return_inverse=True)
        nodes, cells = file["nodes"][used], cells.reshape(-1, 9)
    published = skfem.MeshQuad2(nodes.T, cells.T)

    def solve(mesh):
        solution = elasticity.solve(elasticity.morphed_mesh(mesh, modes))
        values = elasticity.von_mises(solution.stress)
        return values, solution.weights

    (ours, w), (theirs, v) = solve(elasticity.reference_mesh()), solve(published)
    assert ours.size == theirs.size == 972
    assert w.sum() == pytest.approx(v.sum(), rel=1e-4)
    assert ours @ w == pytest.approx(theirs @ v, rel=5e-3)
    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.05)
    assert ours.max() == pytest.approx(theirs.max(), rel=0.1)


def test_wrong_arguments_are_named_in_the_error():
    with value_error(r"\(10,\), expected \(2, 5\)"):
        elasticity.void_radius(np.zeros(10), 0.0)
    with value_error("num_around=6 must be a multiple of 4"):
        elasticity.reference_mesh(num_around=6)
    with value_error("num_across"):
        elasticity.reference_mesh(num_across=0)
    mesh = elasticity.reference_mesh(num_around=8, num_across=1)
    with pytest.raises(RuntimeError, match="lower the traction"):
        elasticity.solve(mesh, traction=1e6)
