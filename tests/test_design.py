"""Design: known optima, and what keeps a design where it is trusted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import design, geometry
from tests import refused
from tests.learn.test_functions import check_gradient, doubled, ring

SQUARE = {"x": (-2.0, 2.0)}


def valley(case):
    """The function of Rosenbrock, smallest at (1, 1)."""
    x, y = case["x"]
    return (1 - x) ** 2 + 10 * (y - x**2) ** 2


def grid(size=5):
    """Points and quadrilaterals of a square, and the points on its boundary."""
    axis = np.linspace(0, 1, size)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    index = np.arange(size**2).reshape(size, size)
    corners = index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]
    edge = np.flatnonzero(np.any((points == 0) | (points == 1), axis=1))
    return points, np.stack([c.ravel() for c in corners], axis=1), edge


def test_the_optimum_of_a_known_function_is_found():
    said = []
    found = design.minimise(
        valley, {"x": np.array([-1.0, 1.0])}, SQUARE, on_step=said.append
    )
    assert_allclose(found.best.variables["x"], [1, 1], atol=1e-4)
    assert tuple(said) == found.steps
    assert [step.number for step in found.steps] == list(range(len(said)))
    assert found.steps[0].value == pytest.approx(4)


def test_designs_stay_between_their_bounds():
    bounds = {"x": (np.array([-1.0, 0.0]), np.array([0.5, 2.0])), "y": (3.0, 3.0)}
    start = {"x": np.array([0.0, 1.0]), "y": 3.0}
    found = design.minimise(lambda case: valley(case) + case["y"], start, bounds)
    assert_allclose(found.best.variables["x"], [0.5, 0.25], atol=1e-5)
    for step in found.steps:
        assert np.all(step.variables["x"] <= [0.5, 2]), str(step)
        assert step.variables["y"] == 3


@pytest.mark.parametrize("limit", [0.0, 2.0])
def test_the_guard_keeps_a_design_in_the_trust_region(limit):
    def unlike(case):
        return jnp.sum(case["x"] ** 2) - 1

    start = {"x": np.array([0.1, 0.0])}
    guard = design.Guard(unlikeness=unlike, limit=limit)
    found = design.minimise(
        lambda case: -jnp.sum(case["x"]), start, SQUARE, guard=guard
    )
    assert found.best.inside
    assert found.best.unlikeness <= limit
    assert found.best.value == pytest.approx(-np.sqrt(2 * (1 + limit)), rel=1e-3)
    assert_allclose(found.best.variables["x"], np.sqrt((1 + limit) / 2), rtol=1e-2)
    alone = design.minimise(lambda case: -jnp.sum(case["x"]), start, SQUARE)
    assert_allclose(alone.best.variables["x"], 2)


def test_the_band_is_a_penalty():
    guard = design.Guard(band=lambda case: case["x"] ** 2, weight=2.0)
    found = design.minimise(lambda case: -case["x"], {"x": 1.0}, SQUARE, guard=guard)
    assert found.best.variables["x"] == pytest.approx(0.25, rel=1e-4)
    assert found.best.band == pytest.approx(1 / 16, rel=1e-3)
    assert found.best.value == pytest.approx(-0.25, rel=1e-4)


def test_a_quantity_is_reached():
    reach = [design.Reach(lambda case: case["x"][0] + case["x"][1], 1.0, 1e-5)]
    start = {"x": np.array([2.0, 0.5])}
    found = design.minimise(
        lambda case: jnp.sum(case["x"] ** 2), start, SQUARE, reach=reach
    )
    assert_allclose(found.best.variables["x"], 0.5, atol=1e-4)
    assert not found.steps[0].inside
    assert "reached 2.5" in str(found.steps[0])
    assert str(found.steps[0]).endswith("outside")


def test_designs_with_other_constants_are_compiled_once():
    traced = []

    def objective(case):
        traced.append(1)
        return jnp.sum((case["x"] - case["to"]) ** 2)

    def case(variables, constants):
        return {"x": variables["x"], "to": constants}

    for to in (0.5, -1.0):
        found = design.minimise(
            objective, {"x": 0.0}, SQUARE, case=case, constants=np.array(to)
        )
        assert found.best.variables["x"] == pytest.approx(to, abs=1e-6)
    assert len(traced) == 1


def test_a_shape_that_folds_the_mesh_is_caught_at_its_step():
    points, cells, edge = grid()
    modes = design.gaussian_modes(
        points, points[[12]], np.array([1.0, 0.0]), radius=0.05, fixed=edge
    )

    def case(variables):
        return design.moved(points, modes, variables["shape"])

    def solve(largest):
        return design.minimise(
            lambda moved: -moved[12, 0],
            {"shape": np.zeros(1)},
            {"shape": (0.0, largest)},
            case=case,
            volumes=lambda moved: design.signed_volumes(moved, cells, "quad"),
        )

    found = solve(0.2)
    assert found.best.variables["shape"] == pytest.approx(0.2)
    assert found.best.smallest_cell == pytest.approx(0.6, rel=1e-4)
    with pytest.raises(
        ValueError, match=r"step \d+: the shape folds the mesh, 2 of 16"
    ):
        solve(0.9)


@pytest.mark.parametrize("kind", ["pixel", "quad", "triangle", "tetra"])
def test_volumes_are_those_of_geometry_with_the_sign_of_a_mirror(kind, rng):
    found = geometry.KINDS[kind]
    dim = found.dimension
    points = np.vstack([np.zeros(dim), np.eye(dim), np.ones(dim)])[: found.corners]
    if kind == "quad":
        points = points[[0, 1, 3, 2]]
    points = points + 0.1 * rng.normal(size=points.shape)
    cell = np.arange(found.corners)[None]
    expected = geometry.cell_volumes(points, cell, kind)
    volume = design.signed_volumes(points, cell, kind)
    assert_allclose(np.abs(volume), np.abs(expected), rtol=1e-12)
    mirrored = points * np.append(-1.0, np.ones(dim - 1))
    assert_allclose(design.signed_volumes(mirrored, cell, kind), -volume)


def test_modes_are_gaussians_that_leave_fixed_points_alone():
    points, _, edge = grid()
    handles, directions = points[[12, 7]], np.array([[0.0, 1.0], [2.0, 0.0]])
    modes = design.gaussian_modes(points, handles, directions, radius=0.2, fixed=edge)
    assert modes.shape == (2, 25, 2)
    assert_array_equal(modes[:, edge], 0)
    assert_allclose(modes[0, 12], [0, 1])
    apart = np.exp(-(0.25**2) / (2 * 0.2**2))
    assert_allclose(modes[1, 12], [2 * apart, 0])
    free = design.gaussian_modes(points, handles, np.array([0.0, 1.0]), radius=0.2)
    square = np.sum((points - handles[1]) ** 2, axis=1)
    assert_allclose(free[1, :, 1], np.exp(-square / 0.08))
    moved = design.moved(points, modes, np.array([0.1, -0.2]))
    assert_allclose(moved, points + 0.1 * modes[0] - 0.2 * modes[1])


def test_the_gradient_by_a_shape_is_a_central_difference(rng, tmp_path):
    trained, sample = ring(rng, tmp_path)
    handles = sample.mesh_points[sample.boundaries["wall"]][:3]
    modes = design.gaussian_modes(
        sample.mesh_points, handles, rng.normal(size=(3, 2)), radius=0.5
    )
    lift = trained.quantity("lift:p@wall:angle_deg=3", sample)
    arguments = trained.arguments(sample)
    with jax.enable_x64(True):
        parameters = doubled(trained.parameters)
        x, *others = (None if a is None else jnp.asarray(a, float) for a in arguments)

        @jax.jit
        def of_shape(amounts):
            return lift(parameters, design.moved(x, modes, amounts), *others)

        check_gradient(of_shape, jnp.zeros(3), rng, 1e-5)


def test_what_is_no_design_is_refused():
    def at(start, objective=lambda case: case["x"], bounds=SQUARE, **options):
        return design.minimise(objective, {"x": start}, bounds, **options)

    refused.each(
        (lambda: at(3.0), "start of x is 3.0, outside its bounds"),
        (lambda: at(1.0, bounds={"y": (0.0, 1.0)}), "expected the same names"),
        (lambda: at(1.0, bounds={"x": (0.0, np.inf)}), "expected two finite values"),
        (
            lambda: at(1.0, lambda case: jnp.floor(case["x"])),
            "derivative of the objective is zero",
        ),
        (
            lambda: at(0.0, lambda case: jnp.sqrt(case["x"])),
            "step 0: a value or a derivative is not fin",
        ),
        (
            lambda: at(1.0, lambda case: jnp.argmax(jnp.stack([case["x"], case["x"]]))),
            "objective is int.* expected a floating",
        ),
        (lambda: at(np.zeros(2)), r"shape \(2,\), expected a floating"),
    )
    far = design.Guard(unlikeness=lambda case: 9 + case["x"])
    with pytest.raises(ValueError, match="smallest unlikeness is 7, its limit 0"):
        at(0.0, guard=far)
    points = np.zeros((3, 2))
    refused.each(
        (
            lambda: design.gaussian_modes(
                points, np.zeros((1, 3)), np.zeros(3), radius=1.0
            ),
            r"expected \(n, p\) and \(m, p\)",
        ),
        (
            lambda: design.moved(points, np.zeros((2, 3, 2)), np.zeros(1)),
            r"expected \(1, 3, 2\)",
        ),
    )
