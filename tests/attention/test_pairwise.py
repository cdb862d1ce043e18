"""Attentions that compare all pairs, beyond the tests of tests/test_attention.py."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import opjax
from tests.attention import oracles

ATTENTIONS = {
    "softmax": opjax.softmax_attention,
    "fourier": opjax.fourier_attention,
}
each = pytest.mark.parametrize("attention", ATTENTIONS.values(), ids=ATTENTIONS)


def fourier(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    scale = math.sqrt(query.shape[1])
    return np.array(
        [
            sum(
                w * (q @ k) / scale * v
                for w, k, v in zip(weights, key, value, strict=True)
            )
            for q in query
        ]
    )


def test_values_and_gradients_match_the_oracle(points):
    oracles.check_case(opjax.fourier_attention, fourier, points)


def test_weighted_values_and_gradients_match_the_oracle(points, key_weights):
    def weighted(q, k, v, w):
        return opjax.fourier_attention(q, k, v, key_weights=w)

    oracles.check_case(weighted, fourier, (*points, key_weights))


def test_fourier_and_galerkin_differ_by_the_scale_of_the_scores(points, key_weights):
    for w in (None, key_weights):
        actual = opjax.fourier_attention(*points, key_weights=w)
        galerkin = opjax.galerkin_attention(*points, key_weights=w)
        np.testing.assert_allclose(actual, galerkin / 2, rtol=1e-10)  # d = 4


@each
def test_zero_weights_remove_points(attention, points, key_weights):
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


@each
def test_attention_to_no_point_is_zero(attention, points):
    oracles.check_all_masked_is_zero(attention, *points)


@each
def test_order_of_points_is_irrelevant(attention, points, key_weights, rng):
    oracles.check_permutations(attention, *points, key_weights, rng)


@each
def test_refinement_converges_at_the_order_of_the_quadrature(attention):
    oracles.check_refinement(attention)


def test_half_precision_keeps_its_dtype(points):
    output = opjax.fourier_attention(*[jnp.asarray(a, jnp.bfloat16) for a in points])
    assert output.dtype == jnp.bfloat16


def test_bad_input_is_named_in_the_error(points):
    q, k, v = points
    with pytest.raises(ValueError, match=r"points.*key \(11, 4\), value \(10, 3\)"):
        opjax.fourier_attention(q, k, v[1:])
    with pytest.raises(ValueError, match=r"channels.*query \(7, 3\), key \(11, 4\)"):
        opjax.fourier_attention(q[:, 1:], k, v)
    with pytest.raises(ValueError, match=r"key_weights \(7,\), key \(11, 4\)"):
        opjax.fourier_attention(q, k, v, key_weights=np.ones(7))
    with pytest.raises(TypeError, match="query has dtype int64"):
        opjax.fourier_attention(q.astype(int), k, v)
