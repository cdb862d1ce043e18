import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import num_functions as study
from opjax.problems import poisson
from tests import refused, sessions
from tests.experiments.results import read_result
from tests.selection import by_day

TINY = dataclasses.replace(
    study.PRESETS["smoke"],
    models=("galerkin",),
    ranks=(2, 4),
    num_points=(16,),
    num_modes=4,
    num_steps=4,
)


@pytest.fixture(scope="module")
def known():
    return study.setting(16, 4, 1.5)


def head(kind, rank=3):
    models = TINY.models if kind == "gates" else (kind,)
    members = dataclasses.replace(TINY, models=models).members().values()
    member = next(one for one in members if one.model == kind)
    member = dataclasses.replace(member, rank=rank)
    return member, study.build(member, jax.random.key(0))


@pytest.mark.parametrize(
    "kind", by_day((*study.MODELS, "gates"), ["galerkin", "functional_softmax"])
)
def test_a_head_is_a_linear_operator_of_its_rank(kind, known):
    _, one = head(kind)
    matrix = one(known.features, np.eye(16))
    values = np.linalg.svd(matrix, compute_uv=False)
    assert values[2] > 1e-9 * values[0] > 1e4 * values[3]
    f = known.double.modes
    np.testing.assert_allclose(one(known.features, f), matrix @ f, atol=1e-12)


def test_no_operator_of_a_rank_is_better_than_the_truncated_decomposition(known):
    root = np.linalg.cholesky(known.moment)
    solutions = np.asarray(known.double.solutions)
    u, s, vt = np.linalg.svd(solutions @ root, full_matrices=False)
    for rank in (1, 3, 6):
        # Maps coefficients of the modes, then modes to their coefficients.
        truncated = (u[:, :rank] * s[:rank]) @ vt[:rank] @ np.linalg.inv(root)
        inverse = np.linalg.pinv(known.double.modes)
        error = poisson.population_mse(
            lambda f, a=truncated @ inverse: a @ f, known.double, known.moment
        )
        best = study.best(known.singular_values, rank)
        np.testing.assert_allclose(np.sqrt(error), best, rtol=1e-6)
        assert study.smallest_rank(known.singular_values, best * (1 + 1e-9)) == rank
        assert study.smallest_rank(known.singular_values, best * (1 - 1e-9)) > rank


def test_contributions_are_sizes_of_predictions_of_single_functions(known):
    member, one = head("gates")
    one = dataclasses.replace(one, gates=jnp.array([0.5, -1.0, 2.0]))
    batch = poisson.sample(jax.random.key(1), known.double, num_samples=5)
    sizes = study.contributions(one, known.features, batch)
    for j, size in enumerate(sizes):
        maps = {name: leaf[:, j : j + 1] for name, leaf in one.maps.items()}
        single = dataclasses.replace(one, maps=maps, gates=one.gates[j : j + 1])
        predicted = single(known.features, batch.right_sides)
        ratios = jnp.linalg.norm(predicted, axis=0) / jnp.linalg.norm(
            batch.solutions, axis=0
        )
        np.testing.assert_allclose(size**2, jnp.mean(ratios**2), rtol=1e-10)
    assert sizes[1] == 0
    features = known.features
    plain = poisson.weighted_mse(one(features, batch.right_sides), batch.solutions)
    total = study.loss(one, batch, features=features, member=member)
    np.testing.assert_allclose(total, plain + member.penalty * sizes.sum())


def test_the_penalty_keeps_singular_values_above_half_of_it(known):
    """The objective of random operators is not below that of soft thresholding."""
    values, penalty = known.singular_values, 0.2
    shrunk = np.maximum(values - penalty / 2, 0)
    least = np.sum((values - shrunk) ** 2) + penalty * shrunk.sum()
    np.testing.assert_allclose(
        np.sum((values - shrunk) ** 2), np.sum(np.minimum(values, penalty / 2) ** 2)
    )
    rng = np.random.default_rng(0)
    for scale in (0.01, 0.1, 0.5):
        for _ in range(20):
            changed = np.diag(shrunk) + scale * rng.normal(size=(len(values),) * 2)
            size = np.linalg.svd(changed, compute_uv=False).sum()
            assert np.sum((changed - np.diag(values)) ** 2) + penalty * size >= least


def test_a_gate_that_is_shut_stays_shut(known):
    member, one = head("gates")
    one = dataclasses.replace(one, gates=jnp.array([0.5, -0.1, 2.0]))
    batch = poisson.sample(jax.random.key(1), known.double, num_samples=5)
    slope = jax.grad(partial(study.loss, features=known.features, member=member))
    gradient = slope(one, batch)
    assert gradient.gates[1] == 0
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@pytest.mark.nightly
def test_a_run_leaves_tables_and_a_figure(tmp_path):
    with sessions.lenient():
        study.run(TINY, workdir=tmp_path / "run")
    result = read_result(tmp_path / "run")
    assert result["relative_l2_galerkin_2_16"] > 0
    text = (tmp_path / "run" / "tables.md").read_text()
    assert "Functions that gates keep" in text
    assert (tmp_path / "run" / "num_functions.png").exists()


test_bad_settings_are_refused = refused.settings(
    TINY, [({"num_modes": 17}, "more than the 16 points of the coarsest grid")]
)
