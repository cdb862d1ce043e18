"""Layers apply what a user puts into them or overrides, whole and in chunks."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests.nn.attention.layers import BASIS, FEATURES
from tests.nn.parameters import evaluate

POINTS = 20

MAPS = ("query", "key", "value", "out")
LAYERS = {
    "one head": (
        partial(nn.FunctionalAttention, num_heads=1, num_basis=BASIS),
        ["out"],
    ),
    "heads": (partial(nn.FunctionalAttention, num_heads=2, num_basis=BASIS), ["out"]),
    "galerkin": (partial(nn.GalerkinAttention, num_heads=2), MAPS),
    "linear": (partial(nn.LinearAttention, num_heads=2), MAPS),
    "softmax": (partial(nn.SoftmaxAttention, num_heads=2), MAPS),
}


def normal(rng, *shape):
    return jnp.asarray(rng.normal(size=shape), jnp.float32)


def adapted(linear, rngs):
    """The same map with a low-rank update, and a plain one with their sum."""
    sizes = linear.in_features, linear.out_features
    adapter = nnx.LoRALinear(*sizes, lora_rank=2, rngs=rngs)
    adapter.kernel, adapter.bias = linear.kernel, linear.bias
    shape = adapter.lora.lora_b.shape
    adapter.lora.lora_b[...] = jax.random.normal(rngs.params(), shape, jnp.float32)
    whole = nn.layers.Linear(*sizes, rngs=rngs)
    update = adapter.lora.lora_a[...] @ adapter.lora.lora_b[...]
    whole.kernel[...], whole.bias = linear.kernel[...] + update, linear.bias
    return adapter, whole


@pytest.mark.parametrize("name", LAYERS)
def test_a_linear_map_with_an_adapter_is_that_of_the_sum(name, rng):
    x = normal(rng, POINTS, FEATURES)
    build, maps = LAYERS[name]
    adapters, sums = (build(FEATURES, rngs=nnx.Rngs(0)) for _ in range(2))
    places = [(adapters, sums, part) for part in maps]
    if hasattr(sums, "basis"):
        places.append((adapters.basis, sums.basis, "projection"))
    plain = evaluate(sums, x)
    for number, (one, other, part) in enumerate(places):
        pair = adapted(getattr(other, part), nnx.Rngs(number))
        setattr(one, part, pair[0])
        setattr(other, part, pair[1])
    expected = evaluate(sums, x)
    assert jnp.max(jnp.abs(expected - plain)) > 0.1 * jnp.max(jnp.abs(plain))
    assert_allclose(
        evaluate(adapters, x), expected, rtol=1e-3, atol=1e-4 * np.max(expected)
    )


def test_chunks_apply_linear_maps_of_other_classes(rng):
    model = nn.OperatorTransformer(
        position=nn.Coordinates(2),
        feature_dim=0,
        out_features=1,
        features=FEATURES,
        num_layers=1,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=BASIS),
        rngs=nnx.Rngs(0),
    )
    attention = model.blocks.attention
    assert attention.out.kernel.shape[0] == 1  # blocks are stacked
    points = normal(rng, POINTS, 2)

    class Doubled(nn.layers.Linear):
        def __call__(self, inputs, out_sharding=None):
            return 2 * super().__call__(inputs, out_sharding)

    plain = evaluate(model, points)
    for layer in (attention.out, attention.basis.projection):
        layer.__class__ = Doubled
    whole = evaluate(model, points)
    assert jnp.max(jnp.abs(whole - plain)) > 1e-3 * jnp.max(jnp.abs(plain))
    chunked = jax.jit(lambda model: model(points, chunk_size=7))(model)
    assert_allclose(chunked, whole, rtol=1e-4, atol=1e-6)


class Positive(nn.BasisAttention):
    def expansion(self, coefficients, phi):
        return jnp.maximum(super().expansion(coefficients, phi), 0)


class Bounded(nn.BasisAttention):
    def moments(self, basis, values, phi, weights):
        return super().moments(basis, jnp.tanh(5 * values), phi, weights)


@pytest.mark.parametrize("layer", [Positive, Bounded])
def test_one_head_takes_the_overridden_steps(layer, rng):
    x = normal(rng, POINTS, FEATURES)
    basis = partial(nn.bases.SoftmaxBasis, num_basis=BASIS)
    one = layer(FEATURES, num_heads=1, basis=basis, rngs=nnx.Rngs(0))
    (values,), (phi,) = one.basis(x)
    moments = one.moments(one.basis, values, phi, None)
    coefficients = one.coefficients(one.basis, moments, None)
    expected = one.merge(one.expansion(coefficients, phi)[None])
    assert_allclose(evaluate(one, x), expected, rtol=1e-5, atol=1e-8)


class Halved(nn.mixers.FunctionalMap):
    def attend(self, query, key, value, own=None):
        return 0.5 * super().attend(query, key, value, own)


def test_the_matrix_of_a_mixer_is_what_it_applies(rng):
    coefficients = normal(rng, 5, 4)
    mixer = Halved(4, num_heads=1, rngs=nnx.Rngs(0))
    applied = mixer.matrix(coefficients) @ mixer.value(coefficients)
    assert_allclose(mixer(coefficients), applied, rtol=1e-5, atol=1e-8)


def test_an_adapter_is_not_taken_for_its_kernel(rng):
    perceptron = nn.layers.MLP(4, 8, 4, rngs=nnx.Rngs(0))
    perceptron.out, _ = adapted(perceptron.out, nnx.Rngs(1))
    with pytest.raises(TypeError, match="LoRALinear is more than its kernel"):
        perceptron.last_map(normal(rng, 3, 4))
