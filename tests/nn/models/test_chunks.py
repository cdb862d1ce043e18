"""Operator transformers in chunks of points: the same numbers and gradients."""

from functools import partial

import chex
import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

import opjax
from opjax import nn
from tests.builders import small_operator
from tests.nn.attention.layers import enlarged, single
from tests.nn.parameters import built_once
from tests.oracles import replaced
from tests.selection import by_day

HEADS = {"num_heads": 2}
SOFTMAX = partial(nn.bases.SoftmaxBasis, num_basis=4)
WAVES = partial(
    nn.bases.FixedBasis,
    functions=partial(opjax.fourier_basis, num_frequencies=1),
    num_basis=9,
)
MODELS = {
    "functional": {
        "attention": partial(nn.BasisAttention, basis=None, **HEADS),
        "basis": partial(nn.bases.SoftmaxBasis, num_basis=4, point_dim=2, **HEADS),
        "time_embedding": True,
    },
    "least squares": {
        "attention": partial(
            nn.BasisAttention,
            basis=SOFTMAX,
            projection=opjax.LeastSquares(1e-2, relative=True),
            **HEADS,
        ),
        "decoder_norm": False,
    },
    "fixed": {
        "attention": partial(
            nn.BasisAttention, basis=WAVES, mixer=nn.mixers.GalerkinMap, **HEADS
        ),
    },
    "adaptive": {
        "attention": partial(nn.attention.EideticAttention, num_basis=4, **HEADS)
    },
    "grid": {
        "attention": partial(nn.BasisAttention, basis=None, **HEADS),
        "basis": partial(
            nn.bases.SoftmaxBasis, num_basis=4, point_dim=2, grid_shape=(23,), **HEADS
        ),
    },
    "fixed on a grid": {
        "attention": partial(
            nn.BasisAttention,
            basis=partial(WAVES, grid_shape=(23, 1)),
            mixer=nn.mixers.GalerkinMap,
            **HEADS,
        ),
    },
}


class OwnLeastSquares:
    """A projection of a user, whose ridge is a number."""

    needs_gram, needs_one_sign, weights_cancel = True, False, False

    def __call__(self, moments):
        return moments.least_squares(ridge=1e-2)


MODELS["own projection"] = {
    "attention": partial(
        nn.BasisAttention, basis=WAVES, projection=OwnLeastSquares(), **HEADS
    ),
}
# Attentions that know the points by sums against their keys, or by exponential ones.
SUMS = {
    "galerkin": partial(nn.GalerkinAttention, point_dim=2),
    "galerkin without norms": partial(nn.GalerkinAttention, normalization=None),
    "intention": partial(nn.attention.IntentionAttention, point_dim=2),
    "linear": partial(nn.LinearAttention, point_dim=2),
    "mean": nn.attention.MeanAttention,
    "efficient": nn.attention.EfficientAttention,
    "shared norm": nn.attention.SharedNormAttention,
    "latents": partial(nn.FlareAttention, num_latents=4, shared_latents=True),
}
MODELS |= {name: {"attention": partial(a, **HEADS)} for name, a in SUMS.items()}
FLARE = partial(nn.FlareAttention, num_latents=5, **HEADS)
RMS = nn.layers.RMSNorm
MODELS |= {
    "flare": {"attention": FLARE, "time_embedding": True},
    "normalised flare": {"attention": partial(FLARE, norm=RMS), "norm": RMS},
}


@built_once
def build(name):
    model = (nn.Flare if "flare" in name else nn.OperatorTransformer)(
        position=nn.Coordinates(2),
        feature_dim=1,
        out_features=2,
        features=8,
        num_layers=2,
        rngs=nnx.Rngs(0),
        **MODELS[name],
    )
    return enlarged(model, 3)


@pytest.fixture
def sample(rng):
    weights = rng.uniform(0.5, 2, 23)
    weights[[3, 11, 22]] = 0
    points, features = rng.uniform(size=(23, 2)), rng.normal(size=(23, 1))
    return points, features, weights


def value_and_gradients(model, sample, chunk_size, **when):
    def loss(model, points, features, weights):
        given = {"quadrature_weights": weights, "chunk_size": chunk_size, **when}
        values = model(points, features, **given)
        scale = jnp.sin(np.arange(values.size)).reshape(values.shape)
        return jnp.sum(jnp.where(weights[:, None] > 0, scale * values, 0)), values

    gradient = jax.grad(loss, (0, 1, 2, 3), has_aux=True)
    return jax.jit(gradient)(model, *sample)


@pytest.mark.parametrize("name", by_day(MODELS, day=["functional"]))
def test_chunks_have_the_values_and_gradients_of_the_whole(name, sample):
    model = build(name)
    when = {"time": jnp.asarray(0.3)} if model.time_embedding is not None else {}
    expected, found = (
        value_and_gradients(model, sample, size, **when) for size in (None, 5)
    )
    assert max(map(np.max, jax.tree.leaves(expected))) > 1e-2
    chex.assert_trees_all_close(found, expected, rtol=1e-10, atol=1e-11)
    assert relative_distance(found, expected) < 1e-12


def relative_distance(found, expected):
    """The norm of all differences over that of what is expected."""
    both = (jax.flatten_util.ravel_pytree(tree)[0] for tree in (found, expected))
    found, expected = both
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.nightly
def test_chunks_of_masked_points_and_scores_of_any_size_change_nothing(sample):
    points, features, weights = sample
    weights = replaced(weights, np.s_[:10], 0)  # two chunks of five and more
    model = build("latents")
    attention = model.blocks.attention
    attention.latents[...] = 3e3 * attention.latents[...]  # exponents overflow
    whole, chunked = (
        jax.jit(partial(model, chunk_size=size))(
            points, features, quadrature_weights=weights
        )
        for size in (None, 5)
    )
    assert np.all(np.isfinite(whole))
    assert_allclose(chunked, whole, rtol=1e-9, atol=1e-12)
    nobody = jnp.zeros_like(weights)
    for name in ("latents", "linear"):
        one = jax.jit(partial(build(name), chunk_size=5))
        assert np.all(np.isfinite(one(points, features, quadrature_weights=nobody)))


class Doubled(nn.GalerkinAttention):
    def evaluate(self, x, mesh_points, weights):
        return 2 * super().evaluate(x, mesh_points, weights)


class Bypassed(nn.FunctionalAttention):
    def __call__(self, x, **given):
        return x + super().__call__(x, **given)


class Sharp(nn.bases.SoftmaxBasis):
    def functions(self, local, shared, quadrature_weights):
        return super().functions(local, shared, quadrature_weights) ** 2


@pytest.mark.nightly
def test_what_a_subclass_changes_is_refused_or_taken(sample):
    make = partial(
        nn.OperatorTransformer,
        position=nn.Coordinates(2),
        feature_dim=1,
        out_features=2,
        features=8,
        num_layers=1,
        rngs=nnx.Rngs(0),
    )
    for attention, message in (
        (partial(Doubled, **HEADS), "Doubled computes more of its points"),
        (partial(Bypassed, num_basis=4, **HEADS), "Bypassed does more than"),
        (
            partial(nn.GalerkinAttention, normalization="instance", **HEADS),
            "an instance norm takes means",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(attention=attention, chunk_size=4)
    basis = partial(Sharp, num_basis=4)
    model = enlarged(make(attention=partial(nn.BasisAttention, basis=basis, **HEADS)))
    expected, found = (value_and_gradients(model, sample, m) for m in (None, 5))
    assert relative_distance(found, expected) < 1e-12
    assert "functions of a Sharp" in model.obstacle("narrow")


@pytest.mark.nightly
def test_any_size_of_chunks_will_do_in_single_precision_and_in_batches(sample):
    model, (points, features, _) = single(build("adaptive")), sample
    points, features = (x.astype(jnp.float32) for x in (points, features))
    batch = jnp.stack([features, -features])

    @partial(jax.jit, static_argnames="size")
    def values(size):
        call = partial(model, chunk_size=size)
        return jax.vmap(call, in_axes=(None, 0))(points, batch)

    expected = values(None)
    for size in (1, 12, 100):
        assert_allclose(values(size), expected, rtol=2e-4, atol=2e-5)


def test_a_model_may_have_a_chunk_size_of_its_own(sample):
    def program(model, **given):
        return str(jax.make_jaxpr(partial(model, **given))(*sample[:2]))

    model = build("adaptive")
    asked = program(model, chunk_size=4)
    assert "custom_vjp_call" in asked
    assert asked != program(model)
    model.chunk_size = 4
    assert program(model) == asked != program(model, chunk_size=7)


@pytest.mark.nightly
def test_temporary_memory_of_gradients_is_that_of_the_features():
    model = small_operator(
        feature_dim=0,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=64),
    )

    def bytes_per_point(n):
        points = np.zeros((n, 2), jnp.float32)

        def loss(model):
            return jnp.sum(model(points, chunk_size=64))

        compiled = jax.jit(jax.grad(loss)).lower(single(model)).compile()
        found = compiled.memory_analysis()
        assert found is not None
        return found.temp_size_in_bytes / n

    # Two bases have 512 bytes a point in every layer; features have 32.
    assert bytes_per_point(2**14) < 400


class Mixing(nnx.Module):
    """A norm that is not known."""

    def __init__(self, features):
        del features

    def __call__(self, x):
        return x - jnp.mean(x)


def test_what_cannot_be_chunked_says_why(sample):
    points, features, weights = sample
    make = partial(
        nn.OperatorTransformer,
        position=nn.Coordinates(2),
        feature_dim=1,
        out_features=1,
        features=8,
        num_layers=1,
        rngs=nnx.Rngs(0),
    )
    cases = {
        "FourierAttention knows more of points than sums": partial(
            nn.FourierAttention, num_heads=2
        ),
        "functions of a OrthonormalBasis depend": partial(
            nn.OrthogonalAttention, num_heads=2, num_basis=4
        ),
        "functions of a OrthonormalBasis depend on all points": partial(
            nn.BasisAttention,
            basis=partial(nn.bases.OrthonormalBasis, inner=SOFTMAX),
            **HEADS,
        ),
    }
    for message, attention in cases.items():
        with pytest.raises(ValueError, match=message):
            make(attention=attention)(points, features, chunk_size=4)
        with pytest.raises(ValueError, match=message):
            make(attention=attention, chunk_size=4)
    with pytest.raises(ValueError, match="whether a Mixing mixes points"):
        nn.Flare(
            position=nn.Coordinates(2),
            feature_dim=1,
            out_features=1,
            attention=partial(FLARE, norm=Mixing),
            features=8,
            num_layers=1,
            chunk_size=4,
            rngs=nnx.Rngs(0),
        )
    noisy = nn.bases.with_noise(build("adaptive"), jax.random.key(0))
    with pytest.raises(ValueError, match="noise of a training step"):
        noisy(points, features, chunk_size=4)
    model = build("functional")
    for size in (0, -3):
        with pytest.raises(ValueError, match="chunk_size"):
            model(points, features, time=jnp.asarray(0.0), chunk_size=size)
    with pytest.raises(ValueError, match="points"):
        model(
            points,
            features,
            time=jnp.asarray(0.0),
            chunk_size=4,
            quadrature_weights=weights[:5],
        )


def test_arguments_that_do_not_fit_are_refused_as_without_chunks(sample):
    points, features, _ = sample
    model, when = build("functional"), {"time": jnp.asarray(0.0)}
    for given, message in (
        # As many chunks as for the points, the last of another size.
        ((points, jnp.pad(features, ((0, 1), (0, 0)))), "points"),
        ((points[:, :1], features), "coordinates|point_dim|shape"),
        ((points, None), "channels"),
    ):
        for size in (None, 5):
            with pytest.raises(ValueError, match=message):
                model(*given, **when, chunk_size=size)
    functions = np.ones((23, 4))
    for size in (None, 5):
        with pytest.raises(
            ValueError, match="basis_functions can only be passed to a layer"
        ):
            model(points, features, **when, basis_functions=functions, chunk_size=size)
    model.rematerialize = True
    with pytest.raises(ValueError, match="rematerialize=True has no effect"):
        model(points, features, **when, chunk_size=5)


@pytest.mark.nightly
def test_chunks_of_a_grid_have_the_values_and_gradients_of_the_whole(rng):
    grid = 31, 33
    model = small_operator(
        out_features=2,
        features=64,
        num_layers=1,
        attention=partial(
            nn.FunctionalAttention, num_basis=4, grid_shape=grid, **HEADS
        ),
    )
    model, n = enlarged(model, 3), 31 * 33
    points, features = rng.uniform(size=(n, 2)), rng.normal(size=(n, 1))
    weights = rng.uniform(0.5, 2, n)
    weights[[3, 11, 22]] = 0
    sample = tuple(map(jnp.asarray, (points, features, weights)))
    expected, found = (value_and_gradients(model, sample, m) for m in (None, 80))
    chex.assert_trees_all_close(found, expected, rtol=1e-9, atol=1e-10)
