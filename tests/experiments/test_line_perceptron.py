"""Perceptrons of one coordinate, against the layers that they stand for."""

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from experiments.line_perceptron import LinePerceptron, relu_map
from opjax.nn.layers import MLP
from tests.refused import value_error


def dense(x, weights, biases, kernel):
    return jax.nn.relu(x[:, None] * weights[None] + biases[None]) @ kernel


@pytest.fixture
def layer(rng):
    """Points, weights of which one is zero, biases and a map, of seven channels."""
    weights, biases = rng.normal(size=(2, 7))
    weights[3] = 0
    arrays = rng.normal(size=11), weights, biases, rng.normal(size=(7, 5))
    return tuple(map(jnp.asarray, arrays))


@pytest.mark.parametrize("constant", [-1.0, 0.0, 2.0])
def test_cumulative_sums_give_the_values_of_the_product(layer, constant):
    x, weights, biases, kernel = layer
    biases = biases.at[3].set(constant)
    given = x, weights, biases, kernel
    assert_allclose(jax.jit(relu_map)(*given), dense(*given), atol=1e-13)


@pytest.mark.nightly
def test_gradients_are_those_of_the_product(layer):
    def total(function):
        return jax.jit(
            jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), (0, 1, 2, 3))
        )

    expected, actual = total(dense)(*layer), total(relu_map)(*layer)
    for left, right in zip(actual, expected, strict=True):
        assert_allclose(left, right, atol=1e-12)
    check_grads(relu_map, layer, order=1, modes=["fwd", "rev"], eps=1e-6)


def test_channels_that_all_have_their_kink_at_zero_as_at_the_start(layer):
    x, weights, biases, kernel = layer
    given = x.at[0].set(0), weights, jnp.zeros_like(biases), kernel
    assert_allclose(relu_map(*given), dense(*given), atol=1e-13)


@pytest.mark.nightly
def test_batches_are_vmap_and_single_precision_is_kept(layer):
    x, *rest = layer
    batched = jax.vmap(relu_map, (0, None, None, None))(jnp.stack([x, 2 * x]), *rest)
    assert_allclose(batched[1], dense(2 * x, *rest), atol=1e-13)
    single = relu_map(*(leaf.astype(jnp.float32) for leaf in layer))
    assert single.dtype == jnp.float32
    assert_allclose(single, batched[0], atol=1e-4)


def perceptron(*hidden):
    init = jax.nn.initializers.normal(0.3)
    return LinePerceptron(hidden, 4, kernel_init=init, rngs=nnx.Rngs(0))


@pytest.mark.nightly
def test_the_perceptron_has_parameters_and_values_of_the_common_one(rng):
    common = MLP(
        1,
        (16, 12, 9),
        4,
        activation="relu",
        kernel_init=jax.nn.initializers.normal(0.3),
        rngs=nnx.Rngs(0),
    )
    model = perceptron(16, 12, 9)
    pairs = zip(*map(jax.tree.leaves, (model, common)), strict=True)
    for left, right in pairs:
        assert_array_equal(left, right)
    x = jnp.asarray(rng.normal(size=(20, 1)), jnp.float32)
    assert_allclose(model(x), common(x), atol=1e-5)


def test_points_of_the_plane_and_a_single_hidden_layer_are_refused():
    with value_error(r"\(3, 2\) must have one coordinate"):
        perceptron(4, 4)(jnp.ones((3, 2)))
    with value_error("at least two layers"):
        perceptron(4)
