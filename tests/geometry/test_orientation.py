"""Parts of surfaces and their outside: bodies in any order, nested, open, one-sided."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import geometry
from tests.geometry.test_boundaries import grid, surface
from tests.refused import value_error

KIND = {2: "quad", 3: "hexahedron"}


def body(dimension, center=0.0, size=1.0, n=2):
    """The boundary of a square or cube, seen from outside, on points of its own."""
    points, facets = surface(n, dimension)
    return (points - 0.5) * size + center, facets


def joined(*bodies):
    counts = np.cumsum([0, *(len(points) for points, _ in bodies)])
    facets = [f + first for (_, f), first in zip(bodies, counts[:-1], strict=True)]
    return np.concatenate([points for points, _ in bodies]), np.concatenate(facets)


def signs(points, expected, found):
    """For every facet whether it looks as expected, 1 or -1."""
    vectors = [geometry.facet_area_vectors(points, f) for f in (expected, found)]
    return np.sign((vectors[0] * vectors[1]).sum(axis=1))


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("turn", [(), (0,), (1,), (0, 1)])
def test_every_body_is_seen_from_outside_however_its_facets_are_listed(dimension, turn):
    points, facets = joined(
        body(dimension), body(dimension, 3, 0.5), body(dimension, -2)
    )
    parts = geometry.surface_parts(points, facets)
    given = facets.copy()
    for part in turn:
        given[parts == part] = given[parts == part][:, ::-1]
    found = geometry.outward_facets(points, given)
    assert (signs(points, facets, found) == 1).all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_facets_that_are_listed_against_their_neighbours_are_turned(dimension):
    points, facets = body(dimension, n=3)
    given = facets.copy()
    given[1::3] = given[1::3, ::-1]
    found = geometry.outward_facets(points, given)
    assert (signs(points, facets, found) == 1).all()


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_walls_of_a_cavity_look_into_it_and_a_body_in_it_outwards(dimension, turned):
    shells = [body(dimension, 0.1, size) for size in (3, 2, 1)]
    points, facets = joined(*shells)
    parts = geometry.surface_parts(points, facets)
    assert np.bincount(parts).tolist() == [len(f) for _, f in shells]
    given = facets[:, ::-1] if turned else facets
    found = geometry.outward_facets(points, given)
    expected = np.where(parts == 1, -1, 1)
    assert_array_equal(signs(points, facets, found), expected)


@pytest.mark.parametrize("dimension", [2, 3])
def test_boundaries_of_a_mesh_with_a_cavity_stay_as_its_cells_say(dimension):
    points, cells = grid(3, dimension)
    cells = np.delete(cells, len(cells) // 2, axis=0)
    facets = geometry.boundary_facets(points, {KIND[dimension]: cells}).corners
    found = geometry.outward_facets(points, facets[:, ::-1])
    assert (signs(points, facets, found) == 1).all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_bodies_that_touch_in_an_edge_or_overlap_are_each_seen_from_outside(dimension):
    touching = joined(body(dimension), body(dimension, [1, 1, 0][:dimension]))
    overlapping = joined(body(dimension), body(dimension, 0.7))
    for points, facets in (touching, overlapping):
        given = facets.copy()
        given[len(facets) // 2 :] = given[len(facets) // 2 :, ::-1]
        assert geometry.surface_parts(points, facets).max() == 1
        found = geometry.outward_facets(points, given)
        assert (signs(points, facets, found) == 1).all()


@pytest.mark.parametrize("dimension", [2, 3])
def test_copies_of_points_do_not_open_a_body(dimension):
    points, facets = body(dimension)
    apart = np.arange(facets.size).reshape(facets.shape)
    found = geometry.outward_facets(points[facets.reshape(-1)], apart[:, ::-1])
    assert_array_equal(found, apart)


def test_two_sheets_in_one_place_stay_as_they_are():
    points, cells = grid(2, 2)
    points = np.pad(points, [(0, 0), (0, 1)])
    sheets = np.concatenate([cells, cells[:, ::-1]])
    assert_array_equal(geometry.outward_facets(points, sheets), sheets)


def test_an_open_part_is_named_with_its_edges():
    points, facets = joined(body(3), body(3, 5))
    with pytest.raises(geometry.OpenSurfaceError, match="open at 4 edges") as error:
        geometry.outward_facets(points, facets[1:])
    assert sorted(np.unique(error.value.edges)) == sorted(facets[0])
    with pytest.raises(geometry.OpenSurfaceError, match="first one at the points 0"):
        geometry.outward_facets(np.eye(3, 2), [[0, 1], [1, 2]])
    inner = np.array([[0, 4, 13]])  # a wall that meets others in two edges
    points, facets = body(3)
    padded = np.concatenate([facets, np.pad(inner, [(0, 0), (0, 1)], mode="edge")])
    with pytest.raises(geometry.OpenSurfaceError, match="open at"):
        geometry.outward_facets(points, padded)


def test_surfaces_of_one_side_are_refused_by_name():
    turns = 2 * np.pi * np.arange(12) / 12
    across = np.array([-0.3, 0.3])[None, :, None]
    radial = np.stack([np.cos(turns), np.sin(turns), 0 * turns], -1)
    up = np.array([0, 0, 1.0])
    tilted = np.cos(turns / 2)[:, None] * radial + np.sin(turns / 2)[:, None] * up
    points = (radial[:, None] + across * tilted[:, None]).reshape(-1, 3)
    strip = [[2 * i, 2 * i + 2, 2 * i + 3, 2 * i + 1] for i in range(11)]
    strip.append([22, 1, 0, 23])
    with value_error(r"not orientable.* 12 facets"):
        geometry.outward_facets(points, np.array(strip))


def test_bad_facets_are_refused():
    with value_error("in 2D, facets need 2 corners"):
        geometry.outward_facets(np.ones((3, 3)), [[0, 1]])
    with pytest.raises(TypeError, match="integers"):
        geometry.surface_parts(np.ones((3, 2)), np.ones((3, 2)))
