"""Where the batches of a training come from, and the updates they make.

Both kinds say how many steps an epoch has, begin a state, and advance it by some steps;
what they advance by depends on the number of the step alone, so that a resumed run
meets the same batches.
"""

import functools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from opjax import replicas, sharding, training

# Members of a study that differ in their seeds share what is compiled.
_epoch = functools.lru_cache(maxsize=4)(training.make_epoch)


class ArrayBatches:
    """Batches gathered from arrays on the device, or from buckets of such arrays."""

    shape: tuple[int, ...] = ()  # of a loss

    def __init__(self, task: Any, settings: Any):
        self.mesh = settings.mesh
        self.train = placed(task.train, self.mesh)
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


def make(task: Any, settings: Any) -> ArrayBatches | FreshBatches:
    """Returns the batches of a task."""
    kind: Callable[..., Any] = FreshBatches if callable(task.train) else ArrayBatches
    return kind(task, settings)


def buckets(data: Any) -> tuple[Any, ...]:
    """Returns the buckets of data that may be one."""
    return data if type(data) is tuple else (data,)


def placed(data: Any, mesh: Mesh | None) -> tuple[Any, ...]:
    """Returns the buckets of data on the device, or on those of a mesh."""
    if mesh is None:
        return jax.device_put(buckets(data))
    return tuple(sharding.place(bucket, mesh) for bucket in buckets(data))


def num_samples(name: str, data: Any) -> int:
    """Returns the samples of a bucket; raises ValueError if its arrays disagree."""
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} hold {sorted(lengths)} samples along axis 0; all "
            "must hold the same positive number."
        )
    return lengths.pop()
