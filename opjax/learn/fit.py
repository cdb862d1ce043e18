"""What every experiment shares: a resumable training loop over a run folder."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from opjax import checkpoint, training
from opjax.learn.folder import (
    MetricsWriter,
    RunDirectory,
    open_run,
    print_result,
    read_metrics,
    run_once,
    stored_config,
)

__all__ = [
    "FitResult",
    "FitSettings",
    "MetricsWriter",
    "RunDirectory",
    "fit",
    "num_steps",
    "open_run",
    "print_result",
    "read_metrics",
    "run_once",
    "stored_config",
]


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """How long to train and how often to look.

    Attributes:
      num_epochs: passes over the training samples.
      batch_size: samples in a batch.
      seed: seed of the sample order and of dropout.
      eval_every: epochs between validations; the last epoch is always validated.
      eval_batch_size: samples validated at once; `batch_size` if None.
      checkpoint_every: epochs between checkpoints; the last epoch is always saved.
      checkpoint_seconds: save also when the last checkpoint is older than this.
      steps_per_call: batches between looks at the clock and at NaN; None for a whole
        epoch.
      keep: number of latest checkpoints to keep.
      on_device_scan: see `opjax.training.make_epoch`.
      microbatch: see `opjax.training.make_step`.
      needs_key: whether the loss takes `key=`, for dropout.
      tensorboard: write TensorBoard files besides metrics.jsonl.
    """

    num_epochs: int
    batch_size: int
    seed: int = 0
    eval_every: int = 1
    eval_batch_size: int | None = None
    checkpoint_every: int = 10
    checkpoint_seconds: float = 120.0
    steps_per_call: int | None = None
    keep: int = 2
    on_device_scan: bool = True
    microbatch: int | None = None
    needs_key: bool = False
    tensorboard: bool = False


class FitResult(NamedTuple):
    """A finished run.

    Attributes:
      model: after the last step.
      best_model: with the smallest validation metric.
      best_metric: that metric.
      best_step: the step it was reached at.
      extra: what was passed as `extra`, from the checkpoint if the run was resumed.
      history: rows of metrics.jsonl.
      seconds: time spent training, validating and saving, over all resumed parts.
    """

    model: Any
    best_model: Any
    best_metric: float
    best_step: int
    extra: Any
    history: list[dict[str, Any]]
    seconds: float


def num_steps(num_samples: int | Sequence[int], settings: FitSettings) -> int:
    """Number of optimizer steps of a run, for `adamw_onecycle(total_steps=...)`.

    Args:
      num_samples: training samples; of every bucket, if there are several.
      settings: as for `fit`.
    """
    sizes = [num_samples] if isinstance(num_samples, int) else num_samples
    return settings.num_epochs * sum(n // settings.batch_size for n in sizes)


def fit(
    run: RunDirectory,
    *,
    model: Any,
    loss: Callable[..., Any],
    metric: Callable[[Any, Any], Any],
    train: Any,
    validation: Any,
    optimizer: optax.GradientTransformation,
    settings: FitSettings,
    extra: Any = None,
    probe: Callable[[Any], dict[str, Any]] | None = None,
) -> FitResult:
    """Trains a model, or continues from the newest checkpoint of the run folder.

    A resumed run ends with the same bits as the uninterrupted one (on the same machine
    and software); only the seconds differ.

    Args:
      run: open run folder.
      model: any pytree, initialised from a fixed seed.
      loss: `loss(model, batch)`, as for `opjax.training.make_step`.
      metric: `metric(model, sample)`, a scalar to minimise, averaged over validation.
      train: pytree of arrays with samples along axis 0, or a tuple of such pytrees,
        buckets of different shapes as from `opjax.datasets.samples.stack`. Each is
        compiled for once; a batch holds samples of one bucket.
      validation: likewise; decides on the best model, so never the test set.
      optimizer: gradient transformation.
      settings: lengths and intervals.
      extra: pytree to save along, such as normalisers.
      probe: `probe(model)`, further numbers for the rows of the history.

    Returns:
      The trained models and the history.

    Raises:
      opjax.training.NonFiniteError: at the first NaN or infinite loss, gradient or
        validation metric.
      opjax.checkpoint.CheckpointError: if a checkpoint cannot be written.
      ValueError: if sizes do not match.
    """
    loop = _Loop(run, settings, loss, metric, optimizer, train, validation, probe)
    loop.start(training.init(model, optimizer), {} if extra is None else extra)
    with contextlib.closing(loop.writer), _Progress(loop.total, loop.step) as bar:
        while loop.step < loop.total:
            loop.advance()
            row = loop.validate_if_due()
            if row is not None:
                loop.writer.write(row)
                bar.report(row)
            bar.update(loop.step)
            loop.save_if_due()
    progress = loop.progress
    return FitResult(
        progress["state"].model,
        progress["best_model"],
        float(progress["best_metric"]),
        progress["best_step"],
        progress["extra"],
        read_metrics(run.path),
        loop.seconds(),
    )


class _Loop:
    """The state of a run between batches, and what `fit` does with it.

    `progress` is what a checkpoint holds: all that the rest of the run depends on.
    """

    def __init__(
        self, run, settings, loss, metric, optimizer, train, validation, probe=None
    ):
        self.run, self.settings, self.metric = run, settings, metric
        self.probe = None if probe is None else jax.jit(probe)
        self.train = jax.device_put(_buckets(train))
        self.validation = jax.device_put(_buckets(validation))
        self.samples = [_num_samples("train", bucket) for bucket in self.train]
        for bucket in self.validation:
            _num_samples("validation", bucket)
        key = jax.random.key(settings.seed)
        self.epoch = training.make_epoch(
            loss,
            optimizer,
            key=jax.random.fold_in(key, 1) if settings.needs_key else None,
            microbatch=settings.microbatch,
            on_device_scan=settings.on_device_scan,
        )
        self.per_epoch = len(self._order(0)[0])
        self.per_call = settings.steps_per_call or self.per_epoch
        self.total = settings.num_epochs * self.per_epoch

    def start(self, state: training.TrainState, extra: Any) -> None:
        """Begins at step zero or at the newest checkpoint."""
        self.progress: dict[str, Any] = {
            "state": state,
            "best_model": _copy(state.model),
            "best_metric": np.float64(np.inf),
            "best_step": 0,
            "losses": np.zeros(self.per_epoch),
            "norms": np.zeros(self.per_epoch),
            "seconds": 0.0,
            "extra": extra,
        }
        found = checkpoint.restore(self.run.checkpoints, self.progress)
        self.saved, rows = None, 0
        if found is not None:
            self.progress = found.payload
            self.saved, rows = found.step, found.metadata["rows"]
            print(f"Continuing from {found.path}.", file=sys.stderr)
        self.writer = MetricsWriter(
            self.run, rows=rows, tensorboard=self.settings.tensorboard
        )
        self.step = int(self.progress["state"].step)
        self.begin = self.saved_at = time.monotonic()
        self.earlier = self.progress["seconds"]

    def seconds(self) -> float:
        """Time spent in this and earlier parts of the run."""
        return self.earlier + time.monotonic() - self.begin

    def advance(self) -> None:
        """Trains on the next batches, at most to the end of the epoch."""
        first = self.step % self.per_epoch
        # Calls start at multiples of `per_call`, so a resumed run makes the same.
        buckets, batches = self._order(self.step // self.per_epoch)
        now = slice(first, first + self.per_call)
        buckets, batches = np.asarray(buckets[now]), batches[now]
        history = self._update(buckets, batches)
        bad = training.first_non_finite(history)
        if bad is not None:
            self._refuse(bad, buckets[bad], batches[bad], history)
        done = slice(first, first + len(batches))
        self.progress["losses"][done] = np.asarray(history["loss"])
        self.progress["norms"][done] = np.asarray(history["gradient_norm"])
        self.step += len(batches)

    def _update(self, buckets: np.ndarray, batches: Any) -> dict[str, Any]:
        """Updates the state by the batches; stops at one that is not finite."""
        if len(self.train) == 1:
            state, history = self.epoch(self.progress["state"], self.train[0], batches)
            self.progress["state"] = state
            return history
        parts = []
        for bucket, rows in zip(buckets, batches, strict=True):
            state, part = self.epoch(
                self.progress["state"], self.train[bucket], rows[None]
            )
            self.progress["state"] = state
            parts.append(part)
        # Looked at once for all batches: waiting for each would cost as much as small
        # steps do. After a refused update the next ones are of no use, nor kept.
        return jax.tree.map(lambda *values: np.concatenate(values), *parts)

    def validate_if_due(self) -> dict[str, Any] | None:
        """Validates at the end of an epoch; returns the row of metrics."""
        epochs, within = divmod(self.step, self.per_epoch)
        last = self.step == self.total
        if within or (epochs % self.settings.eval_every and not last):
            return None
        progress, model = self.progress, self.progress["state"].model
        size = self.settings.eval_batch_size or self.settings.batch_size
        found = [
            training.evaluate(self.metric, model, bucket, batch_size=size)
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
        row: dict[str, Any] = {"epoch": epochs, "step": self.step}
        rate = optax.tree.get(progress["state"].optimizer_state, "learning_rate")
        row |= {} if rate is None else {"learning_rate": float(rate)}
        row["train_loss"] = float(np.mean(progress["losses"]))
        row["grad_norm"] = float(np.mean(progress["norms"]))
        if self.probe is not None:
            row |= {name: float(v) for name, v in self.probe(model).items()}
        return row | {"validation": value, "seconds": self.seconds()}

    def save_if_due(self) -> None:
        """Saves after the last step, at the end of some epochs, and by the clock."""
        epochs, within = divmod(self.step, self.per_epoch)
        due = not within and epochs % self.settings.checkpoint_every == 0
        age = time.monotonic() - self.saved_at
        old = age > self.settings.checkpoint_seconds
        if not (due or old or self.step == self.total):
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

    def _order(self, epoch: int) -> tuple[Any, Any]:
        return training.bucket_order(
            self.settings.seed, epoch, self.samples, self.settings.batch_size
        )

    def _refuse(
        self, bad: int, bucket: int, samples: Any, history: dict[str, Any]
    ) -> None:
        which = f" of bucket {bucket}" if len(self.train) > 1 else ""
        raise training.NonFiniteError(
            f"Step {self.step + bad} (epoch {self.step // self.per_epoch}) has loss "
            f"{float(history['loss'][bad])} and gradient norm "
            f"{float(history['gradient_norm'][bad])}; its batch holds the training "
            f"samples {np.asarray(samples).tolist()}{which}. {self._last_checkpoint()} "
            "Continuing would meet the same batch: check those samples, lower the "
            "learning rate or clip the gradient, in another --workdir."
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


class _Progress:
    """A bar on a terminal, one line per report elsewhere; both on stderr."""

    def __init__(self, total: int, step: int):
        self._bar, self._total = None, total
        if sys.stderr.isatty():
            with contextlib.suppress(ImportError):
                import tqdm

                self._bar = tqdm.tqdm(total=total, initial=step, unit="step")

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self, step: int) -> None:
        if self._bar is not None:
            self._bar.update(step - self._bar.n)

    def report(self, row: dict[str, Any]) -> None:
        text = f"loss {row['train_loss']:.4g} validation {row['validation']:.4g}"
        if self._bar is not None:
            self._bar.set_postfix_str(text)
        else:
            place = f"epoch {row['epoch']} step {row['step']}/{self._total}"
            print(
                f"{place} {text} ({row['seconds']:.0f} s)", file=sys.stderr, flush=True
            )


def _buckets(data: Any) -> tuple[Any, ...]:
    return data if type(data) is tuple else (data,)


def _num_samples(name: str, data: Any) -> int:
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} hold {sorted(lengths)} samples along axis 0; all "
            "must hold the same positive number."
        )
    return lengths.pop()


def _copy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.copy(), tree)
