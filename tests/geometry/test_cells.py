"""Volumes and centres against Gauss quadrature and VTK, exactness, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import geometry
from tests import oracles as checks
from tests.geometry import oracles
from tests.selection import by_day

SKEW = np.array([[1.2, 0.3, 0], [-0.1, 0.9, 0.2], [0.2, 0, 1.5]])


def one(kind):
    """A skew cell of a kind, in space."""
    corners = oracles.CORNERS[kind] @ SKEW.T + [3.0, -1, 2]
    return corners, np.arange(len(corners))[None]


@pytest.mark.parametrize("kind", oracles.AS_BOX)
def test_volumes_and_centres_are_integrals_over_the_map_of_the_cell(kind):
    points, cells = one(kind)
    volume, center = oracles.volume_and_center(points, kind)
    found = geometry.cell_volumes(points, cells, kind)
    assert_allclose(found, [volume], rtol=1e-12)
    centers = geometry.cell_centers(points, cells, kind)
    assert_allclose(centers, center[None], rtol=1e-12)


@pytest.mark.parametrize("kind", ["hexahedron", "wedge", "pyramid"])
def test_volumes_are_exact_where_faces_are_warped(kind):
    corners = oracles.CORNERS[kind]
    points = corners + 0.2 * np.random.default_rng(3).normal(size=corners.shape)
    volume, _ = oracles.volume_and_center(points, kind)
    found = geometry.cell_volumes(points, np.arange(len(points))[None], kind)
    assert_allclose(found, [volume], rtol=1e-12)


@pytest.mark.parametrize("kind", ["quad", "hexahedron"])
def test_tapered_cells_have_their_centre_of_mass(kind):
    points = oracles.CORNERS[kind].copy()
    points[-2:, :2] *= 0.5 if kind == "quad" else 1
    points[4:, :2] *= 0.5
    _, center = oracles.volume_and_center(points, kind)
    found = geometry.cell_centers(points, np.arange(len(points))[None], kind)
    assert_allclose(found, center[None], rtol=1e-12)


@pytest.mark.parametrize("kind", oracles.CORNERS)
def test_volumes_agree_with_vtk(kind):
    pyvista = pytest.importorskip("pyvista")
    points, cells = one(kind)
    if kind in ("pixel", "voxel"):  # VTK's are parallel to the axes
        points = oracles.CORNERS[kind] * [2.0, 3, 4]
    connectivity = np.insert(cells[0], 0, cells.shape[1])
    grid = pyvista.UnstructuredGrid(connectivity, [oracles.VTK[kind]], points)
    sizes = grid.compute_cell_sizes()
    name = ("Length", "Area", "Volume")[geometry.KINDS[kind].dimension - 1]
    found = geometry.cell_volumes(points, cells, kind)
    assert_allclose(found, np.abs(sizes.cell_data[name]), rtol=1e-6)


def test_polygons_need_not_be_convex_and_may_repeat_their_last_corner():
    points = np.array([[0.0, 0], [2, 0], [2, 2], [1, 0.5], [0, 2]])
    padded = np.array([[0, 1, 2, 3, 4, 4, 4]])
    assert_allclose(geometry.cell_volumes(points, padded, "polygon"), 2.5)
    plain = geometry.cell_centers(points, padded[:, :5], "polygon")
    padded = geometry.cell_centers(points, padded, "polygon")
    assert_allclose(plain, padded, rtol=1e-12)
    assert_allclose(plain[0, 0], 1.0)


def test_linear_functions_are_integrated_exactly_over_a_mixed_mesh():
    x, y = np.meshgrid(np.linspace(0, 2, 5) ** 1.5, np.linspace(0, 1, 4), indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    points[5] += [0.1, 0.05]
    corner = (np.arange(4)[:, None] * 4 + np.arange(3)).ravel()
    quads = corner[:, None] + [0, 4, 5, 1]
    halves = np.concatenate([quads[6:, [0, 1, 2]], quads[6:, [0, 2, 3]]])
    total = 0
    for kind, cells in (("quad", quads[:6]), ("triangle", halves)):
        volumes = geometry.cell_volumes(points, cells, kind)
        centers = geometry.cell_centers(points, cells, kind)
        total += volumes @ (1 + 2 * centers[:, 0] - centers[:, 1])
    width = 2**1.5
    assert_allclose(total, width + width**2 - width / 2, rtol=1e-12)


@pytest.mark.parametrize("kind", by_day(["strip", "polygon", "hexahedron"], ["strip"]))
@pytest.mark.parametrize("function", [geometry.cell_volumes, geometry.cell_centers])
def test_gradients_and_transforms(function, kind):
    points, cells = one(kind)

    def of_points(points):
        return function(jnp.asarray(points), cells, kind)

    checks.check_gradient(of_points, lambda p: function(p, cells, kind), (points,))
    checks.check_transforms(of_points, (points,))


def test_gradients_are_finite_where_a_cell_has_no_area():
    points = jnp.zeros((3, 2))
    gradient = jax.grad(lambda p: geometry.cell_volumes(p, [[0, 1, 2]], "triangle")[0])
    assert_array_equal(jax.jit(gradient)(points), 0)


def test_cells_without_volume_have_the_mean_of_their_corners():
    points = np.array([[0.0, 0], [1, 0], [2, 0]])
    found = geometry.cell_centers(points, [[0, 1, 2]], "triangle")
    assert_array_equal(found, [[1, 0]])


def test_invalid_cells_are_flat_inside_out_or_cross_themselves():
    square = oracles.BOX[:4]
    bad = geometry.invalid_cells(square, [[0, 1, 2, 3], [0, 2, 1, 3]], "quad")
    assert_array_equal(bad, [False, True])
    bad = geometry.invalid_cells(square[:, :2], [[0, 1, 2], [0, 1, 1]], "triangle")
    assert_array_equal(bad, [False, True])
    cells = [[0, 1, 3, 4], [1, 0, 3, 4], [0, 1, 2, 3]]
    bad = geometry.invalid_cells(oracles.BOX, cells, "tetra")
    assert_array_equal(bad, [False, True, True])
    kite = np.array([[0.0, 0], [1, -1], [0.1, 0], [1, 1]])  # not convex, and good
    assert not geometry.invalid_cells(kite, [[0, 1, 2, 3]], "quad")[0]


@pytest.mark.parametrize(
    ("points", "cells", "kind", "error", "message"),
    [
        (np.ones((3, 2), int), [[0, 1, 2]], "triangle", TypeError, "floating"),
        (np.ones((3, 2)), [[0.0, 1, 2]], "triangle", TypeError, "integers"),
        (np.ones((3, 2)), [[0, 1, 3]], "triangle", ValueError, "contain point 3"),
        (np.ones((3, 2)), [[0, 1, 2]], "quad", ValueError, "a quad has 4 corners"),
        (np.ones((3, 2)), [[0, 1]], "polygon", ValueError, "3 or more corners"),
        (np.ones((4, 2)), [[0, 1, 2, 3]], "tetra", ValueError, "3 dimensions"),
        (np.ones((3, 2)), [[0, 1, 2]], "tri", ValueError, "choose from 'line'"),
        (np.ones((3, 4)), [[0, 1, 2]], "triangle", ValueError, "1, 2 or 3"),
        (np.ones((3, 2)), [0, 1, 2], "triangle", ValueError, r"\(m, corners\)"),
    ],
)
def test_bad_cells_are_refused(points, cells, kind, error, message):
    with pytest.raises(error, match=message):
        geometry.cell_volumes(points, cells, kind)
