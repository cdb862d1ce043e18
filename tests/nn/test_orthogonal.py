"""Orthogonal attention as a layer: against an oracle, and its symmetries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import opjax
from opjax import nn
from tests import oracles

FEATURES, HEADS, BASIS = 8, 2, 3


def make(**options):
    options = {"num_heads": HEADS, "num_basis": BASIS} | options
    layer = nn.OrthogonalAttention(FEATURES, rngs=nnx.Rngs(0), **options)
    return jax.tree.map(lambda p: jnp.asarray(p, float) * 4, layer)


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.normal(size=(12, FEATURES)))


def oracle(layer, x):
    """The layer from its equations, head by head."""
    p = jax.tree.map(np.asarray, layer)
    projected = x @ p.basis.projection.kernel[...] + p.basis.projection.bias[...]
    values, features = np.split(projected, 2, axis=1)
    outputs = []
    for f, g, tau in zip(
        np.split(values, HEADS, axis=1),
        np.split(features, HEADS, axis=1),
        np.clip(p.basis.temperature[...], 0.1, 5.0),
        strict=True,
    ):
        scores = g @ p.basis.score_kernel[...] + p.basis.score_bias[...]
        raw = oracles.softmax_rows(scores, tau)
        s = oracles.project(f, raw, method="mean")
        q, k = s @ p.query.kernel[...], s @ p.key.kernel[...]
        scores = np.tanh(q * k / np.sqrt(BASIS))
        gains = 1 + np.exp(scores) / np.sum(np.exp(scores), axis=0)
        phi = oracles.gram_schmidt(raw, np.ones(len(x)))
        outputs.append(phi @ (gains * (phi.T @ f @ p.value.kernel[...])))
    attended = np.concatenate(outputs, 1) @ p.out.kernel[...] + p.out.bias[...]
    return attended + x @ p.bypass.kernel[...]


def test_the_layer_equals_its_equations(x):
    layer = make()
    expected = oracle(layer, np.asarray(x))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-9)
    activated = make(activation="relu")(x)
    np.testing.assert_allclose(activated, np.maximum(expected, 0), rtol=1e-9)


def test_gradients_equal_differences_of_the_equations(x):
    layer = make()
    oracles.check_gradient(layer, lambda x: oracle(layer, np.asarray(x)), [x])


def test_jit_vmap_and_single_precision_change_nothing(x):
    layer = make()
    oracles.check_transforms(
        lambda x: jax.tree.map(lambda p: p.astype(x.dtype), layer)(x), [x], rtol32=1e-3
    )


def test_permuting_the_points_permutes_the_output(x, rng):
    layer, order = make(), rng.permutation(len(x))
    np.testing.assert_allclose(layer(x[order]), layer(x)[order], rtol=1e-8)


def test_masked_points_change_nothing(x, rng):
    layer, n = make(), len(x)
    padded = jnp.concatenate([x, jnp.asarray(rng.normal(size=(5, FEATURES)))])
    weights = jnp.concatenate([jnp.ones(n), jnp.zeros(5)])
    actual = layer(padded, quadrature_weights=weights)[:n]
    np.testing.assert_allclose(actual, layer(x), rtol=1e-8)


def test_refining_the_mesh_converges_at_second_order():
    layer = make()
    frequencies = jnp.arange(1.0, FEATURES + 1)

    def at_fixed_points(n):
        points = jnp.linspace(0, 1, n)[:, None]
        values = jnp.sin(points * frequencies[None])
        weights = opjax.grid_weights((n,))
        return layer(values, quadrature_weights=weights)[:: (n - 1) // 8]

    reference = at_fixed_points(8 * 512 + 1)
    errors = np.array(
        [np.max(np.abs(at_fixed_points(8 * r + 1) - reference)) for r in (16, 32, 64)]
    )
    assert np.all(np.log2(errors[:-1] / errors[1:]) > 1.8), errors


def test_models_have_it_by_name(rng):
    model = nn.OperatorTransformer(
        point_dim=2,
        feature_dim=0,
        out_features=1,
        features=8,
        num_layers=2,
        num_heads=2,
        num_basis=4,
        attention="orthogonal",
        rngs=nnx.Rngs(0),
    )
    model = jax.tree.map(lambda p: p.astype(jnp.float32), model)
    points = jnp.asarray(rng.uniform(size=(30, 2)), jnp.float32)
    assert isinstance(model.blocks.attention, nn.OrthogonalAttention)
    gradient = jax.grad(lambda model: jnp.sum(model(points) ** 2))(model)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    with pytest.raises(ValueError, match="no functional map"):
        model.inspect(points)


def test_other_key_dimensions_are_refused():
    assert make(key_dim=BASIS).basis.num_basis == BASIS
    with pytest.raises(ValueError, match="key_dim=2 must be num_basis=3"):
        make(key_dim=2)
    with pytest.raises(ValueError, match="activation='gelu' .* 'relu', 'silu'"):
        make(activation="gelu")
