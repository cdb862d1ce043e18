"""The smallest training of the tests, and a model that is compiled in no time.

`QUICK` is for tests of what is around a model: files, units, tables, scalars.
`filled` is for tests of a model that is not trained: to compile its own initialisation
takes longer than to compile the model.
"""

import dataclasses
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from opjax import learn, nn
from opjax.learn.cli import calibrate, predict
from opjax.learn.registry import operators
from opjax.learn.tasks import streamed, supervised, time

TINY = dataclasses.replace(
    learn.TRAIN_PRESETS["smoke"],
    train="",
    width=8,
    num_layers=1,
    num_basis=4,
    num_epochs=2,
    num_buckets=1,
)
QUICK = "tests.learn.tiny:quick"


class Quick(nnx.Module):
    """A function of the point's inputs, plus its weighted mean over all points."""

    def __init__(self, inputs, outputs, *, rngs):
        self.layer = nn.layers.Linear(inputs, outputs, rngs=rngs)

    def __call__(
        self, mesh_points, features=None, *, quadrature_weights=None, time=None
    ):
        parts = [mesh_points] if features is None else [mesh_points, features]
        values = self.layer(jnp.concatenate(parts, axis=1))
        values = (values + jnp.sin(values)) * (1 if time is None else time)
        weights = jnp.ones_like(values[:, 0])
        if quadrature_weights is not None:
            weights = quadrature_weights
        column = weights[:, None]
        sums = jnp.sum(jnp.where(column > 0, column * values, 0), 0, keepdims=True)
        return values + sums / jnp.sum(weights)


def quick(
    config, *, point_dim, feature_dim, out_features, grid_shape, time_embedding, rngs
):
    return Quick(point_dim + feature_dim, out_features, rngs=rngs)


def run_predict(workdir, cases, output, **options):
    """The last line of a prediction."""
    given = {"input": cases, "output": output, "own_model": QUICK, **options}
    return predict.run(predict.PredictOptions(workdir, **given))


def run_calibrate(workdir, cases, **options):
    """The last line of a calibration."""
    given = {"input": cases, "own_model": QUICK, **options}
    return calibrate.run(calibrate.CalibrateOptions(workdir, **given))


def report_of(output):
    """What a prediction reports of each case."""
    return json.loads((output / "report.json").read_text())


def filled(build, seed=0):
    """The model that `build(rngs=...)` returns, with parameters that NumPy draws."""
    rng = np.random.default_rng(seed)

    def fill(path, leaf):
        name = jax.tree_util.keystr(path)
        if name.endswith("kernel.value"):
            values = 2 * rng.normal(size=leaf.shape) / leaf.shape[-2] ** 0.5
        elif name.endswith("bias.value"):
            values = 0.1 * rng.normal(size=leaf.shape)
        else:  # some of them must be positive
            values = rng.uniform(0.5, 1.5, size=leaf.shape)
        return jnp.asarray(np.asarray(values, leaf.dtype))

    model = nnx.eval_shape(lambda: build(rngs=nnx.Rngs(0)))
    return jax.tree_util.tree_map_with_path(fill, model)


@pytest.fixture(scope="module")
def quick_start():
    """Trainings start from `filled` models, whatever their seed."""

    def builder(sizes):
        return lambda config, rngs: filled(partial(operators.build, config, sizes))

    with pytest.MonkeyPatch.context() as patch:
        for module in (streamed, supervised, time):
            patch.setattr(module, "builder", builder)
        yield
