"""Steps of `fit` between batches: validation, best model, checkpoints and errors."""

import contextlib
import sys
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax

from opjax import training
from opjax._trees import Model, PyTree
from opjax.learn.messages import say
from opjax.learn.run import batches, buckets, hosts
from opjax.learn.run.folder import RunDirectory
from opjax.learn.run.metrics_file import MetricsWriter, Row
from opjax.learn.run.progress import Progress
from opjax.learn.run.settings import Settings
from opjax.learn.run.sources import make_batches
from opjax.learn.tasks.task import BaseTask
from opjax.samples import summaries
from opjax.training import checkpoint

_Tree = TypeVar("_Tree")


class Loop:
    """The state of a run between batches, and the operations on it.

    It starts at step zero or at the newest checkpoint. `progress` is the content of a
    checkpoint: everything that the rest of the run depends on.
    """

    def __init__(
        self, run: RunDirectory, task: BaseTask, settings: Settings, model: PyTree
    ):
        self.run, self.task, self.settings = run, task, settings
        self.batches = make_batches(task, settings)
        self.validation: tuple[Any, ...] = ()
        if task.metric is not None:
            for bucket in task.validation:
                buckets.num_samples("validation", bucket)
            self.validation = batches.to_evaluate(
                task.validation, settings.batch_size, settings.mesh, task.row
            )
        if hosts.count() > 1:
            hosts.require_same("their samples, by shapes and sizes", _summary(task))
        if self.validation and self.batches.shape:
            raise ValueError("Replicas cannot be validated; remove the task's metric.")
        self.probe = None if task.probe is None else jax.jit(task.probe)
        self.progress: Progress = self._first(model)
        restored = hosts.restore(run.checkpoints, self.progress)
        self.step = 0
        self.saved: int | None = None
        rows, waiting = 0, ()
        if restored is not None:
            self.progress = restored.payload
            self.step = self.saved = restored.step
            rows = restored.metadata["rows"]
            waiting = restored.metadata.get("waiting", ())
            if hosts.first():
                say(f"Continuing from {restored.path}.")
                checkpoint.tidy(run.checkpoints, restored.step, keep=settings.keep)
        self._evaluation: Future[None] | None = None
        self.compile_seconds = self._compile()
        self.writer = MetricsWriter(
            run, rows=rows, waiting=waiting, tensorboard=settings.tensorboard
        )
        self.earlier: float = self.progress.seconds
        self.begin = self.saved_at = time.monotonic()
        self.first_step = self.step

    def _first(self, model: Model) -> Progress:
        state = self.batches.start(model)
        first = self.batches.records(state)
        if self.validation:
            first.best_model = _copy(state.model)
        if self.task.extra is not None:
            first.extra = self.task.extra
        return first

    def _compile(self) -> float:
        """Compiles the steps, apart from training, and begins with the evaluation.

        A thread compiles that while the first epoch runs. Returns seconds.
        """
        if self.step == self.batches.total:
            return 0.0
        begin = time.monotonic()
        self.batches.prepare(self.progress.state, self.step)
        seconds = time.monotonic() - begin
        if hosts.first():
            total = self.batches.total - self.step
            say(f"Compiled in {seconds:.0f} s. Training for {total} steps.")
        if self.validation:
            pool = ThreadPoolExecutor(1)
            x64 = jax.dtypes.canonicalize_dtype("float64") == "float64"
            model = self.progress.best_model
            self._evaluation = pool.submit(self._compile_evaluation, model, x64)
            pool.shutdown(wait=False)
        return seconds

    def _compile_evaluation(self, model: Model, x64: bool) -> None:
        assert self.task.metric is not None
        with jax.enable_x64(x64):  # settings are those of a thread
            batches.compile_evaluation(self.task.metric, model, self.validation)

    def _wait_for_evaluation(self, epochs: int, loss: float) -> None:
        """Says how the first epoch went, where its evaluation is not compiled yet."""
        if self._evaluation is None:
            return
        waiting, self._evaluation = self._evaluation, None
        if not waiting.done() and hosts.first():
            done = f"epoch {epochs} step {self.step}/{self.batches.total}"
            text = f"{self.run.path.name} {done} loss {loss:.4g}"
            say(f"{text}, compiling the evaluation")
        begin = time.monotonic()
        waiting.result()
        waited = time.monotonic() - begin
        self.compile_seconds += waited
        self.begin += waited

    def seconds(self) -> float:
        """Time spent in this and earlier parts of the run, without compilation."""
        return self.earlier + time.monotonic() - self.begin

    def left(self) -> float | None:
        """Estimated remaining seconds; None before the first call."""
        done = self.step - self.first_step
        if not done:
            return None
        return (time.monotonic() - self.begin) / done * (self.batches.total - self.step)

    def advance(self) -> None:
        """Trains on the next batches, at most until the end of the epoch."""
        progress, batches = self.progress, self.batches
        good = progress.good
        progress.state, history = batches.advance(progress.state, self.step, good)
        finite = np.asarray(history["finite"])
        losses = np.asarray(history["loss"])
        norms = np.asarray(history["gradient_norm"])
        if batches.shape:
            assert good is not None
            good = progress.good = good & finite.all(axis=-1)
            if not good.any():
                raise self._stop(
                    f"All {good.size} replicas have a NaN or infinite loss or "
                    f"gradient after step {self.step}."
                )
        elif not finite.all():
            bad = int(np.argmin(finite))
            raise self._stop(
                f"Step {self.step + bad} (epoch {self.step // batches.per_epoch}) has "
                f"loss {losses[bad]} and gradient norm {norms[bad]}; "
                f"{batches.describe(self.step, bad)}."
            )
        count = finite.shape[-1]
        done = (..., batches.places(self.step, count))
        progress.losses[done], progress.norms[done] = losses, norms
        self.step += count

    def look_if_due(self) -> Row | None:
        """Validates at the end of an epoch, and returns the row of metrics."""
        epochs, within = divmod(self.step, self.batches.per_epoch)
        last = self.step == self.batches.total
        if (within and not last) or (epochs % self.settings.eval_every and not last):
            return None
        epochs += bool(within)
        progress, state = self.progress, self.progress.state
        row: Row = {"epoch": epochs, "step": self.step}
        if not self.batches.shape:
            rate = optax.tree.get(state.optimizer_state, "learning_rate")
            row |= {} if rate is None else {"learning_rate": float(rate)}
        summed = self.task.over_batch and not self.task.mean  # over the samples
        row["train_loss"] = self._mean(progress.losses)
        row["train_loss"] /= self.settings.batch_size if summed else 1
        row["grad_norm"] = self._mean(progress.norms)
        if progress.good is not None and self.batches.shape:
            row["diverged"] = int(np.count_nonzero(~progress.good))
        if self.probe is not None:
            probed = self.probe(training.averaged_model(state))
            row |= {name: float(v) for name, v in probed.items()}
        if self.validation:
            self._wait_for_evaluation(epochs, row["train_loss"])
            row["validation"] = self._validate(epochs)
        return row | {"seconds": self.seconds()}

    def _mean(self, values: np.ndarray) -> float:
        """The mean over the steps of the epoch, and over the replicas that go on."""
        begin = (self.step - 1) // self.batches.per_epoch * self.batches.per_epoch
        values = values[..., self.batches.places(begin, self.step - begin)]
        good = self.progress.good
        return float(np.mean(values if good is None else values[good]))

    def _validate(self, epochs: int) -> float:
        """The mean metric of the validation samples; keeps the best model."""
        progress, settings = self.progress, self.settings
        model = training.averaged_model(progress.state)
        assert self.task.metric is not None
        errors = [
            batches.evaluate(
                self.task.metric,
                model,
                bucket,
                batch_size=settings.batch_size,
                mesh=settings.mesh,
                row=self.task.row,
            )
            for bucket in self.validation
        ]
        values = np.concatenate([np.asarray(part, np.float64) for part in errors])
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise self._stop(
                f"After step {self.step} (epoch {epochs}) the metric is NaN or "
                f"infinite on {bad.size} validation samples, the first ones are "
                f"{bad[:8].tolist()}, although training was finite."
            )
        value = float(np.mean(values))
        if value < progress.best_metric:
            progress.best_metric = np.float64(value)
            progress.best_step = self.step
            progress.best_model = _copy(model)
        return value

    def is_old(self) -> bool:
        """Whether the last checkpoint is older than the time limit."""
        return time.monotonic() - self.saved_at > self.settings.checkpoint_seconds

    def save_if_due(self, *, now: bool = False) -> None:
        """Saves a checkpoint after the last step, after some epochs, or on request."""
        epochs, within = divmod(self.step, self.batches.per_epoch)
        due = not within and epochs % self.settings.checkpoint_every == 0
        if not (now or due or self.step == self.batches.total):
            return
        if self.step != self.saved:
            self.progress.seconds = self.seconds()
            metadata = {"config": self.run.config, "rows": self.writer.rows}
            metadata |= {"waiting": self.writer.waiting} if self.writer.waiting else {}
            metadata |= {"step": self.step, "epoch": epochs, "batch": within}

            def save() -> None:
                checkpoint.save(
                    self.run.checkpoints,
                    self.step,
                    self.progress,
                    metadata=metadata,
                    keep=self.settings.keep,
                )

            hosts.tell(save)
            self.saved = self.step
        self.saved_at = time.monotonic()

    def _stop(self, what: str) -> training.NonFiniteError:
        last = "none yet"
        if self.saved is not None:
            last = f"{self.run.checkpoints}/step_{self.saved:010d}"
        return training.NonFiniteError(
            f"{what} Last good checkpoint: {last}. Continuing would end the same. "
            "Lower the learning rate, check those samples or clip the gradient, in "
            "another --workdir."
        )


# `show(step, row, left)`: the row of an epoch that has ended, seconds to the end.
Show = Callable[[int, Row | None, float | None], None]


@contextlib.contextmanager
def progress(name: str, total: int, step: int) -> Generator[Show]:
    """Yields `show(step, row, left)`, which shows progress.

    On a terminal it shows a bar, elsewhere one line per row. With several processes,
    only the first one prints.
    """
    if not hosts.first():
        yield lambda step, row, left: None
        return
    bar: Any = None  # of tqdm, on a terminal
    if sys.stderr.isatty():
        with contextlib.suppress(ImportError):
            import tqdm

            bar = tqdm.tqdm(total=total, initial=step, unit="step", desc=name)

    def show(step: int, row: Row | None, left: float | None) -> None:
        if bar is not None:
            bar.update(step - bar.n)
        if row is None:
            return
        text = f"loss {row['train_loss']:.4g}"
        if "validation" in row:
            text += f" validation {row['validation']:.4g}"
        if row.get("diverged"):
            text += f", {row['diverged']} diverged"
        if bar is not None:
            bar.set_postfix_str(text)
            return
        done = f"epoch {row['epoch']} step {row['step']}/{total}"
        spent = f"{row['seconds']:.0f} s, {left or 0:.0f} s left"
        say(f"{name} {done} {text} ({spent})")

    with bar or contextlib.nullcontext():
        yield show


def _summary(task: BaseTask) -> list[Any]:
    """Shapes and mean sizes of samples, to three digits: processors may round apart."""
    summary: list[Any] = []
    for bucket in (*task.known, *task.validation):
        if isinstance(bucket, buckets.Bucket):
            summary.append([len(bucket), sum(summaries.num_points(bucket.found))])
            continue
        for leaf in map(np.asarray, jax.tree.leaves(bucket)):
            summary.append([leaf.shape, f"{np.abs(leaf).mean(dtype=np.float64):.2e}"])
    return summary


@jax.jit
def _copy(tree: _Tree) -> _Tree:
    return jax.tree.map(jnp.copy, tree)
