import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import files
from opjax.samples import Sample
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')


@pytest.fixture
def mesh(rng):
    """Returns a triangle mesh of 30 points in the plane, with fields."""
    points = np.pad(rng.uniform(size=(30, 2)), [(0, 0), (0, 1)])
    mesh = pyvista.PolyData(points).delaunay_2d().cast_to_unstructured_grid()
    mesh.point_data["k"] = rng.normal(size=30)
    mesh.point_data["wind"] = rng.normal(size=(30, 3))
    mesh.cell_data["area"] = np.ones(mesh.n_cells)
    return mesh


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_a_planar_mesh_is_two_dimensional_with_fields_by_name(suffix, mesh, tmp_path):
    mesh.save(tmp_path / f"a{suffix}")
    sample = read_one(tmp_path, features="k", target="wind", quadrature=True)
    assert_allclose(sample.mesh_points, mesh.points[:, :2], rtol=1e-6)
    assert_allclose(sample.features, mesh["k"][:, None], rtol=1e-6)
    assert_allclose(sample.target, mesh["wind"], rtol=1e-6)
    triangles = mesh.cells_dict[5]
    assert_array_equal(sample.cells, triangles)
    expected = opjax.cell_weights(mesh.points[:, :2].astype(float), triangles)
    assert_allclose(sample.quadrature_weights, expected, rtol=1e-5)


def test_axes_of_a_constant_are_no_space_and_point_dim_overrules(mesh, tmp_path):
    path = tmp_path / "a.vtu"
    mesh.save(path)
    shape = read(path, point_dim=3)[0].mesh_points.shape
    assert shape == (30, 3)
    mesh.points = mesh.points[:, [0, 2, 1]]
    mesh.save(path)
    x = files.read(path)[0].mesh_points
    assert_allclose(x, mesh.points[:, [0, 2]], rtol=1e-6)
    refused(
        path,
        "point_dim=2 must be .* coordinates beyond it must be constant",
        point_dim=2,
    )
    refused(path, "point_dim=4", point_dim=4)
    mesh.points = mesh.points[:, [0, 2, 1]] + np.array([0, 0, 1.0])
    mesh.save(path)
    assert files.read(path)[0].mesh_points.shape == (30, 2)
    assert read(path, point_dim=3)[0].mesh_points.shape == (
        30,
        3,
    )


def test_weights_of_a_volume_mesh_sum_to_its_volume(tmp_path):
    box = pyvista.ImageData(dimensions=(4, 3, 3), spacing=(1, 2, 0.5))
    box.cast_to_unstructured_grid().save(tmp_path / "a.vtu")  # voxels
    sample = read_one(tmp_path, quadrature=True)
    assert_allclose(sample.quadrature_weights.sum(), 3 * 4 * 1, rtol=1e-6)
    assert sample.cells is None  # voxels are not linear cells with the usual order


def test_weights_of_the_file_are_kept(mesh, tmp_path):
    mesh.point_data["quadrature_weights"] = np.arange(30.0)
    mesh.save(tmp_path / "a.vtu")
    sample = read_one(tmp_path, quadrature=True)
    assert_array_equal(sample.quadrature_weights, np.arange(30))


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
def test_a_prediction_is_attached_to_the_mesh(suffix, mesh, tmp_path):
    path, out = tmp_path / f"a{suffix}", tmp_path / "out" / f"a{suffix}"
    mesh.save(path)
    sample = read_one(path, features="k")
    prediction = np.arange(90, dtype=np.float32).reshape(30, 3)
    files.write(out, sample, prediction, names=("u", "u", "p"))
    written = pyvista.read(out)
    assert sorted(written.point_data) == ["k", "p", "u", "wind"]
    assert sorted(written.cell_data) == ["area"]
    assert_array_equal(written["u"], prediction[:, :2])
    assert_array_equal(written.points, mesh.points)
    assert_array_equal(written.cells, mesh.cells)
    with value_error(r"already has the fields \['k'\]"):
        files.write(out, sample, prediction[:, :1], names=("k",))


@pytest.mark.parametrize(
    ("dimension", "corners"), [(2, 3), (2, 4), (3, 4), (3, 8), (1, 2), (3, 3), (2, 0)]
)
def test_samples_from_nowhere_are_written_and_read_back(
    dimension, corners, rng, tmp_path
):
    sample = Sample(
        rng.uniform(size=(8, dimension)).astype(np.float32),
        features=rng.normal(size=(8, 2)).astype(np.float32),
        cells=np.arange(corners)[None] if corners else None,
    )
    files.write(tmp_path / "a.vtu", sample)
    read = read_one(tmp_path)
    for name in ("mesh_points", "features", "cells"):
        assert_array_equal(getattr(read, name), getattr(sample, name))


def test_meshes_that_vtk_cannot_hold_are_refused(rng, tmp_path):
    points = rng.uniform(size=(8, 4)).astype(np.float32)
    with value_error("points in 4 dimensions cannot be written"):
        files.write(tmp_path / "a.vtu", Sample(points))
    cells = np.arange(5)[None]
    with value_error("Cells with 5 corners in 2 dimensions"):
        files.write(tmp_path / "a.vtu", Sample(points[:, :2], cells=cells))


def test_cell_data_are_not_point_data(mesh, tmp_path):
    mesh.save(tmp_path / "a.vtu")
    refused(tmp_path / "a.vtu", "'area' as cell data.*--location=cells", target="area")


def test_empty_meshes_and_blocks_are_refused(mesh, tmp_path):
    path = tmp_path / "a.vtu"
    pyvista.UnstructuredGrid().save(path)
    refused(path, "the mesh is empty")
    mesh.point_data["k"][3] = np.nan
    mesh.save(path)
    refused(path, "non-finite values, the first one at point 3", features="k")
    points = pyvista.PolyData(mesh.points).cast_to_unstructured_grid()
    points.clear_data()
    points.save(path)
    weights = read(path, quadrature=False)[0].quadrature_weights
    assert weights is None
    refused(path, "no cells", quadrature=True)


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
@pytest.mark.parametrize("kept", [0, 0.1, 0.5, 0.99])
def test_truncated_files_are_refused_quietly(suffix, kept, mesh, tmp_path, capfd):
    path = tmp_path / f"a{suffix}"
    mesh.save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    refused(path, "seems damaged")
    assert capfd.readouterr().err == ""


def test_what_lies_about_its_size_is_refused(mesh, tmp_path):
    path = tmp_path / "a.vtu"
    mesh.save(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'Points="30"', b'Points="99999999999"'))
    refused(path, "points and cells take 11999999")
    mesh.save(tmp_path / "a.vtk")
    content = (tmp_path / "a.vtk").read_bytes()
    (tmp_path / "a.vtk").write_bytes(
        content.replace(b"POINTS 30", b"POINTS 99999999999")
    )
    refused(tmp_path / "a.vtk", "Cannot read")


def test_legacy_files_need_vtk_and_say_so(mesh, tmp_path, monkeypatch):
    """Others do not: `test_surfaces` reads and writes all of them without it."""
    mesh.save(tmp_path / "a.vtk")
    for module in ("vtkmodules", "pyvista"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r'pip install "opjax\[vtk\]"'):
        files.read(tmp_path / "a.vtk")
