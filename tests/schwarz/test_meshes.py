"""Partitions of meshes and clouds, and their overlap, against loops over sets."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest
import scipy.spatial
from numpy.testing import assert_allclose, assert_array_equal

from opjax import schwarz
from tests import refused
from tests.schwarz import test_covers as covers


def triangulation(num_points, dimension=2, seed=0):
    points = np.random.default_rng(seed).uniform(size=(num_points, dimension))
    return points, scipy.spatial.Delaunay(points).simplices


def edges_of(simplices):
    pairs = itertools.combinations(range(simplices.shape[1]), 2)
    edges = np.concatenate([simplices[:, pair] for pair in pairs])
    return np.unique(np.sort(edges, axis=1), axis=0)


def grid_edges(shape):
    points = list(np.ndindex(*shape))
    pairs = itertools.combinations(range(len(points)), 2)
    return np.array([p for p in pairs if math.dist(*(points[i] for i in p)) == 1])


def path_edges(n):
    return np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)


def cut(labels, edges):
    """The number of edges between different parts."""
    return np.count_nonzero(labels[edges[:, 0]] != labels[edges[:, 1]])


def sets_of(cover):
    return [set(i[:m]) for i, m in zip(cover.indices, cover.sizes, strict=True)]


# partitions


def bisected(points, sizes, indices, first=0):
    """Recursive coordinate bisection, one call for every part of more than one."""
    if len(sizes) == 1:
        return dict.fromkeys(indices, first)
    lengths = [
        np.ptp([points[i][axis] for i in indices]) for axis in range(len(points[0]))
    ]
    axis = lengths.index(max(lengths))
    ordered = sorted(indices, key=lambda i: (points[i][axis], i))
    half = len(sizes) // 2
    end = sum(sizes[:half])
    left = bisected(points, sizes[:half], sorted(ordered[:end]), first)
    right = bisected(points, sizes[half:], sorted(ordered[end:]), first + half)
    return left | right


COUNTS = [(1, 1), (7, 7), (10, 3), (64, 4), (100, 6), (101, 13)]


@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize(("n", "s"), COUNTS)
def test_points_are_bisected_along_the_longest_axis(n, s, dimension, rng):
    lengths = np.array([1.0, 3, 2])[:dimension]
    points = lengths * rng.integers(0, 8, size=(n, dimension)) / 8  # with ties
    sizes = [len(part) for part in np.array_split(np.arange(n), s)]
    expected = bisected(points, sizes, range(n))
    actual = schwarz.partition_points(points, num_subdomains=s)
    assert_array_equal(actual, [expected[i] for i in range(n)])


@pytest.mark.parametrize(("n", "s"), COUNTS)
def test_parts_of_points_and_of_graphs_differ_by_one_point(n, s, rng):
    points = rng.uniform(size=(n, 2))
    edges = rng.integers(0, n, size=(2 * n, 2))  # in several components, with loops
    for labels in (
        schwarz.partition_points(points, num_subdomains=s),
        schwarz.partition_graph(edges, num_points=n, num_subdomains=s),
    ):
        sizes = np.bincount(labels)
        assert len(sizes) == s
        assert np.ptp(sizes) <= 1


def test_four_parts_of_a_square_are_its_quadrants():
    x = np.arange(8) / 8
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    labels = schwarz.partition_points(points, num_subdomains=4).reshape(8, 8)
    quadrants = np.kron([[0, 1], [2, 3]], np.ones((4, 4)))
    assert_array_equal(labels, quadrants)


def test_the_order_of_distinct_points_does_not_matter(rng):
    points = rng.uniform(size=(50, 3))
    order = rng.permutation(50)
    labels = schwarz.partition_points(points, num_subdomains=7)
    permuted = schwarz.partition_points(points[order], num_subdomains=7)
    assert_array_equal(permuted, labels[order])


def test_equal_points_are_cut_by_their_index():
    labels = schwarz.partition_points(np.zeros((6, 2)), num_subdomains=3)
    assert_array_equal(labels, [0, 0, 1, 1, 2, 2])


def test_a_path_is_cut_into_intervals(rng):
    names = rng.permutation(20)
    labels = schwarz.partition_graph(
        names[path_edges(20)], num_points=20, num_subdomains=5
    )
    along = labels[names]
    assert np.count_nonzero(np.diff(along)) == 4


def test_the_order_and_direction_of_edges_do_not_matter(rng):
    _, triangles = triangulation(100)
    edges = edges_of(triangles)
    turned = rng.permutation(np.concatenate([edges, edges[::3]]))[:, ::-1]
    labels, again = (
        schwarz.partition_graph(e, num_points=100, num_subdomains=6)
        for e in (edges, turned)
    )
    assert_array_equal(labels, again)


def test_components_of_equal_size_stay_whole():
    component = np.arange(24) % 3  # three interleaved grids of 2 x 4 points
    edges = np.concatenate([3 * grid_edges((2, 4)) + c for c in range(3)])
    labels = schwarz.partition_graph(edges, num_points=24, num_subdomains=3)
    assert len({*zip(component, labels, strict=True)}) == 3


def test_points_without_edges_are_shared_out():
    edges = np.zeros((0, 2), int)
    labels = schwarz.partition_graph(edges, num_points=7, num_subdomains=3)
    assert_array_equal(np.bincount(labels), [3, 2, 2])


@pytest.mark.parametrize("dimension", [2, 3])
def test_partitions_cut_few_edges(dimension):
    n, s = 2000, 8
    points, simplices = triangulation(n, dimension)
    edges = edges_of(simplices)
    by_points = schwarz.partition_points(points, num_subdomains=s)
    by_graph = schwarz.partition_graph(edges, num_points=n, num_subdomains=s)
    assert cut(by_points, edges) < 0.3 * len(edges)
    assert cut(by_graph, edges) < 1.25 * cut(by_points, edges)


# overlap


def grown(labels, overlap, near):
    """Adds to every part the points near one of its own, `overlap` times."""
    parts = [{*np.flatnonzero(labels == i)} for i in range(max(labels) + 1)]
    for _ in range(overlap):
        parts = [p | {b for b in range(len(labels)) if near(p, b)} for p in parts]
    return parts


@pytest.mark.parametrize("overlap", [0, 1, 3])
@pytest.mark.parametrize("dimension", [2, 3])
def test_edges_add_layers_of_neighbours(overlap, dimension):
    _, simplices = triangulation(60, dimension)
    edges = edges_of(simplices)
    labels = schwarz.partition_graph(edges, num_points=60, num_subdomains=5)
    neighbours = {i: set() for i in range(60)}
    for a, b in edges:
        neighbours[a].add(b)
        neighbours[b].add(a)
    expected = grown(labels, overlap, lambda part, b: part & neighbours[b])
    actual = schwarz.partition_cover(labels, overlap=overlap, edges=edges)
    assert sets_of(actual) == expected


@pytest.mark.parametrize("overlap", [0, 0.1, 0.35, 5.0])
@pytest.mark.parametrize("dimension", [1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mesh_points_add_all_within_a_distance(overlap, dimension, dtype, rng):
    points = rng.uniform(size=(60, dimension)).astype(dtype)
    labels = rng.permutation(np.arange(60) % 4)  # parts need not be compact

    def near(part, b):
        return any(math.dist(points[a], points[b]) <= overlap for a in part)

    actual = schwarz.partition_cover(labels, overlap=overlap, mesh_points=points)
    assert sets_of(actual) == grown(labels, 1, near)


def test_a_point_at_just_the_distance_is_inside():
    points = np.arange(40)[:, None] / 10  # distances are rounded
    labels = np.arange(40) // 10
    cover = schwarz.partition_cover(labels, overlap=0.1, mesh_points=points)
    distance = np.abs(points - points.T)
    for number, part in enumerate(sets_of(cover)):
        inside = (distance[labels == number] <= 0.1).any(axis=0)
        assert part == {*np.flatnonzero(inside)}


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_a_path_in_intervals_is_the_cover_by_boxes(overlap):
    expected = schwarz.box_cover(22, 4, overlap=overlap)
    points = np.arange(22.0)[:, None]
    labels = schwarz.partition_points(points, num_subdomains=4)
    for mesh in ({"edges": path_edges(22)}, {"mesh_points": points}):
        actual = schwarz.partition_cover(labels, overlap=overlap, **mesh)
        assert_array_equal(actual.indices, expected.indices)
        assert_array_equal(actual.weights, expected.weights)


@pytest.mark.parametrize("dimension", [2, 3])
@pytest.mark.parametrize("by", ["edges", "mesh_points"])
def test_partition_of_unity_sums_to_the_identity_on_meshes(dimension, by):
    n = 80
    points, simplices = triangulation(n, dimension)
    edges = edges_of(simplices)
    labels = schwarz.partition_points(points, num_subdomains=6)
    overlap, mesh = {"edges": (2, edges), "mesh_points": (0.2, points)}[by]
    cover = schwarz.partition_cover(labels, overlap=overlap, **{by: mesh})
    sets = [sorted(part) for part in sets_of(cover)]
    assert sum(map(len, sets)) > n
    weights = [np.diag(w[: len(i)]) for w, i in zip(cover.weights, sets, strict=True)]
    matrices = zip(covers.restrictions(sets, n), weights, strict=True)
    identity = sum(r.T @ d @ r for r, d in matrices)
    assert_allclose(identity, np.eye(n), rtol=1e-14, atol=1e-14)


def test_labels_of_another_partitioner_may_have_any_integer_dtype():
    labels = np.array([1, 0, 0, 1, 2, 2], np.uint8)
    edges = path_edges(6).astype(np.uint16)
    cover = schwarz.partition_cover(labels, overlap=1, edges=edges)
    assert sets_of(cover) == [{0, 1, 2, 3}, {0, 1, 2, 3, 4}, {3, 4, 5}]


def test_large_clouds_take_memory_for_their_points_only(rng):
    n = 100_000
    points = rng.uniform(size=(n, 3))
    tracemalloc.start()
    labels = schwarz.partition_points(points, num_subdomains=16)
    cover = schwarz.partition_cover(labels, overlap=0.01, mesh_points=points)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert cover.sizes.sum() < 1.5 * n
    assert peak < 500 * n  # bytes: a few dozen numbers a point


# errors

POINTS, EDGES, LABELS = np.ones((6, 2)), path_edges(6), np.array([0, 0, 1, 1, 2, 2])
NAN = np.where(np.arange(6)[:, None] == 3, np.nan, POINTS)
test_bad_input_is_named_in_the_error = refused.calls(
    (
        lambda: schwarz.partition_points(POINTS, num_subdomains=7),
        "num_subdomains=7 must be between 1 and the number of points, 6",
    ),
    (
        lambda: schwarz.partition_points(POINTS, num_subdomains=0),
        "num_subdomains=0 must be between 1",
    ),
    (
        lambda: schwarz.partition_points(POINTS[:, 0], num_subdomains=2),
        r"mesh_points has shape \(6,\), expected \(n, p\)",
    ),
    (
        lambda: schwarz.partition_points(NAN, num_subdomains=2),
        r"1 of 6 mesh_points are not finite, the first ones are \[3\]",
    ),
    (
        lambda: schwarz.partition_points(POINTS.astype(int), num_subdomains=2),
        "mesh_points has dtype int64",
    ),
    (
        lambda: schwarz.partition_graph(EDGES, num_points=6, num_subdomains=7),
        "num_subdomains=7 must be between 1 and the number of points, 6",
    ),
    (
        lambda: schwarz.partition_graph(EDGES, num_points=5, num_subdomains=2),
        "edges contains point 5, but points are numbered from 0 to 4",
    ),
    (
        lambda: schwarz.partition_graph(EDGES - 1, num_points=6, num_subdomains=2),
        "edges contains point -1, ",
    ),
    (
        lambda: schwarz.partition_graph(EDGES.T, num_points=6, num_subdomains=2),
        r"edges has shape \(2, 5\), expected \(e, 2\)",
    ),
    (
        lambda: schwarz.partition_graph(EDGES * 1.0, num_points=6, num_subdomains=2),
        "edges has dtype float64, expected integers",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=1),
        "either edges.* or mesh_points.*got neither",
    ),
    (
        lambda: schwarz.partition_cover(
            LABELS, overlap=1, edges=EDGES, mesh_points=POINTS
        ),
        "either edges.* or mesh_points.*got both",
    ),
    (
        lambda: schwarz.partition_cover([0, 1, 2, 4, 4, 2], overlap=1, edges=EDGES),
        "Subdomain 3 is empty: labels contain 4 numbers up to 4",
    ),
    (
        lambda: schwarz.partition_cover(LABELS + 1, overlap=1, edges=EDGES),
        "Subdomain 0 is empty",
    ),
    (
        lambda: schwarz.partition_cover([0, 10**15], overlap=1, edges=[[0, 1]]),
        "Subdomain 1 is empty",
    ),
    (
        lambda: schwarz.partition_cover(LABELS - 1, overlap=1, edges=EDGES),
        "labels contains -1; subdomains are numbered from 0",
    ),
    (
        lambda: schwarz.partition_cover(LABELS[:, None], overlap=1, edges=EDGES),
        r"labels has shape \(6, 1\)",
    ),
    (
        lambda: schwarz.partition_cover(LABELS[:0], overlap=1, edges=EDGES),
        r"labels has shape \(0,\)",
    ),
    (
        lambda: schwarz.partition_cover(LABELS * 1.0, overlap=1, edges=EDGES),
        "labels has dtype float64, expected integers",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=1, edges=EDGES * 1.0),
        "edges has dtype float64, expected integers",
    ),
    (
        lambda: schwarz.partition_cover(LABELS[:5], overlap=1, edges=EDGES),
        "edges contains point 5, but points are numbered from 0 to 4",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=-1, edges=EDGES),
        "overlap=-1 must be non-negative",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=np.nan, mesh_points=POINTS),
        "overlap=nan must be non-negative and finite",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=0.5, edges=EDGES),
        "overlap=0.5 is a number of layers.*pass mesh_points",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=1, mesh_points=POINTS[1:]),
        r"points.*labels \(6,\), mesh_points \(5, 2\)",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=1, mesh_points=NAN),
        "1 of 6 mesh_points are not finite",
    ),
    (
        lambda: schwarz.partition_cover(LABELS, overlap=1, mesh_points=EDGES),
        "mesh_points has dtype int64",
    ),
)
