import dataclasses
import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import burgers, burgers_data
from experiments.burgers_models import objective
from opjax.learn import fitting as common

TINY = dataclasses.replace(
    burgers.PRESETS["smoke"],
    models="functional,galerkin",
    num_train=4,
    num_validation=2,
    num_test=4,
    num_points=32,
    test_points="32,64",
    features=8,
    num_layers=1,
    num_basis=4,
    feedforward=8,
    num_modes=4,
    decoder_features=4,
    num_epochs=2,
    batch_size=2,
    checkpoint_every=1,
)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache_dir):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, burgers.run(TINY, workdir=workdir, cache_dir=cache_dir)


@pytest.mark.slow
def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    assert json.loads((workdir / "result.json").read_text()) == result
    for name in ("functional", "galerkin"):
        rows = common.read_metrics(workdir / f"{name}-0")
        assert [row["epoch"] for row in rows] == [1, 2]
        assert result[f"parameters_{name}"] > 100
        assert 0 < result[f"error_32_{name}"] < 3
        ratio = result[f"error_64_{name}"] / result[f"error_32_{name}"]
        np.testing.assert_allclose(result[f"ratio_{name}"], ratio)
    best = min(("functional", "galerkin"), key=lambda n: result[f"error_64_{n}"])
    assert result["best"] == best
    table = (workdir / "tables.md").read_text()
    assert "error on 32, x 1000 | error on 64, x 1000" in table
    assert "| galerkin |" in table
    for name in ("samples.png", "curves.png"):
        assert (workdir / name).stat().st_size > 1000


@pytest.mark.slow
def test_the_errors_are_those_of_the_predictions_on_both_grids(finished, cache_dir):
    workdir, result = finished
    data = burgers_data.load(TINY, cache_dir=cache_dir)
    for name in ("functional", "galerkin"):
        with np.load(workdir / f"{name}-0" / "predictions.npz") as stored:
            predictions = dict(stored)
        assert predictions.keys() == {"32", "64"}
        for points in (32, 64):
            prediction = predictions[str(points)].astype(np.float64)
            target = data.tests[points]["solution"][..., 0].astype(np.float64)
            assert prediction.shape == target.shape == (4, points)
            errors = np.linalg.norm(prediction - target, axis=1)
            errors = errors / np.linalg.norm(target, axis=1)
            expected = result[f"error_{points}_{name}"]
            np.testing.assert_allclose(errors.mean(), expected, rtol=1e-4)


@pytest.mark.slow
def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(burgers_data, "load", None)
    monkeypatch.setattr(burgers, "fit", None)
    assert burgers.run(TINY, workdir=workdir) == result
    assert json.loads(capsys.readouterr().out) == result


@pytest.mark.slow
def test_an_interrupted_run_continues_with_the_missing_member(
    finished, cache_dir, tmp_path
):
    workdir, result = finished
    again = tmp_path / "again"
    shutil.copytree(workdir, again)
    (again / "result.json").unlink()
    member = again / "galerkin-0"
    (member / "result.json").unlink()
    shutil.rmtree(sorted((member / "checkpoints").iterdir())[-1])  # the last epoch's
    untouched = (again / "functional-0" / "metrics.jsonl").stat().st_mtime_ns
    found = burgers.run(TINY, workdir=again, cache_dir=cache_dir)
    for points in (32, 64):
        for name in ("functional", "galerkin"):
            key = f"error_{points}_{name}"
            assert found[key] == result[key]
    path = again / "functional-0" / "metrics.jsonl"
    assert path.stat().st_mtime_ns == untouched
    assert [row["epoch"] for row in common.read_metrics(member)] == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"models": "functional,fourrier"}, "choose from functional, galerkin"),
        ({"num_modes": 18}, "above Nyquist's wave number of a grid of 32 points, 16"),
        ({"test_points": "32,96"}, "A grid of 96 points must divide the 8192"),
        ({"num_points": 24}, "A grid of 24 points must divide the 8192"),
        ({"test_points": "32,fine"}, "must be numbers separated by commas"),
        ({"num_heads": 3}, "num_heads=3 must divide features=8"),
        ({"batch_size": 5}, "batch_size=5 must be at most num_train=4"),
        ({"normalization": "layer"}, "choose from features, keys"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TINY, **change)


def test_training_validation_and_test_samples_are_disjoint(cache_dir):
    data = burgers_data.load(TINY, cache_dir=cache_dir)
    sets = data.train, data.validation, data.tests[32]
    states = np.concatenate([arrays["initial"][..., 0] for arrays in sets])
    assert states.shape == (4 + 2 + 4, 32)
    distances = np.linalg.norm(states[:, None] - states[None, :], axis=-1)
    assert distances[~np.eye(10, dtype=bool)].min() > 1e-2


def test_grids_of_any_size_have_the_same_samples(cache_dir):
    data = burgers_data.load(TINY, cache_dir=cache_dir)
    for name in ("initial", "solution"):
        coarse, fine = data.tests[32][name], data.tests[64][name]
        np.testing.assert_array_equal(fine[:, ::2], coarse)
    coarse, fine = burgers_data.mesh_points(32), burgers_data.mesh_points(64)
    np.testing.assert_array_equal(fine[::2], coarse)


@pytest.fixture
def batch(rng):
    shape = (TINY.batch_size, 32, 1)
    names = "initial", "solution"
    return {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name in names}


def test_the_loss_is_zero_at_the_exact_solution_with_a_finite_gradient(batch):
    def loss(scale):
        model = jax.tree_util.Partial(lambda points, initial: scale * initial)
        exact = {"initial": batch["solution"], "solution": batch["solution"]}
        return objective(TINY).loss(model, exact)

    value, gradient = jax.value_and_grad(loss)(jnp.float32(1))
    assert value == 0
    assert gradient == 0


def test_the_loss_is_the_mean_of_its_formula(batch):
    model = jax.tree_util.Partial(lambda points, initial: jnp.sin(initial) + points)
    actual = objective(TINY).loss(model, batch)
    values = []
    for b in range(TINY.batch_size):
        target = np.asarray(batch["solution"][b, :, 0], np.float64)
        initial = np.asarray(batch["initial"][b, :, 0], np.float64)
        prediction = np.sin(initial) + np.arange(32) / 32
        value = np.linalg.norm(prediction - target) / np.linalg.norm(target)
        slope = np.array([target[(i + 1) % 32] - target[i - 1] for i in range(32)])
        error = prediction - target
        error = np.array([error[(i + 1) % 32] - error[i - 1] for i in range(32)])
        ratio = np.linalg.norm(error) / np.linalg.norm(slope)
        values.append(value + (TINY.gradient_weight / 32) ** 0.5 * ratio)
    np.testing.assert_allclose(actual, np.mean(values), rtol=1e-5)
