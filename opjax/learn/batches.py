"""Where the batches of a training come from, and the updates they make.

All kinds say how many steps an epoch has, begin a state, and advance it by some steps;
what they advance by depends on the number of the step alone, so that a resumed run
meets the same batches.
"""

import functools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from opjax import replicas, sharding, training
from opjax.learn import buckets

# Members of a study that differ in their seeds share what is compiled.
_epoch = functools.lru_cache(maxsize=4)(training.make_epoch)


class ArrayBatches:
    """Batches gathered from arrays on the device, or from buckets of such arrays."""

    shape: tuple[int, ...] = ()  # of a loss

    def __init__(self, task: Any, settings: Any):
        self.mesh = settings.mesh
        self.train = placed(task.train, self.mesh, task.row)
        self.samples = [num_samples("train", bucket) for bucket in self.train]
        self.seed, self.batch_size = settings.seed, settings.batch_size
        self.per_epoch = len(self._order(0)[0])
        self.per_call = settings.steps_per_call or self.per_epoch
        self.total = settings.num_epochs * self.per_epoch
        self.optimizer = settings.optimizer(self.total)
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        self.key = key if task.needs_key else None
        self.epoch = _epoch(
            task.loss,
            self.optimizer,
            microbatch=settings.microbatch,
            on_device_scan=settings.scan,
            mesh=self.mesh,
        )
        self.compile_seconds = 0.0

    def start(self, model: Any) -> training.TrainState:
        """The state before the first step."""
        state = training.init(model, self.optimizer)
        return state if self.mesh is None else sharding.replicate(state, self.mesh)

    def prepare(self, state: Any, step: int) -> None:
        """Nothing: programs are compiled at their first call."""

    def advance(self, state: Any, step: int, good: None) -> tuple[Any, dict[str, Any]]:
        """Trains on the next batches; calls start at multiples of `per_call`."""
        del good
        which, batches = self._next(step)
        if len(self.train) == 1:
            return self.epoch(state, self.train[0], batches, self.key)
        parts = []
        for bucket, rows in zip(which, batches, strict=True):
            state, part = self.epoch(state, self.train[bucket], rows[None], self.key)
            parts.append(part)
        # Looked at once for all batches: waiting for each would cost as much as small
        # steps do. After a refused update the next ones are of no use, nor kept.
        history = jax.tree.map(lambda *values: np.concatenate(values), *parts)
        return state, history

    def describe(self, step: int, row: int) -> str:
        """Says what is in a batch of the call that starts at `step`."""
        which, batches = self._next(step)
        bucket = f" of bucket {which[row]}" if len(self.train) > 1 else ""
        samples = np.asarray(batches[row]).tolist()
        return f"its batch holds the training samples {samples}{bucket}"

    def _next(self, step: int) -> tuple[np.ndarray, Any]:
        first = step % self.per_epoch
        which, batches = self._order(step // self.per_epoch)
        now = slice(first, first + self.per_call)
        return np.asarray(which[now]), np.asarray(batches[now])

    def _order(self, epoch: int) -> tuple[Any, Any]:
        return training.bucket_order(self.seed, epoch, self.samples, self.batch_size)


class FreshBatches:
    """Batches drawn anew in every step, for one model or for replicas of it."""

    def __init__(self, task: Any, settings: Any):
        self.total = settings.num_steps
        self.per_epoch = self.per_call = settings.steps_per_call or 200
        self.replicas = task.replicas
        self.shape = () if self.replicas is None else (self.replicas.size,)
        self.optimizer = partial(settings.optimizer, self.total)
        self.steps = replicas.make_steps(
            task.train,
            task.loss,
            self.optimizer,
            seed=settings.seed,
            replicas=self.replicas,
            needs_key=task.needs_key,
            microbatch=settings.microbatch,
            mesh=settings.mesh,
        )
        self.mesh = settings.mesh
        self.compiled: dict[int, Any] = {}
        self.compile_seconds = 0.0

    def start(self, model: Any) -> training.TrainState:
        """The state before the first step; of every replica."""
        state = replicas.init(model, self.optimizer, self.replicas)
        return state if self.mesh is None else sharding.replicate(state, self.mesh)

    def prepare(self, state: Any, step: int) -> None:
        """Compiles the calls that remain, apart from training."""
        begin = time.monotonic()
        remaining = self.total - step
        good = jnp.ones(self.shape, bool)
        for length in {min(self.per_call, remaining), remaining % self.per_call} - {0}:
            run = jax.jit(partial(self.steps, length), donate_argnums=0)
            self.compiled[length] = run.lower(state, good, jnp.int32(0)).compile()
        self.compile_seconds = time.monotonic() - begin

    def advance(self, state: Any, step: int, good: Any) -> tuple[Any, dict[str, Any]]:
        """Trains for the steps of one call; histories have shape `(..., steps)`."""
        call = self.compiled[min(self.per_call, self.total - step)]
        state, history = call(state, jnp.asarray(good), jnp.int32(step))
        return state, {k: np.moveaxis(np.asarray(v), 0, -1) for k, v in history.items()}

    def describe(self, step: int, row: int) -> str:
        """Says what is in a batch: nothing but numbers drawn for its step."""
        return f"its batch is the one drawn for step {step + row}"


class StoredBatches(ArrayBatches):
    """Batches that are read from files ahead of their step, see `learn.buckets`.

    The same batches by the same program as from arrays on the device. Devices of a mesh
    get their own samples only, and of several processes each reads those of its own.
    """

    def __init__(self, task: Any, settings: Any):
        super().__init__(task, settings)
        # Batches are dispatched one by one anyway, and large ones take long.
        self.per_call = min(self.per_call, 16)
        self.row = task.row
        self.rows = np.arange(self.batch_size, dtype=np.int32)[None]
        self.ahead: Any = (-1, iter(()))  # the step of what comes next, and that
        self.own = slice(None)
        if self.mesh is not None:
            sharding.check_batch(self.mesh, self.batch_size, settings.microbatch)
            self.own = sharding.own_samples(self.mesh, self.batch_size)
            given: Any = {"microbatch": settings.microbatch, "mesh": self.mesh}
            update = training.make_update(task.loss, self.optimizer, **given)
            self.update = jax.jit(update, donate_argnums=0)

    def advance(self, state: Any, step: int, good: None) -> tuple[Any, dict[str, Any]]:
        """Trains on the next batches; calls start where the last one ended."""
        del good
        if self.ahead[0] != step:
            wanted = ((bucket, rows[self.own]) for bucket, rows in self._wanted(step))
            self.ahead = step, buckets.ahead(wanted)
        parts, source = [], self.ahead[1]
        for _ in range(len(self._next(step)[0])):
            state, part = self._step(state, next(source))
            if parts:  # no more than two batches at once on the device
                jax.block_until_ready(parts[-1])
            parts.append(part)
        self.ahead = step + len(parts), source
        return state, jax.tree.map(lambda *values: np.hstack(values), *parts)

    def _step(self, state: Any, arrays: Any) -> tuple[Any, dict[str, Any]]:
        if self.mesh is None:
            (data,) = placed(arrays, None, self.row)
            return self.epoch(state, data, self.rows, self.key)
        options: Any = {"samples": self.batch_size, "row": self.row}
        batch = sharding.place_batch(arrays, self.mesh, **options)
        return self.update(state, batch, np.array(True), self.key)

    def describe(self, step: int, row: int) -> str:
        """Names the files of a batch of the call that starts at `step`."""
        bucket, rows = next(self._wanted(step + row))
        places = [bucket.found.places[i] for i in rows]
        return f"its batch holds {', '.join(map(str, places))}"

    def _wanted(self, step: int) -> Iterator[tuple[Any, Any]]:
        """Buckets and rows of all batches from a step on."""
        for epoch in range(step // self.per_epoch, self.total // self.per_epoch):
            which, batches = map(np.asarray, self._order(epoch))
            first = max(step - epoch * self.per_epoch, 0)
            for bucket, rows in zip(which[first:], batches[first:], strict=True):
                yield self.train[bucket], rows


def make(task: Any, settings: Any) -> ArrayBatches | FreshBatches:
    """Returns the batches of a task."""
    kind: Callable[..., Any] = FreshBatches if callable(task.train) else ArrayBatches
    if kind is ArrayBatches and _on_disk(task.train):
        kind = StoredBatches
    return kind(task, settings)


def evaluate(
    metric: Callable[..., Any],
    model: Any,
    bucket: Any,
    *,
    batch_size: int,
    mesh: Mesh | None = None,
    row: int = 1,
) -> Any:
    """Applies `training.evaluate` to samples on the device or, in turn, on disk.

    `row` is that of `Task`.
    """
    options: Any = {"batch_size": batch_size, "mesh": mesh}
    if not _on_disk(bucket):
        return training.evaluate(metric, model, bucket, **options)
    count, found = len(bucket), []
    parts = (range(n, min(n + batch_size, count)) for n in range(0, count, batch_size))
    for arrays in buckets.ahead((bucket, part) for part in parts):
        (data,) = placed(arrays, mesh, row)
        values = training.evaluate(metric, model, data, **options)
        found.append(jax.tree.map(np.asarray, values))
    return jax.tree.map(lambda *values: np.concatenate(values), *found)


def several(data: Any) -> tuple[Any, ...]:
    """Returns the buckets of data that may be one."""
    return data if type(data) is tuple else (data,)


def placed(data: Any, mesh: Mesh | None, row: int = 1) -> tuple[Any, ...]:
    """Returns the buckets of data on the device, or on those of a mesh.

    Those on disk stay there. `row` is that of `Task`.
    """
    if _on_disk(data):
        return several(data)
    if mesh is None:
        return jax.device_put(several(data))
    return tuple(sharding.place(bucket, mesh, row=row) for bucket in several(data))


def _on_disk(data: Any) -> bool:
    return any(isinstance(bucket, buckets.Bucket) for bucket in several(data))


def num_samples(name: str, data: Any) -> int:
    """Returns the samples of a bucket; raises ValueError if its arrays disagree."""
    if _on_disk(data):
        return len(data)
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} hold {sorted(lengths)} samples along axis 0; all "
            "must hold the same positive number."
        )
    return lengths.pop()
