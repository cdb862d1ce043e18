"""Components and invariants of fields by name: values, what wins, what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import ReadOptions, components
from opjax.files.series import read_series
from opjax.files.vtk import fields as vtk_fields
from opjax.files.vtk import vtu_write
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from tests.datasets.reading import read_one
from tests.refused import value_error

_RNG = np.random.default_rng(0)
_N = 5
_SYMMETRIC = ("xx", "yy", "zz", "xy", "yz", "xz")


def tensors(channels):
    """Random tensors `(n, 3, 3)`, symmetric for six channels, and their columns."""
    full = _RNG.normal(size=(_N, 3, 3))
    if channels == 9:
        return full, full.reshape(_N, 9)
    full = full + full.transpose(0, 2, 1)
    places = ["xyz".index(a) * 3 + "xyz".index(b) for a, b in _SYMMETRIC]
    return full, full.reshape(_N, 9)[:, places]


def archive(path, **arrays):
    points = np.linspace(0, 1, 2 * _N).reshape(_N, 2)
    np.savez(path, mesh_points=points, **arrays)
    return path


def grid(path, *, labels, **arrays):
    """A file of points alone, whose arrays have names of channels."""
    points = np.zeros((_N, 3), np.float32)
    points[:, :2] = _RNG.random((_N, 2))
    data = NamedArrays(arrays, labels=labels)
    corners = np.arange(_N)
    mesh = VtkMesh(points, np.arange(_N + 1), corners, np.ones(_N, int), data)
    vtu_write.write(path, mesh, {})
    return path


def read(path, names, **options):
    sample = read_one(path, target=names, **options)
    return sample.target


@pytest.mark.parametrize("channels", [6, 9])
def test_invariants_of_tensors_are_those_of_linear_algebra(tmp_path, channels):
    full, columns = tensors(channels)
    symmetric = (full + full.transpose(0, 2, 1)) / 2
    trace = np.trace(full, axis1=1, axis2=2)
    deviator = symmetric - trace[:, None, None] / 3 * np.eye(3)
    mises = np.sqrt(1.5 * np.sum(deviator**2, axis=(1, 2)))
    size = np.linalg.norm(full, axis=(1, 2))
    path = archive(tmp_path / "a.npz", S=columns)
    found = read(path, "S:mises,S:mag,S:trace,S:pressure")
    expected = np.stack([mises, size, trace, -trace / 3], axis=1)
    assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("channels", [6, 9])
def test_components_of_tensors_are_in_vtks_order(tmp_path, channels):
    full, columns = tensors(channels)
    names = [name for name in components.listed("S", channels) if "_" in name]
    assert len(names) == channels
    found = read(archive(tmp_path / "a.npz", S=columns), names)
    for name, column in zip(names, found.T, strict=True):
        i, j = ("xyz".index(axis) for axis in name[2:])
        assert_allclose(column, full[:, i, j], rtol=1e-6)


@pytest.mark.parametrize("dimension", [2, 3])
def test_a_vector_has_components_and_a_size(tmp_path, dimension):
    vectors = _RNG.normal(size=(_N, dimension))
    path = archive(tmp_path / "a.npz", U=vectors)
    names = [f"U_{axis}" for axis in "xyz"[:dimension]]
    assert_allclose(read(path, names), vectors, rtol=1e-6)
    assert_allclose(read(path, "U_X"), vectors[:, :1], rtol=1e-6)
    size = np.linalg.norm(vectors, axis=1)[:, None]
    assert_allclose(read(path, "U:mag"), size, rtol=1e-6)


def test_names_of_channels_in_the_file_say_their_order(tmp_path):
    full, columns = tensors(6)
    order = [0, 3, 5, 1, 4, 2]  # OpenFOAM's own
    labels = ("S11", "S12", "S13", "S22", "S23", "S33")
    path = grid(tmp_path / "a.vtu", labels={"S": labels}, S=columns[:, order])
    found = read(path, "S_xx,S_yz,S_S23,S:mises")
    assert_allclose(found[:, 0], full[:, 0, 0], rtol=1e-6)
    assert_allclose(found[:, 1], full[:, 1, 2], rtol=1e-6)
    assert_array_equal(found[:, 1], found[:, 2])
    with pytest.warns(UserWarning, match="channels of S are S11, S12, S13, S22"):
        read(path, "S")
    usual = read(archive(tmp_path / "b.npz", S=columns), "S:mises")
    assert_allclose(found[:, 3:], usual, rtol=1e-6)


def test_channels_with_names_of_their_own_are_components(tmp_path):
    values = _RNG.normal(size=(_N, 4))
    labels = {"S_Principal": ("Min", "Mid", "Max", "Worst")}
    path = grid(tmp_path / "a.vtu", labels=labels, S_Principal=values, S=values)
    found = read(path, "S_Principal_Max")
    assert_allclose(found, values[:, 2:3], rtol=1e-6)
    with value_error("S_Principal_Min, S_Principal_Mid"):
        read(path, "S_Principal_x")


def test_names_of_channels_that_say_no_order_are_refused(tmp_path):
    _, columns = tensors(6)
    labels = ("a", "b", "c", "d", "e", "f")
    path = grid(tmp_path / "a.vtu", labels={"S": labels}, S=columns)
    with value_error(r"a\.vtu: S: its channels in the file are a, b, c"):
        read(path, "S:mises")
    assert_allclose(read(path, "S_b"), columns[:, 1:2], rtol=1e-6)


def test_an_array_of_the_name_itself_comes_first(tmp_path):
    path = archive(tmp_path / "a.npz", U=np.ones((_N, 3)), U_x=np.full(_N, 7.0))
    assert (read(path, "U_x") == 7).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p_x", "p has one channel, and so no components"),
        ("p:mag", "p has one channel"),
        ("q_x", "q has 4 channels, and so no components"),
        ("U_xx", "components of U are U_x, U_y, U_z, U:mag"),
        ("U:mises", "components of U are U_x, U_y, U_z, U:mag"),
        ("U_mag", "U:mag"),
        ("S_w", "S_xx, S_yy, S_zz, S_xy, S_yz, S_xz, S:mag, S:mises, S:trace"),
        ("V_x", "has no array 'V_x', only"),
    ],
)
def test_what_is_no_component_is_refused_with_those_there_are(tmp_path, name, words):
    ones = {"p": np.ones(_N), "q": np.ones((_N, 4))}
    ones |= {"U": np.ones((_N, 3)), "S": np.ones((_N, 6))}
    path = archive(tmp_path / "a.npz", **ones)
    with value_error(words):
        read(path, name)


def test_components_of_grids_have_no_axis_of_the_grid(tmp_path):
    vectors, scalars = _RNG.normal(size=(4, 3, 2)), _RNG.normal(size=(4, 3))
    np.savez(tmp_path / "a.npz", U=vectors, p=scalars)
    found = read(tmp_path / "a.npz", "U_y", grid_axes=2)
    assert_allclose(found[:, 0], vectors[..., 1].ravel(), rtol=1e-6)
    with value_error("no array 'p_x'"):
        read(tmp_path / "a.npz", "p_x,U", grid_axes=2)


def test_components_of_series_are_those_of_each_frame(tmp_path):
    values, times = _RNG.normal(size=(3, _N, 2)), np.arange(3.0)
    archive(tmp_path / "a.npz", U=values, times=times)
    options = ReadOptions(target="U_y,U:mag")
    (series,) = read_series(tmp_path, options).series
    assert_allclose(series.values[..., 0], values[..., 1], rtol=1e-6)
    size = np.linalg.norm(values, axis=2)
    assert_allclose(series.values[..., 1], size, rtol=1e-6)


def test_frames_that_stay_on_disk_have_no_components(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["mesh_points"], file["times"] = _RNG.random((_N, 2)), np.arange(3.0)
        file["U"] = _RNG.normal(size=(3, _N, 2))
    options = ReadOptions(target="U_y")
    with value_error("U_y is a component of a field"):
        read_series(tmp_path, options, in_memory=False)


def test_predicted_components_are_written_under_their_names(tmp_path):
    labels = {"U": ("D1", "D2", "D3")}
    values = _RNG.normal(size=(_N, 3)).astype(np.float32)
    path = grid(tmp_path / "a.vtu", labels=labels, U=values)
    options = ReadOptions(target="U_x,U:mag")
    with files.extended(path, tmp_path / "b.vtu", options) as (one,):
        one.add(one.sample.target, ["prediction_U_x", "prediction_U:mag"])
    copy = vtk_fields.load(tmp_path / "b.vtu", 2**20).point_data
    assert copy.arrays.keys() == {"U", "prediction_U_x", "prediction_U:mag"}
    assert_array_equal(copy.arrays["prediction_U_x"], values[:, 0])
    assert copy.labels == labels


def test_files_that_are_read_in_slices_have_no_components(tmp_path):
    values = _RNG.normal(size=(_N, 3))
    path = grid(tmp_path / "a.vtu", labels={}, U=values)
    for role in ("target", "features"):
        options = ReadOptions(**{"target": "U", role: "U_x"})
        with value_error("component of U, which is read as a whole"):
            files.read_sliced(path, options)
