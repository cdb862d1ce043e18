"""Trains regressors on fresh tasks in every step, and evaluates them."""

import dataclasses
import sys
import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.sinusoid_models import Study, build
from opjax import checkpoint, training
from opjax.problems import sinusoid

CONTEXTS = (5, 10, 15, 20, 25, 30, 35, 40)  # of Fig. 2 of the paper
_TEST_QUERIES = 50
_TASKS_AT_ONCE = 20
_CHUNK = 500  # steps between looks at the clock and at NaN
_CHECKPOINT_SECONDS = 60.0


class Outcome(NamedTuple):
    """A finished study.

    Attributes:
      model: after training.
      losses: mean square error of every batch, shape `(steps,)`.
      seconds: of training, with compilation.
    """

    model: Any
    losses: np.ndarray
    seconds: float


class _State(NamedTuple):
    model: Any
    optimizer_state: Any
    step: jax.Array


def train(study: Study, folder: Any = None) -> Outcome:
    """Trains a model, or continues from the checkpoints in a folder.

    Args:
      study: what to train.
      folder: where to keep checkpoints, if anywhere.

    Returns:
      The trained model with its history.

    Raises:
      opjax.training.NonFiniteError: if a loss is NaN or infinite.
    """
    # Seeds come one after another: together they take as long, and share what is
    # compiled here.
    program, seed = dataclasses.replace(study, seed=0), jnp.asarray(study.seed)
    begin = saved_at = time.monotonic()
    progress = {
        "state": _start(program, seed),
        "losses": np.full(study.num_steps, np.nan, np.float32),
        "step": 0,
        "seconds": 0.0,
    }
    found = None if folder is None else checkpoint.restore(folder, progress)
    if found is not None:
        progress = found.payload
        print(f"Continuing from {found.path}.", file=sys.stderr)
    earlier = progress["seconds"]
    while (step := progress["step"]) < study.num_steps:
        length = min(_CHUNK, study.num_steps - step)
        state, losses = _advance(program, length, seed, progress["state"])
        progress["losses"][step : step + length] = losses
        progress |= {"state": state, "step": step + length}
        _look(study, progress["losses"], step, step + length)
        now = time.monotonic()
        progress["seconds"] = earlier + now - begin
        late = now - saved_at > _CHECKPOINT_SECONDS
        if folder is not None and (late or step + length == study.num_steps):
            checkpoint.save(folder, step + length, progress, keep=1)
            saved_at = now
    return Outcome(progress["state"].model, progress["losses"], progress["seconds"])


@partial(jax.jit, static_argnums=0)
def _start(study: Study, seed: jax.Array) -> _State:
    model = build(study, seed)
    return _State(model, optax.adam(study.rate).init(model), jnp.zeros((), jnp.int32))


@partial(jax.jit, static_argnums=(0, 1))
def _advance(
    study: Study, length: int, seed: jax.Array, state: _State
) -> tuple[_State, jax.Array]:
    optimizer = optax.adam(study.rate)
    key = jax.random.fold_in(jax.random.key(seed), 1)

    def loss(model, tasks):
        *given, target = tasks[:4]
        return jnp.mean((jax.vmap(model)(*given) - target) ** 2)

    def step(state, _):
        tasks = sinusoid.sample(
            jax.random.fold_in(key, state.step),
            num_tasks=study.batch_size,
            num_context=study.num_context,
            num_query=study.num_query,
        )
        value, gradient = jax.value_and_grad(loss)(state.model, tasks)
        updates, optimizer_state = optimizer.update(gradient, state.optimizer_state)
        model = optax.apply_updates(state.model, updates)
        return _State(model, optimizer_state, state.step + 1), value

    return jax.lax.scan(step, state, length=length)


def _look(study: Study, losses: np.ndarray, begin: int, end: int) -> None:
    """Shows progress; stops at what is not finite."""
    latest = losses[begin:end]
    bad = np.flatnonzero(~np.isfinite(latest))
    if bad.size:
        raise training.NonFiniteError(
            f"Study {study.name} has loss {latest[bad[0]]} at step {begin + bad[0]}. "
            "Continuing would meet the same tasks: lower --learning_rate, raise the "
            "ridge or leave out the seed or the method, in another --workdir."
        )
    print(
        f"{study.name} step {end}/{study.num_steps} loss {latest.mean():.3g}",
        file=sys.stderr,
        flush=True,
    )


def errors(model: Any, num_tasks: int) -> np.ndarray:
    """Mean square errors on the test tasks, for every number of observations.

    Each task is observed at its first 5, 10, ... of 40 points. The tasks are always the
    same, and are none of those that models are trained on.

    Args:
      model: a regressor.
      num_tasks: number of test tasks.

    Returns:
      Errors averaged over queries and tasks, shape `(len(CONTEXTS),)`.

    Raises:
      opjax.training.NonFiniteError: if an error is NaN or infinite.
    """
    tasks = sinusoid.sample(
        jax.random.fold_in(jax.random.key(0), 2),
        num_tasks=num_tasks,
        num_context=max(CONTEXTS),
        num_query=_TEST_QUERIES,
    )
    found = np.asarray(_errors(model, tasks), np.float64).mean(axis=0)
    if not np.isfinite(found).all():
        raise training.NonFiniteError(
            f"Errors {found} for {CONTEXTS} observations are NaN or infinite, though "
            "training was finite; raise the ridge or lower the learning rate."
        )
    return found


@jax.jit
def _errors(model: Any, tasks: sinusoid.Tasks) -> jax.Array:
    def of_task(task):
        *given, target = task[:4]

        def of_context(size):
            weights = (jnp.arange(max(CONTEXTS)) < size).astype(target.dtype)
            return jnp.mean((model(*given, context_weights=weights) - target) ** 2)

        return jax.vmap(of_context)(jnp.asarray(CONTEXTS))

    return jax.lax.map(of_task, tasks, batch_size=_TASKS_AT_ONCE)
