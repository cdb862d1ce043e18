"""Settings of `fit`: the length of the training, its optimizer and its intervals."""

import dataclasses
from collections.abc import Callable

import optax
from jax.sharding import Mesh

from opjax import training


def _adamw(total_steps: int) -> optax.GradientTransformation:
    return training.adamw_onecycle(1e-3, total_steps, weight_decay=1e-5, clip_norm=1.0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of a training run.

    Attributes:
      num_epochs: number of epochs.
      num_steps: number of optimizer steps, instead of epochs, if every batch is drawn
        anew.
      batch_size: number of samples per batch.
      seed: seed of the sample order and of dropout.
      optimizer: `optimizer(total_steps)` returns a gradient transformation; with
        replicas `optimizer(total_steps, hyper)` returns that of one replica.
      eval_every: epochs between validations; the last epoch is always validated.
      checkpoint_every: epochs between checkpoints; the last epoch is always saved.
      checkpoint_seconds: also save if the last checkpoint is older than this.
      steps_per_call: number of steps between checks for time limits and NaN, and so
        between possible checkpoints. None stands for a whole epoch of up to 64 steps,
        and for 9 to 16 steps in a longer epoch. If batches are drawn anew, it is the
        length of an epoch, 200 if None.
      keep: number of latest checkpoints to keep.
      scan: run all steps of a call in one `lax.scan`, or dispatch each step; see
        `opjax.training.make_epoch`.
      microbatch: see `opjax.training.make_step`.
      tensorboard: also write TensorBoard files.
      train_points: fractions of the points of a sample used in a step, or numbers of
        points if above 1, each for an equal part of the epochs, see `points.drawn`.
      full_points: fraction of the epochs, at the end, that use all points.
      mesh: device mesh that shares samples and points, see `opjax.training.make_step`.

    Examples:
      >>> from opjax import learn, training
      >>> def optimizer(total_steps):
      ...     return training.adamw_onecycle(1e-3, total_steps, weight_decay=1e-5)
      >>> settings = learn.Settings(num_epochs=10, batch_size=4, optimizer=optimizer)
      >>> settings.checkpoint_every
      10
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
    train_points: tuple[float, ...] = (1.0,)
    full_points: float = 0.0
    mesh: Mesh | None = None
