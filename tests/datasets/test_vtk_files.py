"""Meshes of VTK's files are what the bytes say, and what PyVista reads."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import files
from opjax.files.vtk import fields, vtu_write
from opjax.files.vtk.mesh import NamedArrays, VtkMesh
from tests.datasets.reading import read
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')
MOST = 2**24


def tetrahedra(rng):
    mesh = pyvista.ImageData(dimensions=(3, 3, 3)).cast_to_unstructured_grid()
    return filled(mesh.triangulate(), rng)


def mixed(rng):
    points = rng.normal(size=(9, 3)).astype(np.float32)
    cells = [3, 0, 1, 2, 4, 2, 3, 4, 5, 5, 0, 2, 4, 6, 8, 1, 7, 2, 0, 8]
    return filled(pyvista.UnstructuredGrid(cells, [5, 9, 7, 1, 3], points), rng)


def surface(rng):
    points = rng.normal(size=(7, 3))
    faces, lines = [3, 0, 1, 2, 4, 2, 3, 4, 5], [2, 5, 6, 3, 0, 2, 4]
    return filled(pyvista.PolyData(points, faces, lines=lines, verts=[1, 6]), rng)


def strips(rng):
    points = rng.normal(size=(6, 3))
    return filled(pyvista.PolyData(points, strips=[6, 0, 1, 2, 3, 4, 5]), rng)


def structured(rng):
    x = np.meshgrid(np.arange(3.0), np.arange(4.0), np.arange(2.0), indexing="ij")
    return filled(pyvista.StructuredGrid(*x), rng)


def rectilinear(rng):
    return filled(pyvista.RectilinearGrid([0, 1.0, 3], [0, 2.0], [0.0, 0.5]), rng)


def image(rng):
    mesh = pyvista.ImageData(dimensions=(3, 4, 1), spacing=(1, 2, 3), origin=(4, 5, 6))
    return filled(mesh, rng)


def points_alone(rng):
    return pyvista.PolyData(rng.normal(size=(4, 3))).cast_to_unstructured_grid()


def filled(mesh, rng):
    """Adds arrays of all types and attributes."""
    for data, rows in (
        (mesh.point_data, mesh.n_points),
        (mesh.cell_data, mesh.n_cells),
    ):
        for kind in ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]:
            data[f"of {kind}/%"] = rng.integers(0, 100, rows).astype(kind)
        data["vector"] = rng.normal(size=(rows, 3)).astype(np.float32)
        data["tensor"] = rng.normal(size=(rows, 9))
        data["pair"] = rng.normal(size=(rows, 2))
        data["scalar"] = rng.normal(size=rows)
        data.active_scalars_name = "scalar"
        data.active_vectors_name = "vector"
    mesh.point_data.active_normals_name = "vector"
    mesh.field_data["time"] = np.array([1.5])
    mesh.field_data["names"] = ["one", "two and three"]
    return mesh


def same(path):
    """Compares what we read with what PyVista reads from the same file."""
    from vtkmodules.util.numpy_support import vtk_to_numpy

    expected, found = pyvista.read(path), fields.load(path, MOST)
    assert_array_equal(found.points, expected.points)
    assert found.points.dtype == expected.points.dtype
    grid = expected.cast_to_unstructured_grid()
    assert_array_equal(found.types, grid.celltypes)
    offsets = vtk_to_numpy(grid.GetCells().GetOffsetsArray())
    assert_array_equal(found.offsets, offsets)
    assert_array_equal(found.corners, grid.cell_connectivity)
    names = ["point_data", "cell_data"]
    for name in names if path.suffix == ".vtk" else [*names, "field_data"]:
        one, other = getattr(found, name), getattr(expected, name)
        assert sorted(one.arrays) == sorted(other.keys())
        for key in other.keys():  # noqa: SIM118
            assert_array_equal(one.arrays[key], other[key])
            kinds = {np.asarray(a).dtype.kind for a in (one.arrays[key], other[key])}
            assert len(kinds) == 1 or kinds == {"O", "U"}
    active = found.point_data.active
    assert active.get("Scalars") == expected.point_data.active_scalars_name
    return found


GRIDS = (tetrahedra, mixed, points_alone)


@pytest.mark.parametrize(
    ("make", "compressor"),
    [(make, "ZLib") for make in (*GRIDS, surface, strips)]
    + [(tetrahedra, name) for name in ("None", "LZ4", "LZMA")],
)
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
def test_xml_files_are_what_vtk_reads(make, mode, compressor, rng, tmp_path):
    """Text, base64, appended in base64 and raw, in either order of bytes."""
    from vtkmodules import vtkIOXML

    mesh = make(rng)
    surfaces = isinstance(mesh, pyvista.PolyData)
    path = tmp_path / ("a.vtp" if surfaces else "a.vtu")
    kind = "PolyData" if surfaces else "UnstructuredGrid"
    writer = getattr(vtkIOXML, f"vtkXML{kind}Writer")()
    writer.SetInputData(mesh)
    writer.SetFileName(str(path))
    writer.SetDataMode(min(mode, 2))
    writer.SetEncodeAppendedData(mode == 2)
    getattr(writer, f"SetCompressorTypeTo{compressor}")()
    if compressor != "None":
        writer.SetBlockSize(1024)
    if mode % 2:
        writer.SetHeaderTypeToUInt32()
        writer.SetByteOrderToBigEndian()
    writer.Write()
    same(path)


def refused(path, message):
    with value_error(message) as error:
        fields.load(path, MOST)
    assert str(path) in str(error.value)


def test_pieces_are_one_mesh(rng, tmp_path):
    path, mesh = tmp_path / "a.vtu", tetrahedra(rng)
    mesh.field_data.clear()
    mesh.save(path, binary=False)
    text = path.read_text()
    start, end = text.index("<Piece"), text.index("</Piece>") + len("</Piece>")
    path.write_text(text[:end] + text[start:end] + text[end:])
    found = same(path)
    assert found.num_points == 2 * mesh.n_points
    path.write_text(text[:end] + text[start:end].replace("pair", "pear") + text[end:])
    refused(path, "pieces do not have the same arrays")


LEGACY_TEXT = """# vtk DataFile Version 3.0
made by hand
ASCII
DATASET UNSTRUCTURED_GRID
POINTS 4 float
0 0 0  1 0 0
0 1 0  1 1 0
CELLS 2 8
3 0 1 2 3 1 2 3
CELL_TYPES 2
5 5
POINT_DATA 4
COLOR_SCALARS shade 2
0 .5 1 .5 0 1 0 0
SCALARS t int 1
LOOKUP_TABLE mine
1 2 3 4
LOOKUP_TABLE mine 2
0 0 0 1 1 1 1 1
TEXTURE_COORDINATES place 2 float
0 0 1 0 0 1 1 1
CELL_DATA 2
TENSORS stress double
1 2 3 4 5 6 7 8 9
1 2 3 4 5 6 7 8 9
"""


def test_legacy_attributes_by_hand(tmp_path):
    path = tmp_path / "a.vtk"
    path.write_text(LEGACY_TEXT)
    found = same(path)
    assert_array_equal(found.points, [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    assert_array_equal(found.corners, [0, 1, 2, 1, 2, 3])
    assert_array_equal(found.offsets, [0, 3, 6])
    assert_array_equal(found.types, [5, 5])
    arrays = found.point_data.arrays
    assert_array_equal(arrays["shade"], [[0, 128], [255, 128], [0, 255], [0, 0]])
    assert_array_equal(arrays["t"], [1, 2, 3, 4])
    assert_array_equal(arrays["place"], [[0, 0], [1, 0], [0, 1], [1, 1]])
    assert arrays["t"].dtype == np.int32
    stress = found.cell_data.arrays["stress"].reshape(2, 9)
    assert_array_equal(stress, [np.arange(1.0, 10)] * 2)
    assert found.point_data.active["Scalars"] == "shade"
    path.write_text(
        LEGACY_TEXT.lower().replace("# vtk datafile version", "# vtk DataFile Version")
    )
    same(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3 1 2 3", "3 1 2 4", "cells name points from 0 to 4, there are 4"),
        ("3 1 2 3", "3 1 2 -1", "cells name points from -1"),
        ("3 0 1 2 3 1", "2 0 1 2 4 3", "Unrecognized keyword: 2"),
        ("2 8", "2000000000 8", "Error reading ascii cell data"),
        ("\n5 5\n", "\n5 9\n", "VTK's kind 9 have .* corners"),
        ("\n5 5\n", "\n5 42\n", "polyhedra"),
        ("\n5 5\n", "\n5 250\n", "VTK's kind 250"),
        ("1 1 0\nC", "1 1 0x\nC", "Unrecognized keyword: x"),
        ("1 2 3 4\nL", "1 2 3 4.5\nL", "type: .5"),
        ("1 2 3 4\nL", "1 2 3 9999999999\nL", "Error reading ascii data"),
        ("POINT_DATA 4", "POINT_DATA 5", "points don't match"),
        ("TENSORS", "VOLUMES", "attribute type: volumes"),
        ("POINTS 4", "POINTS -4", "the mesh is empty"),
        ("UNSTRUCTURED_GRID", "GRAPH", "did not create output"),
        ("POINTS 4 float", "POINTS 4 variant", "variant"),
    ],
)
def test_damaged_legacy_files_are_refused(old, new, message, tmp_path):
    path = tmp_path / "a.vtk"
    assert LEGACY_TEXT.count(old) == 1
    path.write_text(LEGACY_TEXT.replace(old, new))
    with value_error(message) as error:
        files.read(path)
    assert str(path) in str(error.value)


def test_surfaces_with_cells_that_end_vtks_process_are_refused(tmp_path):
    """VTK throws for polygons of two corners, where nothing catches it."""
    path = tmp_path / "a.vtp"
    mesh = pyvista.PolyData(np.eye(3), [3, 0, 1, 2])
    mesh.save(path, binary=False)
    text = path.read_text()
    path.write_text(
        text.replace("0 1 2", "0 1").replace("          3\n", "          2\n")
    )
    refused(path, r"kind 7 have \[2\] corners")


def test_base64_that_ends_early_is_refused(rng, tmp_path):
    """Its zeros are none that NumPy can divide into numbers."""
    from vtkmodules import vtkIOXML

    path = tmp_path / "a.vtu"
    writer = vtkIOXML.vtkXMLUnstructuredGridWriter()
    writer.SetInputData(tetrahedra(rng))
    writer.SetFileName(str(path))
    writer.SetDataModeToBinary()
    writer.Write()
    content = path.read_bytes()
    start = content.index(b"AAAA", content.index(b"<Points>"))
    path.write_bytes(content[:start] + b"AAA=" + content[start + 4 :])
    refused(path, "Cannot read")


def test_curved_cells_are_read_without_weights(tmp_path):
    corners = np.array([[0, 0, 0], [1, 0, 0], [0.5, 0, 0]])
    path = tmp_path / "a.vtu"
    pyvista.UnstructuredGrid([3, 0, 1, 2], [68], corners).save(path)
    assert files.read(path)[0].cells is None
    with value_error(r"types \[68\]"):
        read(path, quadrature=True)


@pytest.mark.parametrize("make", [surface, strips, structured, rectilinear, image])
@pytest.mark.parametrize("binary", [True, False])
def test_legacy_files_of_every_kind_become_unstructured(make, binary, rng, tmp_path):
    mesh = make(rng)
    mesh.save(tmp_path / "a.vtk", binary=binary)
    found = same(tmp_path / "a.vtk")
    assert len(found.cell_data.arrays["pair"]) == mesh.n_cells


@pytest.mark.parametrize("make", GRIDS)
def test_written_meshes_are_what_pyvista_reads(make, rng, tmp_path):
    """With texts, attributes, cells of any kind and a block that is not full."""
    first, second = tmp_path / "a.vtu", tmp_path / "b.vtu"
    make(rng).save(first)
    mesh = fields.load(first, MOST)
    mesh.field_data.add("long", np.arange(10**5))
    more = {"half": np.ones(mesh.num_points, np.float16), "yes": mesh.points[:, 0] > 0}
    vtu_write.write(second, mesh, more)
    found = same(second)
    for name in ("points", "offsets", "corners", "types"):
        assert_array_equal(getattr(found, name), getattr(mesh, name))
    assert found.point_data.arrays["half"].dtype == np.float32
    for one, other in (
        (found.point_data, mesh.point_data),
        (found.cell_data, mesh.cell_data),
        (found.field_data, mesh.field_data),
    ):
        assert one.active == other.active
        for name, array in other.arrays.items():
            assert_array_equal(one.arrays[name], array)


def test_numbers_that_vtk_lacks_are_not_written(tmp_path):
    empty = np.zeros(0, np.int64)
    mesh = VtkMesh(np.zeros((1, 3)), np.zeros(1, np.int64), empty, empty, NamedArrays())
    with value_error("complex128"):
        vtu_write.write(tmp_path / "a.vtu", mesh, {"u": np.ones(1) * 1j})
