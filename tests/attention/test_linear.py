"""Attentions of linear cost against written-out sums."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from tests import refused
from tests.attention import oracles

ATTENTIONS = {
    "linear": opjax.linear_attention,
    "galerkin": opjax.galerkin_attention,
}
each = pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)


def linear(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    averages = []
    for column in key.T:
        e = [w * math.exp(k) for w, k in zip(weights, column, strict=True)]
        averages.append(sum(a * v for a, v in zip(e, value, strict=True)) / sum(e))
    rows = []
    for q in query:
        e = [math.exp(a) for a in q]
        rows.append(sum(a * v for a, v in zip(e, averages, strict=True)) / sum(e))
    return np.array(rows)


def galerkin(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    return np.array(
        [
            sum(w * (q @ k) * v for w, k, v in zip(weights, key, value, strict=True))
            for q in query
        ]
    )


ORACLES = {"linear": linear, "galerkin": galerkin}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_values_and_gradients_match_the_oracle(name, points):
    oracles.check_case(ATTENTIONS[name], ORACLES[name], points)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_weighted_values_and_gradients_match_the_oracle(name, points, key_weights):
    def weighted(q, k, v, w):
        return ATTENTIONS[name](q, k, v, key_weights=w)

    oracles.check_case(weighted, ORACLES[name], (*points, key_weights))


@each
def test_zero_weights_remove_points(attention, points, key_weights):
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


@each
def test_attention_to_no_point_is_zero(attention, points):
    oracles.check_all_masked_is_zero(attention, *points)


@each
def test_order_of_points_is_irrelevant(attention, points, key_weights, rng):
    oracles.check_permutations(attention, *points, key_weights, rng)


@pytest.mark.nightly
@each
def test_refinement_converges_at_the_order_of_the_quadrature(attention):
    oracles.check_refinement(attention)


@each
def test_half_precision_keeps_its_dtype(attention, points):
    output = attention(*[jnp.asarray(a, jnp.bfloat16) for a in points])
    assert output.dtype == jnp.bfloat16
    error = np.asarray(output, float) - attention(*points)
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(attention(*points))


@each
def test_bad_input_is_named_in_the_error(attention, points):
    q, k, v = points
    refused.each(
        (lambda: attention(q, k, v[1:]), r"points.*key \(11, 4\), value \(10, 3\)"),
        (lambda: attention(q[:, 1:], k, v), r"channels.*query \(7, 3\), key \(11, 4\)"),
        (
            lambda: attention(q, k, v, key_weights=np.ones(7)),
            r"key_weights \(7,\), key \(11, 4\)",
        ),
        (
            lambda: attention(q, k, v, key_weights=-np.ones(11)),
            "key_weights=.* must be non-negative",
        ),
        (lambda: attention(q, k, v.astype(int)), "value has dtype int64"),
    )


def test_linear_attention_keeps_constants(points, key_weights):
    q, k, _ = points
    ones = np.ones((len(k), 1))
    for w in (None, key_weights):
        output = opjax.linear_attention(q, k, ones, key_weights=w)
        assert_allclose(output, 1, rtol=1e-12)


def test_weights_of_linear_attention_have_no_unit(points, key_weights):
    output = opjax.linear_attention(*points, key_weights=key_weights)
    scaled = opjax.linear_attention(*points, key_weights=100 * key_weights)
    assert_allclose(scaled, output, rtol=1e-12)


def test_linear_attention_of_large_features_is_finite(points):
    output = jax.jit(opjax.linear_attention)(*(1e4 * a for a in points))
    assert np.all(np.isfinite(output))


def test_galerkin_attention_reproduces_functions_of_an_orthonormal_basis(rng):
    # The columns of Q = K are orthonormal in the quadrature: a projection.
    basis, _ = np.linalg.qr(rng.normal(size=(11, 4)))
    value = basis @ rng.normal(size=(4, 3))
    output = opjax.galerkin_attention(basis, basis, value, key_weights=np.ones(11))
    assert_allclose(output, value, rtol=1e-10, atol=1e-12)
