"""A tiny run in its own process: `resumable.py WORKDIR [ROWS]`, killed after ROWS rows.

Not a test: test_fitting.py starts it.
"""

import dataclasses
import functools
import json
import os
import signal
import sys

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from opjax import learn, normalize, training
from opjax.learn.run import folder
from opjax.learn.run.metrics_file import MetricsWriter
from tests.learn.tiny import filled


@dataclasses.dataclass(frozen=True)
class Config:
    width: int = 4
    shape: tuple[int, ...] = (2, 3)


class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.first = nnx.Linear(3, 4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(jnp.tanh(self.first(x)))[..., 0]


def metric(model, sample):
    return (model(sample["x"]) - sample["y"]) ** 2


def loss(model, batch, *, key):
    noise = 0.01 * jax.random.normal(key, batch["x"].shape, batch["x"].dtype)
    return jnp.mean((model(batch["x"] + noise) - batch["y"]) ** 2)


def OPTIMIZER(total_steps):
    return training.averaged(_RULE(total_steps), 0.9)


_RULE = functools.partial(
    training.adamw_onecycle, 0.05, weight_decay=1e-3, clip_norm=1.0
)


def data(num_samples=22):
    x = np.random.default_rng(5).normal(size=(num_samples, 3)).astype(np.float32)
    return {"x": jnp.asarray(x), "y": jnp.asarray(np.sin(x.sum(1)))}


def run(workdir, *, train=None, validation=None, quiet=False, **overrides):
    options = {
        "num_epochs": 6,
        "batch_size": 2,
        "checkpoint_every": 2,
        "checkpoint_seconds": 1e9,
        "steps_per_call": 4,
        "optimizer": OPTIMIZER,
    } | overrides
    task = learn.Task(
        train=(data() if train is None else train,),
        validation=(data(7) if validation is None else validation,),
        loss=loss,
        metric=metric,
        needs_key=True,
        extra={"normalizer": normalize.fit(jnp.ones((2, 3)))},
    )
    model, settings = filled(Model), learn.Settings(**options)
    with folder.open_run(workdir, Config()) as run:
        result = learn.fit(task, model, settings, folder=run)
        if not quiet:
            print(json.dumps({"best": result.best_metric}))
    return result


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write = MetricsWriter.write

        def write_then_kill(self, row):
            write(self, row)
            if self.rows == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

        MetricsWriter.write = write_then_kill
    run(sys.argv[1])
