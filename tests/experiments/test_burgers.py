import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.testing import assert_allclose, assert_array_equal

from experiments import burgers
from opjax.learn.registry import operators
from opjax.learn.tasks import outcome
from tests import refused
from tests.selection import by_day

TINY = dataclasses.replace(
    burgers.PRESETS["smoke"],
    num_train=4,
    num_validation=2,
    num_test=4,
    num_points=32,
    test_points=(32, 64),
    width=8,
    num_layers=1,
    num_basis=4,
    feedforward=8,
    num_modes=4,
    decoder_width=4,
    num_epochs=2,
    batch_size=2,
    checkpoint_every=1,
)


@pytest.fixture(scope="module")
def task(cache_dir):
    return burgers.make_task(TINY, cache_dir)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cache_dir):
    """Returns the folder and the result of a finished tiny run."""
    workdir = tmp_path_factory.mktemp("run")
    return workdir, burgers.run(TINY, workdir=workdir, cache_dir=cache_dir)


@pytest.mark.nightly
def test_the_errors_are_those_of_the_predictions_on_the_last_grid(finished):
    workdir, result = finished
    for name in ("functional", "galerkin"):
        seen = outcome.read(workdir / f"{name}-0")
        assert_allclose(seen.errors.mean(), result[f"error_64_{name}"])
        for row, sample, prediction in zip(
            seen.rows, seen.samples, seen.predicted, strict=True
        ):
            assert sample.target is not None
            assert prediction.shape == sample.target.shape == (64, 1)
            error = np.linalg.norm(prediction - sample.target)
            error = error / np.linalg.norm(sample.target)
            assert_allclose(seen.errors[row], error, rtol=1e-4)


test_bad_settings_are_refused = refused.settings(
    TINY,
    [
        ({"models": ("functional", "fourrier")}, "choose from functional, transolver"),
        ({"num_modes": 18}, "above Nyquist's wave number of a grid of 32 points, 16"),
        ({"test_points": (32, 96)}, "A grid of 96 points must divide the 8192"),
        ({"num_points": 24}, "A grid of 24 points must divide the 8192"),
        ({"num_heads": 3}, "num_heads=3 must divide width=8"),
        ({"batch_size": 5}, "batch_size=5 must be at most num_train=4"),
        ({"normalization": "layer"}, "choose from features, keys"),
    ],
)


NAMES = [*operators.ATTENTIONS, "fno"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", by_day(NAMES, NAMES[::4]))
def test_every_model_acts_on_grids_of_any_size(name):
    config = dataclasses.replace(TINY, models=(name,))

    def output(points):
        model = burgers.build(config, nnx.Rngs(0))
        x = jnp.linspace(0, 1, points, endpoint=False)[:, None]
        return model(x, jnp.sin(x))

    with jax.enable_x64(False):
        for points in (128, 256):
            found = jax.eval_shape(lambda points=points: output(points))
            assert found.shape == (points, 1)


def test_only_attention_between_points_is_normalised_as_the_option_says():
    def shapes(**changes):
        config = dataclasses.replace(TINY, **changes)
        model = jax.eval_shape(lambda: burgers.build(config, nnx.Rngs(0)))
        return [leaf.shape for leaf in jax.tree.leaves(model)]

    for models in (("galerkin",), ("functional",)):
        keys = shapes(models=models)
        features = shapes(models=models, normalization="features")
        assert (keys == features) == (models == ("functional",))


def test_training_validation_and_test_samples_are_disjoint(task):
    sets = task.train, task.validation, task.test
    states = np.concatenate([arrays["features"][..., 0] for (arrays,) in sets])
    assert states.shape == (4 + 2 + 4, 32)
    distances = np.linalg.norm(states[:, None] - states[None, :], axis=-1)
    assert distances[~np.eye(10, dtype=bool)].min() > 1e-2
    assert_array_equal(task.train[0]["mesh_points"][0, :, 0], np.arange(32) / 32)


@pytest.fixture
def batch(rng):
    shape = (TINY.batch_size, 32, 1)
    names = "features", "target"
    found = {name: jnp.asarray(rng.normal(size=shape), jnp.float32) for name in names}
    points = jnp.arange(32, dtype=jnp.float32)[:, None] / 32
    return {**found, "mesh_points": jnp.broadcast_to(points, shape)}


def test_the_loss_is_zero_at_the_exact_solution_with_a_finite_gradient(task, batch):
    def loss(scale):
        model = jax.tree_util.Partial(lambda points, initial: scale * initial)
        return task.loss(model, batch | {"features": batch["target"]})

    value, gradient = jax.jit(jax.value_and_grad(loss))(jnp.float32(1))
    assert value == 0
    assert gradient == 0


def test_the_loss_is_the_mean_of_its_formula(task, batch):
    model = jax.tree_util.Partial(lambda points, initial: jnp.sin(initial) + points)
    actual = task.loss(model, batch)
    values = []
    for b in range(TINY.batch_size):
        target = np.asarray(batch["target"][b, :, 0], np.float64)
        initial = np.asarray(batch["features"][b, :, 0], np.float64)
        prediction = np.sin(initial) + np.arange(32) / 32
        value = np.linalg.norm(prediction - target) / np.linalg.norm(target)
        slope = np.array([target[(i + 1) % 32] - target[i - 1] for i in range(32)])
        error = prediction - target
        error = np.array([error[(i + 1) % 32] - error[i - 1] for i in range(32)])
        ratio = np.linalg.norm(error) / np.linalg.norm(slope)
        values.append(value + (TINY.gradient_weight / 32) ** 0.5 * ratio)
    assert_allclose(actual, np.mean(values), rtol=1e-5)
