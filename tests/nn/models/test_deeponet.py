"""The deep operator network: sums of functions, sensors, any points, a given basis."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose

from opjax import nn
from tests import refused
from tests.nn.parameters import built_once, enlarged, evaluate
from tests.oracles import replaced

SENSORS, N = 7, 9


@built_once
def make(**options):
    given = {"point_dim": 2, "num_sensors": SENSORS, "feature_dim": 1}
    given |= {"branch_features": (5, 6), "trunk_features": (4, 5, 6)}
    given |= {"out_features": 2, "activation": "tanh"} | options
    return enlarged(nn.DeepONet(**given, rngs=nnx.Rngs(0)))


@pytest.fixture
def data(rng):
    """Points that are no sensors, and values at the sensors."""
    points = rng.uniform(size=(N, 2))
    return points, rng.normal(size=(SENSORS, 1))


def perceptron(mlp, x, act=np.tanh):
    for layer in mlp.hidden:
        x = act(x @ np.asarray(layer.kernel) + np.asarray(layer.bias))
    return x @ np.asarray(mlp.out.kernel) + np.asarray(mlp.out.bias)


def test_each_output_is_a_sum_over_its_group_of_functions(data):
    model, time = make(time_embedding=True), 0.3
    points, values = map(np.asarray, data)
    b = perceptron(model.branch, values.ravel())
    inputs = np.hstack([points, np.full((N, 1), time)])
    t = np.tanh(perceptron(model.trunk, inputs))
    expected = np.stack(
        [t[:, own] @ b[own] for own in (slice(0, 3), slice(3, 6))], axis=1
    ) + np.asarray(model.bias)
    actual = evaluate(model, *data, time=jnp.asarray(time))
    assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.nightly
def test_it_is_linear_in_the_last_layer_of_the_branch_and_smooth_in_the_points(data):
    """Any points: those of another call, one by one, are the same function's."""
    model = make()
    points, values = data
    whole = evaluate(model, points, values)
    alone = jax.jit(jax.vmap(lambda x: model(x[None], values)[0]))(points)
    assert_allclose(alone, whole, rtol=1e-10)
    gradient = jax.jit(jax.grad(lambda model: jnp.sum(model(points, values)[:, 0])))(
        model
    )
    assert_allclose(gradient.bias[...], [N, 0])


def test_a_given_basis_with_and_without_a_trunk(data, rng):
    points, values = data
    modes = rng.normal(size=(N, 4))
    mixed = make(out_features=1, num_modes=4, trunk_features=(4, 2))
    b = perceptron(mixed.branch, np.asarray(values).ravel())
    t = np.tanh(perceptron(mixed.trunk, np.asarray(points)))
    expected = np.asarray(modes) @ b[:4] + t @ b[4:] + np.asarray(mixed.bias)
    actual = evaluate(mixed, *data, basis_functions=modes)
    assert_allclose(actual[:, 0], expected, rtol=1e-10)
    alone = make(out_features=1, num_modes=4, trunk_features=(), branch_features=(5, 4))
    assert alone.bias is None
    b = perceptron(alone.branch, np.asarray(values).ravel())
    actual = evaluate(alone, *data, basis_functions=modes)
    assert_allclose(actual[:, 0], np.asarray(modes) @ b, rtol=1e-10)
    refused.each(
        (lambda: mixed(*data), r"basis_functions None must .* \(9, 4\)"),
        (
            lambda: make()(*data, basis_functions=modes),
            r"basis_functions \(9, 4\) must .* \(9, 0\)",
        ),
    )


def test_modes_of_the_training_outputs_reproduce_them(rng):
    """The formula of the docstring: outputs of rank two, and their own coefficients."""
    outputs = jnp.asarray(rng.normal(size=(5, 2)) @ rng.normal(size=(2, N)))
    modes = jnp.linalg.svd(outputs.T, full_matrices=False)[0][:, :2]
    assert_allclose(modes @ (modes.T @ outputs.T), outputs.T, atol=1e-12)


def test_masked_sensors_are_zero_and_other_weights_do_nothing(data):
    points, values = data
    model, own = make(), points[:SENSORS]
    weights = jnp.where(np.arange(SENSORS) < 5, 0.3, 0.0)
    spoilt = replaced(values, np.s_[5:], jnp.nan)
    actual = evaluate(model, own, spoilt, quadrature_weights=weights)
    expected = evaluate(model, own, replaced(values, np.s_[5:], 0.0))
    assert_allclose(actual, expected, rtol=1e-12)
    weighted = evaluate(model, points, values, quadrature_weights=np.zeros(N))
    assert_allclose(weighted, evaluate(model, points, values), rtol=1e-12)


def test_the_mesh_may_be_the_input(data):
    model = make(feature_dim=0)
    points = data[0][:SENSORS]
    assert evaluate(model, points).shape == (SENSORS, 2)
    refused.each(
        (lambda: model(data[0]), r"mesh_points .* \(9, 2\) must .* \(7, 2\)"),
        (lambda: model(points, data[1]), "without features"),
    )


def test_batches_and_single_precision(data):
    points, values = data
    batch = jnp.stack([values, 2 * values])
    batched = jax.jit(jax.vmap(make(), in_axes=(None, 0)))(points, batch)
    single = jax.tree.map(lambda p: p.astype(jnp.float32), make())
    output = evaluate(single, *(a.astype(jnp.float32) for a in (points, batch[1])))
    assert output.dtype == jnp.float32
    assert_allclose(output, batched[1], rtol=1e-4, atol=1e-4)


def test_impossible_models_and_calls_are_refused(data):
    points, values = data
    refused.each(
        (lambda: make(trunk_features=(4, 4)), r"branch_features=\(5, 6\) must be 4"),
        (lambda: make(out_features=4), "multiple of out_features=4"),
        (lambda: make(trunk_features=(6,)), "at least two layers"),
        (
            lambda: make()(points, values[1:]),
            r"features \(6, 1\) must have shape \(7, 1\)",
        ),
        (lambda: make()(points), r"features None must have shape"),
        (lambda: make()(points, values, time=0.5), "time=0.5 does not match"),
        (lambda: make()(points, np.ones((SENSORS, 1), int)), "features has dtype int"),
    )
