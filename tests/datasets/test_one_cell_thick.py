"""Meshes that OpenFOAM solves two-dimensional flows on, one cell thick."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files, geometry
from opjax.files import ReadOptions
from opjax.files.topology import topology
from opjax.files.vtk import fields
from tests.datasets.reading import read_one, read_series, refused

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

LAYER = Path(__file__).parent / "solvers" / "layer.vtm"
flat = pytest.mark.filterwarnings("ignore:.*one cell thick along")


def opened(path, point_dim=None):
    with fields.open_vtk(path, 2**30, point_dim=point_dim, quadrature=False) as groups:
        return groups[""]


def plates(path, *, thickness=0.2, kind="hexahedron", axis=2, **changes):
    """Writes a square of cells one cell thick along an axis, with a field `u`."""
    grid = pyvista.ImageData(dimensions=(5, 5, 2), spacing=(1, 1, thickness))
    mesh = grid.cast_to_unstructured_grid()
    if kind == "wedge":
        square = pyvista.ImageData(dimensions=(5, 5, 1)).cast_to_unstructured_grid()
        square = square.triangulate()
        triangles = square.cells_dict[5]
        points = np.vstack([square.points, square.points + [0, 0, thickness]])
        wedges = np.hstack([triangles, triangles + square.n_points])
        mesh = pyvista.UnstructuredGrid({13: wedges}, points)
    mesh.points = np.roll(np.asarray(mesh.points), axis - 2, axis=1)
    across = np.delete(np.asarray(mesh.points), axis, axis=1)
    mesh.point_data["u"] = across @ [1.0, 2.0]
    mesh.cell_data["q"] = np.arange(mesh.n_cells, dtype=float)
    for name, change in changes.items():
        mesh.point_data[name] = change(np.asarray(mesh.points))
    mesh.save(path)
    return mesh


def test_a_flow_between_empty_sides_is_two_dimensional_and_a_warning_says_so():
    own = pyvista.read(LAYER)["internal"]
    said = r"layer.vtm among them, are one cell thick along z .* two-dimensional"
    with pytest.warns(UserWarning, match=said):
        sample = read_one(LAYER, target="p,U")
    assert sample.mesh_points.shape == (own.n_points / 2, 2)
    assert sample.cells.shape == (own.n_cells, 4)
    volumes = own.compute_cell_sizes().cell_data["Volume"]
    options = ReadOptions(target="p,U", location="cells")
    with pytest.warns(UserWarning, match=said):
        (cells,) = files.read(LAYER, options)
    assert_allclose(cells.quadrature_weights, volumes / 0.2, rtol=2e-5)
    assert_array_equal(cells.target[:, 0], own.cell_data["p"])
    assert cells.mesh_points.shape == (own.n_cells, 2)
    assert (np.hypot(*cells.mesh_points.T) > 0.9).all()


@flat
@pytest.mark.parametrize("location", ["points", "cells"])
def test_sides_are_no_walls(location):
    """The distance to the boundary is that in the plane, and so are normals."""
    options = {"location": location, "target": "p", "geometry": "distance,normals"}
    sample = read_one(LAYER, **options)
    x, y = sample.mesh_points.T
    around = np.minimum(np.minimum(3 - np.abs(x), 3 - y), np.where(np.abs(x) > 1, y, 9))
    near = np.hypot(x, y) - 1 < around
    distance = sample.features[:, 2]
    assert_allclose(distance[~near], around[~near], atol=1e-5)
    exact = np.hypot(x, y)[near] - 1  # to the circle, whose sides are inside
    assert_allclose(distance[near], exact, atol=0.04)
    names = {"boundary_names": "cylinder,bottom", "location": location}
    sample = read_one(LAYER, target="p", **names)
    count = {"points": [7, 8], "cells": [6, 6]}[location]
    assert [len(sample.boundaries[k]) for k in ("cylinder", "bottom")] == count
    cells = topology("a", opened(LAYER))
    facets = cells.boundary()
    assert geometry.enclosed_volume(cells.points, facets.corners) == pytest.approx(
        sum(geometry.cell_volumes(cells.points, cells.blocks["quad"].cells, "quad"))
    )


@flat
@pytest.mark.parametrize("location", ["points", "cells"])
def test_predictions_go_to_both_sides_of_the_mesh_as_it_was(location, tmp_path):
    own = pyvista.read(LAYER)["internal"]
    options = ReadOptions(target="p", location=location)
    with files.extended(LAYER, tmp_path / "a.vtu", options) as (each,):
        each.add(each.sample.target, ["same"])
    files.write(tmp_path / "b.vtu", each.sample, each.sample.target, location=location)
    for path, name in (
        (tmp_path / "a.vtu", "same"),
        (tmp_path / "b.vtu", "prediction"),
    ):
        found = pyvista.read(path)
        assert_array_equal(found.points, own.points)
        assert_array_equal(found.celltypes, own.celltypes)
        data, was = (getattr(m, f"{location[:-1]}_data") for m in (found, own))
        assert_allclose(data[name], was["p"], atol=1e-6)


@flat
@pytest.mark.parametrize("kind", ["hexahedron", "wedge"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_layers_of_any_cells_along_any_axis(kind, axis, tmp_path):
    mesh = plates(tmp_path / "a.vtu", kind=kind, axis=axis)
    options = ReadOptions(target="u", quadrature=True)
    (sample,) = files.read(tmp_path / "a.vtu", options)
    assert sample.mesh_points.shape == (25, 2)
    assert sample.quadrature_weights.sum() == pytest.approx(16)
    assert_allclose(sample.target[:, 0], sample.mesh_points @ [1, 2], rtol=1e-6)
    options = ReadOptions(target="q", location="cells")
    (sample,) = files.read(tmp_path / "a.vtu", options)
    assert_array_equal(sample.target[:, 0], mesh.cell_data["q"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"w": lambda x: x[:, 2]}, r"\['w'\] differ on its two sides"),
        ({"thickness": 2}, None),
    ],
)
def test_plates_that_bend_or_are_thick_stay_in_space(changes, message, tmp_path):
    """A field that changes through the thickness is one of three dimensions."""
    plates(tmp_path / "a.vtu", **changes)
    sample = read_one(tmp_path / "a.vtu", target="u")
    assert sample.mesh_points.shape == (50, 3)
    asked = ReadOptions(target="u", point_dim=2)
    if message:
        with pytest.raises(ValueError, match=message):
            files.read(tmp_path / "a.vtu", asked)
    else:
        with pytest.warns(UserWarning, match="one cell thick"):
            (sample,) = files.read(tmp_path / "a.vtu", asked)
        assert sample.mesh_points.shape == (25, 2)


def test_three_dimensions_are_kept_where_asked_for(tmp_path):
    options = ReadOptions(target="p", point_dim=3)
    (sample,) = files.read(LAYER, options)
    own = pyvista.read(LAYER)["internal"]
    assert_array_equal(sample.mesh_points, own.points)
    files.write(tmp_path / "a.vtu", sample, sample.target)
    assert pyvista.read(tmp_path / "a.vtu").n_points == own.n_points


@flat
def test_patches_of_the_sides_alone_are_none_of_the_plane(tmp_path):
    boundaries = {
        "boundary_front": lambda x: (x[:, 2] == 0).astype(np.uint8),
        "boundary_left": lambda x: (x[:, 0] == 0).astype(np.uint8),
    }
    plates(tmp_path / "a.vtu", **boundaries)
    options = ReadOptions(target="u", boundary_names="left")
    (sample,) = files.read(tmp_path / "a.vtu", options)
    assert_array_equal(sample.features[:, 0], sample.mesh_points[:, 0] == 0)
    refused(
        tmp_path / "a.vtu", "no boundary 'front'; it has left", boundary_names="front"
    )


def test_two_layers_are_a_mesh_of_three_dimensions(tmp_path):
    mesh = pyvista.ImageData(dimensions=(5, 5, 3), spacing=(1, 1, 0.1))
    mesh.point_data["target"] = np.ones(75)
    mesh.cast_to_unstructured_grid().save(tmp_path / "a.vtu")
    sample = read_one(tmp_path / "a.vtu")
    assert sample.mesh_points.shape == (75, 3)
    refused(
        tmp_path / "a.vtu", "or the mesh must be one cell thick and read", point_dim=2
    )


@flat
def test_series_are_flat_and_frames_are_written_to_the_mesh_as_it_was(tmp_path):
    from opjax.files import series_writing

    (tmp_path / "in").mkdir()
    for time in range(3):
        mesh = plates(tmp_path / f"in/u_{time:04d}.vtu")
    equal = pytest.warns(UserWarning, match="All frames are equal")
    with equal, pytest.warns(UserWarning, match="1 of 1 meshes.*one cell thick"):
        ((series,), _) = read_series(tmp_path / "in", target="u")
    assert series.num_points == 25
    solid = series_writing.mesh_of(tmp_path / "in/u_0000.vtu", 2**30)
    with series_writing.pvd(tmp_path / "out", "u", series, ["u"], mesh=solid) as write:
        write(0.0, series.values[0])
    written = pyvista.read(tmp_path / "out/u_0000.vtu")
    assert_array_equal(written.points, mesh.points)
    assert_allclose(written.point_data["u"], mesh.point_data["u"], rtol=1e-6)


@pytest.mark.parametrize(("learned", "expected"), [(2, None), (3, 3)])
def test_operators_that_learned_in_space_read_meshes_in_space(learned, expected):
    """Such as those of version 0.2, which knew no mesh as one cell thick."""
    from types import SimpleNamespace

    from opjax.learn.cli import train
    from opjax.learn.predict.learned import Learned

    config = dataclasses.asdict(train.Config(train="a"))
    channels = SimpleNamespace(mesh_points=learned)
    of_run = SimpleNamespace(config=config, channels=channels)
    assert Learned.read_options(of_run).point_dim == expected
    assert Learned.read_options(of_run, point_dim=2).point_dim == 2
