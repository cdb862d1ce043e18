"""Samples that are read in slices of points; whole ones are the oracle."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import ReadOptions, read_sliced, sliced_splits
from opjax.samples import Sample, sliced, summaries
from tests.datasets.reading import read, read_one
from tests.refused import value_error

h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[learn]"`')


@pytest.fixture
def folder(rng, tmp_path):
    """Returns a folder of five samples, two of them in one file."""
    place = tmp_path / "data"
    place.mkdir()

    def fill(group, n):
        group["mesh_points"] = rng.normal(size=(n, 2))
        group["k"] = rng.normal(size=n) + 3
        group["u"] = rng.normal(size=(n, 2))
        group["quadrature_weights"] = rng.uniform(size=n)

    for i in range(3):
        with h5py.File(place / f"{i}.h5", "w") as file:
            fill(file, 50 + 7 * i)
    with h5py.File(place / "two.h5", "w") as file:
        for name in "ab":
            fill(file.create_group(name), 40)
    return place


class Array(np.ndarray):
    """An array in memory as a column of a file."""

    channel_names = ("x",)


def test_parts_have_the_summary_of_the_whole(rng):
    whole = {
        "mesh_points": rng.normal(size=(101, 2)),
        "features": rng.normal(size=(101, 3)) * 1e3,
        "target": rng.normal(size=(101, 1)) - 50,
    }
    expected = summaries.summarize(Sample(**whole))
    arrays = {name: array.view(Array) for name, array in whole.items()}
    for chunk_size in (1, 10, 101, 1000):
        found = sliced.summarize("x", arrays, chunk_size=chunk_size)
        assert found.num_points == 101
        for key, pair in expected.ranges.items():
            assert_array_equal(found.ranges[key], pair)
        assert found.sums.keys() == {"features", "target"}
        for key, (count, mean, squares) in expected.sums.items():
            assert found.sums[key][0] == count
            assert_allclose(found.sums[key][1], mean, rtol=1e-12)
            assert_allclose(found.sums[key][2], squares, rtol=1e-12)


def test_samples_in_slices_are_those_in_memory(folder):
    names = {"features": ["k"], "target": ["u"]}
    whole = read(folder, **names)
    found = read_sliced(folder, ReadOptions(**names))
    assert len(found) == len(whole) == 5
    assert found.weighted
    for row, sample in enumerate(whole):
        with found.open(row) as arrays:
            for key in ("mesh_points", "features", "target", "quadrature_weights"):
                # In the type of the file; whole samples are narrowed.
                rows = np.float32(arrays[key][0:1000])
                assert_array_equal(rows, getattr(sample, key))
        assert_allclose(
            found.summaries[row].sums["target"][1],
            summaries.summarize(sample).sums["target"][1],
            rtol=1e-6,
        )
    few = found.take([3, 1])
    assert [p.file for p in few.places] == [found.places[i].file for i in (3, 1)]


def test_vtu_files_are_read_in_slices(rng, tmp_path):
    pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
    points = np.pad(rng.uniform(size=(30, 2)), [(0, 0), (0, 1)])
    mesh = pyvista.UnstructuredGrid([3, 0, 1, 2], [5], points)
    mesh.point_data["u"] = rng.normal(size=(30, 3))
    mesh.save(tmp_path / "a.vtu")
    found = read_sliced(tmp_path, ReadOptions(target=["u"]))
    with found.open(0) as arrays:
        assert_array_equal(arrays["mesh_points"][3:9], points[3:9, :2])
        assert arrays["target"].channel_names == ("u", "u", "u")
        assert "features" not in arrays


def test_every_sample_is_in_one_part(folder):
    found = sliced_splits(
        [folder],
        options=ReadOptions(features=["k"], target=["u"]),
        shares=files.Shares(test_fraction=0.4, seed=1),
    )
    parts = [found.train, found.validation, found.test]
    assert [len(part) for part in parts] == [2, 1, 2]
    assert len({place for part in parts for place in part.places}) == 5


def test_one_mesh_is_trained_on_and_tested(folder):
    found = sliced_splits(
        [folder / "0.h5"], options=ReadOptions(features=["k"], target=["u"])
    )
    assert [len(p) for p in found[:3]] == [1, 0, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f["u"].__setitem__((3, 1), np.nan), "u|target is not finite"),
        (lambda f: f["quadrature_weights"].__setitem__(3, -1.0), "negative"),
        (lambda f: f.__delitem__("u"), "no field u"),
        (lambda f: f.__delitem__("quadrature_weights"), "must be consistent"),
        (lambda f: f.__delitem__("k"), "k"),
    ],
)
def test_bad_files_are_named(folder, change, message):
    with h5py.File(folder / "1.h5", "r+") as file:
        change(file)
    with value_error(message) as info:
        read_sliced(folder, ReadOptions(features=["k"], target=["u"]))
    assert "1.h5" in str(info.value)


def test_files_in_both_parts_are_refused(folder):
    with value_error("are in both train and test"):
        sliced_splits(
            [folder], [folder / "1.h5"], ReadOptions(features=["k"], target=["u"])
        )


def test_files_without_slices_are_refused(rng, tmp_path):
    np.savez(tmp_path / "a.npz", mesh_points=rng.normal(size=(3, 2)))
    with value_error("only .h5 and .vtu files"):
        read_sliced(tmp_path)


@pytest.mark.parametrize(
    ("dtype", "attributes"),
    [
        ("i2", {"scale_factor": 0.5, "add_offset": np.array([273.0])}),
        ("f8", {"scale_factor": np.float32(0.5), "add_offset": 273}),
        ("i4", {"scale_factor": 0.5}),
        ("u1", {"add_offset": 273.0}),
        ("f4", {"_FillValue": -9.9, "units": "K", "scale_factor": "none"}),
    ],
)
def test_values_of_netcdf_are_unpacked_and_missing_ones_are_named(
    dtype, attributes, tmp_path
):
    path, stored = tmp_path / "a.h5", np.arange(2, 14)
    with h5py.File(path, "w") as file:
        file["mesh_points"] = np.random.default_rng(0).random((12, 2))
        file["target"] = stored.astype(dtype)
        file["target"].attrs.update(attributes)
    scale = 1.0 if dtype in ("u1", "f4") else 0.5
    expected = (stored * scale + 273 * ("add_offset" in attributes))[:, None]
    assert_allclose(read_one(path).target, expected)
    with read_sliced(path).open(0) as arrays:
        assert_allclose(arrays["target"][2:7], expected[2:7])
    with h5py.File(path, "r+") as file:
        missing = attributes.get("_FillValue", 99)
        file["target"].attrs["missing_value"] = missing
        file["target"][3] = missing
    for reader in (read, read_sliced):
        with value_error(r"a\.h5.* target .*finite.* point"):
            reader(path)


def test_meshes_in_other_planes_are_refused_in_slices_too(rng, tmp_path):
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    for name, axes in (("a", [0, 2]), ("b", [0, 1])):
        points = np.zeros((9, 3))
        points[:, axes] = rng.uniform(size=(9, 2))
        mesh = pyvista.PolyData(points).cast_to_unstructured_grid()
        mesh["target"] = points[:, 0]
        mesh.save(tmp_path / f"{name}.vtu")
    a, b = str(tmp_path / "a.vtu"), str(tmp_path / "b.vtu")
    assert read_sliced(a).summaries[0].axes == (0, 2)
    said = "a.vtu varies along x and z, but .*b.vtu along x and y"
    for train, test in (([a, b], []), ([a], [b])):
        with value_error(said):
            sliced_splits(train, test)


def test_coordinates_in_arrays_of_their_own_are_named_in_slices(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"], file["y"], file["u"] = np.random.default_rng(0).random((3, 12))
    with value_error(r"x and y look like coordinates: stack them as mesh_points"):
        read_sliced(tmp_path, ReadOptions(target="u"))
