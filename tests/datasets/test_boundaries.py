"""Named boundaries and features of the geometry, from files of every format."""

import numpy as np
import pytest

from opjax import files

pyvista = pytest.importorskip("pyvista", reason='needs `pip install "opjax[vtk]"`')

N = 5


def grid():
    """Points and cells of the unit square; the wall is below, the inlet on the left."""
    axis = np.linspace(0, 1, N)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    corner = (np.arange(N - 1)[:, None] * N + np.arange(N - 1)).ravel()
    return points, corner[:, None] + [0, N, N + 1, 1]


POINTS, QUADS = grid()
WALL, INLET = (np.flatnonzero(POINTS[:, i] == 0) for i in (1, 0))


def npz(path, **changes):
    given = {"mesh_points": POINTS, "cells": QUADS, "target": np.ones(N * N)}
    np.savez(path, **given | changes)
    return path


def vtu(path, *, lines=None, **fields):
    """Writes a mesh; fields are `point_NAME`, `cell_NAME` and `field_NAME`."""
    cells = np.insert(QUADS, 0, 4, axis=1).ravel().tolist()
    types = [9] * len(QUADS)
    for line in () if lines is None else lines:
        cells, types = [*cells, 2, *line], [*types, 3]
    mesh = pyvista.UnstructuredGrid(cells, types, np.pad(POINTS, [(0, 0), (0, 1)]))
    mesh.point_data["target"] = np.ones(N * N)
    mesh.cell_data["target"] = np.ones(len(types))
    for name, array in fields.items():
        place, _, key = name.partition("_")
        getattr(mesh, f"{place}_data")[key] = array
    mesh.save(path)
    return path


def marked(indices, count=N * N):
    found = np.zeros(count, int)
    found[indices] = 1
    return found


NUMBERS = 2 * marked(INLET)
NUMBERS[WALL] = 1
BESIDE = np.isin(QUADS, WALL).sum(axis=1) == 2  # cells beside the wall


FORMATS = {
    "npz indices": lambda p: npz(p / "a.npz", boundary_wall=WALL[::-1]),
    "npz mask": lambda p: npz(p / "a.npz", boundary_wall=marked(WALL).astype(bool)),
    "npz numbers and names": lambda p: npz(
        p / "a.npz", boundary=NUMBERS, boundary_names=np.array(["wall", "inlet"])
    ),
    "vtu mask of points": lambda p: vtu(p / "a.vtu", point_boundary_wall=marked(WALL)),
    "vtu mask of cells": lambda p: vtu(
        p / "a.vtu", cell_boundary_wall=BESIDE.astype(int)
    ),
    "vtu numbers and names": lambda p: vtu(
        p / "a.vtu", point_boundary=NUMBERS, field_boundary_names=["wall", "inlet"]
    ),
    "vtu lines": lambda p: vtu(
        p / "a.vtu",
        lines=np.stack([WALL[:-1], WALL[1:]], axis=1),
        cell_boundary=np.repeat([0, 1], [len(QUADS), N - 1]),
        field_boundary_names=["wall"],
    ),
    "vtk mask of points": lambda p: vtu(p / "a.vtk", point_boundary_wall=marked(WALL)),
}


@pytest.mark.parametrize("form", FORMATS)
def test_boundaries_become_indicators_and_sets_of_points(form, tmp_path):
    path = FORMATS[form](tmp_path)
    (sample,) = files.read(path, boundary_names="wall")
    expected = WALL
    if form == "vtu mask of cells":  # whose other points may be on another boundary
        expected = np.sort([*WALL, 1, WALL[-1] + 1])
    np.testing.assert_array_equal(sample.features[:, 0], marked(expected))
    np.testing.assert_array_equal(sample.boundaries["wall"], expected)


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"vtu lines"}))
def test_cells_touch_a_boundary_by_a_facet(form, tmp_path):
    path = FORMATS[form](tmp_path)
    if path.suffix == ".npz":
        content = dict(np.load(path)) | {"target": np.ones(len(QUADS))}
        np.savez(path, **content)
    (sample,) = files.read(path, boundary_names="wall", location="cells")
    np.testing.assert_array_equal(sample.features[:, 0], BESIDE)
    np.testing.assert_array_equal(sample.boundaries["wall"], np.flatnonzero(BESIDE))


def test_numbers_are_names_without_a_table(tmp_path):
    path = npz(tmp_path / "a.npz", boundary=NUMBERS)
    (sample,) = files.read(path, boundary_names="2,1")
    np.testing.assert_array_equal(sample.boundaries["2"], INLET[1:])
    np.testing.assert_array_equal(sample.boundaries["1"], WALL)


def test_hdf5_files_have_boundaries(tmp_path):
    h5py = pytest.importorskip("h5py", reason='needs `pip install "opjax[h5]"`')
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in dict(np.load(npz(tmp_path / "a.npz"))).items():
            file[f"one/{name}"] = array
        file["one/boundary_wall"] = WALL
    (sample,) = files.read(tmp_path / "a.h5", boundary_names="wall")
    np.testing.assert_array_equal(sample.boundaries["wall"], WALL)


def test_channels_are_fields_then_boundaries_then_geometry(tmp_path):
    given = {"boundary_wall": WALL, "boundary_inlet": INLET, "k": POINTS[:, 0]}
    for name in "abcdef":
        npz(tmp_path / f"{name}.npz", **given)
    options = {"boundary_names": "wall,inlet", "geometry": "distance,normals"}
    found = files.splits([tmp_path], features="k", **options)
    assert found.channels["features"] == (
        *("k", "boundary_wall", "boundary_inlet"),
        *("normal_x_wall", "normal_y_wall", "distance_wall"),
        *("normal_x_inlet", "normal_y_inlet", "distance_inlet"),
    )
    features = found.train[0].features
    np.testing.assert_allclose(features[:, 5], POINTS[:, 1], atol=1e-7)
    np.testing.assert_allclose(features[:, 8], POINTS[:, 0], atol=1e-7)
    np.testing.assert_allclose(
        features[:, 3:5], np.tile([0, -1], (N * N, 1)), atol=1e-7
    )


@pytest.mark.parametrize("location", ["points", "cells"])
def test_distances_to_the_boundary_of_the_mesh(location, tmp_path):
    rows = len(QUADS) if location == "cells" else N * N
    path = npz(tmp_path / "a.npz", target=np.ones(rows))
    (sample,) = files.read(path, geometry="normals,distance", location=location)
    x = sample.mesh_points
    exact = np.minimum(x, 1 - x).min(axis=1)
    np.testing.assert_allclose(sample.features[:, 2], exact, atol=1e-6)
    lengths = np.linalg.norm(sample.features[:, :2], axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0))
    below = (x[:, 1] < 0.3) & (x[:, 1] < x[:, 0]) & (x[:, 1] < 1 - x[:, 0])
    np.testing.assert_allclose(
        sample.features[below, :2], [[0, -1]] * below.sum(), atol=1e-6
    )
    assert sample.boundaries is None


def test_distances_to_a_sphere_and_a_box_in_space(tmp_path):
    box = pyvista.ImageData(dimensions=(5, 5, 5), spacing=(0.25,) * 3)
    mesh = box.cast_to_unstructured_grid()
    mesh.point_data["target"] = np.zeros(125)
    mesh.save(tmp_path / "a.vtu")
    (sample,) = files.read(tmp_path / "a.vtu", geometry="distance")
    x = sample.mesh_points
    exact = np.minimum(x, 1 - x).min(axis=1)
    np.testing.assert_allclose(sample.features[:, 0], exact, atol=1e-6)


def test_a_surface_has_normals_if_it_is_closed(tmp_path):
    sphere = pyvista.Sphere(theta_resolution=20, phi_resolution=20)
    sphere.flip_faces(inplace=True)  # they point inwards in the file
    mesh = sphere.cast_to_unstructured_grid()
    mesh.point_data["target"] = np.zeros(mesh.n_points)
    mesh.save(tmp_path / "a.vtu")
    (sample,) = files.read(tmp_path / "a.vtu", geometry="normals")
    outwards = sample.mesh_points / np.linalg.norm(sample.mesh_points, axis=1)[:, None]
    assert np.sum(sample.features * outwards, axis=1).min() > 0.99
    with pytest.raises(ValueError, match="a.vtu is a surface.*leave out distance"):
        files.read(tmp_path / "a.vtu", geometry="normals,distance")
    mesh.extract_cells(np.arange(5, mesh.n_cells)).save(tmp_path / "b.vtu")
    with pytest.raises(ValueError, match="b.vtu is an open surface"):
        files.read(tmp_path / "b.vtu", geometry="normals")


def test_files_without_the_options_are_read_as_before(tmp_path):
    path = npz(tmp_path / "a.npz", boundary_wall=np.array(["not", "read"]))
    (sample,) = files.read(path)
    assert sample.features is None
    assert sample.boundaries is None


@pytest.mark.parametrize(
    ("changes", "names", "message"),
    [
        ({}, "wall", "no boundary 'wall'; it has none"),
        ({"boundary_inlet": INLET}, "wall", "no boundary 'wall'; it has inlet"),
        ({"boundary": NUMBERS}, "3", "no boundary '3'; it has 1, 2"),
        ({"boundary": NUMBERS[1:]}, "1", "expected 25 integers"),
        ({"boundary_wall": [30]}, "wall", "indices from 0 to 24"),
        ({"boundary_wall": [True]}, "wall", "a mask of 25 booleans"),
        ({"boundary_wall": [0.5]}, "wall", "indices from 0 to 24"),
    ],
)
def test_bad_boundaries_are_refused(changes, names, message, tmp_path):
    path = npz(tmp_path / "a.npz", **changes)
    with pytest.raises(ValueError, match=rf"a.npz.*{message}"):
        files.read(path, boundary_names=names)


def test_bad_boundaries_of_meshes_are_refused(tmp_path):
    path = vtu(tmp_path / "a.vtu", point_boundary_wall=POINTS)
    with pytest.raises(ValueError, match="one number for each point or cell"):
        files.read(path, boundary_names="wall")
    path = vtu(tmp_path / "a.vtu", point_boundary=NUMBERS, field_boundary_names=["a"])
    with pytest.raises(ValueError, match="no boundary 'wall'; it has a"):
        files.read(path, boundary_names="wall")


def test_a_boundary_without_facets_has_no_distance(tmp_path):
    path = npz(tmp_path / "a.npz", boundary_probe=[7])
    with pytest.raises(ValueError, match="a.npz: no facet.*'probe'"):
        files.read(path, boundary_names="probe", geometry="distance")
    np.savez(path, mesh_points=POINTS, target=np.ones(N * N))
    with pytest.raises(ValueError, match="a.npz has no array 'cells'"):
        files.read(path, geometry="distance")
    with pytest.raises(ValueError, match="unknown; choose from"):
        files.read(path, geometry="curvature")
