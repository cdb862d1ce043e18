"""Training on files of your own: what is read, and how it is divided."""

import dataclasses
import os

import numpy as np
import pytest

from opjax import files
from opjax.datasets import heat
from opjax.learn.cli import train
from tests.refused import value_error

CONFIG = dataclasses.replace(train.PRESETS["quick"], batch_size=2)


@pytest.fixture
def folder(tmp_path):
    return heat.write(tmp_path / "data", 10, num_points=(5, 9))


def load(folder, **changes):
    config = dataclasses.replace(CONFIG, train=str(folder), **changes)
    return train.load(config)


def test_every_sample_has_one_place(folder):
    splits, names = load(folder)
    parts = [[sample.name for sample in part] for part in splits[:3]]
    assert [len(part) for part in parts] == [7, 1, 2]
    assert sorted(sum(parts, [])) == [sample.name for sample in files.read(folder)]
    assert names == {"features": ("features",), "target": ("target",)}
    other = load(folder, data_seed=1)[0]
    assert [s.name for s in other.test] != parts[2]
    again = load(folder)[0]
    assert [s.name for s in again.train] == parts[0]


def test_test_samples_may_be_files_of_their_own(folder, tmp_path):
    test = heat.write(tmp_path / "test", 3, seed=1, num_points=(5, 9))
    splits, _ = load(folder, test=str(test), num_train=4, num_test=2)
    assert [len(part) for part in splits[:3]] == [4, 1, 2]
    assert all("test" in sample.name for sample in splits.test)
    with value_error("10 files are in both train and test"):
        load(folder, test=str(folder))


def test_the_demonstration_needs_no_files():
    splits, _ = train.load(train.PRESETS["smoke"])
    assert len(splits.train) >= 20
    assert "demonstration" in splits.source


def test_samples_may_stay_on_disk(folder):
    in_memory, names = load(folder)
    on_disk, same = load(folder, stream_samples=True)
    assert same == names
    for part, other in zip(on_disk[:3], in_memory[:3], strict=True):
        assert [s.name for s in part] == [s.name for s in other]
        assert type(part) is not type(other)
    for name in ("stream_samples", "stacked"):
        with value_error(f"{name} has no effect with train=dem"):
            load("demonstration", **{name: True})


def test_what_cannot_be_trained_on_is_named(folder, tmp_path):
    with value_error("Pass the training samples"):
        train.run(CONFIG, workdir=tmp_path / "run")
    with pytest.raises(TypeError, match="data_dir"):
        train.Config(data_dir="somewhere")
    with value_error("has no array 'heat'"):
        load(folder, target_names="heat")
    with value_error("test_fraction=0.99 of 10 samples leaves"):
        load(folder, test_fraction=0.99)
    with value_error("7 training samples remain, fewer"):
        load(folder, batch_size=8)
    (sample, *_) = files.read(folder)
    bare = sample._replace(target=None, name="")
    files.write(tmp_path / "bare" / "a.npz", bare)
    with value_error("no array 'target'; name what to predict"):
        load(tmp_path / "bare")
    files.write(
        folder / "more.npz",
        sample._replace(features=np.ones_like(sample.mesh_points), name=""),
    )
    with value_error("1 channels of features, but .*more.npz has 2"):
        load(folder)


def test_paths_are_kept_as_absolute_ones(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    config = dataclasses.replace(CONFIG, train="a, b/*.npz", test="~/c")
    assert config.train == f"{tmp_path}/a,{tmp_path}/b/*.npz"
    assert config.test == os.path.expanduser("~/c")
    assert train.PRESETS["smoke"].train == "demonstration"


@pytest.mark.nightly
def test_samples_on_disk_are_described_as_those_in_memory(folder):
    small = dataclasses.replace(
        CONFIG,
        train=str(folder),
        width=8,
        num_layers=1,
        num_heads=2,
        num_basis=4,
        num_epochs=3,
    )
    whole, stored = (
        train.PROGRAM.describe(dataclasses.replace(small, stream_samples=stream))
        for stream in (False, True)
    )
    for name in ("data", "models", "parameters", "steps", "samples"):
        assert stored[name] == whole[name], name
    assert min(whole["samples"].values()) > 0
    (cost,) = whole["members"].values()
    assert whole["seconds"] > cost["compile_seconds"] > 0
    # The programs are the same; what stays on disk takes no memory.
    assert 0 < stored["memory_mib"] < whole["memory_mib"]
