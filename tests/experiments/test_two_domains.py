import dataclasses
import math

import jax
import numpy as np
import pytest

from experiments import two_domains as study
from experiments import two_domains_cells as cells
from tests import sessions
from tests.experiments.results import read_result
from tests.selection import by_day

TINY = dataclasses.replace(
    study.PRESETS["smoke"], num_steps=4, num_test=2, eval_points=(12, 16), num_points=12
)


def heads(kind):
    config = dataclasses.replace(TINY, models=(kind,))
    (member,) = config.members().values()
    return study.make_task(member).build(member, None)


def test_a_function_has_the_same_values_at_corresponding_points(rng):
    source, target = cells.draw(jax.random.key(0), 30, 20)
    coefficients = rng.normal(size=(3, 5))
    for mesh in (source, target):
        depth, x, y = mesh.reference.T
        assert np.all((depth >= 0) & (depth <= 1))
        np.testing.assert_allclose(x**2 + y**2, 1, rtol=1e-12)
        # Points of any cell at one depth and angle have one value.
        found = cells.values(depth, np.arctan2(y, x), coefficients)
        turned = cells.values(depth, np.arctan2(y, x) + 2 * np.pi, coefficients)
        np.testing.assert_allclose(found, turned, atol=1e-12)
    both = np.concatenate([source.reference, target.reference])
    values = np.concatenate([source.values, target.values])[:, 0]
    angles = np.arctan2(both[:, 2], both[:, 1])
    basis = [cells.values(both[:, 0], angles, e) for e in np.eye(15).reshape(15, 3, 5)]
    _, residual, *_ = np.linalg.lstsq(np.stack(basis, axis=1), values)
    np.testing.assert_allclose(residual, 0, atol=1e-20)


def test_weights_integrate_over_a_cell():
    mesh = cells.draw(jax.random.key(1), 200_000, 1).source
    points = mesh.features[:, :2]
    centre = points[0] - mesh.features[0, 2:4]
    assert np.all(np.sum(np.square(points), axis=1) <= 1 + 1e-12)
    # Cauchy: the mean of 1 / density of a ray is the area between void and circle.
    angles = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    along = np.stack([np.cos(angles), np.sin(angles)], axis=1) @ centre
    outer = np.sqrt(along**2 + 1 - centre @ centre) - along
    np.testing.assert_allclose(outer**2 @ np.ones(1000) / 2000, 0.5, rtol=1e-6)
    gaps = np.linalg.norm(mesh.features[:, 2:4], axis=1) - mesh.features[:, 4]
    rays = np.arctan2(mesh.features[:, 3], mesh.features[:, 2])
    void = np.trapezoid(*_sorted(gaps**2 / 2, rays))
    np.testing.assert_allclose(mesh.weights.sum(), math.pi - void, rtol=2e-3)


def _sorted(values, angles):
    order = np.argsort(angles)
    return np.asarray(values)[order], np.asarray(angles)[order]


@pytest.mark.parametrize("kind", by_day(study.MODELS, ["functional_fit"]))
def test_the_order_of_source_points_changes_nothing(kind, rng):
    stacked = heads(kind)
    assert jax.tree.leaves(stacked)[0].shape[0] == len(TINY.seeds)
    head = jax.tree.map(lambda leaf: leaf[0].astype(float), stacked)
    source, target = cells.draw(jax.random.key(0), 14, 9)
    order = rng.permutation(14)
    shuffled = jax.tree.map(lambda leaf: leaf[order], source)
    found = head(source, target)
    assert found.shape == (9, 1)
    np.testing.assert_allclose(head(shuffled, target), found, atol=1e-9)


@pytest.mark.nightly
def test_heads_have_equal_parameters():
    sizes = {sum(x.size for x in jax.tree.leaves(heads(m))) for m in study.MODELS}
    assert len(sizes) == 1


@pytest.mark.nightly
def test_a_run_compares_heads_and_baselines_on_all_meshes(tmp_path):
    with sessions.user():
        study.run(TINY, workdir=tmp_path)
    assert set(read_result(tmp_path)) >= {"relative_l2_softmax", "data"}
    text = (tmp_path / "tables.md").read_text()
    for name in ("functional, means", *study.BASELINES):
        assert name in text
    assert (tmp_path / "two_domains.png").exists()
