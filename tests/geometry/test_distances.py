"""Distances to boundaries against brute force and closed forms."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import geometry
from tests.geometry import oracles
from tests.geometry.test_boundaries import surface
from tests.refused import value_error


def box_distance(points):
    """Distance to the surface of the unit box, from inside and outside."""
    outside = np.linalg.norm(np.maximum(np.abs(points - 0.5) - 0.5, 0), axis=1)
    inside = np.min(0.5 - np.abs(points - 0.5), axis=1)
    return np.where(inside > 0, inside, outside)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("scale", [0.5, 3.0, 300.0])
def test_distances_to_a_box(dimension, scale):
    mesh, facets = surface(4, dimension)
    points = 0.5 + scale * np.random.default_rng(1).normal(size=(300, dimension))
    found = geometry.distance(points, mesh, facets)
    assert_allclose(found, box_distance(points), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dimension", [2, 3])
def test_distances_are_those_of_brute_force_on_facets_of_all_sizes(dimension):
    rng = np.random.default_rng(4)
    mesh = rng.normal(size=(40 * dimension, dimension))
    mesh *= np.repeat(np.logspace(-4, 1, 40), dimension)[:, None]
    facets = np.arange(40 * dimension).reshape(40, dimension)
    points = rng.normal(size=(60, dimension)) * np.logspace(-4, 1, 60)[:, None]
    found = geometry.nearest_facets(points, mesh, facets)
    for i, point in enumerate(points):
        every = [
            oracles.segment_distance(point, *mesh[f])
            if dimension == 2
            else oracles.facet_distance(point, mesh[f])
            for f in facets
        ]
        assert_allclose(found.distance[i], min(every), rtol=1e-9, atol=1e-13)
        assert every[found.facet[i]] <= min(every) + 1e-7


def test_distances_to_a_sphere_converge_at_second_order():
    errors = []
    for n in (8, 16):
        mesh, facets = surface(n, 3)
        mesh = mesh - 0.5
        radius = np.linalg.norm(mesh, axis=1, keepdims=True)
        mesh = mesh / np.where(radius == 0, 1, radius)
        points = np.random.default_rng(2).normal(size=(500, 3))
        exact = np.abs(np.linalg.norm(points, axis=1) - 1)
        errors.append(np.abs(geometry.distance(points, mesh, facets) - exact).max())
    assert 1.5 < np.log2(errors[0] / errors[1]) < 2.5


def test_points_of_the_boundary_have_distance_zero():
    mesh, facets = surface(3, 3)
    middles = mesh[facets].mean(axis=1)
    assert geometry.distance(middles, mesh, facets).max() < 1e-15
    found = geometry.nearest_facets(middles, mesh, facets)
    assert_array_equal(found.facet, np.arange(len(facets)))


def test_normals_do_not_depend_on_the_order_of_facets():
    mesh, facets = surface(3, 3)
    points = np.vstack([mesh, [[0.5, 0.5, 0.5], [2, 2, 2], [2, 0.5, 0.5]]])
    found = geometry.nearest_facets(points, mesh, facets).normal
    other = geometry.nearest_facets(points, mesh, facets[::-1]).normal
    assert_allclose(found, other, atol=1e-9)
    assert_array_equal(found[-3], 0)  # all six sides are equally near
    assert_allclose(found[-2], [3**-0.5] * 3)
    assert_allclose(found[-1], [1, 0, 0], atol=1e-12)


def test_pairs_are_taken_in_parts(monkeypatch):
    mesh, facets = surface(3, 3)
    points = np.random.default_rng(1).normal(size=(50, 3))
    whole = geometry.nearest_facets(points, mesh, facets)
    monkeypatch.setattr(geometry.distances, "_PAIRS", 20)
    monkeypatch.setattr(geometry.distances, "_CHUNK", 7)
    parts = geometry.nearest_facets(points, mesh, facets)
    for one, other in zip(whole, parts, strict=True):
        assert_array_equal(one, other)


def test_degenerate_facets_count_as_sides_and_points():
    mesh = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    found = geometry.nearest_facets(mesh + [0, 0, 2], mesh, [[0, 1, 1], [0, 0, 0]])
    assert_allclose(found.distance, [2, 2, 5**0.5])
    assert_array_equal(found.normal, 0)


def test_no_points_have_no_distances():
    mesh, facets = surface(1, 3)
    assert geometry.distance(np.zeros((0, 3)), mesh, facets).shape == (0,)


@pytest.mark.parametrize(
    ("points", "facets", "message"),
    [
        (np.ones((2, 2)), [[0, 1, 2]], "dimensions"),
        (np.ones((2, 3)), np.zeros((0, 3), int), "at least one facet"),
        (np.full((2, 3), np.nan), [[0, 1, 2]], "non-finite"),
        (np.ones((2, 3)), [[0, 1, 4]], "contain point 4"),
    ],
)
def test_bad_input_is_refused(points, facets, message):
    with value_error(message):
        geometry.distance(points, np.eye(3), facets)


def _star(turn=0):
    """A polygon of ten corners that no fan divides, around the origin of a plane."""
    angles = 2 * np.pi * np.arange(10) / 10
    radii = np.where(np.arange(10) % 2, 0.4, 1.0)
    flat = radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], -1)
    axes = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    points = np.pad(flat, [(0, 0), (0, 1)]) @ axes
    return points, np.roll(np.arange(10), turn)[None], flat, axes


@pytest.mark.parametrize("turn", range(0, 10, 3))
@pytest.mark.parametrize("against", [False, True])
def test_distances_to_polygons_that_are_not_convex_are_exact(rng, turn, against):
    points, polygon, flat, axes = _star(turn)
    polygon = polygon[:, ::-1] if against else polygon
    where = rng.uniform(-1.2, 1.2, (300, 2))
    after = np.roll(flat, -1, axis=0)
    along = after - flat
    shares = ((where[:, None] - flat) * along).sum(-1) / (along**2).sum(-1)
    feet = flat + np.clip(shares, 0, 1)[..., None] * along
    aside = np.linalg.norm(where[:, None] - feet, axis=-1).min(axis=1)
    crossed = (flat[:, 1] > where[:, 1:]) != (after[:, 1] > where[:, 1:])
    cuts = flat[:, 0] + (where[:, 1:] - flat[:, 1]) * along[:, 0] / along[:, 1]
    inside = (crossed & (where[:, :1] < cuts)).sum(axis=1) % 2 == 1
    exact = np.hypot(np.where(inside, 0, aside), 0.3)
    above = np.pad(where, [(0, 0), (0, 1)], constant_values=0.3) @ axes
    found = geometry.distance(above, points, polygon)
    assert_allclose(found, exact, rtol=1e-9)
    triangles, owners = geometry.facet_triangles(
        points, np.pad(polygon, [(0, 0), (0, 2)], mode="edge")
    )
    assert (owners == 0).all()
    pieces = geometry.facet_area_vectors(points, triangles)
    whole = geometry.facet_area_vectors(points, polygon)[0]
    assert_allclose(
        np.linalg.norm(pieces, axis=1).sum(), np.linalg.norm(whole), rtol=1e-12
    )


@pytest.mark.parametrize("first", range(4))
def test_distances_to_a_dented_quad_do_not_depend_on_its_first_corner(first):
    points = np.array([[0.0, 0, 0], [4, 2, 0], [0, 4, 0], [1, 2, 0]])
    quads = np.roll(np.arange(4), first)[None]
    found = geometry.distance(np.array([[0.0, 2, 0], [2, 2, 1]]), points, quads)
    assert_allclose(found, [2 / 5**0.5, 1])


def test_layers_do_not_depend_on_units_and_are_one_at_the_boundary():
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    sides = np.array([[0, 1], [1, 2], [2, 3], [3, 0]])
    far = np.array([0.0, 0.5, 3.0])
    one = geometry.layers(far, square, sides)
    other = geometry.layers(1e3 * far, 1e3 * square, sides)
    for name in ("wide", "thin"):
        assert_allclose(one[name], other[name], rtol=1e-12)
        assert one[name][0] == 1
        assert np.all(np.diff(one[name]) < 0)
    assert_allclose(one["wide"], [1, 1 / 2, 1 / 7])
    with value_error("positive extent"):
        geometry.layers(far, square, sides[:0])
