"""Models, variants and seeds of one program, each in a folder of its own."""

import functools
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from opjax import training
from opjax.learn import figures, members
from opjax.learn.fitting import Fitted, Settings, fit
from opjax.learn.folder import RunDirectory, replacing, run_once
from opjax.learn.summary import Finished
from opjax.learn.task import Task

MakeTask = Callable[[Any, str | None], Task]


class Tasks:
    """The task of a member, kept while members differ in model and seed only.

    Attributes:
      first: the first one that was made.
      seconds: spent making them.
    """

    def __init__(self, make_task: MakeTask, cache_dir: str | None):
        self._make, self._cache_dir = make_task, cache_dir
        self._key, self._task = None, None
        self.first: Task | None = None
        self.seconds = 0.0

    def __call__(self, config: Any) -> Task:
        """Returns the task of a member's configuration."""
        selected = {name: None for name in ("models", "seeds") if hasattr(config, name)}
        key = {**vars(config), **selected}
        if self._task is None or key != self._key:
            begin = time.monotonic()
            self._task, self._key = self._make(config, self._cache_dir), key
            self.seconds += time.monotonic() - begin
            self.first = self.first or self._task
        return self._task


def run(
    config: Any,
    make_task: MakeTask,
    directory: RunDirectory,
    *,
    base: Any = None,
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> Finished:
    """Trains all members of a study, or reads those that are finished.

    Args:
      config: of the study, with `members`.
      make_task: `make_task(member's configuration, cache_dir)`.
      directory: open folder of the run.
      base: as for `folder.open_run`.
      cache_dir: folder of generated data.
      tensorboard: write TensorBoard files too.

    Returns:
      All results.
    """
    begin = time.monotonic()
    tasks = Tasks(make_task, cache_dir)
    results: dict[str, list[dict[str, Any]]] = {}
    for (name, seed), member in config.members().items():
        result = run_once(
            directory.path / members.folder_name(name, seed),
            member,
            lambda folder, member=member: train(
                member, tasks(member), folder, tensorboard=tensorboard
            ),
            base=base if type(base) is type(member) else None,
            command=json.loads((directory.path / "environment.json").read_text())[
                "command"
            ],
            last_line=False,
        )
        results.setdefault(name, []).append(result)
    task = tasks.first or tasks(next(iter(config.members().values())))
    groups: dict[pathlib.Path, list[figures.Member]] = {}
    for one in figures.members(directory.path):
        groups.setdefault(one.folder.parent, []).append(one)
    for folder, shown in groups.items():  # one, or several with members of their own
        if len(shown) > 1:
            figures.draw(folder, shown)
    if task.draw is not None:
        task.draw(directory.path, list(results))
    return Finished(
        config,
        directory.path,
        results,
        task.source,
        task.notes,
        task.num_train,
        task.num_test,
        time.monotonic() - begin,
        tasks.seconds,
    )


def settings(config: Any, task: Task, *, tensorboard: bool = False) -> Settings:
    """Returns how a member is trained.

    Args:
      config: of the member.
      task: what is to be learned.
      tensorboard: write TensorBoard files too.
    """
    optimizer = config.optimizer if task.optimizer is None else None
    given: dict[str, Any] = {
        "batch_size": config.batch_size,
        "seed": config.seed,
        "optimizer": optimizer or functools.partial(task.optimizer, config),  # pyright: ignore
        "eval_every": getattr(config, "eval_every", 1),
        "tensorboard": tensorboard,
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
    config: Any, task: Task, directory: RunDirectory, *, tensorboard: bool = False
) -> dict[str, Any]:
    """Trains one model with one seed and evaluates it on the test samples.

    Args:
      config: of the member.
      task: what is to be learned.
      directory: open folder of the member.
      tensorboard: write TensorBoard files too.

    Returns:
      The numbers of `Task.evaluate`, `validation` if there are such samples,
      `best_epoch`, without them the last one, `parameters`, `seconds` and the last
      numbers of `Task.probe`; or "diverged" with the message, if that is a result.
    """
    assert task.build is not None
    assert task.evaluate is not None
    given = settings(config, task, tensorboard=tensorboard)
    model = task.build(config, nnx.Rngs(config.seed))
    parameters = sum(leaf.size for leaf in jax.tree.leaves(model))
    try:
        fitted = fit(task, model, given, folder=directory)
    except training.NonFiniteError as error:
        if not task.diverge:
            raise
        return {"diverged": str(error), "parameters": 0}
    if callable(task.train):
        _save_losses(directory.path, fitted)
    result = dict(task.evaluate(fitted.best_model, directory.path))
    figures.draw(directory.path, [figures.member(directory.path)])
    if task.metric is not None:
        steps = (
            fitted.history[-1]["step"] // given.num_epochs if given.num_epochs else 1
        )
        if task.validation:
            result["validation"] = fitted.best_metric
        result["best_epoch"] = fitted.best_step // steps
    if task.probe is not None:
        shown = set(jax.eval_shape(task.probe, fitted.model))
        result |= {name: fitted.history[-1][name] for name in sorted(shown)}
    result["parameters"] = parameters // max(fitted.finite.size, 1)
    return result | {"seconds": fitted.seconds}


def _save_losses(folder: pathlib.Path, fitted: Fitted) -> None:
    with replacing(folder / "losses.npz") as path:
        np.savez(
            path,
            losses=fitted.losses,
            finite=fitted.finite,
            compile_seconds=fitted.compile_seconds,
            seconds=fitted.seconds,
        )
