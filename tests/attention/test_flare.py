"""Attention through latents against written-out sums."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from opjax.attention.flare import highest_scores, softmax_moments
from tests import refused
from tests.attention import oracles

LATENTS = np.random.default_rng(7).normal(size=(5, 4))
attention = partial(opjax.flare_attention, latents=LATENTS)


def means(values, scores, weights=None):
    weights = np.ones(len(values)) if weights is None else weights
    rows = []
    for column in scores.T:
        e = [w * math.exp(s) for w, s in zip(weights, column, strict=True)]
        rows.append(sum(a * v for a, v in zip(e, values, strict=True)) / sum(e))
    return np.array(rows)


def flare(query, key, value, latents, weights=None, scale=1.0):
    found = means(
        value, scale * np.array([[k @ z for z in latents] for k in key]), weights
    )
    rows = []
    for q in query:
        e = [math.exp(scale * (q @ z)) for z in latents]
        rows.append(sum(a * z for a, z in zip(e, found, strict=True)) / sum(e))
    return np.array(rows)


def test_values_and_gradients_match_the_oracle(points, key_weights):
    def function(q, k, v, z, w, s):
        return opjax.flare_attention(q, k, v, z, key_weights=w, scale=s)

    oracles.check_case(function, flare, (*points, LATENTS, key_weights, 0.7))
    plain = opjax.flare_attention(*points, LATENTS)
    assert_allclose(plain, flare(*points, LATENTS), rtol=1e-12)


def test_means_and_their_gradients_match_the_oracle(points, key_weights):
    _, scores, values = points

    def function(f, s, w):
        return opjax.softmax_means(f, s, quadrature_weights=w)

    oracles.check_case(function, means, (values, scores, key_weights))
    expected = means(values, scores)
    assert_allclose(opjax.softmax_means(values, scores), expected, rtol=1e-12)


def test_zero_weights_remove_points(points, key_weights):
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)
    # However far the scores of the others are from those of masked points.
    far = partial(opjax.flare_attention, latents=-1e3 * np.abs(LATENTS))
    q, k, v = points
    oracles.check_zero_weights_remove_points(far, q, np.abs(k), v, key_weights)


def test_attention_to_no_point_is_zero(points):
    oracles.check_all_masked_is_zero(attention, *points)


def test_order_of_points_is_irrelevant(points, key_weights, rng):
    oracles.check_permutations(attention, *points, key_weights, rng)


@pytest.mark.nightly
def test_refinement_converges_at_the_order_of_the_quadrature():
    latents = np.array([[1.0, -0.5], [0.3, 2.0], [-1.0, 0.2]])
    oracles.check_refinement(partial(opjax.flare_attention, latents=latents))


def test_half_precision_keeps_its_dtype(points):
    half = [jnp.asarray(a, jnp.bfloat16) for a in (*points, LATENTS)]
    output = opjax.flare_attention(*half)
    assert output.dtype == jnp.bfloat16
    expected = attention(*points)
    error = np.asarray(output, float) - expected
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(expected)


def test_it_is_a_matrix_of_averages_whose_rank_is_the_number_of_latents(points):
    query, key, _ = points
    matrix = attention(query, key, np.eye(len(key)))
    assert np.all(np.asarray(matrix) > 0)
    assert_allclose(np.sum(matrix, axis=1), 1, rtol=1e-12)
    two = opjax.flare_attention(query, key, np.eye(len(key)), LATENTS[:2])
    assert np.linalg.matrix_rank(two, tol=1e-10) == 2


def test_order_of_latents_is_irrelevant(points, rng):
    permuted = opjax.flare_attention(*points, rng.permutation(LATENTS))
    assert_allclose(permuted, attention(*points), rtol=1e-12)


def test_moments_of_chunks_add_up(points, key_weights):
    _, scores, values = points
    top = highest_scores(scores, key_weights)
    parts = [
        softmax_moments(values[i], scores[i], key_weights[i], top)
        for i in (slice(4), slice(4, None))
    ]
    expected = opjax.softmax_means(values, scores, quadrature_weights=key_weights)
    assert_allclose((parts[0] + parts[1]).means(offset=0.0), expected)


def test_large_features_are_finite_and_weights_have_no_unit(points, key_weights):
    large = [jnp.asarray(1e4 * a, jnp.float32) for a in (*points, LATENTS)]
    run = jax.value_and_grad(
        lambda *arrays: jnp.sum(opjax.flare_attention(*arrays)), (0, 1, 2, 3)
    )
    for leaf in jax.tree.leaves(jax.jit(run)(*large)):
        assert np.all(np.isfinite(leaf))
    output = attention(*points, key_weights=key_weights)
    scaled = attention(*points, key_weights=1e-6 * key_weights)
    assert_allclose(scaled, output, rtol=1e-10)


def test_bad_input_is_named_in_the_error(points):
    q, k, v = points
    refused.each(
        (lambda: attention(q, k, v[1:]), r"points.*key \(11, 4\), value \(10, 3\)"),
        (
            lambda: opjax.flare_attention(q, k, v, LATENTS[:, 1:]),
            r"latents \(5, 3\), key \(11, 4\)",
        ),
        (
            lambda: opjax.flare_attention(q, k, v, LATENTS.astype(int)),
            "latents has dtype int64",
        ),
        (
            lambda: attention(q, k, v, key_weights=-np.ones(11)),
            "key_weights=.* must be non-negative",
        ),
        (lambda: opjax.softmax_means(v, k[1:]), r"values \(11, 3\), scores \(10, 4\)"),
        (
            lambda: opjax.softmax_means(v, k, quadrature_weights=np.ones(7)),
            r"quadrature_weights \(7,\)",
        ),
        (lambda: opjax.softmax_means(v, k.astype(int)), "scores has dtype int64"),
    )
