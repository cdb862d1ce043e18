"""Fields at sensors: linear fields, another interpolation, gradients, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay

from opjax.geometry import sensors
from tests.refused import value_error

SQUARE = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])


@pytest.mark.parametrize("dim", [2, 3])
def test_values_are_those_of_scipy(dim, rng):
    mesh = Delaunay(rng.uniform(size=(30, dim)))
    places = mesh.points[mesh.simplices].mean(axis=1)[:9] * 0.9
    places += 0.1 * mesh.points[mesh.simplices[:9, 0]]
    values = rng.normal(size=(30, 2))
    found = sensors(places, mesh.points, mesh.simplices)
    expected = LinearNDInterpolator(mesh, values)(places)
    assert_allclose(found(values), expected, atol=1e-12)


def test_linear_fields_are_exact_on_quadrilaterals_and_at_points(rng):
    places = np.concatenate([rng.uniform(size=(8, 2)) * [2, 1], SQUARE])
    found = sensors(places, SQUARE, [[0, 1, 2, 3]])
    assert_allclose(found(SQUARE), places, atol=1e-12)
    assert_allclose(found.weights.sum(axis=1), 1)


def test_derivatives_are_the_weights(rng):
    found = sensors(np.array([[0.5, 0.25]]), SQUARE, [[0, 1, 2], [0, 2, 3]])
    slope = jax.jacobian(lambda v: found(v)[0, 0])(jnp.asarray(SQUARE[:, :1]))
    expected = np.zeros(4)
    expected[found.corners[0]] = found.weights[0]
    assert_allclose(slope[:, 0], expected)


def test_flat_cells_hold_no_sensor():
    cells = [[0, 1, 1], [0, 1, 2], [0, 2, 3]]
    found = sensors(np.array([[1.0, 0.0]]), SQUARE, cells)
    assert_allclose(found(SQUARE), [[1, 0]], atol=1e-12)


def test_a_hole_is_outside():
    ring = np.concatenate([3 * SQUARE - [3, 1.5], SQUARE - [1, 0.5]])
    cells = [[i, (i + 1) % 4, 4 + (i + 1) % 4, 4 + i] for i in range(4)]
    with value_error(r"Sensor 1 at \(0, 0\) is outside the mesh"):
        sensors(np.array([[-2.0, 0.0], [0.0, 0.0]]), ring, cells)


@pytest.mark.parametrize(
    ("places", "cells", "words"),
    [
        (
            [[3.0, 0.5]],
            [[0, 1, 2]],
            r"extends from \(0, 0\) to \(2, 1\).*\(2, 0\), is 1.1",
        ),
        ([[np.nan, 0.5]], [[0, 1, 2]], "outside the mesh"),
        ([[0.5, 0.5, 0.0]], [[0, 1, 2]], r"shape \(1, 3\), but mesh_points \(4, 2\)"),
        ([[0.5, 0.5]], [[0, 1]], "cells with 2 corners in 2 dimensions"),
    ],
)
def test_bad_input_is_refused_with_both_sides(places, cells, words):
    with value_error(words):
        sensors(np.asarray(places), SQUARE, cells)
