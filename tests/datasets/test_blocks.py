"""Meshes of several blocks: boundaries by coordinates, and what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from tests.datasets.reading import read_one, refused

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')


def box():
    """A box of hexahedra whose sides have names."""
    mesh = pyvista.ImageData(dimensions=(4, 3, 3)).cast_to_unstructured_grid()
    mesh.point_data["target"] = mesh.points[:, 0].copy()
    mesh.cell_data["p"] = np.arange(mesh.n_cells)
    return mesh


def side(mesh, axis, value):
    surface = mesh.extract_surface(algorithm="dataset_surface")
    chosen = surface.cell_centers().points[:, axis] == value
    return surface.extract_cells(np.flatnonzero(chosen))


def saved(path, **blocks):
    """Writes blocks, those of a dictionary inside one another."""
    found = pyvista.MultiBlock()
    for name, block in blocks.items():
        found.append(
            pyvista.MultiBlock(block) if isinstance(block, dict) else block, name
        )
    found.save(path)
    return path


def test_blocks_of_lower_dimension_are_boundaries(tmp_path):
    mesh = box()
    sides = {"wall": side(mesh, 2, 0), "inlet": side(mesh, 0, 0)}
    path = saved(tmp_path / "a.vtm", fluid=mesh, boundary=sides)
    sample = read_one(path, boundary_names="wall,inlet", geometry="distance")
    x = sample.mesh_points
    assert_array_equal(x, mesh.points)
    assert_array_equal(sample.target[:, 0], x[:, 0])
    assert_array_equal(sample.features[:, 0], x[:, 2] == 0)
    assert_array_equal(sample.features[:, 1], x[:, 0] == 0)
    assert_allclose(sample.features[:, 2], x[:, 2], atol=1e-6)
    assert_allclose(sample.features[:, 3], x[:, 0], atol=1e-6)
    assert_array_equal(sample.boundaries["wall"], np.flatnonzero(x[:, 2] == 0))
    cells = {"location": "cells", "target": "p", "boundary_names": "inlet"}
    sample = read_one(path, **cells)
    assert_array_equal(sample.features[:, 0], sample.mesh_points[:, 0] < 1)
    refused(path, r"no boundary 'outlet'; it has inlet, wall", boundary_names="outlet")


def test_predictions_on_blocks_are_written_to_the_mesh(tmp_path):
    mesh = box()
    path = saved(tmp_path / "a.vtm", fluid=mesh, wall=side(mesh, 2, 0))
    with files.extended(path, tmp_path / "b.vtu") as (each,):
        each.add(np.ones((mesh.n_points, 1), np.float32))
    found = pyvista.read(tmp_path / "b.vtu")
    assert found.point_data["prediction"].sum() == mesh.n_points
    assert_array_equal(found.point_data["boundary_wall"], mesh.points[:, 2] == 0)
    assert_array_equal(found.cell_data["p"], mesh.cell_data["p"])
    with pytest.raises(ValueError, match=r"b.vtm must have the suffix .vtu"):
        files.write(tmp_path / "b.vtm", each.sample)


def test_blocks_that_are_no_boundaries_are_refused(tmp_path):
    mesh = box()
    other = side(mesh, 2, 0)
    other.points += 0.01
    path = saved(tmp_path / "a.vtm", fluid=mesh, wall=other)
    refused(path, r"a.vtm: 12 of 12 points of the block 'wall'")
    path = saved(tmp_path / "b.vtm", one=mesh, two=mesh)
    refused(path, r"b.vtm has 2 blocks of cells.*\[3, 3\]")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ('<DataSet name="a" file="../other.vtu"/>', "not in its folder"),
        ('<DataSet name="a" file="/etc/passwd"/>', "not in its folder"),
        ('<DataSet name="a" file="a.vti"/>', "blocks are .vtu and .vtp files"),
        ('<DataSet name="a" file="none.vtu"/>', "'a', .*none.vtu, is missing"),
        ("", "has 0 blocks"),
        ("<Block>" * 40 + "</Block>" * 40, "contain themselves"),
        ("<Block>", "damaged"),
    ],
)
def test_lists_of_blocks_name_files_of_their_folder(entry, message, tmp_path):
    kind = "vtkMultiBlockDataSet"
    content = f'<VTKFile type="{kind}"><{kind}>{entry}</{kind}></VTKFile>'
    (tmp_path / "a.vtm").write_text(content)
    refused(tmp_path / "a.vtm", rf"a.vtm.*{message}")


def test_a_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "inside").mkdir()
    path = saved(tmp_path / "inside/a.vtm", fluid=box())
    place = next((tmp_path / "inside/a").iterdir())
    place.rename(tmp_path / "out.vtu")
    place.symlink_to(tmp_path / "out.vtu")
    refused(path, "is missing")


@pytest.mark.filterwarnings("ignore:.* coincide with another point")
def test_several_meshes_become_one_as_advised(tmp_path, monkeypatch):
    mesh = box()
    beside = mesh.copy()
    beside.points[:, 0] += 3
    beside.point_data["target"] += 10
    path = saved(tmp_path / "a.vtm", one=mesh, two=beside)
    found = {}
    for advice in (r"pyvista.read\(old\).combine\(\)", r"combine\(merge_points=True\)"):
        refused(path, advice)
        call = advice.replace("\\", "").removeprefix("pyvista.read(old).")
        joined = eval(f"mesh.{call}", {"mesh": pyvista.read(path)})  # noqa: S307
        joined.save(tmp_path / "b.vtu")
        sample = read_one(tmp_path / "b.vtu", geometry="distance")
        x = sample.mesh_points
        right = np.minimum(x, np.array([6, 2, 2]) - x).min(axis=1)
        assert_allclose(sample.features[:, 0], right, atol=1e-6)
        found[call] = np.unique(sample.target[x[:, 0] == 3]).tolist()
    assert found["combine()"] == [3, 10]
    assert len(found["combine(merge_points=True)"]) == 1


@pytest.mark.filterwarnings("ignore:.* coincide with another point")
def test_an_interface_of_blocks_is_a_boundary_if_it_has_a_name(tmp_path):
    mesh = box()
    beside = mesh.copy()
    beside.points[:, 0] += 3
    joined = pyvista.MultiBlock([mesh, beside]).combine()
    joined.point_data["boundary_i"] = (joined.points[:, 0] == 3).astype(int)
    joined.save(tmp_path / "a.vtu")
    options = {"boundary_names": "i", "geometry": "distance", "facets": True}
    sample = read_one(tmp_path / "a.vtu", **options)
    x = sample.mesh_points[:, 0]
    assert_array_equal(sample.features[:, 0], x == 3)
    assert_allclose(sample.features[:, 1], np.abs(x - 3))
    area = sample.patches["i"].areas.sum()
    assert area == pytest.approx(2 * 4)  # of both sides
    options = {"boundary_names": "i", "location": "cells", "target": "p"}
    sample = read_one(tmp_path / "a.vtu", **options)
    beside = np.abs(sample.mesh_points[:, 0] - 3) < 1
    assert_array_equal(sample.features[:, 0], beside)
