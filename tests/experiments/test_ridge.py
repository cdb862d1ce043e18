import dataclasses
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from experiments import ridge as study
from opjax import normalize
from tests import refused, sessions
from tests.experiments.results import read_result

TINY = dataclasses.replace(study.PRESETS["smoke"], maps=("functional",))
SHAPES = pytest.mark.parametrize("k", [4, 9], ids=["full rank", "rank below k"])


def mapped(query, key, value, ridge):
    weight = opjax.Convex(ridge / (1 + ridge), relative=True)
    return opjax.transport(query, key, value, ridge=weight)


@pytest.fixture(name="coefficients")
def _coefficients(rng, k):
    return rng.normal(size=(k, 6)), rng.normal(size=(k, 6)), rng.normal(size=(k, 3))


@SHAPES
def test_a_large_ridge_tends_to_galerkin_attention(coefficients):
    query, key, value = coefficients
    unit = np.trace(key @ key.T) / len(key)
    expected = opjax.galerkin_attention(query, key, value) / unit
    assert_allclose(expected, query @ (key.T @ value) / unit)
    norms = [
        np.linalg.norm(mapped(query, key, value, r) - expected) for r in (1e3, 1e4)
    ]
    assert_allclose(norms[0] / norms[1], 10, rtol=0.02)  # first order
    limit = opjax.transport(query, key, value, ridge=opjax.Convex(1.0, relative=True))
    assert_allclose(limit, expected, rtol=1e-12)


@SHAPES
def test_a_small_ridge_tends_to_an_orthogonal_projection(coefficients):
    query, key, value = coefficients
    inverse = np.linalg.pinv(key)
    actual = mapped(query, key, value, 1e-12)
    assert_allclose(actual, query @ inverse @ value, rtol=1e-8)
    projected = mapped(key, key, value, 1e-12)  # onto the span of the keys
    assert_allclose(projected, key @ inverse @ value, rtol=1e-8)
    assert_allclose(key.T @ (value - projected), 0, atol=1e-8)


@pytest.mark.parametrize("setting", [0.01, np.inf])
def test_maps_have_the_ridge_and_the_scale_that_are_given(rng, setting):
    values = jnp.asarray(rng.normal(size=(5, 4)), jnp.float32)
    mixers = {
        name: make(4, num_heads=1, setting=jnp.float32(setting), rngs=nnx.Rngs(0))
        for name, make in study.MAPS.items()
    }
    actual = {name: mixer.matrix(values) for name, mixer in mixers.items()}
    maps = mixers["galerkin"].query, mixers["galerkin"].key  # the same in all
    query, key = (np.asarray(one(values), float) for one in maps)
    assert_allclose(actual["galerkin"], query @ key.T / 5, rtol=1e-4)
    gram, unit = key @ key.T, np.trace(key @ key.T) / 5
    if np.isinf(setting):
        expected = query @ key.T / unit
    else:
        system = gram + setting * unit * np.eye(5)
        expected = (1 + setting) * query @ key.T @ np.linalg.inv(system)
        softmax = np.exp(setting * query @ key.T / 2)
        softmax /= softmax.sum(axis=1, keepdims=True)
        assert_allclose(actual["softmax"], softmax, rtol=1e-4)
    assert_allclose(actual["functional"], expected, rtol=2e-3, atol=1e-5)


def test_an_epoch_has_every_sample_once():
    data = {"target": np.arange(7)}
    draw = jax.jit(lambda key, step: study.draw(data, 2, key, step)["target"])
    key = jax.random.key(0)
    epochs = [np.concatenate([draw(key, 3 * e + i) for i in range(3)]) for e in (0, 1)]
    assert [len(set(epoch.tolist())) for epoch in epochs] == [6, 6]
    assert epochs[0].tolist() != epochs[1].tolist()


class Constant(NamedTuple):
    """A model with the same value everywhere."""

    value: jax.Array

    def __call__(self, points, features):
        return jnp.full_like(points[:, :1], self.value)


def test_rows_are_errors_of_settings_and_seeds_in_order(rng):
    models = Constant(jnp.arange(6.0))
    train, test = (
        {
            "mesh_points": rng.normal(size=(n, 5, 2)),
            "target": rng.normal(size=(n, 5, 1)),
        }
        for n in (3, 2)
    )
    target = normalize.Normalizer(np.array([0.5]), np.array([2.0]))
    actual = study.evaluate(models, TINY, train, test, target)

    def error(value, data):
        rest = np.linalg.norm(2 * value + 0.5 - data["target"], axis=1)
        return np.mean(rest / np.linalg.norm(data["target"], axis=1))

    members = itertools.product(("0.1", "10.0", "inf"), (0, 1))
    for value, (row, member) in enumerate(zip(actual["rows"], members, strict=True)):
        assert (row["setting"], row["seed"]) == member
        assert_allclose(row["error"], error(value, test))
        assert_allclose(row["train_error"], error(value, train))
    median = np.median([error(value, test) for value in range(6)])
    assert_allclose(actual["error"], median)


@pytest.mark.nightly
def test_a_run_compares_all_settings_and_trains_no_ridge(tmp_path):
    with sessions.user():
        study.run(TINY, workdir=tmp_path)
        task = study.make_task(TINY)
        models = task.build(TINY, None)
        batch = task.draw(jax.random.key(0), 0)
        gradients = jax.vmap(jax.grad(task.loss), in_axes=(0, None))(models, batch)
    weights = models.blocks.attention.mixer.weight[...]
    ridges = np.array([0.1, 10.0, np.inf]).repeat(2)
    assert_allclose(weights[:, 0], 1 / (1 + 1 / ridges), rtol=1e-6)
    assert not np.any(gradients.blocks.attention.mixer.weight[...])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradients))
    assert 0 < read_result(tmp_path)["elasticity_functional"] < 2
    tables = (tmp_path / "tables.md").read_text()
    assert "ridge inf" in tables
    assert "mean field" in tables
    assert (tmp_path / "ridge.png").exists()


def test_updates_are_those_of_the_flags():
    config = dataclasses.replace(TINY, clip_norm=0.5, average_decay=0.9)
    assert config.benchmark("elasticity").updates == config.updates


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"batch_size": 9}, "batch_size=9 must be at most num_train=8"),
        ({"ridges": (0.0,)}, "ridges=0.0"),
        ({"num_around": 6}, "num_around=6 must be a multiple of 4"),
    ],
)
