import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opjax.problems import sinusoid


@pytest.fixture(scope="module")
def tasks():
    return sinusoid.sample(
        jax.random.key(0), num_tasks=2000, num_context=7, num_query=5
    )


def test_all_values_of_a_task_lie_on_one_sine_wave(tasks):
    x = np.concatenate([tasks.context_points, tasks.query_points], axis=1)[..., 0]
    y = np.concatenate([tasks.context_values, tasks.query_values], axis=1)[..., 0]
    amplitudes, phases = np.empty((2, len(x)))
    for i in range(len(x)):
        waves = np.stack([np.sin(x[i]), -np.cos(x[i])], axis=1)
        (a, b), residual, *_ = np.linalg.lstsq(waves, y[i], rcond=None)
        assert residual < 1e-20
        amplitudes[i], phases[i] = np.hypot(a, b), np.arctan2(b, a)
    for values, (low, high) in (
        (amplitudes, sinusoid.AMPLITUDES),
        (phases, sinusoid.PHASES),
        (x, sinusoid.POINTS),
    ):
        assert low <= values.min() < low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) < values.max() <= high
        uniform = (high - low) / 12**0.5
        assert np.std(values) == pytest.approx(uniform, rel=0.05)
        assert np.mean(values) == pytest.approx((low + high) / 2, abs=0.1 * uniform)
    assert abs(np.corrcoef(amplitudes, phases)[0, 1]) < 0.1


def test_shapes_and_dtypes(tasks):
    assert [leaf.shape for leaf in tasks] == [(2000, n, 1) for n in (7, 7, 5, 5)]
    with jax.enable_x64(False):
        single = sinusoid.sample(
            jax.random.key(0), num_tasks=2, num_context=1, num_query=1
        )
    assert all(leaf.dtype == jnp.float32 for leaf in single)


def test_no_observation_is_refused():
    with pytest.raises(ValueError, match="num_context=0 must be positive"):
        sinusoid.sample(jax.random.key(0), num_tasks=2, num_context=0, num_query=1)
