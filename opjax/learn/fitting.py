"""One resumable loop for every training: `fit`."""

import contextlib
import dataclasses
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.sharding import Mesh

from opjax import sharding, training
from opjax.learn import devices, hosts, memory, noise
from opjax.learn.folder import RunDirectory, open_run
from opjax.learn.loop import Loop, progress
from opjax.learn.metrics_file import read_metrics
from opjax.learn.stopping import Stopped, put_off


def _adamw(total_steps: int) -> optax.GradientTransformation:
    return training.adamw_onecycle(1e-3, total_steps, weight_decay=1e-5, clip_norm=1.0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train, for how long, and how often to look.

    Attributes:
      num_epochs: passes over the training samples.
      num_steps: optimizer steps, in place of epochs, where every batch is drawn anew.
      batch_size: samples in a batch.
      seed: seed of the sample order and of dropout.
      optimizer: `optimizer(total_steps)`, a gradient transformation; with replicas
        `optimizer(total_steps, hyper)`, of one of them.
      eval_every: epochs between validations; the last epoch is always validated.
      checkpoint_every: epochs between checkpoints; the last epoch is always saved.
      checkpoint_seconds: save also when the last checkpoint is older than this.
      steps_per_call: batches between looks at the clock and at NaN; None for a whole
        epoch. Batches drawn anew have epochs of so many steps, 200 if None.
      keep: number of latest checkpoints to keep.
      scan: one `lax.scan` for all steps of a call, or one dispatch for each; see
        `opjax.training.make_epoch`.
      microbatch: see `opjax.training.make_step`.
      tensorboard: write TensorBoard files besides metrics.jsonl.
      mesh: devices that share samples and points, see `opjax.training.make_step`.
    """

    num_epochs: int = 0
    batch_size: int = 1
    seed: int = 0
    num_steps: int = 0
    optimizer: Callable[..., optax.GradientTransformation] = _adamw
    eval_every: int = 1
    checkpoint_every: int = 10
    checkpoint_seconds: float = 120.0
    steps_per_call: int | None = None
    keep: int = 2
    scan: bool = True
    microbatch: int | None = None
    tensorboard: bool = False
    mesh: Mesh | None = None


class Fitted(NamedTuple):
    """A finished run.

    Attributes:
      model: after the last step, with averaged weights if the optimizer keeps them.
      best_model: with the smallest validation metric; the last one without validation.
      best_metric: that metric.
      best_step: the step it was reached at.
      extra: the task's, from the checkpoint if the run was resumed.
      history: rows of metrics.jsonl.
      seconds: time spent training, validating and saving, over all resumed parts.
      compile_seconds: of compilation ahead of it, where every batch is drawn anew;
        elsewhere it is part of `seconds`.
      losses: of every step, with replicas `(r, steps)`, where every batch is drawn
        anew; elsewhere of the steps of the last epoch.
      finite: whether a replica was finite to the end, `(r,)`; `True` without.
    """

    model: Any
    best_model: Any
    best_metric: float
    best_step: int
    extra: Any
    history: list[dict[str, Any]]
    seconds: float
    compile_seconds: float
    losses: np.ndarray
    finite: np.ndarray


# What is compared when `fit` continues in a folder of its own.
_LENGTHS = ("num_epochs", "num_steps", "batch_size", "seed")


def fit(
    task: Any,
    model: Any,
    settings: Settings,
    *,
    folder: str | os.PathLike | RunDirectory,
) -> Fitted:
    """Trains a model, or continues from the newest checkpoint of a run folder.

    A resumed run ends with the same bits as the uninterrupted one (on the same machine
    and software); only the seconds differ. A replica that meets a NaN or infinite loss
    or gradient keeps its last good model while the others go on. After SIGTERM it saves
    a checkpoint as soon as the batches under way are done.

    Several processes, see `hosts`, call this alike, each with the whole task: the mesh
    says what each of them computes. They stop and save together. The first one has the
    folder, and sends the others what it reads there.

    Args:
      task: a `Task`, of which `train`, `validation`, `loss`, `metric`, `extra`,
        `needs_key`, `probe` and `replicas` are used.
      model: any pytree, initialised from a fixed seed; replicas along axis 0.
      settings: lengths and intervals.
      folder: path, or open run folder.

    Returns:
      The trained models and the history.

    Raises:
      opjax.training.NonFiniteError: at the first NaN or infinite loss, gradient or
        validation metric; with replicas, when none is left.
      opjax.learn.Stopped: after SIGTERM, with everything saved.
      opjax.checkpoint.CheckpointError: if a checkpoint cannot be written.
      MemoryError: if a step does not fit, with what would.
      ValueError: if sizes do not match, or devices do not fit the task or the model.
    """
    devices.check(settings.mesh, task, model)
    with contextlib.ExitStack() as stack:
        stack.enter_context(memory.explained(task, model, settings))
        if not isinstance(folder, RunDirectory):
            lengths = dataclasses.make_dataclass("Lengths", _LENGTHS)
            given = lengths(*(getattr(settings, name) for name in _LENGTHS))
            folder = stack.enter_context(open_run(folder, given))
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
    found = loop.progress
    last = training.averaged_model(found["state"])
    best = found["best_model"] if loop.validation else last
    if settings.mesh is not None:  # on one device again
        last, best = sharding.fetch((last, best))
    return Fitted(
        model=last,
        best_model=best,
        best_metric=float(found["best_metric"]),
        best_step=found["best_step"] if loop.validation else loop.step,
        extra=found["extra"],
        history=hosts.tell(lambda: [*read_metrics(folder.path), *loop.writer.waiting]),
        seconds=loop.seconds(),
        compile_seconds=loop.batches.compile_seconds,
        losses=found["losses"],
        finite=np.asarray(found.get("good", True)),
    )
