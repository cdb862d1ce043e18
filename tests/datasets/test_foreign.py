"""Data that are not what they seem: refused or warned of by file and field, once."""

import warnings

import h5py
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, samples
from opjax.files import formats
from opjax.samples import Sample, layout
from tests.datasets import reading
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error


def save(path, **changes):
    """Writes a sample of random points; returns its arrays."""
    rng = np.random.default_rng(abs(hash(path.name)) % 1000)
    x = rng.uniform(size=(12, 2))
    arrays = {"mesh_points": x, "k": x[:, 0], "target": x.sum(axis=1), **changes}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return arrays


def warned(call):
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in said]


def test_a_link_that_leads_nowhere_is_named_with_its_target(tmp_path):
    save(tmp_path / "a.npz")
    (tmp_path / "b.npz").symlink_to("gone/b.npz")
    for given in (tmp_path, tmp_path / "b.npz", tmp_path / "*.npz"):
        with pytest.raises(FileNotFoundError, match=r"b.npz is a link to gone/b.npz"):
            files.read(given)
    (tmp_path / "b.npz").unlink()
    (tmp_path / "b.npz").symlink_to(".git/annex/objects/x")
    with pytest.raises(FileNotFoundError, match="git annex get"):
        files.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="b.npz is a link to"):
        files.series.read_series(tmp_path)


POINTERS = {
    "git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
    "git annex get": b"/annex/objects/SHA256E-s9--ab.npz\n",
}


@pytest.mark.parametrize("suffix", formats.SUFFIXES)
@pytest.mark.parametrize("way", POINTERS)
def test_a_pointer_to_content_elsewhere_says_how_to_get_it(suffix, way, tmp_path):
    path = tmp_path / f"p{suffix}"
    path.write_bytes(POINTERS[way])
    refused(path, f"p{suffix} has no content.*{way}")


def test_brackets_of_a_folder_that_exists_are_no_pattern(tmp_path):
    save(tmp_path / "d [1]" / "s_0.npz")
    save(tmp_path / "d [1]" / "s_1.npz")
    assert len(files.find(tmp_path / "d [1]" / "s_*.npz")) == 2
    assert len(files.find(tmp_path / "d [1]" / "s_[1].npz")) == 1
    with pytest.raises(FileNotFoundError, match=r"write \[\[\]1\] for brackets"):
        files.find(tmp_path / "e [1]" / "s_*.npz")


def test_a_comma_in_the_name_of_what_exists_divides_no_paths(tmp_path):
    for name in ("in,2024", "b", "x, y"):
        (tmp_path / name).mkdir()
    there = [str(tmp_path / name) for name in ("in,2024", "b", "x, y")]
    assert formats.listed(",".join(there)) == there
    assert formats.listed(",".join(there).split(",")) == there  # as flags of lists are
    assert formats.listed("a, b,,") == ["a", "b"]
    with pytest.raises(FileNotFoundError, match="Commas separate paths"):
        files.find("no,such")


@pytest.mark.parametrize("suffix", [".hdf5", ".hdf", ".HDF5"])
def test_other_suffixes_of_hdf5_are_read_and_written_alike(suffix, tmp_path):
    arrays = save(tmp_path / "a.npz")
    path = reading.save(tmp_path / f"a{suffix}", arrays)
    sample = read_one(path, features="k")
    files.write(tmp_path / "out" / path.name, sample, sample.target)
    again = read_one(tmp_path / "out", target="prediction")
    assert_array_equal(again.target, sample.target)


def test_a_name_with_a_slash_is_refused_where_it_would_make_a_group(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mesh_points"], file["a/b"] = np.zeros((3, 2)), np.zeros(3)
    refused(tmp_path / "a.h5", "a/b is b in a; rename such fields")
    with value_error("'a/b' cannot be written to an .h5 file"):
        files.write(
            tmp_path / "b.h5", Sample(np.eye(3, 2)), np.ones((3, 1)), names=["a/b"]
        )


def test_a_name_with_a_comma_is_given_in_quotes(tmp_path):
    arrays = save(tmp_path / "a.npz", **{"Stress, Mises": np.arange(12.0)})
    sample = read_one(tmp_path, features='"Stress, Mises",k')
    assert_allclose(sample.features[:, 1], arrays["k"], rtol=1e-6)
    refused(tmp_path, 'needs quotes: "Stress, Mises"', features="Stress, Mises")


@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_vectors_of_matlab_are_times_and_grid_shapes(shape, tmp_path):
    times = np.array([0.0, 0.5, 1.0]).reshape(shape)
    save(tmp_path / "a.npz", times=times, target=np.arange(36.0).reshape(3, 12))
    ((series,), _) = files.series.read_series(tmp_path)
    assert_array_equal(series.times, [0, 0.5, 1])
    grid = samples.grid_points((4, 3, 2))
    save(
        tmp_path / "grid" / "a.npz",
        mesh_points=grid,
        target=grid.sum(axis=1),
        k=grid[:, 0],
        grid_shape=np.array([4.0, 3, 2]).reshape(shape),
    )
    assert files.read(tmp_path / "grid")[0].grid_shape == (4, 3, 2)


@pytest.mark.parametrize("location", ["points", "cells"])
def test_whole_doubles_of_matlab_are_indices_of_points(location, tmp_path):
    cells = np.array([[0.0, 1, 2], [1, 2, 3]])
    points = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    target = np.arange(4.0 if location == "points" else 2.0)
    arrays = {"mesh_points": points, "target": target, "k": target}
    save(tmp_path / "a.npz", cells=cells, **arrays)
    sample = read_one(tmp_path, location=location)
    assert sample.num_points == len(target)
    save(tmp_path / "a.npz", cells=cells + 1, **arrays)
    if location == "points":
        refused(tmp_path, "start at one, as in MATLAB")


def test_notes_of_matlab_files_are_no_arrays_of_samples(tmp_path):
    io = pytest.importorskip("scipy.io")
    points = np.random.default_rng(0).uniform(size=(5, 7, 2))
    io.savemat(tmp_path / "v5.mat", {"mesh_points": points, "target": points[..., 0]})
    np.savez(tmp_path / "m.npz", **io.loadmat(tmp_path / "v5.mat"))
    assert len(read(tmp_path / "m.npz", stacked=True)) == 5


TYPES = [">f8", ">f4", "f2", "i8", "i2", "u1", "?", "longdouble"]


@pytest.mark.parametrize("dtype", TYPES)
def test_real_numbers_of_any_type_are_one_rule_for_files_and_arrays(dtype, tmp_path):
    values = (10 * np.random.default_rng(0).uniform(size=(3, 12))).astype(dtype)
    points = np.random.default_rng(1).uniform(size=(12, 2))
    found = samples.from_arrays(target=values, features=values, mesh_points=points)
    given = Sample(points, target=values[0, :, None], features=values[0])
    for sample in (found[0], samples.columns(given._replace(target=None))):
        assert sample.features.dtype in (np.float32, np.float64)
        assert sample.features.dtype.isnative
        assert_array_equal(sample.features[:, 0], values[0].astype(float))
    save(tmp_path / "a.npz", k=values[0], target=values[0])
    read = read_one(tmp_path, features="k")
    assert_allclose(read.features, found[0].features, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["c8", "U3", "O", "M8[s]"])
def test_what_are_no_real_numbers_is_refused_by_name(dtype):
    values = np.zeros((3, 5)).astype(dtype)
    with pytest.raises(TypeError, match="features has dtype .*, expected real numbers"):
        samples.from_arrays(target=np.zeros((3, 5)), features=values, grid_axes=1)


@pytest.mark.parametrize("offset", [0.0, 5e7, 5e8])
def test_weights_of_cells_know_nothing_of_an_offset(offset, tmp_path):
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    grid = samples.grid_points((5, 5)).astype(np.float64)
    i = np.arange(25).reshape(5, 5)
    quads = np.stack([i[:-1, :-1], i[1:, :-1], i[1:, 1:], i[:-1, 1:]], axis=-1)
    cells = quads.reshape(-1, 4)
    save(
        tmp_path / "q.npz",
        mesh_points=grid + offset,
        cells=cells,
        target=grid[:, 0],
        k=grid[:, 0],
    )
    points = np.pad(grid + offset, [(0, 0), (0, 1)])
    flat = np.insert(cells, 0, 4, axis=1).ravel()
    mesh = pyvista.UnstructuredGrid(flat, np.full(16, 9), points)
    mesh["target"] = grid[:, 0]
    mesh.save(tmp_path / "q.vtu")
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the offset
        for name in ("q.npz", "q.vtu"):
            sample = read_one(tmp_path / name, quadrature=True)
            found.append(sample.quadrature_weights)
    assert_allclose([one.sum() for one in found], 1, rtol=1e-6)


def plane(third, axes=(0, 1)):
    points = np.zeros((12, 3))
    points[:, axes] = np.random.default_rng(0).uniform(size=(12, 2))
    (left,) = {0, 1, 2} - set(axes)
    points[:, left] = third
    return points


def surface(path, points, target=0.0, time=None):
    """Writes the triangles between the points of a plane, moved to others."""
    pyvista = pytest.importorskip("pyvista", reason="needs opjax[vtk]")
    mesh = pyvista.PolyData(plane(0.0)).delaunay_2d().cast_to_unstructured_grid()
    mesh.points = points
    mesh["target"] = points.sum(axis=1) + target
    if time is not None:
        mesh.field_data["TimeValue"] = [time]
    mesh.save(path)


HEIGHTS = {
    "zero": 0.0,
    "above": 0.5,
    "far below": -3e4,
    "rounding": 1e-17 * np.random.default_rng(1).random(12),
    "float32": 1e3 * (1 + 1e-7 * np.random.default_rng(1).random(12)),
}


@pytest.mark.parametrize("height", HEIGHTS)
def test_a_plane_anywhere_in_space_is_two_dimensional(height, tmp_path):
    points = plane(HEIGHTS[height])
    dtype = np.float32 if height == "float32" else np.float64
    surface(tmp_path / "a.vtu", points.astype(dtype))
    for options in ({}, {"point_dim": 2}):
        sample = read_one(tmp_path, **options)
        assert_allclose(sample.mesh_points, points[:, :2], rtol=1e-6)


def test_thin_meshes_stay_three_dimensional(tmp_path):
    surface(tmp_path / "a.vtu", plane(np.linspace(0, 1e-4, 12)))
    assert files.read(tmp_path)[0].mesh_points.shape[1] == 3


def test_meshes_in_different_planes_are_refused_by_both_names(tmp_path):
    a, b = tmp_path / "train", tmp_path / "test"
    for folder in (a, b):
        folder.mkdir()
    surface(a / "a.vtu", plane(0.0))
    surface(b / "b.vtu", plane(0.0, axes=(0, 2)))
    said = "b.vtu varies along x and z, but .*a.vtu along x and y"
    for refuse in (files.read, files.stored):
        with value_error(said):
            refuse([a, b])
    with value_error("a.vtu varies along x and y, but .*b.vtu along x and z"):
        files.splits([a], [b])
    assert read([a, b], point_dim=3)[1].mesh_points.shape == (12, 3)
    surface(b / "b.vtu", plane(0.5))
    with value_error("b.vtu lies at z = 0.5, but .*a.vtu at 0"):
        files.read([a, b])
    assert read([a, b], point_dim=2)[1].mesh_points.shape == (12, 2)


def on_grid(path, shape, order, **changes):
    """A grid of a shape, whose points run in an order of the axes, slowest first."""
    grid = samples.grid_points(shape).reshape(*shape, -1)
    points = (
        grid.transpose(*order, -1).reshape(-1, len(shape)) * [1, 0.3, 0.1][: len(shape)]
    )
    arrays = {"mesh_points": points, "target": points[:, 0], "k": points[:, 0]}
    return save(path, grid_shape=shape, **{**arrays, **changes})


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((7, 9), (1, 0)),
        ((2, 5), (1, 0)),
        ((4, 3, 5), (2, 1, 0)),
        ((4, 3, 5), (0, 2, 1)),
    ],
)
def test_points_in_another_order_than_grid_shape_says_are_refused(
    shape, order, tmp_path
):
    on_grid(tmp_path / "a.npz", shape, range(len(shape)))
    files.read(tmp_path)
    on_grid(tmp_path / "a.npz", shape, order)
    true = tuple(shape[axis] for axis in order)
    with value_error("a.npz.*grid_shape .* does not match the order") as said:
        files.read(tmp_path)
    assert f"pass grid_shape={true}" in str(said.value)
    on_grid(tmp_path / "a.npz", shape, order)
    arrays = dict(np.load(tmp_path / "a.npz"))
    np.savez(tmp_path / "a.npz", **arrays | {"grid_shape": true})
    assert files.read(tmp_path)[0].grid_shape == true  # the advice


def test_curved_stretched_and_noisy_grids_are_in_their_order():
    rng = np.random.default_rng(0)
    s, t = np.meshgrid(np.linspace(0, 1, 21), np.linspace(0, 1, 8), indexing="ij")
    ring = np.stack(
        [(1 + 9 * t**4) * np.cos(6.28 * s), (1 + 9 * t**4) * np.sin(6.28 * s)]
    )
    layer = np.stack([s, 1e-4 * t**3])
    noisy = np.stack([s, t]) + 0.01 * rng.normal(size=(2, 21, 8))
    for grid in (ring, layer, noisy):
        for turned in (grid, grid.swapaxes(1, 2), grid[:, :, :2], grid[:, :2]):
            points = turned.reshape(2, -1).T
            layout.check_order([layout.Grid("a", points, turned.shape[1:])])
    scrambled = noisy.swapaxes(1, 2).reshape(2, -1).T
    with value_error("does not match the order"):
        layout.check_order([layout.Grid("a", scrambled, (21, 8))])


def test_square_grids_that_run_first_along_x_are_noticed_once(tmp_path):
    for name in "abc":
        on_grid(tmp_path / f"{name}.npz", (6, 6), (1, 0), k=np.arange(36.0))
    with pytest.warns(
        UserWarning, match="a.npz: axis 0 of grid_shape is along y"
    ) as said:
        files.read(tmp_path)
    assert len(said) == 1
    on_grid(tmp_path / "b.npz", (6, 6), (0, 1))
    refused(tmp_path, "is along y, but in .*b.npz it is along x")


def test_channels_first_are_warned_of_with_what_is_understood(tmp_path, rng):
    array = rng.normal(size=(5, 3, 8, 8))
    said = r"features of shape \(5, 3, 8, 8\) is interpreted as a grid of 3 x 8 points"
    with pytest.warns(UserWarning, match=said) as found:
        samples.from_arrays(target=array[..., 0], features=array)
    line = str(found[0].message).split("pass ")[1].rstrip(".")
    moved = eval(line, {"np": np, "array": array})
    assert moved.shape == (5, 8, 8, 3)
    for fine in (moved, array[:, :, :, :2], rng.normal(size=(5, 6, 8, 8)), array[:, 0]):
        samples.from_arrays(target=fine, features=fine)  # without a warning
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", k=array[0], target=array[0, :, :, 0])
    with pytest.warns(
        UserWarning, match="a.npz: features is interpreted .* axis 0"
    ) as found:
        read(tmp_path, features="k", grid_axes=2)
    assert len(found) == 1


def test_frames_of_one_run_as_cases_are_named_with_their_times(tmp_path):
    for case in range(3):
        for target, time in enumerate((0, 100 + case)):
            path = tmp_path / f"case_{case}_{time}.vtu"
            surface(path, plane(0.0) * (1 + case), target, float(time))
    for in_memory in (True, False):
        words = warned(lambda: files.splits([tmp_path], in_memory=in_memory))  # noqa: B023
        assert len(words) == 2
        assert "6 of 6 samples are frames of 3 runs" in words[0]
        assert "case_0_0.vtu is at time 0" in words[0]
        assert "case_0_100.vtu at 100" in words[0]
        assert "3 of 6 samples are at time 0" in words[1]
        assert all("foamToVTK -latestTime" in w and "--time=" in w for w in words)
    train, test = tmp_path / "train", tmp_path / "test"  # the same across sets
    for folder, end in ((train, "10"), (test, "_0")):
        folder.mkdir()
        for file in tmp_path.glob("*.vtu"):
            if end in file.stem.removeprefix("case_"):
                file.rename(folder / file.name)
    words = warned(lambda: files.splits([train], [test]))
    assert "6 of 6 samples are frames of 3 runs" in words[0]


def test_one_input_with_several_answers_is_named_and_last_times_are_fine(tmp_path):
    arrays = save(tmp_path / "a.npz")
    for name in "bcdef":
        save(tmp_path / f"{name}.npz")
    files.splits([tmp_path], options=files.ReadOptions(features="k"))
    np.savez(tmp_path / "g.npz", **arrays | {"target": arrays["target"] + 1})
    said = "2 of 7 samples have the same input as others, .*a.npz and .*g.npz"
    with pytest.warns(UserWarning, match=said):
        files.splits([tmp_path], options=files.ReadOptions(features="k"))


def test_a_table_may_say_that_files_are_here_and_stand_above(tmp_path):
    save(tmp_path / "data" / "a.npz")
    for table, name in (("data/cases.csv", "./a.npz"), ("cases.csv", "data/a.npz")):
        (tmp_path / table).write_text(f"file,load\n{name},3\n")
        sample = read_one(tmp_path / "data", scalars="load")
        assert sample.scalars[0] == 3
        (tmp_path / table).unlink()
    refused(
        tmp_path / "data",
        "there is no cases.csv in its folder or a parent",
        scalars="load",
    )


def test_a_column_is_a_scalar_where_a_field_has_its_name(tmp_path):
    save(tmp_path / "a.npz", U=np.zeros((12, 2)))
    (tmp_path / "cases.csv").write_text("file,U\na.npz,3\n")
    sample = read_one(tmp_path, scalars="U")
    assert sample.scalars[0] == 3


def test_predictions_over_predictions_say_what_to_predict_on(tmp_path):
    save(tmp_path / "a.npz", prediction_p=np.zeros(12))
    sample = read_one(tmp_path)
    with value_error("output of a prediction. Predict on the file"):
        files.write(
            tmp_path / "b.npz", sample, np.ones((12, 1)), names=["prediction_p"]
        )
