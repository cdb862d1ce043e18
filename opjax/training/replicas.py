"""Training of one or many models on samples that are drawn anew in every step.

Many models are trained at once, stacked along axis 0. The samples of a step depend only
on its number and on a seed, so training in parts gives the same result as training as a
whole.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh

from opjax._trees import Batch, PyTree
from opjax.training.step import Gradient, TrainState, make_update
from opjax.training.step import init as init_state


class Replicas(NamedTuple):
    """Models that are trained at once, stacked along axis 0.

    Replica `i * len(seeds) + j` uses the batches of seed `j`, which are drawn once for
    all `i`.

    Attributes:
      seeds: seeds of the batches.
      hyper: hyper-parameters of every replica, a pytree with leaves `(r, ...)`, such as
        its learning rate.

    Examples:
      >>> import numpy as np
      >>> from opjax.training.replicas import Replicas
      >>> rates = np.array([1e-3, 1e-3, 1e-2, 1e-2])  # two rates, two seeds each
      >>> Replicas(seeds=(0, 1), hyper=rates).size
      4
    """

    seeds: tuple[int, ...]
    hyper: Any

    @property
    def size(self) -> int:
        """Number of models; raises ValueError unless the seeds divide it."""
        (size,) = {len(leaf) for leaf in jax.tree.leaves(self.hyper)}
        if size % len(self.seeds):
            raise ValueError(
                f"{size} replicas cannot be divided equally among "
                f"{len(self.seeds)} seeds."
            )
        return size


def init(
    model: PyTree, optimizer: Callable[..., Any], replicas: Replicas | None = None
) -> TrainState:
    """Builds the initial state of every replica.

    Args:
      model: pytree of arrays; replicas along axis 0.
      optimizer: `optimizer()`, or `optimizer(hyper)` for one replica.
      replicas: None for a single model.

    Examples:
      >>> import numpy as np
      >>> from opjax import training
      >>> from opjax.training import replicas
      >>> both = replicas.Replicas(seeds=(0,), hyper=np.array([1e-3, 1e-2]))
      >>> model = {"w": np.ones((2, 3))}  # replicas along axis 0
      >>> def optimizer(rate):
      ...     return training.adamw(rate, weight_decay=0.0)
      >>> replicas.init(model, optimizer, both).step.tolist()
      [0, 0]
    """
    if replicas is None:
        return init_state(model, optimizer())

    @jax.jit
    @jax.vmap
    def start(one: PyTree, own: PyTree) -> TrainState:
        return init_state(one, optimizer(own))

    # Copied, because jit gives arrays back that it does not change, and ours are
    # going to be donated.
    return jax.tree.map(lambda leaf: leaf.copy(), start(model, replicas.hyper))


def make_steps(
    sample: Callable[[Array, Array], Any],
    gradient: Gradient,
    optimizer: Callable[..., Any],
    *,
    seed: int = 0,
    replicas: Replicas | None = None,
    needs_key: bool = False,
    microbatch: int | None = None,
    mesh: Mesh | None = None,
) -> Callable[[int, TrainState, Array, Array], tuple[Any, dict[str, Array]]]:
    """Builds steps on batches drawn anew; jit them with a static length.

    Args:
      sample: `sample(key, step)` returns a batch; a pure function.
      gradient: loss and gradients of a batch, as from `training.value_and_grad`.
      optimizer: as for `init`.
      seed: seed of the batches, if there are no replicas.
      replicas: None for a single model.
      needs_key: whether the loss draws random numbers.
      microbatch: as for `training.make_step`.
      mesh: as for `training.make_step`.

    Returns:
      `steps(length, state, good, first) -> (state, history)`, from step `first` on,
      with histories `(length, ...)` as in `training.make_epoch`. A model that is not
      `good`, or has a non-finite loss or gradient, is not changed from then on.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax import training
      >>> from opjax.training import replicas
      >>> def optimizer():
      ...     return training.adamw(0.1, weight_decay=0.0)
      >>> steps = replicas.make_steps(
      ...     lambda key, step: jax.random.normal(key, (4,)),
      ...     training.value_and_grad(lambda model, x: jnp.sum((model["w"] * x) ** 2)),
      ...     optimizer,
      ... )
      >>> state = replicas.init({"w": jnp.array(1.0)}, optimizer)
      >>> state, history = steps(2, state, jnp.array(True), jnp.array(0))
      >>> history["loss"].shape
      (2,)
    """
    seeds: Any = seed if replicas is None else jnp.asarray(replicas.seeds)
    keys = _streams(seeds, 1)
    noise = _streams(seeds, 2) if needs_key else None

    def one(
        state: PyTree,
        good: Array,
        own: tuple[Any, ...],
        batch: Batch,
        noise: Array | None,
    ) -> Any:
        rule = optimizer(*own)
        advance = make_update(gradient, rule, microbatch=microbatch, mesh=mesh)
        return advance(state, batch, good, noise)

    def update(state: PyTree, good: Array, step: Array) -> Any:
        if replicas is None:
            return one(state, good, (), sample(keys, step), noise)
        batches = jax.vmap(sample, in_axes=(0, None))(keys, step)
        groups = jax.tree.map(
            lambda leaf: leaf.reshape(-1, len(keys), *leaf.shape[1:]),
            (state, good, (replicas.hyper,)),
        )
        over_seeds = jax.vmap(one, in_axes=(0, 0, 0, 0, 0 if needs_key else None))
        # Batches depend on seeds only, so all groups share those of a seed.
        over_all: Any = jax.vmap(over_seeds, in_axes=(0, 0, 0, None, None))
        updated = over_all(*groups, batches, noise)
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), updated)

    def steps(length: int, state: PyTree, good: Array, first: Array) -> Any:
        def body(carry: PyTree, step: Array) -> Any:
            state, good = carry
            state, metrics = update(state, good, step)
            # What stopped once has no losses after: its model is the last good one.
            metrics["finite"] &= good
            metrics["loss"] = jnp.where(good, metrics["loss"], jnp.nan)
            return (state, metrics["finite"]), metrics

        numbers = first + jnp.arange(length, dtype=jnp.int32)
        (state, _), history = jax.lax.scan(body, (state, good), numbers)
        return state, history

    return steps


def _streams(seeds: Array, stream: int) -> Array:
    """Keys of a stream of random numbers, one for each seed."""

    def key(seed: Array) -> Array:
        return jax.random.fold_in(jax.random.key(seed), stream)

    return key(seeds) if jnp.ndim(seeds) == 0 else jax.vmap(key)(seeds)
