"""The documented orthogonal layer against its equations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from opjax import nn
from tests import refused
from tests.nn.parameters import built_once, size

N, M, K = 9, 6, 4


@built_once
def make(**options):
    options = {"num_inputs": N, "activation": jnp.tanh} | options
    layer = nn.models.OrthogonalLayer(M, K, rngs=nnx.Rngs(0), **options)
    return jax.tree.map(lambda p: jnp.asarray(p, float), layer)


def equations(layer, u):
    """The documentation, in NumPy; signs of the basis make no difference."""
    matrix = {
        name: np.asarray(getattr(layer, name).kernel[...]).T
        for name in ("query", "key", "value", "bypass")
    }
    phi, _ = np.linalg.qr(layer.basis[...])
    c = phi.T @ u
    scores = np.exp(np.tanh((matrix["query"] @ u) * (matrix["key"] @ u) / np.sqrt(K)))
    a = scores / scores.sum()
    v = matrix["value"] @ (phi @ (c + a * c)) + matrix["bypass"] @ u
    bias = layer.bypass.bias
    return np.tanh(v if bias is None else v + bias[...])


@pytest.mark.parametrize("use_bias", [True, False])
def test_the_layer_is_its_equations(rng, use_bias):
    layer = make(use_bias=use_bias, bias_init=jax.nn.initializers.ones)
    u = rng.normal(size=N)
    assert_allclose(layer(jnp.asarray(u)), equations(layer, u), rtol=1e-12)


def test_gradients_are_differences_of_the_equations(rng):
    layer, u = make(), rng.normal(size=N)
    direction = rng.normal(size=N)
    gradient = jax.jit(jax.grad(lambda u: jnp.sum(layer(u) ** 2)))(jnp.asarray(u))
    step = 1e-6
    ends = [np.sum(equations(layer, u + s * direction) ** 2) for s in (step, -step)]
    expected = (ends[0] - ends[1]) / (2 * step)
    assert_allclose(gradient @ direction, expected, rtol=1e-7)


@pytest.mark.parametrize("use_bias", [True, False])
def test_the_number_of_parameters_is_the_documented_one(use_bias):
    layer = jax.eval_shape(
        lambda: nn.models.OrthogonalLayer(
            128, 16, num_inputs=256, use_bias=use_bias, rngs=nnx.Rngs(0)
        )
    )
    count = size(layer)
    documented = 2 * 16 * 256 + 2 * 128 * 256 + 256 * 16 + 128 * use_bias
    assert count == documented


@pytest.mark.parametrize(
    ("activation", "deviation"),
    [
        (jax.nn.selu, 1 / 16),  # LeCun: 1 / n
        (jax.nn.relu, np.sqrt(2) / 16),  # He: 2 / n
        (None, np.sqrt(2 / (256 + 200))),  # Glorot: 2 / (n + m)
    ],
)
def test_initialisers_follow_the_activation(activation, deviation):
    layer = nn.models.OrthogonalLayer(
        200, 16, num_inputs=256, activation=activation, rngs=nnx.Rngs(0)
    )
    assert float(jnp.std(layer.value.kernel[...])) == pytest.approx(deviation, rel=0.02)
    assert not np.any(layer.bypass.bias[...])


@pytest.mark.nightly
def test_a_network_is_its_layers_and_a_readout(rng):
    network = nn.models.OrthogonalNetwork(
        num_points=N,
        in_features=2,
        out_features=3,
        num_hidden=8,
        num_layers=2,
        num_basis=K,
        rngs=nnx.Rngs(0),
    )
    points, values = np.zeros((N, 2)), rng.normal(size=(N, 2)).astype(np.float32)
    output = network(points, jnp.asarray(values))
    hidden = network.layers[1](network.layers[0](jnp.asarray(values).reshape(-1)))
    expected = network.readout(hidden).reshape(N, 3)
    assert_allclose(output, expected, rtol=1e-6)
    # Without features the points are the input.
    assert_array_equal(network(jnp.asarray(values)), output)
    both = jax.jit(jax.vmap(network))(jnp.stack([points] * 2), jnp.stack([values] * 2))
    assert_allclose(both[1], output, rtol=1e-5, atol=1e-6)
    for given in ({"time": np.zeros(())}, {"quadrature_weights": np.ones(N)}):
        with pytest.raises(ValueError, match="not supported by a network of one mesh"):
            network(points, values, **given)
    with pytest.raises(ValueError, match=r"\(5, 2\) must have shape \(9, 2\)"):
        network(points[:5])


test_sizes_without_a_meaning_are_refused = refused.options(
    make,
    [
        ({"key_dim": 3}, "key_dim=3 must be num_basis=4"),
        ({"num_inputs": 3}, "num_basis=4 .* num_inputs=3"),
        ({"num_inputs": 0}, "num_inputs"),
    ],
)


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"u \(8,\) must have shape \(9,\)"):
        make()(np.zeros(8))
    with pytest.raises(TypeError, match="floating"):
        make()(np.zeros(9, int))
