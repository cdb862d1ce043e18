"""Our readers of VTK's files return what VTK's own ones do."""

import numpy as np
import pytest

from opjax.datasets import _own_vtu

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
    expected, found = pyvista.read(path), _own_vtu.load(path, MOST)
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found.points, expected.points)
    assert found.points.dtype == expected.points.dtype
    for name in ("cells", "celltypes", "lines", "verts", "faces", "strips"):
        if hasattr(expected, name) and hasattr(found, name):
            one, other = getattr(found, name), getattr(expected, name)
            np.testing.assert_array_equal(one, other)
    assert getattr(found, "dimensions", 0) == getattr(expected, "dimensions", 0)
    for name in ("point_data", "cell_data", "field_data"):
        one, other = getattr(found, name), getattr(expected, name)
        assert sorted(one.keys()) == sorted(other.keys())
        for key in other.keys():  # noqa: SIM118
            np.testing.assert_array_equal(one[key], other[key])
            assert np.asarray(one[key]).dtype.kind == np.asarray(other[key]).dtype.kind
        if name != "field_data":
            assert one.active_scalars_name == other.active_scalars_name
            assert one.active_vectors_name == other.active_vectors_name
            assert one.active_normals_name == other.active_normals_name
    return found


GRIDS = (tetrahedra, mixed, points_alone)
LEGACY = (*GRIDS, surface, strips, structured, rectilinear, image)


@pytest.mark.parametrize("make", LEGACY)
@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("version", [42, 51])
def test_legacy_files_are_what_vtk_reads(make, binary, version, rng, tmp_path):
    from vtkmodules.vtkIOLegacy import vtkDataSetWriter

    writer = vtkDataSetWriter()
    writer.SetInputData(make(rng))
    writer.SetFileName(str(tmp_path / "a.vtk"))
    writer.SetFileVersion(version)
    (writer.SetFileTypeToBinary if binary else writer.SetFileTypeToASCII)()
    writer.Write()
    same(tmp_path / "a.vtk")


@pytest.mark.parametrize("make", [*GRIDS, surface, strips])
@pytest.mark.parametrize("mode", [0, 1, 2, 3])
@pytest.mark.parametrize("compressor", ["None", "ZLib", "LZ4", "LZMA"])
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
    with pytest.raises(ValueError, match=message) as error:
        _own_vtu.load(path, MOST)
    assert str(path) in str(error.value)


def test_pieces_are_one_mesh(rng, tmp_path):
    path, mesh = tmp_path / "a.vtu", tetrahedra(rng)
    mesh.field_data.clear()
    mesh.save(path, binary=False)
    text = path.read_text()
    start, end = text.index("<Piece"), text.index("</Piece>") + len("</Piece>")
    path.write_text(text[:end] + text[start:end] + text[end:])
    found = same(path)
    assert found.n_points == 2 * mesh.n_points
    path.write_text(text[:end] + text[start:end].replace("pair", "pear") + text[end:])
    refused(path, "pieces have not the same arrays")


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
    assert found.point_data.active_scalars_name == "shade"
    path.write_text(
        LEGACY_TEXT.lower().replace("# vtk datafile version", "# vtk DataFile Version")
    )
    same(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("3 1 2 3", "3 1 2 4", "cells name points from 0 to 4, there are 4"),
        ("3 1 2 3", "3 1 2 -1", "cells name points from -1"),
        ("3 0 1 2 3 1", "2 0 1 2 4 3", "2 cells do not fill 8 numbers|kind 5"),
        ("2 8", "2000000000 8", "2000000000 cells do not fill 8 numbers"),
        ("\n5 5\n", "\n5 9\n", "VTK's kind 9 have .* corners"),
        ("\n5 5\n", "\n5 42\n", "polyhedra"),
        ("\n5 5\n", "\n5 250\n", "VTK's kind 250"),
        ("CELL_TYPES 2\n5 5", "CELL_TYPES 1\n5", "1 types of 2 cells"),
        ("1 1 0\nC", "1 1 0x\nC", "is no number|numbers|unmatched"),
        ("1 2 3 4\nL", "1 2 3 4.5\nL", "is no number|numbers|unmatched"),
        ("1 2 3 4\nL", "1 2 3 9999999999\nL", "beyond those of"),
        ("POINT_DATA 4", "POINT_DATA 5", "point_data of 5, there are 4"),
        ("TENSORS", "VOLUMES", "the section 'volumes'"),
        ("POINTS 4", "POINTS -4", "'-4' where a number is expected"),
        ("UNSTRUCTURED_GRID", "GRAPH", "holds 'graph'"),
        ("POINTS 4 float", "POINTS 4 variant", "type 'variant'"),
    ],
)
def test_damaged_legacy_files_are_refused(old, new, message, tmp_path):
    path = tmp_path / "a.vtk"
    assert LEGACY_TEXT.count(old) == 1
    path.write_text(LEGACY_TEXT.replace(old, new))
    refused(path, message)


def test_surfaces_with_cells_that_end_vtks_process_are_refused(tmp_path):
    """VTK throws for polygons of two corners, where nothing catches it."""
    path = tmp_path / "a.vtp"
    mesh = pyvista.PolyData(np.eye(3), [3, 0, 1, 2])
    mesh.save(path, binary=False)
    text = path.read_text()
    path.write_text(
        text.replace("0 1 2", "0 1").replace("          3\n", "          2\n")
    )
    refused(path, "at least 3 corners")


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
    from opjax.datasets import own

    corners = np.array([[0, 0, 0], [1, 0, 0], [0.5, 0, 0]])
    path = tmp_path / "a.vtu"
    pyvista.UnstructuredGrid([3, 0, 1, 2], [68], corners).save(path)
    assert own.read(path)[0].cells is None
    with pytest.raises(ValueError, match=r"kinds \[68\]"):
        own.read(path, quadrature=True)
