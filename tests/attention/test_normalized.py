"""Averages by a positive kernel of softmaxed features against written-out sums."""

import math

import jax
import jax.numpy as jnp
import numpy as np

import opjax
from tests import refused
from tests.attention import oracles


def softmaxed(row):
    e = [math.exp(a) for a in row]
    return np.array(e) / sum(e)


def normalized(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    return oracles.kernel_average(
        lambda q, k: softmaxed(q) @ softmaxed(k), query, key, value, weights
    )


def test_values_and_gradients_match_the_oracle(points):
    oracles.check_case(opjax.normalized_attention, normalized, points)


def test_weighted_values_and_gradients_match_the_oracle(points, key_weights):
    def weighted(q, k, v, w):
        return opjax.normalized_attention(q, k, v, key_weights=w)

    oracles.check_case(weighted, normalized, (*points, key_weights))


def test_zero_weights_remove_points(points, key_weights):
    attention = opjax.normalized_attention
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


def test_attention_to_no_point_is_zero(points):
    oracles.check_all_masked_is_zero(opjax.normalized_attention, *points)


def test_order_of_points_is_irrelevant(points, key_weights, rng):
    attention = opjax.normalized_attention
    oracles.check_permutations(attention, *points, key_weights, rng)


def test_constants_are_kept_and_weights_have_no_unit(points, key_weights):
    q, k, v = points
    output = opjax.normalized_attention(q, k, v, key_weights=key_weights)
    scaled = opjax.normalized_attention(q, k, v, key_weights=9 * key_weights)
    np.testing.assert_allclose(scaled, output, rtol=1e-12)
    ones = opjax.normalized_attention(q, k, np.ones((11, 1)), key_weights=key_weights)
    np.testing.assert_allclose(ones, 1, rtol=1e-12)


def test_large_features_and_half_precision(points):
    output = jax.jit(opjax.normalized_attention)(*(1e4 * a for a in points))
    assert np.all(np.isfinite(output))
    half = opjax.normalized_attention(*[jnp.asarray(a, jnp.bfloat16) for a in points])
    assert half.dtype == jnp.bfloat16
    expected = opjax.normalized_attention(*points)
    error = np.asarray(half, float) - expected
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(expected)


def test_bad_input_is_named_in_the_error(points):
    q, k, v = points
    refused.each(
        (
            lambda: opjax.normalized_attention(q, k, v[1:]),
            r"points.*key \(11, 4\), value \(10, 3\)",
        ),
        (
            lambda: opjax.normalized_attention(q, k, v, key_weights=-np.ones(11)),
            "key_weights=.* must be non-negative",
        ),
        (
            lambda: opjax.normalized_attention(q, k, v.astype(int)),
            "value has dtype int64",
        ),
    )
