import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from experiments import preconditioner as study
from experiments import preconditioner_mesh as meshes
from experiments import preconditioner_problem as problem
from experiments import preconditioner_solvers as solvers
from opjax import schwarz
from opjax.problems import poisson_mesh
from tests import refused, sessions
from tests.experiments.results import read_result
from tests.refused import value_error

TINY = dataclasses.replace(study.PRESETS["smoke"], num_steps=2, seeds=(0,))
MESH = dataclasses.replace(
    TINY,
    domain="void",
    num_meshes=2,
    factors="graph",
    num_layers=1,
    test_domains=study.DOMAINS,
)
SIZE = 6


@pytest.fixture(scope="module")
def flow():
    return jax.device_get(
        jax.jit(problem.draw, static_argnums=1)(jax.random.key(0), SIZE, 100.0)
    )


@pytest.fixture(scope="module")
def on_grid(flow):
    cover = problem.windows(2, 3, 1)
    return problem.system(flow, solvers.matrix_of(flow), cover)


@pytest.fixture(scope="module")
def mesh():
    return meshes.make("void", 0, num_points=60, num_parts=4, overlap=1)


def system_of(mesh, contrast=100.0):
    values = meshes.entries(jax.random.key(0), mesh, 9, contrast)
    return meshes.sparse_system(mesh, np.asarray(values))


def padded_system_of(mesh):
    other = meshes.make("void", 1, num_points=70, num_parts=4, overlap=1)
    first = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), meshes.stack([mesh, other]))
    return meshes.dense_system(
        first, meshes.entries(jax.random.key(0), first, 9, 100.0)
    )


def operator_of(config):
    operator = study.Operator(config, nnx.Rngs(0))
    return jax.tree.map(lambda leaf: leaf.astype(float), operator)


def dense(operator, system):
    apply = study.trained(operator, system)
    return np.stack([apply(one) for one in np.eye(len(system.roots))])


def test_the_matrix_is_that_of_the_fluxes_between_points(flow):
    eye = np.eye(SIZE**2)
    dense = solvers.matrix_of(flow).toarray()
    assert_allclose(problem.apply(flow, eye), dense, atol=1e-15)
    assert_allclose(dense, dense.T, atol=1e-15)
    assert_allclose(np.diag(dense), 1)
    roots = flow.roots.ravel()
    fluxes = roots[:, None] * dense * roots
    inside = np.abs(fluxes.sum(axis=1).reshape(SIZE, SIZE)[1:-1, 1:-1])
    assert_allclose(inside, 0, atol=1e-12)  # constants have no flux
    assert np.linalg.eigvalsh(dense)[0] > 0


def test_boxes_of_equal_shape_are_those_of_a_grid():
    found, expected = (
        problem.windows(3, 2, 1),
        schwarz.box_cover((6, 6), (3, 3), overlap=1),
    )
    for one, other in zip(*(map(_weights, (found, expected))), strict=True):
        assert_allclose(one, other)


def _weights(cover):
    dense = np.zeros((cover.num_subdomains, cover.num_points))
    for row, indices, weights in zip(dense, cover.indices, cover.weights, strict=True):
        np.add.at(row, indices, weights)
    return dense


def test_without_contrast_the_matrix_is_that_of_poissons_equation():
    mesh = meshes.make("l_shape", 3, num_points=60, num_parts=4, overlap=1)
    elements = poisson_mesh.discretize(
        *poisson_mesh.l_shaped_mesh(num_columns=10, seed=3)
    )
    system, expected = system_of(mesh, 1.0), elements.stiffness.toarray()
    assert_allclose(system.points, elements.mesh_points)
    fluxes = system.roots[:, None] * system.matrix.toarray() * system.roots
    assert_allclose(fluxes, expected, atol=1e-12)


@pytest.mark.nightly
def test_padded_meshes_have_the_same_matrix(mesh):
    system, n = padded_system_of(mesh), len(mesh.points)
    expected = np.eye(len(system.roots))
    expected[:n, :n] = system_of(mesh).matrix.toarray()
    assert n < len(expected)
    assert_allclose(system.matrix, expected, atol=1e-12)
    assert not system.roots[n:].any()


@pytest.mark.parametrize(
    "config",
    [pytest.param(TINY, marks=pytest.mark.nightly), MESH],
    ids=["grid", "mesh"],
)
def test_the_trained_operator_is_two_level_schwarz_attention(config, on_grid, mesh):
    system = on_grid if config is TINY else system_of(mesh)
    operator = operator_of(config)
    found, n = dense(operator, system), len(system.roots)
    queries = operator.query(operator.factors.local(system), system.cover)
    matrix, expected = system.matrix.toarray(), float(operator.shift) * np.eye(n)
    for query, indices, size in zip(
        np.asarray(queries), system.cover.indices, system.cover.sizes, strict=True
    ):
        if config is MESH:
            query, indices = query[:size], indices[:size]
        columns = np.zeros((n, config.rank))
        np.add.at(columns, indices, query)
        expected += columns @ columns.T
    phi = system.roots[:, None] * np.eye(4)[system.labels]
    for _ in range(3):
        phi = phi - 2 / 3 * matrix @ phi
    expected += phi @ np.linalg.solve(phi.T @ matrix @ phi, phi.T)
    assert_allclose(found, expected, atol=1e-10)
    assert_allclose(found, found.T, atol=1e-10)
    assert np.linalg.eigvalsh(found)[0] > 0


@pytest.mark.nightly
def test_the_loss_is_the_divergence_from_the_inverse(mesh):
    system, operator = system_of(mesh), operator_of(MESH)
    found, matrix = dense(operator, system), system.matrix.toarray()
    padded = padded_system_of(mesh)
    divergence = study.loss(operator, jax.tree.map(lambda leaf: leaf[None], padded))
    trace, (_, log) = np.trace(found @ matrix), np.linalg.slogdet(found)
    expected = (trace - log) / len(mesh.points) - 1
    assert_allclose(divergence, expected, rtol=1e-5)


def test_renumbering_the_points_permutes_the_operator(mesh, rng):
    n = len(mesh.points)
    order = rng.permutation(n)
    number = np.append(np.argsort(order), -1)  # also of the boundary
    subdomains = [
        rng.permutation(number[indices[:size]])
        for indices, size in zip(mesh.cover.indices, mesh.cover.sizes, strict=True)
    ]
    renumbered = mesh._replace(
        points=mesh.points[order],
        cells=number[mesh.cells],
        labels=mesh.labels[order],
        cover=schwarz.cover(subdomains, num_points=n),
    )
    operator = operator_of(MESH)
    before, after = (dense(operator, system_of(one)) for one in (mesh, renumbered))
    assert_allclose(after, before[order][:, order], atol=1e-10)


def test_local_inverses_are_those_of_the_blocks(on_grid):
    matrix, cover = on_grid.matrix, on_grid.cover
    inverses = solvers.local_inverses(on_grid)
    for inverse, indices, weights in zip(
        inverses, cover.indices, cover.weights, strict=True
    ):
        own = indices[weights > 0]
        block = inverse[weights > 0][:, weights > 0]
        expected = np.linalg.inv(matrix[own][:, own].toarray())
        assert_allclose(block, expected, atol=1e-12)
        assert np.count_nonzero(inverse) == np.count_nonzero(block)


@pytest.mark.parametrize("domain", ["grid", "mesh"])
def test_every_preconditioner_solves_to_the_tolerance(domain, on_grid, mesh, rng):
    system = on_grid if domain == "grid" else system_of(mesh)
    matrix, right = system.matrix, rng.normal(size=len(system.roots))
    counts = {}
    for name, make in solvers.classical(system):
        solved = solvers.solve(matrix, right, make)
        assert solved.residual < 1.1e-8
        counts[name] = solved.iterations
    assert counts["two-level Schwarz"] < counts["diagonal"]
    exact = np.linalg.inv(matrix.toarray())
    assert solvers.solve(matrix, right, lambda: exact.__matmul__).iterations == 1


def test_multigrid_of_pyamg_beats_the_diagonal(mesh, rng):
    pytest.importorskip("pyamg")
    system, right = system_of(mesh), rng.normal(size=len(mesh.points))
    makes = dict(solvers.classical(system))
    solves = [
        solvers.solve(system.matrix, right, makes[name])
        for name in ("algebraic multigrid", "diagonal")
    ]
    assert solves[0].residual < 1.1e-8
    assert solves[0].iterations < solves[1].iterations


@pytest.mark.nightly
@pytest.mark.parametrize("config", [TINY, MESH], ids=["grid", "mesh"])
def test_a_run_compares_preconditioners_on_all_domains(config, tmp_path):
    with sessions.user():
        study.run(dataclasses.replace(config, seeds=(0, 1)), workdir=tmp_path)
    result = read_result(tmp_path)
    assert result["unsolved"] == 0
    model = study.Operator(config, nnx.Rngs(0))
    sizes = [leaf.size for leaf in jax.tree.leaves(nnx.state(model))]
    assert result["parameters"] == sum(sizes)  # of one seed
    text = (tmp_path / "tables.md").read_text()
    assert "two-level Schwarz, weighted" in text
    assert ("2 meshes around a void" in text) == (config is MESH)
    assert ("pyamg is not installed" in text) == ("algebraic multigrid" not in text)
    assert (tmp_path / "preconditioner.png").exists()


def test_meshes_allow_more_layers_than_the_width_of_a_box():
    domains = study.DOMAINS[1:]
    assert dataclasses.replace(MESH, test_domains=domains, overlap=6).overlap == 6
    with value_error("at most box_width=3 on grids"):
        dataclasses.replace(MESH, overlap=6)


def test_unknown_domains_are_refused():
    with value_error("domain='disc' is unknown"):
        meshes.make("disc", 0, num_points=60, num_parts=4, overlap=1)


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"overlap": 4}, "overlap=4 must be at most box_width=3"),
        ({"domain": "void"}, "factors=perceptron supports only grids"),
    ],
)
