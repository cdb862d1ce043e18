"""Interpolation between grids: values, gradients, and what it reproduces."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import interpolate_grid
from tests import oracles
from tests.selection import by_day

PAIRS = [
    ((5,), (8,)),
    ((8,), (5,)),
    ((9,), (5,)),
    ((6,), (1,)),
    ((1,), (4,)),
    ((5, 4), (3, 7)),
    ((6, 6), (6, 4)),
    ((2, 2), (5, 3)),
    ((3, 4, 2), (2, 4, 5)),
]


def weights(r, n, m):
    """Yields the neighbours of new point `r` of an axis and their weights."""
    s = r * (n - 1) / (m - 1) if m > 1 else 0.0
    k = min(math.floor(s + 1e-9), n - 1)
    yield k, 1 - (s - k)
    yield min(k + 1, n - 1), s - k


def interpolated(values, grid_shape, new_shape):
    field = values.reshape(*grid_shape, -1)
    out = np.zeros((*new_shape, values.shape[1]))
    for new in np.ndindex(*new_shape):
        axes = [weights(*a) for a in zip(new, grid_shape, new_shape, strict=True)]
        for corner in itertools.product(*axes):
            indices, factors = zip(*corner, strict=True)
            out[new] += math.prod(factors) * field[indices]
    return out.reshape(-1, values.shape[1])


def nodes(grid_shape):
    axes = [np.linspace(0, 1, n) for n in grid_shape]
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


@pytest.mark.parametrize(("grid_shape", "new_shape"), by_day(PAIRS, PAIRS[::3]))
def test_values_and_gradients_equal_the_sums_over_corners(rng, grid_shape, new_shape):
    def function(values):
        return interpolate_grid(values, grid_shape=grid_shape, new_shape=new_shape)

    def oracle(values):
        return interpolated(values, grid_shape, new_shape)

    args = (rng.normal(size=(math.prod(grid_shape), 2)),)
    oracles.check(function, oracle, args)
    oracles.check_transforms(function, args)


def test_the_gradient_is_the_adjoint(rng):
    u, v = rng.normal(size=(35, 2)), rng.normal(size=(24, 2))

    def there(u):
        return interpolate_grid(u, grid_shape=(5, 7), new_shape=(8, 3))

    back = jax.vjp(there, jnp.asarray(u))[1](jnp.asarray(v))[0]
    assert_allclose(np.sum(there(u) * v), np.sum(u * back), rtol=1e-12)


@pytest.mark.parametrize(
    ("grid_shape", "new_shape"),
    [((4,), (9,)), ((5, 4), (3, 7)), ((3, 4, 2), (5, 3, 4))],
)
def test_multilinear_functions_are_reproduced(grid_shape, new_shape):
    def multilinear(points):
        return np.prod(1 + points * np.arange(2, 2 + points.shape[1]), axis=1)[:, None]

    moved = interpolate_grid(
        multilinear(nodes(grid_shape)), grid_shape=grid_shape, new_shape=new_shape
    )
    assert_allclose(moved, multilinear(nodes(new_shape)), rtol=1e-12)


def test_the_same_grid_changes_nothing(rng):
    values = rng.normal(size=(12, 3))
    same = interpolate_grid(values, grid_shape=(3, 4), new_shape=(3, 4))
    assert_array_equal(same, values)


def test_a_refinement_keeps_the_values_at_the_old_points(rng):
    values = rng.normal(size=(12, 3))
    fine = interpolate_grid(values, grid_shape=(3, 4), new_shape=(7, 10))
    kept = fine.reshape(7, 10, 3)[::3, ::3].reshape(12, 3)
    assert_array_equal(kept, values)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_dtype_is_kept(dtype):
    values = jnp.ones((12, 3), dtype)
    assert interpolate_grid(values, grid_shape=(3, 4), new_shape=(5, 2)).dtype == dtype


@pytest.mark.parametrize(
    ("shape", "grid_shape", "new_shape", "match"),
    [
        ((11, 2), (3, 4), (5, 5), r"values \(11, 2\) must have 12 points"),
        ((12, 2), (3, 4), (5,), "one entry per axis"),
        ((12, 2), (3, 4), (5, 0), "positive on every axis"),
        ((2, 12, 2), (3, 4), (5, 5), r"use `jax\.vmap`"),
    ],
)
def test_mismatched_shapes_are_named(shape, grid_shape, new_shape, match):
    with pytest.raises(ValueError, match=match):
        interpolate_grid(np.ones(shape), grid_shape=grid_shape, new_shape=new_shape)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="values has dtype int"):
        interpolate_grid(np.ones((4, 1), int), grid_shape=(4,), new_shape=(5,))
