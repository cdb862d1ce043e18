"""The Galerkin transformer: its parts, its boundary, its sizes and errors."""

import functools
import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from opjax.nn.attention.pointwise import ATTENTIONS
from tests import refused
from tests.nn.parameters import enlarged, layer_of

FINE, COARSE = (9, 8), (5, 4)
SPECTRAL = partial(
    nn.layers.SpectralDecoder,
    out_features=1,
    features=4,
    grid_shape=FINE,
    modes=2,
    point_dim=2,
)
QUICK = partial(nn.layers.PointwiseDecoder, out_features=1, features=4, point_dim=2)
GALERKIN = partial(nn.GalerkinAttention, num_heads=2, point_dim=2, epsilon=1e-7)
SMALL = {
    "grid_shape": FINE,
    "down": partial(nn.layers.DownScaler, new_shape=COARSE),
    "up": partial(nn.layers.UpScaler, new_shape=FINE),
    "decoder": SPECTRAL,
    "attention": GALERKIN,
    "features": 6,
    "num_layers": 3,
    "hidden_features": 5,
}
INTERIOR = np.pad(np.ones((7, 6), bool), 1).reshape(-1)


def build(**options):
    return nn.GalerkinTransformer2d(rngs=nnx.Rngs(0), **(SMALL | options))


@functools.cache
def make(**options):
    return enlarged(build(**options))


def grid_points(grid_shape):
    axes = [np.linspace(0, 1, n) for n in grid_shape]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    return jnp.asarray(points.reshape(-1, 2))


POINTS = grid_points(FINE)


@jax.jit
def _run(model, args, given):
    return model(*args, **given)


def run(model, *args, **given):
    return _run(model, args, given)


@pytest.fixture
def values(rng):
    return rng.normal(size=(72, 1))


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (nn.models.darcy_transformer, 2_220_829),
        (nn.models.inverse_transformer, 2_383_873),
    ],
)
def test_the_paper_s_models_have_its_numbers_of_parameters(build, expected):
    model = jax.eval_shape(lambda: build(rngs=nnx.Rngs(0)))
    parameters = nnx.state(model, nnx.Param)
    assert sum(math.prod(p.shape) for p in jax.tree.leaves(parameters)) == expected
    inverse = expected == 2_383_873
    assert model.output_shape == ((71, 71) if inverse else (141, 141))
    assert model.boundary == ("free" if inverse else "dirichlet")


@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_paper_s_models_take_all_attentions(name):
    attention = ATTENTIONS[name]
    model = jax.eval_shape(
        lambda: nn.models.inverse_transformer(
            (9, 9), (5, 5), features=8, attention=attention, rngs=nnx.Rngs(0)
        )
    )
    assert isinstance(model.layers.attention, attention)
    assert model.layers.attention.key_norm.epsilon == 1e-7


@pytest.mark.nightly
def test_the_model_is_the_chain_of_its_parts(values):
    model = make(boundary="free")

    @jax.jit
    def chain(model):
        passed = [model.down(values)]
        for i in range(3):
            layer = layer_of(model.layers, i)
            points = nn.models.Points(grid_points(COARSE))
            passed.append(layer(passed[-1], points))
        decoded = model.decoder(model.up(passed[-1]), mesh_points=POINTS)
        return decoded, jnp.stack(passed)

    expected, passed = chain(model)
    assert_allclose(run(model, POINTS, values), expected, rtol=1e-9)
    latents = jax.jit(type(model).latents)(model, POINTS, values)
    assert_allclose(latents, passed, rtol=1e-9)


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", [SPECTRAL, QUICK])
def test_without_a_coarse_grid_there_are_no_scalers(values, decoder):
    model = make(down=None, up=None, decoder=decoder)
    assert model.up is None
    assert model.down is None
    assert model.coarse_shape == model.output_shape == FINE
    assert run(model, POINTS, values).shape == (72, 1)


@pytest.mark.nightly
def test_coarse_points_are_those_of_the_output_interpolated(values):
    model = make()
    stretched = POINTS * jnp.asarray([[2.0, 3.0]]) + 1
    coarse = grid_points(COARSE) * jnp.asarray([[2.0, 3.0]]) + 1
    expected = run(model, stretched, values, coarse_points=coarse)
    assert_allclose(run(model, stretched, values), expected, rtol=1e-9)
    assert np.max(np.abs(run(model, POINTS, values) - expected)) > 1e-6


@pytest.mark.nightly
def test_the_boundary_is_zeroed_after_decoding_and_then_given(values, rng):
    free, fixed = make(boundary="free"), make()
    mean = rng.normal(size=(72, 1))
    std = rng.uniform(0.5, 1.5, (72, 1))
    decoded = run(free, POINTS, values) * std + mean
    given = {"mean": mean, "std": std}
    assert_allclose(run(free, POINTS, values, **given), decoded, rtol=1e-10)
    zeroed = np.where(INTERIOR[:, None], decoded, 0)
    assert_allclose(run(fixed, POINTS, values, **given), zeroed, rtol=1e-10)
    edge = jnp.asarray(np.where(INTERIOR, 0.0, 3.0)[:, None])
    output = run(fixed, POINTS, values, **given, boundary_values=edge)
    assert_allclose(output, zeroed + edge, rtol=1e-10)


def test_the_output_may_live_on_the_coarse_grid(values):
    model = make(up=None, decoder=QUICK, boundary="free")
    assert run(model, grid_points(COARSE), values).shape == (20, 1)


@pytest.mark.nightly
def test_samples_are_batched_by_vmap_in_single_precision(values):
    model = build()
    batch = jnp.stack([values, 0.5 * values]).astype(jnp.float32)
    points = POINTS.astype(jnp.float32)
    together = jax.jit(jax.vmap(model, (None, 0)))(points, batch)
    assert together.dtype == jnp.float32
    apart = np.stack([run(model, points, sample) for sample in batch])
    assert_allclose(together, apart, rtol=1e-4, atol=1e-6)


test_bad_options_are_named = refused.options(
    build,
    [
        ({"boundary": "neumann"}, "boundary='neumann' is unknown"),
        ({"grid_shape": (9,)}, r"grid_shape=\(9,\) must have two axes"),
        (
            {"down": partial(nn.layers.DownScaler, new_shape=(9, 8, 2))},
            "one entry per axis",
        ),
        ({"num_layers": 0}, "num_layers=0 must be positive"),
        ({"attention": partial(GALERKIN, num_heads=4)}, "num_heads=4 must divide"),
    ],
)


@pytest.mark.parametrize(
    ("shape", "given", "match"),
    [
        ((71, 1), {}, r"features \(71, 1\) must have shape \(72, 1\)"),
        ((2, 72, 1), {}, r"use `jax\.vmap`"),
        ((72, 1), {"mean": (72,)}, r"mean \(72,\) must have the shape \(72, 1\)"),
        ((72, 1), {"std": (20, 1)}, r"std \(20, 1\) must have the shape \(72, 1\)"),
        ((72, 1), {"coarse_points": (72, 3)}, r"coarse_points \(72, 3\) must have"),
        ((72, 1), {"time": ()}, "time is not supported by a Galerkin transformer"),
        ((72, 1), {"quadrature_weights": (72,)}, "weights is not supported by a Galer"),
    ],
)
def test_arrays_that_do_not_fit_are_named(shape, given, match):
    given = {name: np.ones(s) for name, s in given.items()}
    with pytest.raises(ValueError, match=match):
        make()(POINTS, np.ones(shape), **given)


def test_a_free_boundary_has_no_values(values):
    with pytest.raises(ValueError, match="boundary='dirichlet'"):
        make(boundary="free")(POINTS, values, boundary_values=np.ones((72, 1)))


def test_mesh_points_are_those_of_the_output(values):
    with pytest.raises(ValueError, match=r"mesh_points \(20, 2\) must have shape"):
        make()(grid_points(COARSE), values)


def test_integers_are_refused():
    with pytest.raises(TypeError, match="features has dtype int"):
        make()(POINTS, np.ones((72, 1), int))


@pytest.mark.parametrize("outer_norm", [False, True])
@pytest.mark.parametrize("name", ["darcy_transformer", "inverse_transformer"])
def test_the_regular_rule_normalises_layers_in_place_of_heads(name, outer_norm):
    build = partial(getattr(nn.models, name), (9, 9), (5, 5), features=8)
    model = jax.eval_shape(
        lambda: build(num_layers=1, outer_norm=outer_norm, rngs=nnx.Rngs(0))
    )
    layers = model.layers
    assert (layers.attention.key_norm is None) is outer_norm
    assert (layers.attention_norm is not None) is outer_norm
    assert (layers.mlp_norm is not None) is outer_norm
