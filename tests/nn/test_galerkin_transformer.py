"""Scalers, decoders and the Galerkin transformer: parts, boundary, sizes, errors."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import interpolate_grid, nn
from opjax.nn.galerkin_transformer import grid_points
from tests.nn.test_galerkin import enlarged

SMALL = {
    "grid_shape": (9, 8),
    "coarse_shape": (5, 4),
    "features": 6,
    "num_layers": 3,
    "num_heads": 2,
    "hidden_features": 5,
    "decoder_features": 4,
    "modes": 2,
}
INTERIOR = np.pad(np.ones((7, 6), bool), 1).reshape(-1)


def build(**options):
    return nn.GalerkinTransformer2d(rngs=nnx.Rngs(0), **(SMALL | options))


@functools.cache
def make(**options):
    return enlarged(build(**options))


def run(model, *args, **given):
    return jax.jit(lambda model, args, given: model(*args, **given))(model, args, given)


@pytest.fixture
def values(rng):
    return jnp.asarray(rng.normal(size=(72, 1)))


def silu(x):
    return x / (1 + np.exp(-x))


def relu(x):
    return np.maximum(x, 0)


# scalers


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_a_convolution_block_activates_after_the_sum(rng, residual, double):
    block = nn.ConvolutionBlock(
        3, 4, grid_shape=(5, 4), residual=residual, double=double, rngs=nnx.Rngs(0)
    )
    block = enlarged(block)
    x = jnp.asarray(rng.normal(size=(20, 3)))
    y = block.convolution(x)
    if double:
        y = block.second(jnp.asarray(silu(np.asarray(y))))
    if residual:
        y = y + block.shortcut(x)
    np.testing.assert_allclose(block(x), silu(np.asarray(y)), rtol=1e-10)
    assert block.convolution.bias is None


def test_a_residual_of_equal_channels_is_the_identity(rng):
    block = nn.ConvolutionBlock(
        3, 3, grid_shape=(4,), activation="relu", residual=True, rngs=nnx.Rngs(0)
    )
    assert block.shortcut is None
    x = jnp.asarray(rng.normal(size=(4, 3)))
    block = enlarged(block)
    np.testing.assert_allclose(block(x), relu(block.convolution(x) + x), rtol=1e-12)


def test_a_convolution_without_bias_is_linear(rng):
    layer = nn.GridConvolution(
        2, 3, grid_shape=(4, 4), use_bias=False, rngs=nnx.Rngs(0)
    )
    x = jnp.asarray(rng.normal(size=(16, 2)), jnp.float32)
    np.testing.assert_allclose(layer(2 * x), 2 * layer(x), rtol=1e-5)
    assert len(jax.tree.leaves(layer)) == 1


@pytest.mark.parametrize(("activation", "act"), [("relu", relu), ("silu", silu)])
def test_the_down_scaler_activates_on_both_sides_of_an_interpolation(
    rng, activation, act
):
    shapes = (9, 7), (6, 5), (4, 3)
    scaler = nn.DownScaler(
        2,
        8,
        grid_shape=shapes[0],
        middle_shape=shapes[1],
        new_shape=shapes[2],
        activation=activation,
        rngs=nnx.Rngs(0),
    )
    scaler = enlarged(scaler)
    x = jnp.asarray(rng.normal(size=(63, 2)))

    def block(block, x):
        return jnp.asarray(act(np.asarray(block.convolution(x))))

    def move(x, level):
        old, new = shapes[level], shapes[level + 1]
        return jnp.asarray(act(interpolate_grid(x, grid_shape=old, new_shape=new)))

    first = block(scaler.first, move(block(scaler.fine, x), 0))
    second = block(scaler.second, first)
    stacked = jnp.concatenate([first, second, block(scaler.third, second)], axis=1)
    np.testing.assert_allclose(scaler(x), move(stacked, 1), rtol=1e-10)
    assert [first.shape[1], second.shape[1], stacked.shape[1]] == [2, 2, 8]


def test_the_up_scaler_between_equal_grids_activates_twice(rng):
    scaler = nn.UpScaler(3, grid_shape=(4, 5), new_shape=(4, 5), rngs=nnx.Rngs(0))
    scaler = enlarged(scaler)
    x = jnp.asarray(rng.normal(size=(20, 3)))
    expected = silu(silu(np.asarray(scaler.block.convolution(x))))
    np.testing.assert_allclose(scaler(x), expected, rtol=1e-10)


def test_the_middle_grid_is_the_geometric_mean():
    scaler = nn.UpScaler(3, grid_shape=(71,), new_shape=(141,), rngs=nnx.Rngs(0))
    assert scaler.shapes == ((71,), (100,), (141,))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"new_shape": (4,)}, "one entry per axis"),
        ({"middle_shape": (4,)}, "one entry per axis"),
        ({"new_shape": (4, 0)}, "must be positive"),
        ({"activation": "tanh"}, "activation='tanh' is unknown"),
    ],
)
def test_bad_scalers_are_named(options, match):
    options = {"grid_shape": (5, 5), "new_shape": (3, 3)} | options
    with pytest.raises(ValueError, match=match):
        nn.UpScaler(3, rngs=nnx.Rngs(0), **options)
    with pytest.raises(ValueError, match=match):
        nn.DownScaler(1, 3, rngs=nnx.Rngs(0), **options)


def test_the_down_scaler_needs_three_channels():
    with pytest.raises(ValueError, match="out_features=2 must be at least 3"):
        nn.DownScaler(1, 2, grid_shape=(5,), new_shape=(3,), rngs=nnx.Rngs(0))


# decoders


def spectral_decoder(**options):
    options = {"features": 4, "grid_shape": (16,), "modes": 3} | options
    return enlarged(nn.SpectralDecoder(2, 1, rngs=nnx.Rngs(0), **options))


@pytest.mark.parametrize("last_activation", [False, True])
@pytest.mark.parametrize("point_dim", [0, 1])
def test_the_spectral_decoder_is_the_chain_of_its_parts(
    rng, last_activation, point_dim
):
    decoder = spectral_decoder(point_dim=point_dim, last_activation=last_activation)
    x, points = jnp.asarray(rng.normal(size=(16, 2))), jnp.linspace(0, 1, 16)[:, None]
    given = {"mesh_points": points} if point_dim else {}
    y = decoder.lift(jnp.concatenate([x, points], axis=1)) if point_dim else x
    for i, layer in enumerate(decoder.layers):
        y = layer.convolution(y) + layer.skip(y)
        y = silu(y) if i == 0 or last_activation else y
    expected = decoder.out(silu(decoder.hidden(y)))
    np.testing.assert_allclose(decoder(x, **given), expected, rtol=1e-10)
    assert decoder.hidden.kernel.shape == (4, 16)


def test_one_linear_spectral_layer_commutes_with_refinement():
    decoder = spectral_decoder(num_layers=1, last_activation=False)

    def signal(n):
        x = 2 * np.pi * np.arange(n)[:, None] / n
        return jnp.asarray(np.hstack([np.cos(x) + 1, np.sin(2 * x)]))

    coarse = decoder(signal(16))
    fine = decoder(signal(32), grid_shape=(32,))
    np.testing.assert_allclose(fine[::2], coarse, rtol=1e-10)


def test_the_pointwise_decoder_is_the_chain_of_its_parts(rng):
    decoder = nn.PointwiseDecoder(
        2, 3, features=4, num_layers=2, point_dim=2, rngs=nnx.Rngs(0)
    )
    decoder = enlarged(decoder)
    x, points = (jnp.asarray(rng.normal(size=(7, 2))) for _ in range(2))
    y = decoder.lift(jnp.concatenate([x, points], axis=1))
    for layer in decoder.layers:
        y = silu(layer(y))
    expected = decoder.out(y)
    np.testing.assert_allclose(decoder(x, mesh_points=points), expected, rtol=1e-10)


@pytest.mark.parametrize("point_dim", [0, 2])
def test_coordinates_of_a_decoder_that_do_not_fit_are_named(point_dim):
    decoder = nn.PointwiseDecoder(
        2, 1, features=4, point_dim=point_dim, rngs=nnx.Rngs(0)
    )
    with pytest.raises(ValueError, match=r"mesh_points \(7, 3\) do not fit"):
        decoder(jnp.ones((7, 2)), mesh_points=jnp.ones((7, 3)))


def test_bad_decoders_are_named():
    with pytest.raises(ValueError, match="activation='tanh'"):
        spectral_decoder(activation="tanh")
    with pytest.raises(ValueError, match="num_layers=0 must be positive"):
        spectral_decoder(num_layers=0)
    with pytest.raises(ValueError, match="modes"):
        spectral_decoder(modes=20)
    with pytest.raises(ValueError, match="num_layers=0 must be positive"):
        nn.PointwiseDecoder(2, 1, features=4, num_layers=0, rngs=nnx.Rngs(0))


# model


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 2_220_829),
        (
            {
                "output_shape": (71, 71),
                "features": 192,
                "hidden_features": 384,
                "down_activation": "silu",
                "decoder": "pointwise",
                "decoder_features": 192,
                "boundary": "free",
            },
            2_383_873,
        ),
    ],
)
def test_the_paper_s_models_have_its_numbers_of_parameters(options, expected):
    def build():
        return nn.GalerkinTransformer2d(
            grid_shape=(141, 141), coarse_shape=(71, 71), rngs=nnx.Rngs(0), **options
        )

    parameters = nnx.state(jax.eval_shape(build), nnx.Param)
    assert sum(math.prod(p.shape) for p in jax.tree.leaves(parameters)) == expected


def test_the_model_is_the_chain_of_its_parts(values):
    model = make(boundary="free")
    z = model.down(values)
    for i in range(3):
        layer = jax.tree.map(lambda p, i=i: p[i], model.layers)
        z = layer(z, mesh_points=grid_points((5, 4)))
    z = model.decoder(model.up(z), mesh_points=grid_points((9, 8)))
    np.testing.assert_allclose(run(model, values), z, rtol=1e-10)


@pytest.mark.parametrize("decoder", ["spectral", "pointwise"])
def test_without_a_coarse_grid_there_are_no_scalers(values, decoder):
    model = make(coarse_shape=None, decoder=decoder)
    assert model.up is None
    assert model.down is None
    assert run(model, values).shape == (72, 1)


def test_the_boundary_is_zeroed_after_decoding_and_then_given(values, rng):
    free, fixed = make(boundary="free"), make()
    mean = jnp.asarray(rng.normal(size=(72, 1)))
    std = jnp.asarray(rng.uniform(0.5, 1.5, (72, 1)))
    decoded = run(free, values) * std + mean
    given = {"mean": mean, "std": std}
    np.testing.assert_allclose(run(free, values, **given), decoded, rtol=1e-10)
    zeroed = np.where(INTERIOR[:, None], decoded, 0)
    np.testing.assert_allclose(run(fixed, values, **given), zeroed, rtol=1e-10)
    edge = jnp.asarray(np.where(INTERIOR, 0.0, 3.0)[:, None])
    output = run(fixed, values, **given, boundary_values=edge)
    np.testing.assert_allclose(output, zeroed + edge, rtol=1e-10)


def test_the_output_may_live_on_the_coarse_grid(values):
    model = make(output_shape=(5, 4), boundary="free")
    assert run(model, values).shape == (20, 1)


def test_rematerialization_changes_no_gradient(values):
    def gradient(model):
        return jax.jit(jax.grad(lambda m: jnp.sum(m(values) ** 2)))(model)

    kept = jax.tree.leaves(gradient(make()))
    computed_again = jax.tree.leaves(gradient(make(rematerialize=True)))
    for a, b in zip(kept, computed_again, strict=True):
        scale = np.max(np.abs(a))
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10 * scale)


def test_samples_are_batched_by_vmap_in_single_precision(values):
    model = build()
    batch = jnp.stack([values, 0.5 * values]).astype(jnp.float32)
    together = jax.jit(jax.vmap(model))(batch)
    assert together.dtype == jnp.float32
    apart = np.stack([run(model, sample) for sample in batch])
    np.testing.assert_allclose(together, apart, rtol=1e-4, atol=1e-6)


def test_the_first_coordinate_is_that_of_the_first_axis():
    expected = [(0, 0), (0, 0.5), (0, 1), (1, 0), (1, 0.5), (1, 1)]
    np.testing.assert_array_equal(grid_points((2, 3)), expected)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"decoder": "fourier"}, "decoder='fourier' is unknown"),
        ({"boundary": "neumann"}, "boundary='neumann' is unknown"),
        ({"grid_shape": (9,)}, r"grid_shape=\(9,\) must have two axes"),
        ({"coarse_shape": (9, 8, 2)}, "must have two axes"),
        ({"coarse_shape": None, "output_shape": (5, 4)}, "pass a coarse_shape"),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"num_heads": 4}, "num_heads=4 must divide"),
    ],
)
def test_bad_options_are_named(options, match):
    with pytest.raises(ValueError, match=match):
        build(**options)


@pytest.mark.parametrize(
    ("shape", "given", "match"),
    [
        ((71, 1), {}, r"values \(71, 1\) must have shape \(72, 1\)"),
        ((2, 72, 1), {}, r"use `jax\.vmap`"),
        ((72, 1), {"mean": (72,)}, r"mean \(72,\) must have shape \(72, 1\)"),
        ((72, 1), {"std": (20, 1)}, r"std \(20, 1\) must have shape \(72, 1\)"),
        ((72, 1), {"output_points": (72, 3)}, r"mesh_points \(72, 3\) do not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_named(shape, given, match):
    given = {name: jnp.ones(s) for name, s in given.items()}
    with pytest.raises(ValueError, match=match):
        make()(jnp.ones(shape), **given)


def test_a_free_boundary_has_no_values(values):
    with pytest.raises(ValueError, match="boundary='dirichlet'"):
        make(boundary="free")(values, boundary_values=jnp.ones((72, 1)))


def test_integers_are_refused():
    with pytest.raises(TypeError, match="values has dtype int"):
        make()(jnp.ones((72, 1), int))
