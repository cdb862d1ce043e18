"""Slow, obvious NumPy versions of the attentions, and checks that all of them share."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from tests import oracles


def check_case(function, oracle, args):
    oracles.check(function, oracle, args)
    oracles.check_transforms(function, args, rtol32=1e-3)


def kernel_average(kernel, query, key, value, weights):
    """sum_j w_j kernel(Q_i, K_j) V_j / sum_j w_j kernel(Q_i, K_j)."""
    rows = []
    for q in query:
        e = [w * kernel(q, k) for w, k in zip(weights, key, strict=True)]
        rows.append(sum(a * v for a, v in zip(e, value, strict=True)) / sum(e))
    return np.array(rows)


def softmax_attention(query, key, value, weights=None):
    weights = np.ones(len(key)) if weights is None else weights
    scale = math.sqrt(query.shape[1])
    return kernel_average(
        lambda q, k: math.exp(q @ k / scale), query, key, value, weights
    )


def check_zero_weights_remove_points(attention, query, key, value, weights):
    """Masked keys and values may be NaN; neither value nor gradient sees them."""
    kept = np.array([0, 1, 3, 4, 6, 7, 8, 10])
    masked = np.setdiff1d(np.arange(len(key)), kept)
    padded = [np.array(a) for a in (key, value, weights)]
    for array, fill in zip(padded, (np.nan, np.nan, 0.0), strict=True):
        array[masked] = fill

    def energy(q, k, v, w):
        output = attention(q, k, v, key_weights=w)
        return jnp.sum(output**3), output

    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2, 3), has_aux=True))
    expected, output = grad(query, *(a[kept] for a in (key, value, weights)))
    actual, padded_output = grad(query, *padded)
    assert_allclose(padded_output, output, rtol=1e-9, atol=1e-11)
    assert_allclose(actual[0], expected[0], rtol=1e-8, atol=1e-10)
    for a, b in zip(actual[1:], expected[1:], strict=True):
        assert_allclose(a[kept], b, rtol=1e-8, atol=1e-10)
    for gradient in actual[1:3]:
        assert_array_equal(gradient[masked], 0)


def check_all_masked_is_zero(attention, query, key, value):
    """The output is zero, and no gradient with respect to data is NaN."""

    def energy(q, k, v):
        output = attention(q, k, v, key_weights=np.zeros(len(key)))
        return jnp.sum((output + 1) ** 2), output

    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2), has_aux=True))
    gradients, output = grad(query, key, value)
    assert_array_equal(output, 0)
    for gradient in gradients:
        assert_array_equal(gradient, 0)


def check_permutations(attention, query, key, value, weights, rng):
    """Permuting queries permutes rows; permuting mesh points changes nothing."""
    attention = jax.jit(attention)
    expected = attention(query, key, value, key_weights=weights)
    i, j = rng.permutation(len(query)), rng.permutation(len(key))
    permuted = attention(query[i], key[j], value[j], key_weights=weights[j])
    assert_allclose(permuted, expected[i], rtol=1e-9, atol=1e-11)


def check_refinement(attention, *, order=2, sizes=(33, 65, 129)):
    """Trapezoidal weights on finer meshes of smooth fields: the error falls."""

    def output(n):
        x = np.linspace(0, 1, n)
        q = np.stack([np.sin(2 * x), np.exp(-x)], axis=1)[:: (n - 1) // 8]
        k = np.stack([np.cos(3 * x), x**2], axis=1)
        w = oracles.trapezoid_axis(n, 1.0)
        return jax.jit(attention)(q, k, np.exp(x)[:, None], key_weights=w)

    outputs = [output(n) for n in sizes]
    first, second = (
        np.linalg.norm(b - a) for a, b in zip(outputs, outputs[1:], strict=False)
    )
    assert_allclose(np.log2(first / second), order, atol=0.1)
    assert second < 1e-2 * np.linalg.norm(outputs[-1])
