"""Where the batches of a training come from, and the updates they make.

Both kinds say how many steps an epoch has, begin a state, and advance it by some steps;
what they advance by depends on the number of the step alone, so that a resumed run
meets the same batches.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from opjax import training

# Members of a study that differ in their seeds share what is compiled.
_epoch = functools.lru_cache(maxsize=4)(training.make_epoch)


class Replicas(NamedTuple):
    """Models that are trained at once, stacked along axis 0.

    Replica `i * len(seeds) + j` sees the batches that are drawn for seed `j`, once for
    all `i`.

    Attributes:
      seeds: of the batches.
      hyper: hyper-parameters of every replica, a pytree with leaves `(r, ...)`, such as
        its learning rate.
    """

    seeds: tuple[int, ...]
    hyper: Any


class ArrayBatches:
    """Batches gathered from arrays on the device, or from buckets of such arrays."""

    shape: tuple[int, ...] = ()  # of a loss

    def __init__(self, task: Any, settings: Any):
        self.train = jax.device_put(buckets(task.train))
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
        )
        self.compile_seconds = 0.0

    def start(self, model: Any) -> training.TrainState:
        """The state before the first step."""
        return training.init(model, self.optimizer)

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
        return np.asarray(which[now]), batches[now]

    def _order(self, epoch: int) -> tuple[Any, Any]:
        return training.bucket_order(self.seed, epoch, self.samples, self.batch_size)


class FreshBatches:
    """Batches drawn anew in every step, for one model or for replicas of it."""

    def __init__(self, task: Any, settings: Any):
        self.total = settings.num_steps
        self.per_epoch = self.per_call = settings.steps_per_call or 200
        self.microbatch = settings.microbatch
        self.task, self.replicas = task, task.replicas
        self.optimizer = functools.partial(settings.optimizer, self.total)
        self.compiled: dict[int, Any] = {}
        self.compile_seconds = 0.0
        if task.replicas is None:
            self.shape: tuple[int, ...] = ()
            seeds: Any = settings.seed
        else:
            seeds = jnp.asarray(task.replicas.seeds)
            (size,) = {len(leaf) for leaf in jax.tree.leaves(task.replicas.hyper)}
            if size % len(seeds):
                raise ValueError(
                    f"{size} replicas do not share {len(seeds)} seeds evenly."
                )
            self.shape = (size,)
        self.keys = _streams(seeds, 1)
        self.noise = _streams(seeds, 2) if task.needs_key else None

    def start(self, model: Any) -> training.TrainState:
        """The state before the first step; of every replica."""
        if self.replicas is None:
            return training.init(model, self.optimizer())

        @jax.jit
        @jax.vmap
        def init(one: Any, own: Any) -> training.TrainState:
            return training.init(one, self.optimizer(own))

        # Copied, because jit gives arrays back that it does not change, and ours are
        # going to be donated.
        state = init(model, self.replicas.hyper)
        return jax.tree.map(lambda leaf: leaf.copy(), state)

    def prepare(self, state: Any, step: int) -> None:
        """Compiles the calls that remain, apart from training."""
        begin = time.monotonic()
        remaining = self.total - step
        good = jnp.ones(self.shape, bool)
        for length in {min(self.per_call, remaining), remaining % self.per_call} - {0}:
            run = jax.jit(functools.partial(self._steps, length), donate_argnums=0)
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

    def _steps(self, length: int, state: Any, good: jax.Array, first: jax.Array) -> Any:
        def body(carry: Any, step: jax.Array) -> Any:
            state, good = carry
            state, metrics = self._update(state, step, good)
            # What stopped once has no losses after: its model is the last good one.
            metrics["finite"] &= good
            metrics["loss"] = jnp.where(good, metrics["loss"], jnp.nan)
            return (state, metrics["finite"]), metrics

        steps = first + jnp.arange(length, dtype=jnp.int32)
        (state, _), history = jax.lax.scan(body, (state, good), steps)
        return state, history

    def _update(self, state: Any, step: jax.Array, good: jax.Array) -> Any:
        if self.replicas is None:
            return self._one(state, self.task.train(self.keys, step), good, self.noise)
        batches = jax.vmap(self.task.train, in_axes=(0, None))(self.keys, step)
        given = state, good, self.replicas.hyper
        groups = jax.tree.map(
            lambda leaf: leaf.reshape(-1, len(self.keys), *leaf.shape[1:]), given
        )

        def one(group: Any, batch: Any, noise: Any) -> Any:
            state, good, hyper = group
            return self._one(state, batch, good, noise, hyper)

        over_seeds = jax.vmap(one, in_axes=(0, 0, None if self.noise is None else 0))
        # Batches depend on seeds only, so all groups share those of a seed.
        found = jax.vmap(over_seeds, in_axes=(0, None, None))(
            groups, batches, self.noise
        )
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)

    def _one(self, state: Any, batch: Any, good: Any, noise: Any, *own: Any) -> Any:
        update = training.make_update(
            self.task.loss, self.optimizer(*own), microbatch=self.microbatch
        )
        return update(state, batch, good, noise)


def make(task: Any, settings: Any) -> ArrayBatches | FreshBatches:
    """Returns the batches of a task."""
    kind: Callable[..., Any] = FreshBatches if callable(task.train) else ArrayBatches
    return kind(task, settings)


def buckets(data: Any) -> tuple[Any, ...]:
    """Returns the buckets of data that may be one."""
    return data if type(data) is tuple else (data,)


def num_samples(name: str, data: Any) -> int:
    """Returns the samples of a bucket; raises ValueError if its arrays disagree."""
    lengths = {jnp.shape(leaf)[0] for leaf in jax.tree.leaves(data)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} hold {sorted(lengths)} samples along axis 0; all "
            "must hold the same positive number."
        )
    return lengths.pop()


def _streams(seeds: Any, stream: int) -> jax.Array:
    """Keys of a stream of random numbers, one for each seed."""

    def key(seed: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.key(seed), stream)

    return key(seeds) if jnp.ndim(seeds) == 0 else jax.vmap(key)(seeds)
