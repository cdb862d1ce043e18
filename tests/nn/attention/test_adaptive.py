"""The basis of Transolver++ from its equations, and its noise."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from opjax.nn.bases.adaptive import NoisyBasis
from tests import oracles, refused
from tests.builders import small_operator
from tests.nn.attention.layers import BASIS, FEATURES, HEADS, WIDTH, numpy
from tests.nn.parameters import enlarged
from tests.oracles import replaced

N = 12
KEY = jax.random.key(3)


def basis_of(**options):
    options = {"num_heads": HEADS, "num_basis": BASIS} | options
    return enlarged(nn.bases.AdaptiveBasis(FEATURES, rngs=nnx.Rngs(0), **options))


def layer_of():
    layer = nn.attention.EideticAttention(
        FEATURES, num_heads=HEADS, num_basis=BASIS, rngs=nnx.Rngs(0)
    )
    return enlarged(layer)


def model_of():
    def attention(features, *, rngs):
        return nn.attention.EideticAttention(
            features, num_heads=2, num_basis=4, rngs=rngs
        )

    model = small_operator(feature_dim=0, attention=attention)
    return enlarged(model)


@pytest.fixture
def x(rng):
    return rng.normal(size=(N, FEATURES))


def gelu(values):
    return values * 0.5 * (1 + np.vectorize(math.erf)(values / math.sqrt(2)))


def test_functions_are_softmaxes_with_a_temperature_for_each_point(x):
    basis = basis_of()
    bias = jnp.array([0.3, -0.5, 2.0])  # the second one is clipped at some points
    basis.temperature_bias[...] = bias
    values, phi = basis(x)
    p, clipped = numpy(basis), 0
    columns = np.asarray(x) @ p.projection.kernel[...] + p.projection.bias[...]
    for head in range(HEADS):
        f = columns[:, head * WIDTH : (head + 1) * WIDTH]
        assert_allclose(values[head], f, rtol=1e-9)
        (hidden,) = p.temperature.hidden
        t = gelu(f @ hidden.kernel[...] + hidden.bias[...])
        t = gelu(t @ p.temperature.out.kernel[...] + p.temperature.out.bias[...])
        t = t[:, 0] + float(bias[head])
        clipped += np.sum(t < 0.01)
        scores = f @ p.scores.kernel[...] + p.scores.bias[...]
        rows = zip(scores, np.maximum(t, 0.01), strict=True)
        expected = np.concatenate([oracles.softmax_rows([s], t) for s, t in rows])
        assert_allclose(phi[head], expected, rtol=1e-8, atol=1e-12)
    assert 0 < clipped < N


@pytest.mark.nightly
def test_clipped_temperatures_have_no_gradient(x):
    basis = basis_of(min_temperature=100.0)
    gradient = jax.grad(lambda basis: jnp.sum(basis(x)[1] ** 2))(basis)
    assert not np.any(gradient.temperature_bias[...])
    assert np.any(gradient.scores.kernel[...])


def test_parameters_start_small_and_temperatures_as_told():
    basis = nn.bases.AdaptiveBasis(
        64, num_heads=2, num_basis=32, temperature=0.7, rngs=nnx.Rngs(0)
    )
    assert_array_equal(basis.temperature_bias[...], np.float32(0.7))
    for linear in (basis.projection, basis.scores, basis.temperature.hidden[0]):
        assert not np.any(linear.bias[...])
        assert_allclose(np.std(linear.kernel[...]), 0.02, rtol=0.1)


def test_the_layer_is_its_basis_with_softmax_among_tokens(x):
    layer = layer_of()
    same = nn.BasisAttention(
        FEATURES,
        num_heads=HEADS,
        basis=lambda *_, **__: layer.basis,
        mixer=lambda *_, **__: layer.mixer,
        rngs=nnx.Rngs(1),
    )
    same.out = layer.out
    assert isinstance(layer.mixer, nn.mixers.SoftmaxMap)
    assert_allclose(layer(x), same(x), rtol=1e-12)


def test_noise_belongs_to_key_head_layer_and_sample():
    model, points = model_of(), np.linspace(0, 1, 2 * N).reshape(N, 2)
    assert nn.bases.draws_noise(model)
    keys = jnp.stack([KEY, KEY, jax.random.key(4)])

    @jax.jit
    def run(keys):
        found = jax.vmap(lambda key: nn.bases.with_noise(model, key)(points))(keys)
        return found, model(points)

    (first, again, other), plain = run(keys)
    assert_array_equal(again, first)
    for a, b in ((first, plain), (other, plain), (first, other)):
        assert np.max(np.abs(a - b)) > 1e-7 * np.max(np.abs(plain))
    keys = nn.bases.with_noise(model, KEY).blocks.attention.basis.keys[...]
    keys = np.asarray(jax.random.key_data(keys)).reshape(-1, 2)
    assert len({tuple(key) for key in keys}) == 2 * 2


def test_noise_is_that_of_the_draws(x):
    noisy = nn.bases.with_noise(layer_of(), KEY)
    _, phi = noisy.basis(x)
    inner = noisy.basis.inner
    values, local, shared = inner.head_inputs(x)
    for head in range(HEADS):
        key = noisy.basis.keys[...][head]
        uniform = jax.random.uniform(key, (N, BASIS), float)
        expected = inner.functions(local[head], shared[head], None, uniform=uniform)
        assert_allclose(phi[head], expected, rtol=1e-12)
    assert values.shape == (HEADS, N, WIDTH)


def test_gradients_of_a_noisy_layer_are_those_of_its_parameters(x):
    layer = layer_of()

    @jax.jit
    def run(layer, x):
        return jax.grad(lambda m: jnp.sum(nn.bases.with_noise(m, KEY)(x) ** 2))(layer)

    gradient = run(layer, x)
    assert jax.tree.structure(gradient) == jax.tree.structure(layer)
    step, kernel = 1e-6, layer.basis.scores.kernel[...]
    direction = jnp.sin(np.arange(kernel.size, dtype=float)).reshape(kernel.shape)

    @jax.jit
    def along(t):
        moved = jax.tree.map(lambda leaf: leaf, layer)
        moved.basis.scores.kernel = nnx.Param(kernel + t * direction)
        return jnp.sum(nn.bases.with_noise(moved, KEY)(x) ** 2)

    expected = (along(step) - along(-step)) / (2 * step)
    actual = jnp.sum(gradient.basis.scores.kernel[...] * direction)
    assert_allclose(actual, expected, rtol=1e-6)


def test_masked_points_change_nothing_with_noise(x):
    noisy = nn.bases.with_noise(layer_of(), KEY)
    weights = jnp.concatenate([np.full(N - 3, 1 / (N - 3)), np.zeros(3)])
    changed = noisy(replaced(x, np.s_[N - 3 :], 7.0), quadrature_weights=weights)
    expected = noisy(x, quadrature_weights=weights)
    assert_allclose(changed[: N - 3], expected[: N - 3], rtol=1e-10)


def test_models_without_noise_are_left_alone():
    model = nn.FunctionalAttention(8, num_heads=2, num_basis=3, rngs=nnx.Rngs(0))
    assert not nn.bases.draws_noise(model)
    same = nn.bases.with_noise(model, KEY)
    assert jax.tree.structure(same) == jax.tree.structure(model)


class Dropout(nnx.Module):
    """A layer of somebody else's, with noise."""

    def with_noise(self, key):
        return NoisyBasis(basis_of(), jax.random.split(key, HEADS))


def test_layers_of_your_own_may_draw_noise():
    found = nn.bases.with_noise({"a": Dropout(), "b": np.ones(2)}, KEY)
    assert isinstance(found["a"], NoisyBasis)
    assert_array_equal(found["b"], 1)


test_bad_options_are_named_in_the_error = refused.options(
    basis_of,
    [
        ({"num_heads": 5}, "num_heads=5 must divide features=12"),
        ({"num_basis": 0}, "num_basis=0 must be positive"),
        ({"temperature": 0.0}, "temperature=0.0 must be positive"),
        ({"min_temperature": 0.0}, "min_temperature=0.0 must be positive"),
    ],
)


def test_functions_of_a_call_are_refused(x):
    with pytest.raises(ValueError, match="no functions of its own"):
        basis_of()(x, basis_functions=x)
