"""Boundaries, normals and integrals over them: closed forms and identities."""

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import geometry
from tests import oracles as checks
from tests.geometry import oracles
from tests.refused import value_error
from tests.selection import by_day


def grid(n=3, dimension=3):
    """Points and cells of a distorted grid of cubes (squares)."""
    axes = np.meshgrid(*[np.linspace(0, 1, n + 1)] * dimension, indexing="ij")
    points = np.stack(axes, axis=-1).reshape(-1, dimension)
    strides = (n + 1) ** np.arange(dimension)[::-1]
    first = np.stack(np.meshgrid(*[np.arange(n)] * dimension, indexing="ij"), axis=-1)
    box = oracles.BOX[: 2**dimension, :dimension].astype(int)
    cells = first.reshape(-1, dimension) @ strides
    return points, cells[:, None] + box @ strides


def surface(n, dimension):
    """Points of a grid, and the facets of its boundary."""
    points, cells = grid(n, dimension)
    kind = "quad" if dimension == 2 else "hexahedron"
    return points, geometry.boundary_facets(points, {kind: cells}).corners


def closed(points, cells):
    """The boundary, which has no open edge and encloses what the cells fill."""
    found = geometry.boundary_facets(points, cells)
    assert not len(geometry.open_edges(found.corners))
    volume = sum(
        np.abs(geometry.cell_volumes(points, c, k)).sum() for k, c in cells.items()
    )
    enclosed = geometry.enclosed_volume(points, found.corners)
    assert_allclose(enclosed, volume, rtol=1e-12)
    return found


def split(cubes):
    """Six tetrahedra for each cube."""
    paths = [(0, 1, 2, 6), (0, 2, 3, 6), (0, 3, 7, 6), (0, 7, 4, 6), (0, 4, 5, 6)]
    return np.concatenate([cubes[:, p] for p in [*paths, (0, 5, 1, 6)]])


def test_a_box_has_its_faces_for_boundary():
    points, cubes = grid()
    found = geometry.boundary_facets(points, {"hexahedron": cubes})
    assert found.corners.shape == (6 * 9, 4)
    vectors = geometry.facet_area_vectors(points, found.corners)
    middles = points[found.corners].mean(axis=1)
    assert (np.sum(vectors * (middles - 0.5), axis=1) > 0).all()
    assert_allclose(np.abs(vectors).sum(axis=0), [2, 2, 2])
    assert np.isin(found.corners, cubes[found.cells]).all()


@pytest.mark.parametrize("turn", [False, True])
def test_boundaries_of_mixed_meshes_are_closed_and_look_outwards(turn):
    points, cubes = grid()
    points = points + 0.04 * np.sin(9 * points[:, ::-1])
    # Cubes and tetrahedra share no faces; the halves of the mesh are apart.
    tetras = split(cubes[-9:])[:, [1, 0, 2, 3] if turn else [0, 1, 2, 3]]
    cells = {"hexahedron": cubes[:9], "tetra": tetras}
    assert len(closed(points, cells).corners) == 2 * 9 + 12 + 2 * (2 * 9 + 12)


@pytest.mark.parametrize("kind", ["wedge", "pyramid", "voxel", "hexahedron", "tetra"])
def test_all_solids_have_closed_boundaries(kind):
    points = oracles.CORNERS[kind]
    closed(points, {kind: np.arange(len(points))[None]})


def test_wedges_and_pyramids_join_hexahedra():
    box = np.vstack([oracles.BOX, [[0.5, 0.5, 2], [2, 0, 0.5], [2, 1, 0.5]]])
    cells = {
        "hexahedron": [[0, 1, 2, 3, 4, 5, 6, 7]],
        "pyramid": [[4, 5, 6, 7, 8]],
        "wedge": [[1, 5, 9, 2, 6, 10]],
    }
    found = closed(box, cells)
    assert len(found.corners) == 4 + 4 + 4
    assert found.cells.max() == 2


@pytest.mark.parametrize("kind", ["quad", "triangle", "polygon", "pixel"])
def test_boundaries_in_the_plane(kind):
    points, quads = grid(3, 2)
    cells = {
        "quad": quads[:, [0, 1, 2, 3]],
        "pixel": quads[:, [0, 1, 3, 2]],
        "polygon": quads[:, [0, 3, 2, 1, 1]],  # clockwise, and padded
        "triangle": np.concatenate([quads[:, :3], quads[:, [0, 2, 3]]]),
    }[kind]
    found = closed(points, {kind: cells}).corners
    assert len(found) == 12
    assert_allclose(geometry.enclosed_volume(points, found), 1)
    normals = geometry.point_normals(points, found)
    assert_allclose(normals[1], [-1, 0], atol=1e-12)
    assert_allclose(normals[0], [-(0.5**0.5)] * 2)
    assert_array_equal(normals[5], 0)  # inside


@pytest.mark.parametrize("dimension", [2, 3])
def test_constant_pressure_gives_no_force_and_linear_pressure_the_buoyancy(dimension):
    points, facets = surface(4, dimension)
    points = points * [1, 2, 3][:dimension] + 7
    weights = geometry.point_area_vectors(points, facets)
    area = np.abs(weights).sum()
    assert np.abs(weights.sum(axis=0)).max() < 1e-12 * area
    slope = np.array([0.3, -1, 2])[:dimension]
    force = (5 + points @ slope) @ weights
    volume = np.prod([1, 2, 3][:dimension])
    assert_allclose(force, slope * volume, rtol=1e-10)


def test_area_vectors_of_points_add_up_to_those_of_facets():
    points, cells = grid(2)
    facets = geometry.boundary_facets(points, {"tetra": split(cells)}).corners
    triangles = geometry.point_area_vectors(points, facets[:, :3])
    padded = geometry.point_area_vectors(points, facets)
    assert_allclose(triangles, padded, atol=1e-15)
    vectors = geometry.facet_area_vectors(points, facets)
    assert_allclose(padded.sum(axis=0), vectors.sum(axis=0), atol=1e-14)


@pytest.mark.parametrize("dimension", by_day([2, 3], [3]))
@pytest.mark.parametrize(
    "name",
    ["facet_area_vectors", "point_area_vectors", "point_normals", "enclosed_volume"],
)
def test_gradients_and_transforms(name, dimension):
    function = getattr(geometry, name)
    points, facets = surface(1, dimension)
    points = points + 0.1 * np.sin(7 * points[:, ::-1])

    def of_points(points):
        return function(jnp.asarray(points), facets)

    checks.check_gradient(
        of_points, lambda p: function(p, facets), (points,), rtol=1e-6
    )
    checks.check_transforms(of_points, (points,))


def test_open_surfaces_have_open_edges():
    _, facets = surface(1, 3)
    edges = geometry.open_edges(facets[1:])
    assert sorted(map(tuple, edges)) == sorted(
        tuple(sorted(p)) for p in zip(facets[0], np.roll(facets[0], -1), strict=True)
    )
    turned = facets.copy()
    turned[0] = turned[0, ::-1]  # closed, but not of one orientation
    assert len(geometry.open_edges(turned)) == 4


def test_sides_of_a_surface_in_space_are_its_border():
    points, quads = grid(2, 2)
    found = geometry.boundary_facets(np.pad(points, [(0, 0), (0, 1)]), {"quad": quads})
    assert len(found.corners) == 8


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({}, "only surfaces or only solids"),
        ({"line": [[0, 1]]}, "only surfaces or only solids"),
        (
            {"triangle": [[0, 1, 2]], "tetra": [[0, 1, 2, 3]]},
            "only surfaces or only solids",
        ),
        ({"strip": [[0, 1, 2]]}, "triangulate"),
        ({"triangle": [[0, 1, 9]]}, "contain point 9"),
    ],
)
def test_cells_without_a_boundary_are_refused(cells, message):
    with value_error(message):
        geometry.boundary_facets(oracles.BOX, cells)


def test_facets_that_do_not_fit_the_space_are_refused():
    with value_error("in 2D, facets need 2 corners"):
        geometry.facet_area_vectors(np.ones((3, 2)), [[0, 1, 2]])
    with value_error("in 2D, facets need 2 corners"):
        geometry.point_normals(np.ones((3, 3)), [[0, 1]])
    with pytest.raises(TypeError, match="integers"):
        geometry.open_edges(np.ones((3, 2)))
    with value_error("two corners"):
        geometry.open_edges(np.ones((3, 1), int))


# Hexahedra whose corners coincide, as meshers write wedges, pyramids and tetrahedra.
COLLAPSED = {
    "wedge, two edges": [0, 1, 2, 2, 4, 5, 6, 6],
    "wedge, first corners": [1, 1, 2, 3, 5, 5, 6, 7],
    "wedge, a side": [0, 1, 1, 0, 4, 5, 6, 7],
    "pyramid": [0, 1, 2, 3, 4, 4, 4, 4],
    "tetrahedron": [0, 1, 2, 2, 4, 4, 4, 4],
}


@pytest.mark.parametrize("name", COLLAPSED)
@pytest.mark.parametrize("turn", [False, True])
def test_boundaries_of_collapsed_hexahedra_are_closed(name, turn):
    cells = np.array([COLLAPSED[name]])
    cells = cells[:, [1, 0, 3, 2, 5, 4, 7, 6]] if turn else cells
    found = closed(oracles.BOX, {"hexahedron": cells}).corners
    assert geometry.enclosed_volume(oracles.BOX, found) > 0.1


@pytest.mark.parametrize("order", [(0, 1, 2, 2), (0, 0, 1, 2), (1, 2, 0, 0)])
def test_an_edge_that_collapsed_cells_share_is_no_boundary(order):
    """Four prisms around the axis of a box, each a hexahedron with a face on it."""
    ring = np.array([[1.0, 1], [-1, 1], [-1, -1], [1, -1]]) / 2
    flat = np.vstack([[[0, 0]], ring])
    points = np.concatenate([np.insert(flat, 2, z, axis=1) for z in (0, 1, 2)])
    cells = []
    for i in range(4):
        base = np.array([0, 1 + i, 1 + (i + 1) % 4])[list(order)]
        cells += [[*base + 5 * k, *base + 5 * k + 5] for k in (0, 1)]
    found = closed(points, {"hexahedron": np.array(cells)}).corners
    assert_allclose(geometry.enclosed_volume(points, found), 2)
    assert_allclose(geometry.distance(points[5:6], points, found), 0.5)


def test_collapsed_wedges_and_pyramids_are_closed():
    closed(oracles.CORNERS["wedge"], {"wedge": [[0, 1, 2, 3, 4, 4]]})
    closed(oracles.CORNERS["pyramid"], {"pyramid": [[0, 1, 2, 2, 4]]})


TURN = np.array([[2.0, 0.3, 0.1], [-0.4, 1.5, 0.2], [0.3, -0.2, 1.2]])  # affine
DETERMINANTS = {2: np.linalg.det(TURN[:2, :2]), 3: np.linalg.det(TURN)}
KIND = {2: "quad", 3: "hexahedron"}


def boxes(corners, sizes):
    """Points and cells of boxes with lowest corners and sizes `(m, p)`, then turned."""
    dimension = corners.shape[1]
    box = oracles.BOX[: 2**dimension, :dimension]
    every = (corners[:, None] + sizes[:, None] * box).reshape(-1, dimension)
    points, cells = np.unique(every.round(9), axis=0, return_inverse=True)
    points = points @ TURN[:dimension, :dimension]
    return points, cells.reshape(len(corners), -1)


def refined(parts):
    """Boxes of the unit cube halved along all axes, the first again into `parts`."""
    parts = np.array(parts)
    coarse = np.argwhere(np.ones([2] * len(parts))) / 2
    fine = np.argwhere(np.ones(parts)) / (2 * parts)
    corners = np.concatenate([coarse[1:], fine])
    sizes = np.repeat([0.5 / (parts > 0), 0.5 / parts], [len(coarse) - 1, len(fine)], 0)
    return boxes(corners, sizes)


def check_boundary(points, found, dimension):
    """All facets are on the sides of the turned unit cube, and cover them."""
    middles = points[found].mean(axis=1) @ np.linalg.inv(TURN[:dimension, :dimension])
    assert_allclose(np.minimum(middles, 1 - middles).min(axis=1), 0, atol=1e-9)
    volume = geometry.enclosed_volume(points, found)
    assert_allclose(volume, DETERMINANTS[dimension], rtol=1e-9)


@pytest.mark.parametrize("parts", [(2, 2), (4, 4), (3, 1), (2, 2, 2), (4, 2, 1)])
def test_larger_facets_at_hanging_nodes_are_inside(parts):
    points, cells = refined(parts)
    found = geometry.boundary_facets(points, {KIND[len(parts)]: cells}).corners
    check_boundary(points, found, len(parts))


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("blocks", [1, 2])
def test_cells_without_common_points_have_the_boundary_of_one_mesh(dimension, blocks):
    """Every cell with its own points, or two blocks of the cells; up to rounding."""
    points, cells = refined([2] * dimension)
    own = np.arange(len(cells)) if blocks == 1 else np.arange(len(cells)) % 2
    keys, numbers = np.unique(
        np.stack([np.repeat(own, cells.shape[1]), cells.ravel()], axis=1),
        axis=0,
        return_inverse=True,
    )
    apart = points[keys[:, 1]] * (1 + 1e-15 * (keys[:, :1] % 3))
    shape = {KIND[dimension]: numbers.reshape(cells.shape)}
    found = geometry.boundary_facets(apart, shape).corners
    whole = geometry.boundary_facets(points, {KIND[dimension]: cells}).corners
    assert len(found) == len(whole)
    check_boundary(apart, found, dimension)


def test_a_face_that_triangles_cover_is_inside():
    points, cubes = grid()
    cells = {"hexahedron": cubes[:18], "tetra": split(cubes[18:])}
    found = geometry.boundary_facets(points, cells).corners
    assert len(found) == 9 + 4 * 6 + 2 * (9 + 4 * 3)
    assert_allclose(geometry.enclosed_volume(points, found), 1)


def test_both_sides_of_a_crack_are_a_boundary():
    points, cells = grid(4, dimension=2)
    crack = np.isclose(points[:, 0], 0.5) & (points[:, 1] > 0.4)
    crack &= points[:, 1] < 0.9  # its ends are common to both sides
    twins = np.arange(len(points))
    twins[crack] = len(points) + np.arange(crack.sum())
    beyond = points[cells].mean(axis=1)[:, 0] > 0.5
    cells = np.where(beyond[:, None], twins[cells], cells)
    every = np.concatenate([points, points[crack]])
    found = geometry.boundary_facets(every, {"quad": cells}).corners
    assert len(found) == 16 + 2 * 3
    assert_allclose(geometry.enclosed_volume(every, found), 1)


def test_many_facets_at_a_point_are_a_boundary():
    angles = np.arange(99) * 2 * np.pi / 99
    ring = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    points = np.concatenate([[[0, 0, 0], [0, 0, 1.0]], ring])
    last = 2 + np.arange(99)
    cells = np.stack([0 * last, last, np.roll(last, -1), 0 * last + 1], axis=1)
    found = geometry.boundary_facets(points, {"tetra": cells}).corners
    assert len(found) == 2 * 99
    assert_allclose(geometry.enclosed_volume(points, found), 99 / 6 * np.sin(angles[1]))
