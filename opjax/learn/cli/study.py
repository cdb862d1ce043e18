"""Studies: models, variants and seeds of one program, each in a separate folder."""

import pathlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import numpy as np
from flax import nnx

from opjax import training
from opjax.learn.config import fields
from opjax.learn.json_files import replacing
from opjax.learn.messages import say
from opjax.learn.named_types import Row
from opjax.learn.report import figures
from opjax.learn.report.members import Finished
from opjax.learn.run import devices, hosts
from opjax.learn.run.devices import Devices
from opjax.learn.run.fitting import Fitted, fit
from opjax.learn.run.folder import RunDirectory, run_once
from opjax.learn.run.settings import Settings
from opjax.learn.tasks.task import BaseTask, FreshTask, MemberOptions
from opjax.training import tuning

# `make_task(config, cache_dir)`, of a member's configuration.
MakeTask = Callable[[Any, str | None], BaseTask]


@runtime_checkable
class StudyOptions(fields.Preset, Protocol):
    """The interface of a study's configuration."""

    def members(self) -> Mapping[tuple[str, Any], Any]:
        """Configurations of single models and seeds, by name and seed."""
        ...


class Tasks:
    """Builds the tasks of members; reuses a task if only model or seed changes.

    A `FreshTask` is reused for other seeds only: models have no data to share.
    """

    def __init__(self, make_task: MakeTask, cache_dir: str | None):
        self._make, self._cache_dir = make_task, cache_dir
        self._config: object = None
        self._task: BaseTask | None = None
        self.seconds = 0.0  # spent making them

    def __call__(self, config: object) -> BaseTask:
        """Returns the task of a member's configuration."""
        if self._task is None or self._key(config) != self._key(self._config):
            begin = time.monotonic()
            self._task, self._config = self._make(config, self._cache_dir), config
            self.seconds += time.monotonic() - begin
        return self._task

    def _key(self, config: object) -> dict[str, Any]:
        """What a task depends on."""
        fresh = isinstance(self._task, FreshTask)
        left_out = ("seeds",) if fresh else ("models", "seeds")
        return {k: v for k, v in vars(config).items() if k not in left_out}


def run(
    config: StudyOptions,
    make_task: MakeTask,
    folder: pathlib.Path,
    *,
    shared: Devices,
    command: str = "",
    cache_dir: str | None = None,
    tensorboard: bool = False,
) -> Finished:
    """Trains all members of a study, or reads the results of finished members.

    Args:
      config: configuration of the study.
      make_task: builds the task of a member.
      folder: the open folder of the study.
      shared: devices for the training.
      command: command that repeats the run.
      cache_dir: folder of generated data.
      tensorboard: also write TensorBoard files.

    Returns:
      The results of the members.

    Raises:
      ValueError: if the devices do not fit the task or the model of a member.
    """
    begin = time.monotonic()
    members, tasks = config.members(), Tasks(make_task, cache_dir)
    first, *others = members.values()
    task = tasks(first)
    if task.num_train and hosts.first():
        parts = task.num_train, task.num_validation, task.num_test
        say(
            f"{sum(parts)} samples: {parts[0]} for training, {parts[1]} for "
            f"validation, {parts[2]} for the test."
        )
    mesh = shared.mesh(lambda: share_points(members.values(), tasks))
    if mesh is not None:  # the first member is checked when it is trained, at once
        for member in others:
            devices.check(mesh, tasks(member), _shapes(member, tasks(member)))
    results: dict[str, list[Row]] = {}
    for (name, seed), member in members.items():
        place = name.replace(":", "_") + ("" if seed is None else f"-{seed}")

        def work(directory: RunDirectory, member: Any = member) -> Row:
            task = tasks(member)
            how = task.settings(member, tensorboard=tensorboard, mesh=mesh)
            return train(member, task, directory, how)

        result = run_once(folder / place, member, work, command=command)
        results.setdefault(name, []).append(result)
    hosts.tell(lambda: _draw(folder))
    return Finished(
        config,
        folder,
        results,
        task.source,
        task.notes,
        task.num_train,
        task.num_test,
        time.monotonic() - begin,
        tasks.seconds,
        task.fields,
        task.baselines,
    )


def _draw(folder: pathlib.Path) -> None:
    """Draws the figures of several members together."""
    groups: dict[pathlib.Path, list[figures.Member]] = {}
    for one in figures.members(folder):
        groups.setdefault(one.folder.parent, []).append(one)
    for parent, shown in groups.items():  # one, or several with members of their own
        if len(shown) > 1:
            figures.draw(parent, shown)


def share_points(members: Iterable[MemberOptions], tasks: Tasks) -> bool:
    """Whether devices can share the points of samples for all members."""
    for member in members:
        task = tasks(member)
        if devices.obstacle(task, _shapes(member, task)) is not None:
            return False
    return True


def _shapes(config: MemberOptions, task: BaseTask) -> object:
    """The model of a member, with shapes in place of arrays."""
    return jax.eval_shape(lambda: build(config, task))


def build(config: MemberOptions, task: BaseTask) -> Any:
    """Returns the untrained model of a member.

    Raises:
      ValueError: if the task does not define how to build it.
    """
    if task.build is None:
        raise ValueError(
            "The task of a program needs `build`, a function that returns its model."
        )
    return task.build(config, nnx.Rngs(config.seed))


def train(
    config: MemberOptions, task: BaseTask, directory: RunDirectory, settings: Settings
) -> Row:
    """Trains one model with one seed and evaluates it on the test samples.

    With several processes, the first one evaluates on one of its devices.

    Args:
      config: configuration of the member.
      task: the task to learn.
      directory: folder of the member.
      settings: settings from `BaseTask.settings`.

    Returns:
      The numbers of `Task.evaluate`; `validation` if there are validation samples;
      `best_epoch` (otherwise the last epoch); `parameters`, and `trained_parameters` if
      some are frozen; `seconds`; the last numbers of `Task.probe`. If the task treats
      divergence as a result: "diverged" with the message.

    Raises:
      ValueError: if the task does not define how to build or evaluate a model.
    """
    model = build(config, task)
    parameters = tuning.num_parameters(model)
    try:
        fitted = fit(task, model, settings, folder=directory)
    except training.NonFiniteError as error:
        if not task.diverge:
            raise
        return {"diverged": str(error), "parameters": 0}
    numbers = hosts.tell(
        lambda: _finished(task, fitted, directory.path, settings, parameters)
    )
    if isinstance(model, tuning.Tuned):
        numbers["trained_parameters"] = tuning.num_trained(model)
    return numbers


def _finished(
    task: BaseTask,
    fitted: Fitted[Any],
    folder: pathlib.Path,
    settings: Settings,
    parameters: int,
) -> Row:
    """Leaves the files of a trained member in its folder, and returns its numbers."""
    if task.evaluate is None:
        raise ValueError(
            "The task of a program needs `evaluate`, a function that "
            "returns its numbers."
        )
    if task.keeps_losses:
        with replacing(folder / "losses.npz") as path:
            np.savez(
                path,
                losses=fitted.losses,
                finite=fitted.finite,
                compile_seconds=fitted.compile_seconds,
                seconds=fitted.seconds,
            )
    result, last = dict(task.evaluate(fitted.best_model, folder)), fitted.history[-1]
    figures.draw(folder, [figures.member(folder)])
    if task.metric is not None:
        steps = last["step"] // settings.num_epochs if settings.num_epochs else 1
        if task.validation:
            result["validation"] = fitted.best_metric
        result["best_epoch"] = fitted.best_step // steps
    if task.probe is not None:
        shown = set(jax.eval_shape(task.probe, fitted.model))
        result |= {name: last[name] for name in sorted(shown)}
    result["parameters"] = parameters // max(fitted.finite.size, 1)
    return result | {"seconds": fitted.seconds}
