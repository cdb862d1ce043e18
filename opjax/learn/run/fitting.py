"""`fit`: the resumable training loop of all tasks."""

import contextlib
import dataclasses
import os
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from opjax import training
from opjax.learn.run import devices, hosts, memory, noise
from opjax.learn.run.folder import RunDirectory, open_run
from opjax.learn.run.loop import Loop, progress
from opjax.learn.run.metrics_file import Row, read_metrics
from opjax.learn.run.settings import Settings
from opjax.learn.run.stopping import Stopped, put_off
from opjax.learn.tasks.task import BaseTask
from opjax.training import sharding

_Model = TypeVar("_Model")


class Fitted(NamedTuple, Generic[_Model]):
    """The result of a finished run.

    Attributes:
      model: model after the last step, with averaged weights if the optimizer computes
        them.
      best_model: model with the smallest validation metric; the last model if there is
        no validation.
      best_metric: its validation metric.
      best_step: the step at which it was reached.
      extra: the task's extra data, from the checkpoint if the run was resumed.
      history: rows of metrics.jsonl.
      seconds: time spent on training, validation and saving, over all resumed parts.
      compile_seconds: time spent on compilation before training, in the last part.
      losses: losses of every step if every batch is drawn anew, `(r, steps)` with
        replicas; otherwise losses of the last epoch.
      finite: whether each replica was finite to the end, `(r,)`; `True` without
        replicas.

    Examples:
      >>> import tempfile
      >>> import jax.numpy as jnp
      >>> from opjax import learn
      >>> def loss(model, batch):
      ...     return jnp.sum((model["slope"] * batch["x"] - batch["y"]) ** 2)
      >>> data = {"x": jnp.ones(4), "y": 2 * jnp.ones(4)}
      >>> task = learn.Task(loss=loss, train=(data,))
      >>> settings = learn.Settings(num_epochs=1, batch_size=4)
      >>> model = {"slope": jnp.array(1.0)}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     fitted = learn.fit(task, model, settings, folder=folder)
      >>> fitted.best_step, fitted.losses.shape, sorted(fitted.model)
      (1, (1,), ['slope'])
    """

    model: _Model
    best_model: _Model
    best_metric: float
    best_step: int
    extra: Any
    history: list[Row]
    seconds: float
    compile_seconds: float
    losses: np.ndarray
    finite: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """What is compared when `fit` continues in a folder of its own."""

    num_epochs: int
    num_steps: int
    batch_size: int
    seed: int


def fit(
    task: BaseTask,
    model: _Model,
    settings: Settings,
    *,
    folder: str | os.PathLike[str] | RunDirectory,
) -> Fitted[_Model]:
    """Trains a model, or continues from the newest checkpoint of a run folder.

    A resumed run ends with the same bits as an uninterrupted one on the same machine
    and software, except for the times. A replica with a NaN or infinite loss or
    gradient keeps its last finite model while the others continue. After SIGTERM or
    Ctrl-C, a checkpoint is saved as soon as the current batches are complete.

    With several processes, see `hosts`, all make this call with the whole task. The
    device mesh determines what each of them computes. They stop and save together. Only
    the first process uses the folder, and sends its content to the others.

    Args:
      task: a `Task` or `FreshTask`. `build`, `evaluate` and the descriptions of the run
        are not used.
      model: any pytree, initialised with a fixed seed; replicas along axis 0.
      settings: length of the training and intervals.
      folder: path of a run folder, or an open run folder.

    Returns:
      The trained models and the history.

    Raises:
      opjax.training.NonFiniteError: at the first NaN or infinite loss, gradient or
        validation metric; with replicas, when no finite one is left.
      opjax.learn.Stopped: after SIGTERM or Ctrl-C, when everything is saved.
      opjax.training.checkpoint.CheckpointError: if a checkpoint cannot be written.
      MemoryError: if a step does not fit in memory. The message suggests remedies.
      ValueError: if sizes do not match, or the devices do not fit the task or the
        model.

    Examples:
      >>> import tempfile
      >>> import jax.numpy as jnp
      >>> from opjax import learn, training
      >>> def loss(model, batch):
      ...     return jnp.sum((model["slope"] * batch["x"] - batch["y"]) ** 2)
      >>> def optimizer(total_steps):
      ...     return training.adamw(0.1, weight_decay=0.0)
      >>> data = {"x": jnp.ones(4), "y": 2 * jnp.ones(4)}
      >>> task = learn.Task(loss=loss, train=(data,))
      >>> settings = learn.Settings(num_epochs=2, batch_size=4, optimizer=optimizer)
      >>> model = {"slope": jnp.array(1.0)}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     fitted = learn.fit(task, model, settings, folder=folder)
      >>> round(float(fitted.model["slope"]), 2)
      1.2
    """
    devices.check(settings.mesh, task, model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(memory.explained(task, model, settings))
        if not isinstance(folder, RunDirectory):
            lengths = _Lengths(
                num_epochs=settings.num_epochs,
                num_steps=settings.num_steps,
                batch_size=settings.batch_size,
                seed=settings.seed,
            )
            folder = stack.enter_context(open_run(folder, lengths))
        loop = Loop(folder, noise.prepared(task, model), settings, model)
        stack.enter_context(contextlib.closing(loop.writer))
        total = loop.batches.total
        show = stack.enter_context(progress(folder.path.name, total, loop.step))
        told = stack.enter_context(put_off())
        while loop.step < total:
            loop.advance()
            row = loop.look_if_due()
            if row is not None:
                loop.writer.write(row)
            show(loop.step, row, loop.left())
            votes = hosts.gather((told(), loop.is_old()))
            stop, old = (any(said) for said in zip(*votes, strict=True))
            loop.save_if_due(now=stop or old)
            if stop:
                raise Stopped(f"Stopped and saved after step {loop.step} of {total}.")
    end = loop.progress
    last = training.averaged_model(end.state)
    best = end.best_model if loop.validation else last
    if settings.mesh is not None:  # on one device again
        last, best = sharding.fetch((last, best))
    return Fitted(
        model=last,
        best_model=best,
        best_metric=float(end.best_metric),
        best_step=end.best_step if loop.validation else loop.step,
        extra=end.extra,
        history=hosts.tell(lambda: [*read_metrics(folder.path), *loop.writer.waiting]),
        seconds=loop.seconds(),
        compile_seconds=loop.compile_seconds,
        losses=end.losses,
        finite=np.asarray(True if end.good is None else end.good),
    )
