import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

pytest.importorskip("matplotlib")

from experiments import sinusoid
from opjax.learn.run.sources import make_batches
from opjax.problems.sinusoid import sample
from opjax.training import NonFiniteError
from tests import refused, sessions

TINY = dataclasses.replace(
    sinusoid.PRESETS["smoke"],
    models=("functional", "attention"),
    num_steps=4,
    batch_size=2,
    num_query=3,
    test_tasks=3,
    num_basis=2,
    shrink=32,
)


@pytest.fixture(scope="module", autouse=True)
def user_session():
    """A user's session."""
    with sessions.lenient():
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, user_session):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, sinusoid.run(TINY, workdir=workdir)


def member(name, seed, **changes):
    return dataclasses.replace(TINY, models=(name,), seeds=(seed,), **changes)


# configuration


test_bad_hyper_parameters_are_refused_before_any_work = refused.settings(
    TINY,
    [
        ({"seeds": (0, 0)}, "seeds=0,0 contains 0 twice"),
        ({"seeds": ()}, "seeds is empty"),
        ({"seeds": (2**32,)}, "seeds=.* must be .*below 2"),
        (
            {"models": ("functional", "magic")},
            "models='magic' is unknown; choose from attention, linear, transolver, "
            "intention, functional, functional_learned, functional_gcv",
        ),
        ({"models": ("linear", "linear")}, "contains linear twice"),
        ({"num_context": 0}, "num_context=0 must be .*at least 1"),
        ({"ridges": (0.0,)}, "ridges=0.0 must be .*above 0"),
        ({"ridges": (1.0,)}, "ridges=1.0 must be .*below 1"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*at least 0"),
        ({"num_steps": 0}, "num_steps=0 must be .*at least 1"),
        ({"contexts": (4, 5)}, "contexts=4,5 must have .*at least 10"),
    ],
)


def test_the_paper_preset_is_the_paper():
    config = sinusoid.PRESETS["paper"]
    assert (config.num_steps, config.batch_size, config.num_basis) == (50_000, 8, 8)
    assert (config.num_context, config.num_query, config.anneal) == (32, 200, True)
    assert (config.contexts, config.test_tasks) == ((5, 10, 20, 40), 200)
    assert (config.test_queries, config.ridge, config.clip_norm) == (200, 1e-4, 0)
    four = sinusoid.PRESETS["paper_four"]
    assert (four.num_context, four.num_basis) == (4, 2)
    assert config.models == sinusoid.PUBLISHED
    counts = {"attention": 593_409, "linear": 99_713, "transolver": 199_945}
    counts |= {"intention": 3_005_000, "functional": 50_825}
    rates = {"attention": 1e-3, "intention": 3e-4}
    for (name, seed), one in config.members().items():
        if seed:
            continue
        model = jax.eval_shape(lambda one=one: sinusoid.build(one))
        assert sum(leaf.size for leaf in jax.tree.leaves(model)) == counts[name]
        assert one.rate == rates.get(name, 1e-4)
        assert dataclasses.replace(one, learning_rate=1.0).rate == 1
    assert sinusoid.MODELS["intention"].num_heads == 4


def test_the_rate_is_annealed_as_the_authors_scheduler_does():
    config = dataclasses.replace(TINY, models=("functional",), anneal=True)
    optimizer = sinusoid.make_optimizer(config, 10)
    state = optimizer.init(jnp.zeros(()))
    updates = []
    for _ in range(10):  # of Adam with a constant gradient: the rate itself
        update, state = optimizer.update(jnp.ones(()), state)
        updates.append(-float(update))
    # CosineAnnealingLR(T_max=10, eta_min=0): closed form of its documentation.
    expected = 1e-4 * 0.5 * (1 + np.cos(np.pi * np.arange(10) / 10))
    assert_allclose(updates, expected, rtol=1e-4)


@pytest.mark.nightly
def test_muon_turns_kernels_alone():
    config = dataclasses.replace(TINY, optimizer="muon", learning_rate=0.1)
    params = {
        "kernel": jnp.eye(3, 4) * jnp.arange(1.0, 4)[:, None],
        "scale": jnp.ones(3),
    }
    optimizer = sinusoid.make_optimizer(config, 10)
    updates, _ = optimizer.update(params, optimizer.init(params), params)
    # Singular values of about one, times the rate, 0.2 and the root of the larger side.
    found = np.linalg.svd(updates["kernel"], compute_uv=False)
    assert_allclose(found, 0.1 * 0.2 * 2, rtol=0.35)
    assert_allclose(updates["scale"], -0.1, rtol=1e-4)


def test_every_ridge_is_a_member_of_the_models_that_have_one():
    config = sinusoid.PRESETS["ridges"]
    names = list(dict.fromkeys(name for name, _ in config.members()))
    ridges = ["1e-07", "1e-05", "0.001", "0.1"]
    learned = [f"functional_learned_{ridge}" for ridge in ridges]
    fixed = [f"functional_{ridge}" for ridge in ridges]
    assert names == ["functional_gcv", *learned, *fixed]
    member = config.members()["functional_learned_0.001", 2]
    assert (member.model, member.ridge, member.seed) == ("functional_learned", 1e-3, 2)
    labels = [sinusoid.label_of(config.members()[name, 0]) for name in names]
    assert len(set(labels)) == len(labels)
    both = dataclasses.replace(config, models=("intention",), seeds=(0,))
    assert list(both.members()) == [("intention", 0)]  # its ridge is another option
    assert "functional, learned ridge from 0.001" in labels
    counts = {}
    for name in ("functional_gcv", "functional_learned_0.1", "functional_0.1"):
        one = config.members()[name, 0]
        leaves = jax.tree.leaves(jax.eval_shape(lambda one=one: sinusoid.build(one)))
        counts[name] = sum(leaf.size for leaf in leaves)
    assert list(counts.values()) == [50_825, 50_826, 50_825]


# the program


@pytest.mark.nightly
def test_the_result_says_how_it_came_about(finished):
    workdir, result = finished
    expected = {
        "preset": "smoke",
        "seeds": [0, 1],
        "contexts": [5, 10, 15, 20, 25, 30, 35, 40],
        "ratio_functional": 1.0,
        # 4 + 4 + 3 (16 + 4) of the encoder, 2 (4 + 1) of the scores, a temperature.
        "parameters_functional": 79,
        "workdir": str(workdir),
    }
    assert result.items() >= expected.items()
    assert result["data"].startswith("own sampler")
    assert result["data"].endswith("queries each")
    errors = np.asarray(result["mse_by_context"]["attention"])
    assert errors.shape == (2, 8)
    mean = np.median(errors[:, 1:].mean(axis=1))
    assert result["mse_attention"] == pytest.approx(mean)
    ratio = result["mse_attention"] / result["mse_functional"]
    assert result["ratio_attention"] == pytest.approx(ratio)
    assert 0 < result["train_seconds_attention"] < result["seconds"]


# training and evaluation


@pytest.mark.nightly
def test_seeds_differ_and_models_share_their_tasks(finished):
    workdir, _ = finished
    first, other = (
        np.load(workdir / f"functional-{seed}" / "losses.npz")["losses"]
        for seed in (0, 1)
    )
    assert first.dtype == np.float32
    assert np.all(first != other)
    # Functional attention starts at zero: its first loss is the mean square of tasks.
    with jax.enable_x64(False):
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 1), 0)
        tasks = sample(key, num_tasks=2, num_context=10, num_query=3)
        expected = jnp.mean(tasks.query_values**2)
    assert_allclose(first[0], expected, rtol=1e-2)


@pytest.mark.nightly
def test_one_observation_is_enough_to_train():
    config = member("functional", 0, num_context=1, num_steps=2)
    task = sinusoid.make_task(config, None)
    with jax.enable_x64(False):
        made = make_batches(task, task.settings(config))
        state = made.start(sinusoid.build(config, nnx.Rngs(0)))
        made.prepare(state, 0)
        _, history = made.advance(state, 0, np.ones((), bool))
    assert np.isfinite(history["loss"]).all()


def test_errors_are_those_of_the_first_observations():
    """A model that predicts a weighted mean of the observed values."""

    def mean(x, y, queries, *, context_weights):
        average = jnp.sum(context_weights[:, None] * y) / jnp.sum(context_weights)
        return jnp.full((queries.shape[0], 1), average)

    with jax.enable_x64(False):
        tasks, found = sinusoid.errors(
            jax.tree_util.Partial(mean), dataclasses.replace(TINY, test_tasks=7)
        )
        _, y, _, target = map(np.asarray, tasks[:4])
    assert found.shape == (7, 8)
    for size, error in zip(sinusoid.CONTEXTS, found.mean(axis=0), strict=True):
        average = y[:, :size].mean(axis=1, keepdims=True)
        assert_allclose(error, np.mean((target - average) ** 2), rtol=1e-5)


def test_errors_that_are_not_finite_are_refused():
    def bad(x, y, queries, *, context_weights):
        return queries * jnp.nan

    with jax.enable_x64(False), pytest.raises(NonFiniteError, match="raise the ridge"):
        sinusoid.errors(jax.tree_util.Partial(bad), TINY)


def test_the_published_setup_says_its_observations_and_queries():
    task = sinusoid.make_task(sinusoid.PRESETS["paper"], None)
    assert "32 observations and 200 queries" in task.source
