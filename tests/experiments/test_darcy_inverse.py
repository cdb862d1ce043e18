import dataclasses
import json
import pathlib

import jax
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import darcy_inverse
from opjax import learn
from opjax.learn.registry import operators
from opjax.learn.tasks import outcome
from tests import refused
from tests.selection import by_day

TINY = dataclasses.replace(
    darcy_inverse.PRESETS["smoke"],
    models=("galerkin",),
    noises=(0.1,),
    test_noises=(0.1, 5.0),
    num_train=8,
    num_validation=4,
    num_test=5,
    num_points=25,
    width=6,
    num_layers=1,
    num_epochs=1,
)


@pytest.fixture(scope="module")
def task(cache_dir):
    return darcy_inverse.make_task(TINY, cache_dir)


@pytest.mark.nightly
def test_a_run_trains_and_evaluates(tmp_path, cache_dir, capsys):
    result = darcy_inverse.run(TINY, workdir=tmp_path, cache_dir=cache_dir)
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert result["seeds"] == [0]
    assert result["data"] == "own solver, 25 points, seed 0"
    assert result["parameters_galerkin"] > 0
    folder = tmp_path / "galerkin_0.1-0"
    assert (folder / "figures" / "fields.png").stat().st_size > 1e3
    seen = outcome.read(folder)
    for row, sample, prediction in zip(
        seen.rows, seen.samples, seen.predicted, strict=True
    ):
        assert (sample.grid_shape, sample.target_grid) == ((9, 9), (5, 5))
        assert sample.features is not None
        assert sample.target is not None
        assert abs(sample.features).max() < 0.1  # a solution, in physical units
        assert prediction.shape == sample.target.shape == (25, 1)
        error = np.linalg.norm(prediction - sample.target)
        error = error / np.linalg.norm(sample.target)
        assert_allclose(seen.errors[row], error, rtol=1e-4)
    assert_allclose(result["error_galerkin_0.1"], seen.errors.mean())
    assert 0 < result["error_galerkin_0.1"] < 2
    # The noise of the training is that of the test, and another one is another error.
    own, other = (result[f"error_at_{noise}_galerkin_0.1"] for noise in ("0.1", "5"))
    assert_allclose(own, result["error_galerkin_0.1"], rtol=1e-5)
    assert own != other
    assert "| galerkin | 0.1 | " in (tmp_path / "tables.md").read_text()


def test_the_table_has_models_by_noises_beside_the_paper():
    config = dataclasses.replace(
        TINY, models=("galerkin", "fno"), noises=(0.01, 0.05), seeds=(0, 1)
    )
    results = {}
    for (name, seed), member in config.members().items():
        error = 0.5 if member.model == "fno" else member.noises[0]
        row = {"error": error + 0.02 * seed, "parameters": 1234, "seconds": 3.0}
        row |= {"error_at_0.1": 0.25, "error_at_5": 0.75}
        results.setdefault(name, []).append(row)
    finished = learn.Finished(
        config, pathlib.Path(), results, "own solver", "", 8, 5, 12.0, 1.0
    )
    report = darcy_inverse.report(finished)
    assert report.result["parameters_fno"] == 1234
    by_noise, _, mismatches = (report.text or "").partition("\n\n")
    assert mismatches.splitlines()[-1] == "| fno | 0.05 | 25 [25, 25] | 75 [75, 75] |"
    assert by_noise.splitlines() == [
        "| model | parameters | seconds each "
        "| noise 0.01 | paper | noise 0.05 | paper |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| galerkin (paper: GT Ln on K, V) | 1,234 | 3 "
        "| 2 [1, 3] | 2.552 | 6 [5, 7] |  |",
        "| fno (paper: FNO2d (only nc)) | 1,234 | 3 "
        "| 51 [50, 52] | 14.31 | 51 [50, 52] |  |",
    ]


@pytest.mark.parametrize(
    "name", by_day([*operators.ATTENTIONS, "fno"], ["functional", "fno"])
)
def test_models_map_the_fine_grid_to_the_coarse_one(name):
    config = dataclasses.replace(TINY, models=(name,), num_points=97)
    points, values = (jax.ShapeDtypeStruct((33**2, p), "float32") for p in (2, 1))

    def output(points, values):
        return darcy_inverse.build(config, nnx.Rngs(0))(points, values)

    with jax.enable_x64(False):
        assert jax.eval_shape(output, points, values).shape == (17**2, 1)


@pytest.mark.nightly
def test_the_operator_sees_the_points_of_the_coarse_grid(task):
    sample = jax.tree.map(lambda values: values[0], task.train[0])
    seen = {}

    def operator(points, features):
        seen.update(points=points, features=features)
        return features

    model = darcy_inverse.OnCoarseGrid(operator, (9, 9), 2, coarse_features=True)
    model(sample["mesh_points"], sample["features"])
    axis = np.linspace(0, 1, 5)
    expected = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    assert_allclose(seen["points"], expected, atol=1e-7)
    fine = sample["features"].reshape(9, 9)[::2, ::2]
    assert_array_equal(seen["features"], fine.reshape(-1, 1))


def test_the_loss_is_the_mean_relative_error_in_physical_units(task):
    batch = jax.tree.map(lambda values: values[:4], task.train[0])
    mean, std = map(np.asarray, task.extra["target"])
    encoded, truth = batch["features"][:, :25, 0], batch["target"][..., 0]
    difference = encoded * std[:, 0] + mean[:, 0] - truth
    errors = np.linalg.norm(difference, axis=1) / np.linalg.norm(truth, axis=1)
    actual = task.loss(lambda points, measurement: measurement[:25], batch)
    assert_allclose(actual, errors.mean(), rtol=1e-5)


def test_presets_have_the_published_grids():
    grids = {"paper": (141, 36), "code": (141, 71), "quick": (47, 24)}
    for name, (fine, coarse) in grids.items():
        config = darcy_inverse.PRESETS[name]
        assert config.grid(config.stride) == (fine, fine)
        assert config.grid(config.target_stride) == (coarse, coarse)
    assert list(config.members())[:2] == [("galerkin_0", 0), ("fno_0", 0)]


test_bad_hyper_parameters_are_refused_before_any_work = refused.settings(
    darcy_inverse.PRESETS["quick"],
    [
        ({"target_stride": 4}, "target_stride=4 must be a multiple of stride=3"),
        ({"num_points": 141}, "must divide num_points - 1 = 140"),
        (
            {"models": ("galerkin", "unet")},
            "'unet' is unknown; choose from functional, transolver",
        ),
        ({"noises": (0.0, -0.1)}, "noises=-0.1 must be .*at least 0"),
        ({"noises": (float("nan"),)}, "must be finite"),
        ({"noises": (0.1, 0.1)}, "contains 0.1 twice"),
        ({"num_heads": 5}, "num_heads=5 must divide width=48"),
        ({"batch_size": 400}, "batch_size=400 must be at most num_train=300"),
        ({"num_train": 1}, "batch_size=4 must be at most num_train=1"),
    ],
)
