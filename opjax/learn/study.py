"""Models, variants and seeds of one program, each in a folder of its own."""

import functools
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from opjax import training
from opjax.learn import batches, devices, figures, hosts
from opjax.learn.fitting import Fitted, Settings, fit
from opjax.learn.folder import RunDirectory, run_once
from opjax.learn.json_files import replacing
from opjax.learn.members import Finished
from opjax.learn.task import Task

MakeTask = Callable[[Any, str | None], Task]


class Tasks:
    """The task of a member, kept while members differ in model and seed only."""

    def __init__(self, make_task: MakeTask, cache_dir: str | None):
        self._make, self._cache_dir = make_task, cache_dir
        self._key: Any = None
        self.seconds = 0.0  # spent making them

    def __call__(self, config: Any) -> Task:
        """Returns the task of a member's configuration."""
        key = {k: v for k, v in vars(config).items() if k not in ("models", "seeds")}
        if key != self._key:
            begin = time.monotonic()
            self._task, self._key = self._make(config, self._cache_dir), key
            self.seconds += time.monotonic() - begin
        return self._task


def run(
    config: Any,
    make_task: MakeTask,
    folder: pathlib.Path,
    *,
    command: str = "",
    cache_dir: str | None = None,
    tensorboard: bool = False,
    mesh: Mesh | None = None,
) -> Finished:
    """Trains all members of a study, or reads those that are finished.

    Arguments are those of `Program.run`; the folder is open, `command` repeats the run.
    """
    begin = time.monotonic()
    members, tasks = config.members(), Tasks(make_task, cache_dir)
    task = tasks(next(iter(members.values())))
    for member in members.values() if mesh is not None else ():
        devices.check(mesh, tasks(member), _shapes(member, tasks(member)))
    options: Any = {"tensorboard": tensorboard, "mesh": mesh}
    results: dict[str, list[dict[str, Any]]] = {}
    for (name, seed), member in members.items():
        place = name.replace(":", "_") + ("" if seed is None else f"-{seed}")

        def work(directory: RunDirectory, member: Any = member) -> dict[str, Any]:
            return train(member, tasks(member), directory, **options)

        result = run_once(folder / place, member, work, command=command)
        results.setdefault(name, []).append(result)
    hosts.tell(lambda: _draw(folder))
    return Finished(
        config,
        folder,
        results,
        task.source,
        task.notes,
        0 if callable(task.train) else _count("train", task.train),
        _count("test", task.test),
        time.monotonic() - begin,
        tasks.seconds,
    )


def _draw(folder: pathlib.Path) -> None:
    """Draws the figures of several members together."""
    groups: dict[pathlib.Path, list[figures.Member]] = {}
    for one in figures.members(folder):
        groups.setdefault(one.folder.parent, []).append(one)
    for parent, shown in groups.items():  # one, or several with members of their own
        if len(shown) > 1:
            figures.draw(parent, shown)


def _count(name: str, buckets: tuple[Any, ...]) -> int:
    return sum(batches.num_samples(name, bucket) for bucket in buckets)


def _shapes(config: Any, task: Task) -> Any:
    """The model of a member, with shapes in place of arrays."""
    build: Any = task.build
    return jax.eval_shape(lambda: build(config, nnx.Rngs(config.seed)))


def settings(
    config: Any, task: Task, *, tensorboard: bool = False, mesh: Mesh | None = None
) -> Settings:
    """Returns how a member is trained."""
    optimizer = config.make_optimizer if task.optimizer is None else None
    given: dict[str, Any] = {
        "batch_size": config.batch_size,
        "seed": config.seed,
        "optimizer": optimizer or functools.partial(task.optimizer, config),  # pyright: ignore
        "eval_every": getattr(config, "eval_every", 1),
        "tensorboard": tensorboard,
        "mesh": mesh,
    }
    if callable(task.train):
        return Settings(
            num_steps=config.num_steps,
            checkpoint_every=10**9,  # by the clock
            checkpoint_seconds=60.0,
            **given,
        )
    on_cpu = jax.default_backend() == "cpu"
    return Settings(
        num_epochs=config.num_epochs,
        checkpoint_every=config.checkpoint_every,
        # Long epochs look at the clock, for checkpoints, and at NaN within.
        steps_per_call=None if task.scan else 256,
        scan=task.scan,
        microbatch=config.microbatch or (1 if on_cpu else None),
        **given,
    )


def train(
    config: Any,
    task: Task,
    directory: RunDirectory,
    *,
    tensorboard: bool = False,
    mesh: Mesh | None = None,
) -> dict[str, Any]:
    """Trains one model with one seed and evaluates it on the test samples.

    Of several processes the first one evaluates, on one of its devices.

    Returns:
      The numbers of `Task.evaluate`, `validation` if there are such samples,
      `best_epoch`, without them the last one, `parameters`, `seconds` and the last
      numbers of `Task.probe`; or "diverged" with the message, if that is a result.
    """
    assert task.build is not None
    given = settings(config, task, tensorboard=tensorboard, mesh=mesh)
    model = task.build(config, nnx.Rngs(config.seed))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model))
    try:
        fitted = fit(task, model, given, folder=directory)
    except training.NonFiniteError as error:
        if not task.diverge:
            raise
        return {"diverged": str(error), "parameters": 0}
    return hosts.tell(
        lambda: _finished(task, fitted, directory.path, given, parameters)
    )


def _finished(
    task: Task,
    fitted: Fitted,
    folder: pathlib.Path,
    given: Settings,
    parameters: int,
) -> dict[str, Any]:
    """Leaves the files of a trained member in its folder, and returns its numbers."""
    assert task.evaluate is not None
    if callable(task.train):
        names = "losses", "finite", "compile_seconds", "seconds"
        with replacing(folder / "losses.npz") as path:
            np.savez(path, **{name: getattr(fitted, name) for name in names})
    result, last = dict(task.evaluate(fitted.best_model, folder)), fitted.history[-1]
    figures.draw(folder, [figures.member(folder)])
    if task.metric is not None:
        steps = last["step"] // given.num_epochs if given.num_epochs else 1
        if task.validation:
            result["validation"] = fitted.best_metric
        result["best_epoch"] = fitted.best_step // steps
    if task.probe is not None:
        shown = set(jax.eval_shape(task.probe, fitted.model))
        result |= {name: last[name] for name in sorted(shown)}
    result["parameters"] = parameters // max(fitted.finite.size, 1)
    return result | {"seconds": fitted.seconds}
