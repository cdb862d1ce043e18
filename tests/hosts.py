"""What `tests/learn/test_hosts.py` starts in several processes.

    python -m tests.hosts session FILE COORDINATOR COUNT INDEX
    python -m tests.hosts --coordinator=... --num_processes=... --devices=...

The first finds what is compared, the second is a program. In the environment
`END=NUMBER:ROWS` sends the process signal NUMBER when it goes on after so many rows of
its history.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import sys
import zlib
from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from opjax import learn, nn, training
from opjax.learn import FreshTask, Settings, Task, fit
from opjax.learn.run import buckets, devices, fitting, hosts
from opjax.learn.run.loop import Loop
from opjax.learn.tasks import outcome
from opjax.training import checkpoint, sharding
from tests.builders import small_operator
from tests.learn import test_buckets
from tests.sharded import arrays, line, line_batch, line_error, loss


@dataclasses.dataclass(frozen=True)
class Config(learn.RunOptions, learn.DataOptions, learn.TrainingOptions):
    """A line through points."""

    models: tuple[str, ...] = learn.option(("line",), "Models", members=True)


PRESETS = {
    "quick": Config(num_train=16, batch_size=4, num_epochs=6, checkpoint_every=1)
}


def points_on_a_line(count, seed):
    x = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    return ({"x": x, "y": x.sum(axis=1)},)


def make_task(config, cache_dir=None):
    test = points_on_a_line(config.num_test, 2)

    def evaluate(model, folder):
        errors = np.asarray(jax.vmap(line_error, (None, 0))(model, test[0]))
        outcome.write(folder, errors=errors, rows=[], samples=[], predicted=[])
        return {"error": float(errors.mean())}

    return Task(
        train=points_on_a_line(config.num_train, 0),
        validation=points_on_a_line(config.num_validation, 1),
        test=test,
        build=lambda config, rngs: {"w": jnp.zeros(3)},
        loss=line,
        metric=line_error,
        evaluate=evaluate,
        source="a line",
    )


PROGRAM = learn.Program("line", PRESETS, make_task, command="python -m tests.hosts")


def ended(number, rows):
    """Training that ends by a signal after so many rows of its history."""
    advance = Loop.advance

    def last(self):
        if self.writer.rows == rows:
            os.kill(os.getpid(), number)
        advance(self)

    return mock.patch.object(Loop, "advance", last)


TASK = Task(
    train=points_on_a_line(16, 0),
    validation=points_on_a_line(5, 1),
    loss=line,
    metric=line_error,
)
SETTINGS = Settings(
    num_epochs=4,
    batch_size=4,
    checkpoint_every=1,
    optimizer=lambda total: training.adamw(1e-2, weight_decay=0.0),
)


def start():
    """The model before the first step."""
    return {"w": jnp.zeros(3)}


def meshes():
    """A task with points, a model and its settings."""
    data = arrays(4, 23, np.float32)
    data["target"] = np.sin(3 * data["mesh_points"]) + data["features"]

    def metric(model, sample, **split):
        return loss(model, jax.tree.map(lambda x: x[None], sample), **split)

    model = small_operator(
        out_features=2,
        num_layers=1,
        attention=partial(nn.FunctionalAttention, num_heads=2, num_basis=4),
    )
    task = Task(
        train=(data,), loss=loss, validation=(data,), metric=metric, over_points=True
    )
    return task, model, dataclasses.replace(SETTINGS, num_epochs=2, batch_size=2)


def drawn():
    """A task whose batches are drawn anew, and its settings."""
    settings = dataclasses.replace(SETTINGS, num_epochs=0, num_steps=8)
    task = FreshTask(draw=lambda key, step: line_batch(key), loss=line)
    return task, dataclasses.replace(settings, steps_per_call=3)


def stored(folder):
    """A task with samples that stay in files, a model, its settings, and a counter."""
    found, reads = test_buckets.task(folder), []

    def counted(read, bucket, rows):
        reads.extend(rows)
        return read(bucket, rows)

    read = buckets.Bucket.read
    patch = mock.patch.object(
        buckets.Bucket, "read", lambda *given: counted(read, *given)
    )
    settings = dataclasses.replace(SETTINGS, num_epochs=2, batch_size=2)
    model = {"w": jnp.ones((1, 1)), "v": jnp.ones((2, 1))}
    found = dataclasses.replace(found, validation=(), metric=None)
    return (found, model, settings), patch, reads


def noisy(model, batch, *, key):
    """The loss of samples with noise."""
    return line(model, batch | {"y": batch["y"] + jax.random.normal(key, (2,))})


def numbers(tree):
    """All numbers of a tree."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).tolist()


def bits(tree):
    """A checksum of all bits of a tree."""
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]
    return zlib.crc32(b"".join(leaves))


@contextlib.contextmanager
def seen():
    """Gives the states that runs begin with, and those that they save, by checksum."""
    states = []

    class Seen(Loop):
        def __init__(self, *given):
            super().__init__(*given)
            states.append([self.step, bits(self.progress.state)])

        def save_if_due(self, **given):
            super().save_if_due(**given)
            states.append([self.step, bits(self.progress.state)])

    with mock.patch.object(fitting, "Loop", Seen):
        yield states


def interrupted(mesh, folder, told=True):
    """Trains for one epoch of several, of which only who is told knows."""
    calls = []

    def stop():
        calls.append(0)
        return told and len(calls) == 1

    given = contextlib.nullcontext(stop)
    with mock.patch.object(fitting, "put_off", return_value=given):
        try:
            fit(TASK, start(), dataclasses.replace(SETTINGS, mesh=mesh), folder=folder)
        except learn.Stopped:
            return
    raise AssertionError("The run was not stopped.")


def finished(task, model, settings, mesh, folder):
    """All numbers of the best model and of the history but times."""
    found = fit(task, model, dataclasses.replace(settings, mesh=mesh), folder=folder)
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in found.history]
    return {"model": numbers(found.best_model), "losses": numbers(rows)}


def copies(index):
    """What is told and copied: values of the first process."""
    special = np.float32([-0.0, np.nan, np.inf, 1e-45, 1 + index])
    mine = {"special": special, "key": jax.random.key(index), "count": 3 * index}
    mine["empty"] = np.zeros((0, 2))
    copied = checkpoint.mapped(hosts.copied, mine)
    copied["key"] = jax.random.key_data(copied["key"])
    return {
        "gathered": hosts.gather({"index": index, "pair": (1, np.float64(2))}),
        "told": hosts.tell(lambda: [index]),
        "copied": copied["special"].tobytes().hex(),
        "count": copied["count"],
        "key": numbers(copied["key"]),
    }


def refusals(index, folder):
    """Messages of what is refused."""
    options = learn.TrainingOptions(batch_size=12)
    asked = {
        "nothing": lambda: devices.start("", options),
        "three": lambda: devices.start("batch:3", options),
        "one": lambda: devices.start("batch:1", options),
        "many": lambda: devices.start("batch:4", options),
        "folder": lambda: fit(TASK, {}, SETTINGS, folder="/dev/null/run"),
        "length": lambda: fit(
            TASK, {}, dataclasses.replace(SETTINGS, num_epochs=1 + index), folder="no"
        ),
    }
    other = dataclasses.replace(TASK, train=points_on_a_line(16, 7 + index))
    asked["samples"] = lambda: fit(other, start(), SETTINGS, folder=folder)
    found = {}
    for name, call in asked.items():
        try:
            call()
        except (OSError, RuntimeError, ValueError) as error:
            found[name] = str(error)
    return found


def session(file, coordinator, count, index):
    """Writes all that is found as JSON."""
    folder, index = pathlib.Path(file).parent, int(index)
    with jax.enable_x64(False), hosts.joined(coordinator, int(count), index):
        mesh = devices.start("batch:2", learn.TrainingOptions(batch_size=4))
        found = {"copies": copies(index), "refusals": refusals(index, folder / "other")}
        whole = "whole" if hosts.first() else "elsewhere"  # the others need no folder
        with seen() as states:
            found["whole"] = finished(TASK, start(), SETTINGS, mesh, folder / whole)
            interrupted(mesh, folder / "two_one", told=index == 1)
            found["two"] = list(states)
            states.clear()
            found["one_two"] = finished(
                TASK, start(), SETTINGS, mesh, folder / "one_two"
            )
            found["one"] = list(states)
        task, settings = drawn()
        found["drawn"] = finished(task, start(), settings, mesh, folder / "drawn")
        given, patch, reads = stored(folder / "data")
        with patch:
            found["stored"] = finished(*given, mesh, folder / "stored")
        found["reads"] = len(reads)
        keyed = dataclasses.replace(TASK, loss=noisy, needs_key=True)
        found["keyed"] = finished(keyed, start(), SETTINGS, mesh, folder / "keyed")
        points = sharding.device_mesh(points=2)
        found["points"] = finished(*meshes(), points, folder / "points")
        found["parts"] = sorted(
            shard.data.shape[1]
            for shard in sharding.place(meshes()[0].train[0], points)[
                "target"
            ].addressable_shards
        )
    pathlib.Path(f"{file}.{index}").write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "session":
        session(*sys.argv[2:])
        sys.exit()
    with contextlib.ExitStack() as stack:
        if "END" in os.environ:
            stack.enter_context(ended(*map(int, os.environ["END"].split(":"))))
        PROGRAM.launch()
