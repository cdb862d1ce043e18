"""Amplification of the modes of an orthonormal basis."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from tests import oracles as shared
from tests import refused
from tests.attention import oracles

N, K, C = 11, 4, 3


@pytest.fixture
def sample(rng):
    """Returns query and key of the modes, value and basis at the points."""
    return tuple(rng.normal(size=shape) for shape in ((K, C), (K, C), (N, C), (N, K)))


def orthogonal(query, key, value, basis, weights=None):
    weights = np.ones(len(value)) if weights is None else weights
    phi = shared.gram_schmidt(basis, weights)
    output = np.zeros(value.shape)
    for channel in range(value.shape[1]):
        scores = [
            math.tanh(q * k / math.sqrt(len(query)))
            for q, k in zip(query[:, channel], key[:, channel], strict=True)
        ]
        total = sum(math.exp(s) for s in scores)
        for s, mode in zip(scores, phi.T, strict=True):
            c = np.sum(weights * mode * value[:, channel])
            output[:, channel] += (c + math.exp(s) / total * c) * mode
    return output


def weighted(q, k, v, basis, weights):
    return opjax.orthogonal_attention(q, k, v, basis, key_weights=weights)


def test_values_and_gradients_match_the_oracle(sample):
    oracles.check_case(opjax.orthogonal_attention, orthogonal, sample)


def test_weighted_values_and_gradients_match_the_oracle(sample, key_weights):
    oracles.check_case(weighted, orthogonal, (*sample, key_weights))


def test_methods_of_orthonormalization_agree(sample, key_weights):
    outputs = [
        opjax.orthogonal_attention(
            *sample, key_weights=key_weights, orthonormalization=method
        )
        for method in ("qr", "cholesky")
    ]
    assert_allclose(*outputs, rtol=1e-10)


def test_only_the_flag_of_the_basis_matters(sample, rng):
    # Spans of the first one, two, ... functions: triangular maps keep them.
    q, k, v, basis = sample
    triangle = np.triu(rng.uniform(0.5, 1.5, (K, K)))
    actual = opjax.orthogonal_attention(q, k, v, basis @ triangle)
    expected = opjax.orthogonal_attention(q, k, v, basis)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


def test_equal_scores_amplify_the_projection(sample):
    _, _, v, basis = sample
    ones = np.ones((K, C))
    phi, _ = np.linalg.qr(basis)
    actual = opjax.orthogonal_attention(ones, ones, v, basis)
    assert_allclose(actual, (1 + 1 / K) * phi @ (phi.T @ v), rtol=1e-10)


def test_no_mode_is_lost_and_none_dominates(sample):
    q, k, v, basis = sample
    phi = np.asarray(opjax.orthonormalize(basis))
    output = opjax.orthogonal_attention(1e6 * q, 1e6 * k, v, basis)
    gains = (phi.T @ output) / (phi.T @ v)
    least = 1 / (1 + (K - 1) * math.exp(2))
    most = 1 / (1 + (K - 1) * math.exp(-2))
    assert np.all((gains >= 1 + least - 1e-9) & (gains <= 1 + most + 1e-9))
    assert_allclose(np.sum(gains - 1, axis=0), 1, rtol=1e-8)


def test_zero_weights_remove_points(sample, key_weights):
    q, k, v, basis = sample
    kept = np.array([0, 1, 3, 4, 6, 7, 8, 10])
    padded = [np.full_like(a, np.nan) for a in (v, basis)]
    for array, data in zip(padded, (v, basis), strict=True):
        array[kept] = data[kept]
    weights = np.zeros(N)
    weights[kept] = key_weights[kept]

    def energy(*args):
        output = weighted(*args)
        return jnp.sum(output**3), output

    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2, 3), has_aux=True))
    expected, output = grad(q, k, v[kept], basis[kept], weights[kept])
    actual, padded_output = grad(q, k, *padded, weights)
    assert_allclose(padded_output[kept], output, rtol=1e-9)
    assert_array_equal(np.delete(padded_output, kept, axis=0), 0)
    for a, b in zip(actual[:2], expected[:2], strict=True):
        assert_allclose(a, b, rtol=1e-8, atol=1e-10)
    for a, b in zip(actual[2:], expected[2:], strict=True):
        assert_allclose(a[kept], b, rtol=1e-8, atol=1e-10)
        assert_array_equal(np.delete(a, kept, axis=0), 0)


def test_points_may_be_permuted(sample, key_weights, rng):
    q, k, v, basis = sample
    i = rng.permutation(N)
    actual = weighted(q, k, v[i], basis[i], key_weights[i])
    expected = weighted(*sample, key_weights)[i]
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.nightly
def test_refinement_converges_at_the_order_of_the_quadrature(rng):
    q, k = rng.normal(size=(2, 3, 1))

    def output(n):
        x = np.linspace(0, 1, n)
        basis = np.stack([np.ones(n), np.exp(x), np.sin(3 * x)], axis=1)
        w = shared.trapezoid_axis(n, 1.0)
        field = weighted(q, k, np.cos(4 * x)[:, None], basis, w)
        return field[:: (n - 1) // 8]

    outputs = [output(n) for n in (33, 65, 129)]
    errors = [np.linalg.norm(a - outputs[-1]) for a in outputs[:-1]]
    # Errors of h^2 against the finest: (1 - 1/16) / (1/4 - 1/16) = 5.
    assert_allclose(errors[0] / errors[1], 5, rtol=0.1)


def test_half_precision_keeps_its_dtype(sample):
    output = opjax.orthogonal_attention(*[jnp.asarray(a, jnp.bfloat16) for a in sample])
    assert output.dtype == jnp.bfloat16
    expected = opjax.orthogonal_attention(*sample)
    error = np.asarray(output, float) - expected
    assert np.linalg.norm(error) < 0.05 * np.linalg.norm(expected)


def test_bad_input_is_named_in_the_error(sample, key_weights):
    q, k, v, basis = sample
    attend = opjax.orthogonal_attention
    refused.each(
        (lambda: attend(q[1:], k, v, basis), r"query \(3, 3\) has 3 modes.*\(11, 4\)"),
        (lambda: attend(q, k[1:], v, basis), r"key \(3, 3\) has 3 modes.*\(11, 4\)"),
        (lambda: attend(q, k, v[:, 1:], basis), r"channels.*value \(11, 2\)"),
        (lambda: attend(q, k, v, basis[1:]), r"points.*key_basis \(10, 4\)"),
        (
            lambda: attend(q, k, v, basis, orthonormalization="svd"),
            "orthonormalization='svd' is unknown",
        ),
        (
            lambda: attend(q, k, v, basis, key_weights=np.ones(7)),
            r"key_weights \(7,\), value \(11, 3\)",
        ),
        (lambda: attend(q, k, v[:3], basis[:3]), "3 points support at most 3"),
        (lambda: attend(q, k, v, basis.astype(int)), "key_basis has dtype int64"),
    )
