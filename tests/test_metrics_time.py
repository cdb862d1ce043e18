"""Measures of rollouts against NumPy, frame by frame."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import metrics_time

RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=(5, 12, 2))
PREDICTION = TARGET + 0.3 * np.arange(5)[:, None, None] * RNG.normal(size=(5, 12, 2))
WEIGHTS = RNG.uniform(0.5, 2, size=12)


def numpy_error(p, t, w):
    return np.sqrt(np.sum(w[:, None] * (p - t) ** 2) / np.sum(w[:, None] * t**2))


def numpy_correlation(p, t, w):
    p, t = (x - np.average(x, axis=0, weights=w) for x in (p, t))
    dot = [np.sum(w[:, None] * a * b) for a, b in ((p, t), (p, p), (t, t))]
    return dot[0] / np.sqrt(dot[1] * dot[2])


@pytest.mark.parametrize(
    ("function", "oracle"),
    [
        (metrics_time.errors_of_frames, numpy_error),
        (metrics_time.correlations_of_frames, numpy_correlation),
    ],
)
@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_measures_of_frames_are_those_of_every_frame(function, oracle, weights):
    found = jax.jit(function)(PREDICTION, TARGET, quadrature_weights=weights)
    w = np.ones(12) if weights is None else weights
    expected = [oracle(p, t, w) for p, t in zip(PREDICTION, TARGET, strict=True)]
    assert_allclose(found, expected, rtol=1e-10)
    single = function(
        PREDICTION[..., 0].astype(np.float32), TARGET[..., 0].astype(np.float32)
    )
    assert single.dtype == jnp.float32
    assert single.shape == (5,)


@pytest.mark.parametrize(
    "function", [metrics_time.errors_of_frames, metrics_time.correlations_of_frames]
)
def test_gradients_are_finite_differences(function):
    def total(p):
        return jnp.sum(function(p, TARGET, quadrature_weights=WEIGHTS))

    p = PREDICTION + 0.1
    direction, h = np.random.default_rng(1).normal(size=p.shape), 1e-6
    slope = (total(p + h * direction) - total(p - h * direction)) / (2 * h)
    gradient = jax.jit(jax.grad(total))(p)
    assert_allclose(np.sum(gradient * direction), slope, rtol=1e-6)


def test_errors_of_frames_are_over_the_points_of_all_devices():
    parts = [np.stack(np.split(x, 3, axis=1)) for x in (PREDICTION, TARGET)]
    weights = np.stack(np.split(WEIGHTS, 3))

    def errors(p, t, w):
        return metrics_time.errors_of_frames(
            p, t, quadrature_weights=w, axis_name="devices"
        )

    found = jax.jit(jax.vmap(errors, axis_name="devices"))(*parts, weights)
    whole = metrics_time.errors_of_frames(
        PREDICTION, TARGET, quadrature_weights=WEIGHTS
    )
    assert_allclose(found, [whole] * 3, rtol=1e-12)


def test_points_of_zero_weight_do_not_count_even_if_they_are_nan():
    weights = np.r_[np.ones(6), np.zeros(6)]
    dirty = PREDICTION.copy()
    dirty[:, 6:] = np.nan
    for function in (
        metrics_time.errors_of_frames,
        metrics_time.correlations_of_frames,
    ):
        found = function(dirty, TARGET, quadrature_weights=weights)
        expected = function(PREDICTION[:, :6], TARGET[:, :6])
        assert_allclose(found, expected, rtol=1e-10)
    drift = metrics_time.mean_drift(dirty, TARGET[0], quadrature_weights=weights)
    expected = metrics_time.mean_drift(PREDICTION[:, :6], TARGET[0, :6])
    assert_allclose(drift, expected, rtol=1e-10)


def test_a_constant_frame_correlates_with_nothing_and_has_no_gradient():
    still = np.ones((2, 4))
    varying = np.arange(8.0).reshape(2, 4)

    def total(p):
        return jnp.sum(metrics_time.correlations_of_frames(p, varying))

    assert total(still) == 0
    assert_array_equal(jax.jit(jax.grad(total))(still), 0)


def test_correlation_time_counts_the_steps_before_the_first_disagreement():
    target = np.tile(RNG.normal(size=20), (6, 1))
    prediction = target.copy()
    prediction[3] = -target[3]  # agrees again afterwards
    assert metrics_time.correlation_time(prediction, target) == 3
    assert metrics_time.correlation_time(target, target) == 6
    prediction[1] = np.nan
    assert jax.jit(metrics_time.correlation_time)(prediction, target) == 1


def test_persistence_time_counts_the_steps_that_beat_the_first_frame():
    first = RNG.normal(size=20)
    target = first + 0.1 * np.arange(1, 6)[:, None] * RNG.normal(size=20)
    assert metrics_time.persistence_time(target, target, first) == 5
    still = metrics_time.persistence(first, 5)
    assert_array_equal(still, np.tile(first, (5, 1)))
    assert metrics_time.persistence_time(still, target, first) == 5  # not above it
    worse = target.copy()
    worse[2] = 2 * first - target[2] + 3
    assert metrics_time.persistence_time(worse, target, first) == 2


@pytest.mark.nightly
@pytest.mark.parametrize("shape", [(8,), (9,), (8, 8), (8, 6)])
def test_the_radial_spectrum_of_a_wave_is_in_its_shell(shape):
    axes = np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij")
    wave = 3 * np.cos(2 * np.pi * 2 * axes[-1])
    found = metrics_time.radial_spectrum(wave.ravel(), grid_shape=shape)
    expected = np.zeros(min(shape) // 2 + 1)
    expected[2] = 4.5  # the mean square
    assert_allclose(found, expected, atol=1e-12)


def test_the_energies_of_a_smooth_field_add_up_to_its_mean_square():
    axes = np.meshgrid(np.arange(16) / 16, np.arange(16) / 16, indexing="ij")
    field = 1 + sum(
        np.cos(2 * np.pi * (a * axes[0] + b * axes[1]) + a)
        for a in range(3)
        for b in range(-3, 3)
    )
    found = metrics_time.radial_spectrum(field.ravel(), grid_shape=(16, 16))
    assert float(found.sum()) == pytest.approx(np.mean(field**2))


def test_mean_drift_is_that_of_weighted_means():
    found = metrics_time.mean_drift(PREDICTION, TARGET[0], quadrature_weights=WEIGHTS)
    mean = [np.average(p, axis=0, weights=WEIGHTS) for p in (*PREDICTION, TARGET[0])]
    size = np.sqrt(np.average(TARGET[0] ** 2, axis=0, weights=WEIGHTS))
    expected = (np.array(mean[:-1]) - mean[-1]) / size
    assert_allclose(found, expected, rtol=1e-9)


def test_a_conserved_mean_does_not_drift():
    first = TARGET[0]
    moved = np.stack([np.roll(first, k, axis=0) for k in range(4)])
    assert_allclose(metrics_time.mean_drift(moved, first), 0, atol=1e-12)
    batch = jax.jit(jax.vmap(metrics_time.mean_drift))(moved[None], first[None])
    assert batch.shape == (1, 4, 2)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda: metrics_time.errors_of_frames(TARGET, TARGET[:3]),
            ValueError,
            r"\(5, 12, 2\) and target has shape \(3, 12, 2\)",
        ),
        (
            lambda: metrics_time.correlations_of_frames(
                TARGET, TARGET, quadrature_weights=np.ones(3)
            ),
            ValueError,
            r"shape \(3,\), expected \(12,\)",
        ),
        (
            lambda: metrics_time.radial_spectrum(np.ones(8), grid_shape=(3, 3)),
            ValueError,
            "as the field, 8",
        ),
        (
            lambda: metrics_time.radial_spectrum(np.ones(8), grid_shape=(2, 2, 2)),
            ValueError,
            "one or two axes",
        ),
        (lambda: metrics_time.persistence(TARGET[0], 0), ValueError, "num_frames=0"),
        (
            lambda: metrics_time.mean_drift(np.ones((2, 3), int), np.ones(3, int)),
            TypeError,
            "prediction has dtype int",
        ),
    ],
)
def test_bad_arguments_are_named(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("factor", [1e-25, 1e-12, 1.0, 1e12, 1e20])
@pytest.mark.parametrize("mass", [1e-24, 1e20])
def test_measures_of_frames_are_the_same_in_any_unit(factor, mass, rng):
    p, t = rng.normal(size=(2, 3, 8, 2)).astype(np.float32)
    w = rng.uniform(0.5, 2, size=8).astype(np.float32)
    s, given = np.float32(factor), {"quadrature_weights": np.float32(mass) * w}
    for function in (
        metrics_time.errors_of_frames,
        metrics_time.correlations_of_frames,
    ):
        found = function(s * p, s * t, **given)
        expected = function(*map(np.float64, (p, t)), quadrature_weights=np.float64(w))
        assert_allclose(found, expected, rtol=1e-5)
    drift = metrics_time.mean_drift(s * p, s * t[0], **given)
    expected = metrics_time.mean_drift(*map(np.float64, (p, t[0])), **given)
    assert_allclose(drift, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.nightly
def test_half_precision_frames_are_measured_in_float32(rng):
    p, t = (jnp.asarray(300 + 30 * x, jnp.float16) for x in rng.normal(size=(2, 3, 90)))
    calls = [
        metrics_time.errors_of_frames,
        metrics_time.correlations_of_frames,
        lambda p, t: metrics_time.mean_drift(p, t[0]),
    ]
    for call in calls:
        found = call(p, t)
        assert found.dtype == jnp.float16
        expected = call(*(np.asarray(x, np.float64) for x in (p, t)))
        assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
