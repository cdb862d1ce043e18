import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import domain_maps as study
from experiments import domain_maps_baselines as baselines
from experiments import domain_maps_problem as problem
from experiments import domain_maps_report
from experiments.domain_maps_models import MODELS, Transfer
from tests import refused, sessions
from tests.experiments.results import read_result

TINY = dataclasses.replace(study.PRESETS["smoke"], num_steps=2, seeds=(0,))
LAW = problem.Law(num_probes=3, num_functions=2, swirl=0.6)


@pytest.fixture(scope="module")
def pairs():
    with sessions.lenient():
        draw = jax.jit(problem.draw, static_argnums=(1, 2, 3))
        return draw(jax.random.key(0), LAW, 2, 300)


@pytest.fixture(scope="module")
def pair(pairs):
    """A source of 300 and a target of 80 points."""
    return jax.tree.map(lambda leaf: leaf[0], problem.coarse(pairs, 300, 80))


def test_a_point_of_the_void_stays_on_the_void_and_the_sides_stay(rng):
    modes, turn = jnp.asarray(rng.normal(size=(2, 5))), rng.uniform(-2, 2)
    edge = 0.5 + 0.3 * np.array([np.cos(turn), np.sin(turn)])
    side = np.array([1.0, rng.uniform()])
    moved, _ = problem.place(jnp.stack([edge, side]), modes, 0.4)
    assert_allclose(problem.gap(moved, modes)[0], 0, atol=1e-12)
    ray = np.asarray(moved[0]) - 0.5
    assert_allclose(np.arctan2(ray[1], ray[0]), turn + 0.4, atol=1e-12)
    assert_allclose(moved[1], side, atol=1e-12)


def test_areas_grow_by_the_determinant_of_the_map(rng):
    modes = jnp.asarray(rng.normal(size=(2, 5)))
    points = 0.5 + jnp.array([[0.32, 0.1], [-0.2, 0.25], [0.1, -0.38], [0.4, 0.4]])
    growth = problem.place(points, modes, 0.4)[1]

    def moved(x):
        return problem.place(x[None], modes, 0.4)[0][0]

    slopes = jax.jit(jax.vmap(jax.jacfwd(moved)))(points)
    assert_allclose(growth, np.linalg.det(slopes), rtol=1e-12)


def test_weights_are_a_quadrature_of_the_cell(pairs):
    for cell in pairs:
        weights, gaps = np.asarray(cell.weights), np.asarray(cell.descriptors[..., 2])
        assert weights.min() > 0
        assert gaps.min() > 0
        for points, area in zip(cell.points, weights.sum(axis=1), strict=True):
            assert 0.4 < area < 0.9
            assert np.all((points >= 0) & (points <= 1))
    few = problem.coarse(pairs, 80, 300)[0]
    assert_allclose(few.weights.sum(1), pairs[0].weights.sum(1), rtol=0.03)


def test_corresponding_points_have_the_same_functions(pairs):
    source, target = (jax.tree.map(lambda leaf: leaf[0], cell) for cell in pairs)
    actual = baselines.thin_plates(*_numpy(source, target), lambda c: c.reference)
    assert_allclose(actual, target.values, atol=0.15)
    of_probes = source._replace(values=source.descriptors[:, 3:])
    actual = baselines.thin_plates(*_numpy(of_probes, target), lambda c: c.reference)
    assert_allclose(actual, target.descriptors[:, 3:], atol=0.15)


def _numpy(*cells):
    return jax.tree.map(lambda leaf: np.asarray(leaf, float), cells)


def _double(model):
    return jax.tree.map(lambda leaf: leaf.astype(float), model)


def _oracle(name, model, source, target):
    """Transfers of NumPy, from the channels of the model."""
    features = jax.jit(type(model).features)
    key, query = (np.asarray(features(model, cell)) for cell in (source, target))
    scales = np.exp(np.asarray(model.logarithms[...]))
    values, weights = np.asarray(source.values), np.asarray(source.weights)
    if name in ("softmax", "distances"):
        scores = query @ key.T / np.sqrt(key.shape[1])
        if name == "distances":
            squares = ((query[:, None] - key) ** 2).sum(axis=2)
            scores = -squares / 2
        factors = weights * np.exp(scales[2] * scores)
        return factors @ values / factors.sum(axis=1, keepdims=True)
    if name == "intention":
        gram = key.T @ (weights[:, None] * key)
        gram += scales[1] * np.eye(len(gram))
        return query @ np.linalg.solve(gram, key.T @ (weights[:, None] * values))
    bases, coefficients = [], []
    for cell, channels in ((target, query), (source, key)):
        basis, features = np.split(channels, 2, axis=1)
        w = np.asarray(cell.weights)[:, None]
        everything = np.concatenate([features, np.asarray(cell.values)], axis=1)
        if name == "published":
            basis = np.exp(basis) / np.exp(basis).sum(axis=1, keepdims=True)
            masses = basis.T @ w / w.mean() + 1e-5
            actual = basis.T @ (w * everything) / w.mean() / masses
        else:
            gram = basis.T @ (w * basis)
            gram += scales[1] * np.trace(gram) / len(gram) * np.eye(len(gram))
            actual = np.linalg.solve(gram, basis.T @ (w * everything))
        bases.append(basis)
        coefficients.append(np.split(actual, [features.shape[1]], axis=1))
    (q, _), (k, v) = coefficients
    gram, ridge = k @ k.T, scales[0]
    if name == "published":
        ridge = ridge / (1 + ridge)
        system = (1 - ridge) * gram + ridge * np.eye(len(gram))
    else:
        system = gram + ridge * np.trace(gram) / len(gram) * np.eye(len(gram))
    return bases[0] @ q @ k.T @ np.linalg.solve(system, v)


@pytest.mark.parametrize("name", MODELS)
def test_transfers_are_those_of_numpy(pair, name):
    config = dataclasses.replace(TINY, probes=3, num_basis=6)
    model: Transfer = _double(MODELS[name][1](config, nnx.Rngs(0)))
    with sessions.lenient():
        actual = jax.jit(type(model).__call__)(model, *pair)
        expected = _oracle(name, model, *pair)
    assert_allclose(actual, expected, atol=1e-8)


def test_gradients_of_the_loss_are_central_differences(pairs, rng):
    config = dataclasses.replace(TINY, probes=3)
    model = _double(MODELS["intention"][1](config, nnx.Rngs(0)))
    ways = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), model)
    few = problem.coarse(pairs, 20, 12)

    def loss(step):
        moved = jax.tree.map(lambda leaf, way: leaf + step * way, model, ways)
        return study.loss(moved, few)

    both = jax.jit(jax.value_and_grad(loss))
    with sessions.lenient():
        low, middle, high = map(both, (-1e-8, 0.0, 1e-8))  # kernels are small, too
    assert_allclose(middle[1], (high[0] - low[0]) / 2e-8, rtol=1e-5)


def test_errors_and_the_best_combinations_are_weighted(pair):
    config = dataclasses.replace(TINY, probes=3)
    cell, model = pair[1], _double(MODELS["functional"][1](config, nnx.Rngs(0)))
    weights, values = np.asarray(cell.weights)[:, None], np.asarray(cell.values)
    with sessions.lenient():
        models, cells = jax.tree.map(lambda leaf: leaf[None], (model, cell))
        actual, basis = study.best(models, cells), np.asarray(model.basis(cell))
        fit = basis @ np.linalg.solve(
            basis.T @ (weights * basis), basis.T @ (weights * values)
        )
        errors = problem.errors(jnp.asarray(fit), cell)
    expected = np.sum(weights * (fit - values) ** 2, axis=0)
    expected = np.sqrt(expected / np.sum(weights * values**2, axis=0))
    assert_allclose(errors, expected, rtol=1e-9)
    assert_allclose(actual, [[expected.mean()]], rtol=1e-6)


def _of_nearest(source, target):
    rays = np.asarray(target.points)[:, None] - np.asarray(source.points)
    return np.asarray(source.values)[np.linalg.norm(rays, axis=2).argmin(axis=1)]


def test_baselines_keep_values_at_the_same_points(pair):
    source, target = _numpy(*pair)
    methods = baselines.nearest, baselines.thin_plates, baselines.radial
    for method in methods:
        actual = method(source, source, lambda cell: cell.points)
        assert_allclose(actual, source.values, atol=1e-8)
    actual = baselines.nearest(source, target, lambda cell: cell.points)
    assert_array_equal(actual, _of_nearest(source, target))


def test_rows_of_baselines_are_mean_relative_errors(pairs):
    config = types.SimpleNamespace(
        unseen=lambda: pairs, meshes=[(300, 80)], num_probes=0, num_test=2
    )
    with sessions.lenient():
        row = domain_maps_report.untrained(config)[0]
    errors = []
    for place in range(2):
        source, target = (jax.tree.map(lambda a, i=place: a[i], c) for c in pairs)
        target = jax.tree.map(lambda a: np.asarray(a)[:80], target)
        squares = (_of_nearest(source, target) - target.values) ** 2
        ratios = target.weights @ squares / (target.weights @ target.values**2)
        errors.append(np.sqrt(ratios))
    assert row["method"] == "nearest point, same coordinates"
    assert_allclose(row["error"], np.mean(errors), rtol=1e-5)


def test_polynomials_and_monomials_are_those_of_their_names(rng):
    x, y = rng.uniform(-1, 1, (2, 7))
    actual = baselines.legendre(x, y, 2)
    quadratic = (3 * x**2 - 1) / 2, (3 * y**2 - 1) / 2
    expected = np.stack([x**0, y, quadratic[1], x, x * y, quadratic[0]], axis=1)
    assert_allclose(actual, expected)
    products = baselines.monomials(np.stack([x, y], axis=1))
    assert products.shape == (7, 10)
    assert_allclose(products[:, -1], y**3)


def test_a_functional_map_finds_the_same_cell(pair):
    """With corresponding probes, the map of a cell to itself is a projection."""
    cell = pair[0]
    with sessions.lenient():
        actual = baselines.polynomial_map(cell, cell, 3)
    error = np.linalg.norm(actual - cell.values) / np.linalg.norm(cell.values)
    assert error < 0.5


def test_members_share_a_task_and_have_their_models():
    config = dataclasses.replace(TINY, models=tuple(MODELS))
    members = list(config.members().values())
    task = study.make_task(members[0])  # as a program makes it, once for all models
    models = [
        jax.eval_shape(lambda member=member: task.build(member, None))
        for member in members
    ]
    expected = [MODELS[member.models[0]][1] for member in members]
    assert [type(model) for model in models] == expected


@pytest.mark.nightly
def test_a_run_compares_all_methods(tmp_path):
    config = dataclasses.replace(TINY, models=("functional", "distances"))
    with sessions.user():
        study.run(config, workdir=tmp_path)
    result = read_result(tmp_path)
    parameters = {"functional_probes": 339, "distances_probes": 339}
    assert result["parameters"] == parameters
    assert result["functional_probes"] != result["distances_probes"]
    text = (tmp_path / "tables.md").read_text()
    assert "functional map, polynomials" in text
    assert (tmp_path / "domain_maps.png").exists()


test_bad_settings_are_refused = refused.settings(
    TINY, [({"num_points": 40}, "must contain num_points=40")]
)
