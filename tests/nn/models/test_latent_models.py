"""FLARE and the latent neural operator: published sizes, masks, queries and errors."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import nn
from tests import refused
from tests.nn.parameters import built_once, enlarged, evaluate, layer_of, size

N = 20


def flare(**options):
    sizes = {"num_heads": 2, "num_latents": 5}
    options = {"feature_dim": 1, "out_features": 2, "features": 8} | options
    return nn.Flare(
        position=nn.Coordinates(2),
        attention=partial(nn.FlareAttention, **sizes),
        num_layers=2,
        **options,
    )


def lno(**options):
    options = {"feature_dim": 1, "out_features": 2, "features": 8} | options
    options = {"num_layers": 2, "num_heads": 2, "num_latents": 5} | options
    return nn.LatentNeuralOperator(position=nn.Coordinates(2), **options)


MODELS = {"flare": flare, "lno": lno}
models = pytest.mark.parametrize("name", MODELS)


@built_once
def make(name, **options):
    return enlarged(MODELS[name](rngs=nnx.Rngs(0), **options))


@pytest.fixture
def mesh(rng):
    return rng.uniform(size=(N, 2)), rng.normal(size=(N, 1))


def count(construct, **options):
    """Parameters of a model, none of which is computed."""
    shapes = jax.eval_shape(
        lambda key: construct(rngs=nnx.Rngs(key), **options), jax.random.key(0)
    )
    return size(shapes)


# Problem: coordinates, input channels, heads, latents, published parameters.
FLARE = {
    "elasticity": (2, 0, 8, 64, 592_641),
    "darcy": (2, 1, 16, 256, 691_009),
    "airfoil": (2, 0, 8, 256, 690_945),
    "pipe": (2, 0, 8, 128, 625_409),
    "drivaerml": (3, 0, 8, 256, 691_009),
    "lpbf": (3, 0, 8, 128, 625_473),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("p", "f", "heads", "latents", "expected"), FLARE.values())
def test_parameters_of_flare_are_the_published_ones(p, f, heads, latents, expected):
    found = count(
        nn.Flare,
        position=nn.Coordinates(p),
        feature_dim=f,
        out_features=1,
        attention=partial(nn.FlareAttention, num_heads=heads, num_latents=latents),
    )
    assert found == expected


# Problem: coordinates, other input channels, outputs, and blocks, channels and layers
# of perceptrons, with parameters, of the code for PyTorch and for Paddle.
LNO = {
    "darcy": (2, 1, 1, (4, 128, 2, 762_113), (4, 128, 3, 828_161)),
    "navier_stokes": (2, 10, 1, (8, 256, 2, 5_076_481), (8, 256, 3, 5_339_649)),
    "airfoil": (2, 2, 1, (8, 128, 2, 1_292_161), (8, 128, 3, 1_358_209)),
    "elasticity": (2, 0, 1, (4, 192, 3, 1_831_745), (8, 128, 3, 1_357_953)),
    "plasticity": (3, 1, 4, (4, 128, 2, 762_756), (8, 128, 3, 1_358_724)),
    "pipe": (2, 2, 1, (8, 128, 2, 1_292_161), (8, 128, 3, 1_358_209)),
}


@pytest.mark.nightly
@pytest.mark.parametrize(("p", "f", "out", "torch", "paddle"), LNO.values())
def test_parameters_of_lno_are_the_published_ones(p, f, out, torch, paddle):
    for blocks, features, layers, expected in (torch, paddle):
        found = count(
            nn.LatentNeuralOperator,
            position=nn.Coordinates(p),
            feature_dim=f,
            out_features=out,
            features=features,
            num_layers=blocks,
            mlp_layers=layers,
        )
        assert found == expected


# Inputs, outputs; channels, blocks, slices, mlp ratio; without what our models do not
# have: a constant, which is part of the encoder's bias here, and a map of a condition
# of three numbers, in place of channels of the input.
AIRCRAFT = (7, 6, 256, 4, 32, 2, 1_741_738 - 256 - (3 * 256 + 256))
STANDARD = (2, 1, 128, 8, 64, 1, 591_305 - 128 - (3 * 128 + 128))


@pytest.mark.parametrize(
    ("p", "out", "features", "layers", "slices", "ratio", "expected"),
    [AIRCRAFT, STANDARD],
)
def test_parameters_of_transolver_plus(
    p, out, features, layers, slices, ratio, expected
):
    found = count(
        nn.OperatorTransformer,
        position=nn.Coordinates(p),
        feature_dim=0,
        out_features=out,
        attention=partial(nn.attention.EideticAttention, num_heads=8, num_basis=slices),
        features=features,
        num_layers=layers,
        mlp_ratio=ratio,
    )
    assert found == expected


@pytest.mark.nightly
@models
def test_time_takes_part(name, mesh):
    option = {"flare": "time_embedding", "lno": "time_input"}[name]
    model = make(name, **{option: True})
    run = jax.jit(lambda t: model(*mesh, time=t))
    found = [run(jnp.asarray(t)) for t in (0.0, 0.5)]
    assert np.max(np.abs(found[0] - found[1])) > 1e-3 * np.max(np.abs(found[0]))
    for wrong in (partial(model, *mesh), partial(make(name), *mesh, time=np.ones(()))):
        with pytest.raises(ValueError, match="does not match a model built with"):
            wrong()


@models
def test_bad_input_is_named_in_the_error(name, mesh):
    model, (points, features) = make(name), mesh
    refused.each(
        (lambda: model(points), r"features None must have 1 channels"),
        (lambda: model(points, features[1:]), r"\(20, 2\), features \(19, 1\)"),
        (
            lambda: model(points[:, 1:], features),
            r"mesh_points \(20, 1\) must have shape",
        ),
        (lambda: model(points, features.astype(int)), "features has dtype int64"),
        (lambda: count(MODELS["lno"], num_layers=-1), "num_layers=-1"),
        (lambda: make(name, out_features=0), "out_features=0 must be positive"),
    )


def test_queries_elsewhere_get_what_the_mesh_gets_there(mesh):
    model, (points, features) = make("lno"), mesh
    run = jax.jit(lambda queries: model(points, features, query_points=queries))
    at_mesh = evaluate(model, points, features)
    np.testing.assert_allclose(run(points[3:7]), at_mesh[3:7], rtol=1e-9)
    own = make("lno", own_decoder_scores=True)
    assert np.max(np.abs(evaluate(own, points, features) - at_mesh)) > 1e-3


def test_means_of_a_model_without_blocks_are_those_of_the_points(mesh):
    model, (points, features) = make("lno", num_layers=0, feature_dim=0), mesh
    del features
    trunk, scores = model.trunk(points), model.scores(model.trunk(points))
    over_points = jax.nn.softmax(scores, axis=0)
    shares = jax.nn.softmax(model.scores(trunk), axis=1)
    latents = over_points.T @ model.branch(points)
    expected = model.decoder(shares @ latents)
    np.testing.assert_allclose(evaluate(model, points), expected, rtol=1e-9)


@pytest.mark.nightly
def test_lno_starts_as_its_published_code():
    model = lno(rngs=nnx.Rngs(0), features=32)
    block = layer_of(model.blocks, 0)
    for linear in (model.trunk.hidden[1], block.attention.query, block.mlp.hidden[0]):
        for leaf in (linear.kernel[...], linear.bias[...]):
            assert 0.1 < np.max(np.abs(leaf)) <= 32**-0.5


def test_decoder_scores_of_its_own_are_read(mesh):
    model = make("lno", own_decoder_scores=True)
    assert model.decoder_scores is not None
    before = evaluate(model, *mesh)
    model.decoder_scores = jax.tree.map(lambda leaf: -leaf, model.decoder_scores)
    assert float(np.max(np.abs(evaluate(model, *mesh) - before))) > 1e-3
