"""Linear maps, perceptrons and normalisation against their formulas."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from opjax.nn.layers import normalized
from tests import oracles


def test_mlp_gradient_equals_differences_of_its_formula(rng):
    erf = np.vectorize(math.erf)

    def formula(x, w1, b1, w2, b2):
        hidden = x @ w1 + b1
        return hidden * 0.5 * (1 + erf(hidden / np.sqrt(2))) @ w2 + b2

    def layer(x, w1, b1, w2, b2):
        module = nn.MLP(3, 4, 2, rngs=nnx.Rngs(0))
        (hidden,) = module.hidden
        hidden.kernel, hidden.bias = nnx.Param(w1), nnx.Param(b1)
        module.out.kernel, module.out.bias = nnx.Param(w2), nnx.Param(b2)
        return module(x)

    shapes = (5, 3), (3, 4), (4,), (4, 2), (2,)
    args = tuple(rng.normal(size=shape) for shape in shapes)
    oracles.check(layer, formula, args)


def test_mlp_uses_the_exact_gelu(rng):
    layer = nn.MLP(3, 4, 2, rngs=nnx.Rngs(0))
    layer = jax.tree.map(lambda p: p.astype(float) * 50, layer)
    x = rng.normal(size=(5, 3))
    hidden = x @ np.asarray(layer.hidden[0].kernel[...])
    gelu = hidden * 0.5 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
    expected = gelu @ np.asarray(layer.out.kernel[...])
    assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-9)


def make(*widths, **options):
    layer = nn.MLP(*widths, rngs=nnx.Rngs(0), **options)
    return jax.tree.map(lambda p: p.astype(float) * 20, layer)


@pytest.mark.parametrize("residual", [False, True])
def test_deeper_perceptrons_are_the_chain_of_their_layers(rng, residual):
    layer = make(3, (4, 4), 2, activation="relu", residual=residual)
    x = rng.normal(size=(5, 3))
    first, second = layer.hidden
    y = jax.nn.relu(first(x))
    y = jax.nn.relu(second(y)) + (y if residual else 0)
    assert_allclose(layer(x), layer.out(y), rtol=1e-12)


def test_parameters_of_a_perceptron_start_as_those_of_its_layers():
    trunk = nn.MLP(9, 16, 2, rngs=nnx.Rngs(0))
    assert not np.any(trunk.hidden[0].bias[...])
    assert np.max(np.abs(trunk.hidden[0].kernel[...])) < 0.1
    fan_in = nn.MLP(9, 16, 2, kernel_init=None, rngs=nnx.Rngs(0))
    (hidden,) = fan_in.hidden
    for layer, bound in ((hidden, 1 / 3), (fan_in.out, 1 / 4)):
        for leaf in (layer.kernel[...], layer.bias[...]):
            assert 0 < np.max(np.abs(leaf)) <= bound


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hidden_features": 0}, "widths="),
        ({"activation": "sine"}, "activation='sine' is unknown"),
        ({"residual": True}, "residual=True needs at least two hidden layers"),
        ({"residual": True, "hidden_features": (3, 4)}, "of equal width"),
    ],
)
def test_bad_perceptrons_are_named(options, match):
    options = {"hidden_features": 4} | options
    with pytest.raises(ValueError, match=match):
        nn.MLP(3, out_features=2, rngs=nnx.Rngs(0), **options)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_normalised_values_have_mean_zero_and_variance_one(rng, axis):
    x = 1e3 + rng.normal(size=(4, 5, 6))
    mean, variance = x.mean(axis, keepdims=True), x.var(axis, keepdims=True)
    found = normalized(jnp.asarray(x), axis=axis, epsilon=1e-3)
    assert_allclose(found, (x - mean) / np.sqrt(variance + 1e-3), atol=1e-9)


def test_weights_of_a_mean_repeat_entries_or_leave_them_out(rng):
    x = rng.normal(size=(3, 2))
    weights = jnp.asarray([1.0, 0.0, 2.0])
    repeated = normalized(x[np.array([0, 2, 2])], axis=0, epsilon=1e-5)
    found = normalized(x, axis=0, epsilon=1e-5, weights=weights)
    assert_allclose(found[np.array([0, 2])], repeated[:2], rtol=1e-12)
    masked = normalized(x, axis=0, epsilon=1.0, weights=np.zeros(3))
    assert_allclose(masked, x, rtol=1e-12)


def test_initial_parameters_follow_the_reference_code():
    basis = nn.bases.SoftmaxBasis(128, num_heads=8, num_basis=64, rngs=nnx.Rngs(1))
    kernel = np.asarray(basis.score_kernel[...])
    assert_allclose(kernel @ kernel.T, np.eye(16), atol=1e-5)
    assert np.all(np.asarray(basis.temperature[...]) == 0.5)
    projection = np.asarray(basis.projection.kernel[...])
    assert np.max(np.abs(projection)) <= 128**-0.5
    assert abs(np.std(projection) - (3 * 128) ** -0.5) < 1e-3
    trunk = np.asarray(nn.layers.Linear(128, 128, rngs=nnx.Rngs(2)).kernel[...])
    assert abs(np.std(trunk) - 0.02) < 1e-3
    grid = nn.layers.GridConvolution(16, 32, grid_shape=(4, 4), rngs=nnx.Rngs(3))
    assert np.max(np.abs(np.asarray(grid.kernel[...]))) <= (9 * 16) ** -0.5


def test_residuals_add_to_input_and_output(rng):
    x = rng.normal(size=(5, 3))
    layer = make(
        3, (3, 3), 3, activation="relu", input_residual=True, output_residual=True
    )
    first, second = layer.hidden
    y = jax.nn.relu(second(x + jax.nn.relu(first(x))))
    assert_allclose(layer(x), y + layer.out(y), rtol=1e-12)
    one_map = make(3, (), 3, output_residual=True)
    assert_allclose(one_map(x), x + one_map.out(x), rtol=1e-12)


def test_residual_perceptrons_add_wherever_widths_agree():
    def layout(*widths, **options):
        found = nn.layers.ResidualMLP(*widths, rngs=nnx.Rngs(0), **options)
        flags = found.input_residual, found.residual, found.output_residual
        return len(found.hidden), found.hidden[0].kernel.shape[1], *map(int, flags)

    assert layout(4, 4) == (4, 4, 1, 1, 1)
    assert layout(2, 4, num_layers=2) == (3, 4, 0, 1, 1)
    assert layout(4, 1, hidden_features=4) == (4, 4, 1, 1, 0)
    assert layout(4, 4, hidden_features=6, num_layers=0) == (1, 6, 0, 0, 0)
    assert layout(4, 4, input_residual=False) == (4, 4, 0, 1, 1)
    assert layout(4, 4, output_residual=False) == (4, 4, 1, 1, 0)


def test_tanh_gelu_is_the_approximate_one(rng):
    x = rng.normal(size=(5, 3))
    y = make(3, 4, 2, activation="gelu_tanh")
    hidden = np.asarray(y.hidden[0](x))
    inner = math.sqrt(2 / math.pi) * (hidden + 0.044715 * hidden**3)
    expected = y.out(jnp.asarray(0.5 * hidden * (1 + np.tanh(inner))))
    assert_allclose(y(x), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("widths", "option", "message"),
    [
        (
            (3, 4, 3),
            "input_residual",
            "a first hidden layer with the width of the input",
        ),
        (
            (3, (), 3),
            "input_residual",
            "a first hidden layer with the width of the input",
        ),
        (
            (3, 4, 3),
            "output_residual",
            "an output with the width of the last hidden layer",
        ),
    ],
)
def test_what_cannot_be_added_is_refused(widths, option, message):
    with pytest.raises(ValueError, match=message):
        make(*widths, **{option: True})
