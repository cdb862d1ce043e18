"""Attention by random features: exact sums, and convergence to the softmax."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_less

import opjax
from tests import refused
from tests.attention import oracles
from tests.oracles import replaced
from tests.selection import by_day

KERNELS = ("softmax", "relu")
each = pytest.mark.parametrize("kernel", KERNELS)


@pytest.fixture
def directions(rng):
    return rng.normal(size=(6, 4))


def shifts(query, key, directions):
    """The largest projection of every query, and of all keys."""
    scale = query.shape[1] ** -0.25
    return [max(directions @ (scale * q)) for q in query], max(
        max(directions @ (scale * k)) for k in key
    )


def performer(kernel, constants, query, key, value, directions, weights=None):
    """The sums of the docstring, with constant shifts as they are differentiated."""
    weights = np.ones(len(key)) if weights is None else weights
    d = query.shape[1]

    def features(x, shift):
        if kernel == "relu":
            return np.array([max(0, r @ x / d**0.25) + 1e-3 for r in directions])
        energy = x @ x / (2 * math.sqrt(d))
        return np.array(
            [math.exp(r @ x / d**0.25 - energy - shift) + 1e-4 for r in directions]
        )

    query_shifts, key_shift = constants
    rows = []
    for q, shift in zip(query, query_shifts, strict=True):
        phi = features(q, shift)
        e = [
            w * (phi @ features(k, key_shift))
            for w, k in zip(weights, key, strict=True)
        ]
        rows.append(sum(a * v for a, v in zip(e, value, strict=True)) / sum(e))
    return np.array(rows)


def attend(kernel, q, k, v, directions, weights=None):
    return opjax.performer_attention(
        q, k, v, projection_matrix=directions, kernel=kernel, key_weights=weights
    )


@each
@pytest.mark.parametrize("weighted", by_day([False, True], [True]))
def test_values_and_gradients_match_the_oracle(
    points, directions, key_weights, kernel, weighted
):
    args = (*points, directions, *([key_weights] if weighted else []))
    oracle = functools.partial(
        performer, kernel, shifts(points[0], points[1], directions)
    )
    oracles.check_case(functools.partial(attend, kernel), oracle, args)


def at(directions, kernel="softmax"):
    return functools.partial(
        opjax.performer_attention, projection_matrix=directions, kernel=kernel
    )


@each
def test_zero_weights_remove_points(points, directions, key_weights, kernel):
    attention = at(directions, kernel)
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


@each
def test_attention_to_no_point_is_zero(points, directions, kernel):
    oracles.check_all_masked_is_zero(at(directions, kernel), *points)


@each
def test_order_of_points_is_irrelevant(points, directions, key_weights, rng, kernel):
    oracles.check_permutations(at(directions, kernel), *points, key_weights, rng)


@pytest.mark.nightly
def test_refinement_converges_at_the_order_of_the_quadrature(rng):
    # Without the offset, by which the largest key of a mesh would be felt.
    attention = functools.partial(at(rng.normal(size=(6, 2))), offset=0.0)
    oracles.check_refinement(attention)


def test_a_masked_key_far_above_the_others_does_no_harm(points, directions):
    q, k, v = points
    far = k - 1000.0 * np.sign(directions[0])[None, :]
    far[-1] = 0.0

    def energy(k):
        weights = replaced(np.ones(11), -1, 0.0)
        return jnp.sum(at(directions)(q, k, v, key_weights=weights))

    value, gradient = jax.jit(jax.value_and_grad(energy))(far)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))


@pytest.mark.nightly
def test_the_estimate_of_the_softmax_improves_with_features(points):
    small = 0.5 * points[0], 0.5 * points[1], points[2]
    expected = opjax.softmax_attention(*small)

    def error(num_features):
        def one(key):
            directions = opjax.orthogonal_random_features(key, num_features, 4)
            return at(directions)(*small, offset=0.0)

        keys = jax.random.split(jax.random.key(0), 20)
        outputs = jax.jit(jax.vmap(one))(keys)
        return np.sqrt(np.mean((outputs - expected[None]) ** 2))

    errors = [error(r) for r in (32, 512)]
    assert errors[1] < 0.15 * np.std(points[2])
    # Sixteen times the features, a quarter of the error.
    assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.5)


def test_random_features_estimate_the_softmax_kernel_without_bias(rng):
    x, y = 0.7 * rng.normal(size=(2, 3))
    keys = jax.random.split(jax.random.key(1), 4000)
    draw = functools.partial(opjax.orthogonal_random_features, num_features=3, dim=3)
    directions = jax.jit(jax.vmap(draw))(keys)
    energy = 0.5 * (x @ x + y @ y)
    estimates = np.exp(np.asarray(directions) @ (x + y) - energy)
    # Every direction by itself: none of the block is pulled to one side.
    means = estimates.mean(axis=0)
    errors = 4 * estimates.std(axis=0) / math.sqrt(len(keys))
    assert_array_less(np.abs(means - math.exp(x @ y)), errors)


def test_orthogonal_features_are_orthogonal_in_blocks():
    directions = opjax.orthogonal_random_features(jax.random.key(0), 11, 4)
    assert directions.shape == (11, 4)
    for start in (0, 4, 8):
        block = directions[start : start + 4]
        gram = block @ block.T
        assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-12)


def test_orthogonal_features_are_standard_normal():
    draw = functools.partial(opjax.orthogonal_random_features, num_features=6, dim=4)
    samples = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(2), 5000))
    assert_allclose(np.mean(samples, axis=0), 0, atol=0.06)
    assert_allclose(np.var(samples, axis=0), 1, atol=0.1)


@pytest.mark.nightly
def test_precision_follows_the_data(points, directions):
    q, k, v = points
    half = [jnp.asarray(a, jnp.bfloat16) for a in points]
    output = at(jnp.asarray(directions, jnp.float32))(*half)
    assert output.dtype == jnp.bfloat16
    error = np.asarray(output, float) - at(directions)(q, k, v)
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(v)
    features = opjax.orthogonal_random_features(
        jax.random.key(0), 3, 4, dtype=jnp.float32
    )
    assert features.dtype == jnp.float32


def test_bad_input_is_named_in_the_error(points, directions):
    q, k, v = points
    refused.each(
        (
            lambda: at(directions[:, 1:])(q, k, v),
            r"query \(7, 4\), projection_matrix \(6, 3\)",
        ),
        (
            lambda: at(directions, "cosine")(q, k, v),
            "kernel='cosine'.*'softmax', 'relu'",
        ),
        (
            lambda: at(directions)(q, k, v, offset=-1.0),
            "offset=-1.0 must be non-negative",
        ),
        (
            lambda: at(directions.astype(int))(q, k, v),
            "projection_matrix has dtype int64",
        ),
        (
            lambda: at(directions)(q, k, v[1:]),
            r"points.*key \(11, 4\), value \(10, 3\)",
        ),
        (
            lambda: opjax.orthogonal_random_features(jax.random.key(0), 0, 4),
            "num_features=0 must be positive",
        ),
    )
