import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("matplotlib")

from experiments import sinusoid, sinusoid_figures
from experiments import sinusoid_training as training
from experiments.sinusoid_models import METHODS
from opjax import checkpoint
from opjax.problems.sinusoid import sample
from opjax.training import NonFiniteError

TINY = dataclasses.replace(
    sinusoid.PRESETS["smoke"],
    methods="functional,attention",
    steps=4,
    batch_size=2,
    num_query=3,
    test_tasks=3,
    num_basis=2,
    shrink=32,
)


@pytest.fixture(scope="module", autouse=True)
def user_session():
    """A user's session; short calls, which all tests share and need not compile."""
    with (
        pytest.MonkeyPatch.context() as patch,
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
    ):
        patch.setattr(training, "_CHUNK", 2)
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory, user_session):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, sinusoid.run(TINY, workdir=workdir)


def train(study, folder=None):
    with jax.enable_x64(False):
        return training.train(study, folder)


# configuration


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": "0,0"}, "seeds=.0,0. contains a seed twice"),
        ({"seeds": "a"}, "seeds='a' must be non-negative whole numbers"),
        ({"seeds": ""}, "seeds='' must be non-negative whole numbers"),
        ({"seeds": "4294967296"}, "must be below 2"),
        (
            {"methods": "functional,magic"},
            "methods='magic' is unknown; choose from attention, linear, transolver, "
            "intention, functional",
        ),
        ({"methods": ""}, "methods='' is unknown"),
        ({"methods": "linear,linear"}, "contains a name twice"),
        ({"num_context": 0}, "num_context=0 must be .*at least 1"),
        ({"ridge": 0.0}, "ridge=0.0 must be .*above 0"),
        ({"ridge": 1.5}, "ridge=1.5 must be .*at most 1"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*at least 0"),
        ({"steps": 0}, "steps=0 must be .*at least 1"),
    ],
)
def test_bad_hyper_parameters_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_the_paper_preset_is_the_paper():
    config = sinusoid.PRESETS["paper"]
    assert (config.steps, config.batch_size, config.num_basis) == (50_000, 8, 8)
    assert config.method_names == tuple(METHODS)
    counts = {"attention": 593_409, "linear": 99_713, "transolver": 199_945}
    counts |= {"intention": 3_005_000, "functional": 50_825}
    rates = {"attention": 1e-3, "transolver": 1e-4, "intention": 3e-4}
    for method, count in counts.items():
        study = config.study(method, 0)
        assert sinusoid.num_parameters(study) == count
        assert study.rate == rates.get(method, study.rate)
    assert config.study("functional", 0).rate == 1e-4
    assert dataclasses.replace(config, learning_rate=1.0).study("linear", 0).rate == 1


# the program


def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    assert json.loads((workdir / "result.json").read_text()) == result
    assert not json.loads((workdir / "environment.json").read_text())["x64"]
    tables = (workdir / "tables.md").read_text()
    assert "±" in tables
    assert "functional attention |" in tables
    assert "1/32 of the published widths" in tables
    assert "nan" not in tables
    sizes = {f.name: f.stat().st_size for f in (workdir / "figures").iterdir()}
    assert sizes.keys() == {"01_predictions.png", "02_contexts.png", "03_losses.png"}
    assert all(1e3 < size < 5e5 for size in sizes.values())


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
    errors = np.asarray(result["mse_by_context"]["attention"])
    assert errors.shape == (2, 8)
    mean = np.median(errors[:, 1:].mean(axis=1))
    assert result["mse_attention"] == pytest.approx(mean)
    ratio = result["mse_attention"] / result["mse_functional"]
    assert result["ratio_attention"] == pytest.approx(ratio)
    assert 0 < result["train_seconds_attention"] < result["seconds"]


def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(sinusoid, "train", None)
    assert sinusoid.run(TINY, workdir=workdir) == result
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result


def test_an_interrupted_run_resumes_to_the_same_bits(
    finished, tmp_path, monkeypatch, capsys
):
    """Stopped within the second seed of the first method."""

    class Stop(Exception):
        pass

    original = checkpoint.save

    def stop(folder, step, *args, **kwargs):
        original(folder, step, *args, **kwargs)
        if folder.name == "functional-1" and step == 2:
            raise Stop

    monkeypatch.setattr(training, "_CHECKPOINT_SECONDS", -1.0)  # always due
    monkeypatch.setattr(sinusoid, "_draw", lambda *_: None)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        with pytest.raises(Stop):
            sinusoid.run(TINY, workdir=tmp_path)
    assert checkpoint.all_steps(tmp_path / "checkpoints" / "functional-1") == [2]
    resumed = sinusoid.run(TINY, workdir=tmp_path)
    assert capsys.readouterr().err.count("Continuing from") == 2
    assert resumed["mse_by_context"] == finished[1]["mse_by_context"]


# training and evaluation


def test_one_observation_is_enough_to_train():
    config = dataclasses.replace(TINY, num_context=1)
    losses = train(config.study("functional", 0)).losses
    assert np.isfinite(losses).all()
    assert losses.dtype == np.float32


def test_seeds_differ_and_methods_share_their_tasks():
    first, other = (train(TINY.study("functional", seed)) for seed in (0, 1))
    assert np.all(first.losses != other.losses)
    # Functional attention starts at zero: its first loss is the mean square of tasks.
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(0), 1), 0)
    with jax.enable_x64(False):
        tasks = sample(key, num_tasks=2, num_context=10, num_query=3)
        expected = jnp.mean(tasks.query_values**2)
    np.testing.assert_allclose(first.losses[0], expected, rtol=1e-2)


def test_a_loss_that_is_not_finite_stops_with_the_way_out():
    study = dataclasses.replace(TINY, learning_rate=1e30).study("attention", 3)
    with pytest.raises(
        NonFiniteError, match=r"Study attention-3 has loss .* at step \d.*lower --learn"
    ):
        train(study)


def test_errors_are_those_of_the_first_observations():
    """A model that predicts a weighted mean of the observed values."""

    def mean(x, y, queries, *, context_weights):
        average = jnp.sum(context_weights[:, None] * y) / jnp.sum(context_weights)
        return jnp.full((queries.shape[0], 1), average)

    with jax.enable_x64(False):
        found = training.errors(jax.tree_util.Partial(mean), 7)
        key = jax.random.fold_in(jax.random.key(0), 2)
        tasks = sample(key, num_tasks=7, num_context=40, num_query=50)
        _, y, _, target = map(np.asarray, tasks[:4])
    for size, error in zip(training.CONTEXTS, found, strict=True):
        average = y[:, :size].mean(axis=1, keepdims=True)
        np.testing.assert_allclose(error, np.mean((target - average) ** 2), rtol=1e-5)


def test_errors_that_are_not_finite_are_refused():
    def bad(x, y, queries, *, context_weights):
        return queries * jnp.nan

    with jax.enable_x64(False), pytest.raises(NonFiniteError, match="raise the ridge"):
        training.errors(jax.tree_util.Partial(bad), 2)


@pytest.mark.parametrize("steps", [1, 7, 1203])
def test_losses_of_any_length_are_drawn(tmp_path, rng, steps):
    path = tmp_path / "a.png"
    histories = {"functional attention": rng.uniform(0.1, 1, size=(2, steps))}
    sinusoid_figures.losses(path, histories)
    assert path.stat().st_size > 1e3
