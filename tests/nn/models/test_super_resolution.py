"""The transformer for super-resolution: its size, its grids, its attentions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from opjax.nn.super_resolution import ATTENTIONS

SMALL = {
    "features": 8,
    "num_layers": 2,
    "num_basis": 4,
    "feedforward_features": 6,
    "num_modes": 3,
    "decoder_features": 5,
}


def make(scale=3, **options):
    model = nn.SuperResolutionTransformer(**SMALL, rngs=nnx.Rngs(0), **options)
    return jax.tree.map(lambda p: p.astype(float) * scale, model)


def grid(n, dtype=float):
    """Points of a period without its end, and a smooth function there."""
    points = jnp.arange(n, dtype=dtype)[:, None] / n
    return points, jnp.sin(2 * jnp.pi * points)


def test_the_published_model_has_the_published_number_of_parameters():
    model = jax.eval_shape(lambda: nn.SuperResolutionTransformer(rngs=nnx.Rngs(0)))
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 600_241


@pytest.mark.parametrize("outer_norm", [False, True])
def test_the_scan_equals_the_equations(outer_norm):
    model = make(outer_norm=outer_norm)
    points, features = grid(16)
    z = model.lift(features)
    for i in range(2):
        layer = jax.tree.map(lambda p, i=i: p[i], model.layers)
        z = z + layer.attention(z, mesh_points=points)
        z = layer.attention_norm(z) if outer_norm else z
        z = z + layer.out(jax.nn.relu(layer.hidden(z)))
        z = layer.mlp_norm(z) if outer_norm else z
    for filters in model.decoder.layers:
        spectrum = np.fft.rfft(np.asarray(z), axis=0)
        kernel = np.asarray(filters.convolution.kernel[...])
        kept = np.einsum(
            "fc,fco->fo", spectrum[:3], kernel[..., 0] + 1j * kernel[..., 1]
        )
        padded = np.zeros((9, kept.shape[1]), complex)
        padded[:3] = kept
        filtered = np.fft.irfft(padded, 16, axis=0)
        z = jax.nn.silu(jnp.asarray(filtered) + filters.skip(z))
    expected = model.decoder.perceptron(z)
    np.testing.assert_allclose(model(points, features), expected, rtol=1e-9)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_gives_the_same_function_on_a_finer_grid(attention):
    model = make(scale=1, attention=attention, num_heads=2)
    run = jax.jit(lambda x, f: model(x, f))
    coarse, fine = run(*grid(128)), run(*grid(256))[::2]
    assert coarse.shape == (128, 1)
    spread = float(jnp.ptp(coarse))
    assert float(jnp.max(jnp.abs(coarse - fine))) < 0.02 * spread


def test_layers_start_equal_as_published_or_not():
    for equal in (True, False):
        kernel = make(equal_layers=equal).layers.attention.query.kernel[...]
        assert bool(jnp.all(kernel[0] == kernel[1])) == equal


def test_fewer_points_than_wave_numbers_are_possible():
    assert make()(*grid(4)).shape == (4, 1)


def test_batches_by_vmap_and_single_precision():
    model = make(scale=1)
    points, features = grid(16)
    batch = jnp.stack([features, 2 * features])
    batched = jax.jit(jax.vmap(model, in_axes=(None, 0)))(points, batch)
    np.testing.assert_allclose(batched[1], model(points, batch[1]), rtol=1e-9)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), model)
    output = single(*grid(16, jnp.float32))
    assert output.dtype == jnp.float32
    np.testing.assert_allclose(output, batched[0], rtol=1e-3, atol=1e-4)


def test_options_reach_the_attention():
    model = make(attention="galerkin", normalization=None)
    assert model.layers.attention.key_norm is None
    assert make(ridge_logit=0.5).layers.attention.ridge_logit[...].shape == (2, 1)


def test_impossible_models_are_refused():
    with pytest.raises(
        ValueError, match=r"attention='mean' .* 'functional', 'gal.*'so"
    ):
        make(attention="mean")
    with pytest.raises(ValueError, match="num_heads=3 must divide features=8"):
        make(num_heads=3)
    with pytest.raises(ValueError, match="out_features=0 must be positive"):
        make(out_features=0)


def test_bad_calls_name_both_sides():
    model, (points, features) = make(), grid(16)
    with pytest.raises(ValueError, match=r"mesh_points \(16, 2\) .* \(n, 1\)"):
        model(jnp.concatenate([points, points], axis=1), features)
    with pytest.raises(ValueError, match=r"mesh_points \(16, 1\), features \(15, 1\)"):
        model(points, features[:-1])
    with pytest.raises(TypeError, match="features has dtype int"):
        model(points, jnp.ones((16, 1), int))
