"""A tiny run in its own process: `resumable.py WORKDIR [ROWS]`, killed after ROWS rows.

Not a test: test_common.py starts it.
"""

import dataclasses
import os
import signal
import sys

import jax
import jax.numpy as jnp
from flax import nnx

from opjax import normalize, training
from opjax.learn import fit as common


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


def data(num_samples=22):
    x = jax.random.normal(jax.random.key(5), (num_samples, 3), jnp.float32)
    return {"x": x, "y": jnp.sin(x.sum(1))}


def run(workdir, *, train=None, validation=None, quiet=False, **overrides):
    options = {
        "num_epochs": 6,
        "batch_size": 2,
        "checkpoint_every": 2,
        "checkpoint_seconds": 1e9,
        "steps_per_call": 4,
        "needs_key": True,
    } | overrides
    settings = common.FitSettings(**options)
    train = data() if train is None else train
    rule = training.adamw_onecycle(
        0.05, common.num_steps(22, settings), weight_decay=1e-3, clip_norm=1.0
    )
    with common.open_run(workdir, Config()) as run:
        result = common.fit(
            run,
            model=Model(rngs=nnx.Rngs(0)),
            loss=loss,
            metric=metric,
            train=train,
            validation=data(7) if validation is None else validation,
            optimizer=rule,
            settings=settings,
            extra={"normalizer": normalize.fit(jnp.ones((2, 3)))},
        )
        if not quiet:
            common.print_result(run, {"best": result.best_metric})
    return result


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write = common.MetricsWriter.write

        def write_then_kill(self, row):
            write(self, row)
            if self.rows == int(sys.argv[2]):
                os.kill(os.getpid(), signal.SIGKILL)

        common.MetricsWriter.write = write_then_kill
    run(sys.argv[1])
