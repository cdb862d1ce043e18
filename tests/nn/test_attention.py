"""Functional attention as a layer: against an oracle, and its symmetries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from opjax.nn.attention.heads import merge_heads
from tests import oracles

FEATURES, HEADS, BASIS = 12, 3, 5


def make(**options):
    options = {"num_heads": HEADS, "num_basis": BASIS} | options
    layer = nn.FunctionalAttention(FEATURES, rngs=nnx.Rngs(0), **options)
    # Large enough that attention is far from its small start, where all is zero.
    return jax.tree.map(lambda p: jnp.asarray(p, float) * 4, layer)


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.normal(size=(20, FEATURES)))


def oracle(layer, x):
    """The layer from its equations, head by head, point by point where it matters."""
    p = jax.tree.map(np.asarray, layer)
    width = FEATURES // HEADS
    projected = x @ p.basis.projection.kernel[...] + p.basis.projection.bias[...]
    values, features = projected[:, :FEATURES], projected[:, FEATURES:]
    a = 1 / (1 + np.exp(-p.ridge_logit[...]))
    outputs = []
    for head in range(HEADS):
        columns = slice(head * width, (head + 1) * width)
        scores = features[:, columns] @ p.basis.score_kernel[...]
        scores = scores + p.basis.score_bias[...]
        tau = np.clip(p.basis.temperature[...][head], 0.1, 5.0)
        phi = oracles.softmax_rows(scores, tau)
        s = phi.T @ values[:, columns] / (phi.sum(0) + 1e-5)[:, None]
        q, k, v = (s @ m.kernel[...] for m in (p.query, p.key, p.value))
        system = (1 - a) * k @ k.T + a * np.eye(BASIS)
        outputs.append(phi @ (q @ k.T @ np.linalg.inv(system) @ v))
    return np.concatenate(outputs, 1) @ p.out.kernel[...] + p.out.bias[...]


def test_the_layer_equals_its_equations(x):
    layer = make()
    np.testing.assert_allclose(layer(x), oracle(layer, np.asarray(x)), rtol=1e-9)


def test_jit_and_vmap_change_nothing(x):
    layer = make()
    batch = jnp.stack([x, 2 * x, x - 1])
    expected = jnp.stack([layer(sample) for sample in batch])
    np.testing.assert_allclose(jax.jit(jax.vmap(layer))(batch), expected, rtol=1e-9)


def test_permuting_the_points_permutes_the_output(x, rng):
    layer, order = make(), rng.permutation(len(x))
    np.testing.assert_allclose(layer(x[order]), layer(x)[order], rtol=1e-9)


def test_duplicated_points_change_nothing_with_halved_weights(x):
    layer, n = make(), len(x)
    once = layer(x, quadrature_weights=jnp.full(n, 1 / n))
    doubled = jnp.concatenate([x, x])
    twice = layer(doubled, quadrature_weights=jnp.full(2 * n, 0.5 / n))
    # The offset of the means counts points, hence the looser tolerance.
    np.testing.assert_allclose(twice[:n], once, rtol=2e-5, atol=1e-6)


def test_padding_changes_neither_values_nor_gradients(x, rng):
    layer, n = make(), len(x)
    padded = jnp.concatenate([x, jnp.asarray(rng.normal(size=(7, FEATURES)))])
    weights = jnp.concatenate([jnp.ones(n), jnp.zeros(7)])
    cotangent = jnp.asarray(rng.normal(size=(n, FEATURES)))

    def loss(layer, x, weights):
        return jnp.sum(layer(x, quadrature_weights=weights)[:n] * cotangent)

    run = jax.value_and_grad(loss, argnums=(0, 1))
    expected, expected_gradients = run(layer, x, None)
    actual, (layer_gradient, x_gradient) = run(layer, padded, weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
    np.testing.assert_array_equal(x_gradient[n:], 0)
    for a, b in zip(
        jax.tree.leaves((layer_gradient, x_gradient[:n])),
        jax.tree.leaves(expected_gradients),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-11)


def test_a_shared_basis_is_the_owned_one(x):
    layer = make()
    shared = make(shared_basis=True)
    for name in ("query", "key", "value", "ridge_logit", "out"):
        setattr(shared, name, getattr(layer, name))
    np.testing.assert_array_equal(shared(x, basis=layer.basis), layer(x))


def test_inspection_reproduces_the_call(x):
    layer = make()
    seen = layer.inspect(x)
    values, phi = layer.basis(x)
    np.testing.assert_array_equal(seen.query_basis, phi)
    means = jnp.einsum("hnk,hnd->hkd", phi, values) / (phi.sum(1) + 1e-5)[:, :, None]
    moved = seen.functional_map @ layer.value(means)
    expected = layer.out(merge_heads(phi @ moved))
    np.testing.assert_allclose(layer(x), expected, rtol=1e-9)


def test_condition_numbers_use_the_ridge_of_every_head(x):
    layer = make(ridge_per_head=True)
    layer.ridge_logit[...] = jnp.array([-1.0, 0.0, 2.0])
    values, phi = layer.basis(x)
    means = jnp.einsum("hnk,hnd->hkd", phi, values) / (phi.sum(1) + 1e-5)[:, :, None]
    keys = np.asarray(layer.key(means))
    for head, a in enumerate(1 / (1 + np.exp(-np.array([-1.0, 0.0, 2.0])))):
        system = (1 - a) * keys[head] @ keys[head].T + a * np.eye(phi.shape[2])
        actual = layer.condition_numbers(x)[head]
        np.testing.assert_allclose(actual, np.linalg.cond(system), rtol=1e-9)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), layer)
    numbers = single.condition_numbers(x.astype(jnp.float32))
    assert numbers.dtype == jnp.float32
    np.testing.assert_allclose(numbers, layer.condition_numbers(x), rtol=1e-4)


def test_convolutional_projections_see_neighbours(rng):
    x = jnp.asarray(rng.normal(size=(20, FEATURES)))
    layer = make(grid_shape=(4, 5))
    assert layer(x).shape == x.shape
    order = rng.permutation(20)
    assert float(jnp.max(jnp.abs(layer(x[order]) - layer(x)[order]))) > 1e-3


def test_float32_stays_float32_and_close(x):
    layer = make()
    single = jax.tree.map(lambda p: p.astype(jnp.float32), layer)
    output = single(x.astype(jnp.float32))
    assert output.dtype == jnp.float32
    np.testing.assert_allclose(output, layer(x), rtol=1e-3, atol=1e-4)


def test_heads_must_divide_the_features():
    with pytest.raises(ValueError, match="num_heads=5 must divide features=12"):
        make(num_heads=5)


def test_a_basis_is_passed_if_and_only_if_shared(x):
    with pytest.raises(ValueError, match="shared_basis=True"):
        make(shared_basis=True)(x)
    layer = make()
    with pytest.raises(ValueError, match="shared_basis=True"):
        layer(x, basis=layer.basis)


@pytest.mark.parametrize("entries", [0, 2**20])
def test_heads_one_by_one_or_together_are_the_same(x, monkeypatch, entries):
    layer = make()
    expected = oracle(layer, np.asarray(x))

    def loss(layer):
        return jnp.sum(layer(x) ** 2)

    gradient = jax.grad(loss)(layer)
    monkeypatch.setattr(nn.heads, "_ENTRIES_IN_CACHE", entries)
    np.testing.assert_allclose(layer(x), expected, rtol=1e-9)
    assert ("scan" in str(jax.make_jaxpr(layer)(x))) == (entries == 0)
    for a, b in zip(
        jax.tree.leaves(jax.grad(loss)(layer)), jax.tree.leaves(gradient), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_coordinates_are_channels_of_the_projections_only(x, rng):
    points = jnp.asarray(rng.uniform(size=(20, 2)))
    layer = make(point_dim=2)
    values, phi = layer.basis(jnp.concatenate([x, points], axis=1))
    heads = jax.vmap(layer.attend, in_axes=(0, 0, None))(values, phi, None)
    expected = layer.out(merge_heads(heads))
    np.testing.assert_allclose(layer(x, mesh_points=points), expected, rtol=1e-9)
    with pytest.raises(ValueError, match="0 coordinates .* point_dim=2"):
        layer(x)
    with pytest.raises(ValueError, match="2 coordinates .* point_dim=0"):
        make()(x, mesh_points=points)


def test_a_layer_without_biases_is_the_layer_with_zero_biases(x):
    layer, plain = make(use_bias=False), make()
    for name in ("query", "key", "value"):
        setattr(plain, name, getattr(layer, name))
    plain.out.kernel = layer.out.kernel
    plain.basis.projection.kernel = layer.basis.projection.kernel
    plain.basis.score_kernel = layer.basis.score_kernel
    for owner in (plain.out, plain.basis.projection):
        owner.bias = nnx.Param(jnp.zeros_like(owner.bias[...]))
    plain.basis.score_bias = nnx.Param(jnp.zeros(BASIS))
    np.testing.assert_allclose(layer(x), plain(x), rtol=1e-12)
    on_grid = make(use_bias=False, grid_shape=(4, 5))
    assert on_grid.basis.projection.bias is None
    assert on_grid(x).shape == x.shape


def test_every_head_can_have_a_ridge_of_its_own(x):
    layer, shared = make(ridge_per_head=True), make()
    layer.ridge_logit = nnx.Param(jnp.asarray([-2.0, 0.0, 1.0]))
    maps = layer.inspect(x).functional_map
    layer.out.kernel = shared.out.kernel = nnx.Param(jnp.eye(FEATURES))
    columns = jnp.split(layer(x), HEADS, axis=1)
    for head, logit in enumerate([-2.0, 0.0, 1.0]):
        shared.ridge_logit = nnx.Param(jnp.asarray(logit))
        expected = jnp.split(shared(x), HEADS, axis=1)[head]
        np.testing.assert_allclose(columns[head], expected, rtol=1e-9)
        np.testing.assert_allclose(
            maps[head], shared.inspect(x).functional_map[head], rtol=1e-9, atol=1e-12
        )


def test_fan_in_starts_are_uniform_within_their_bounds():
    layer = nn.FunctionalAttention(
        48, num_heads=3, num_basis=BASIS, fan_in_init=True, rngs=nnx.Rngs(0)
    )
    for kernel, bound in ((layer.query.kernel, 1 / 4), (layer.out.kernel, 48**-0.5)):
        assert 0.95 * bound < float(jnp.max(jnp.abs(kernel[...]))) <= bound
    assert float(jnp.max(jnp.abs(layer.out.bias[...]))) > 0
