"""The plain benchmarks: their splits, what they refuse, their published sizes."""

import dataclasses
import importlib
import json

import numpy as np
import pytest

from experiments import airfoil, darcy_notch, elasticity, pipe
from opjax import learn
from opjax.datasets import airfoil as airfoil_data
from opjax.datasets import darcy_notch as notch_data
from opjax.datasets import elasticity as elasticity_data
from opjax.datasets import pipe as pipe_data
from opjax.learn.cli import study
from opjax.learn.report import figures_fields
from opjax.learn.run.folder import open_run
from opjax.learn.tasks import outcome
from tests import sessions

pytest.importorskip("skfem")
TINY = {"num_train": 2, "num_validation": 1, "num_test": 1, "batch_size": 1}
TINY |= {"width": 4, "num_layers": 1, "num_epochs": 1, "num_heads": 1}
TINY |= {"num_basis": 3}
AIRFOIL = {"num_airfoil": 16, "num_wake": 4, "num_radial": 8, "tolerance": 0.02}
# Program, data set, and sizes of the smallest problem.
PROGRAMS = {
    "elasticity": (elasticity, elasticity_data, {"num_around": 8, "num_across": 1}),
    "pipe": (pipe, pipe_data, {"num_elements": 2, "stride": 1, "split": "transolver"}),
    "airfoil": (airfoil, airfoil_data, AIRFOIL | {"deviations": True}),
    "mesh": (darcy_notch, notch_data, {"num_columns": 4, "stride": 1}),
    "grid": (
        darcy_notch,
        notch_data,
        {"num_points": 6, "stride": 1, "layout": "grid"},
    ),
}
# Every program with the preset `fast`.
_NAMES = (
    "airfoil",
    "airfrans",
    "bodies",
    "darcy",
    "darcy_notch",
    "elasticity",
    "lift",
    "navier_stokes",
)
_NAMES += ("pipe", "plasticity", "rna")
FAST_PROGRAMS = ("opjax.learn.cli.train", *(f"experiments.{name}" for name in _NAMES))


def tiny(name, **changes):
    program, _, sizes = PROGRAMS[name]
    return dataclasses.replace(program.PRESETS["smoke"], **(TINY | sizes | changes))


def splits(name, config, **given):
    return PROGRAMS[name][0].splits(config, **given)


@pytest.mark.parametrize("name", PROGRAMS)
def test_published_files_and_own_solver_are_interchangeable(name, tmp_path):
    config, data = tiny(name), PROGRAMS[name][1]
    own = splits(name, config, cache_dir=str(tmp_path))
    made = [*own.train, *own.validation, *own.test]
    if name in ("pipe", "airfoil"):  # the published files hold more channels
        sizes = {
            k: v
            for k, v in PROGRAMS[name][2].items()
            if k not in ("split", "deviations")
        }
        sizes = {"solver": config.solver} if name == "airfoil" else sizes
        made = data.generate(
            4, seed=0, channels=data.CHANNELS, cache_dir=tmp_path, **sizes
        )
    data.save(tmp_path / "files", made)
    config = dataclasses.replace(config, data_dir=str(tmp_path / "files"))
    read = splits(name, config)
    assert "published" in read.source
    assert own.source.startswith("own solver")
    for part in ("train", "validation", "test"):
        for one, two in zip(getattr(own, part), getattr(read, part), strict=True):
            np.testing.assert_allclose(one.target, two.target, rtol=1e-6)
            np.testing.assert_allclose(one.mesh_points, two.mesh_points, rtol=1e-6)


def test_a_task_is_evaluated_on_samples_of_its_solver(tmp_path):
    config = tiny("elasticity")
    folder = tmp_path / "run"
    with sessions.user(), open_run(folder, config):
        task = elasticity.PROGRAM.make_task(config, str(tmp_path))
        found = task.evaluate(study.build(config, task), folder)
    assert 0 < found["relative_l2"] <= found["relative_l2_worst"] < 10
    seen = outcome.read(folder)
    assert seen.predicted[0].shape == seen.samples[0].target.shape
    assert len(figures_fields.fields({"functional": seen}).axes) >= 4


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["elasticity", "airfoil", "mesh"])
def test_a_run_trains_evaluates_and_draws(name, tmp_path, capsys):
    program, config = PROGRAMS[name][0], tiny(name)
    folder = tmp_path / "run"
    result = program.run(config, workdir=folder, cache_dir=str(tmp_path))
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == result
    assert 0 < result["relative_l2"] <= result["relative_l2_worst"] < 2
    assert result["data"].startswith("own solver")
    for figure in ("fields", "curves", "errors"):
        path = folder / "functional-0" / "figures" / f"{figure}.png"
        assert path.stat().st_size > 1e3
    target = splits(name, config, cache_dir=str(tmp_path)).test[0].target
    with np.load(folder / "functional-0" / "predictions.npz") as stored:
        assert stored["prediction_0"].shape == target.shape


@pytest.mark.nightly
def test_rivals_run_end_to_end_and_resume(tmp_path, capsys):
    models = ("flare", "transolver_plus", "lno")
    config = tiny("elasticity", models=models)
    folders = {"workdir": tmp_path / "run", "cache_dir": str(tmp_path)}
    result = elasticity.run(config, **folders)
    for model in models:
        assert 0 < result[f"relative_l2_{model}"] < 2
        assert (tmp_path / "run" / f"{model}-0" / "operator").is_dir()
        (tmp_path / "run" / f"{model}-0" / "result.json").unlink()
    again = elasticity.run(config, **folders)  # from the last checkpoint
    keys = [key for key in result if key.startswith("relative_l2")]
    assert [again[key] for key in keys] == [result[key] for key in keys]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("elasticity", {"num_around": 6}, "num_around=6 must be a multiple of 4"),
        ("pipe", {"stride": 3}, "stride=3 must divide 2 num_elements=4"),
        ("pipe", {"split": "first"}, "split='first' is unknown"),
        ("airfoil", {"num_airfoil": 17}, "num_airfoil=17 must be even"),
        ("mesh", {"layout": "cloud"}, "layout='cloud' is unknown"),
        ("mesh", {"notch": "none"}, "notch='none' is unknown"),
    ],
)
def test_wrong_values_are_refused_before_any_work(name, changes, message):
    with pytest.raises(ValueError, match=message):
        tiny(name, **changes)


@pytest.mark.parametrize("name", FAST_PROGRAMS)
def test_fast_is_quick_with_one_recipe_and_no_other_preset_has_it(name):
    presets = importlib.import_module(name).PRESETS
    changed = {
        field.name
        for field in dataclasses.fields(presets["quick"])
        if getattr(presets["quick"], field.name) != getattr(presets["fast"], field.name)
    }
    assert changed == {*learn.FAST.values}
    for preset in {*presets} - {"fast", "small"}:
        found = presets[preset]
        rule = found.optimizer, found.ridge_unit, found.initial_kernels
        assert rule == ("adamw", "one", "published")
        assert found.average_decay == 0
