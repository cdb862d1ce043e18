"""What `fit` does between batches: validation, best model, checkpoints, errors."""

import sys
import time
from typing import Any

import jax
import numpy as np
import optax

from opjax import checkpoint, training
from opjax.learn import batches
from opjax.learn.folder import RunDirectory
from opjax.learn.metrics_file import MetricsWriter


class Loop:
    """The state of a run between batches, and what `fit` does with it.

    `progress` is what a checkpoint holds: all that the rest of the run depends on.
    """

    def __init__(self, run: RunDirectory, task: Any, settings: Any):
        self.run, self.task, self.settings = run, task, settings
        self.batches = batches.make(task, settings)
        self.fresh = callable(task.train)
        self.validation: tuple[Any, ...] = ()
        if task.metric is not None:
            self.validation = jax.device_put(batches.buckets(task.validation))
        for bucket in self.validation:
            batches.num_samples("validation", bucket)
        if self.validation and task.replicas is not None:
            raise ValueError("Replicas are not validated; leave out the task's metric.")
        self.probe = None if task.probe is None else jax.jit(task.probe)

    def start(self, model: Any) -> None:
        """Begins at step zero or at the newest checkpoint."""
        state = self.batches.start(model)
        length = self.batches.total if self.fresh else self.batches.per_epoch
        kind = np.float32 if self.fresh else np.float64
        shape = (*self.batches.shape, length)
        self.progress: dict[str, Any] = {
            "state": state,
            "best_model": _copy(state.model) if self.validation else (),
            "best_metric": np.float64(np.inf),
            "best_step": 0,
            "losses": np.full(shape, np.nan if self.fresh else 0, kind),
            "norms": np.full(shape, np.nan if self.fresh else 0, kind),
            "seconds": 0.0,
            "extra": {} if self.task.extra is None else self.task.extra,
        }
        if self.fresh:
            self.progress["good"] = np.ones(self.batches.shape, bool)
        found = checkpoint.restore(self.run.checkpoints, self.progress)
        self.saved, rows = None, 0
        if found is not None:
            self.progress = found.payload
            self.saved, rows = found.step, found.metadata["rows"]
            print(f"Continuing from {found.path}.", file=sys.stderr)
        self.step = 0 if found is None else found.step
        self.batches.prepare(self.progress["state"], self.step)
        self.writer = MetricsWriter(
            self.run, rows=rows, tensorboard=self.settings.tensorboard
        )
        self.first, self.earlier = self.step, self.progress["seconds"]
        self.begin = self.saved_at = time.monotonic()

    def seconds(self) -> float:
        """Time spent in this and earlier parts of the run."""
        return self.earlier + time.monotonic() - self.begin

    def advance(self) -> None:
        """Trains on the next batches, at most to the end of the epoch."""
        state, history = self.batches.advance(
            self.progress["state"], self.step, self.progress.get("good")
        )
        self.progress["state"] = state
        finite = np.asarray(history["finite"])
        if not self.batches.shape:
            if not finite.all():
                self._refuse(int(np.argmin(finite)), history)
        else:
            self.progress["good"] = self.progress["good"] & finite.all(axis=-1)
            if not self.progress["good"].any():
                self._refuse_all()
        count = finite.shape[-1]
        first = self.step if self.fresh else self.step % self.batches.per_epoch
        done = (..., slice(first, first + count))
        self.progress["losses"][done] = np.asarray(history["loss"])
        self.progress["norms"][done] = np.asarray(history["gradient_norm"])
        self.step += count

    def look_if_due(self) -> dict[str, Any] | None:
        """Validates at the end of an epoch; returns the row of metrics."""
        epochs, within = divmod(self.step, self.batches.per_epoch)
        last = self.step == self.batches.total
        if (within and not last) or (epochs % self.settings.eval_every and not last):
            return None
        epochs += bool(within)
        progress = self.progress
        row: dict[str, Any] = {"epoch": epochs, "step": self.step}
        value = self._validate(epochs) if self.validation else None
        if not self.batches.shape:
            state = progress["state"]
            rate = optax.tree.get(state.optimizer_state, "learning_rate")
            row |= {} if rate is None else {"learning_rate": float(rate)}
        row["train_loss"] = self._mean(progress["losses"])
        row["grad_norm"] = self._mean(progress["norms"])
        if self.batches.shape:
            row["diverged"] = int(np.count_nonzero(~progress["good"]))
        if self.probe is not None:
            found = self.probe(progress["state"].model)
            row |= {name: float(v) for name, v in found.items()}
        row |= {} if value is None else {"validation": value}
        return row | {"seconds": self.seconds()}

    def left(self) -> float:
        """Seconds that the rest is going to take, at the pace of this process."""
        pace = (time.monotonic() - self.begin) / (self.step - self.first)
        return pace * (self.batches.total - self.step)

    def _mean(self, values: np.ndarray) -> float:
        """The mean over the steps of the epoch, and over the replicas that go on."""
        if not self.fresh:
            return float(np.mean(values))
        begin = (self.step - 1) // self.batches.per_epoch * self.batches.per_epoch
        values = values[..., begin : self.step]
        return float(np.mean(values[self.progress["good"]]))

    def _validate(self, epochs: int) -> float:
        """The mean metric of the validation samples; keeps the best model."""
        progress, model = self.progress, self.progress["state"].model
        size = self.settings.eval_batch_size or self.settings.batch_size
        found = [
            training.evaluate(self.task.metric, model, bucket, batch_size=size)
            for bucket in self.validation
        ]
        values = np.concatenate([np.asarray(part, np.float64) for part in found])
        if not np.isfinite(values).all():
            self._refuse_validation(np.flatnonzero(~np.isfinite(values)), epochs)
        value = float(np.mean(values))
        if value < progress["best_metric"]:
            progress["best_metric"] = np.float64(value)
            progress["best_step"] = self.step
            progress["best_model"] = _copy(model)
        return value

    def save_if_due(self, *, now: bool = False) -> None:
        """Saves after the last step, after some epochs, by the clock, or now."""
        epochs, within = divmod(self.step, self.batches.per_epoch)
        due = not within and epochs % self.settings.checkpoint_every == 0
        age = time.monotonic() - self.saved_at
        old = age > self.settings.checkpoint_seconds
        if not (now or due or old or self.step == self.batches.total):
            return
        if self.step != self.saved:
            self.progress["seconds"] = self.seconds()
            metadata = {"config": self.run.config, "rows": self.writer.rows}
            metadata |= {"step": self.step, "epoch": epochs, "batch": within}
            checkpoint.save(
                self.run.checkpoints,
                self.step,
                self.progress,
                metadata=metadata,
                keep=self.settings.keep,
            )
            self.saved = self.step
        self.saved_at = time.monotonic()

    def _refuse(self, bad: int, history: dict[str, Any]) -> None:
        raise training.NonFiniteError(
            f"Step {self.step + bad} (epoch {self.step // self.batches.per_epoch}) has "
            f"loss {float(history['loss'][bad])} and gradient norm "
            f"{float(history['gradient_norm'][bad])}; "
            f"{self.batches.describe(self.step, bad)}. {self._last_checkpoint()} "
            "Continuing would meet the same batch: check those samples, lower the "
            "learning rate or clip the gradient, in another --workdir."
        )

    def _refuse_all(self) -> None:
        raise training.NonFiniteError(
            f"All {self.progress['good'].size} replicas have met a NaN or infinite "
            f"loss or gradient after step {self.step}. {self._last_checkpoint()} "
            "Lower the learning rates, in another --workdir."
        )

    def _refuse_validation(self, bad: np.ndarray, epoch: int) -> None:
        raise training.NonFiniteError(
            f"After step {self.step} (epoch {epoch}) the metric is NaN or infinite on "
            f"{bad.size} validation samples, first ones {bad[:8].tolist()}, though "
            f"training was finite. {self._last_checkpoint()} Continuing would end the "
            "same: check those samples, lower the learning rate or clip the gradient, "
            "in another --workdir."
        )

    def _last_checkpoint(self) -> str:
        if self.saved is None:
            return "Last good checkpoint: none yet."
        return f"Last good checkpoint: {self.run.checkpoints}/step_{self.saved:010d}."


def _copy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.copy(), tree)
