import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from experiments import darcy, darcy_data, darcy_models
from opjax import checkpoint
from opjax.datasets import darcy as dataset
from opjax.learn import fitting as common
from opjax.learn.folder import open_run

ROOT = pathlib.Path(__file__).parents[2]
TINY = dataclasses.replace(
    darcy.PRESETS["smoke"],
    num_train=4,
    num_validation=2,
    num_test=3,
    num_points=21,
    stride=5,
    features=8,
    num_basis=4,
    reference_points=2,
    num_epochs=2,
    batch_size=2,
    checkpoint_every=1,
)
SCHWARZ = {"model": "functional_schwarz"}
GALERKIN = {"model": "galerkin2d"}


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache_dir):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, darcy.run(TINY, workdir=workdir, cache_dir=cache_dir)


def test_a_run_leaves_everything_in_its_folder(finished):
    workdir, result = finished
    assert json.loads((workdir / "result.json").read_text()) == result
    assert json.loads((workdir / "config.json").read_text())["num_train"] == 4
    assert not json.loads((workdir / "environment.json").read_text())["x64"]
    assert [row["epoch"] for row in common.read_metrics(workdir)] == [1, 2]
    assert checkpoint.all_steps(workdir / "checkpoints") == [2, 4]
    sizes = {f.name: f.stat().st_size for f in (workdir / "figures").iterdir()}
    assert sizes.keys() == {
        "predictions.png",
        "curves.png",
        "basis.png",
        "functional_map.png",
    }
    assert all(1e3 < size < 3e5 for size in sizes.values())


def test_the_result_says_how_it_came_about(finished):
    workdir, result = finished
    assert 0 < result["relative_l2"] < 2
    assert 0 < result["data_seconds"] < result["seconds"]
    assert result["best_epoch"] in (1, 2)
    assert result["data"] == "own solver, 21 points, seed 0"
    assert result["workdir"] == str(workdir)
    expected = {"preset": "smoke", "model": "functional", "seed": 0, "epochs": 2}
    assert result.items() >= expected.items()


def test_the_reported_error_is_that_of_the_predictions(finished):
    workdir, result = finished
    with np.load(workdir / "predictions.npz") as file:
        saved = dict(file)
    errors = saved["relative_l2"]
    np.testing.assert_allclose(result["relative_l2"], errors.mean(), rtol=1e-12)
    np.testing.assert_allclose(result["relative_l2_std"], errors.std(), rtol=1e-12)
    assert list(np.sort(errors)) == list(errors[saved["index"]])
    truth, prediction = (
        saved[name].astype(np.float64).reshape(3, -1)
        for name in ("solution", "prediction")
    )
    expected = np.linalg.norm(prediction - truth, axis=1) / np.linalg.norm(
        truth, axis=1
    )
    np.testing.assert_allclose(errors[saved["index"]], expected, rtol=1e-4)
    np.testing.assert_allclose(np.unique(saved["coefficient"]), [3, 12], rtol=1e-5)


def test_a_finished_run_is_read_and_not_repeated(finished, monkeypatch, capsys):
    workdir, result = finished
    monkeypatch.setattr(darcy_data, "load", None)
    monkeypatch.setattr(darcy, "fit", None)
    assert darcy.run(TINY, workdir=workdir) == result
    assert json.loads(capsys.readouterr().out) == result


def test_another_configuration_is_refused_with_its_fields(finished):
    workdir, _ = finished
    other = dataclasses.replace(TINY, seed=3, learning_rate=0.5)
    with pytest.raises(ValueError, match=r"learning_rate: 0.001 there, 0.5 now; seed"):
        darcy.run(other, workdir=workdir)


def test_normalizers_know_the_training_samples_only(cache_dir):
    data = darcy_data.load(TINY, cache_dir=cache_dir)
    coefficient = data.train["coefficient"]
    np.testing.assert_allclose(coefficient.mean(), 0, atol=1e-6)
    np.testing.assert_allclose(coefficient.std(ddof=1), 1, rtol=1e-6)
    solution = data.train["solution"]
    assert solution.shape == (4, 25, 1)
    np.testing.assert_allclose(
        data.normalizers["solution"].mean, solution.mean(), rtol=1e-6
    )
    more = darcy_data.load(dataclasses.replace(TINY, num_test=2), cache_dir=cache_dir)
    np.testing.assert_array_equal(more.test["solution"], data.test["solution"][:2])
    jax.tree.map(np.testing.assert_array_equal, more.normalizers, data.normalizers)


def test_training_validation_and_test_share_no_sample(cache_dir):
    data = darcy_data.load(TINY, cache_dir=cache_dir)
    sets = data.train, data.validation, data.test
    samples = [row.tobytes() for split in sets for row in split["solution"]]
    assert len(set(samples)) == len(samples) == 4 + 2 + 3


def test_published_files_take_the_place_of_the_solver(tmp_path, rng):
    coeff, sol = rng.uniform(1, 2, (2, 7, 21, 21)).astype(np.float32)
    dataset.save(
        tmp_path / "piececonst_r21_N1024_smooth1.npz", dataset.to_samples(coeff, sol)
    )
    dataset.save(
        tmp_path / "piececonst_r21_N1024_smooth2.npz",
        dataset.to_samples(coeff + 1, sol + 1),
    )
    data = darcy_data.load(dataclasses.replace(TINY, data_dir=str(tmp_path)))
    coarse = sol[:, ::5, ::5].reshape(7, 25, 1)
    np.testing.assert_array_equal(data.train["solution"], coarse[:4])
    np.testing.assert_array_equal(data.validation["solution"], coarse[4:6])
    np.testing.assert_array_equal(data.test["solution"], coarse[:3] + 1)
    assert data.source == str(tmp_path)


def test_a_schwarz_model_trains(tmp_path, cache_dir):
    config = dataclasses.replace(TINY, **SCHWARZ, num_boxes=2, overlap=1)
    result = darcy.run(config, workdir=tmp_path, cache_dir=cache_dir)
    assert result["model"] == "functional_schwarz"
    # Three maps of the coarse coefficients and a ridge in each of the two blocks.
    plain = darcy_models.functional(TINY, rngs=nnx.Rngs(0))
    sizes = [leaf.size for leaf in jax.tree.leaves(plain)]
    assert result["parameters"] == sum(sizes) + 2 * (3 * 4**2 + 1)
    losses = [row["train_loss"] for row in common.read_metrics(tmp_path)]
    assert losses[1] < losses[0]
    assert (tmp_path / "figures" / "functional_map.png").stat().st_size > 1e3


def test_the_paper_preset_has_the_published_number_of_parameters():
    def build(key):
        return darcy_models.functional(darcy.PRESETS["paper"], rngs=nnx.Rngs(key))

    model = jax.eval_shape(build, jax.random.key(0))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 752_977
    assert darcy.PRESETS["paper"].grid_shape == (85, 85)


def test_mesh_points_run_along_the_second_axis_first():
    points = np.asarray(darcy_data.mesh_points((3, 5))).reshape(3, 5, 2)
    np.testing.assert_allclose(points[2, 1], [1, 0.25])
    np.testing.assert_allclose(points[1, 4], [0.5, 1])


def test_the_loss_sums_errors_of_values_and_differences(cache_dir):
    data = darcy_data.load(TINY, cache_dir=cache_dir)
    goal = darcy_models.objective(
        dataclasses.replace(TINY, gradient_weight=0.3), data.normalizers
    )
    mean, std = (float(x) for x in data.normalizers["solution"])

    def model(points, coefficient):
        return coefficient

    def relative(p, t):
        return np.linalg.norm(p - t) / np.linalg.norm(t)

    expected = 0.0
    for i in range(2):
        p = data.train["coefficient"][i].reshape(5, 5).astype(np.float64) * std + mean
        t = data.train["solution"][i].reshape(5, 5).astype(np.float64)
        expected += relative(p, t)
        p, t = np.pad(p[1:-1, 1:-1], 2), np.pad(t, 1)
        for axis in (0, 1):
            shifted = [np.roll(f, -1, axis) - np.roll(f, 1, axis) for f in (p, t)]
            expected += 0.3 * relative(*(f[1:-1, 1:-1] for f in shifted))
    batch = jax.tree.map(lambda values: values[:2], data.train)
    with jax.enable_x64(False):
        actual = goal.loss(model, batch)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["galerkin2d", "fno"])
def test_models_of_grids_have_finite_outputs_and_gradients(name):
    config = dataclasses.replace(TINY, model=name, num_heads=2, coarse_points=3)
    model: Any = darcy_models.MODELS[name](config, rngs=nnx.Rngs(0))
    points = darcy_data.mesh_points(config.grid_shape)
    coefficient = jax.random.normal(jax.random.key(0), (25, 1), "float32")

    def loss(model):
        return jnp.mean(model(points, coefficient) ** 2)

    assert model(points, coefficient).shape == (25, 1)
    gradient = jax.tree.leaves(jax.jit(jax.grad(loss))(model))
    assert all(np.isfinite(leaf).all() for leaf in gradient)
    assert any(np.any(leaf) for leaf in gradient)


def test_frequencies_are_clipped_to_the_grid():
    assert darcy_models.kept_modes(12, (85, 85)) == (24, 12)
    assert darcy_models.kept_modes(12, (13, 13)) == (13, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 3}, "num_heads=3 must divide features=64"),
        ({"stride": 3}, "stride=3 must divide num_points - 1 = 140"),
        ({"learning_rate": -1e-3}, "learning_rate=-0.001 must be .*above 0"),
        ({"num_train": -5}, "num_train=-5 must be .*at least 2"),
        ({"num_layers": 0}, "num_layers=0 must be .*at least 1"),
        ({"seed": -1}, "seed=-1 must be .*at least 0"),
        ({"batch_size": 901}, "batch_size=901 .* num_train=900"),
        ({"model": "fourier"}, "model='fourier' is unknown; choose from functional"),
        ({"min_temperature": 6.0}, "max_temperature=5.0"),
        ({"reference_points": 1}, "reference_points=1 must be 0, .* at least 2"),
        ({"beta1": 1.0}, "beta1=1.0 must be .*at least 0 and below 1"),
        ({"beta2": 0.0}, "beta2=0.0 must be .*above 0 and below 1"),
        ({"num_boxes": 0}, "num_boxes=0 must be .*at least 1"),
        (SCHWARZ | {"overlap": 8}, "overlap=8 is larger than .* interval of 7 points"),
        (SCHWARZ | {"num_boxes": 29, "overlap": 0}, r"num_hats=\(30, 30\) must be"),
        (GALERKIN | {"coarse_points": 1}, "coarse_points=1 must be at least 2"),
        (GALERKIN | {"coarse_points": 30}, "at most the 29 points .* or 0 for 15"),
        (GALERKIN | {"features": 2, "num_heads": 1}, "must be at least 3"),
        (SCHWARZ | {"convolution": False}, "leave convolution on"),
        ({"tolerance": 0.0}, "tolerance=0.0 must be .*above 0"),
    ],
)
def test_bad_hyper_parameters_are_refused_before_any_work(change, message):
    with pytest.raises(ValueError, match=message):
        darcy.Config(**change)


def test_a_missing_data_file_costs_nothing(tmp_path):
    config = dataclasses.replace(TINY, data_dir=str(tmp_path / "none"))
    with pytest.raises(
        FileNotFoundError, match=r"r21_N1024_smooth1(.|\n)*--num_points"
    ):
        darcy.run(config, workdir=tmp_path / "run")
    open_run(tmp_path / "run", TINY).close()  # the folder is free again


def test_an_unwritable_folder_names_the_way_out(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="another --workdir"):
        darcy.run(TINY, workdir=tmp_path / "file" / "run")


def test_a_failed_figure_costs_only_the_last_steps(tmp_path, cache_dir, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(np, "savez_compressed", full)
        with pytest.raises(OSError, match=r"predictions.npz: No space.*same --workdir"):
            darcy.run(TINY, workdir=tmp_path, cache_dir=cache_dir)
    assert not list(tmp_path.glob("*.tmp"))
    assert darcy.run(TINY, workdir=tmp_path, cache_dir=cache_dir)["epochs"] == 2


def test_the_initial_temperature_reaches_every_basis():
    config = dataclasses.replace(TINY, temperature=0.75)
    model = darcy_models.functional(config, rngs=nnx.Rngs(0))
    leaves = jax.tree.leaves_with_path(model)
    found = [x for path, x in leaves if "temperature" in jax.tree_util.keystr(path)]
    assert found
    assert all((np.asarray(x) == 0.75).all() for x in found)


def test_missing_matplotlib_is_noticed_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"opjax\[experiments\]"):
        darcy.run(TINY, workdir=tmp_path)
    assert not list(tmp_path.iterdir())


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
from opjax.learn import fitting as common
write = common.MetricsWriter.write
def write_then_kill(self, row):
    write(self, row)
    if self.rows == {}:
        os.kill(os.getpid(), signal.SIGKILL)
common.MetricsWriter.write = write_then_kill
runpy.run_module("experiments.darcy", run_name="__main__", alter_sys=True)
"""


def test_the_program_reports_bad_input_in_a_sentence(tmp_path):
    done = start("--num_heads=5", f"--workdir={tmp_path}")
    assert done.returncode == 1
    assert done.stderr.startswith("ValueError: num_heads=5 must divide features=64.")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def outcome(workdir):
    """Everything a run computed, without times and places."""
    result = json.loads((workdir / "result.json").read_text())
    for name in ("seconds", "data_seconds", "workdir"):
        del result[name]
    rows = [{**row, "seconds": 0} for row in common.read_metrics(workdir)]
    with np.load(workdir / "predictions.npz") as file:
        arrays = {name: file[name].tobytes() for name in file.files}
    return result, rows, arrays


@pytest.mark.slow
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
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
