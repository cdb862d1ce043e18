"""Learning tasks: samples, model, loss and evaluation.

There are two kinds: `Task` uses a fixed set of training samples, and `FreshTask` draws
new samples in every step.
"""

import abc
import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

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
    """Options of the training of every member, see `RunOptions`."""

    @property
    def seed(self) -> int:
        """Seed of the parameters and of the sample order."""
        ...

    @property
    def batch_size(self) -> int:
        """Number of samples per batch."""
        ...


class EpochOptions(MemberOptions, Protocol):
    """Options of a training in epochs, see `TrainingOptions`."""

    @property
    def num_epochs(self) -> int:
        """Number of epochs."""
        ...

    @property
    def train_points(self) -> tuple[float, ...]:
        """Fractions of the points in a step, each for an equal part of the epochs."""
        ...

    @property
    def microbatch(self) -> int:
        """Number of samples differentiated at once; zero for the default."""
        ...

    @property
    def eval_every(self) -> int:
        """Number of epochs between validations."""
        ...

    @property
    def checkpoint_every(self) -> int:
        """Number of epochs between checkpoints."""
        ...

    def make_optimizer(self, total_steps: int) -> optax.GradientTransformation:
        """Returns the optimizer."""
        ...


class FreshOptions(MemberOptions, Protocol):
    """Options of a training on fresh samples, see `StepOptions`."""

    @property
    def num_steps(self) -> int:
        """Number of optimizer steps."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class BaseTask(abc.ABC):
    """Attributes of both kinds of task.

    Attributes:
      build: `build(config, rngs)` returns the model of a member's configuration.
      evaluate: `evaluate(model, folder)` returns the numbers of the test samples, with
        the most important first; may write files to the folder of the member.
      metric: `metric(model, sample)`, minimised on validation samples; without it, the
        model after the last step is selected.
      validation: arrays or `buckets.Bucket`, as for `Task.train`, which select the
        model. If empty, the model of the last epoch is selected.
      test: the same for the test set, which is used once.
      extra: pytree that is saved with the model, for example normalisers.
      source: origin of the samples.
      needs_key: whether the loss draws random numbers.
      notes: sentences for the head of the tables.
      optimizer: `optimizer(config, total_steps)`, which replaces
        `config.make_optimizer`.
      probe: `probe(model)` returns further numbers for the rows of the history; the
        last ones become numbers of the member.
      over_batch: whether the loss is a sum over samples, along axis 0 of the arrays of
        a batch, so that devices may share them.
      over_points: whether loss and metric take `axis_name=`, the axis of the devices
        over which the points of a sample are split.
      row: number of points that must stay on one device, such as the points of a grid
        row.
      mean: whether the loss is already the mean over the samples of a batch. A sum is
        divided by the number of samples for display.
      diverge: whether a diverging training is a result instead of an error.
      fields: keys of the fields with separate numbers in tables, see
        `field_errors.keys`.
      baselines: evaluates predictions without an operator on the test set, if tables
        show them.
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
    # Whether the losses of all steps, and which replicas were finite, are results.
    keeps_losses: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def value_and_grad(self) -> Gradient:
        """What a training asks for: loss and gradients of a batch.

        `value_and_grad(model, batch, key=None) -> ((value, numbers), gradients)`, with
        a key if `needs_key`.
        """

    @property
    def known(self) -> tuple[Any, ...]:
        """Fixed training samples, in buckets; none if they are not in memory."""
        return ()

    @abc.abstractmethod
    def _settings(self, config: Any) -> Settings:
        """The settings that depend on the configuration of a member."""

    def settings(
        self, config: Any, *, tensorboard: bool = False, mesh: Mesh | None = None
    ) -> Settings:
        """Returns the training settings of a member.

        Args:
          config: configuration of the member.
          tensorboard: also write TensorBoard files.
          mesh: devices that share samples and points.

        Raises:
          ValueError: if the task does not support the configuration: it has no
            optimizer, or steps should use a subset of the points.
        """
        settings = self._settings(config)
        return dataclasses.replace(settings, tensorboard=tensorboard, mesh=mesh)

    @property
    def num_train(self) -> int:
        """Number of training samples; zero if they are drawn anew."""
        return sum(buckets.num_samples("train", bucket) for bucket in self.known)

    @property
    def num_validation(self) -> int:
        """Number of validation samples."""
        parts = self.validation
        return sum(buckets.num_samples("validation", bucket) for bucket in parts)

    @property
    def num_test(self) -> int:
        """Number of test samples."""
        return sum(buckets.num_samples("test", bucket) for bucket in self.test)


# The same function for the same loss, so that members of a study share their programs.
_gradient = functools.lru_cache(maxsize=4)(training.value_and_grad)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LossTask(BaseTask):
    """A task with a loss of arrays, which JAX differentiates.

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
    """A task with a fixed set of training samples.

    Attributes:
      train: pytrees of arrays with samples along axis 0, one pytree per mesh size, from
        `samples.stack`; or `buckets.Bucket` of samples in files.
      earlier: the same samples in other shapes, for earlier stages of the training,
        such as fewer unrolled steps. Each stage has an equal part of the epochs;
        `train` is the last stage.
      scan: run an epoch in one `lax.scan` instead of dispatching each step, which is
        faster if steps are short.
      draws_points: whether the loss can be computed on a subset of the points, see
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

    def _settings(self, config: EpochOptions) -> Settings:
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
            train_points=shares,
            full_points=getattr(config, "full_points", 0.0),
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
    """A task whose samples are drawn anew in every step.

    Attributes:
      draw: `draw(key, step)` returns a batch; a pure function.
      replicas: number of replicas, if `build` returns several stacked models; then
        `optimizer(config, total_steps, hyper)` is the optimizer of one of them.

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
    keeps_losses: ClassVar[bool] = True

    def _settings(self, config: FreshOptions) -> Settings:
        if self.optimizer is None:
            raise ValueError("A FreshTask needs an optimizer to be trained by options.")
        return Settings(
            num_steps=config.num_steps,
            batch_size=config.batch_size,
            seed=config.seed,
            optimizer=functools.partial(self.optimizer, config),
            checkpoint_every=10**9,  # by the clock
            checkpoint_seconds=60.0,
        )
