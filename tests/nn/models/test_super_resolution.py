"""The transformer for super-resolution: its size, its grids, its attentions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from opjax.nn.attention.pointwise import ATTENTIONS
from tests import refused
from tests.nn.parameters import layer_of, size
from tests.selection import by_day

SMALL = {
    "features": 8,
    "num_layers": 2,
    "hidden_features": 6,
    "modes": 3,
    "decoder_features": 5,
}


def constructor(name, **options):
    if name == "functional":
        return nn.models.coordinate_attention(num_basis=4, **options)
    return partial(ATTENTIONS[name], point_dim=1, **({"num_heads": 2} | options))


def make(scale=3, attention="functional", heads=1, **options):
    model = nn.SuperResolutionTransformer(
        **SMALL,
        attention=constructor(attention, num_heads=heads),
        rngs=nnx.Rngs(0),
        **options,
    )
    return jax.tree.map(lambda p: p.astype(float) * scale, model)


def normalized(z, norm):
    """Over the channels of every point, with the biased variance."""
    mean, variance = jnp.mean(z, 1, keepdims=True), jnp.var(z, 1, keepdims=True)
    z = (z - mean) / jnp.sqrt(variance + 1e-5)
    return z * norm.scale[...][None, :] + norm.bias[...][None, :]


def grid(n, dtype=float):
    """Points of a period without its end, and a smooth function there."""
    points = np.arange(n, dtype=dtype)[:, None] / n
    return points, jnp.sin(2 * jnp.pi * points)


run = jax.jit(lambda model, points, features: model(points, features))


def test_the_published_model_has_the_published_number_of_parameters():
    model = jax.eval_shape(lambda: nn.SuperResolutionTransformer(rngs=nnx.Rngs(0)))
    assert size(model) == 600_241


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("attention", "outer_norm"),
    by_day(
        [("functional", False), ("functional", True), ("galerkin", True)],
        day=[("functional", False)],
    ),
)
def test_the_scan_equals_the_equations(attention, outer_norm):
    """With norms after both residuals, as `layer_norm` of the published code."""
    model = make(attention=attention, outer_norm=outer_norm)
    points, features = grid(16)

    @jax.jit
    def encode(layer, z):
        z = z + layer.attention(z, mesh_points=points)
        z = normalized(z, layer.attention_norm) if outer_norm else z
        z = z + layer.out(jax.nn.relu(layer.hidden(z)))
        return normalized(z, layer.mlp_norm) if outer_norm else z

    passed = [model.lift(features)]
    for i in range(2):
        layer = layer_of(model.layers, i)
        passed.append(encode(layer, passed[-1]))
    latents = jax.jit(type(model).latents)(model, points, features)
    assert_allclose(latents, jnp.stack(passed), rtol=1e-9)
    z = passed[-1]
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
    assert_allclose(run(model, points, features), expected, rtol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("attention", ["functional", *ATTENTIONS])
def test_every_attention_gives_the_same_function_on_a_finer_grid(attention):
    model = make(scale=1, attention=attention, heads=2)
    coarse, fine = run(model, *grid(128)), run(model, *grid(256))[::2]
    assert coarse.shape == (128, 1)
    spread = float(jnp.ptp(coarse))
    assert float(np.max(np.abs(coarse - fine))) < 0.02 * spread


def test_layers_start_equal_as_published():
    kernel = make().layers.attention.out.kernel[...]
    assert_array_equal(kernel[0], kernel[1])


def test_fewer_points_than_wave_numbers_are_possible():
    assert run(make(), *grid(4)).shape == (4, 1)


@pytest.mark.nightly
def test_batches_by_vmap_and_single_precision():
    model = make(scale=1)
    points, features = grid(16)
    batch = jnp.stack([features, 2 * features])
    batched = jax.jit(jax.vmap(model, in_axes=(None, 0)))(points, batch)
    assert_allclose(batched[1], run(model, points, batch[1]), rtol=1e-9)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), model)
    output = run(single, *grid(16, jnp.float32))
    assert output.dtype == jnp.float32
    assert_allclose(output, batched[0], rtol=1e-3, atol=1e-4)


def test_impossible_models_are_refused():
    refused.each(
        (lambda: make(heads=3), "num_heads=3 must divide features=8"),
        (lambda: make(out_features=0), "out_features=0 must be positive"),
    )


def test_bad_calls_name_both_sides():
    model, (points, features) = make(), grid(16)
    refused.each(
        (
            lambda: model(jnp.concatenate([points, points], axis=1), features),
            r"mesh_points \(16, 2\) .* \(n, 1\)",
        ),
        (
            lambda: model(points, features[:-1]),
            r"mesh_points \(16, 1\), features \(15, 1\)",
        ),
        (lambda: model(points), r"features is None, but must have shape \(n, c\)"),
    )
    for name in ("quadrature_weights", "time"):
        with pytest.raises(ValueError, match=f"{name} is not supported by a super-res"):
            model(points, features, **{name: features[:, 0]})
    with pytest.raises(TypeError, match="features has dtype int"):
        model(points, np.ones((16, 1), int))
