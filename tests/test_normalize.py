import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import normalize
from tests import refused


@pytest.fixture
def data():
    return np.random.default_rng(0).normal(3.0, 2.0, size=(6, 5, 2))


def test_channel_statistics_are_the_mean_and_unbiased_deviation(data):
    n = normalize.fit(data)
    assert_allclose(n.mean, data.mean((0, 1)), rtol=1e-14)
    assert_allclose(n.std, data.std((0, 1), ddof=1) + 1e-8, rtol=1e-14)
    scalar = normalize.fit(data[..., 0])
    assert scalar.mean.shape == scalar.std.shape == ()
    assert_allclose(scalar.std, n.std[0], rtol=1e-14)


@pytest.mark.parametrize("channels", [False, True])
def test_pointwise_statistics_are_taken_over_samples_only(data, channels):
    data = data if channels else data[..., 0]
    n = normalize.fit(data, pointwise=True)
    assert_allclose(n.mean, data.mean(0), rtol=1e-14)
    assert_allclose(n.std, data.std(0, ddof=1) + 1e-5, rtol=1e-13)


@pytest.mark.parametrize("pointwise", [False, True])
def test_the_biased_deviation_divides_by_the_number_of_entries(data, pointwise):
    n = normalize.fit(data, pointwise=pointwise, unbiased=False)
    guard, axes = (1e-5, 0) if pointwise else (1e-8, (0, 1))
    assert_allclose(n.std, data.std(axes) + guard, rtol=1e-13)
    double = normalize.fit(
        np.tile(data, (2, 1, 1)), pointwise=pointwise, unbiased=False
    )
    assert_allclose(double.std, n.std, rtol=1e-13)


@pytest.mark.parametrize("pointwise", [False, True])
def test_padding_of_zero_weight_is_not_measured(data, pointwise):
    weights = np.ones((8, 5))
    weights[6:] = 0
    padded = np.concatenate([data, np.full((2, 5, 2), np.nan)])
    for a, b in zip(
        normalize.fit(padded, weights=weights, pointwise=pointwise),
        normalize.fit(data, pointwise=pointwise),
        strict=True,
    ):
        assert_allclose(a, b, rtol=1e-13)


def test_the_scale_of_the_weights_cancels(data):
    w = np.random.default_rng(1).uniform(0.5, 1.0, size=5)
    for a, b in zip(
        normalize.fit(data, weights=w), normalize.fit(data, weights=7 * w), strict=True
    ):
        assert_allclose(a, b, rtol=1e-13)


@pytest.mark.parametrize("pointwise", [False, True])
def test_decode_undoes_encode_for_samples_and_batches(data, pointwise):
    n = normalize.fit(data, pointwise=pointwise)
    encoded = normalize.encode(n, data)
    assert_allclose(normalize.decode(n, encoded), data, rtol=1e-13)
    one = jax.jit(normalize.encode)(n, data[0])
    assert_allclose(one, encoded[0], rtol=1e-13)
    batched = jax.jit(jax.vmap(normalize.encode, in_axes=(None, 0)))(n, data)
    assert_allclose(batched, encoded, rtol=1e-13)


def test_encoded_training_data_have_zero_mean_and_unit_deviation(data):
    encoded = normalize.encode(normalize.fit(data), data)
    assert_allclose(np.mean(encoded, (0, 1)), 0, atol=1e-13)
    assert_allclose(np.std(encoded, (0, 1), ddof=1), 1, rtol=1e-7)


def test_the_gradient_of_encode_is_the_inverse_deviation(data):
    n = normalize.fit(data)
    g = jax.jit(jax.grad(lambda x: normalize.encode(n, x).sum()))(data[0])
    assert_allclose(g, np.broadcast_to(1 / n.std, (5, 2)), rtol=1e-14)


def test_the_gradient_of_decode_is_the_deviation(data):
    n = normalize.fit(data)
    g = jax.jit(jax.grad(lambda x: normalize.decode(n, x).sum()))(data[0])
    assert_allclose(g, np.broadcast_to(n.std, (5, 2)), rtol=1e-14)


def test_decode_batches_under_vmap_and_keeps_float32(data):
    n = normalize.fit(data.astype(np.float32))
    values = jnp.asarray(data, jnp.float32)
    batched = jax.jit(jax.vmap(normalize.decode, in_axes=(None, 0)))(n, values)
    assert batched.dtype == jnp.float32
    expected = np.asarray(n.std, float) * data + np.asarray(n.mean, float)
    assert_allclose(batched, expected, rtol=1e-5, atol=1e-5)


def test_float32_is_kept_and_a_constant_field_encodes_to_zero():
    data = jnp.full((4, 3), 1e4, jnp.float32)
    n = normalize.fit(data)
    assert n.mean.dtype == n.std.dtype == jnp.float32
    assert_array_equal(normalize.encode(n, data), 0)
    assert normalize.encode(n, data).dtype == jnp.float32


def test_bad_data_are_refused_with_the_way_out(data):
    data[2, 1, 0] = np.inf
    refused.each(
        (lambda: normalize.fit(data), r"sample\(s\) 2 of 6; remove"),
        (lambda: normalize.fit(np.ones((2, 3, 4, 1))), "flatten grids"),
        (
            lambda: normalize.fit(np.ones((1, 3)), pointwise=True),
            "two values.*pointwise=False",
        ),
        (
            lambda: normalize.fit(np.ones((2, 3)), weights=np.ones(4)),
            "one weight per point",
        ),
        (
            lambda: normalize.fit(np.ones((2, 3)), weights=np.array([1.0, -1.0, 1.0])),
            "non-negative",
        ),
        (
            lambda: normalize.fit(
                np.ones((2, 3)), weights=np.array([1.0, np.inf, 1.0])
            ),
            "finite",
        ),
    )
    with pytest.raises(TypeError, match="floating"):
        normalize.fit(np.ones((2, 3), int))
    n = normalize.fit(np.ones((2, 3, 2)))
    for function in (normalize.encode, normalize.decode):
        with pytest.raises(TypeError, match="values has dtype int"):
            function(n, jnp.ones((3, 2), int))
    with pytest.raises(ValueError, match=r"\(3, 1\).*\(2,\)"):
        normalize.encode(n, jnp.ones((3, 1)))
