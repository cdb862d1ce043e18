"""Physics attention: against an oracle, its symmetries, and as a whole model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import opjax
from opjax import nn
from opjax.nn.attention.heads import merge_heads
from tests import oracles

FEATURES, HEADS, BASIS = 12, 3, 5


def make(**options):
    options = {"num_heads": HEADS, "num_basis": BASIS} | options
    layer = nn.PhysicsAttention(FEATURES, rngs=nnx.Rngs(0), **options)
    # Large enough that attention is far from its small start, where all is zero.
    return jax.tree.map(lambda p: jnp.asarray(p, float) * 4, layer)


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.normal(size=(20, FEATURES)))


def oracle(layer, x, weights=None):
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
        phi = oracles.softmax_rows(scores, tau)
        s = oracles.project(f, phi, weights, method="mean")
        q, k, v = (s @ m.kernel[...] for m in (p.query, p.key, p.value))
        outputs.append(phi @ oracles.softmax_attention(q, k, v))
    return np.concatenate(outputs, 1) @ p.out.kernel[...] + p.out.bias[...]


@pytest.mark.parametrize("head_features", [None, 7])
def test_the_layer_equals_its_equations(x, rng, head_features):
    layer = make(head_features=head_features)
    weights = rng.uniform(0.5, 1.5, size=20)
    np.testing.assert_allclose(layer(x), oracle(layer, np.asarray(x)), rtol=1e-9)
    np.testing.assert_allclose(
        layer(x, quadrature_weights=jnp.asarray(weights)),
        oracle(layer, np.asarray(x), weights),
        rtol=1e-9,
    )


def test_gradients_equal_differences_of_the_equations(x):
    layer = make()
    oracles.check_gradient(layer, lambda x: oracle(layer, np.asarray(x)), [x])


def test_jit_vmap_and_single_precision_change_nothing(x):
    layer = make()
    oracles.check_transforms(
        lambda x: jax.tree.map(lambda p: p.astype(x.dtype), layer)(x), [x]
    )


def test_permuting_the_points_permutes_the_output(x, rng):
    layer, order = make(), rng.permutation(len(x))
    np.testing.assert_allclose(layer(x[order]), layer(x)[order], rtol=1e-9)


def test_masked_points_change_neither_values_nor_gradients(x, rng):
    layer, n = make(), len(x)
    padded = jnp.concatenate([x, jnp.asarray(rng.normal(size=(7, FEATURES)))])
    weights = jnp.concatenate([jnp.ones(n), jnp.zeros(7)])

    def loss(x, weights):
        return jnp.sum(jnp.sin(layer(x, quadrature_weights=weights)[:n]))

    run = jax.value_and_grad(loss)
    expected, expected_gradient = run(x, None)
    actual, gradient = run(padded, weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    np.testing.assert_array_equal(gradient[n:], 0)
    np.testing.assert_allclose(gradient[:n], expected_gradient, rtol=1e-8, atol=1e-11)


def test_refining_the_mesh_converges_at_second_order():
    layer = make()
    frequencies = jnp.arange(1.0, FEATURES + 1)

    def at_fixed_points(n):
        points = jnp.linspace(0, 1, n)[:, None]
        weights = opjax.grid_weights((n,))
        output = layer(jnp.sin(points * frequencies[None]), quadrature_weights=weights)
        return output[:: (n - 1) // 8]

    reference = at_fixed_points(8 * 256 + 1)
    errors = np.array(
        [np.max(np.abs(at_fixed_points(8 * r + 1) - reference)) for r in (4, 8, 16)]
    )
    assert np.all(np.log2(errors[:-1] / errors[1:]) > 1.8), errors


def test_inspection_reproduces_the_call_and_rows_are_averages(x):
    layer = make()
    seen = layer.inspect(x)
    np.testing.assert_allclose(jnp.sum(seen.functional_map, 2), 1, rtol=1e-12)
    values, phi = layer.basis(x)
    np.testing.assert_array_equal(seen.query_basis, phi)
    means = jax.vmap(lambda f, phi: opjax.project(f, phi, method="mean"))(values, phi)
    moved = phi @ (seen.functional_map @ layer.value(means))
    expected = layer.out(merge_heads(moved))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-9)


@pytest.mark.parametrize("grid_shape", [(20,), (4, 5), (2, 2, 5)])
def test_grids_of_every_dimension(x, grid_shape):
    output = make(grid_shape=grid_shape)(x)
    assert output.shape == x.shape
    assert np.all(np.isfinite(output))


def test_heads_must_divide_the_features_unless_their_width_is_given(x):
    with pytest.raises(ValueError, match="num_heads=5 must divide features=12"):
        make(num_heads=5)
    with pytest.raises(ValueError, match="head_features=0 must be positive"):
        make(head_features=0)
    assert make(num_heads=5, head_features=2)(x).shape == x.shape


TRANSOLVER = {
    "attention": "physics",
    "point_dim": 2,
    "feature_dim": 1,
    "out_features": 1,
    "features": 8,
    "num_layers": 2,
    "num_heads": 2,
    "num_basis": 4,
    "shared_basis": False,
}


def test_the_model_is_the_operator_transformer(rng):
    model = nn.OperatorTransformer(**TRANSOLVER, rngs=nnx.Rngs(0))
    model = jax.tree.map(lambda p: p.astype(float) * 3, model)
    mesh = jnp.asarray(rng.uniform(size=(30, 2))), jnp.asarray(rng.normal(size=(30, 1)))
    assert isinstance(model.blocks.attention, nn.PhysicsAttention)
    z = model.encoder(jnp.concatenate(mesh, axis=1))
    for layer in range(2):
        block = jax.tree.map(lambda p, layer=layer: p[layer], model.blocks)
        z = z + block.attention(block.attention_norm(z))
        z = z + block.mlp(block.mlp_norm(z))
    expected = model.decoder(model.decoder_norm(z))
    np.testing.assert_allclose(model(*mesh), expected, rtol=1e-10)
    assert model.inspect(*mesh).functional_map.shape == (2, 2, 4, 4)


def test_a_model_without_a_ridge_refuses_one():
    with pytest.raises(ValueError, match=r"ridge_logit=1.0 .* attention='physics'"):
        nn.OperatorTransformer(**TRANSOLVER, ridge_logit=1.0, rngs=nnx.Rngs(0))
