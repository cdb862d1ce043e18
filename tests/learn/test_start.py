"""Training that starts from a trained operator."""

import contextlib
import dataclasses
import json
import types

import chex
import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, learn
from opjax.datasets import heat
from opjax.learn.cli import train as program
from opjax.learn.predict.scaling import Scaling
from opjax.learn.run.stopping import Stopped
from opjax.learn.tasks.start import check_scaling
from opjax.training import tuning
from tests.compatibility.__main__ import stop_after
from tests.learn.tiny import TINY
from tests.refused import value_error

STILL = dataclasses.replace(TINY, learning_rate=1e-12, num_epochs=1, weight_decay=0.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return str(heat.write(tmp_path_factory.mktemp("data"), 10, num_points=(20, 30)))


@pytest.fixture(scope="module")
def first(data, quick_start, tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("first")
    program.run(dataclasses.replace(TINY, train=data), workdir=folder)
    return folder


def same(one, other):
    for tree in ("model", "normalizers"):
        chex.assert_trees_all_equal(getattr(one, tree), getattr(other, tree))


@pytest.mark.nightly
def test_without_steps_to_speak_of_it_is_the_operator_it_started_from(first, capsys):
    start = learn.load(first)
    rng = np.random.default_rng(1)  # other samples, of another scale
    shapes = {"mesh_points": (9, 12, 2), "features": (9, 12, 1), "target": (9, 12, 1)}
    arrays = {name: 0.8 * rng.normal(size=shape) for name, shape in shapes.items()}
    found = learn.train(arrays, config=STILL, init_from=start)
    jax.tree.map(assert_array_equal, found.normalizers, start.normalizers)
    mesh = arrays["mesh_points"][0], arrays["features"][0]
    assert_allclose(found(*mesh), start(*mesh), rtol=1e-5, atol=1e-6)
    said = capsys.readouterr().err
    assert f"Starting from {start.folder}; its normalisers are kept" in said


@pytest.mark.nightly
def test_renewed_normalisers_are_those_of_the_new_samples(first, data, capsys):
    samples = [s._replace(target=1e3 * s.target) for s in files.read(data)]
    renewed = dataclasses.replace(STILL, init_normalizers="renew")
    found = learn.train(samples, config=renewed, init_from=str(first))
    start = learn.load(first)
    std = [float(one.normalizers["target"].std[0]) for one in (found, start)]
    assert std[0] == pytest.approx(1e3 * std[1], rel=0.2)
    values, before = found(samples[0]), start(samples[0])
    assert_allclose(values, 1e3 * before, atol=0.2 * np.abs(values).max())
    assert "normalisers are fitted anew" in capsys.readouterr().err


@pytest.mark.parametrize(
    "scales", [("U: load, T: q", "T: q"), ("T: q", "U: load, T: q")]
)
def test_kept_fields_have_the_same_scales(scales):
    names = {"target": ["U", "T"]}
    before, now = (Scaling.of({"scales": each}, names) for each in scales)
    start = types.SimpleNamespace(scaling=before, folder="f")
    with value_error("other scales or angles"):
        check_scaling(start, now, channels=False)
    other = Scaling.of({"scales": "T: q"}, {"target": ["T"]})
    check_scaling(start, other, channels=False)  # without U, and so without its scale


def test_normalisers_are_renewed_of_an_operator_alone(data):
    with value_error("has no effect without init_from"):
        learn.train(
            files.read(data),
            config=dataclasses.replace(TINY, init_normalizers="renew"),
        )
    with value_error("needs samples that are read as a whole"):
        dataclasses.replace(TINY, init_normalizers="renew", time="unrolled")


@pytest.mark.nightly
def test_folder_and_operator_are_the_same_start(first, data, tmp_path):
    config = dataclasses.replace(TINY, train=data, init_from=str(first))
    program.run(config, workdir=tmp_path / "run")
    expected = learn.load(tmp_path / "run")
    samples, start = files.read(data), learn.load(first)
    same(learn.train(samples, config=TINY, init_from=start), expected)
    same(start, learn.load(first))  # and the start is as it was
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["init_from"] == str(first)


@pytest.mark.nightly
def test_a_stopped_run_goes_on_to_the_same_bits(first, data, tmp_path):
    config = dataclasses.replace(TINY, train=data, init_from=str(first), num_epochs=3)
    program.run(config, workdir=tmp_path / "whole")
    with stop_after(2), contextlib.suppress(Stopped):
        program.run(config, workdir=tmp_path / "half")
    assert not list(tmp_path.glob("half/**/result.json"))
    program.run(config, workdir=tmp_path / "half")
    same(learn.load(tmp_path / "half"), learn.load(tmp_path / "whole"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 16}, "is different: width=8 there and 16 here"),
        ({"num_layers": 2}, "num_layers=1 there and 2 here"),
        ({"models": ("galerkin",)}, "models=functional, but this run has models=galer"),
        (
            {"models": ("functional", "lno")},
            "init_from starts one operator, but models",
        ),
        ({"init_from": "nowhere"}, "contains no trained operator"),
    ],
)
def test_another_model_is_refused_by_what_differs(first, data, changes, message):
    given = {"init_from": str(first), **changes}
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        program.make_task(dataclasses.replace(TINY, train=data, **given))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"mesh_points": (9, 12, 3)}, "point_dim is 2 in .*, but 3 in these samples"),
        ({"features": (9, 12, 2)}, "feature_dim is 1 in .*, but 2 in these samples"),
        ({"target": (9, 12, 2)}, "out_features is 1 in .*, but 2 in these samples"),
    ],
)
def test_samples_with_other_channels_are_refused_by_name(first, shapes, message):
    rng = np.random.default_rng(0)
    own = {"mesh_points": (9, 12, 2), "features": (9, 12, 1), "target": (9, 12, 1)}
    arrays = {name: rng.normal(size=shape) for name, shape in (own | shapes).items()}
    with value_error(message):
        learn.train(arrays, config=TINY, init_from=first)


def test_options_that_cost_memory_only_may_differ(first, data):
    config = dataclasses.replace(TINY, train=data, init_from=str(first), chunk_size=8)
    task = program.make_task(config)
    model = learn.cli.study.build(config, task)
    start = learn.load(first).model
    jax.tree.map(assert_array_equal, jax.tree.leaves(model), jax.tree.leaves(start))


def test_a_tuned_model_starts_as_the_operator_and_says_what_is_trained(
    first, data, capsys
):
    changes = {"init_from": str(first), "rank": 1, "train_only": ("blocks", "head")}
    config = dataclasses.replace(TINY, train=data, **changes)
    task = program.make_task(config)
    model = learn.cli.study.build(config, task)
    assert "Trained by updates of rank 1: " in capsys.readouterr().err
    assert {name.split(".")[0] for name in model.parts} == {"blocks", "decoder"}
    chex.assert_trees_all_equal(tuning.merged(model), learn.load(first).model)
    assert "updates of rank 1" in task.notes
    config = dataclasses.replace(config, train_only=("norms",))
    with value_error("rank=1 has no effect on train_only=norms"):
        learn.cli.study.build(config, program.make_task(config))


def test_more_epochs_of_a_finished_run_name_the_way(first, data):
    more = dataclasses.replace(TINY, train=data, num_epochs=4)
    with value_error(f"--init_from={first} --workdir=NEW"):
        program.run(more, workdir=first)
