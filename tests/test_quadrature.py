"""Quadrature weights against written-out rules, exactness and orders of convergence."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import quadrature
from tests import oracles, refused
from tests.selection import by_day

AXES = {
    "trapezoid": oracles.trapezoid_axis,
    "midpoint": oracles.cell_axis,
    "periodic": oracles.cell_axis,
}


def nodes(n, length, rule):
    """Returns the mesh points of one axis under a rule."""
    if rule == "trapezoid":
        return np.linspace(0, length, n)
    return length * (np.arange(n) + (0.5 if rule == "midpoint" else 0)) / n


def integral(function, n, rule):
    return opjax.grid_weights((n,), rule=rule) @ function(nodes(n, 1.0, rule))


@pytest.mark.parametrize("rule", quadrature.RULES)
@pytest.mark.parametrize(
    ("shape", "lengths"), [((5,), (2.0,)), ((3, 4), (1.0, 0.5)), ((2, 3, 4), (1, 2, 3))]
)
def test_grid_weights_are_products_of_axis_weights(shape, lengths, rule):
    axes = [AXES[rule](n, length) for n, length in zip(shape, lengths, strict=True)]
    expected = functools.reduce(np.multiply.outer, axes).ravel()  # row-major
    actual = opjax.grid_weights(shape, lengths=lengths, rule=rule)
    assert_allclose(actual, expected, rtol=1e-12)
    assert_allclose(np.sum(actual), np.prod(lengths), rtol=1e-12)


@pytest.mark.parametrize("rule", quadrature.RULES)
def test_grid_weights_transform_and_keep_the_dtype(rule):
    def scaled(values):
        return opjax.grid_weights((3, 2), rule=rule, dtype=values.dtype) * values

    oracles.check_transforms(scaled, (np.arange(1.0, 7),))


def test_grid_weights_default_to_the_unit_box_and_the_trapezoid():
    assert_allclose(opjax.grid_weights((3,)), [0.25, 0.5, 0.25])


@pytest.mark.parametrize("rule", ["trapezoid", "midpoint"])
def test_grid_weights_integrate_linear_functions_exactly(rule):
    shape, lengths = (4, 5), (2.0, 3.0)
    x, y = np.meshgrid(nodes(4, 2.0, rule), nodes(5, 3.0, rule), indexing="ij")
    weights = opjax.grid_weights(shape, lengths=lengths, rule=rule)
    actual = weights @ (1 + 2 * x - 3 * y).ravel()
    assert_allclose(actual, 6 + 2 * 6 - 3 * 9, rtol=1e-12)


def test_periodic_weights_integrate_trigonometric_functions_exactly_below_aliasing():
    n = 8
    for j in range(n):
        wave = integral(lambda x, j=j: np.cos(2 * np.pi * j * x), n, "periodic")
        assert_allclose(wave, float(j == 0), atol=1e-14)
    aliased = integral(lambda x: np.cos(2 * np.pi * n * x), n, "periodic")
    assert_allclose(aliased, 1.0)


@pytest.mark.parametrize(
    ("rule", "order"), [("trapezoid", 2), ("midpoint", 2), ("periodic", 1)]
)
def test_grid_weights_converge_at_their_order(rule, order):
    errors = [abs(integral(np.exp, n, rule) - (np.e - 1)) for n in (16, 32)]
    assert_allclose(np.log2(errors[0] / errors[1]), order, atol=0.15)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ((3,), {"rule": "simpson"}, "rule='simpson'.*'midpoint', 'trapezoid'"),
        ((3, 4), {"lengths": (1.0,)}, r"lengths=\(1.0,\).*one entry per axis"),
        ((3,), {"lengths": (0.0,)}, r"lengths=\(0.0,\) must be positive"),
        ((3,), {"lengths": (np.nan,)}, r"lengths=\(nan,\) must be positive"),
        ((3, 1), {"rule": "trapezoid"}, r"shape=\(3, 1\): trapezoid needs at least 2"),
        ((0,), {"rule": "periodic"}, r"grid_shape=\(0,\): periodic needs at least 1"),
    ],
)  # fmt: skip
def test_bad_grids_are_named_in_the_error(shape, options, message):
    with pytest.raises(ValueError, match=message):
        opjax.grid_weights(shape, **options)


def test_integer_grid_weights_are_refused():
    with pytest.raises(TypeError, match="dtype=int64 must be a floating-point"):
        opjax.grid_weights((3,), dtype=int)


@pytest.mark.parametrize("dimension", by_day([1, 2, 3], [2]))
def test_scattered_weights_are_neighbour_distances_to_the_dimension(rng, dimension):
    points = rng.uniform(size=(12, dimension))

    def function(points):
        return opjax.scattered_weights(points, num_neighbors=3, volume=2.0)

    def oracle(points):
        return oracles.scattered_weights(points, 3, 2.0)

    oracles.check(function, oracle, (points,), step=1e-5, rtol=1e-6)
    oracles.check_transforms(function, (points,))


@pytest.mark.nightly
def test_scattered_weights_do_not_depend_on_the_batch_of_the_loop(rng):
    points = rng.uniform(size=(300, 2))  # more than one batch, the last one smaller
    expected = oracles.scattered_weights(points, 8, 1.0)
    assert_allclose(opjax.scattered_weights(points), expected, rtol=1e-10)
    assert_allclose(np.sum(opjax.scattered_weights(points)), 1, rtol=1e-12)


def test_scattered_weights_are_equal_inside_a_uniform_grid():
    x = np.arange(9.0)
    points = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    weights = np.reshape(opjax.scattered_weights(points, num_neighbors=8), (9, 9))
    inside = weights[1:-1, 1:-1]
    assert_allclose(inside, np.full((7, 7), inside[0, 0]), rtol=1e-12)
    assert weights[0, 0] > inside[0, 0]  # the documented error: corners count more


@pytest.mark.nightly
def test_scattered_weights_beat_equal_weights_on_a_graded_cloud(rng):
    points = rng.uniform(size=(2000, 2)) ** 2  # dense near the axes
    values = np.exp(-points[:, 0]) * np.cos(points[:, 1])
    exact = (1 - np.exp(-1)) * np.sin(1)
    equal = abs(np.mean(values) - exact)
    scattered = abs(opjax.scattered_weights(points) @ values - exact)
    assert scattered < equal / 5


@pytest.mark.parametrize(
    ("points", "options", "error", "message"),
    [
        (np.ones((8, 2)), {}, ValueError, r"mesh_points \(8, 2\).*num_neighbors=8"),
        (np.ones((9, 2)), {"volume": 0.0}, ValueError, "volume=0.0 must be positive"),
        (np.ones((9, 2)), {"num_neighbors": 0}, ValueError, "num_neighbors=0"),
        (np.ones((9, 2), int), {}, TypeError, "mesh_points has dtype int64"),
        (np.ones(9), {}, ValueError, r"mesh_points has shape \(9,\)"),
    ],
)
def test_bad_clouds_are_named_in_the_error(points, options, error, message):
    with pytest.raises(error, match=message):
        opjax.scattered_weights(points, **options)


@pytest.fixture
def square():
    """Returns a triangulation of the unit square with an irregular inner vertex."""
    points = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0.3, 0.6]], float)
    triangles = np.array([[0, 1, 4], [1, 2, 4], [2, 3, 4], [3, 0, 4]])
    return points, triangles


@pytest.mark.parametrize("dimension", [2, 3])
def test_weights_of_triangles_are_thirds_of_areas(square, rng, dimension):
    points, triangles = rng.normal(size=(5, dimension)), square[1]
    expected = oracles.triangle_weights(points, triangles)
    actual = opjax.cell_weights(points, triangles)
    assert_allclose(actual, expected, rtol=1e-12)


CELLS = {
    "lines": ([[0.0], [0.5], [2.0]], [[0, 1], [1, 2]], 2.0),
    "triangles": ([[0.0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [2, 3, 0]], 1.0),
    "quadrilaterals": ([[0.0, 0], [2, 0], [3, 1], [0, 1]], [[0, 1, 2, 3]], 2.5),
    "tetrahedra": (np.eye(4, 3)[[3, 0, 1, 2]], [[0, 1, 2, 3]], 1 / 6),
}


@pytest.mark.parametrize("kind", CELLS)
def test_weights_of_cells_sum_to_the_volume_and_integrate_linear_functions(kind, rng):
    points, cells, volume = CELLS[kind]
    points = np.vstack([points, np.full(np.shape(points)[1], np.nan)])  # in no cell
    weights = opjax.cell_weights(points, np.array(cells))
    assert_allclose(np.sum(weights), volume, rtol=1e-12)
    assert weights[-1] == 0
    if kind != "quadrilaterals":
        means = points[np.array(cells)].mean(axis=1)
        volumes = [opjax.cell_weights(points, np.array([c])).sum() for c in cells]
        assert_allclose(weights[:-1] @ points[:-1], volumes @ means, rtol=1e-12)


def test_weights_do_not_depend_on_orientation_or_rotation(square, rng):
    points, triangles = square
    expected = opjax.cell_weights(points, triangles)
    flipped = opjax.cell_weights(points, triangles[:, ::-1])
    assert_allclose(flipped, expected, rtol=1e-12)
    rotation, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    in_space = np.pad(points, ((0, 0), (0, 1))) @ rotation.T + rng.normal(size=3)
    rotated = opjax.cell_weights(in_space, triangles)
    assert_allclose(rotated, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("points", "cells", "error", "message"),
    [
        (np.ones((3, 2), int), np.ones((1, 3), int), TypeError, "points has dtype"),
        (np.ones((3, 2)), np.ones((1, 3)), TypeError, "cells have dtype float64"),
        (np.ones((3, 2)), np.ones((1, 5), int), ValueError, "5 corners in 2 dim"),
        (np.ones((3, 2)), np.ones(3, int), ValueError, r"cells has shape \(3,\)"),
        (np.ones((3, 2)), np.array([[0, 1, 3]]), ValueError, "contain point 3"),
    ],
)  # fmt: skip
def test_bad_meshes_are_named_in_the_error(points, cells, error, message):
    with pytest.raises(error, match=message):
        opjax.cell_weights(points, cells)


def test_points_of_positive_weight_count():
    weights = np.array([0.5, 0.0, -0.0, 1e-300])
    assert_array_equal(quadrature.active(weights), [True, False, False, True])
    values = jnp.array([[1.0, 2], [np.nan, 3], [4, np.inf], [5, 6]])
    expected = [[1, 2], [0, 0], [0, 0], [5, 6]]
    assert_array_equal(quadrature.select(values, weights), expected)
    assert_array_equal(quadrature.select(values[:, 0], weights), [1, 0, 0, 5])
    assert quadrature.select(values, None) is values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weighted_means_are_those_of_numpy(rng, dtype):
    values, weights = rng.uniform(0.1, 1, size=(2, 6)).astype(dtype)
    found = jax.jit(quadrature.weighted_mean)(values, weights)
    assert found.dtype == dtype
    expected = np.average(values, weights=weights)
    assert_allclose(found, expected, rtol=10 * np.finfo(dtype).eps)
    mean = quadrature.weighted_mean(values)
    assert_allclose(mean, np.mean(values), rtol=10 * np.finfo(dtype).eps)


def test_points_without_weight_matter_neither_to_a_mean_nor_to_its_gradient():
    weights = jnp.asarray([0.5, 1.5, 0.0])
    value_and_gradient = jax.jit(jax.value_and_grad(quadrature.weighted_mean))
    mean, gradient = value_and_gradient(jnp.asarray([1.0, 2.0, np.nan]), weights)
    assert float(mean) == 1.75
    assert_allclose(gradient, [0.25, 0.75, 0])
    assert float(quadrature.weighted_mean(jnp.ones(3), jnp.zeros(3))) == 0
    batched = jax.jit(jax.vmap(quadrature.weighted_mean))(
        jnp.ones((2, 3)), jnp.ones((2, 3))
    )
    assert_allclose(batched, [1, 1])


def test_weights_of_other_points_are_refused():
    refused.each(
        (
            lambda: quadrature.weighted_mean(jnp.ones(3), jnp.ones(2)),
            r"values \(3,\), quadrature_weights \(2,\)",
        ),
        (lambda: quadrature.weighted_mean(jnp.arange(3)), "values has dtype int"),
    )


@pytest.mark.nightly
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_copies_of_a_point_share_the_weight_of_their_place(rng, dimension):
    points = rng.normal(size=(40, dimension))
    copies = np.concatenate([points, np.repeat(points[:1], 9, axis=0)])
    weights = np.asarray(opjax.scattered_weights(copies))
    assert (weights > 0).all()
    assert_allclose(weights.sum(), 1, rtol=1e-5)
    together = weights[np.all(copies == points[0], axis=1)].sum()
    assert together < 10 * weights.mean()  # not that of ten points
    slope = jax.jit(jax.grad(lambda x: opjax.scattered_weights(x)[3]))(copies)
    assert np.isfinite(slope).all()


def test_points_in_one_place_have_equal_weights():
    weights = opjax.scattered_weights(np.full((20, 2), 0.3), volume=4.0)
    assert_allclose(weights, 0.2, rtol=1e-6)


def _surface(n=5):
    """Quads of a warped surface over the unit square, and its area by triangles."""
    x, y = np.meshgrid(*[np.linspace(0, 1, n)] * 2, indexing="ij")
    points = np.stack([x, y, 0.2 * x * y], -1).reshape(-1, 3)
    i = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).reshape(-1)
    quads = np.stack([i, i + n, i + n + 1, i + 1], -1)
    ways = [(0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3)]
    area = sum(opjax.cell_weights(points, quads[:, way]).sum() for way in ways) / 2
    return points, quads, area


@pytest.mark.parametrize("height", [0, 1, 3])
def test_quads_in_space_have_areas_for_weights(height):
    points, quads, area = _surface()
    weights = opjax.cell_weights(points, quads)
    assert_allclose(weights.sum(), area, rtol=1e-12)
    assert quadrature.kind_of_four(points, quads) == "quad"
    points[:, 2] *= height
    assert opjax.cell_weights(points, quads).sum() >= 1 - 1e-12
    padded = np.concatenate([quads, [[0, 5, 6, 6]]])  # a triangle
    assert quadrature.kind_of_four(points, padded) == "quad"


def test_cells_of_four_corners_that_may_be_of_two_kinds_are_refused():
    box = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], float)
    tetrahedra = np.array([[0, 1, 3, 7], [0, 1, 7, 5]])  # share a face
    assert quadrature.kind_of_four(box, tetrahedra) == "tetra"
    assert_allclose(opjax.cell_weights(box, tetrahedra).sum(), 1 / 3)
    warped = np.array([[0.0, 0, 0], [1, 0, 0.02], [1, 1, 0], [0, 1, 0.01]])
    refused.each(
        (
            lambda: opjax.cell_weights(warped, np.arange(4)[None]),
            "tetrahedra or quadrilaterals of a surface",
        ),
        (
            lambda: quadrature.kind_of_four(warped[:, :2], np.arange(4)[None]),
            "expected points in 3 dimensions",
        ),
    )


@pytest.mark.parametrize("first", range(4))
def test_weights_of_quads_that_are_not_convex_sum_to_their_area(first):
    points = np.array([[0.0, 0], [2, 0.8], [0, 2], [0.5, 0.8]])
    area = 2 - 0.5  # the triangle without its dent
    quad = np.roll(np.arange(4), first)[None]
    for cells in (quad, quad[:, ::-1]):
        weights = opjax.cell_weights(points, cells)
        assert_allclose(weights.sum(), area)
        assert (weights > 0).all()
        assert_allclose(
            weights, opjax.cell_weights(points, np.array([[0, 1, 3], [1, 2, 3]]))
        )
    raised = np.pad(points, [(0, 0), (0, 1)])
    assert_allclose(opjax.cell_weights(raised, quad).sum(), area)
