"""What every experiment shares: a resumable training loop over a run folder."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.run_directory import (
    MetricsWriter,
    RunDirectory,
    open_run,
    print_result,
    read_metrics,
    stored_config,
)
from opjax import checkpoint, training

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


def num_steps(num_samples: int, settings: FitSettings) -> int:
    """Number of optimizer steps of a run, for `adamw_onecycle(total_steps=...)`."""
    return settings.num_epochs * (num_samples // settings.batch_size)


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
) -> FitResult:
    """Trains a model, or continues from the newest checkpoint of the run folder.

    A resumed run ends with the same bits as the uninterrupted one (on the same machine
    and software); only the seconds differ.

    Args:
      run: open run folder.
      model: any pytree, initialised from a fixed seed.
      loss: `loss(model, batch)`, as for `opjax.training.make_step`.
      metric: `metric(model, sample)`, a scalar to minimise, averaged over validation.
      train: pytree of arrays with samples along axis 0.
      validation: likewise; decides on the best model, so never the test set.
      optimizer: gradient transformation.
      settings: lengths and intervals.
      extra: pytree to save along, such as normalisers.

    Returns:
      The trained models and the history.

    Raises:
      opjax.training.NonFiniteError: at the first NaN or infinite loss or gradient.
      opjax.checkpoint.CheckpointError: if a checkpoint cannot be written.
      ValueError: if sizes do not match.
    """
    begin = time.monotonic()
    s, extra = settings, {} if extra is None else extra
    train, validation = jax.device_put((train, validation))
    samples = _num_samples("train", train)
    _num_samples("validation", validation)
    key = jax.random.fold_in(jax.random.key(s.seed), 1) if s.needs_key else None
    epoch_of = training.make_epoch(
        loss, optimizer, key=key, on_device_scan=s.on_device_scan
    )
    per_epoch = len(training.sample_order(s.seed, 0, samples, s.batch_size))
    per_call = s.steps_per_call or per_epoch
    total = s.num_epochs * per_epoch

    state = training.init(model, optimizer)
    progress: dict[str, Any] = {
        "state": state,
        "best_model": _copy(state.model),
        "best_metric": np.float64(np.inf),
        "best_step": 0,
        "losses": np.zeros(per_epoch),
        "norms": np.zeros(per_epoch),
        "seconds": 0.0,
        "extra": extra,
    }
    found = checkpoint.restore(run.checkpoints, progress)
    saved, rows = None, 0
    if found is not None:
        progress, saved, rows = found.payload, found.step, found.metadata["rows"]
        print(f"Continuing from {found.path}.", file=sys.stderr)
    state, earlier = progress["state"], progress["seconds"]
    writer = MetricsWriter(run, rows=rows, tensorboard=s.tensorboard)

    def seconds() -> float:
        return earlier + time.monotonic() - begin

    def save() -> None:
        nonlocal saved, saved_at
        at = int(progress["state"].step)
        if at != saved:
            progress["seconds"] = seconds()
            metadata = {"config": run.config, "rows": writer.rows, "step": at}
            metadata |= {"epoch": at // per_epoch, "batch": at % per_epoch}
            checkpoint.save(
                run.checkpoints, at, progress, metadata=metadata, keep=s.keep
            )
            saved = at
        saved_at = time.monotonic()

    step, saved_at = int(state.step), time.monotonic()
    with contextlib.closing(writer), _Progress(total, step) as bar:
        while step < total:
            epoch, first = divmod(step, per_epoch)
            order = training.sample_order(s.seed, epoch, samples, s.batch_size)
            # Calls start at multiples of `per_call`, so a resumed run makes the same.
            rows_now = order[first : first + per_call]
            state, history = epoch_of(state, train, rows_now)
            progress["state"] = state
            bad = training.first_non_finite(history)
            if bad is not None:
                value = float(history["loss"][bad])
                norm = float(history["gradient_norm"][bad])
                last = (
                    f"{run.checkpoints}/step_{saved:010d}"
                    if saved is not None
                    else None
                )
                raise training.NonFiniteError(
                    f"Step {step + bad} (epoch {epoch}) has loss {value} and "
                    f"gradient norm {norm}; its batch holds the training samples "
                    f"{np.asarray(rows_now[bad]).tolist()}. Last good checkpoint: "
                    f"{last or 'none yet'}. Continuing would meet the same batch: "
                    "check those samples, lower the learning rate or clip the "
                    "gradient, in another --workdir."
                )
            done = slice(first, first + len(rows_now))
            progress["losses"][done] = np.asarray(history["loss"])
            progress["norms"][done] = np.asarray(history["gradient_norm"])
            step += len(rows_now)
            ended, epochs = step % per_epoch == 0, step // per_epoch
            if ended and (epochs % s.eval_every == 0 or step == total):
                values = training.evaluate(
                    metric,
                    state.model,
                    validation,
                    batch_size=s.eval_batch_size or s.batch_size,
                )
                value = float(np.mean(np.asarray(values, np.float64)))
                if value < progress["best_metric"]:
                    progress["best_metric"] = np.float64(value)
                    progress["best_step"] = step
                    progress["best_model"] = _copy(state.model)
                row: dict[str, Any] = {"epoch": epochs, "step": step}
                rate = optax.tree.get(state.optimizer_state, "learning_rate")
                row |= {} if rate is None else {"learning_rate": float(rate)}
                row["train_loss"] = float(np.mean(progress["losses"]))
                row["grad_norm"] = float(np.mean(progress["norms"]))
                row |= {"validation": value, "seconds": seconds()}
                writer.write(row)
                bar.report(row)
            bar.update(step)
            due = ended and epochs % s.checkpoint_every == 0
            old = time.monotonic() - saved_at > s.checkpoint_seconds
            if due or old or step == total:
                save()
    return FitResult(
        state.model,
        progress["best_model"],
        float(progress["best_metric"]),
        progress["best_step"],
        progress["extra"],
        read_metrics(run.path),
        seconds(),
    )


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
