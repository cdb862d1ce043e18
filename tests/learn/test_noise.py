"""Noise in training: one draw for every sample, none elsewhere, resumed exactly."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import learn, nn
from opjax.learn.run import noise

N = 6


class Noisy(nnx.Module):
    """Adds a normal number to its parameter while it is trained."""

    def __init__(self, draw=None):
        self.bias = nnx.Param(jnp.zeros((), jnp.float32))
        self.draw = None if draw is None else nnx.Variable(draw)

    def with_noise(self, key):
        found = Noisy(jax.random.normal(key, (), jnp.float32))
        found.bias = self.bias
        return found

    def __call__(self):
        found = self.bias[...]
        return found if self.draw is None else found + self.draw[...]


def loss(model, batch):
    return jnp.sum(jax.vmap(lambda x: (model() - x) ** 2)(batch["x"]))


def keyed(model, batch, *, key):
    drawn = jax.random.normal(key, batch["x"].shape, jnp.float32)
    return loss(model, {"x": batch["x"] + drawn}), {"drawn": jnp.sum(drawn)}


def task(function=loss, **options):
    x = jnp.arange(N, dtype=jnp.float32)
    return learn.Task(train=({"x": x},), loss=function, **options)


def test_tasks_of_models_without_noise_are_left_alone():
    plain = nn.layers.Linear(2, 2, rngs=nnx.Rngs(0))
    given = task()
    assert noise.prepared(given, plain) is given


def test_every_sample_of_a_batch_has_its_own_noise():
    given = noise.prepared(task(), Noisy())
    assert given.needs_key
    assert given.loss is noise.prepared(task(), Noisy()).loss  # compiled once
    batch = {"x": jnp.zeros(400, jnp.float32)}
    found = jax.jit(given.loss)(Noisy(), batch, key=jax.random.key(0))
    # A sum of squares of normal numbers: 400 with a deviation of 28; equal ones would
    # deviate by 566.
    assert 300 < float(found) < 500


def test_losses_with_random_numbers_of_their_own_keep_them():
    given = noise.prepared(task(keyed, needs_key=True), Noisy())
    batch = {"x": jnp.arange(4, dtype=jnp.float32)}
    first, second = (
        given.loss(Noisy(), batch, key=jax.random.key(seed)) for seed in (0, 1)
    )
    assert set(first[1]) == {"drawn"}
    assert first[1]["drawn"] != second[1]["drawn"]


def test_a_task_without_a_loss_of_arrays_is_refused():
    of_files = learn.tasks.streamed.StreamedTask(train=[], gradient=loss)
    with pytest.raises(ValueError, match="read in slices does not support"):
        noise.prepared(of_files, Noisy())


def test_runs_draw_by_their_seed(tmp_path):
    runs = [
        learn.fit(
            task(),
            Noisy(),
            learn.Settings(num_epochs=2, batch_size=3, seed=seed),
            folder=tmp_path / str(index),
        )
        for index, seed in enumerate((0, 0, 1))
    ]
    first, same, other = (run.losses for run in runs)
    assert np.array_equal(first, same)
    assert not np.array_equal(first, other)
    model = runs[0].model
    assert model() == model.bias[...]  # trained models have no noise
