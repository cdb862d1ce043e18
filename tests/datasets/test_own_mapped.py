"""Meshes in `.vtu` files, read and copied in slices; PyVista is the oracle."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax.files import ReadOptions, mapped
from opjax.files.vtk import vtu_bytes, vtu_slices
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')


@pytest.fixture
def mesh(rng):
    """Returns a mesh with cells of two kinds and every kind of field."""
    points = np.pad(rng.uniform(size=(4000, 2)), [(0, 0), (0, 1)])
    cells = [3, 0, 1, 2, 4, 3, 4, 5, 6, 2, 7, 3999]
    found = pyvista.UnstructuredGrid(cells, [5, 9, 3], points)
    found.point_data["k"] = rng.normal(size=4000)
    found.point_data["wind"] = rng.normal(size=(4000, 3)).astype(np.float32)
    found.point_data["part"] = rng.integers(9, size=4000, dtype=np.int16)
    found.cell_data["area"] = np.ones(3)
    found.field_data["time"] = [1.5]
    found.field_data["said"] = np.array(["by <whom>", "&"])
    return found


def save(mesh, path, *, mode="Binary", base64=True, compressor="None", **given):
    """Writes a file by VTK itself."""
    from vtkmodules.vtkIOXML import vtkXMLUnstructuredGridWriter  # pyright: ignore

    writer = vtkXMLUnstructuredGridWriter()
    writer.SetInputData(mesh)
    writer.SetFileName(str(path))
    getattr(writer, f"SetDataModeTo{mode}")()
    writer.SetEncodeAppendedData(base64)
    getattr(writer, f"SetCompressorTypeTo{compressor}")()
    for name, value in given.items():
        getattr(writer, f"Set{name}")(value)
    assert writer.Write()


def copy(source, path, values, names, **asked):
    """Copies a file with fields, in slices of 999 points, and reads what it has."""
    with mapped.copied(source, path, ReadOptions(**asked)) as (sample,):
        arrays = {name: array[:] for name, array in sample.arrays.items()}
        written = sample.add(names)
        for start in range(0, len(values), 999):
            written.put(start, values[start : start + 999])
            for name, array in sample.arrays.items():
                rows = slice(start, start + 999)
                assert_array_equal(array[rows], arrays[name][rows])
    return arrays


FORMATS = [
    {},
    {"mode": "Appended"},
    {"mode": "Appended", "base64": False},
    {"compressor": "ZLib", "BlockSize": 2**12},
    {"mode": "Appended", "compressor": "ZLib"},
    {"mode": "Appended", "base64": False, "compressor": "LZMA", "HeaderType": 64},
    {"mode": "Appended", "base64": False, "HeaderType": 64, "ByteOrder": 0},
]


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_a_copy_is_the_mesh_with_fields(format, mesh, rng, tmp_path):
    source, path = tmp_path / "a.vtu", tmp_path / "out" / "a.vtu"
    save(mesh, source, **format)
    values = rng.normal(size=(4000, 3)).astype(np.float32)
    asked = {"features": ("k", "part"), "target": ("wind",)}
    arrays = copy(source, path, values, ["u", "p", "u"], **asked)
    assert_array_equal(arrays["mesh_points"], mesh.points[:, :2])
    expected = np.stack([mesh["k"], mesh["part"]], axis=1).astype(np.float32)
    assert_array_equal(np.float32(arrays["features"]), expected)
    assert_array_equal(arrays["target"], mesh["wind"])
    found = pyvista.read(path)
    assert_array_equal(found["u"], values[:, [0, 2]])
    assert_array_equal(found["p"], values[:, 1])
    for name in ("u", "p"):
        del found.point_data[name]
    assert found == pyvista.read(source) == mesh


def test_a_file_of_pyvista_and_a_copy_of_a_copy_have_slices(mesh, rng, tmp_path):
    mesh.points[:, 1] = 0  # neither is this axis space
    mesh.save(tmp_path / "0.vtu")
    values = rng.normal(size=(4000, 1)).astype(np.float32)
    for number in range(2):
        source, path = (tmp_path / f"{i}.vtu" for i in (number, number + 1))
        arrays = copy(source, path, values, [f"u{number}"])
        assert arrays["mesh_points"].shape == (4000, 1)
    found = pyvista.read(tmp_path / "2.vtu")
    assert_array_equal(found["u0"], found["u1"])
    asked = {"point_dim": 2}
    assert copy(path, tmp_path / "3.vtu", values, ["v"], **asked)[
        "mesh_points"
    ].shape == (4000, 2)


@pytest.mark.nightly
@pytest.mark.parametrize("format", FORMATS[:4], ids=str)
def test_memory_does_not_depend_on_the_mesh(format, rng, tmp_path, monkeypatch):
    monkeypatch.setattr(vtu_slices, "STEP", 2**16)
    peaks = []
    for n in (2**16, 2**18):
        mesh = pyvista.PolyData(rng.uniform(size=(n, 3)))
        mesh = mesh.cast_to_unstructured_grid()
        mesh.point_data["features"] = np.zeros((n, 2))
        save(mesh, tmp_path / "a.vtu", **format)
        tracemalloc.start()
        with mapped.copied(tmp_path / "a.vtu", tmp_path / "b.vtu") as (sample,):
            written = sample.add(["u"])
            for start in range(0, n, 1000):
                part = sample.arrays["features"][start : start + 1000]
                written.put(start, part[:, :1])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < min(1.1 * peaks[0], 3 * 2**20)  # of 10, and cells


def refused(path, words, **asked):
    out = path.with_name("out") / path.name
    with (
        value_error(words) as info,
        mapped.copied(path, out, ReadOptions(**asked)) as (sample,),
    ):
        sample.add(["u"]).put(0, np.zeros((len(sample.arrays["mesh_points"]), 1)))
    assert str(path) in str(info.value)
    assert not list(out.parent.iterdir())


@pytest.mark.parametrize("format", FORMATS[:5], ids=str)
def test_truncated_files_leave_nothing(format, mesh, tmp_path):
    save(mesh, tmp_path / "a.vtu", **format)
    content = (tmp_path / "a.vtu").read_bytes()
    for kept in (0, 0.01, 0.1, 0.5, 0.9, 0.999):
        (tmp_path / "a.vtu").write_bytes(content[: int(kept * len(content))])
        refused(tmp_path / "a.vtu", "seems damaged")


def test_what_is_not_as_it_says_is_refused(mesh, tmp_path):
    path = tmp_path / "a.vtu"
    save(mesh, path, mode="Appended", base64=False)
    content = path.read_bytes()
    lies = [
        (b'Points="4000"', b'Points="4001"', "'Points' is missing or has not"),
        (b'Cells="3"', b'Cells="9"', "has not the length"),
        (b'Points="4000"', b'Points="none"', "NumberOfPoints of Piece is 'none'"),
        (b'Points="4000"', b'Points="0"', "the mesh is empty"),
        (b'NumberOfComponents="3"', b'NumberOfComponents="7"', "not rows of 7 Float"),
        (b'offset="0"', b'offset="999999999"', "'time' is at '999999999'"),
        (b"   _", b"   -", "no underscore"),
        (b'type="Uns', b'type="uns', "contains 'unstructuredGrid', expected"),
        (b'"raw"', b'"hex"', "appended data with the encoding 'hex'"),
        (b"LittleEndian", b"MiddleEndian", "types are unknown"),
        (b"<VTKFile", b"<!DOCTYPE a><VTKFile", "declares XML entities"),
        (b'<Array type="S', b'<Array TimeStep="0" type="S', "several time steps"),
    ]
    for old, new, words in lies:
        assert old in content
        path.write_bytes(content.replace(old, new, 1))
        refused(path, words)
    triangle, wrong = (np.array([0, 1, last]).tobytes() for last in (2, 4000))
    path.write_bytes(content.replace(triangle, wrong))
    refused(path, "cells name points from 0 to 4000, there are 4000")


def test_damaged_values_are_refused_when_they_are_read(mesh, tmp_path, monkeypatch):
    path = tmp_path / "a.vtu"
    for given, words in (
        ({"compressor": "ZLib"}, "block [01]"),
        ({"mode": "Appended", "compressor": "LZMA", "base64": False}, "block [01]"),
    ):
        save(mesh, path, **given)
        content = bytearray(path.read_bytes())
        for byte in range(len(content) // 2, len(content) // 2 + 60):
            content[byte] = ord("A")
        path.write_bytes(content)
        refused(path, words)
    save(mesh, path)
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + b"?" + content[middle + 1 :])
    refused(path, "Only base64 data is allowed")
    save(mesh, path, compressor="ZLib")
    monkeypatch.setattr(vtu_bytes, "MAX_BLOCK", 2**14)
    refused(path, "blocks of 32768 bytes")


def test_files_without_slices_are_refused_with_a_way_out(mesh, tmp_path):
    path = tmp_path / "a.vtu"
    for given, words in (
        ({"mode": "Ascii"}, "'k' is text .* pyvista.read.old..save.new., or predict"),
        ({"NumberOfPieces": 2}, "has 2 pieces"),
    ):
        save(mesh, path, **given)
        refused(path, words)
    mesh.extract_surface(algorithm="dataset_surface").save(tmp_path / "b.vtp")
    (tmp_path / "b.vtp").rename(path)
    refused(path, "contains 'PolyData'")
    save(mesh, path)
    refused(path, "no array 'v'", features=("v",))
    refused(path, "no array 'area', only .* --location=cells", features=("area",))
    refused(path, "no array 'said'", features=("said",))
    refused(path, "point_dim=1 must be", point_dim=1)
    with (
        value_error("the source file"),
        mapped.copied(path, path),
    ):
        pass


def test_a_copy_that_is_not_finished_does_not_appear(mesh, tmp_path):
    mesh.save(tmp_path / "a.vtu")
    with (
        pytest.raises(AssertionError),
        mapped.copied(tmp_path / "a.vtu", tmp_path / "b.vtu") as (sample,),
    ):
        sample.add(["u"]).put(0, np.zeros((3999, 1)))
    assert [path.name for path in tmp_path.iterdir()] == ["a.vtu"]
