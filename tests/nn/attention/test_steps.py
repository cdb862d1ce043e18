"""A call, chunks and streams take the same steps: local, sums, combine, spread."""

import inspect
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
from opjax.attention import flare, linear
from opjax.nn.attention import basis, columns, key_sums, pointwise
from tests.nn.attention.layers import BASIS, FEATURES, HEADS, PAIRS, arguments, make
from tests.nn.parameters import evaluate
from tests.selection import by_day

N, P = 17, 2
CHUNKS = [slice(0, 5), slice(5, 9), slice(9, None)]
LAYERS = {
    "galerkin": partial(nn.GalerkinAttention, point_dim=P),
    "galerkin_plain": partial(nn.GalerkinAttention, normalization=None, use_bias=False),
    "intention": partial(nn.attention.IntentionAttention, point_dim=P),
    "linear": partial(nn.LinearAttention, point_dim=P),
    "mean": nn.attention.MeanAttention,
    "efficient": nn.attention.EfficientAttention,
    "shared_norm": nn.attention.SharedNormAttention,
    "flare": partial(nn.FlareAttention, num_latents=BASIS),
    "physics": partial(nn.PhysicsAttention, num_basis=BASIS),
}
ADDING = [pair for pair in PAIRS if pair[0] != "orthonormal"]


def built(name):
    layer = LAYERS[name](FEATURES, num_heads=HEADS, rngs=nnx.Rngs(0))
    return jax.tree.map(lambda leaf: 2 * leaf.astype(float), layer)


def arrays(rng):
    """Features, points and weights, of which the last two mask points."""
    x, points = rng.normal(size=(N, FEATURES)), rng.uniform(size=(N, P))
    weights = rng.uniform(0.5, 1.5, N)
    weights[-2:] = 0
    return tuple(map(jnp.asarray, (x, points, weights)))


def in_chunks(layer, x, weights, **given):
    """What the steps make of points that come in chunks."""
    here = [
        layer.local(x[c].T, {name: a[c] for name, a in given.items()}) for c in CHUNKS
    ]
    parts = [layer.sums(one, weights[c]) for one, c in zip(here, CHUNKS, strict=True)]
    totals = jnp.sum(weights), jnp.sum(weights > 0).astype(float)
    mixed = layer.combine((parts[0] + parts[1] + parts[2]).added, totals)
    assert mixed.shape == layer.coefficient_shape()
    spread = [layer.spread(mixed, one) for one in here]
    return jnp.concatenate([columns.linear(layer.out, one).T for one in spread])


@pytest.mark.parametrize("name", by_day(LAYERS, ["galerkin", "linear", "flare"]))
def test_chunks_add_up_to_the_call(name, rng):
    layer, (x, points, weights) = built(name), arrays(rng)
    given = {"mesh_points": points} if getattr(layer, "point_dim", 0) else {}
    found = jax.jit(partial(in_chunks, layer))(x, weights, **given)
    expected = evaluate(layer, x, quadrature_weights=weights, **given)
    assert_allclose(found[:-2], expected[:-2], rtol=1e-8, atol=1e-10)


@pytest.mark.nightly
@pytest.mark.parametrize(("of", "projection"), by_day(ADDING, ADDING[::3]))
def test_chunks_add_up_in_every_basis(of, projection, rng):
    layer, (x, points, weights) = make(of, "functional", projection), arrays(rng)
    given = arguments(of, x, points[:, :1])
    found = jax.jit(partial(in_chunks, layer))(x, weights, **given)
    expected = evaluate(layer, x, quadrature_weights=weights, **given)
    assert_allclose(found[:-2], expected[:-2], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("use_bias", by_day([True, False], [True]))
def test_coefficients_of_one_head_are_mapped_instead_of_its_points(
    use_bias, rng, monkeypatch
):
    x, points, weights = arrays(rng)
    layer = nn.FunctionalAttention(
        FEATURES,
        num_heads=1,
        num_basis=BASIS,
        point_dim=P,
        use_bias=use_bias,
        rngs=nnx.Rngs(0),
    )
    layer = jax.tree.map(lambda leaf: 2 * leaf.astype(float), layer)

    def loss(layer, x):
        y = layer(x, mesh_points=points, quadrature_weights=weights)
        return jnp.sum(jnp.sin(y[:-2])), y[:-2]

    one = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(layer, x)
    monkeypatch.setattr(nn.bases.Basis, "linear_inputs", lambda *_: None)
    monkeypatch.setattr(nn.bases.SoftmaxBasis, "linear_inputs", lambda *_: None)
    other = jax.jit(jax.grad(lambda *a: loss(*a), (0, 1), has_aux=True))(layer, x)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.max(np.abs(b)))


# Pure functions, where modules look them up, and layers that have to reach them.
REACHED = [
    (opjax, "moments", "physics"),
    (basis, "reconstruct", "physics"),
    (opjax, "softmax_attention", "physics"),
    (opjax, "softmax_basis", "physics"),
    (opjax, "transport", "functional"),
    (opjax, "moments", "functional"),
    (opjax, "flare_attention", "flare"),
    (key_sums, "galerkin_coefficients", "galerkin"),
    (key_sums, "softmax_moments", "linear"),
    (key_sums, "means_of", "linear"),
    (pointwise, "regression", "intention"),
    (opjax, "performer_attention", "performer"),
    (opjax, "nystrom_attention", "nystrom"),
    (opjax, "linformer_attention", "linformer"),
    (opjax, "fourier_attention", "fourier"),
]
WALKED = {
    **LAYERS,
    "functional": partial(nn.FunctionalAttention, num_basis=BASIS),
    "performer": nn.attention.PerformerAttention,
    "nystrom": partial(nn.attention.NystromAttention, num_landmarks=BASIS),
    "linformer": partial(nn.attention.LinformerAttention, num_points=N),
    "fourier": nn.FourierAttention,
}


class ReachedError(Exception):
    """A function was called."""


@pytest.mark.parametrize(("module", "function", "name"), REACHED)
def test_modules_reach_the_pure_functions(module, function, name, monkeypatch):
    def reached(*args, **kwargs):
        raise ReachedError

    layer = WALKED[name](FEATURES, num_heads=HEADS, rngs=nnx.Rngs(0))
    given = {}
    if getattr(layer, "point_dim", 0):
        given["mesh_points"] = np.zeros((N, P), jnp.float32)
    monkeypatch.setattr(module, function, reached)
    with pytest.raises(ReachedError):
        jax.eval_shape(layer, np.zeros((N, FEATURES), jnp.float32), **given)


@pytest.mark.parametrize(
    ("module", "function", "call"),
    [
        (linear, "galerkin_coefficients", "galerkin_attention"),
        (linear, "softmax_means", "linear_attention"),
        (flare, "softmax_moments", "flare_attention"),
    ],
)
def test_public_functions_are_made_of_what_modules_call(
    module, function, call, monkeypatch, rng
):
    def reached(*args, **kwargs):
        raise ReachedError

    monkeypatch.setattr(module, function, reached)
    arguments = [jnp.asarray(a) for a in rng.normal(size=(3, 13, 4))]
    more = {"latents": arguments[0][:2]} if call == "flare_attention" else {}
    with pytest.raises(ReachedError):
        inspect.unwrap(getattr(opjax, call))(*arguments, **more)  # nothing compiled


@pytest.mark.parametrize("masked", [False, True])
def test_mapped_moments_are_those_of_mapped_features(rng, masked):
    f, phi = rng.normal(size=(40, 4)), rng.uniform(size=(40, 3))
    kernel, bias = rng.normal(size=(4, 2)), rng.normal(size=2)
    weights = np.where(np.arange(40) < 30, 0.5, 0.0) if masked else None
    given = {"quadrature_weights": weights, "with_gram": True}
    mapped = opjax.moments(f, phi, **given).mapped(kernel, bias)
    expected = opjax.moments(f @ kernel + bias, phi, **given)
    chex.assert_trees_all_close(mapped, expected, rtol=1e-12, atol=1e-12)
