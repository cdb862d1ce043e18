"""Named boundaries and features of the geometry, from files of every format."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import files
from opjax.learn.config.quantities import parse
from opjax.learn.predict.quantities import measure
from tests.datasets import reading
from tests.datasets.reading import read, read_one, refused
from tests.refused import value_error

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


def marked(indices):
    found = np.zeros(N * N, int)
    found[indices] = 1
    return found


def save(mesh, path, **fields):
    """Saves a mesh with a target and fields of its points."""
    mesh = mesh.cast_to_unstructured_grid()
    for name, array in {"target": np.ones(mesh.n_points), **fields}.items():
        mesh.point_data[name] = array
    mesh.save(path)
    return path


def box(n=3):
    """The unit cube, divided into as many cubes along each axis."""
    mesh = pyvista.ImageData(dimensions=(n + 1,) * 3, spacing=(1 / n,) * 3)
    return mesh.cast_to_structured_grid().cast_to_unstructured_grid()


def to_sides(points):
    """Distances to the sides of the unit square or cube."""
    return np.minimum(points, 1 - points).min(axis=1)


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
    sample = read_one(path, boundary_names="wall")
    expected = WALL
    if form == "vtu mask of cells":  # whose other points may be on another boundary
        expected = np.sort([*WALL, 1, WALL[-1] + 1])
    assert_array_equal(sample.features[:, 0], marked(expected))
    assert_array_equal(sample.boundaries["wall"], expected)


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"vtu lines"}))
def test_cells_touch_a_boundary_by_a_facet(form, tmp_path):
    path = FORMATS[form](tmp_path)
    if path.suffix == ".npz":
        content = dict(np.load(path)) | {"target": np.ones(len(QUADS))}
        np.savez(path, **content)
    sample = read_one(path, boundary_names="wall", location="cells")
    assert_array_equal(sample.features[:, 0], BESIDE)
    assert_array_equal(sample.boundaries["wall"], np.flatnonzero(BESIDE))


def test_numbers_are_names_without_a_table(tmp_path):
    path = npz(tmp_path / "a.npz", boundary=NUMBERS)
    sample = read_one(path, boundary_names="2,1")
    # The corner has one number, and is the end of both boundaries.
    assert_array_equal(sample.boundaries["2"], INLET)
    assert_array_equal(sample.boundaries["1"], WALL)


def test_hdf5_files_have_boundaries(tmp_path):
    arrays = np.load(npz(tmp_path / "a.npz", boundary_wall=WALL))
    path = reading.save(tmp_path / "a.h5", {f"one/{k}": a for k, a in arrays.items()})
    sample = read_one(path, boundary_names="wall")
    assert_array_equal(sample.boundaries["wall"], WALL)


def test_channels_are_fields_then_boundaries_then_geometry(tmp_path):
    given = {"boundary_wall": WALL, "boundary_inlet": INLET, "k": POINTS[:, 0]}
    for name in "abcdef":
        npz(tmp_path / f"{name}.npz", **given)
    options = {"boundary_names": "wall,inlet", "geometry": "distance,normals"}
    found = files.splits([tmp_path], options=files.ReadOptions(features="k", **options))
    assert found.channels["features"] == (
        *("k", "boundary_wall", "boundary_inlet"),
        *("normal_x_wall", "normal_y_wall", "distance_wall"),
        *("normal_x_inlet", "normal_y_inlet", "distance_inlet"),
    )
    features = found.train[0].features
    assert_allclose(features[:, 5], POINTS[:, 1], atol=1e-7)
    assert_allclose(features[:, 8], POINTS[:, 0], atol=1e-7)
    assert_allclose(features[:, 3:5], np.tile([0, -1], (N * N, 1)), atol=1e-7)


@pytest.mark.parametrize("location", ["points", "cells"])
def test_distances_to_the_boundary_of_the_mesh(location, tmp_path):
    rows = len(QUADS) if location == "cells" else N * N
    path = npz(tmp_path / "a.npz", target=np.ones(rows))
    sample = read_one(path, geometry="normals,distance", location=location)
    x = sample.mesh_points
    assert_allclose(sample.features[:, 2], to_sides(x), atol=1e-6)
    lengths = np.linalg.norm(sample.features[:, :2], axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-6) | (lengths == 0))
    below = (x[:, 1] < 0.3) & (x[:, 1] < x[:, 0]) & (x[:, 1] < 1 - x[:, 0])
    assert_allclose(sample.features[below, :2], [[0, -1]] * below.sum(), atol=1e-6)
    assert sample.boundaries is None


def test_layers_decay_with_the_distance_over_the_size_of_the_boundary(tmp_path):
    path = npz(tmp_path / "a.npz", target=np.ones(N * N))
    sample = read_one(path, geometry="distance,layers")
    distance, wide, thin = sample.features.T
    # The box of the boundary is the unit square.
    assert_allclose(wide, 0.5 / (0.5 + distance), rtol=1e-6)
    assert_allclose(thin, np.exp(-6 * distance), rtol=1e-6)


def test_a_surface_has_normals_if_it_is_closed(tmp_path):
    sphere = pyvista.Sphere(theta_resolution=20, phi_resolution=20)
    sphere.flip_faces(inplace=True)  # they point inwards in the file
    path = save(sphere, tmp_path / "a.vtu")
    sample = read_one(path, geometry="normals")
    outwards = sample.mesh_points / np.linalg.norm(sample.mesh_points, axis=1)[:, None]
    assert np.sum(sample.features * outwards, axis=1).min() > 0.99
    refused(path, "is a surface.*omit distance", geometry="normals,distance")
    save(sphere.extract_cells(np.arange(5, sphere.n_cells)), path)
    refused(path, "is an open surface", geometry="normals")


def test_files_without_the_options_are_read_as_before(tmp_path):
    path = npz(tmp_path / "a.npz", boundary_wall=np.array(["not", "read"]))
    sample = read_one(path)
    assert sample.features is None
    assert sample.boundaries is None


@pytest.mark.parametrize(
    ("changes", "names", "message"),
    [
        ({}, "wall", "no boundary 'wall'; it has no named boundary"),
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
    refused(path, rf"a.npz.*{message}", boundary_names=names)


def test_bad_boundaries_of_meshes_are_refused(tmp_path):
    path = vtu(tmp_path / "a.vtu", point_boundary_wall=POINTS)
    refused(path, "one number per point or cell", boundary_names="wall")
    vtu(path, point_boundary=NUMBERS, field_boundary_names=["a"])
    refused(path, "no boundary 'wall'; it has a", boundary_names="wall")


def test_a_boundary_without_facets_has_no_distance(tmp_path):
    path = npz(tmp_path / "a.npz", boundary_probe=[7])
    refused(path, "no facet.*'probe'", boundary_names="probe", geometry="distance")
    np.savez(path, mesh_points=POINTS, target=np.ones(N * N))
    refused(path, "has no array 'cells'", geometry="distance")


SIDES = {"wall": (1, 0), "right": (0, 1), "top": (1, 1), "inlet": (0, 0)}


def patches(order):
    """A number for each point: corners have that of the side that comes last."""
    numbers = np.zeros(N * N, int)
    for number, name in enumerate(order, 1):
        axis, value = SIDES[name]
        numbers[POINTS[:, axis] == value] = number
    return numbers


@pytest.mark.parametrize("form", ["npz", "vtu"])
@pytest.mark.parametrize("turn", range(4))
@pytest.mark.parametrize("backwards", [False, True])
def test_patches_share_their_corners_whoever_has_the_number(
    form, turn, backwards, tmp_path
):
    order = list(np.roll(list(SIDES), turn))[:: -1 if backwards else 1]
    if form == "npz":
        path = npz(tmp_path / "a.npz", boundary=patches(order), boundary_names=order)
        names = [*SIDES]
    else:
        path = vtu(tmp_path / "a.vtu", point_boundary=patches(order))
        names = [str(order.index(name) + 1) for name in SIDES]
    sample = read_one(path, boundary_names=names, geometry="distance", target="target")
    for place, (axis, value) in enumerate(SIDES.values()):
        exact = np.abs(POINTS[:, axis] - value)
        assert_allclose(sample.features[:, 4 + place], exact, atol=1e-7)
        assert_array_equal(sample.features[:, place] == 1, exact == 0)
    integrals = [f"integral:u@{name}" for name in names]
    wanted = parse(",".join(integrals))
    (row,) = measure(wanted, sample, [sample.target], {"target": ["u"]})
    assert row == pytest.approx(dict.fromkeys(integrals, 1))


def test_patches_of_a_smooth_boundary_share_no_facet(tmp_path):
    """Two halves of a circle: together they have its length."""
    turns = 2 * np.pi * np.arange(20) / 20
    around = np.stack([np.cos(turns), np.sin(turns)], -1)
    ends = np.arange(1, 21)
    np.savez(
        tmp_path / "a.npz",
        mesh_points=np.vstack([[[0, 0]], around]),
        cells=np.stack([np.zeros(20, int), ends, np.roll(ends, -1)], -1),
        target=np.ones(21),
        boundary=np.repeat([0, 1, 2], [1, 10, 10]),
    )
    sample = read_one(tmp_path / "a.npz", boundary_names="1,2")
    wanted = parse("integral:u@1,integral:u@2")
    (row,) = measure(wanted, sample, [sample.target], {"target": ["u"]})
    assert sum(row.values()) == pytest.approx(40 * np.sin(np.pi / 20))


def test_patches_of_a_solid_share_edges_and_corners(tmp_path):
    mesh = box()
    distances = np.hstack([mesh.points, 1 - mesh.points]).round(6)
    numbers = np.zeros(len(distances), int)
    for side in range(6):
        numbers[distances[:, side] == 0] = side + 1
    path = save(mesh, tmp_path / "a.vtu", boundary=numbers)
    sample = read_one(path, boundary_names=list("123456"), geometry="distance")
    assert_allclose(sample.features[:, 6:], distances, atol=1e-6)


def write_surface(path, bodies, names):
    """Bodies of quads or triangles, listed as they are, in one file."""
    mesh = bodies[0]
    for body in bodies[1:]:
        mesh = mesh.append_polydata(body)
    places = np.repeat(names, [body.n_points for body in bodies])
    return save(mesh, path, **{f"boundary_{n}": np.uint8(places == n) for n in names})


def turned(mesh):
    found = mesh.copy()
    found.flip_faces(inplace=True)
    return found


@pytest.mark.parametrize("which", [(), (0,), (1,), (0, 1)])
def test_normals_of_every_body_point_outwards_however_it_is_listed(which, tmp_path):
    bodies = [
        pyvista.Sphere(radius=0.3, theta_resolution=8, phi_resolution=8),
        pyvista.Cube(center=(3, 0, 0)).clean(),
    ]
    centers = np.repeat([[0.0, 0, 0], [3, 0, 0]], [b.n_points for b in bodies], axis=0)
    bodies = [turned(b) if i in which else b for i, b in enumerate(bodies)]
    ground = pyvista.Plane(center=(0, 0, -2), i_resolution=2, j_resolution=2)
    names = ("a", "b", "ground")
    path = write_surface(tmp_path / "a.vtu", [*bodies, ground], names)
    for name, place in (("a", 0), ("b", 3)):
        rows = np.flatnonzero(centers[:, 0] == place)
        sample = read_one(path, geometry="normals", boundary_names=name)
        outwards = sample.mesh_points[rows] - centers[rows]
        assert np.sum(sample.features[rows, 1:] * outwards, axis=1).min() > 0
    said = "is an open surface: 8 edges"
    for name in ("ground", ""):
        refused(path, said, geometry="normals", boundary_names=name)


def test_a_surface_of_quads_in_an_array_is_one(tmp_path):
    """Four corners in space are no tetrahedra where they are sides of a box."""
    box = pyvista.Cube().clean()
    arrays = {"mesh_points": np.asarray(box.points, float), "target": np.ones(8)}
    arrays["cells"] = box.regular_faces
    np.savez(tmp_path / "a.npz", **arrays)
    sample = read_one(tmp_path / "a.npz", geometry="normals", quadrature=True)
    assert (np.sum(sample.features * sample.mesh_points, axis=1) > 0.8).all()
    assert sample.quadrature_weights.sum() == pytest.approx(6)
    np.savez(tmp_path / "a.npz", **arrays | {"target": np.ones(6)})
    sample = read_one(tmp_path / "a.npz", location="cells")
    assert_allclose(sample.quadrature_weights, 1, rtol=1e-6)
    surface = sample._replace(cells=arrays["cells"], mesh_points=arrays["mesh_points"])
    surface = surface._replace(quadrature_weights=None, target=None)
    files.write(tmp_path / "b.vtu", surface._replace(name=""), np.ones((8, 1)))
    assert set(pyvista.read(tmp_path / "b.vtu").celltypes) == {9}


def curved(kind, n=3):
    """A box of second-order tetrahedra or hexahedra."""
    from vtkmodules.vtkFiltersGeometry import vtkLinearToQuadraticCellsFilter

    way = vtkLinearToQuadraticCellsFilter()
    way.SetInputData(box(n).triangulate() if kind == 24 else box(n))
    way.Update()
    found = pyvista.wrap(way.GetOutput())
    assert set(found.celltypes) == {kind}
    return found


@pytest.mark.parametrize("kind", ["hexahedra", "tetrahedra", 24, 25])
def test_boxes_of_all_cells_have_the_distances_to_their_sides(kind, tmp_path):
    """Also of tetrahedra as messages advise to make them, and of curved cells."""
    mesh = curved(kind) if kind in (24, 25) else box()
    mesh = mesh.triangulate() if kind == "tetrahedra" else mesh
    x = np.asarray(mesh.points)
    path = save(mesh, tmp_path / "a.vtu", boundary_wall=np.uint8(x[:, 2] == 0))
    sample = read_one(path, geometry="distance,normals")
    assert_allclose(sample.features[:, 3], to_sides(x), atol=1e-6)
    sample = read_one(path, geometry="distance", boundary_names="wall")
    assert_allclose(sample.features[:, 1], x[:, 2], atol=1e-6)
    assert_array_equal(sample.features[:, 0], x[:, 2] == 0)


@pytest.mark.parametrize("kind", [24, 25])
def test_second_order_cells_have_the_centres_and_volumes_of_their_corners(
    kind, tmp_path
):
    mesh = curved(kind)
    mesh.cell_data["q"] = np.arange(mesh.n_cells, dtype=float)
    path = save(mesh, tmp_path / "a.vtu")
    sample = read_one(path, target="q", location="cells", geometry="distance")
    assert_array_equal(sample.target[:, 0], mesh.cell_data["q"])
    x, weights = sample.mesh_points, sample.quadrature_weights
    assert_allclose(sample.features[:, 0], to_sides(x), atol=1e-6)
    assert weights.sum() == pytest.approx(1)
    assert_allclose(weights @ x, 0.5, rtol=1e-5)
    points = read_one(path, quadrature=True, target="target")
    assert points.quadrature_weights.sum() == pytest.approx(1, rel=1e-5)


def test_what_triangulate_makes_of_second_order_cells_is_refused(tmp_path):
    mesh = curved(24, n=4)
    path = save(mesh.triangulate(), tmp_path / "b.vtu")
    if pyvista.read(path).n_cells == mesh.n_cells:
        pytest.skip("this pyvista leaves second-order cells as they are")
    refused(path, r"b.vtu: about \d+% of the faces", geometry="distance")


def test_cells_beside_a_boundary_mark_its_points_of_higher_order(tmp_path):
    mesh = curved(25)
    corners = mesh.points[mesh.cells_dict[25]]
    mesh.cell_data["boundary_wall"] = (corners[..., 2] == 0).any(axis=1).astype(int)
    sample = read_one(save(mesh, tmp_path / "a.vtu"), boundary_names="wall")
    below = np.flatnonzero(sample.mesh_points[:, 2] == 0)
    assert np.isin(below, sample.boundaries["wall"]).all()


def test_weights_of_lagrange_cells_have_the_way_out_that_is_named(
    tmp_path, monkeypatch
):
    mesh = curved(24, n=2)
    found = pyvista.UnstructuredGrid({71: mesh.cells_dict[24]}, mesh.points)
    path = save(found, tmp_path / "b.vtu")
    with value_error(r"\[71\] \(VTK_LAGRANGE_TETRAHEDRON\)") as error:
        read(path, quadrature=True)
    advice = str(error.value).split("import pyvista; ")[1].split('"')[0]
    monkeypatch.chdir(tmp_path)
    exec(advice, {"pyvista": pyvista})  # noqa: S102
    sample = read_one("b_linear.vtu", quadrature=True)
    assert sample.num_points >= mesh.n_points
    assert sample.quadrature_weights.sum() == pytest.approx(1, rel=1e-5)


def quadtree():
    """A square of 4 x 4 quads, of which the four inner ones are halved."""
    coarse = np.stack(np.meshgrid(*[np.arange(4)] * 2), axis=-1).reshape(-1, 2) / 4
    inner = (np.abs(coarse - 0.375) < 0.2).all(axis=1)
    fine = 0.25 + np.stack(np.meshgrid(*[np.arange(4)] * 2), axis=-1).reshape(-1, 2) / 8
    low = np.concatenate([coarse[~inner], fine])
    sizes = np.repeat([1 / 4, 1 / 8], [12, 16])[:, None, None]
    corners = low[:, None] + sizes * np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    points, cells = np.unique(corners.reshape(-1, 2), axis=0, return_inverse=True)
    return points, cells.reshape(-1, 4)


@pytest.mark.filterwarnings("ignore:.* coincide with another point")
@pytest.mark.parametrize("location", ["points", "cells"])
@pytest.mark.parametrize("apart", [False, True])
def test_sides_at_hanging_nodes_and_of_cells_with_own_points_are_inside(
    apart, location, tmp_path
):
    points, cells = quadtree()
    if apart:
        points, cells = points[cells].reshape(-1, 2), np.arange(112).reshape(-1, 4)
    rows = len(cells) if location == "cells" else len(points)
    path = tmp_path / "a.npz"
    np.savez(path, mesh_points=points, cells=cells, target=np.ones(rows))
    sample = read_one(path, geometry="distance", location=location)
    assert_allclose(sample.features[:, 0], to_sides(sample.mesh_points), atol=1e-6)
    sample = read_one(path, boundary="b: x < 0.3", location=location)
    x = sample.mesh_points
    near = 0.13 if location == "cells" else 1e-6
    outer = (x[:, 0] < 0.3) & (to_sides(x) < near)
    assert_array_equal(sample.features[:, 0].astype(bool), outer)


@pytest.mark.filterwarnings("ignore:.* coincide with another point")
def test_an_interface_with_a_name_has_integrals_over_both_sides(tmp_path):
    """Of two squares with points of their own."""
    points = np.concatenate([POINTS, POINTS + [1, 0]])
    interface = np.flatnonzero(points[:, 0] == 1)
    np.savez(
        tmp_path / "a.npz",
        mesh_points=points,
        cells=np.concatenate([QUADS, QUADS + N * N]),
        target=np.repeat([1.0, 3.0], N * N),
        boundary_i=interface,
    )
    sample = read_one(tmp_path / "a.npz", boundary_names="i", geometry="distance")
    assert_allclose(sample.features[:, 1], np.abs(points[:, 0] - 1), atol=1e-7)
    wanted = parse("integral:u@i")
    (row,) = measure(wanted, sample, [sample.target], {"target": ["u"]})
    assert row == pytest.approx({"integral:u@i": 4})
