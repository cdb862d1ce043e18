"""Attentions that compare all pairs, beyond the tests of tests/test_attention.py."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import opjax
from opjax.attention import pairwise
from tests import refused
from tests.attention import oracles
from tests.oracles import replaced

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


@pytest.mark.nightly
@each
def test_refinement_converges_at_the_order_of_the_quadrature(attention):
    oracles.check_refinement(attention)


def test_half_precision_keeps_its_dtype(points):
    output = opjax.fourier_attention(*[jnp.asarray(a, jnp.bfloat16) for a in points])
    assert output.dtype == jnp.bfloat16


def test_bad_input_is_named_in_the_error(points):
    q, k, v = points
    refused.each(
        (
            lambda: opjax.fourier_attention(q, k, v[1:]),
            r"points.*key \(11, 4\), value \(10, 3\)",
        ),
        (
            lambda: opjax.fourier_attention(q[:, 1:], k, v),
            r"channels.*query \(7, 3\), key \(11, 4\)",
        ),
        (
            lambda: opjax.fourier_attention(q, k, v, key_weights=np.ones(7)),
            r"key_weights \(7,\), key \(11, 4\)",
        ),
        (lambda: opjax.fourier_attention(q.astype(int), k, v), "query has dtype int64"),
    )


@each
def test_tiles_of_queries_are_all_queries_at_once(attention, monkeypatch):
    rng = np.random.default_rng(0)
    m, n = 2 * pairwise._TILE + 3, 40
    query, key, value = (rng.normal(size=(k, 3)) for k in (m, n, n))
    weights = replaced(rng.uniform(0.5, 1.5, n), 3, 0.0)

    def all_derivatives(query, key, value, weights):
        def loss(*given):
            *features, weights = given
            return jnp.sum(jnp.sin(attention(*features, key_weights=weights)))

        given = (query, key, value, weights)
        every = tuple(range(4))
        directions = jax.tree.map(jnp.cos, given)
        backward = jax.grad(loss, every)
        _, forward = jax.jvp(loss, given, directions)
        _, second = jax.jvp(backward, given, directions)
        output = attention(*given[:3], key_weights=weights)
        return output, backward(*given), forward, second

    monkeypatch.setattr(pairwise, "_ENTRIES_IN_CACHE", 1)
    monkeypatch.setattr(pairwise, "_ENTRIES_AT_ONCE", 100 * n)
    tiled = jax.jit(all_derivatives)(query, key, value, weights)
    monkeypatch.setattr(pairwise, "_TILE", m)
    whole = jax.jit(lambda *given: all_derivatives(*given))(query, key, value, weights)
    chex.assert_trees_all_close(tiled, whole, rtol=1e-11, atol=1e-12)


@each
def test_tiles_are_larger_on_accelerators(attention):
    n = 3000
    array = jax.ShapeDtypeStruct((2, n, 4), jnp.float32)

    def loss(*features):
        return jnp.sum(jax.vmap(attention)(*features) ** 2)

    traced = jax.jit(jax.grad(loss, (0, 1, 2))).trace(array, array, array)
    for platform, queries in (("cpu", 64), ("cuda", 2**22 // n), ("tpu", 2**22 // n)):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        tiles = {q for q in (64, 2**22 // n) if f"{n}x{q}xf32" in text}
        assert tiles == {queries}, platform


@each
def test_memory_of_a_gradient_grows_linearly(attention):
    def temporary_bytes(n):
        array = jax.ShapeDtypeStruct((n, 4), jnp.float32)
        gradient = jax.grad(lambda q, k, v: jnp.sum(attention(q, k, v) ** 2), (0, 1, 2))
        lowered = jax.jit(gradient).lower(array, array, array)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(8192) < 2.5 * temporary_bytes(4096)
