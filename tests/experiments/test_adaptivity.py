import dataclasses
import itertools

import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import adaptivity as study
from experiments import adaptivity_mesh as meshes
from experiments import adaptivity_problem as problem
from opjax import training
from opjax.problems import poisson_mesh
from tests import refused, sessions
from tests.experiments.results import read_result
from tests.refused import value_error

TINY = dataclasses.replace(study.PRESETS["smoke"], num_steps=2)


@pytest.fixture(scope="module")
def mesh():
    rng = np.random.default_rng(0)
    return meshes.grow(meshes.l_shape(4), lambda m: rng.uniform(size=len(m[1])), 40)


@pytest.fixture(scope="module")
def truth():
    return problem.make_truth(
        meshes.l_shape(4), 0.1, num_modes=1, num_train=2, num_test=3
    )


def test_refined_meshes_conform_and_cover_the_domain(mesh):
    nodes, cells = mesh
    edges, counts, _ = poisson_mesh.edges_of(cells)
    sides = nodes[edges[counts == 1]]
    # A node within an edge would leave edges of one triangle inside.
    assert_allclose(np.abs(sides[:, 0] - sides[:, 1]).sum(), 4)
    areas = poisson_mesh.signed_areas(nodes, cells)
    assert areas.min() > 0
    assert counts.max() == 2
    assert_allclose(areas.sum(), 0.75)
    assert len(np.unique(nodes, axis=0)) == len(nodes) >= 40
    lengths = np.linalg.norm(poisson_mesh.opposite_edges(nodes, cells), axis=2)
    assert_allclose(meshes.diameters(mesh), lengths.max(axis=1))


def test_meshes_grow_where_the_indicator_is_large():
    sides = [meshes.grow(meshes.l_shape(4), meshes.known, n)[0] for n in (60, 200)]
    near = [np.mean(np.linalg.norm(nodes - 0.5, axis=1) < 0.1) for nodes in sides]
    assert 200 <= len(sides[1]) < 220
    assert near[1] > max(0.05, near[0])
    graded = meshes.graded(meshes.l_shape(4), 0.2)
    assert (meshes.diameters(graded) <= 0.2 * meshes.to_corner(graded) ** 0.4).all()


def test_random_triangles_are_those_of_points_of_the_domain(mesh, rng):
    largest = [meshes.at_random(mesh, rng=rng).argmax() for _ in range(4000)]
    actual = np.bincount(largest, minlength=len(mesh[1])) / 4000
    expected = poisson_mesh.signed_areas(*mesh) / 0.75
    assert_allclose(actual, expected, atol=0.015)


def test_jumps_are_those_of_the_gradients_of_every_triangle(mesh, rng):
    nodes, cells = mesh
    values = rng.normal(size=(len(nodes), 2))
    gradients = [
        np.linalg.solve(np.c_[nodes[c], np.ones(3)], values[c])[:2] for c in cells
    ]
    expected = np.zeros(len(cells))
    for (i, one), (j, two) in itertools.combinations(enumerate(cells), 2):
        if len(both := np.intersect1d(one, two)) == 2:
            side = nodes[both[1]] - nodes[both[0]]
            jump = np.array([side[1], -side[0]]) @ (gradients[i] - gradients[j])
            expected[[i, j]] += np.mean(jump**2) / 2  # |e|^2 (du/dn)^2
    assert_allclose(meshes.jumps(mesh, values), expected)
    assert_allclose(meshes.jumps(mesh, nodes), 0, atol=1e-20)


def test_solutions_are_those_of_the_interior_problem(mesh, rng):
    inside = poisson_mesh.discretize(*mesh)
    right = rng.normal(size=(len(mesh[0]), 2))
    _, mass = poisson_mesh.assemble(*mesh)
    within = ~meshes.on_boundary(mesh)
    actual = meshes.solve(mesh, right)
    expected = np.linalg.solve(inside.stiffness.toarray(), (mass @ right)[within])
    assert_allclose(actual[within], expected)
    assert_array_equal(actual[~within], 0)


def test_linear_elements_converge_with_second_order():
    errors = []
    for level in (4, 6):
        mesh = meshes.uniform(meshes.l_shape(4), level)
        wave = np.prod(np.sin(2 * np.pi * mesh[0]), axis=1, keepdims=True)
        errors.append(np.abs(meshes.solve(mesh, 8 * np.pi**2 * wave) - wave).max())
    assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.2)


def test_interpolation_reproduces_linear_functions(mesh, rng):
    points = rng.uniform(size=(50, 2)) * [0.5, 1]
    matrix = meshes.interpolation(mesh)(points)
    assert_allclose(matrix @ (mesh[0] + 1), points + 1)
    again = meshes.interpolation(mesh)(mesh[0])
    assert_allclose(again.toarray(), np.eye(len(mesh[0])), atol=1e-12)


def test_points_outside_of_the_domain_are_refused(mesh):
    with value_error(r"\[0.75 0.75\] is outside of the mesh"):
        meshes.interpolation(mesh)(np.array([[0.25, 0.25], [0.75, 0.75]]))


def test_labels_are_fine_solutions_and_linear_elements(truth):
    setting = study.Study(TINY, truth, meshes.l_shape(4))
    fine, first = truth.solutions @ truth.train, len(setting.base[0])
    exact = setting.labels(setting.base, "exact")  # nodes of the first mesh come first
    assert_allclose(exact, fine[:first], atol=1e-12)
    elements = setting.labels(truth.mesh, "elements")
    assert_allclose(elements, fine, atol=1e-12)


def test_exact_values_at_the_points_have_no_error_of_the_model(mesh, truth):
    at_points = truth.at(mesh[0])
    exact = at_points @ truth.solutions @ truth.test
    parts = problem.parts_of_error(truth, mesh, exact, np.zeros_like(exact))
    assert_allclose(parts["model_l2"], 0, atol=1e-12)
    assert parts["nodes_h1"] == parts["points_h1"] > 0
    assert_allclose([parts["elements_l2"], parts["elements_h1"]], 1)
    parts = problem.parts_of_error(truth, mesh, 0 * exact, exact)
    assert_allclose(parts["labels_l2"], 0, atol=1e-12)
    assert parts["num_points"] == len(mesh[0])


def test_errors_are_norms_of_the_difference(truth, rng):
    exact = truth.solutions @ truth.test
    values = exact + 0.1 * rng.normal(size=exact.shape)
    expected = 0
    for error, own in zip((values - exact).T, exact.T, strict=True):
        expected += np.sqrt(error @ truth.mass @ error / (own @ truth.mass @ own)) / 3
    assert_allclose(truth.errors(values)["l2"], expected)


def test_padding_has_no_effect_and_the_operator_is_linear(mesh, truth):
    setting = study.Study(TINY, truth, meshes.l_shape(4))
    with sessions.user():
        operator = study.PointAttention(TINY, nnx.Rngs(0))
        actual = [
            study.Trained(operator, setting.cloud(mesh, coefficients, size))(mesh[0])
            for coefficients, size in (
                (truth.test, len(mesh[0])),
                (truth.test, 99),
                (2 * truth.test, 99),
            )
        ]
    assert_allclose(actual[1], actual[0], rtol=1e-4, atol=1e-6)
    assert_allclose(actual[2], 2 * actual[1], rtol=1e-4, atol=1e-6)


def test_the_operator_is_galerkin_attention_between_points(rng):
    points, others = rng.uniform(size=(2, 6, 2))
    weights, right_sides = rng.uniform(size=6), rng.normal(size=(6, 3))
    with sessions.user():
        operator = study.PointAttention(TINY, nnx.Rngs(0))
        actual = operator(study.Cloud(points, weights, right_sides), others)
        channels = [operator.perceptron(4 * p - 2) for p in (others, points)]
    query, key = np.float64(channels[0])[:, :4], np.float64(channels[1])[:, 4:]
    expected = query @ (key.T @ (weights[:, None] * right_sides))
    assert_allclose(actual, expected, rtol=1e-4, atol=1e-6)


def test_disagreement_is_the_integral_of_the_variance(mesh, rng):
    nodes, cells = mesh
    values = rng.normal(size=(3, len(nodes), 2))
    actual = study.disagreement([lambda _, v=v: v for v in values], mesh)
    for integral, cell in zip(actual, cells, strict=True):
        area = np.linalg.det(np.c_[nodes[cell], np.ones(3)]) / 2
        expected = area * np.mean(np.var(values[:, cell], axis=0))
        assert_allclose(integral, expected)


def test_operators_disagree_where_their_outputs_differ(mesh):
    def one(points):
        return points[:, :1]

    def other(points):
        return np.where(points[:, :1] < 0.5, points[:, :1], 2)

    actual = study.disagreement([one, other], mesh)
    left = mesh[0][mesh[1]][..., 0].max(axis=1) < 0.5
    assert_array_equal(actual[left], 0)
    assert (actual[~left] > 0).all()


@pytest.mark.nightly
def test_a_run_measures_both_questions(tmp_path):
    with sessions.user():
        study.run(TINY, workdir=tmp_path)
    assert read_result(tmp_path)["l2_operator"] > 0
    text = (tmp_path / "tables.md").read_text()
    assert "Query points of operators trained on 65 uniform points" in text
    assert (tmp_path / "adaptivity.png").exists()


def test_a_stopped_run_goes_on_only_with_its_settings(tmp_path, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    tiny = dataclasses.replace(TINY, strategies=("uniform",))
    with monkeypatch.context() as patch, sessions.user():
        patch.setattr(study.adaptivity_report, "report", stop)
        with pytest.raises(KeyboardInterrupt):
            study.run(tiny, workdir=tmp_path)
    with sessions.user():
        with value_error("num_steps"):
            study.run(dataclasses.replace(tiny, num_steps=3), workdir=tmp_path)
        (trained,) = tmp_path.glob("*-uniform-*/result.json")
        before = trained.stat().st_mtime_ns
        study.run(tiny, workdir=tmp_path)
    assert trained.stat().st_mtime_ns == before


def test_trainings_that_diverge_are_errors(truth):
    tiny = dataclasses.replace(TINY, learning_rate=1e30, seeds=(0,))
    one = study.Study(tiny, truth, meshes.l_shape(4))
    with pytest.raises(training.NonFiniteError, match="uniform points"):
        study.train_on(one, "uniform", 2, "elements")


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"columns": 5}, "columns=5 must be even"),
        ({"query_levels": (2, 1)}, r"query_levels=\(2, 1\) must rise"),
        ({"levels": (3, 2)}, r"levels=\(3, 2\) must rise"),
    ],
)
