"""Training on meshes that are read in slices; training in memory is the oracle."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from opjax import learn
from opjax.learn.cli import train
from tests.refused import value_error

h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[learn]"`')


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder of six meshes of two sizes."""
    rng = np.random.default_rng(0)
    place = tmp_path_factory.mktemp("data")
    for i in range(6):
        points = rng.uniform(size=(64 + 32 * (i % 2), 2))
        k = np.sin(3 * points[:, 0] + i)
        with h5py.File(place / f"{i}.h5", "w") as file:
            file["mesh_points"] = points
            file["k"] = k
            file["u"] = 5 + 2 * k * points[:, 1]
            file["quadrature_weights"] = rng.uniform(0.5, 1, size=len(points))
    return place


def config(folder, **changes):
    return dataclasses.replace(
        train.PRESETS["smoke"],
        train=str(folder),
        feature_names="k",
        target_names="u",
        num_epochs=1,
        batch_size=2,
        num_buckets=4,
        width=8,
        num_layers=1,
        **changes,
    )


def last(workdir):
    return json.loads((workdir / "result.json").read_text())


@pytest.fixture(scope="module")
def streamed(folder, quick_start, tmp_path_factory):
    """Returns the folder of a run in slices of 32 points."""
    workdir = tmp_path_factory.mktemp("streamed")
    train.run(config(folder, stream_points=32), workdir=workdir)
    return workdir


@pytest.mark.nightly
def test_it_ends_where_training_in_memory_does(folder, streamed, tmp_path):
    whole = dataclasses.replace(config(folder), num_buckets=1)
    train.run(whole, workdir=tmp_path / "whole")
    found, expected = last(streamed), last(tmp_path / "whole")
    assert found["parameters"] == expected["parameters"]
    for name in ("relative_l2", "relative_l2_worst", "validation"):
        np.testing.assert_allclose(found[name], expected[name], rtol=2e-3)


def test_its_operator_predicts(folder, streamed):
    trained = learn.load(streamed)
    values = trained(folder / "0.h5")
    assert values.shape == (64, 1)
    assert np.isfinite(values).all()
    assert trained.description.names == {"features": ["k"], "target": ["u"]}
    assert trained.description.weighted


def test_the_same_command_does_nothing_twice(folder, streamed):
    before = last(streamed)
    train.run(config(folder, stream_points=32), workdir=streamed)
    assert last(streamed) == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stacked": True}, "stacked=True has no effect with stream_points=32"),
        ({"chunk_size": 64}, "chunk_size=64 has no effect with stream_points=32"),
        ({"num_train": 3}, "num_train=3 has no effect"),
        ({"stream_points": 0, "stream_memory": 1.0}, "has no effect without"),
    ],
)
def test_options_of_whole_meshes_are_refused(folder, changes, message):
    with value_error(message):
        config(folder, **{"stream_points": 32, **changes})


@pytest.mark.nightly
def test_models_without_chunks_are_refused_by_name(folder, tmp_path):
    with value_error("[Ss]oftmaxAttention"):
        train.run(
            config(folder, stream_points=32, models=("softmax",)), workdir=tmp_path
        )


def test_other_devices_are_refused(folder, tmp_path):
    if len(jax.devices()) > 1:
        pytest.skip("for one device")
    with value_error("mesh|device"):
        train.run(
            config(folder, stream_points=32), workdir=tmp_path, devices="points:2"
        )
