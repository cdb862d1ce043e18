"""CGNS files and the samples of PLAID, as its own library has written them."""

import gzip
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.files import cgns
from opjax.files.vtk import kinds
from tests.datasets.plaid import write
from tests.datasets.reading import read, read_one, refused

h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[learn]"`')
SAMPLES = Path(__file__).parent / "plaid/samples.tar.gz"  # by pyplaid 1.0.0
FIRST = "sample_000000000"


@pytest.fixture
def plaid(tmp_path):
    folder = tmp_path / "plaid"
    with tarfile.open(SAMPLES) as archive:
        archive.extractall(folder, filter="data")
    return folder


def check(folder):
    """Compares samples with what was written."""
    points, triangles = write.mesh()
    found = read(folder, features="v", target="u", boundary_names="wall")
    assert [Path(s.name).parts[-3] for s in found] == [
        f"sample_{i:09d}" for i in range(4)
    ]
    for number, sample in enumerate(found):
        given = write.fields(number)
        assert_allclose(sample.mesh_points, points, atol=1e-7)
        assert_array_equal(sample.cells, triangles)
        assert_allclose(sample.target[:, 0], given["u"], rtol=1e-6)
        assert_allclose(sample.features[:, 0], given["v"], rtol=1e-6)
        assert_array_equal(sample.boundaries["wall"], write.WALL)
        mesh = cgns.read(Path(sample.name), 2**24)
        assert set(mesh.field_data.arrays) == {"angle"}  # and no texts
        assert_array_equal(mesh.field_data.arrays["angle"], 1.5 * number)
    found = read(folder, target="p", location="cells")
    assert_allclose(found[1].target[:, 0], write.fields(1)["p"], rtol=1e-6)
    assert_allclose(found[1].quadrature_weights.sum(), 1, rtol=1e-6)


def test_samples_of_plaid_are_read(plaid):
    check(plaid)
    one = read_one(plaid / FIRST, target="u")
    assert_allclose(one.target[:, 0], write.fields(0)["u"], rtol=1e-6)


def test_samples_that_the_library_writes_now_are_read(tmp_path):
    pytest.importorskip("plaid.containers", reason="needs `pip install pyplaid`")
    write.write(tmp_path)
    check(tmp_path)


def test_predictions_on_samples_of_plaid_are_named_after_them(plaid, tmp_path):
    from opjax.files.formats import written_name

    (file,) = files.find(plaid / FIRST)
    assert written_name(file) == f"{FIRST}.vtu"
    with files.extended(
        file, tmp_path / written_name(file), files.ReadOptions(target="u")
    ) as (each,):
        each.add(np.ones((16, 1), np.float32))
    again = read_one(tmp_path / f"{FIRST}.vtu", features="prediction", target="u")
    assert_array_equal(again.features, 1)
    assert_array_equal(again.target, each.sample.target)
    assert again.mesh_points.shape == (16, 2)


def test_a_sample_of_several_times_is_refused(plaid):
    meshes = plaid / FIRST / "meshes"
    shutil.copy(meshes / "mesh_000000000.cgns", meshes / "mesh_000000001.cgns")
    refused(plaid, f"{FIRST} has 2 meshes, one per time", target="u")


def changed(plaid, change):
    """Changes the tree of the first sample."""
    (file,) = files.find(plaid / FIRST)
    with h5py.File(file, "r+") as tree:
        change(tree)
    return file


def structured(tree):
    node = tree["Base_2_2/Zone/ZoneType"]
    del node[" data"]
    node[" data"] = np.frombuffer(b"Structured", np.int8)


def replaced(name, values):
    def change(tree):
        del tree[f"Base_2_2/Zone/{name}/ data"]
        tree[f"Base_2_2/Zone/{name}/ data"] = np.asarray(values)

    return change


def linked(tree):
    node = tree["Base_2_2/Zone/VertexFields/u"]
    del node[" data"]
    node[" data"] = h5py.ExternalLink("/etc/passwd", "/u")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (structured, "structured zone"),
        (replaced("Elements_TRI_3", [22, 0]), "type NGON_n;.*To convert it: python"),
        (replaced("Elements_TRI_3", [6, 0]), "has 54 corners"),
        (replaced("Elements_TRI_3/ElementRange", [1, 17]), "has 54 corners"),
        (replaced("Elements_TRI_3/ElementRange", [2, 19]), "not consecutive"),
        (
            replaced("Elements_TRI_3/ElementConnectivity", np.full(54, 17)),
            "there are 16",
        ),
        (
            replaced("ZoneBC/wall/PointList", [17]),
            "'wall' is not a list of numbers from 1 to 16",
        ),
        (replaced("VertexFields/u", np.ones(5)), "'u' has 5 rows"),
        (replaced("GridCoordinates/CoordinateX", np.ones(5)), "coordinates of"),
        (linked, "not an array stored in this file"),
        (lambda tree: tree.pop("Base_2_2/Zone"), "has 0 zones"),
    ],
)
def test_trees_that_are_not_read_are_refused(plaid, change, message):
    file = changed(plaid, change)
    refused(file, rf"{FIRST}.*{message}", target="u")


def test_elements_of_all_dimensions_and_their_boundaries(plaid):
    """Lines on the wall, which are numbered behind the triangles."""

    def change(tree):
        zone = tree["Base_2_2/Zone"]
        zone.copy("Elements_TRI_3", "Lines")
        for name, values in (
            ("Lines", [3, 0]),
            ("Lines/ElementRange", [19, 21]),
            ("Lines/ElementConnectivity", [1, 2, 2, 3, 3, 4]),
            ("ZoneBC/wall/PointList", [19, 20, 21]),
            ("ZoneBC/wall/GridLocation", np.frombuffer(b"EdgeCenter", np.int8)),
        ):
            del zone[f"{name}/ data"]
            zone[f"{name}/ data"] = np.asarray(values)

    file = changed(plaid, change)
    sample = read_one(file, target="u", boundary_names="wall", geometry="distance")
    assert_array_equal(sample.boundaries["wall"], write.WALL)
    assert_allclose(sample.features[:, 1], sample.mesh_points[:, 1], atol=1e-6)
    sample = read_one(file, target="p", location="cells")
    assert_allclose(sample.target[:, 0], write.fields(0)["p"], rtol=1e-6)


@pytest.mark.parametrize(("name", "kind", "count"), [("h27", 29, 1), ("w15", 26, 2)])
def test_points_of_second_order_are_between_the_corners_as_in_vtk(
    name, kind, count, tmp_path
):
    """Of files of gmsh, which says where CGNS has these points."""
    path = tmp_path / f"{name}.cgns"
    archive = Path(__file__).parent / f"solvers/{name}.cgns.gz"
    path.write_bytes(gzip.decompress(archive.read_bytes()))
    mesh = cgns.read(path, 2**24)
    assert len(mesh.cells()[kind]) == count
    for number, cells in mesh.cells().items():
        between = kinds.BETWEEN.get(number, ())
        linear = cells.shape[1] - len(between)
        for place, corners in enumerate(between, linear):
            middle = mesh.points[cells[:, corners]].mean(axis=1)
            assert_allclose(mesh.points[cells[:, place]], middle, atol=1e-12)
