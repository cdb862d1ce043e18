"""Any basis with any attention: finite, and one choice is the library's layer."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import opjax
from experiments.basis_choice import (
    ATTENTIONS,
    BASES,
    PROJECTIONS,
    ChosenAttention,
    ChosenOperator,
)
from experiments.darcy import PRESETS
from opjax import nn

FEATURES, NUM_BASIS = 8, 3
CHOICES = [(*pair, "mean") for pair in itertools.product(BASES, ATTENTIONS)]
CHOICES += [("learned", "functional", name) for name in PROJECTIONS if name != "mean"]


def make(basis, attention, projection):
    layer = ChosenAttention(
        FEATURES,
        attention=attention,
        basis=basis,
        projection=projection,
        num_heads=2,
        num_basis=NUM_BASIS,
        rngs=nnx.Rngs(0),
    )
    # Large enough that attention is far from its small start, where all is zero.
    return jax.tree.map(lambda p: jnp.asarray(p, float) * 4, layer)


@pytest.fixture
def x(rng):
    return jnp.asarray(rng.normal(size=(16, FEATURES)))


@pytest.fixture
def fourier():
    points = jnp.linspace(0, 1, 16, endpoint=False)[:, None]
    return opjax.fourier_basis(points, num_frequencies=1) / 4.0


@pytest.mark.parametrize(("basis", "attention", "projection"), CHOICES)
def test_values_and_gradients_are_finite(basis, attention, projection, x, fourier):
    @jax.jit
    @jax.value_and_grad
    def run(layer):
        return jnp.sum(layer(x, fourier) ** 2)

    value, gradient = run(make(basis, attention, projection))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    for linear in (gradient.query, gradient.key, gradient.value):
        assert np.any(linear.kernel[...] != 0)
    # Only a basis that is learned has a gradient, only one attention has a ridge.
    assert np.any(gradient.basis.score_kernel[...] != 0) == (basis != "fourier")
    assert (gradient.ridge_logit[...] != 0) == (attention == "functional")


def test_functional_attention_in_the_learned_basis_is_that_of_the_library(x, fourier):
    layer = make("learned", "functional", "mean")
    expected = nn.FunctionalAttention(
        FEATURES, num_heads=2, num_basis=NUM_BASIS, rngs=nnx.Rngs(1)
    )
    for name in ("query", "key", "value", "basis", "ridge_logit", "out"):
        setattr(expected, name, getattr(layer, name))
    np.testing.assert_allclose(layer(x, fourier), expected(x), rtol=1e-9, atol=1e-12)


def test_projections_and_bases_differ(x, fourier):
    outputs = [make(*choice)(x, fourier) for choice in CHOICES[2::3] + CHOICES[-2:]]
    for a, b in itertools.combinations(outputs, 2):
        assert float(jnp.max(jnp.abs(a - b))) > 1e-3


def test_the_operator_is_finite_in_float32():
    config = PRESETS["smoke"]
    rng = np.random.default_rng(0)
    points = jnp.asarray(rng.uniform(size=(169, 2)), jnp.float32)
    with jax.enable_x64(False):
        model = ChosenOperator(
            config, attention="softmax", basis="orthonormal", rngs=nnx.Rngs(0)
        )
        output = jax.jit(model)(points, points[:, :1])
    assert output.shape == (169, 1)
    assert output.dtype == jnp.float32
    assert np.isfinite(output).all()
