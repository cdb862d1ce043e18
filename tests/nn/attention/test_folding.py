"""Layers with their products in the cheapest order: the same numbers, for less."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import opjax
from opjax import nn
from opjax.nn.attention import folding
from tests.selection import by_day

N, C, P, K = 40, 8, 1, 3
FOLDS = [name for name in dir(folding.Sizes) if name.startswith("folds_")]

points = partial(partial, point_dim=P)  # constructors of layers that see coordinates
plain = partial(points, normalization=None)
hats = partial(
    nn.bases.FixedBasis, functions=partial(opjax.hat_basis, num_nodes=K), num_basis=K
)
adaptive = partial(nn.bases.AdaptiveBasis, num_basis=K)

# Layer, heads, and the folds that pay at 40 points of 8 channels.
CASES = {
    "functional": (partial(nn.FunctionalAttention, num_basis=K), 2, {"basis"}),
    "physics": (partial(nn.PhysicsAttention, num_basis=K, use_bias=False), 1, "basis"),
    "orthogonal": (partial(nn.OrthogonalAttention, num_basis=K), 1, {"basis"}),
    "hats": (partial(nn.BasisAttention, basis=hats), 4, {"basis"}),
    "adaptive": (partial(nn.BasisAttention, basis=adaptive), 1, {"output"}),
    "flare": (partial(nn.FlareAttention, num_latents=K), 1, {"basis"}),
    "galerkin": (points(nn.GalerkinAttention), 2, {"queries"}),
    "galerkin_plain": (
        plain(nn.GalerkinAttention),
        1,
        {"queries", "keys_and_values"},
    ),
    "shared_norm": (nn.attention.SharedNormAttention, 1, {"queries"}),
    "linear": (points(nn.LinearAttention), 2, {"output"}),
    "linear_plain": (plain(nn.LinearAttention), 1, {"values", "output"}),
    "mean": (nn.attention.MeanAttention, 1, {"values", "output"}),
    "efficient": (nn.attention.EfficientAttention, 1, {"values", "output"}),
    "intention": (points(nn.attention.IntentionAttention), 2, {"queries"}),
    "intention_plain": (
        plain(nn.attention.IntentionAttention),
        1,
        {"queries", "keys_and_values"},
    ),
    "performer": (
        points(nn.attention.PerformerAttention, num_features=K),
        1,
        {"values", "output"},
    ),
    "nystrom": (
        points(nn.attention.NystromAttention, num_landmarks=K),
        1,
        {"values", "output"},
    ),
    "linformer": (
        points(nn.attention.LinformerAttention, num_points=N, num_projected=K),
        2,
        {"values", "output"},
    ),
    "linformer_plain": (
        plain(nn.attention.LinformerAttention, num_points=N, num_projected=K),
        1,
        {"values", "output"},
    ),
    "softmax": (points(nn.SoftmaxAttention), 1, {"pairs"}),
    "fourier": (points(nn.FourierAttention), 1, {"pairs"}),
}


def build(name):
    """A layer with parameters away from their small and repeated initial values."""
    construct, num_heads, _ = CASES[name]
    layer = construct(C, num_heads=num_heads, rngs=nnx.Rngs(0))

    def enlarge(leaf):
        noise = np.sin(1 + 7 * np.arange(leaf.size)).reshape(leaf.shape)
        return jnp.asarray(np.asarray(leaf) + 0.3 * noise, float)

    return jax.tree.map(enlarge, layer)


def record(monkeypatch, allowed):
    """Notes which folds are taken; none if they are not allowed."""
    taken = set()

    def watched(name, decide):
        def decision(self, *args, **given):
            folds = allowed and decide(self, *args, **given)
            taken.update([name.removeprefix("folds_")] if folds else [])
            return folds

        return decision

    for name in FOLDS:
        decide = getattr(ORIGINAL, name)
        monkeypatch.setattr(folding.Sizes, name, watched(name, decide))
    return taken


ORIGINAL = type("Original", (), {name: getattr(folding.Sizes, name) for name in FOLDS})


DAY = ["functional", "physics", "hats", "galerkin", "softmax", "flare", "performer"]


@pytest.mark.parametrize("name", by_day(CASES, DAY))
def test_a_folded_layer_equals_the_unfolded_one(rng, monkeypatch, name):
    layer = build(name)
    x = jnp.asarray(rng.normal(size=(N, C)))
    mesh_points = jnp.asarray(rng.uniform(size=(N, P)))
    weights = jnp.asarray(rng.uniform(0.5, 1.5, N)).at[-5:].set(0)
    if name in ("galerkin", "linear", "softmax"):  # equal weights have a path of theirs
        weights = None

    def loss(layer, x):
        y = layer(x, mesh_points=mesh_points, quadrature_weights=weights)
        return jnp.sum(jnp.sin(y[:-5])), y[:-5]

    def evaluated(allowed):
        taken = record(monkeypatch, allowed)
        gradients, y = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(layer, x)
        return [y, *jax.tree.leaves(gradients)], taken

    (y, *gradients), taken = evaluated(allowed=True)
    (expected, *slopes), none = evaluated(allowed=False)
    wanted = CASES[name][2]
    assert taken == ({wanted} if isinstance(wanted, str) else wanted)
    assert not none
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-12)
    scale = max(float(jnp.max(jnp.abs(slope))) for slope in slopes)
    for gradient, slope in zip(gradients, slopes, strict=True):
        np.testing.assert_allclose(gradient, slope, rtol=1e-12, atol=1e-12 * scale)


def cheapest(n, h, e, d, c, r):
    """Multiplications of all orders of `F (z A) W`, by hand."""
    make = n * c * h * d
    return make, h * n * r * d, h * n * d * c, h * r * d * c, h * n * r * c


def test_the_output_is_folded_where_that_is_less():
    for h in (1, 2, 8):
        sizes = folding.Sizes(1000, h, 129, 128 // h, 128)
        for rank in (4, 16, 64):
            _, apply, merge, small, direct = cheapest(1000, h, 129, 128 // h, 128, rank)
            assert sizes.folds_output(rank) == (small + direct < apply + merge)
    # The paper's functional attention has eight heads of 16 channels and 64 functions.
    paper = folding.Sizes(7225, 8, 128, 16, 128)
    assert not paper.folds_basis(64, scores=True, shared=False)
    assert not paper.folds_output(64)
    assert paper._replace(heads=1, width=128).folds_basis(64, scores=True, shared=False)
    assert paper.folds_queries()


def test_few_points_are_not_folded():
    sizes = folding.Sizes(16, 1, 130, 129, 128)
    assert not sizes.folds_queries()
    assert not sizes.folds_keys_and_values()
    assert not sizes.folds_values(129)
    assert not sizes.folds_output(129)
    assert sizes._replace(points=4096).folds_queries()


def test_a_symbolic_number_of_points_counts_as_many():
    n = jax.export.symbolic_shape("n")[0]
    sizes = folding.Sizes(n, 2, 129, 64, 128)
    assert sizes.folds_queries()
    assert sizes.folds_basis(64, scores=True, shared=False)
    assert not sizes._replace(heads=8, width=16).folds_output(64)


def test_samples_of_a_batch_stay_apart(rng):
    layer = build("galerkin_plain")
    x = jnp.asarray(rng.normal(size=(2, N, C)))
    mesh_points = jnp.asarray(rng.uniform(size=(N, P)))
    call = jax.jit(lambda x: layer(x, mesh_points=mesh_points))
    together = jax.jit(jax.vmap(call))(x)
    np.testing.assert_allclose(together[0], call(x[0]), rtol=1e-12, atol=1e-12)
    changed = jax.jit(jax.vmap(call))(x.at[1].set(0))
    np.testing.assert_array_equal(changed[0], together[0])


@pytest.mark.parametrize("masked", [False, True])
def test_mapped_moments_are_those_of_mapped_features(rng, masked):
    f, phi = rng.normal(size=(N, 4)), rng.uniform(size=(N, K))
    kernel, bias = rng.normal(size=(4, 2)), rng.normal(size=2)
    weights = np.where(np.arange(N) < 30, 0.5, 0.0) if masked else None
    given = {"quadrature_weights": weights, "with_gram": True}
    mapped = opjax.moments(f, phi, **given).mapped(kernel, bias)
    expected = opjax.moments(f @ kernel + bias, phi, **given)
    for a, b in zip(*map(jax.tree.leaves, (mapped, expected)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_perceptron_is_linear_in_its_last_hidden_features(rng):
    x = jnp.asarray(rng.normal(size=(5, C)))
    for residual in (False, True):
        perceptron = nn.layers.ResidualMLP(
            C, C, output_residual=residual, rngs=nnx.Rngs(0)
        )
        perceptron = jax.tree.map(lambda leaf: leaf.astype(float), perceptron)
        hidden, kernel, bias = perceptron.last_map(x)
        expected = hidden @ kernel + bias[None, :]
        np.testing.assert_allclose(perceptron(x), expected, rtol=1e-12, atol=1e-14)
