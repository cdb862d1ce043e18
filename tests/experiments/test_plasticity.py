import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import plasticity
from opjax.datasets import plasticity as dataset
from opjax.learn.registry import operators
from opjax.learn.run import buckets
from tests import refused

TINY = dataclasses.replace(
    plasticity.PRESETS["smoke"],
    num_train=3,
    num_validation=1,
    num_test=2,
    num_layers=1,
    batch_size=3,
    normalize_target=False,
)
# Takes the time for the first channel, and nothing for the others.
clock = jax.tree_util.Partial(
    lambda points, features, time: (
        jnp.zeros((len(points), 4), jnp.float32).at[:, 0].set(time)
    )
)


@pytest.fixture
def dies(rng):
    """Returns seven samples of 5 x 3 nodes in six frames."""
    fields = rng.normal(size=(7, 5, 3, 6, 4)) + np.array([20.0, 10.0, 0.0, 0.0])
    fields[..., 1] += 50 * np.arange(3)[:, None]  # across the block
    return dataset.to_samples(rng.uniform(size=(7, 5)), fields)


@pytest.fixture
def task(dies, tmp_path):
    dataset.save(tmp_path, dies)
    config = dataclasses.replace(TINY, data_dir=str(tmp_path))
    no_validation = dataclasses.replace(config, num_validation=0)
    assert plasticity.make_task(no_validation).validation == ()
    return plasticity.make_task(config)


def fields(sample):
    return np.moveaxis(sample.target.reshape(15, 6, 4), 1, 0)


def clock_fields():
    expected = np.zeros((6, 15, 4))
    expected[..., 0] = np.linspace(0, 1, 6)[:, None]
    return expected


def first(bucket):
    return jax.tree.map(lambda x: x[0], buckets.rows(bucket, [0]))


def test_training_pairs_have_every_die_at_every_time_once(task, dies):
    (train,) = task.train
    pairs = buckets.rows(train, range(len(train)))
    assert {name: array.shape for name, array in pairs.items()} == {
        "mesh_points": (18, 15, 2),
        "features": (18, 15, 1),
        "lags": (18, 1),
        "target": (18, 15, 4),
    }
    profiles = np.stack([die.features for die in dies[:3]])
    encoded = (profiles - profiles.mean()) / profiles.std(ddof=1)
    for index in range(18):
        die, frame = divmod(index, 6)
        assert pairs["lags"][index] == np.float32(frame / 5)
        assert_array_equal(pairs["target"][index], fields(dies[die])[frame])
        assert_allclose(pairs["features"][index], encoded[die], atol=1e-5)


def test_the_loss_is_a_sum_over_pairs_at_their_own_times(task, dies):
    rows = np.array([1, 8, 17])
    batch = buckets.rows(task.train[0], rows)
    expected = 0.0
    for row in rows:
        die, frame = divmod(row, 6)
        truth = fields(dies[die])[frame]
        expected += np.linalg.norm(clock_fields()[frame] - truth) / np.linalg.norm(
            truth
        )
    assert float(task.loss(clock, batch)) == pytest.approx(expected, rel=1e-5)


def test_errors_are_over_all_times_and_channels_together(task, dies, tmp_path):
    sample = first(task.validation[0])
    truth = fields(dies[3])
    expected = np.linalg.norm(clock_fields() - truth) / np.linalg.norm(truth)
    assert float(task.metric(clock, sample)) == pytest.approx(expected, rel=1e-5)
    (tmp_path / "config.json").write_text("{}")
    numbers = task.evaluate(clock, tmp_path)
    truths = [fields(die) for die in dies[5:]]
    errors = [np.linalg.norm(clock_fields() - t) / np.linalg.norm(t) for t in truths]
    assert numbers["relative_l2"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert numbers["relative_l2_worst"] == pytest.approx(max(errors), rel=1e-5)
    assert numbers["displacement"] == pytest.approx(1, rel=1e-5)  # it predicts none
    with np.load(tmp_path / "predictions.npz") as stored:
        assert_array_equal(stored["prediction_0"], np.zeros((15, 2)))
        assert_allclose(stored["errors"], errors, rtol=1e-5)
        assert stored["series"].shape == (2, 6)


def test_normalised_operators_predict_channels_about_their_means(dies, tmp_path):
    dataset.save(tmp_path, dies)
    config = dataclasses.replace(TINY, data_dir=str(tmp_path), normalize_target=True)
    task = plasticity.make_task(config)
    normalizer = task.extra["target"]
    values = np.concatenate([fields(die).reshape(-1, 4) for die in dies[:3]])
    assert_allclose(normalizer.mean.ravel(), values.mean(axis=0), rtol=1e-4)
    nothing = jax.tree_util.Partial(
        lambda points, features, time: jnp.zeros((15, 4), jnp.float32)
    )
    sample = first(task.validation[0])
    truth = fields(dies[3])
    expected = np.linalg.norm(values.mean(axis=0) - truth) / np.linalg.norm(truth)
    assert float(task.metric(nothing, sample)) == pytest.approx(expected, rel=1e-4)
    (train,) = task.train
    features = buckets.rows(train, range(len(train)))["features"]
    assert abs(features.mean()) < 1e-4
    assert features.std() == pytest.approx(1, rel=0.05)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["functional", "galerkin", "fno"])
def test_models_take_time(name):
    config = dataclasses.replace(TINY, models=(name,))
    sizes = operators.Sizes(2, 1, 4, grid_shape=(13, 5), time_embedding=True)

    def evaluate(key, points, features, time):
        model = operators.build(config, sizes, rngs=nnx.Rngs(key))
        return operators.call(
            model, {"mesh_points": points, "features": features}, time=time
        )

    arrays = (jnp.zeros((65, c), jnp.float32) for c in (2, 1))
    time = jnp.zeros((), jnp.float32)
    assert jax.eval_shape(evaluate, jax.random.key(0), *arrays, time).shape == (65, 4)


test_bad_configurations_are_refused = refused.settings(
    TINY,
    [
        ({"coordinates": "other"}, "coordinates='other'"),
        ({"models": ("functional", "galerkin2d")}, "models='galerkin2d' has no time"),
        ({"models": ("fourier2d",)}, "models='fourier2d' has no time"),
        ({"width": 9, "num_heads": 1}, "width=9 must be even"),
        ({"width": 6, "num_heads": 3}, "num_heads=3 must be even"),
    ],
)
