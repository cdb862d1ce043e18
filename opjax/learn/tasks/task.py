"""What is to be learned: samples, model, loss and evaluation.

There are two kinds: `Task`, on training samples that are there before the training,
and `FreshTask`, on samples that are drawn anew for every step.
"""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, Protocol

import jax
import optax
from flax import nnx
from jax.sharding import Mesh

from opjax import training
from opjax.learn.run import buckets
from opjax.learn.run.settings import Settings
from opjax.learn.tasks.compared import Compared
from opjax.training import Gradient
from opjax.training.replicas import Replicas


class MemberOptions(Protocol):
    """What the training of every member is told, see `RunOptions`."""

    @property
    def seed(self) -> int:
        """Seed of the parameters and of the sample order."""
        ...

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        ...


class EpochOptions(MemberOptions, Protocol):
    """What the training in epochs is told, see `TrainingOptions`."""

    @property
    def num_epochs(self) -> int:
        """Passes over the training samples."""
        ...

    @property
    def train_points(self) -> tuple[float, ...]:
        """Shares of the points that a step sees, of equal parts of the epochs."""
        ...

    @property
    def microbatch(self) -> int:
        """Samples differentiated at once; zero for the default."""
        ...

    @property
    def eval_every(self) -> int:
        """Epochs between validations."""
        ...

    @property
    def checkpoint_every(self) -> int:
        """Epochs between checkpoints."""
        ...

    def make_optimizer(self, total_steps: int) -> optax.GradientTransformation:
        """Returns the rule of the updates."""
        ...


class FreshOptions(MemberOptions, Protocol):
    """What the training on fresh samples is told, see `StepOptions`."""

    @property
    def num_steps(self) -> int:
        """Optimizer steps."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaseTask(abc.ABC):
    """What both kinds of task have.

    Attributes:
      build: `build(config, rngs)`, the model of a member's configuration.
      evaluate: `evaluate(model, folder)`, numbers of the test samples, the headline
        first; may leave files in the folder of the member.
      metric: `metric(model, sample)`, to be minimised on validation samples; without,
        the model after the last step is taken.
      validation: arrays or `buckets.Bucket`, as `Task.train`; chooses the model. Empty:
        that of the last epoch.
      test: the same, for the test set; used once.
      extra: pytree saved with the model, such as normalisers.
      source: where the samples come from.
      needs_key: whether the loss draws random numbers.
      notes: sentences for the head of the tables.
      optimizer: `optimizer(config, total_steps)` in place of `config.make_optimizer`.
      probe: `probe(model)`, further numbers for the rows of the history; the last ones
        are numbers of the member.
      over_batch: whether the loss is a sum over samples, along axis 0 of the arrays of
        a batch, so that devices may share them.
      over_points: whether loss and metric take `axis_name=`, the axis of devices over
        which points of a sample are split.
      row: points of a sample that are on one device, those of a row of the grid.
      mean: whether the loss is the mean over the samples of a batch already. A sum is
        divided by their number where it is shown.
      diverge: whether a training that diverges is a result rather than an error.
      fields: keys of the fields whose numbers tables show apart, see
        `field_errors.keys`.
      baselines: measures predictions without an operator on the test set, where tables
        have them.
    """

    build: Callable[[Any, nnx.Rngs], Any] | None = None
    evaluate: Callable[[Any, pathlib.Path], dict[str, Any]] | None = None
    metric: Callable[..., Any] | None = None
    validation: tuple[Any, ...] = ()
    test: tuple[Any, ...] = ()
    extra: Any = None
    source: str = ""
    needs_key: bool = False
    notes: str = ""
    optimizer: Callable[..., optax.GradientTransformation] | None = None
    probe: Callable[[Any], dict[str, Any]] | None = None
    over_batch: bool = True
    over_points: bool = False
    row: int = 1
    mean: bool = False
    diverge: bool = False
    fields: tuple[str, ...] = ()
    baselines: Callable[[], Compared] | None = None

    @property
    @abc.abstractmethod
    def value_and_grad(self) -> Gradient:
        """What a training asks for: loss and gradients of a batch.

        `value_and_grad(model, batch, key=None) -> ((value, numbers), gradients)`, with
        a key if `needs_key`.
        """

    @property
    @abc.abstractmethod
    def known(self) -> tuple[Any, ...]:
        """Training samples that are there before the training, in buckets."""

    @property
    @abc.abstractmethod
    def keeps_losses(self) -> bool:
        """Whether the losses of all steps are results."""

    @abc.abstractmethod
    def settings(
        self, config: Any, *, tensorboard: bool = False, mesh: Mesh | None = None
    ) -> Settings:
        """Returns how a member is trained.

        Args:
          config: of the member.
          tensorboard: write TensorBoard files too.
          mesh: devices that share samples and points.
        """

    @property
    def num_train(self) -> int:
        """Training samples; zero if they are drawn anew."""
        return sum(buckets.num_samples("train", bucket) for bucket in self.known)

    @property
    def num_validation(self) -> int:
        """Validation samples."""
        found = self.validation
        return sum(buckets.num_samples("validation", bucket) for bucket in found)

    @property
    def num_test(self) -> int:
        """Test samples."""
        return sum(buckets.num_samples("test", bucket) for bucket in self.test)


# The same function for the same loss, so that members of a study share their programs.
_gradient = functools.lru_cache(maxsize=4)(training.value_and_grad)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossTask(BaseTask):
    """What is to be learned by a loss of arrays, which JAX differentiates.

    Attributes:
      loss: `loss(model, batch)`, a sum over the samples of the batch; takes `key=` if
        `needs_key`.
    """

    loss: Callable[..., Any]

    @property
    def value_and_grad(self) -> Gradient:
        """Loss and gradients of a batch, the same function for the same loss."""
        return _gradient(self.loss)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task(LossTask):
    """What is to be learned from samples that are there before the training.

    Attributes:
      train: pytrees of arrays with samples along axis 0, one for every size of mesh, as
        from `samples.stack`, or `buckets.Bucket` of samples in files.
      earlier: the same samples in other shapes, as earlier stages of the training see
        them, such as fewer unrolled steps. Every stage, with `train` as the last one,
        has an equal share of the epochs.
      scan: one `lax.scan` for an epoch rather than one dispatch for each step; faster
        where steps are short.
      draws_points: whether the loss may be that of some points of the samples, see
        `run.points`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax import learn
      >>> def loss(model, batch):
      ...     return jnp.sum((model["slope"] * batch["x"] - batch["y"]) ** 2)
      >>> data = {"x": jnp.ones(4), "y": 2 * jnp.ones(4)}
      >>> task = learn.Task(loss=loss, train=(data,), source="a line")
      >>> task.num_train, task.num_validation
      (4, 0)
    """

    train: tuple[Any, ...]
    earlier: tuple[tuple[Any, ...], ...] = ()
    scan: bool = False
    draws_points: bool = False

    @property
    def known(self) -> tuple[Any, ...]:
        """The training samples."""
        return self.train

    @property
    def keeps_losses(self) -> bool:
        """No: rows of the history have their means."""
        return False

    def settings(
        self,
        config: EpochOptions,
        *,
        tensorboard: bool = False,
        mesh: Mesh | None = None,
    ) -> Settings:
        """Returns how a member is trained, see `BaseTask.settings`.

        Raises:
          ValueError: if steps are to see some of the points, and the task has no such.
        """
        shares = getattr(config, "train_points", (1.0,))
        if set(shares) != {1.0} and not self.draws_points:
            raise ValueError(
                f"train_points={','.join(map(str, shares))} has no effect on this "
                "program, whose loss needs all points; omit it."
            )
        own = self.optimizer
        on_cpu = jax.default_backend() == "cpu"
        return Settings(
            num_epochs=self._num_epochs(config),
            batch_size=config.batch_size,
            seed=config.seed,
            optimizer=functools.partial(own, config) if own else config.make_optimizer,
            eval_every=config.eval_every,
            checkpoint_every=config.checkpoint_every,
            # Long epochs look at the clock, for checkpoints, and at NaN within.
            steps_per_call=None if self.scan else 256,
            scan=self.scan,
            microbatch=config.microbatch or (1 if on_cpu else None),
            tensorboard=tensorboard,
            train_points=shares,
            full_points=getattr(config, "full_points", 0.0),
            mesh=mesh,
        )

    def _num_epochs(self, config: EpochOptions) -> int:
        """Epochs of a configuration, which may count steps instead."""
        steps = getattr(config, "num_steps", 0)
        if not steps:
            return config.num_epochs
        sizes = [buckets.num_samples("train", bucket) for bucket in self.train]
        of_epoch = sum(size // config.batch_size for size in sizes)
        return max(1, round(steps / max(1, of_epoch)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FreshTask(LossTask):
    """What is to be learned from samples that are drawn anew for every step.

    Attributes:
      draw: `draw(key, step)`, a batch; pure.
      replicas: of the model that `build` returns, if it is several, stacked; then
        `optimizer(config, total_steps, hyper)` is that of one of them.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax import learn
      >>> def draw(key, step):
      ...     return {"x": jax.random.normal(key, (4,))}
      >>> def loss(model, batch):
      ...     return jnp.sum((model["slope"] * batch["x"] - 2 * batch["x"]) ** 2)
      >>> task = learn.FreshTask(loss=loss, draw=draw)
      >>> task.draw(jax.random.key(0), 0)["x"].shape, task.num_train
      ((4,), 0)
    """

    mean: bool = True
    draw: Callable[[jax.Array, jax.Array], Any]
    replicas: Replicas | None = None

    @property
    def known(self) -> tuple[Any, ...]:
        """None."""
        return ()

    @property
    def keeps_losses(self) -> bool:
        """Yes, and whether every replica was finite."""
        return True

    def settings(
        self,
        config: FreshOptions,
        *,
        tensorboard: bool = False,
        mesh: Mesh | None = None,
    ) -> Settings:
        """Returns how a member is trained, see `BaseTask.settings`.

        Raises:
          ValueError: if the task has no optimizer.
        """
        if self.optimizer is None:
            raise ValueError("A FreshTask needs an optimizer to be trained by options.")
        return Settings(
            num_steps=config.num_steps,
            batch_size=config.batch_size,
            seed=config.seed,
            optimizer=functools.partial(self.optimizer, config),
            checkpoint_every=10**9,  # by the clock
            checkpoint_seconds=60.0,
            tensorboard=tensorboard,
            mesh=mesh,
        )
