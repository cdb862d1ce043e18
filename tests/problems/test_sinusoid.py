import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax.problems import sinusoid
from tests.refused import value_error

draw = functools.partial(sinusoid.sample, num_context=5, num_query=7)


def test_values_are_those_of_the_wave_of_the_task():
    tasks = draw(jax.random.key(0), num_tasks=3)
    for points, values in (
        (tasks.context_points, tasks.context_values),
        (tasks.query_points, tasks.query_values),
    ):
        for i in range(3):
            expected = tasks.amplitude[i] * np.sin(
                np.asarray(points[i]) - tasks.phase[i]
            )
            assert_allclose(values[i], expected, rtol=1e-12)


def test_shapes_and_dtypes_are_the_ones_asked_for():
    for dtype in (None, "float32"):
        make = functools.partial(draw, num_tasks=3, dtype=dtype)
        tasks = jax.eval_shape(make, jax.random.key(0))
        shapes = [(3, 5, 1)] * 2 + [(3, 7, 1)] * 2 + [(3,)] * 2
        assert [array.shape for array in tasks] == shapes
        assert {array.dtype for array in tasks} == {jnp.dtype(dtype or "float64")}


RANGES = {"context_points": (-6, 6), "query_points": (-6, 6)}
RANGES |= {"amplitude": (0.1, 5), "phase": (0, np.pi)}


def test_points_and_waves_are_uniform_in_the_published_ranges_and_independent():
    tasks = draw(jax.random.key(1), num_tasks=4000)
    columns = []
    for name, (low, high) in RANGES.items():
        unit = (np.asarray(getattr(tasks, name)) - low) / (high - low)
        assert 0 <= unit.min() < unit.max() <= 1, name
        # Five standard errors of the mean and of the second moment of 4000 samples.
        assert unit.mean() == pytest.approx(1 / 2, abs=5 * np.sqrt(1 / 12 / 4000))
        assert (unit**2).mean() == pytest.approx(1 / 3, abs=5 * np.sqrt(4 / 45 / 4000))
        columns.append(unit.reshape(4000, -1))
    correlation = np.corrcoef(np.hstack(columns).T) - np.eye(14)
    assert np.abs(correlation).max() < 5 / np.sqrt(4000)


def test_more_context_leaves_waves_and_queries_alone():
    few, many = (
        sinusoid.sample(jax.random.key(2), num_tasks=3, num_context=n, num_query=7)
        for n in (2, 9)
    )
    for name in ("amplitude", "phase", "query_points", "query_values"):
        assert_array_equal(getattr(few, name), getattr(many, name))


def test_wrong_arguments_are_named_in_the_error():
    with value_error("num_tasks=0"):
        draw(jax.random.key(0), num_tasks=0)
    with value_error("num_context=0"):
        draw(jax.random.key(0), num_tasks=1, num_context=0)
    with pytest.raises(TypeError, match="int32"):
        draw(jax.random.key(0), num_tasks=1, dtype="int32")


@pytest.mark.nightly
def test_errors_are_those_of_the_first_observations():
    """A model that predicts a weighted mean of the observed values."""

    def mean(x, y, queries, *, context_weights):
        average = jnp.sum(context_weights[:, None] * y) / jnp.sum(context_weights)
        return jnp.full((queries.shape[0], 1), average)

    tasks = draw(jax.random.key(0), num_tasks=7)
    found = sinusoid.errors_by_context(mean, tasks, (2, 5), batch_size=3)
    _, y, _, target = map(np.asarray, tasks[:4])
    assert found.shape == (7, 2)
    for size, errors in zip((2, 5), found.T, strict=True):
        average = y[:, :size].mean(axis=1, keepdims=True)
        expected = np.mean((target - average) ** 2, axis=(1, 2))
        assert_allclose(errors, expected, rtol=1e-12)
    with value_error("at most the 5 context points"):
        sinusoid.errors_by_context(mean, tasks, (2, 6))
