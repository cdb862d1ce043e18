"""Polyhedra that OpenFOAM wrote: geometry, patches, weights, and back again."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, geometry
from opjax.files import ReadOptions
from opjax.files.topology import topology
from opjax.files.vtk import fields, kinds, polyhedra
from opjax.files.vtk.mesh import VtkMesh
from tests.datasets.reading import read_one
from tests.refused import value_error

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

SOLVERS = Path(__file__).parent / "solvers"
CASES = ["dual", "snappy"]


def opened(path):
    with fields.open_vtk(path, 2**30, point_dim=None, quadrature=False) as groups:
        return groups[""]


@pytest.mark.parametrize("case", CASES)
def test_volumes_and_centres_are_those_of_openfoam(case):
    """Its own, by `writeCellVolumes` and `writeCellCentres`, in single precision."""
    path = SOLVERS / f"{case}.vtm"
    own = pyvista.read(path)["internal"]
    assert set(np.unique(own.celltypes)) == {12, 42}
    options = ReadOptions(location="cells", target="T")
    (sample,) = files.read(path, options)
    volumes = own.cell_data["V"]
    atol = 1e-4 * volumes.max()  # of warped faces, which it divides otherwise
    assert_allclose(sample.quadrature_weights, volumes, atol=atol)
    assert_allclose(sample.mesh_points, own.cell_data["C"], atol=2e-3)
    assert_array_equal(sample.target[:, 0], own.cell_data["T"])


@pytest.mark.parametrize("case", CASES)
def test_the_boundary_is_that_of_the_patches(case):
    """As many facets, in the same places, that enclose the volume of the cells."""
    path = SOLVERS / f"{case}.vtm"
    cells = topology("a", opened(path))
    facets = cells.boundary()
    blocks = pyvista.read(path)["boundary"]
    patches = [np.asarray(b.points)[c.point_ids] for b in blocks for c in b.cell]
    assert len(facets.corners) == len(patches)
    found = {tuple(np.unique(cells.points[c], axis=0).ravel()) for c in facets.corners}
    written = {tuple(np.unique(p, axis=0).ravel()) for p in patches}
    assert found == written
    assert not len(geometry.open_edges(facets.corners))
    volume = sum(
        geometry.cell_volumes(cells.points, b.shape, kind).sum()
        for kind, b in cells.blocks.items()
    )
    enclosed = geometry.enclosed_volume(cells.points, facets.corners)
    assert_allclose(enclosed, volume, rtol=1e-12)


def test_patches_normals_and_distances_of_the_box():
    options = {"boundary_names": "inlet,walls", "geometry": "normals,distance"}
    path = SOLVERS / "dual.vtm"
    sample = read_one(path, target="T", **options)
    x, columns = sample.mesh_points, sample.features.T
    walls = np.minimum(x[:, 1:], 1 - x[:, 1:]).min(axis=1)
    assert_array_equal(columns[0], x[:, 0] == 0)
    assert_array_equal(columns[1], walls == 0)
    assert_allclose(columns[2:5].T, [[-1, 0, 0]] * len(x), atol=1e-6)
    assert_allclose(columns[5], x[:, 0], atol=1e-6)
    assert_allclose(columns[9], walls, atol=1e-6)
    cells = ReadOptions(target="T", location="cells", **options)
    (sample,) = files.read(path, cells)
    x, columns = sample.mesh_points, sample.features.T
    assert_allclose(columns[5], x[:, 0], atol=1e-6)
    walls = np.minimum(x[:, 1:], 1 - x[:, 1:]).min(axis=1)
    assert_allclose(columns[9], walls, atol=1e-6)
    assert len(sample.boundaries["inlet"]) == columns[0].sum() == 9


@pytest.mark.parametrize("case", CASES)
def test_weights_of_points_are_positive_and_exact_for_linear_functions(case):
    path = SOLVERS / f"{case}.vtm"
    sample = read_one(path, target="T", quadrature=True)
    cells = read_one(path, target="T", location="cells")
    assert sample.quadrature_weights.min() > 0
    volume, moments = (
        cells.quadrature_weights @ a
        for a in (1 + 0 * cells.mesh_points, cells.mesh_points)
    )
    weights = sample.quadrature_weights
    assert_allclose(weights.sum(), volume[0], rtol=1e-6)
    assert_allclose(weights @ sample.mesh_points, moments, rtol=1e-5)


@pytest.mark.parametrize("layout", ["foamToVTK", "new", "legacy"])
def test_predictions_leave_polyhedra_as_they_are(layout, tmp_path):
    """Of files of foamToVTK, of VTK 9.4 or newer, and of VTK's legacy format."""
    path = SOLVERS / "snappy/internal.vtu"
    mesh = pyvista.read(path)
    if layout != "foamToVTK":
        path = tmp_path / ("a.vtu" if layout == "new" else "a.vtk")
        mesh.save(path)
    copy = tmp_path / f"copy{path.suffix}"
    options = ReadOptions(location="cells", target="T")
    values = np.arange(mesh.n_cells, dtype=np.float32)
    with files.extended(path, copy, options) as (each,):
        each.add(values[:, None])
    written = pyvista.read(copy)
    assert_array_equal(written.cell_data["prediction"], values)
    assert_array_equal(written.celltypes, mesh.celltypes)
    for number in range(mesh.n_cells):
        was, now = mesh.get_cell(number), written.get_cell(number)
        assert [f.point_ids for f in now.faces] == [f.point_ids for f in was.faces]
    (again,) = files.read(copy, options)
    assert_array_equal(again.quadrature_weights, each.sample.quadrature_weights)


def cube(**changes):
    """Arrays of a `.vtu` file of one cube, as solvers write them."""
    box = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]], float)
    sides = [[0, 3, 2, 1], [4, 5, 6, 7], [0, 1, 5, 4], [1, 2, 6, 5], [2, 3, 7, 6]]
    faces = [*sides, [3, 0, 4, 7]]
    return np.vstack([box, box + [0, 0, 1]]), faces


def stored(faces):
    stream = np.concatenate([[len(faces)], *([len(f), *f] for f in faces)])
    return {"faces": stream, "faceoffsets": np.array([len(stream)])}


def mesh_of(points, faces):
    types = np.array([kinds.POLYHEDRON])
    found = polyhedra.read(Path("a.vtu"), stored(faces), types, 100)
    corners = np.unique(np.concatenate(faces))
    return VtkMesh(points, np.array([0, len(corners)]), corners, types, polyhedra=found)


@pytest.mark.parametrize("turned", [(), (0,), (0, 1), (2, 5), range(6)])
def test_faces_may_be_listed_in_any_direction(turned):
    points, faces = cube()
    for number in turned:
        faces[number] = faces[number][::-1]
    mesh = mesh_of(points, faces)
    found = geometry.outward_polyhedra(
        points, mesh.polyhedra.facets("a", np.array([0]))
    )
    assert geometry.cell_volumes(points, found, "polyhedron") == pytest.approx([1])
    assert not geometry.invalid_cells(points, found, "polyhedron").any()
    around = geometry.boundary_facets(points, {"polyhedron": found})
    assert geometry.enclosed_volume(points, around.corners) == pytest.approx(1)


def test_a_polyhedron_that_is_not_convex_has_its_own_volume_and_positive_weights():
    """A prism over an L, whose mean of corners is at its inner corner."""
    around = np.array([[0, 0], [2, 0], [2, 1], [1, 1], [1, 2], [0, 2]], float)
    points = np.vstack(
        [np.pad(around, [(0, 0), (0, 1)], constant_values=z) for z in (0, 1)]
    )
    sides = [[i, (i + 1) % 6, (i + 1) % 6 + 6, i + 6] for i in range(6)]
    faces = [[5, 4, 3, 2, 1, 0], [*range(6, 12)], *sides]
    found = mesh_of(points, faces).polyhedra.facets("a", np.array([0]))
    found = geometry.outward_polyhedra(points, found)
    assert geometry.cell_volumes(points, found, "polyhedron") == pytest.approx([3])
    center = geometry.cell_centers(points, found, "polyhedron")
    assert_allclose(center, [[5 / 6, 5 / 6, 0.5]])
    shares = geometry.point_shares(points, found, "polyhedron").toarray()
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(3)


def test_a_cell_whose_faces_do_not_close_is_refused_by_number(tmp_path):
    path = tmp_path / "a.vtu"
    points, faces = cube()
    grid = mesh_of(points, faces[:5])
    fields.extend(path, path, grid, {"T": np.ones(1)}, "cells")
    options = ReadOptions(location="cells", target="T")
    with value_error(r"a.vtu: 1 of 1 cells of the type polyhedron"):
        files.read(path, options)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("faces", lambda a: a[:-1], "do not follow one another"),
        ("faces", lambda a: np.where(np.arange(len(a)) == 1, 40, a), "do not follow"),
        ("faces", lambda a: np.where(np.arange(len(a)) == 1, -4, a), "do not follow"),
        ("faces", lambda a: np.where(np.arange(len(a)) == 0, 9, a), "do not follow"),
        ("faceoffsets", lambda a: -a, "do not follow one another"),
        ("faceoffsets", lambda a: np.append(a, 3), "do not follow one another"),
        ("faceoffsets", None, "polyhedra without their faces"),
    ],
)
def test_damaged_faces_are_refused(name, change, message, tmp_path):
    (tmp_path / "a.vtu").write_text("")
    arrays = stored(cube()[1])
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    with value_error(message):
        polyhedra.read(tmp_path / "a.vtu", arrays, np.array([42]), 100)


def test_faces_of_points_that_do_not_exist_are_refused(tmp_path):
    (tmp_path / "a.vtu").write_text("")
    faces = polyhedra.read(tmp_path / "a.vtu", stored(cube()[1]), np.array([42]), 100)
    with value_error("name points from 0 to 7, but there are 7"):
        faces.check(tmp_path / "a.vtu", 7, np.array([42]))
    with value_error("fewer than four faces"):
        faces.check(tmp_path / "a.vtu", 8, np.array([12]))


def test_pieces_with_and_without_polyhedra_are_joined():
    points, faces = cube()
    one = mesh_of(points, faces).polyhedra
    both = polyhedra.joined([None, one], [0, 5], [2, 1])
    assert_array_equal(both.cells, [0, 0, 0, 6])
    assert_array_equal(both.corners, one.corners + 5)
    assert polyhedra.joined([None, None], [0, 5], [2, 1]) is None
    assert_array_equal(both.stored()["faceoffsets"], [-1, -1, 31])
