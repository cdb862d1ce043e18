"""The general neural operator transformer, both of them: sizes, equations, masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import refused
from tests.nn.parameters import built_once, enlarged, evaluate, layer_of, size

N, C = 9, 6
# Published runs of Neural-Solver-Library, and their parameters.
PUBLISHED = {
    "darcy": ({"feature_dim": 1}, 1_889_674),
    "navier_stokes": ({"feature_dim": 10}, 1_891_978),
    "elasticity": ({"feature_dim": 0, "num_layers": 8}, 4_870_553),
    "airfoil": ({"feature_dim": 0, "num_layers": 8, "mlp_ratio": 1}, 2_891_161),
    "pipe": ({"feature_dim": 2, "num_layers": 8}, 4_871_065),
    "plasticity": (
        {
            "feature_dim": 1,
            "num_layers": 8,
            "mlp_ratio": 1,
            "out_features": 4,
            "time_embedding": True,
        },
        2_925_212,
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_published_number_of_parameters(name):
    """Less a constant that is added to an embedding, part of its bias here."""
    options, expected = PUBLISHED[name]
    options = {"out_features": 1} | options
    model = jax.eval_shape(
        lambda: nn.GNOT(position=nn.Coordinates(2), **options, rngs=nnx.Rngs(0))
    )
    assert size(model) + 128 == expected


SMALL = {"features": C, "num_heads": 2, "mlp_ratio": 1, "num_layers": 2}


@built_once
def make(**options):
    sizes = {"feature_dim": 1, "out_features": 2, "num_experts": 2} | SMALL
    model = nn.GNOT(position=nn.Coordinates(2), **sizes | options, rngs=nnx.Rngs(0))
    return enlarged(model)


def original(**options):
    sizes = {"point_dim": 2, "feature_dim": 1, "out_features": 2, "num_hidden": 1}
    sizes |= {"num_experts": 2} | SMALL
    return enlarged(nn.models.OriginalGNOT(**sizes | options, rngs=nnx.Rngs(0)))


@pytest.fixture
def data(rng):
    return rng.uniform(size=(N, 2)), rng.normal(size=(N, 1))


both = pytest.mark.parametrize("build", [make, original])


def mixture(experts, gates, x):
    one = [layer_of(experts.experts, e) for e in range(2)]
    return sum(gates[:, e, None] * one[e](x) for e in range(2))


def written_out(block, x, y, points):
    """One block with the input function `y`."""
    gates = jax.nn.softmax(block.gates(points))
    cross = block.cross_attention
    x = x + cross(block.cross_norm(x), [block.input_norms[0](y)])
    x = x + block.cross_experts_norm(mixture(block.cross_experts, gates, x))
    x = x + block.self_attention(block.self_norm(x))
    return x + block.self_experts_norm(mixture(block.self_experts, gates, x))


def test_every_block_starts_from_the_points_again(data):
    model, time = make(time_embedding=True), jnp.asarray(0.3)

    @jax.jit
    def expected(points, features):
        x = model.point_encoder(points)
        f = model.encoder(jnp.concatenate([points, features], axis=1))
        f = f + model.time_embedding(time)[None]
        for i in range(2):
            f = written_out(layer_of(model.blocks, i), x, f, points)
        return model.decoder(f)

    actual = evaluate(model, *data, time=time)
    assert_allclose(actual, expected(*data), rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
def test_the_stream_of_the_original_goes_on(data):
    model, time = original(time_embedding=True), jnp.asarray(0.3)

    @jax.jit
    def expected(points, features):
        y = model.encoders[0](jnp.concatenate([points, features], axis=1))
        when = np.full((N, 1), time)
        z = model.point_encoder(jnp.concatenate([points, when], axis=1))
        for i in range(2):
            z = written_out(layer_of(model.blocks, i), z, y, points)
        return model.decoder(z)

    actual = evaluate(model, *data, time=time)
    assert_allclose(actual, expected(*data), rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
def test_input_functions_have_points_and_weights_of_their_own(data, rng):
    model = original(feature_dim=0, input_dims=(3, 1), num_parameters=2)
    points = data[0]
    functions = [rng.normal(size=shape) for shape in ((5, 3), (7, 1))]
    given = {"parameters": jnp.asarray([0.2, 0.7])}
    expected = evaluate(model, points, inputs=[functions[0], functions[1][:4]], **given)
    weights = [None, jnp.where(np.arange(7) < 4, 1.0, 0.0)]
    actual = evaluate(model, points, inputs=functions, input_weights=weights, **given)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)
    refused.each(
        (
            lambda: model(points, inputs=functions[:1], **given),
            r"inputs .* must be functions with \(3, 1\)",
        ),
        (
            lambda: model(points, inputs=functions),
            r"parameters \(0,\) must have shape \(2,\)",
        ),
        (lambda: model(*data, inputs=functions, **given), "features is not supported"),
    )


def test_impossible_models_and_calls_are_refused(data):
    points, features = data
    refused.each(
        (lambda: make(num_heads=4), "num_heads=4 must divide features=6"),
        (lambda: make(num_experts=0), "num_experts=0 must be positive"),
        (lambda: original(input_dims=(3,)), "replaces features"),
    )
    for model in (make(), original()):
        with pytest.raises(ValueError, match="features None must have 1 channels"):
            model(points)
        with pytest.raises(ValueError, match="time=0.5 does not match"):
            model(points, features, time=0.5)
    with pytest.raises(ValueError, match="inputs is not supported by a model without"):
        original()(points, features, inputs=[features])
