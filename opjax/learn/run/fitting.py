"""One resumable loop for every training: `fit`."""

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
    """A finished run.

    Attributes:
      model: after the last step, with averaged weights if the optimizer keeps them.
      best_model: with the smallest validation metric; the last one without validation.
      best_metric: that metric.
      best_step: the step it was reached at.
      extra: the task's, from the checkpoint if the run was resumed.
      history: rows of metrics.jsonl.
      seconds: time spent training, validating and saving, over all resumed parts.
      compile_seconds: of compilation ahead of it, in the last of these parts.
      losses: of every step, with replicas `(r, steps)`, where every batch is drawn
        anew; elsewhere of the steps of the last epoch.
      finite: whether a replica was finite to the end, `(r,)`; `True` without.

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

    A resumed run ends with the same bits as the uninterrupted one (on the same machine
    and software); only the seconds differ. A replica that meets a NaN or infinite loss
    or gradient keeps its last good model while the others go on. After SIGTERM or
    Ctrl-C it saves a checkpoint as soon as the batches under way are done.

    Several processes, see `hosts`, call this alike, each with the whole task: the mesh
    says what each of them computes. They stop and save together. The first one has the
    folder, and sends the others what it reads there.

    Args:
      task: a `Task` or `FreshTask`, of which `build`, `evaluate` and what describes the
        run are not used.
      model: any pytree, initialised from a fixed seed; replicas along axis 0.
      settings: lengths and intervals.
      folder: path, or open run folder.

    Returns:
      The trained models and the history.

    Raises:
      opjax.training.NonFiniteError: at the first NaN or infinite loss, gradient or
        validation metric; with replicas, when none is left.
      opjax.learn.Stopped: after SIGTERM or Ctrl-C, with everything saved.
      opjax.training.checkpoint.CheckpointError: if a checkpoint cannot be written.
      MemoryError: if a step does not fit, with what would.
      ValueError: if sizes do not match, or devices do not fit the task or the model.

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
                raise Stopped(f"Stopped after step {loop.step} of {total}, and saved.")
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
