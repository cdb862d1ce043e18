import dataclasses

import jax
import numpy as np
import pytest
from flax import nnx

from experiments import preconditioner as study
from experiments import preconditioner_problem as problem
from experiments import preconditioner_solvers as solvers
from opjax import schwarz
from tests import refused, sessions
from tests.experiments.results import read_result

TINY = dataclasses.replace(study.PRESETS["smoke"], num_steps=2, seeds=(0,))
SIZE = 6


@pytest.fixture(scope="module")
def flow():
    return jax.device_get(
        jax.jit(problem.draw, static_argnums=1)(jax.random.key(0), SIZE, 100.0)
    )


def test_the_matrix_is_that_of_the_fluxes_between_points(flow):
    eye = np.eye(SIZE**2)
    dense = solvers.matrix_of(flow).toarray()
    np.testing.assert_allclose(problem.apply(flow, eye), dense, atol=1e-15)
    np.testing.assert_allclose(dense, dense.T, atol=1e-15)
    np.testing.assert_allclose(np.diag(dense), 1)
    roots = flow.roots.ravel()
    fluxes = roots[:, None] * dense * roots
    inside = np.abs(fluxes.sum(axis=1).reshape(SIZE, SIZE)[1:-1, 1:-1])
    np.testing.assert_allclose(inside, 0, atol=1e-12)  # constants have no flux
    assert np.linalg.eigvalsh(dense)[0] > 0


def test_boxes_of_equal_shape_are_those_of_a_grid():
    found, expected = (
        problem.windows(3, 2, 1),
        schwarz.box_cover((6, 6), (3, 3), overlap=1),
    )
    for one, other in zip(*(map(_weights, (found, expected))), strict=True):
        np.testing.assert_allclose(one, other)


def _weights(cover):
    dense = np.zeros((cover.num_subdomains, cover.num_points))
    for row, indices, weights in zip(dense, cover.indices, cover.weights, strict=True):
        np.add.at(row, indices, weights)
    return dense


@pytest.mark.nightly
def test_the_trained_operator_is_the_attention_that_was_trained(flow):
    operator = jax.tree.map(
        lambda leaf: leaf[0].astype(float), study.make_task(TINY).build(TINY, None)
    )
    cover, matrix = problem.windows(2, 3, 1), solvers.matrix_of(flow)
    roots = flow.roots.ravel()
    apply = study.trained(operator, solvers.System(flow, matrix, 2, cover))
    dense = np.stack([apply(one) for one in np.eye(SIZE**2)])
    query = operator.query(flow, cover)
    expected = schwarz.two_level_attention(query, query, np.eye(SIZE**2), cover)
    phi = problem.smoothed(
        matrix.__matmul__, roots[:, None] * np.eye(4)[problem.parts(2, 3)]
    )
    expected += phi @ np.linalg.solve(phi.T @ matrix @ phi, phi.T)
    expected += float(operator.shift) * np.eye(SIZE**2)
    np.testing.assert_allclose(dense, expected, atol=1e-6)  # factors in float32
    assert np.linalg.eigvalsh(dense)[0] > 0
    # The loss is the divergence of this matrix.
    flows = jax.tree.map(lambda leaf: leaf[None], flow)
    divergence = study.loss(operator, flows, config=TINY)
    trace, (_, log) = np.trace(dense @ matrix), np.linalg.slogdet(dense)
    np.testing.assert_allclose(divergence, (trace - log) / SIZE**2 - 1, rtol=1e-5)


def test_local_inverses_are_those_of_the_blocks(flow):
    matrix, cover = solvers.matrix_of(flow), problem.windows(2, 3, 1)
    inverses = solvers.local_inverses(solvers.System(flow, matrix, 2, cover))
    for inverse, indices, weights in zip(
        inverses, cover.indices, cover.weights, strict=True
    ):
        own = indices[weights > 0]
        block = inverse[weights > 0][:, weights > 0]
        expected = np.linalg.inv(matrix[own][:, own].toarray())
        np.testing.assert_allclose(block, expected, atol=1e-12)
        assert np.count_nonzero(inverse) == np.count_nonzero(block)


def test_every_preconditioner_solves_to_the_tolerance(flow, rng):
    matrix, right = solvers.matrix_of(flow), rng.normal(size=SIZE**2)
    system = solvers.System(flow, matrix, 2, problem.windows(2, 3, 1))
    counts = {}
    for name, make in solvers.classical(system):
        solved = solvers.solve(matrix, right, make)
        assert solved.residual < 1.1e-8
        counts[name] = solved.iterations
    assert counts["two-level Schwarz"] < counts["diagonal"]
    exact = np.linalg.inv(matrix.toarray())
    assert solvers.solve(matrix, right, lambda: exact.__matmul__).iterations == 1


@pytest.mark.nightly
def test_a_run_compares_preconditioners_on_all_grids(tmp_path):
    with sessions.user():
        study.run(dataclasses.replace(TINY, seeds=(0, 1)), workdir=tmp_path)
    result = read_result(tmp_path)
    assert result["unsolved"] == 0
    model = study.SchwarzFactors(TINY, nnx.Rngs(0))
    sizes = [leaf.size for leaf in jax.tree.leaves(nnx.state(model))]
    assert result["parameters"] == sum(sizes)  # of one seed
    text = (tmp_path / "tables.md").read_text()
    assert "two-level Schwarz, weighted" in text
    assert (tmp_path / "preconditioner.png").exists()


test_bad_settings_are_refused = refused.settings(
    TINY, [({"overlap": 4}, "overlap=4 must be at most box_width=3")]
)
