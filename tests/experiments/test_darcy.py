import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from experiments import darcy
from opjax import normalize
from opjax.learn.registry import operators
from opjax.learn.run import metrics_file as common
from opjax.learn.tasks import outcome
from opjax.training import checkpoint
from tests import refused
from tests.experiments.results import read_result
from tests.refused import value_error

ROOT = pathlib.Path(__file__).parents[2]
TINY = dataclasses.replace(
    darcy.PRESETS["smoke"],
    num_train=4,
    num_validation=2,
    num_test=3,
    num_points=21,
    stride=5,
    width=8,
    num_layers=1,
    num_basis=4,
    reference_points=2,
    num_epochs=2,
    batch_size=2,
    checkpoint_every=1,
)
KEYS = (
    "relative_l2 relative_l2_std validation best_epoch seconds data_seconds parameters "
    "condition epochs preset model seed data device workdir"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache_dir):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, darcy.run(TINY, workdir=workdir, cache_dir=cache_dir)


@pytest.fixture(scope="module")
def task(cache_dir):
    return darcy.make_task(dataclasses.replace(TINY, gradient_weight=0.3), cache_dir)


def count(config, grid_shape):
    sizes = operators.Sizes(2, 1, 1, grid_shape, box=((0.0, 0.0), (1.0, 1.0)))
    build = functools.partial(operators.build, config, sizes)
    model = jax.eval_shape(lambda key: build(rngs=nnx.Rngs(key)), jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(model))


@pytest.mark.nightly
def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    member = workdir / "functional-0"
    assert read_result(workdir) == result
    assert json.loads((workdir / "config.json").read_text())["num_train"] == 4
    assert not json.loads((workdir / "environment.json").read_text())["x64"]
    assert [row["epoch"] for row in common.read_metrics(member)] == [1, 2]
    assert checkpoint.all_steps(member / "checkpoints") == [2, 4]
    sizes = {f.stem: f.stat().st_size for f in (member / "figures").iterdir()}
    assert sizes.keys() >= {"fields", "curves", "basis_functions", "functional_maps"}
    assert all(1e3 < size < 1e6 for size in sizes.values())


@pytest.mark.nightly
def test_the_result_says_how_it_came_about(finished):
    workdir, result = finished
    assert result.keys() == set(KEYS.split())
    assert 0 < result["relative_l2"] < 2
    assert 0 < result["data_seconds"] < result["seconds"]
    assert result["best_epoch"] in (1, 2)
    assert result["condition"] >= 1
    assert result["parameters"] == count(TINY, (5, 5))
    assert result["data"] == "own solver, 21 points, seed 0"
    assert result["workdir"] == str(workdir)
    expected = {"preset": "smoke", "model": "functional", "seed": 0, "epochs": 2}
    assert result.items() >= expected.items()


@pytest.mark.nightly
def test_the_reported_error_is_that_of_the_predictions(finished):
    workdir, result = finished
    seen = outcome.read(workdir / "functional-0")
    assert_allclose(result["relative_l2"], seen.errors.mean(), rtol=1e-12)
    assert_allclose(result["relative_l2_std"], seen.errors.std(), rtol=1e-12)
    assert sorted(seen.rows) == [0, 1, 2]
    for row, sample, prediction in zip(
        seen.rows, seen.samples, seen.predicted, strict=True
    ):
        truth: Any = sample.target
        features: Any = sample.features
        expected = np.linalg.norm(prediction - truth) / np.linalg.norm(truth)
        assert_allclose(seen.errors[row], expected, rtol=1e-4)
        assert_allclose(np.unique(features), [3, 12], rtol=1e-5)


def test_normalizers_know_the_training_samples_only(task):
    (train,) = task.train
    assert_allclose(train["features"].mean(), 0, atol=1e-6)
    assert_allclose(train["features"].std(ddof=1), 1, rtol=1e-6)
    assert train["target"].shape == (4, 25, 1)
    mean = task.extra["target"].mean
    assert_allclose(mean, [train["target"].mean()], rtol=1e-6)


def test_training_validation_and_test_share_no_sample(task):
    sets = task.train, task.validation, task.test
    samples = [row.tobytes() for (split,) in sets for row in split["target"]]
    assert len(set(samples)) == len(samples) == 4 + 2 + 3


def test_schwarz_models_have_coarse_maps_besides():
    config = dataclasses.replace(
        TINY, models=("functional_schwarz",), num_boxes=2, overlap=1
    )
    # Three maps of the coarse coefficients and a ridge in each block.
    more = TINY.num_layers * (3 * (8 // TINY.num_heads) ** 2 + 1)
    assert count(config, (5, 5)) == count(TINY, (5, 5)) + more


def test_the_loss_sums_errors_of_values_and_differences(task):
    mean, std = (float(x[0]) for x in task.extra["target"])

    def model(points, coefficient):
        return coefficient

    def relative(p, t):
        return np.linalg.norm(p - t) / np.linalg.norm(t)

    batch = {name: values[:2] for name, values in task.train[0].items()}
    expected = 0.0
    for i in range(2):
        p = batch["features"][i].reshape(5, 5).astype(np.float64) * std + mean
        t = batch["target"][i].reshape(5, 5).astype(np.float64)
        expected += relative(p, t)
        p, t = np.pad(p[1:-1, 1:-1], 2), np.pad(t, 1)
        for axis in (0, 1):
            shifted = [np.roll(f, -1, axis) - np.roll(f, 1, axis) for f in (p, t)]
            expected += 0.3 * relative(*(f[1:-1, 1:-1] for f in shifted))
    with jax.enable_x64(False):
        actual = task.loss(model, batch)
    assert_allclose(actual, expected, rtol=1e-5)


def test_the_flux_penalty_is_its_formula(cache_dir):
    changes = {"penalty": "flux", "gradient_weight": 0.5, "mean_loss": True}
    config = dataclasses.replace(TINY, pointwise=True, num_validation=0, **changes)
    task = darcy.make_task(config, cache_dir)
    assert task.validation == ()
    batch = {name: jnp.asarray(a[:2]) for name, a in task.train[0].items()}
    mean, std = (np.asarray(x, np.float64) for x in task.extra["target"])
    assert mean.shape == (25, 1)
    with jax.enable_x64(False):
        actual = task.loss(lambda points, features: features, batch)

    expected = 0.0
    for i in range(2):
        middle, spread = (np.asarray(x) for x in task.extra["features"])
        a = np.asarray(batch["features"][i]) * spread + middle
        assert_allclose(np.minimum(abs(a - 3), abs(a - 12)), 0, atol=1e-4)
        a = a.reshape(5, 5)
        target = np.asarray(batch["target"][i], np.float64)
        prediction = np.asarray(batch["features"][i], np.float64) * std + mean
        expected += np.linalg.norm(prediction - target) / np.linalg.norm(target)
        p, t = prediction.reshape(5, 5), target.reshape(5, 5)
        inner = (slice(1, -1),) * 2
        errors = [
            a * (np.gradient(p, 0.2, axis=x) - np.gradient(t, 0.2, axis=x))
            for x in (0, 1)
        ]
        error = np.mean([np.mean(e[inner] ** 2) for e in errors])
        size = np.mean([np.mean(a * np.gradient(t, 0.2, axis=x) ** 2) for x in (0, 1)])
        expected += np.sqrt(0.5 * 0.2 / 2 * error / size)
    assert_allclose(actual, expected / 2, rtol=1e-4)


def test_models_that_solve_no_systems_have_no_condition_number(task):
    assert task.probe(lambda points, features: features) == {}


test_bad_hyper_parameters_are_refused_before_any_work = refused.settings(
    darcy.PRESETS["quick"],
    [
        ({"num_heads": 3}, "num_heads=3 must divide width=64"),
        ({"stride": 3}, "stride=3 must divide num_points - 1 = 140"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*above 0"),
        ({"num_train": -5}, "num_train=-5 must be .*at least 1"),
        ({"num_layers": 0}, "num_layers=0 must be .*at least 1"),
        ({"seeds": (-1,)}, "seeds=-1 must be .*at least 0"),
        ({"batch_size": 901}, "batch_size=901 .* num_train=900"),
        ({"min_temperature": 6.0}, "max_temperature=5.0"),
        (
            {"min_temperature": 0.0, "max_temperature": 2.0},
            "max_temperature=2.0 has no effect with min_temperature=0",
        ),
        ({"penalty": "none"}, "choose from gradient, flux"),
        ({"reference_points": 1}, "reference_points=1 must be at least 2"),
        ({"beta1": 1.0}, "beta1=1.0 must be .*at least 0 and below 1"),
        ({"beta2": 0.0}, "beta2=0.0 must be .*above 0 and below 1"),
        ({"num_boxes": 0}, "num_boxes=0 must be .*at least 1"),
        ({"tolerance": 0.0}, "tolerance=0.0 must be .*above 0"),
    ],
)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("functional_schwarz", {"overlap": 8}, "overlap=8 is larger than .* interval"),
        ("functional_schwarz", {"num_boxes": 29, "overlap": 0}, "num_hats="),
        ("galerkin2d", {"width": 2, "num_heads": 1}, "at least 3"),
    ],
)
def test_models_that_do_not_fit_the_grid_are_refused(name, change, message):
    quick = darcy.PRESETS["quick"]
    with value_error(message):
        count(dataclasses.replace(quick, models=(name,), **change), (29, 29))


def test_unknown_models_are_refused(tmp_path):
    config = dataclasses.replace(TINY, models=("fourrier",))
    with value_error("models='fourrier' is unknown"):
        darcy.run(config, workdir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_missing_data_file_costs_nothing(tmp_path):
    config = dataclasses.replace(TINY, data_dir=str(tmp_path / "none"))
    with pytest.raises(
        FileNotFoundError, match=r"r21_N1024_smooth1(.|\n)*--num_points"
    ):
        darcy.run(config, workdir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_missing_matplotlib_is_noticed_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"opjax\["):
        darcy.run(TINY, workdir=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("functional_schwarz", {"num_boxes": 4, "overlap": 1, "num_levels": 3}),
        # It has no use for the options of bases, so they stay as in the preset.
        ("galerkin2d", {"coarse_points": 3, "num_basis": 8, "reference_points": 8}),
        ("hat:galerkin", {}),
    ],
)
def test_other_models_train(name, change, tmp_path, cache_dir):
    config = dataclasses.replace(TINY, models=(name,), **change)
    result = darcy.run(config, workdir=tmp_path, cache_dir=cache_dir)
    assert result["model"] == name
    assert result["condition"] is None
    (member,) = (path.parent for path in tmp_path.glob("*/metrics.jsonl"))
    losses = [row["train_loss"] for row in common.read_metrics(member)]
    assert losses[1] < losses[0]


def start(*arguments, killed_after=None):
    """Runs the program in its own process, killed after some rows of metrics."""
    command = ["-m", "experiments.darcy"]
    if killed_after is not None:
        command = ["-c", _KILLED.format(killed_after)]
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-W", "error", *command, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )


_KILLED = """
import os, runpy, signal
from opjax.learn.run import metrics_file as common
write = common.MetricsWriter.write
def write_then_kill(self, row):
    write(self, row)
    if self.rows == {}:
        os.kill(os.getpid(), signal.SIGKILL)
common.MetricsWriter.write = write_then_kill
runpy.run_module("experiments.darcy", run_name="__main__", alter_sys=True)
"""


def computed(workdir):
    """Everything a run computed, without times and places."""
    result = json.loads((workdir / "result.json").read_text())
    for name in ("seconds", "data_seconds"):
        del result[name]
    member = workdir / "functional-0"
    rows = [{**row, "seconds": 0} for row in common.read_metrics(member)]
    with np.load(member / "predictions.npz") as file:
        arrays = {name: file[name].tobytes() for name in file.files}
    return result, rows, arrays


@pytest.mark.nightly
def test_the_same_seed_gives_the_same_bits_also_when_killed(tmp_path):
    cache = f"--cache_dir={tmp_path / 'cache'}"
    flags = ["--preset=smoke", "--num_epochs=5", cache]
    killed = start(*flags, f"--workdir={tmp_path / 'a'}", killed_after=3)
    assert killed.returncode == -9, killed.stderr
    assert killed.stdout == ""
    assert not (tmp_path / "a" / "result.json").exists()
    resumed = start(cache, f"--workdir={tmp_path / 'a'}")
    assert resumed.returncode == 0, resumed.stderr
    assert "Continuing from" in resumed.stderr
    whole = start(*flags, f"--workdir={tmp_path / 'b'}")
    assert whole.returncode == 0, whole.stderr
    assert len(whole.stdout.splitlines()) == 1
    assert computed(tmp_path / "a") == computed(tmp_path / "b")


def test_latents_are_compared_with_eigenfunctions_of_the_sample_s_operator():
    normalizer = normalize.Normalizer(jnp.array([7.0]), jnp.array([2.0]))
    x = np.linspace(0, 1, 9)
    sample = {"features": np.zeros((81, 1))}  # a = 7 everywhere
    look = functools.partial(darcy._eigenfunctions, normalizer, (9, 9))
    shape, found = look(types.SimpleNamespace(coarse_shape=(5, 5)), sample)
    assert shape == (5, 5)
    assert found.shape == (25, 8)
    wave = np.sqrt(2) * np.sin(np.pi * x[::2])
    assert_allclose(found[:, 0], np.outer(wave, wave).ravel(), atol=1e-6)
    sample["features"] = np.where(x < 0.5, -2.5, 0.0).repeat(9)[:, None]  # 2 and 7
    _, found = look(types.SimpleNamespace(coarse_shape=(9, 9)), sample)
    first = found[:, 0].reshape(9, 9)
    assert first[:4].sum() > 1.5 * first[5:].sum()  # slow where it diffuses slowly
    assert look(types.SimpleNamespace(coarse_shape=(3, 3)), sample) is None
