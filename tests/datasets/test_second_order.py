"""Cells of second order, of every kind of VTK and as CalculiX wrote them."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, geometry
from opjax.files import cell_blocks
from opjax.files.vtk import kinds
from opjax.files.vtk.mesh import VtkMesh
from tests.datasets.reading import read_one

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

SOLVERS = Path(__file__).parent / "solvers"
PLATES = [("c3d10", 24), ("c3d20", 25)]
# VTK gives these in coordinates in which they are no straight cell, a pyramid being a
# collapsed box.
COLLAPSED = (27, 37)


def reference(kind):
    """Points of a cell where VTK has them: corners, then those between."""
    from vtkmodules.vtkCommonDataModel import vtkGenericCell

    cell = vtkGenericCell.InstantiateCell(kind)
    count = 3 * cell.GetNumberOfPoints()
    coordinates = cell.GetParametricCoords()
    points = np.array([coordinates[i] for i in range(count)]).reshape(-1, 3)
    corners = geometry.KINDS[kinds.HIGHER[kind]].corners
    if kind in COLLAPSED:
        between = [points[list(c)].mean(axis=0) for c in kinds.BETWEEN[kind]]
        points = np.vstack([points[:corners], between])
    return points, corners


def weights(points, kind):
    count = len(points)
    mesh = VtkMesh(points, np.array([0, count]), np.arange(count), np.array([kind]))
    return cell_blocks.point_weights("a", mesh)


@pytest.mark.parametrize("kind", sorted(kinds.BETWEEN))
def test_points_between_corners_are_where_vtk_has_them(kind):
    points, corners = reference(kind)
    between = [points[list(c)].mean(axis=0) for c in kinds.BETWEEN[kind]]
    assert len(points) == kinds.POINTS[kind]
    atol = 0.4 if kind == 35 else 1e-12  # two points at a third of a line
    assert_allclose(points[corners:], between, atol=atol)


@pytest.mark.parametrize("kind", sorted(kinds.BETWEEN))
def test_weights_are_positive_sum_to_the_volume_and_integrate_linear_functions(kind):
    points, corners = reference(kind)
    points = points @ np.array([[2, 0.3, 0], [0, 1, 0.2], [0, 0, 3]])
    shape = kinds.HIGHER[kind]
    cells = np.arange(corners)[None]
    volume = abs(geometry.cell_volumes(points, cells, shape))
    center = geometry.cell_centers(points, cells, shape)
    found = weights(points, kind)
    assert found.min() > 0
    assert found.sum() == pytest.approx(*volume)
    if shape != "pyramid":  # whose points are not in balance around its centre
        assert_allclose(found @ points / volume, center[0], atol=1e-12)


def test_weights_are_those_of_the_cell_divided_at_its_middles():
    trapezoid = [1, 2, 1]  # on each axis of a box with all 27 points
    points, _ = reference(29)
    expected = [np.prod([trapezoid[int(2 * x)] for x in p]) / 64 for p in points]
    assert_allclose(weights(points, 29), expected, rtol=1e-12)
    points, _ = reference(22)
    assert_allclose(weights(points, 22), [1 / 24] * 3 + [1 / 8] * 3)


@pytest.mark.parametrize(("name", "kind"), PLATES)
def test_plates_keep_all_points_and_weigh_what_they_weigh(name, kind):
    path = SOLVERS / f"{name}.vtu"
    own = pyvista.read(path)
    assert set(own.celltypes) == {kind}
    sample = read_one(path, target="U,S_Mises", quadrature=True)
    assert_allclose(sample.mesh_points, own.points, rtol=1e-6)
    corners = geometry.KINDS[kinds.HIGHER[kind]].corners
    linear = own.cells_dict[kind][:, :corners].astype(np.int64)
    shape = kinds.HIGHER[kind]
    points = np.asarray(own.points, float)
    volumes = geometry.cell_volumes(points, linear, shape)
    assert sample.quadrature_weights.min() > 0
    assert sample.quadrature_weights.sum() == pytest.approx(volumes.sum(), rel=1e-6)
    hole = 0 if kind == 25 else np.pi / 4
    assert volumes.sum() == pytest.approx(8 - hole, rel=0.02)


@pytest.mark.parametrize(("name", "kind"), PLATES)
def test_distances_and_normals_of_plates_are_those_of_their_sides(name, kind):
    path = SOLVERS / f"{name}.vtu"
    options = files.ReadOptions(target="S_Mises", geometry="normals,distance")
    (sample,) = files.read(path, options)
    x, distance = sample.mesh_points, sample.features[:, 3]
    sides = np.minimum(x, np.array([4, 2, 1]) - x).min(axis=1)
    if name == "c3d10":
        ring = np.hypot(x[:, 0] - 2, x[:, 1] - 1) - 0.5
        far = ring > sides
        assert_allclose(distance[far], sides[far], atol=1e-5)
        # Points of second order lie on the circle, up to its height over a side.
        assert np.abs(distance - np.minimum(ring, sides)).max() < 0.08
    else:
        assert_allclose(distance, sides, atol=1e-5)
    on_top = (x[:, 2] == 1) & (sides == 0) & (x[:, 0] > 0.1) & (x[:, 0] < 3.9)
    on_top &= (
        (x[:, 1] > 0.1) & (x[:, 1] < 1.9) & (np.hypot(x[:, 0] - 2, x[:, 1] - 1) > 0.6)
    )
    assert on_top.any()
    assert_allclose(sample.features[on_top, :3], [[0, 0, 1]] * on_top.sum())


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
@pytest.mark.parametrize(("name", "kind"), PLATES)
def test_predictions_leave_cells_of_second_order_as_they_are(
    name, kind, suffix, tmp_path
):
    path, copy = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    own = pyvista.read(SOLVERS / f"{name}.vtu")
    own.cell_data["q"] = np.arange(own.n_cells, dtype=float)
    own.save(path)
    with files.extended(path, copy, files.ReadOptions(target="U")) as (each,):
        each.add(each.sample.target, ["V"] * 3)
    found = pyvista.read(copy)
    assert_array_equal(found.cells, own.cells)
    assert_array_equal(found.celltypes, own.celltypes)
    assert_array_equal(found.points, own.points)
    assert_allclose(found.point_data["V"], own.point_data["U"], rtol=1e-6)
    options = files.ReadOptions(target="q", location="cells")
    with files.extended(path, tmp_path / f"c{suffix}", options) as (each,):
        each.add(each.sample.target)
    found = pyvista.read(tmp_path / f"c{suffix}")
    assert_array_equal(found.cell_data["prediction"], own.cell_data["q"])
    corners = own.cells_dict[kind][:, : geometry.KINDS[kinds.HIGHER[kind]].corners]
    means = np.asarray(own.points)[corners].mean(axis=1)  # of straight cells
    assert_allclose(each.sample.mesh_points, means, atol=1e-5)
