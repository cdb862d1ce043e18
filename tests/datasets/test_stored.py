"""Samples that stay in their files, of one sample or of many along axis 0."""

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import files
from opjax.files import ReadOptions
from opjax.samples import FIELDS, Sample, summaries
from opjax.samples.stored import Stored
from tests.datasets.reading import read, save
from tests.refused import value_error


@pytest.fixture
def found(rng):
    """Three samples of five points."""

    def one():
        points = rng.uniform(size=(5, 2))
        return points, rng.normal(size=(5, 1)), rng.normal(size=(5, 3))

    weights = np.full(5, 0.2, np.float32)
    arrays = [[a.astype(np.float32) for a in one()] for _ in range(3)]
    return [Sample(*three, quadrature_weights=weights) for three in arrays]


def equal(actual, expected):
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        for name in FIELDS:
            assert_array_equal(getattr(one, name), getattr(other, name))


def stack(found, **changes):
    arrays = {n: np.stack([getattr(s, n) for s in found]) for n in FIELDS}
    return arrays | changes


@pytest.mark.parametrize("suffix", [".npz", ".vtu", ".h5"])
def test_samples_of_files_are_read_when_they_are_looked_up(suffix, found, tmp_path):
    if suffix == ".h5":
        with h5py.File(tmp_path / "all.h5", "w") as file:
            for row, sample in enumerate(found):
                for name in FIELDS:
                    file[f"{row}/{name}"] = getattr(sample, name)
    else:
        for row, sample in enumerate(found):
            files.write(tmp_path / f"{row}{suffix}", sample)
    stored = files.stored(tmp_path)
    equal(stored, files.read(tmp_path))
    equal(stored, found)
    assert [s.name for s in stored] == [s.name for s in files.read(tmp_path)]
    equal(stored[1:], found[1:])
    equal(stored.take([2, 0]) + stored[1:2], [found[i] for i in (2, 0, 1)])
    assert isinstance(stored[:2], Stored)
    assert summaries.num_points(stored) == [5, 5, 5]


@pytest.mark.parametrize("place", ["all.h5", "folder"])
def test_rows_of_arrays_are_samples(place, found, tmp_path):
    path = tmp_path / place
    save(path, stack(found))
    equal(read(path, stacked=True), found)
    stored = files.stored(path, ReadOptions(stacked=True))
    equal(stored, found)
    assert stored[1].name == str(path / "1")
    mesh = {"mesh_points": found[0].mesh_points, "quadrature_weights": np.ones(5)}
    save(path, stack(found, u=np.arange(15.0)) | mesh)
    with value_error("the same number of samples along axis 0 .*, u 15"):
        files.stored(path, ReadOptions(stacked=True))
    values = np.arange(15.0).reshape(3, 5)
    save(path, stack(found, grid_shape=np.array([5]), u=values) | mesh)
    shared = files.stored(path, ReadOptions(target="u", stacked=True))
    for row, sample in enumerate(shared):
        assert_array_equal(sample.mesh_points, found[0].mesh_points)
        assert_array_equal(sample.target, values[row, :, None])
        assert sample.grid_shape == (5,)


def test_what_cannot_be_stacked_is_named(found, tmp_path):
    files.write(tmp_path / "a.npz", found[0])
    with value_error("a.npz cannot be read row by row"):
        files.stored(tmp_path, ReadOptions(stacked=True))
    with h5py.File(tmp_path / "groups.h5", "w") as file:
        file["0/mesh_points"] = found[0].mesh_points
    with value_error("'0' is not an array stored in this file"):
        files.stored(tmp_path / "groups.h5", ReadOptions(stacked=True))
    save(tmp_path / "few", stack(found))
    stored = files.stored(tmp_path / "few", ReadOptions(stacked=True))
    save(tmp_path / "few", stack(found[:2]))
    with value_error("few has 2 samples, so sample 2"):
        stored[2]
    with value_error("'features' take 60 bytes, above the limit"):
        files.stored(tmp_path / "few", ReadOptions(stacked=True, max_bytes=50))
    (tmp_path / "few" / "target.npy").write_bytes(b"damaged")
    with value_error("Cannot read .*target.npy"):
        stored[0]


def test_samples_on_disk_are_divided_as_those_in_memory(found, tmp_path):
    save(tmp_path / "many.h5", stack(found * 4))
    paths, options = [tmp_path / "many.h5"], ReadOptions(stacked=True)
    given = paths, (), options, files.Shares(seed=3, num_train=5)
    in_memory = files.splits(*given)
    on_disk = files.splits(*given, in_memory=False)
    for name in ("train", "validation", "test"):
        equal(getattr(on_disk, name), getattr(in_memory, name))
