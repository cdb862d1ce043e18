"""Surfaces in `.vtp`, `.stl` and `.ply` files: read as PyVista does, and written."""

import struct
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, geometry
from opjax.files.formats import written_name
from opjax.files.vtk import fields
from tests.datasets.reading import read_one, refused
from tests.hostile import originals
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
MOST = 2**24


def cube():
    """A closed box of squares, of a side of two."""
    return pyvista.Box((-1, 1, -1, 1, -1, 1), level=3).clean()


def sphere():
    return pyvista.Sphere(theta_resolution=16, phi_resolution=12)


@pytest.mark.parametrize("suffix", [".stl", ".ply"])
@pytest.mark.parametrize("binary", [False, True])
def test_surfaces_are_what_vtk_reads(suffix, binary, tmp_path):
    path = tmp_path / f"a{suffix}"
    sphere().save(path, binary=binary)
    expected, found = pyvista.read(path), fields.load(path, MOST)
    assert_array_equal(
        found.points[found.corners],
        expected.points[expected.regular_faces.reshape(-1)],
    )
    assert found.num_points == expected.n_points
    assert not len(geometry.open_edges(found.corners.reshape(-1, 3)))


@pytest.mark.parametrize("seed", range(6))
def test_ply_files_of_all_orders_have_fields_of_points_and_faces(seed, tmp_path):
    (tmp_path / "a.ply").write_bytes(originals.ply(seed))
    found = fields.load(tmp_path / "a.ply", MOST)
    given = originals.arrays(seed)
    assert_allclose(found.points[:, :2], given["mesh_points"], rtol=1e-6)
    assert_array_equal(found.point_data.arrays["target"], 1.5)
    assert_array_equal(found.cell_data.arrays["boundary"], 1)
    sizes = np.full(10, 3)
    sizes[seed % 10] += seed % 2
    assert_array_equal(np.diff(found.offsets), sizes)
    assert set(found.types) == {5, 9} if seed % 2 else {5}
    sample = read_one(tmp_path / "a.ply")
    assert sample.target.shape == (12, 1)


PLY_HEAD = """ply
format {} 1.0
element vertex 4
property float x
property float y
property float z
element face 3
property double before
property list uchar int vertex_indices
property short behind
end_header
"""


@pytest.mark.parametrize("order", ["ascii", "binary_big_endian"])
def test_numbers_beside_lists_of_different_lengths_are_those_of_their_rows(
    order, tmp_path
):
    faces = [[0, 1, 2, 3], [1, 2], [3, 2, 0]]
    data, points = PLY_HEAD.format(order).encode(), np.arange(12.0)
    if order == "ascii":
        numbers = [*points, *(n for f in faces for n in (0.5, len(f), *f, -len(f)))]
        data += " ".join(map(str, numbers)).encode()
    else:
        data += points.astype(">f4").tobytes()
        for f in faces:
            data += struct.pack(f">dB{len(f)}ih", 0.5, len(f), *f, -len(f))
    (tmp_path / "a.ply").write_bytes(data)
    found = fields.load(tmp_path / "a.ply", MOST)
    assert_array_equal(found.points.reshape(-1), points)
    assert_array_equal(found.corners, np.concatenate(faces))
    assert_array_equal(found.offsets, [0, 4, 6, 9])
    assert_array_equal(found.cell_data.arrays["before"], 3 * [0.5])
    assert_array_equal(found.cell_data.arrays["behind"], [-4, -2, -3])


@pytest.mark.parametrize("name", ["a.vtu", "a.vtp", "a.stl", "a.ply", "a.cgns"])
def test_meshes_are_read_and_written_without_vtk(name, tmp_path, monkeypatch):
    """Half a gigabyte that `opjax[learn]` does not install."""
    suffix, path = name.split(".")[1], tmp_path / name
    path.write_bytes(getattr(originals, suffix)(0))
    for module in ("vtkmodules", "pyvista"):
        monkeypatch.setitem(sys.modules, module, None)
    copy = tmp_path / f"copy_{written_name(path)}"
    with files.extended(path, copy, files.ReadOptions(need_target=False)) as (each,):
        each.add(np.ones((each.sample.num_points, 1), np.float32))
    sample = read_one(copy, target="prediction")
    assert sample.target.min() == 1


@pytest.mark.parametrize("suffix", [".stl", ".ply", ".vtp"])
@pytest.mark.parametrize("location", ["points", "cells"])
def test_predictions_on_surfaces_are_written_to_vtp(suffix, location, tmp_path):
    path, copy = tmp_path / f"a{suffix}", tmp_path / "out.vtp"
    sphere().triangulate().save(path)
    given = {"need_target": False, "geometry": "normals", "location": location}
    with files.extended(path, copy, files.ReadOptions(**given)) as (each,):
        values = np.arange(each.sample.num_points, dtype=np.float32)[:, None]
        each.add(values)
    found = pyvista.read(copy)
    assert isinstance(found, pyvista.PolyData)
    data = found.cell_data if location == "cells" else found.point_data
    assert_array_equal(data["prediction"], values[:, 0])
    where = found.cell_centers().points if location == "cells" else found.points
    assert_allclose(each.sample.mesh_points, where, atol=1e-6)
    x = each.sample.mesh_points
    along = np.sum(each.sample.features * x, axis=1) / np.linalg.norm(x, axis=1)
    assert along.min() > 0.95  # normals point outwards


def test_surfaces_keep_all_their_parts_and_fields(rng, tmp_path):
    points = rng.normal(size=(9, 3)).astype(np.float32)
    mesh = pyvista.PolyData(
        points,
        faces=[3, 0, 1, 2, 5, 2, 3, 4, 5, 6],
        lines=[2, 5, 6, 3, 0, 2, 4],
        verts=[1, 6],
        strips=[4, 4, 5, 6, 7],
    )
    mesh.point_data["p"], mesh.cell_data["q"] = np.arange(9.0), np.arange(6)
    mesh.save(tmp_path / "a.vtp")
    with files.extended(
        tmp_path / "a.vtp", tmp_path / "b.vtp", files.ReadOptions(need_target=False)
    ) as (each,):
        each.add(np.ones((9, 1), np.float32))
    found, expected = pyvista.read(tmp_path / "b.vtp"), mesh
    for part in ("faces", "lines", "verts", "strips"):
        assert_array_equal(getattr(found, part), getattr(expected, part))
    assert_array_equal(found.points, expected.points)
    assert_array_equal(found.cell_data["q"], np.arange(6))
    assert_array_equal(found.point_data["p"], np.arange(9))


def test_a_box_has_the_area_and_the_normals_of_a_box(tmp_path):
    cube().save(tmp_path / "a.vtp")
    given = {"need_target": False, "geometry": "normals", "location": "cells"}
    sample = read_one(tmp_path / "a.vtp", **given)
    assert_allclose(sample.quadrature_weights.sum(), 24, rtol=1e-6)
    side = np.abs(sample.mesh_points).argmax(axis=1)
    exact = np.eye(3)[side] * np.sign(sample.mesh_points)
    assert_allclose(sample.features, exact, atol=1e-6)


def test_an_open_surface_has_no_normals(tmp_path):
    sphere().clip("z").triangulate().save(tmp_path / "a.stl")
    refused(
        tmp_path / "a.stl",
        r"a.stl is an open surface: \d+ edges",
        need_target=False,
        geometry="normals",
    )


def test_surfaces_beside_meshes_are_passed_over(tmp_path):
    sphere().save(tmp_path / "a.stl")
    np.savez(tmp_path / "a.npz", mesh_points=np.ones((3, 2)))
    assert [p.name for p in files.find(tmp_path)] == ["a.npz"]
    (tmp_path / "a.npz").unlink()
    assert [p.name for p in files.find(tmp_path)] == ["a.stl"]


def test_a_surface_without_fields_names_the_way_out(tmp_path):
    sphere().save(tmp_path / "a.stl")
    refused(tmp_path / "a.stl", r"a.stl has no array 'p'.*as .vtp", target="p")
    sample = read_one(tmp_path / "a.stl", need_target=False)
    values = np.ones((sample.num_points, 1))
    with value_error(r"b.stl must have the suffix .vtp"):
        files.write(tmp_path / "b.stl", sample, values)
    with value_error(r"b.ply is read only; write a .vtp"):
        files.write(tmp_path / "b.ply", sample._replace(name=""), values)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.stl", bytes(80) + struct.pack("<I", 3) + bytes(100), "neither text"),
        ("a.stl", b"solid a\nfacet\nvertex 0 0 0\nendsolid", "1 corners of 0 facets"),
        (
            "a.stl",
            b"solid a" + b"vertex 0 0 nan " * 3 + b"endfacet endsolid",
            "non-finite",
        ),
        ("a.stl", bytes(84), "no points"),
        ("a.ply", b"ply\nformat ascii 1.0\nend_header\n", "no element vertex"),
        ("a.ply", b"ply\nformat text 1.0\nend_header\n", "the line 'format text"),
        ("a.ply", originals.ply(1)[:-20], "damaged"),
        ("a.ply", originals.ply(0)[:-20], "damaged"),
        ("a.ply", b"PLY", "no header"),
    ],
)
def test_damaged_surfaces_are_refused(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    refused(tmp_path / name, rf"(?s){name}.*{message}", need_target=False)
