import numpy as np
import pytest
import scipy.interpolate
from numpy.testing import assert_allclose

from opjax.problems import splines
from tests.refused import value_error


@pytest.mark.parametrize("num_points", [4, 5, 13, 64])
@pytest.mark.parametrize("to_nodes", [True, False])
def test_matrix_is_the_not_a_knot_spline_of_scipy(num_points, to_nodes, rng):
    cells = (np.arange(num_points) + 0.5) / num_points
    nodes = np.linspace(0, 1, num_points)
    start, end = (cells, nodes) if to_nodes else (nodes, cells)
    values = rng.normal(size=num_points)
    expected = scipy.interpolate.CubicSpline(start, values, bc_type="not-a-knot")(end)
    actual = splines.spline_matrix(num_points, to_nodes=to_nodes) @ values
    assert_allclose(actual, expected, rtol=1e-11, atol=1e-11)


def test_cubic_polynomials_pass_unchanged_in_both_directions():
    def polynomial(x):
        return np.outer(1 - x + 4 * x**3, 2 * x**2 - 3 * x**3)

    cells = polynomial((np.arange(9) + 0.5) / 9)
    nodes = polynomial(np.linspace(0, 1, 9))
    assert_allclose(splines.cells_to_nodes(cells), nodes, atol=1e-13)
    assert_allclose(splines.nodes_to_cells(nodes), cells, atol=1e-13)


def test_dtype_is_kept():
    for carry in (splines.cells_to_nodes, splines.nodes_to_cells):
        values = carry(np.ones((6, 6), np.float32))
        assert values.dtype == np.float32
        assert_allclose(values, 1, rtol=1e-6)


def test_too_few_points_are_named_in_the_error():
    with value_error("at least four points, but there are 3"):
        splines.cells_to_nodes(np.ones((3, 3)))


def test_integers_and_vectors_are_refused():
    for carry in (splines.cells_to_nodes, splines.nodes_to_cells):
        with pytest.raises(TypeError, match="values has dtype int"):
            carry(np.ones((6, 6), int))
        with value_error(r"values has shape \(6,\)"):
            carry(np.ones(6))
