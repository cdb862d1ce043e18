"""The Galerkin transformer: its parts, its boundary, its sizes and errors."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn
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
