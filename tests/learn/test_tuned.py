"""Fine-tuning of a trained operator: frozen parts, ranks, channels and normalisers."""

import contextlib
import dataclasses
import json
import os
from functools import partial
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax import learn
from opjax.learn.config import ModelOptions
from opjax.learn.config.start import StartOptions
from opjax.learn.registry import operators
from opjax.learn.registry.entries import Sizes
from opjax.learn.run.stopping import Stopped
from opjax.learn.tasks import channels
from opjax.learn.tasks.start import blended, started_normalizers
from opjax.learn.tasks.tuned import selected
from opjax.normalize import Normalizer
from opjax.training import tuning
from tests.compatibility.__main__ import stop_after
from tests.learn.tiny import TINY, filled
from tests.refused import value_error

NAMES = ["blocks.attention.out.kernel", "blocks.attention_norm.scale", "decoder.bias"]


def arrays(seed, *, features=("a", "b"), fields=("u", "v"), scalars=()):
    """Nine cases of twelve points with named channels."""
    rng = np.random.default_rng(seed)
    data = {"mesh_points": rng.uniform(size=(9, 12, 2))}
    data["features"] = {name: rng.normal(size=(9, 12)) for name in features}
    data["target"] = {name: rng.normal(size=(9, 12)) for name in fields}
    if scalars:
        data["scalars"] = {name: rng.normal(size=9) for name in scalars}
    return data


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """The folder of an operator of the features `a`, `b` and the fields `u`, `v`."""
    folder = tmp_path_factory.mktemp("first") / "run"
    learn.train(arrays(0), config=TINY, workdir=folder)
    return folder


def changed(one, other):
    """Names of the parameters that differ."""
    before, after = (tuning.named(trained.model) for trained in (one, other))
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["attention"], NAMES[:1]),
        (["norms"], NAMES[1:2]),
        (["head"], NAMES[2:]),
        (["blocks", "bias"], NAMES),
        (["attention.out"], NAMES[:1]),
    ],
)
def test_parts_are_selected_by_whole_names(parts, expected):
    assert selected(NAMES, parts, head={"decoder.bias"}) == expected


def test_an_unknown_part_lists_those_that_exist():
    with value_error(r"no part 'attn'; its parts are head, norms, b"):
        selected(NAMES, ["attn"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 2}, "rank=2 has no effect without init_from"),
        ({"train_only": ("head",)}, "train_only=head has no effect without init_from"),
        ({"init_normalizers": "blend"}, "has no effect without init_from"),
        ({"init_channels": "by_name"}, "has no effect without init_from"),
    ],
)
def test_options_of_an_initial_operator_need_one(changes, message):
    config = dataclasses.replace(TINY, **changes)
    with value_error(message):
        learn.train(arrays(0), config=config)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 2, "stream_points": 64, "num_buckets": 0},
        {"train_only": ("head",), "stream_points": 64, "num_buckets": 0},
        {"init_channels": "by_name", "time": "unrolled"},
        {"init_normalizers": "blend", "time": "one_step"},
    ],
)
def test_what_needs_whole_samples_is_refused_elsewhere(changes):
    with value_error("needs samples that are read as a whole"):
        dataclasses.replace(TINY, init_from="runs/a", **changes)


def test_names_of_operators_stay_names_and_folders_become_absolute():
    stored = [
        dataclasses.replace(TINY, init_from=given).init_from
        for given in ("plate", "hf://owner/name", "runs/plate")
    ]
    assert stored == ["plate", "hf://owner/name", os.path.abspath("runs/plate")]


def test_blended_normalisers_are_those_of_both_sets_together():
    rng = np.random.default_rng(0)
    sets = rng.normal(size=(40, 3)), 5 + 2 * rng.normal(size=(40, 3))
    one, other = (Normalizer(x.mean(axis=0), x.std(axis=0)) for x in sets)
    found = blended("features", one, other)
    both = np.concatenate(sets)
    assert_allclose(found.mean, both.mean(axis=0))
    assert_allclose(found.std, both.std(axis=0))
    boxes = [Normalizer(np.array([x, 0.0]), np.ones(2)) for x in (0.0, 3.0)]
    box = blended("mesh_points", *boxes)
    assert_allclose(box.mean, [1.5, 0])
    assert_allclose(box.std, 2.5)  # half of the longest side, from -1 to 4


def test_cases_that_look_alike_to_the_normaliser_cause_a_warning():
    start = SimpleNamespace(
        normalizers={"scalars": normalizer([1e5, 20.0], [4e4, 5.0])}
    )
    fitted = {"scalars": normalizer([1e3, 22.0], [4e2, 4.0])}
    names = {"scalars": ["modulus", "angle"]}
    with pytest.warns(UserWarning, match="modulus: .* spread by 0.01, so") as caught:
        started_normalizers(start, fitted, StartOptions(), None, names)
    assert len(caught) == 1
    renewed = StartOptions(init_from="runs/a", init_normalizers="renew")
    assert started_normalizers(start, fitted, renewed, None, names) == fitted


def normalizer(mean, std):
    return Normalizer(np.asarray(mean), np.asarray(std))


def config_of(name):
    options = ModelOptions(
        width=24, num_layers=1, num_heads=2, num_basis=4, num_modes=3, convolution=False
    )
    values = dataclasses.asdict(options) | {"equal_parameters": False}
    return SimpleNamespace(**values, models=(name,))


UNSUPPORTED = {"deeponet", "orthogonal_network"}


@pytest.mark.parametrize(
    "name",
    [
        name if name == "functional" else pytest.param(name, marks=pytest.mark.nightly)
        for name in operators.REGISTRY
    ],
)
def test_new_channels_leave_the_predictions_of_known_fields(name):
    config, entry = config_of(name), operators.entry(name)
    grid = (16, 16) if 2 in entry.grid_axes else None
    sizes = Sizes(2, 3, 2, grid, 256, ((-1.0, -1.0), (1.0, 1.0)), scalar_dim=1)
    names = {"features": ["a", "b"], "scalars": ["s"], "target": ["u", "v"]}
    start = SimpleNamespace(
        model=filled(partial(operators.build, config, sizes)),
        channel_names=names,
        config=vars(config),
        **{"name": name, "folder": "runs/a", "sizes": sizes, "scaling": None},
        fixed_points=True,
    )
    now = {"features": ["b", "c"], "scalars": ["z", "s"], "target": ["w", "u"]}
    found = channels.match(start, sizes._replace(feature_dim=4, scalar_dim=2), now)
    assert found.inputs.tolist() == [1, channels.NEW, channels.NEW, 2]
    assert found.sentence() == (
        "kept: feature b, scalar s, field u; new: feature c, scalar z, field w; "
        "no longer used: feature a, field v"
    )
    model = filled(partial(operators.build, config, found.sizes), seed=1)
    if name in UNSUPPORTED:
        with value_error(f"models={name} does not support other"):
            channels.expanded(start, model, found, config)
        return
    model = channels.expanded(start, model, found, config)  # which compares both
    points = np.random.default_rng(0).uniform(-1, 1, (256, 2)).astype(np.float32)
    given = {"mesh_points": points, "features": np.ones((256, 4), np.float32)}
    new = np.asarray(jax.jit(operators.call)(model, given))[:, 0]
    assert np.abs(new).max() == 0  # the mean of the new field
    assert channels.new_parameters(config, found) >= channels.head(config, sizes)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target": ["p", "q"]}, "predicts u, v, and these samples have none of"),
        ({"features": []}, "the 2 channels of features in these samples have 0 names"),
    ],
)
def test_channels_without_known_names_are_refused(given, message):
    names = {"features": ["a", "b"], "target": ["u", "v"]}
    sizes = Sizes(2, 2, 2)
    start = SimpleNamespace(
        channel_names=names,
        config={},
        **{"name": "functional", "folder": "runs/a", "sizes": sizes, "scaling": None},
    )
    with value_error(message):
        channels.match(start, sizes, names | given)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "changes", [{"rank": 1}, {"train_only": ("head", "norms")}, {"optimizer": "adamw"}]
)
def test_a_stopped_fine_tuning_ends_with_the_same_bits(first, tmp_path, changes):
    config = dataclasses.replace(TINY, num_epochs=3, **{"rank": 1, **changes})

    def run(folder):
        return learn.train(arrays(1), config=config, init_from=first, workdir=folder)

    whole = run(tmp_path / "whole")
    with stop_after(2), contextlib.suppress(Stopped):
        run(tmp_path / "half")
    assert not list(tmp_path.glob("half/**/result.json"))
    assert not changed(run(tmp_path / "half"), whole)
    stored = json.loads((tmp_path / "half" / "config.json").read_text())
    assert stored["rank"] == 1
    result = json.loads((tmp_path / "half" / "result.json").read_text())
    assert 0 < result["trained_parameters"] < result["parameters"]
    assert "updates of rank 1" in (tmp_path / "half" / "tables.md").read_text()


@pytest.mark.nightly
def test_only_the_named_parts_change(first):
    config = dataclasses.replace(TINY, train_only=("head", "norms"))
    found = learn.train(arrays(1), config=config, init_from=first)
    names = changed(learn.load(first), found)
    assert {"decoder.kernel", "blocks.mlp_norm.scale"} <= names
    assert all("norm" in name or name.startswith("decoder.") for name in names)


@pytest.mark.nightly
def test_an_operator_learns_another_field_from_another_input(first, capsys):
    data = arrays(1, features=("b", "c"), fields=("v", "w"), scalars=("s",))
    config = dataclasses.replace(TINY, init_channels="by_name", train_only=("norms",))
    with value_error("--init_channels=by_name"):
        learn.train(data, config=TINY, init_from=first)
    found = learn.train(data, config=config, init_from=first)
    assert (
        "kept: feature b, field v; new: feature c, scalar s" in capsys.readouterr().err
    )
    start = learn.load(first)
    place = start.normalizers["target"].mean[1], found.normalizers["target"].mean[0]
    assert place[0] == place[1]
    assert found(data["mesh_points"][0], np.ones((12, 2)), scalars=[0.0]).shape[1] == 2
