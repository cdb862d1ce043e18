"""Hats with nodes on the boundary: against interpolation, and their sum."""

import functools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import schwarz
from tests.schwarz.test_covers import dense

HATS = {
    "at points": ((13,), (4,)),
    "between points": ((10,), (4,)),
    "at all points": ((6,), (6,)),
    "at the ends": ((5,), (2,)),
    "2-D": ((7, 9), (3, 2)),
    "3-D": ((4, 5, 6), (2, 3, 6)),
}


@pytest.fixture(params=HATS)
def case(request):
    return HATS[request.param]


def test_partition_hats_interpolate_from_a_uniform_grid(case):
    shape, counts = case
    axes = []
    for n, count in zip(shape, counts, strict=True):
        nodes = np.linspace(0, 1, count)
        unit = np.eye(count)
        x = np.linspace(0, 1, n)
        axes.append(np.stack([np.interp(x, nodes, e) for e in unit], axis=1))
    actual = schwarz.partition_hats(shape, counts)
    assert actual.num_subdomains == np.prod(counts)
    expected = functools.reduce(np.kron, axes)
    assert_allclose(dense(actual), expected, rtol=1e-12, atol=1e-14)


def test_partition_hats_sum_to_one_everywhere(case):
    total = dense(schwarz.partition_hats(*case)).sum(axis=1)
    assert_allclose(total, 1, rtol=1e-14)


def test_their_space_contains_multilinear_functions():
    hats = schwarz.partition_hats((7, 9), (3, 4))
    x, y = np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 1, 9), indexing="ij")
    at_nodes = np.multiply.outer(1 + np.linspace(0, 1, 3), np.linspace(0, 1, 4) - 3)
    actual = schwarz.coarse_prolong(at_nodes.reshape(-1, 1), hats)
    assert_allclose(actual[:, 0], ((1 + x) * (y - 3)).ravel(), rtol=1e-13)


def test_a_number_stands_for_one_axis():
    for number, axis in zip(
        jax.tree.leaves(schwarz.partition_hats(12, 3)),
        jax.tree.leaves(schwarz.partition_hats((12,), (3,))),
        strict=True,
    ):
        assert_array_equal(number, axis)


@pytest.mark.parametrize(
    ("shape", "counts", "message"),
    [
        (
            (8, 8),
            2,
            r"grid_shape=\(8, 8\) and num_hats=\(2,\) must have the same number",
        ),
        (4, 5, r"num_hats=\(5,\) must be between 1 and.*grid_shape=\(4,\)"),
        ((8, 8), (2, 1), r"num_hats=\(2, 1\) must be at least 2 per axis"),
    ],
)
def test_impossible_hats_are_refused(shape, counts, message):
    with pytest.raises(ValueError, match=message):
        schwarz.partition_hats(shape, counts)
