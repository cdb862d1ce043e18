"""Attention to latents: the layer from its equations, symmetries, masks and errors."""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests import refused
from tests.nn.attention.layers import FEATURES, HEADS, WIDTH, numpy
from tests.nn.parameters import built_once, enlarged, evaluate
from tests.oracles import replaced

N, LATENTS = 11, 5


@built_once
def make(**options):
    options = {"num_heads": HEADS, "num_latents": LATENTS} | options
    return enlarged(nn.FlareAttention(FEATURES, rngs=nnx.Rngs(0), **options))


@pytest.fixture
def x(rng):
    return rng.normal(size=(N, FEATURES))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def perceptron(mlp, x):
    """Adds to its features everywhere: all widths are equal."""
    for layer in mlp.hidden:
        x = x + gelu(x @ layer.kernel[...] + layer.bias[...])
    return x + x @ mlp.out.kernel[...] + mlp.out.bias[...]


def softmax(scores, axis, weights=1.0):
    e = weights * np.exp(scores - scores.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def formula(layer, x, weights=1.0, scale=1.0):
    p, x = numpy(layer), np.asarray(x)
    latents = p.latents[...]
    if latents.ndim == 2:
        latents = np.stack([latents] * HEADS)
    keys, values = perceptron(p.key, x), perceptron(p.value, x)
    merged = []
    for head in range(HEADS):
        own = slice(head * WIDTH, (head + 1) * WIDTH)
        scores = scale * keys[:, own] @ latents[head].T
        z = softmax(scores, 0, weights).T @ values[:, own]
        merged.append(softmax(scores, 1) @ z)
    return np.hstack(merged) @ p.out.kernel[...] + p.out.bias[...]


@pytest.mark.parametrize("options", [{}, {"shared_latents": True, "scale": 0.5}])
def test_the_layer_is_its_formula(x, options):
    layer = make(**options)
    expected = formula(layer, x, scale=options.get("scale", 1.0))
    assert_allclose(evaluate(layer, x), expected, rtol=1e-9)


def test_weights_take_part_and_masked_points_do_not(x, rng):
    layer = make()
    weights = replaced(rng.uniform(0.5, 1.5, N), np.s_[8:], 0)

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def run(x, weights):
        y = layer(x, quadrature_weights=weights)
        return jnp.sum(jnp.sin(y[:8])), y[:8]

    gradient, y = run(x, weights)
    expected, kept = run(x[:8], weights[:8])
    assert_allclose(y, kept, rtol=1e-9)
    assert_allclose(gradient[:8], expected, rtol=1e-8)
    assert_array_equal(gradient[8:], 0)
    oracle = formula(layer, x[:8], np.asarray(weights)[:8, None])
    assert_allclose(y, oracle, rtol=1e-9)
    empty, _ = run(x, np.zeros(N))
    assert np.all(np.isfinite(empty))


def test_norms_are_those_of_keys_and_latents(x):
    layer = make(norm=nn.layers.LayerNorm, scale=0.5)
    by_hand = make(scale=0.5)

    def normalized(values, norm):
        return np.stack([np.asarray(norm(jnp.asarray(v))) for v in values])

    latents, key, value = by_hand.head_inputs(x)
    found = layer.head_inputs(x)
    # The parameters of both layers start alike but for the norms.
    assert_allclose(found[0], normalized(latents, layer.latent_norm))
    assert_allclose(found[1], normalized(key, layer.key_norm))
    assert_array_equal(found[2], value)


def test_parameters_start_as_published():
    layer = nn.FlareAttention(64, num_heads=8, num_latents=64, rngs=nnx.Rngs(0))
    assert layer.latents.shape == (8, 64, 8)
    assert_allclose(np.std(layer.latents[...]), 0.1, rtol=0.05)
    for linear in (*layer.key.hidden, layer.key.out, layer.out):
        assert not np.any(linear.bias[...])
        assert_allclose(np.std(linear.kernel[...]), 0.02, rtol=0.05)
    assert len(layer.key.hidden) == len(layer.value.hidden) == 4


def test_bad_input_is_named_in_the_error(x):
    refused.each(
        (lambda: make(num_heads=5), "num_heads=5 must divide features=12"),
        (lambda: make(num_latents=0), "num_latents=0 must be positive"),
        (lambda: make(scale=0.0), "scale=0.0 must be positive"),
        (lambda: make()(x, basis=object()), "FlareAttention does not use a basis"),
        (
            lambda: make()(x, quadrature_weights=np.ones(3)),
            r"quadrature_weights \(3,\)",
        ),
    )
