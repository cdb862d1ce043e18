"""How long and how to train: the settings of `fit`."""

import dataclasses
from collections.abc import Callable

import optax
from jax.sharding import Mesh

from opjax import training


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
      steps_per_call: batches between looks at the clock and at NaN, and so between
        possible checkpoints. None for a whole epoch of up to 64 steps, and for 9 to 16
        steps of a longer one. Batches drawn anew have epochs of so many steps, 200 if
        None.
      keep: number of latest checkpoints to keep.
      scan: one `lax.scan` for all steps of a call, or one dispatch for each; see
        `opjax.training.make_epoch`.
      microbatch: see `opjax.training.make_step`.
      tensorboard: write TensorBoard files besides metrics.jsonl.
      train_points: shares of the points of a sample that a step sees, or numbers of
        points above 1, each for an equal part of the epochs, see `points.drawn`.
      full_points: share of the epochs, at the end, that see all points.
      mesh: devices that share samples and points, see `opjax.training.make_step`.

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
