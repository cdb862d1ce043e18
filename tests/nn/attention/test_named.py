"""Functional, physics and orthogonal attention from their equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import nn
from tests import oracles, refused
from tests.nn.attention.layers import BASIS, FEATURES, HEADS, enlarged, numpy, single
from tests.nn.parameters import built_once, evaluate
from tests.selection import by_day

N = 20
LAYERS = {
    "functional": nn.FunctionalAttention,
    "physics": nn.PhysicsAttention,
    "orthogonal": nn.OrthogonalAttention,
}
names = pytest.mark.parametrize("name", LAYERS)


@built_once
def make(name, **options):
    options = {"num_heads": HEADS, "num_basis": BASIS} | options
    return enlarged(LAYERS[name](FEATURES, rngs=nnx.Rngs(0), **options))


@pytest.fixture
def x(rng):
    return rng.normal(size=(N, FEATURES))


def oracle(name, layer, x, weights=None):
    """The layer from its equations, head by head."""
    p = numpy(layer)
    basis = p.basis.inner if name == "orthogonal" else p.basis
    projected = x @ basis.projection.kernel[...] + basis.projection.bias[...]
    outputs = []
    for f, g, tau in zip(
        *(np.split(part, HEADS, axis=1) for part in np.split(projected, 2, axis=1)),
        np.clip(basis.temperature[...], 0.1, 5.0),
        strict=True,
    ):
        scores = g @ basis.score_kernel[...] + basis.score_bias[...]
        phi = oracles.softmax_rows(scores, tau)
        if name == "orthogonal":
            w = np.full(len(x), 1 / len(x)) if weights is None else weights
            phi = oracles.gram_schmidt(phi, w)
            s = phi.T @ (w[:, None] * f)
        else:
            s = oracles.project(f, phi, weights, method="mean")
        m = p.mixer
        q, k, v = (s @ linear.kernel[...] for linear in (m.query, m.key, m.value))
        outputs.append(phi @ attended(name, q, k, v, m))
    y = np.concatenate(outputs, 1) @ p.out.kernel[...] + p.out.bias[...]
    return y + x @ p.bypass.kernel[...] if name == "orthogonal" else y


def attended(name, q, k, v, mixer):
    if name == "physics":
        return oracles.softmax_attention(q, k, v)
    if name == "orthogonal":
        scores = np.exp(np.tanh(q * k / np.sqrt(BASIS)))
        return (1 + scores / np.sum(scores, axis=0)) * v
    a = 1 / (1 + np.exp(-mixer.ridge_logit[...]))
    return q @ k.T @ np.linalg.inv((1 - a) * k @ k.T + a * np.eye(BASIS)) @ v


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {}) for name in LAYERS]
    + by_day([(name, {"head_features": 7}) for name in ("functional", "physics")], []),
)
def test_the_layer_equals_its_equations(x, rng, name, options):
    layer = make(name, **options)
    weights = rng.uniform(0.5, 1.5, size=N)
    expected = oracle(name, layer, np.asarray(x))
    assert_allclose(evaluate(layer, x), expected, rtol=1e-9, atol=1e-10)
    assert_allclose(
        evaluate(layer, x, quadrature_weights=jnp.asarray(weights)),
        oracle(name, layer, np.asarray(x), weights),
        rtol=1e-9,
        atol=1e-10,
    )


def test_activations_act_on_the_sum(x):
    expected = oracle("orthogonal", make("orthogonal"), np.asarray(x))
    activated = evaluate(make("orthogonal", activation="relu"), x)
    assert_allclose(activated, np.maximum(expected, 0), rtol=1e-9)
    with pytest.raises(
        ValueError, match="activation='cosine' is unknown.* 'relu', 'silu'"
    ):
        make("orthogonal", activation="cosine")


@pytest.mark.nightly
@names
def test_gradients_equal_differences_of_the_equations(x, name):
    layer = make(name)
    oracles.check_gradient(layer, lambda x: oracle(name, layer, np.asarray(x)), [x])


@pytest.mark.nightly
@names
def test_jit_vmap_and_single_precision_change_nothing(x, name):
    layer, in_single = make(name), single(make(name))

    def function(x):
        return (in_single if x.dtype == jnp.float32 else layer)(x)

    oracles.check_transforms(function, [x], rtol32=1e-3)


@pytest.mark.parametrize("name", ["functional", "physics"])
def test_a_layer_without_biases_is_the_layer_with_zero_biases(x, name):
    layer, plain = make(name, use_bias=False), make(name)
    plain.mixer, plain.out.kernel = layer.mixer, layer.out.kernel
    plain.basis.projection.kernel = layer.basis.projection.kernel
    plain.basis.score_kernel = layer.basis.score_kernel
    for owner in (plain.out, plain.basis.projection):
        owner.bias = nnx.Param(jnp.zeros_like(owner.bias[...]))
    plain.basis.score_bias = nnx.Param(np.zeros(BASIS))
    assert_allclose(evaluate(layer, x), evaluate(plain, x), rtol=1e-12)


@names
def test_convolutional_projections_see_neighbours(x, rng, name):
    layer = make(name, grid_shape=(4, 5))
    found, order = evaluate(layer, x), rng.permutation(N)
    assert found.shape == x.shape
    turned = evaluate(layer, x[order])
    assert float(np.max(np.abs(turned - found[order]))) > 1e-3


def test_heads_must_divide_the_features_unless_their_width_is_given(x):
    refused.each(
        (lambda: make("physics", num_heads=5), "num_heads=5 must divide features=12"),
        (lambda: make("physics", head_features=0), "head_features=0 must be positive"),
    )
    layer = make("physics", num_heads=5, head_features=2)
    assert jax.eval_shape(layer, x).shape == x.shape


def test_orthogonal_attention_refuses_what_it_has_itself(x):
    layer = make("orthogonal")
    refused.each(
        (lambda: layer(x, basis=layer.basis), "Pass `basis` only to a layer"),
        (lambda: layer(x, basis_functions=np.ones((N, BASIS))), "functions of its own"),
    )


def test_functional_attention_starts_from_its_ridge():
    layer = nn.FunctionalAttention(
        FEATURES, num_heads=HEADS, num_basis=BASIS, ridge_logit=1.5, rngs=nnx.Rngs(0)
    )
    assert float(layer.mixer.ridge) == pytest.approx(1 / (1 + np.exp(-1.5)))


@pytest.mark.parametrize("weighted", [False, True])
def test_functional_attention_is_the_function_with_the_options_it_names(weighted, rng):
    layer = nn.FunctionalAttention(12, num_heads=3, num_basis=5, rngs=nnx.Rngs(0))
    layer = enlarged(layer)
    x = rng.normal(size=(20, 12))
    weights = rng.uniform(0.5, 2, 20) if weighted else None
    mixer = layer.mixer

    def head(values, phi):
        maps = mixer.query, mixer.key, mixer.value
        return opjax.functional_attention(
            *(linear(values) for linear in maps),
            phi,
            phi,
            ridge=opjax.Convex(jax.nn.sigmoid(mixer.ridge_logit[...])),
            query_weights=weights,
            key_weights=weights,
            projection=opjax.Means(),
        )

    expected = layer.merge(jax.jit(jax.vmap(head))(*layer.basis(x)))
    found = evaluate(layer, x, quadrature_weights=weights)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    assert float(jnp.std(found)) > 1e-2
