"""Coarse spaces of an operator against dense linear algebra."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

import opjax
from opjax import schwarz
from opjax.problems import poisson_mesh
from tests.problems.test_poisson_coefficients import matrix


def dense(space):
    """Functions as columns."""
    phi = np.zeros((space.num_points, space.num_subdomains))
    columns = np.arange(space.num_subdomains)[:, None]
    np.add.at(phi, (np.asarray(space.indices), columns), np.asarray(space.weights))
    return phi


# harmonic hats


@pytest.mark.parametrize(("size", "boxes"), [(30, 4), (31, 4), (8, 8), (5, 2)])
def test_hats_are_harmonic_between_maxima(rng, size, boxes):
    coefficient = rng.uniform(0.01, 1, size=size + 1)
    phi = dense(schwarz.harmonic_hats(coefficient, boxes))
    peaks = np.argmax(dense(schwarz.interface_hats(size, boxes)), axis=0)
    assert_array_equal(phi[peaks], np.eye(boxes - 1))
    between = np.delete(np.arange(size), peaks)
    residual = matrix(coefficient) @ phi
    assert_allclose(residual[between], 0, atol=1e-9 * (size + 1) ** 2)


def test_hats_of_a_constant_coefficient_are_those_on_interfaces():
    found = schwarz.harmonic_hats(np.full(31, 7.0), 4)
    expected = schwarz.interface_hats(30, 4)
    assert_array_equal(found.indices, expected.indices)
    assert_allclose(found.weights, expected.weights, rtol=1e-12)


def test_the_galerkin_solution_is_exact_at_maxima(rng):
    coefficient = 10.0 ** rng.uniform(-2, 2, size=31)
    space, operator = schwarz.harmonic_hats(coefficient, 5), matrix(coefficient)
    phi, f = dense(space), rng.normal(size=30)
    galerkin = phi @ np.linalg.solve(phi.T @ operator @ phi, phi.T @ f)
    peaks = np.argmax(phi, axis=0)
    exact = np.linalg.solve(operator, f)
    assert_allclose(galerkin[peaks], exact[peaks], rtol=1e-9)


@pytest.mark.parametrize(
    ("coefficient", "boxes", "message"),
    [
        (np.ones((3, 3)), 2, r"coefficient has shape \(3, 3\)"),
        (np.array([1.0, 0.0, 1.0]), 2, "minimum 0.0; expected .* all positive"),
        (np.array([1.0, np.nan, 1.0]), 2, "expected .* all positive"),
        (np.ones(9), 1, "at least 2 per axis"),
        (np.ones(4), 5, "between 1 and the number of points"),
    ],
)
def test_bad_coefficients_are_refused(coefficient, boxes, message):
    with pytest.raises(ValueError, match=message):
        schwarz.harmonic_hats(coefficient, boxes)


def test_coefficients_are_floating_point():
    with pytest.raises(TypeError, match="coefficient has dtype int64"):
        schwarz.harmonic_hats(np.ones(9, int), 2)


# smoothed aggregates


@pytest.fixture(scope="module")
def elements():
    mesh = poisson_mesh.l_shaped_mesh(num_columns=12)
    return poisson_mesh.discretize(*mesh)


@pytest.fixture(scope="module")
def labels(elements):
    sizes = {"num_points": len(elements.mesh_points), "num_subdomains": 6}
    return schwarz.partition_graph(elements.edges, **sizes)


@pytest.mark.parametrize("num_steps", [0, 1, 4])
def test_aggregates_are_smoothed_as_by_dense_steps(elements, labels, num_steps):
    space = schwarz.smoothed_aggregates(labels, elements.stiffness, num_steps=num_steps)
    stiffness = elements.stiffness.toarray()
    step = np.eye(len(labels)) - 2 / 3 * stiffness / np.diag(stiffness)[:, None]
    expected = np.linalg.matrix_power(step, num_steps) @ np.eye(6)[labels]
    assert_allclose(dense(space), expected, atol=1e-12)
    assert np.asarray(space.weights).min() >= 0


def test_away_from_the_boundary_they_sum_to_one(elements, labels):
    space = schwarz.smoothed_aggregates(labels, elements.stiffness, num_steps=2)
    total = dense(space).sum(axis=1)
    assert total.max() < 1 + 1e-12
    inner = np.abs(elements.stiffness.sum(axis=1)) < 1e-12
    inner &= ~(elements.stiffness != 0)[:, ~inner].toarray().any(axis=1)
    assert inner.sum() > 10
    assert_allclose(total[inner], 1, rtol=1e-12)


def test_smoothing_lowers_the_energy(elements, labels):
    def energy(num_steps):
        given = {"num_steps": num_steps}
        phi = dense(schwarz.smoothed_aggregates(labels, elements.stiffness, **given))
        return np.sum(phi * (elements.stiffness @ phi), axis=0)

    assert np.all(energy(1) < energy(0))
    assert np.all(energy(4) < energy(1))


PATH = csr_array(2 * np.eye(4) - np.eye(4, k=1) - np.eye(4, k=-1))
BAD_CALLS = {
    "steps": (([0, 0, 1, 1], PATH, -1), "num_steps=-1 must be non-negative"),
    "shape": (([0, 0, 1], PATH, 1), r"shape \(4, 4\), expected \(3, 3\)"),
    "diagonal": (([0, 0, 1, 1], -1 * PATH, 1), "needs a positive diagonal"),
    "sign": (
        ([0, 0, 1, 1], abs(PATH), 1),
        "no positive off-diagonal entry .the maximum is 1",
    ),
    "empty part": (([0, 0, 2, 2], PATH, 1), "Subdomain 1 is empty"),
}


@pytest.mark.parametrize("case", BAD_CALLS)
def test_bad_aggregates_are_refused(case):
    (labels, operator, num_steps), message = BAD_CALLS[case]
    with pytest.raises(ValueError, match=message):
        schwarz.smoothed_aggregates(np.array(labels), operator, num_steps=num_steps)


def test_labels_are_integers():
    with pytest.raises(TypeError, match="labels has dtype float64"):
        schwarz.smoothed_aggregates(np.zeros(4), PATH, num_steps=1)


def test_any_functions_at_scattered_points_are_a_coarse_space(rng):
    basis = np.asarray(opjax.hat_basis(rng.uniform(size=(30, 2)), num_nodes=3))
    space = schwarz.coarse_space_of(basis)
    values, coefficients = rng.normal(size=(30, 2)), rng.normal(size=(9, 2))
    found = schwarz.coarse_restrict(values, space)
    assert_allclose(found, basis.T @ values, rtol=1e-12)
    found = schwarz.coarse_prolong(coefficients, space)
    assert_allclose(found, basis @ coefficients, rtol=1e-12)
    with pytest.raises(ValueError, match=r"functions \[1\] are zero at all points"):
        schwarz.coarse_space_of(np.eye(3)[:, :2] * [1, 0])
    with pytest.raises(TypeError, match="runs on the host"):
        jax.jit(schwarz.coarse_space_of)(basis)
