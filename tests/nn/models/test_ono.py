"""The orthogonal neural operator: published sizes, covariances, batches, masks."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import nn
from tests import refused
from tests.nn.parameters import built_once, enlarged, evaluate, layer_of, size

N, MODES = 9, 3
NYSTROM = partial(nn.attention.NystromformerAttention, num_heads=8)
# Published runs of Neural-Solver-Library: channels in, channels out, and parameters.
PUBLISHED = {
    "darcy": (
        {"num_layers": 10, "num_modes": 32, "mlp_ratio": 2, "feature_dim": 1},
        2_029_137,
    ),
    "navier_stokes": (
        {
            "num_modes": 16,
            "feature_dim": 10,
            "attention": partial(nn.attention.EfficientAttention, num_heads=8),
        },
        1_116_161,
    ),
    "pipe": ({"mlp_ratio": 2, "feature_dim": 2}, 1_599_297),
    "plasticity": (
        {
            "features": 32,
            "feature_dim": 1,
            "out_features": 4,
            "time_embedding": True,
        },
        77_476,
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_published_number_of_parameters(name):
    """Less a constant that is added to an embedding, part of its bias here."""
    options, expected = PUBLISHED[name]
    options = {"out_features": 1, "features": 128, "attention": NYSTROM} | options
    model = jax.eval_shape(
        lambda: nn.ONO(position=nn.Coordinates(2), **options, rngs=nnx.Rngs(0))
    )
    count = size(model)
    assert count + options["features"] == expected


@built_once
def make(**options):
    sizes = {"features": 6, "num_layers": 3, "num_modes": MODES, "feature_dim": 1}
    attention = partial(nn.attention.MeanAttention, num_heads=2)
    options = {"out_features": 2, "attention": attention} | sizes | options
    model = nn.ONO(position=nn.Coordinates(2), **options, rngs=nnx.Rngs(0))
    return enlarged(model)


@pytest.fixture
def data(rng):
    return rng.uniform(size=(N, 2)), rng.normal(size=(N, 1))


@pytest.mark.parametrize(
    "original", [pytest.param(False, marks=pytest.mark.nightly), True]
)
def test_the_scan_equals_the_equations(data, original):
    model = make(joint_encoder=original, time_embedding=True)
    time = jnp.asarray(0.3)

    def layers():
        yield from (layer_of(model.blocks, i) for i in range(2))
        yield model.last

    @jax.jit
    def written_out(points, features):
        inputs, e = jnp.concatenate([points, features], 1), model.time_embedding(time)
        if original:
            both = model.encoder(inputs)
            x, f = both[:, :6] + e[None], both[:, 6:]
        else:
            x, f = model.mesh_encoder(inputs), model.encoder(inputs) + e[None]
        for block in layers():
            x = x + block.mesh.attention(block.mesh.attention_norm(x))
            x = x + block.mesh.mlp(block.mesh.mlp_norm(x))
            psi = block.modes(x)
            factor = jnp.linalg.cholesky(psi.T @ psi / N)
            phi = psi @ jnp.linalg.inv(factor).T
            gains = jnp.log1p(jnp.exp(block.gain_logits[...]))
            f = block.out(block.norm(f + phi @ (gains[:, None] * (phi.T @ f))))
        return f

    actual = evaluate(model, *data, time=time)
    assert actual.shape == (N, 2)
    assert_allclose(actual, written_out(*data), rtol=1e-7, atol=1e-9)


def test_own_covariances_are_the_default_and_others_change_the_output(data):
    model = make()
    own = jax.jit(lambda *args: model.covariances(*args))(*data)
    assert own.shape == (3, MODES, MODES)
    expected = evaluate(model, *data)
    assert_allclose(
        evaluate(model, *data, covariances=own), expected, rtol=1e-8, atol=1e-10
    )
    other = evaluate(model, *data, covariances=2 * own)
    assert float(np.max(np.abs(other - expected))) > 1e-5
    with pytest.raises(ValueError, match=r"covariances \(2, 3, 3\) .* \(3, 3, 3\)"):
        model(*data, covariances=own[1:])


def test_a_batch_axis_shares_the_mean_covariance(data, rng):
    points, features = data
    batch = jnp.stack([features, 1 + 2 * features])
    model, alone = make(num_layers=1, batch_axis="b"), make(num_layers=1)
    shared = jax.jit(jax.vmap(model, in_axes=(None, 0), axis_name="b"))(points, batch)
    own = jax.jit(jax.vmap(lambda f: alone.covariances(points, f)))(batch)
    mean = jnp.mean(own, axis=0)
    expected = jax.jit(jax.vmap(lambda f: alone(points, f, covariances=mean)))(batch)
    assert_allclose(shared, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
def test_one_layer_rematerialisation_and_single_precision(data):
    assert evaluate(make(num_layers=1), *data).shape == (N, 2)

    @jax.jit
    def gradient(model):
        return jax.grad(lambda model: jnp.sum(model(*data) ** 2))(model)

    plain, again = (  # leaves, since the models differ in the option
        jax.tree.leaves(gradient(make(num_layers=2, rematerialize=rematerialize)))
        for rematerialize in (False, True)
    )
    chex.assert_trees_all_close(plain, again, rtol=1e-6, atol=1e-8)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), make())
    output = evaluate(single, *(a.astype(jnp.float32) for a in data))
    assert output.dtype == jnp.float32
    assert_allclose(output, evaluate(make(), *data), rtol=2e-2, atol=1e-2)


def test_impossible_models_and_calls_are_refused(data):
    points, features = data
    refused.each(
        (lambda: make(num_modes=0), "num_modes=0 must be positive"),
        (lambda: make()(points), "features None must have 1 channels"),
        (lambda: make()(points, features, time=0.5), "time=0.5 does not match"),
        (
            lambda: make()(points[:, :1], features),
            r"mesh_points \(9, 1\) must have shape",
        ),
    )


def test_block_is_that_of_the_pure_functions(data):
    block = enlarged(
        nn.models.ONOBlock(
            6,
            attention=partial(nn.attention.MeanAttention, num_heads=2),
            num_modes=MODES,
            rngs=nnx.Rngs(0),
        )
    )
    x = jnp.tile(data[1], (1, 6)) + np.arange(6.0)[None] * data[0][:, :1]
    moved, f, covariance = jax.jit(lambda block, x: block(x, x))(block, x)
    modes = block.modes(moved)
    assert_allclose(covariance, opjax.feature_covariance(modes), rtol=1e-8)
    gains = jax.nn.softplus(block.gain_logits[...])
    filtered = opjax.orthonormal_attention(x, modes, gains)
    expected = block.out(block.norm(x + filtered))
    assert_allclose(f, expected, rtol=1e-7, atol=1e-9)
