"""Batch sources of a training, and their updates.

Every kind defines the number of steps per epoch, creates the initial state, and
advances it by some steps. The batches depend only on the step number, so a resumed run
uses the same batches.
"""

import abc
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from opjax import training
from opjax._trees import Batch, Model, PyTree
from opjax.learn.messages import say
from opjax.learn.run import buckets, hosts, points, stages
from opjax.learn.run.buckets import Bucket
from opjax.learn.run.progress import Progress
from opjax.learn.run.settings import Settings
from opjax.learn.tasks.task import FreshTask, Task
from opjax.samples.sliced import Sliced
from opjax.training import replicas, sharding

# Members of a study that differ in their seeds share what is compiled.
_epoch = functools.lru_cache(maxsize=4)(training.Epoch)

_ONE_CALL = 64  # steps of an epoch that is not split
_MOST_STEPS = 16  # of a call of a longer one, up to 2.5 s each at published sizes

State = training.TrainState
History = dict[str, Any]  # arrays with steps along their last axis


class OneStep(NamedTuple):
    """A training step, compiled once: `state, history = call(state, *given)`."""

    lowered: jax.stages.Lowered
    state: State
    given: tuple[Any, ...]


class Batches(abc.ABC):
    """Base class of the batch sources of a training.

    Attributes:
      shape: shape of a loss, `(r,)` with replicas.
      total: number of steps of the training.
      per_epoch: number of steps per epoch.
      per_call: maximum number of steps per `advance`.
    """

    shape: tuple[int, ...] = ()
    total: int
    per_epoch: int
    per_call: int

    @abc.abstractmethod
    def start(self, model: Model) -> State:
        """Returns the initial state, of every replica."""

    @abc.abstractmethod
    def prepare(self, state: State, step: int) -> None:
        """Prepares the steps from `step` on; called once."""

    @abc.abstractmethod
    def advance(
        self, state: State, step: int, good: np.ndarray | None
    ) -> tuple[State, History]:
        """Trains on the next batches; `good` is an entry of `records`."""

    @abc.abstractmethod
    def describe(self, step: int, row: int) -> str:
        """Describes the batches of the call that starts at `step`."""

    @abc.abstractmethod
    def records(self, state: State) -> Progress:
        """Returns the initial records of a checkpoint."""

    @abc.abstractmethod
    def places(self, step: int, count: int) -> slice:
        """Returns the slice of `records` for `count` steps of an epoch."""

    @abc.abstractmethod
    def one_step(self, model: Model) -> OneStep:
        """Returns a training step on the largest batch, not yet compiled."""

    @property
    def data_bytes(self) -> int:
        """Bytes of the training samples on the device."""
        return 0


class EpochBatches(Batches):
    """Base class of sources that record the steps of one epoch."""

    def records(self, state: State) -> Progress:
        """Stores losses and norms of the steps of one epoch."""
        return Progress(state, np.zeros(self.per_epoch), np.zeros(self.per_epoch))

    def places(self, step: int, count: int) -> slice:
        """Returns the slice of `records` for steps of any epoch."""
        first = step % self.per_epoch
        return slice(first, first + count)


class Program(NamedTuple):
    """The compiled training on a fraction of the points of samples.

    Attributes:
      share: fraction of the points, see `points.drawn`.
      gradient: loss and gradients on this fraction.
      epoch: function that performs many updates.
      key: random key of the loss, combined with the step number; None if the loss is
        deterministic.
    """

    share: float
    gradient: training.Gradient
    epoch: training.Epoch
    key: jax.Array | None


class ArrayBatches(EpochBatches):
    """Batches gathered from arrays on the device, or from buckets of such arrays."""

    def __init__(self, task: Task, settings: Settings):
        self.mesh, self.row = settings.mesh, task.row
        self.microbatch = settings.microbatch
        self.train = placed(task.train, self.mesh, task.row)
        earlier = (placed(one, self.mesh, task.row) for one in task.earlier)
        self.trains = *earlier, self.train  # of the stages
        self.samples = [buckets.num_samples("train", b) for b in self.train]
        self.seed, self.batch_size = settings.seed, settings.batch_size
        self.drawn: tuple[int, np.ndarray, np.ndarray] | None = None
        self.scan = settings.scan
        self.per_epoch = len(self._order(0)[0])
        self.per_call = settings.steps_per_call or call_length(self.per_epoch)
        self.total = settings.num_epochs * self.per_epoch
        self.optimizer = settings.optimizer(self.total)
        self.shares, self.num_epochs = settings.train_points, settings.num_epochs
        self.full_epochs = points.full_epochs(settings.full_points, self.num_epochs)
        if set(self.shares) != {1.0} and self.mesh is not None:
            raise ValueError(
                f"train_points={','.join(map(str, self.shares))} supports only one "
                "device; omit it or --devices."
            )
        ending = {1.0} if self.full_epochs else set[float]()
        self.programs = {
            share: self._program(task, settings, share)
            for share in {*self.shares, *ending}
        }

    def _program(self, task: Task, settings: Settings, share: float) -> Program:
        gradient = points.drawn(task.value_and_grad, task.needs_key, share)
        epoch = _epoch(
            gradient,
            self.optimizer,
            microbatch=settings.microbatch,
            on_device_scan=settings.scan,
            mesh=self.mesh,
        )
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        return Program(
            share, gradient, epoch, key if task.needs_key or share != 1 else None
        )

    def program(self, step: int) -> Program:
        """Returns the program of a step."""
        epoch, few = step // self.per_epoch, self.num_epochs - self.full_epochs
        if epoch >= few:
            return self.programs[1.0]
        return self.programs[stages.value_at(self.shares, epoch, few)]

    def train_at(self, step: int) -> tuple[Any, ...]:
        """Returns the buckets for the batch of a step."""
        return stages.value_at(self.trains, step // self.per_epoch, self.num_epochs)

    def start(self, model: Model) -> State:
        """Returns the initial state, of every replica."""
        state = training.init(model, self.optimizer)
        return state if self.mesh is None else sharding.replicate(state, self.mesh)

    def prepare(self, state: State, step: int) -> None:
        """Compiles the programs of the remaining steps, one for each size."""
        said, calls = "", self._calls(step)
        for number, (program, bucket, order) in enumerate(calls, start=1):
            if hosts.first():
                count = buckets.num_points(bucket)
                count = points.number(program.share, count) if count else 0
                size = f" ({count} points)" if count else ""
                say(f"Compiling training step {number} of {len(calls)}{size}{said}.")
            one = time.monotonic()
            self._compile(program, state, bucket, order)
            said = f", about {time.monotonic() - one:.0f} s"

    def _calls(self, step: int) -> list[tuple[Program, Any, np.ndarray]]:
        """Programs, buckets and orders, of every shape that is met from a step on."""
        met: dict[tuple[float, int], tuple[Program, tuple[Any, ...]]] = {}
        for epoch in range(step // self.per_epoch, self.num_epochs):
            one = self.program(epoch * self.per_epoch)
            train = self.train_at(epoch * self.per_epoch)
            met[one.share, id(train)] = one, train
        return [
            (one, train[bucket], order)
            for one, train in met.values()
            for bucket, order in self._shapes()
        ]

    def _shapes(self) -> list[tuple[int, np.ndarray]]:
        """Buckets and orders of calls."""
        order = np.zeros((1, self.batch_size), np.int32)
        if len(self.train) > 1 or not self.scan:
            return [(bucket, order) for bucket in range(len(self.train))]
        left = self.per_epoch % self.per_call
        lengths = {min(self.per_call, self.per_epoch), left} - {0}
        return [(0, np.repeat(order, n, axis=0)) for n in sorted(lengths)]

    def _compile(
        self, program: Program, state: State, bucket: Batch, order: np.ndarray
    ) -> None:
        program.epoch.compile(state, bucket, order, program.key)

    def advance(
        self, state: State, step: int, good: np.ndarray | None
    ) -> tuple[State, History]:
        """Trains on the next batches; calls start at multiples of `per_call`."""
        del good
        which, batches = self._next(step)
        _, _, run, key = self.program(step)
        train = self.train_at(step)
        if len(train) == 1:
            return run(state, train[0], batches, key)
        parts: list[History] = []
        for bucket, rows in zip(which, batches, strict=True):
            state, part = run(state, train[bucket], rows[None], key)
            parts.append(part)
        # Looked at once for all batches: waiting for each would cost as much as small
        # steps do. After a refused update the next ones are of no use, nor kept.
        history = jax.tree.map(lambda *values: np.concatenate(values), *parts)
        return state, history

    def describe(self, step: int, row: int) -> str:
        """Names the samples of a batch of the call that starts at `step`."""
        which, batches = self._next(step)
        bucket = f" of bucket {which[row]}" if len(self.train) > 1 else ""
        samples = np.asarray(batches[row]).tolist()
        return f"its batch holds the training samples {samples}{bucket}"

    def one_step(self, model: Model) -> OneStep:
        """Returns a step on the batch with the most points, not yet compiled."""
        most = max(map(buckets.num_points, self.train)) or 1
        largest = max(self.programs, key=lambda share: points.number(share, most))
        _, gradient, _, key = self.programs[largest]
        step = training.make_update(
            gradient, self.optimizer, microbatch=self.microbatch, mesh=self.mesh
        )
        state = self.start(model)
        arguments = self.largest_batch(), np.array(True), key
        lowered = jax.jit(step, donate_argnums=0).lower(state, *arguments)
        return OneStep(lowered, state, arguments)

    def largest_batch(self) -> Any:
        """Returns a batch of the largest samples, as training steps receive it."""
        rows = jnp.arange(self.batch_size)
        pairs = zip(self.train, self.samples, strict=True)
        bucket, _ = max(pairs, key=lambda pair: num_bytes(pair[0]) / pair[1])
        return jax.tree.map(lambda x: jnp.take(x, rows, axis=0), bucket)

    @property
    def data_bytes(self) -> int:
        """Bytes of the training samples on the device."""
        return num_bytes(self.trains)

    def _next(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        first = step % self.per_epoch
        which, batches = self._order(step // self.per_epoch)
        now = slice(first, first + self.per_call)
        return which[now], batches[now]

    def _order(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """Buckets and samples of the batches of an epoch, drawn once for its calls."""
        drawn = self.drawn  # a thread that reads ahead may replace it
        if drawn is None or drawn[0] != epoch:
            sizes = self.samples, self.batch_size
            which, batches = training.bucket_order(self.seed, epoch, *sizes)
            drawn = self.drawn = (epoch, np.asarray(which), np.asarray(batches))
        return drawn[1:]


def call_length(steps: int) -> int:
    """Returns the default number of steps per call.

    Between calls a run can save and stop. An epoch of at most 64 steps is one call. A
    longer epoch has calls of 9 to 16 steps. The chosen length divides the epoch, so
    that one compilation suffices; if none does, it leaves the longest last call.

    Args:
      steps: number of steps of the epoch.

    Returns:
      Number of steps of each call; the last call may be shorter.
    """
    if steps <= _ONE_CALL:
        return steps
    lengths = range(_MOST_STEPS, _MOST_STEPS // 2, -1)
    return min(lengths, key=lambda length: -steps % length)


class FreshBatches(Batches):
    """Batches drawn anew in every step, for one model or for its replicas."""

    def __init__(self, task: FreshTask, settings: Settings):
        self.total = settings.num_steps
        self.per_epoch = self.per_call = settings.steps_per_call or 200
        self.replicas = task.replicas
        self.shape = () if self.replicas is None else (self.replicas.size,)
        self.optimizer = partial(settings.optimizer, self.total)
        self.steps = replicas.make_steps(
            task.draw,
            task.value_and_grad,
            self.optimizer,
            seed=settings.seed,
            replicas=self.replicas,
            needs_key=task.needs_key,
            microbatch=settings.microbatch,
            mesh=settings.mesh,
        )
        self.mesh = settings.mesh
        self.compiled: dict[int, jax.stages.Compiled] = {}

    def start(self, model: Model) -> State:
        """Returns the initial state, of every replica."""
        state = replicas.init(model, self.optimizer, self.replicas)
        return state if self.mesh is None else sharding.replicate(state, self.mesh)

    def prepare(self, state: State, step: int) -> None:
        """Compiles the programs of the remaining calls before the training."""
        remaining = self.total - step
        for length in {min(self.per_call, remaining), remaining % self.per_call} - {0}:
            self.compiled[length] = self._lower(state, length).compile()

    def _lower(self, state: State, length: int) -> jax.stages.Lowered:
        run = jax.jit(partial(self.steps, length), donate_argnums=0)
        return run.lower(state, jnp.ones(self.shape, bool), jnp.int32(0))

    def advance(
        self, state: State, step: int, good: np.ndarray | None
    ) -> tuple[State, History]:
        """Trains for the steps of one call; histories have shape `(..., steps)`."""
        call = self.compiled[min(self.per_call, self.total - step)]
        state, history = call(state, jnp.asarray(good), jnp.int32(step))
        return state, {k: np.moveaxis(np.asarray(v), 0, -1) for k, v in history.items()}

    def describe(self, step: int, row: int) -> str:
        """Describes a batch: it contains only numbers drawn for its step."""
        return f"its batch is the one drawn for step {step + row}"

    def records(self, state: State) -> Progress:
        """Stores losses and norms of all steps, and which replicas are finite."""
        shape = (*self.shape, self.total)
        losses, norms = (np.full(shape, np.nan, np.float32) for _ in range(2))
        return Progress(state, losses, norms, np.ones(self.shape, bool))

    def places(self, step: int, count: int) -> slice:
        """Returns the slice of `records` for these steps."""
        return slice(step, step + count)

    def one_step(self, model: Model) -> OneStep:
        """Returns a call of one step, not yet compiled."""
        state = self.start(model)
        arguments = jnp.ones(self.shape, bool), jnp.int32(0)
        return OneStep(self._lower(state, 1), state, arguments)


class StoredBatches(ArrayBatches):
    """Batches that are prefetched from files, see `learn.buckets`.

    The batches and the program are the same as for arrays on the device. Each device of
    a mesh receives only its own samples, and each process reads only the samples of its
    devices.
    """

    train: tuple[Bucket, ...]

    def __init__(self, task: Task, settings: Settings):
        super().__init__(task, settings)
        # Batches are dispatched one by one anyway, and large ones take long.
        self.per_call = min(self.per_call, _MOST_STEPS)
        self.rows = np.arange(self.batch_size, dtype=np.int32)[None]
        # The step of what comes next, and that.
        self.ahead: tuple[int, Iterator[buckets.Arrays]] = (-1, iter(()))
        self.own = np.arange(self.batch_size)
        if self.mesh is not None:
            sharding.check_batch(self.mesh, self.batch_size, settings.microbatch)
            self.own = sharding.own_samples(self.mesh, self.batch_size)
            self.update = training.jit_with(
                self.optimizer,
                partial(
                    training.make_update,
                    task.value_and_grad,
                    microbatch=settings.microbatch,
                    mesh=self.mesh,
                ),
                donate=True,
            )

    def _compile(
        self, program: Program, state: State, bucket: Bucket, order: np.ndarray
    ) -> None:
        del order
        batch = self._placed(buckets.rows(bucket, self.own))
        if self.mesh is None:
            program.epoch.compile(state, batch, self.rows, program.key)
        else:
            self.update.lower(state, batch, np.array(True), program.key).compile()

    def advance(
        self, state: State, step: int, good: np.ndarray | None
    ) -> tuple[State, History]:
        """Trains on the next batches; calls start where the last one ended."""
        del good
        if self.ahead[0] != step:
            rows_of_batches = (
                (bucket, rows[self.own]) for bucket, rows in self._wanted(step)
            )
            self.ahead = step, buckets.ahead(rows_of_batches)
        parts: list[History] = []
        source = self.ahead[1]
        for _ in range(len(self._next(step)[0])):
            state, part = self._step(self.program(step), state, next(source))
            if parts:  # no more than two batches at once on the device
                jax.block_until_ready(parts[-1])
            parts.append(part)
        self.ahead = step + len(parts), source
        return state, jax.tree.map(lambda *values: np.hstack(values), *parts)

    def _step(
        self, program: Program, state: State, arrays: buckets.Arrays
    ) -> tuple[State, History]:
        batch = self._placed(arrays)
        if self.mesh is None:
            return program.epoch(state, batch, self.rows, program.key)
        return self.update(state, batch, np.array(True), program.key)

    def _placed(self, arrays: buckets.Arrays) -> Any:
        """The samples of a batch that were read, on the devices."""
        if self.mesh is None:
            return placed((arrays,), None, self.row)[0]
        count = self.batch_size
        return sharding.place_batch(arrays, self.mesh, samples=count, row=self.row)

    def describe(self, step: int, row: int) -> str:
        """Names the files of a batch of the call that starts at `step`."""
        bucket, rows = next(self._wanted(step + row))
        places = [bucket.found.places[i] for i in rows]
        return f"its batch holds {', '.join(map(str, places))}"

    def largest_batch(self) -> Any:
        """Reads the first samples of the bucket with the most points."""
        bucket = max(self.train, key=lambda bucket: bucket.num_points)
        return self._placed(buckets.rows(bucket, self.own))

    def _wanted(self, step: int) -> Iterator[tuple[Bucket, np.ndarray]]:
        """Buckets and rows of all batches from a step on."""
        for epoch in range(step // self.per_epoch, self.total // self.per_epoch):
            which, batches = self._order(epoch)
            train = self.train_at(epoch * self.per_epoch)
            first = max(step - epoch * self.per_epoch, 0)
            for bucket, rows in zip(which[first:], batches[first:], strict=True):
                yield train[bucket], rows


def evaluate(
    metric: Callable[..., Any],
    model: Model,
    bucket: Batch,
    *,
    batch_size: int,
    mesh: Mesh | None = None,
    row: int = 1,
) -> Any:
    """Applies `training.evaluate` to samples on the device or, in turn, on disk.

    `row`: see `Task`.
    """
    if isinstance(bucket, Sliced):
        return np.asarray(
            [bucket.apply(partial(metric, model), i) for i in range(len(bucket))]
        )
    if mesh is not None:
        return _evaluate_on_mesh(metric, model, bucket, batch_size, mesh, row)
    parts: Iterable[Any]
    if isinstance(bucket, Bucket):
        count = len(bucket)
        rows = _rows_of_parts(count, batch_size)
        parts = map(jax.device_put, buckets.ahead((bucket, part) for part in rows))
    else:
        parts, count = _in_parts(bucket, batch_size)
    measured = [_look(metric, model, part) for part in parts]
    return jax.tree.map(lambda *values: np.concatenate(values)[:count], *measured)


def compile_evaluation(
    metric: Callable[..., Any], model: Model, data: tuple[Any, ...]
) -> None:
    """Compiles ahead what `evaluate` needs for samples on the device, in `Parts`."""
    for bucket in data:
        if isinstance(bucket, Parts):
            _look.lower(metric, model, bucket.parts[0]).compile()


@partial(jax.jit, static_argnames="metric")
def _look(metric: Callable[..., Any], model: Model, part: PyTree) -> Any:
    """A metric of the samples of a part."""
    return training.over_samples(partial(metric, model))(part)


class Parts(NamedTuple):
    """Samples on the device, in parts of equal size, so that one program suffices.

    Attributes:
      parts: the samples; the last part is padded by repeating its last sample.
      num_samples: number of samples without padding.
    """

    parts: tuple[Any, ...]
    num_samples: int


def _rows_of_parts(count: int, batch_size: int) -> list[np.ndarray]:
    starts = range(0, count, batch_size)
    return [np.minimum(np.arange(n, n + batch_size), count - 1) for n in starts]


def _in_parts(bucket: Batch, batch_size: int) -> Parts:
    if isinstance(bucket, Parts):
        return bucket
    count = buckets.num_samples("evaluation", bucket)
    arrays = jax.tree.map(np.asarray, bucket)
    parts = [
        jax.device_put(jax.tree.map(lambda x, rows=rows: x[rows], arrays))
        for rows in _rows_of_parts(count, batch_size)
    ]
    return Parts(tuple(parts), count)


def to_evaluate(
    data: tuple[Any, ...], batch_size: int, mesh: Mesh | None, row: int = 1
) -> tuple[Any, ...]:
    """Prepares buckets for repeated evaluation: on the device, in parts.

    Buckets on disk are returned unchanged. `row`: see `Task`.
    """
    if mesh is not None or on_disk(data):
        return placed(data, mesh, row)
    return tuple(_in_parts(bucket, batch_size) for bucket in data)


def _evaluate_on_mesh(
    metric: Callable[..., Any],
    model: Model,
    bucket: Batch,
    batch_size: int,
    mesh: Mesh,
    row: int,
) -> Any:
    look = partial(training.evaluate, metric, model, batch_size=batch_size, mesh=mesh)
    if not isinstance(bucket, Bucket):
        return look(bucket)
    count, measured = len(bucket), []
    parts = (range(n, min(n + batch_size, count)) for n in range(0, count, batch_size))
    for arrays in buckets.ahead((bucket, part) for part in parts):
        (data,) = placed((arrays,), mesh, row)
        measured.append(jax.tree.map(np.asarray, look(data)))
    return jax.tree.map(lambda *values: np.concatenate(values), *measured)


def placed(data: tuple[Any, ...], mesh: Mesh | None, row: int = 1) -> tuple[Any, ...]:
    """Places buckets of data on the default device, or on the devices of a mesh.

    Buckets on disk are returned unchanged. `row`: see `Task`.
    """
    if on_disk(data):
        return data
    if mesh is None:
        return jax.device_put(data)
    return tuple(sharding.place(bucket, mesh, row=row) for bucket in data)


def num_bytes(tree: PyTree) -> int:
    """Returns the bytes of a tree's arrays; samples in files count as zero."""
    leaves = jax.tree.leaves(tree)
    return sum(leaf.nbytes for leaf in leaves if not isinstance(leaf, Bucket | Sliced))


def on_disk(data: tuple[Any, ...]) -> bool:
    """Whether samples stay in their files."""
    return any(isinstance(bucket, Bucket | Sliced) for bucket in data)
