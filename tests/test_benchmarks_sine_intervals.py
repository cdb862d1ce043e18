"""Intervals of sine waves: the Gaussian process, the closed form, their scores."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks import sine_intervals as sines


def test_the_process_is_that_of_the_textbook(rng):
    points, queries = rng.uniform(-6, 6, (7, 1)), rng.uniform(-6, 6, (4, 1))
    values = np.sin(points)

    def parts(length, variance):
        def kernel(x, y):
            return variance * np.exp(-((x - y.T) ** 2) / (2 * length**2))

        system = kernel(points, points) + sines.NOISE**2 * np.eye(7)
        cross, inverse = kernel(queries, points), np.linalg.inv(system)
        _, log = np.linalg.slogdet(system)
        likelihood = -(values.T @ inverse @ values).item() / 2 - log / 2
        variance = variance - np.sum(cross @ inverse * cross, axis=1) + sines.NOISE**2
        return likelihood, (cross @ inverse @ values)[:, 0], np.sqrt(variance)

    each = [parts(t, v) for v in sines._VARIANCES for t in sines._LENGTHS]
    _, mean, deviation = max(each, key=lambda one: one[0])
    found = jax.jit(sines.gaussian_process)(points, values, queries)
    assert_allclose(found.mean, mean, rtol=1e-6, atol=1e-8)
    assert_allclose(found.deviation, deviation, rtol=1e-6)


def test_sine_and_cosine_are_the_least_squares_fit_of_many_observations(rng):
    points, queries = rng.uniform(-6, 6, (400, 1)), rng.uniform(-6, 6, (4, 1))
    values = 2 * np.sin(points - 1) + sines.NOISE * rng.normal(size=points.shape)
    found = jax.jit(sines.sine_and_cosine)(points, values, queries)
    rows = [np.hstack([np.sin(x), np.cos(x)]) for x in (points, queries)]
    expected = rows[1] @ np.linalg.lstsq(rows[0], values[:, 0], rcond=None)[0]
    assert_allclose(found.mean, expected, atol=1e-3)
    variance = np.linalg.inv(rows[0].T @ rows[0]) * sines.NOISE**2
    spread = sines.NOISE**2 + np.sum(rows[1] @ variance * rows[1], axis=1)
    assert_allclose(found.deviation**2, spread, rtol=1e-3)


def test_scores_of_a_normal_variable_are_those_of_its_law(rng):
    values = 0.5 * rng.normal(size=(50_000, 1))
    sure = sines.Interval(jnp.zeros(50_000), jnp.full(50_000, 0.5))
    coverage, half, error = sines.score(sure, values)
    assert coverage == pytest.approx(0.9, abs=0.006)
    assert half == pytest.approx(0.5 * 1.6449, rel=1e-4)
    assert error == pytest.approx(0.5, rel=0.02)


def test_an_ensemble_is_as_wide_as_its_members_are_apart():
    deviation = jnp.ones(2)
    each = [sines.Interval(jnp.asarray([m, 1.0]), deviation) for m in (0.0, 1.0, 2.0)]
    found = sines.mixed(each)
    assert_allclose(found.mean, [1, 1])
    assert_allclose(found.deviation**2, [1.09, 0.09], rtol=1e-6)


@pytest.mark.nightly
def test_training_narrows_the_errors():
    # As the program runs: schedules of optax multiply integers by floats.
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        one, other = (sines.fit(0, num_steps=n) for n in (1, 600))
        *given, values = sines.draw(jax.random.key(5), 50, 10)
        errors = [
            sines.score(jax.vmap(model)(*given), values)[2] for model in (one, other)
        ]
        rows = sines.compare([other, other], num_tasks=4)
    assert errors[1] < 0.8 * errors[0]
    assert [row[0] for row in rows[:3]] == ["5", "5", "5"]
    assert len(rows) == 4 * len(sines.CONTEXTS)
