"""Dropout of encoder layers: what it drops, in which layers, and when."""

import functools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests.builders import small_operator
from tests.nn.parameters import built_once, evaluate, layer_of

RATE = 0.25


@functools.cache
def layers(count):
    """Returns stacked encoder layers; their attention is the identity."""

    def layer(key):
        return nn.models.EncoderLayer(
            6, hidden_features=9, attention=Same, rngs=nnx.Rngs(params=key)
        )

    return jax.jit(jax.vmap(layer))(jax.random.split(jax.random.key(0), count))


class Same(nnx.Module):
    def __init__(self, features, *, rngs):
        self.scale = nnx.Param(np.ones(features, jnp.float32))

    def __call__(self, x):
        return x * self.scale[...][None]


def test_evaluation_drops_nothing_and_training_what_a_mask_says(rng):
    plain, z = layer_of(layers(1), 0), jnp.asarray(rng.normal(size=(5, 6)), jnp.float32)
    layer = nn.models.Dropout(plain, RATE)
    assert_array_equal(layer(z), plain(z))
    noisy = nn.bases.with_noise(layer, jax.random.key(1))

    def kept(place, shape):
        dropped = np.asarray(noisy.drop(np.ones(shape, jnp.float32), place))
        assert_allclose(np.unique(dropped), [0, 1 / (1 - RATE)], rtol=1e-6)
        return dropped

    # The layer in NumPy, with the masks of its three places.
    attended = np.asarray(z) * (1 + kept(0, (5, 6)))
    first, second = (
        (np.asarray(m.kernel[...]), np.asarray(m.bias[...]))
        for m in (plain.hidden, plain.out)
    )
    hidden = kept(1, (5, 9)) * np.maximum(attended @ first[0] + first[1], 0)
    expected = attended + kept(2, (5, 6)) * (hidden @ second[0] + second[1])
    assert_allclose(noisy(z), expected, rtol=2e-5, atol=1e-6)


def test_the_share_of_zeros_is_the_rate_and_the_mean_stays():
    noisy = nn.bases.with_noise(
        nn.models.Dropout(layer_of(layers(1), 0), RATE), jax.random.key(2)
    )
    dropped = np.asarray(noisy.drop(np.ones(40_000, jnp.float32), 0))
    assert_allclose(np.mean(dropped == 0), RATE, atol=0.01)
    assert_allclose(dropped.mean(), 1, atol=0.02)


def test_layers_places_and_keys_have_masks_of_their_own():
    stacked, ones = nn.models.Dropout(layers(3), RATE), np.ones(64, jnp.float32)
    masks = {
        np.asarray(
            layer_of(nn.bases.with_noise(stacked, key), index).drop(ones, place)
        ).tobytes()
        for key in jax.random.split(jax.random.key(3), 2)
        for index in range(3)
        for place in range(3)
    }
    assert len(masks) == 2 * 3 * 3


@built_once
def super_resolution():
    return nn.SuperResolutionTransformer(
        **{"features": 4, "num_layers": 2, "hidden_features": 4, "modes": 3},
        **{"decoder_features": 2, "attention": Same, "rngs": nnx.Rngs(0)},
    )


def test_models_draw_noise_only_with_a_rate():
    model = super_resolution()
    assert not nn.bases.draws_noise(nn.models.with_dropout(model, 0.0))
    assert nn.bases.draws_noise(nn.models.with_dropout(model, 0.5))


@pytest.mark.nightly
def test_scanned_layers_drop_alike_under_jit_and_have_gradients(rng):
    stacked = nn.models.Dropout(layers(2), 0.5)
    z = jnp.asarray(rng.normal(size=(5, 6)), jnp.float32)

    def value(scale, key):
        noisy = nn.bases.with_noise(stacked, key)
        out, _ = jax.lax.scan(lambda y, layer: (layer(y), None), scale * z, noisy)
        return jnp.sum(out**2)

    keys = jax.random.split(jax.random.key(4), 3)
    found, slopes = jax.jit(jax.vmap(jax.value_and_grad(value), in_axes=(None, 0)))(
        jnp.float32(1), keys
    )
    assert np.isfinite(slopes).all()
    assert len(np.unique(found)) == 3
    y = z
    for index in range(2):
        y = layer_of(nn.bases.with_noise(stacked, keys[0]), index)(y)
    assert_allclose(found[0], jnp.sum(y**2), rtol=1e-5)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_a_rate_out_of_range_is_refused(rate):
    with pytest.raises(ValueError, match="must be at least 0 and below 1"):
        nn.models.Dropout(layer_of(layers(1), 0), rate)


@built_once
def transformer(**given):
    return small_operator(
        feature_dim=given.get("scalar_dim", 0),
        attention=partial(nn.GalerkinAttention, num_heads=2),
        features=6,
        num_layers=3,
        **given,
    )


@pytest.mark.nightly
def test_blocks_drop_what_their_attention_returns_and_nothing_else(rng):
    z = jnp.asarray(rng.normal(size=(5, 6)), jnp.float32)
    model = nn.models.with_dropout(transformer(), RATE)
    noisy = layer_of(nn.bases.with_noise(model, jax.random.key(1)).blocks, 1)
    block = noisy.inner
    mask = np.asarray(noisy.drop(np.ones((5, 6), jnp.float32), 0))
    assert 0 < np.mean(mask == 0) < 1
    attended = z + mask * block.attention(block.attention_norm(z))
    expected = attended + block.mlp(block.mlp_norm(attended))
    assert_allclose(noisy(z), expected, rtol=1e-5, atol=1e-6)

    def masked(z):  # the block with the mask as a constant
        attended = z + mask * block.attention(block.attention_norm(z))
        return jnp.sum((attended + block.mlp(block.mlp_norm(attended))) ** 2)

    slope = jax.jit(jax.grad(lambda z: jnp.sum(noisy(z) ** 2)))(z)
    assert_allclose(slope, jax.jit(jax.grad(masked))(z), rtol=1e-4, atol=1e-5)


def test_transformers_drop_in_training_alone(rng):
    points = jnp.asarray(rng.random((7, 2)), jnp.float32)
    plain, model = transformer(), nn.models.with_dropout(transformer(), RATE)
    assert_array_equal(evaluate(model, points), evaluate(plain, points))
    values = [
        np.asarray(evaluate(nn.bases.with_noise(model, key), points))
        for key in jax.random.split(jax.random.key(0), 2)
    ]
    assert np.abs(values[0] - values[1]).max() > 1e-6
    assert nn.models.with_dropout(plain, 0.0) is plain
    assert not nn.bases.draws_noise(plain)


@pytest.mark.nightly
def test_scalars_modulate_blocks_with_dropout(rng):
    points = jnp.asarray(rng.random((7, 2)), jnp.float32)
    scalars = np.ones((7, 2), jnp.float32)
    plain = transformer(scalar_dim=2)
    model = nn.models.with_dropout(transformer(scalar_dim=2), RATE)
    found = evaluate(model, points, scalars)
    assert_array_equal(found, evaluate(plain, points, scalars))


def test_dropout_and_chunks_exclude_each_other(rng):
    points = jnp.asarray(rng.random((7, 2)), jnp.float32)
    with pytest.raises(ValueError, match="dropout=0.25 is drawn for all points"):
        nn.models.with_dropout(transformer(chunk_size=4), RATE)
    model = nn.models.with_dropout(transformer(), RATE)
    with pytest.raises(ValueError, match="dropout is drawn for all points together"):
        model(points, chunk_size=4)
    assert model.obstacle("narrow") == transformer().obstacle("narrow")


@pytest.mark.nightly
def test_without_dropout_a_model_computes_the_same_in_chunks(rng):
    points = jnp.asarray(rng.random((7, 2)), jnp.float32)
    plain, model = transformer(), nn.models.with_dropout(transformer(), RATE)
    bare = nn.models.without_dropout(model)
    assert nn.bases.draws_noise(model)
    assert not nn.bases.draws_noise(bare)
    assert nn.models.without_dropout(plain) is plain
    assert_array_equal(evaluate(bare, points), evaluate(plain, points))
    values = bare(points, chunk_size=4)
    assert_allclose(values, evaluate(model, points), rtol=1e-5, atol=1e-6)


def test_without_dropout_encoder_layers_compute_the_same(rng):
    model = super_resolution()
    layers = model.layers
    bare = nn.models.without_dropout(nn.models.with_dropout(model, RATE))
    z = jnp.asarray(rng.normal(size=(5, 4)), jnp.float32)
    assert_array_equal(layer_of(bare.layers, 1)(z), layer_of(layers, 1)(z))
