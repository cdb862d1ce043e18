"""Batches drawn anew in every step, and replicas that are trained at once."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import learn, training
from opjax.learn.run.metrics_file import MetricsWriter
from opjax.learn.run.sources import make_batches
from tests.refused import value_error

RATES, SEEDS = (0.1, 0.02), (0, 5)
STEPS = {"num_steps": 7, "steps_per_call": 3}


def sample(key, step):
    x = jax.random.normal(jax.random.fold_in(key, step), (4, 2), jnp.float32)
    return {"x": x, "y": x @ jnp.array([1.0, -2.0], jnp.float32)}


def loss(model, batch):
    return jnp.mean((batch["x"] @ model["w"] - batch["y"]) ** 2)


def start(count=None):
    return {"w": jnp.zeros((2,) if count is None else (count, 2), jnp.float32)}


def replicas(folder, rates=RATES, seeds=SEEDS, **changes):
    hyper = jnp.repeat(jnp.asarray(rates, jnp.float32), len(seeds))
    task = learn.FreshTask(
        draw=sample, loss=loss, replicas=learn.Replicas(seeds, {"rate": hyper})
    )
    settings = learn.Settings(
        optimizer=lambda total, own: optax.sgd(own["rate"]), **(STEPS | changes)
    )
    return learn.fit(task, start(len(hyper)), settings, folder=folder)


@pytest.fixture(scope="module", autouse=True)
def single_precision():
    with jax.enable_x64(False):
        yield


@pytest.mark.nightly
def test_replicas_are_the_single_runs(tmp_path):
    found = replicas(tmp_path / "all")
    assert found.losses.shape == (4, 7)
    assert found.finite.all()
    for i, (rate, seed) in enumerate((r, s) for r in RATES for s in SEEDS):
        settings = learn.Settings(
            seed=seed, optimizer=lambda total, rate=rate: optax.sgd(rate), **STEPS
        )
        task = learn.FreshTask(draw=sample, loss=loss)
        alone = learn.fit(task, start(), settings, folder=tmp_path / f"{i}")
        assert_allclose(found.losses[i], alone.losses, rtol=1e-5)
        assert_allclose(found.model["w"][i], alone.model["w"], rtol=1e-5)
    rows = [(row["epoch"], row["step"]) for row in found.history]
    assert rows == [(1, 3), (2, 6), (3, 7)]


@pytest.mark.nightly
def test_a_replica_that_diverges_stops_alone(tmp_path, capsys):
    found = replicas(tmp_path / "some", rates=(0.1, 1e30), seeds=(0,))
    assert_array_equal(found.finite, [True, False])
    alone = replicas(tmp_path / "one", rates=(0.1,), seeds=(0,))
    assert_allclose(found.losses[0], alone.losses[0], rtol=1e-6)
    assert np.isnan(found.losses[1, -1])
    assert np.isfinite(found.model["w"]).all()  # the last good one
    assert found.history[-1]["diverged"] == 1
    assert "1 diverged" in capsys.readouterr().err
    with pytest.raises(training.NonFiniteError, match="All 2 replicas"):
        replicas(tmp_path / "none", rates=(1e30, 1e31), seeds=(0,))


@pytest.mark.nightly
def test_replicas_resume_with_the_same_bits(tmp_path, monkeypatch):
    class Stop(Exception):
        pass

    always = {"checkpoint_seconds": 0.0, "rates": (0.1, 1e30)}
    whole = replicas(tmp_path / "whole", **always)
    write = MetricsWriter.write

    def stop(self, row):
        write(self, row)
        if row["step"] == 6:
            raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(MetricsWriter, "write", stop)
        with pytest.raises(Stop):
            replicas(tmp_path / "parts", **always)
    parts = replicas(tmp_path / "parts", **always)
    assert_array_equal(parts.losses, whole.losses)
    assert_array_equal(parts.model["w"], whole.model["w"])
    assert_array_equal(parts.finite, whole.finite)


def test_what_replicas_cannot_do_is_refused(tmp_path):
    settings = learn.Settings(**STEPS)
    three = learn.Replicas((0, 1), {"rate": jnp.ones(3)})
    task = learn.FreshTask(draw=sample, loss=loss, replicas=three)
    with value_error("3 replicas cannot be divided equally among 2 seeds"):
        learn.fit(task, start(3), settings, folder=tmp_path / "a")
    validation = (sample(jax.random.key(0), 0),)
    task = dataclasses.replace(task, metric=loss, validation=validation)
    one = learn.Replicas((0,), {"rate": jnp.ones(1)})
    task = dataclasses.replace(task, replicas=one)
    with value_error("Replicas cannot be validated"):
        learn.fit(task, start(1), settings, folder=tmp_path / "b")


def test_every_epoch_draws_all_samples_in_an_order_of_its_own():
    arrays = {"x": jnp.zeros((8, 2)), "y": jnp.zeros(8)}
    settings = learn.Settings(
        num_epochs=2, batch_size=2, optimizer=lambda total: optax.sgd(0.1)
    )
    drawn = make_batches(learn.Task(train=(arrays,), loss=loss), settings)
    first, second = (
        [drawn.describe(4 * epoch + step, 0).partition("[")[2] for step in range(4)]
        for epoch in range(2)
    )
    assert sorted("".join(first)) == sorted("".join(second))
    assert first != second
