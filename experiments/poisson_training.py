"""Trains models of the inverse Laplacian, many rates and seeds in one compiled call."""

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import poisson_models
from experiments.poisson_evaluation import Problem, evaluate
from experiments.poisson_models import Study
from opjax import checkpoint, nn, training
from opjax.problems import poisson

_CHUNK = 200  # steps between looks at the clock
_CHECKPOINT_SECONDS = 30.0


class Outcome(NamedTuple):
    """A finished study; axes of rates and seeds come first.

    Attributes:
      models: trained models.
      losses: weighted MSE of every batch, shape `(r, s, steps)`.
      errors: what `evaluate` says of each model, arrays of shape `(r, s)`.
      seconds: of all training, without compilation.
      compile_seconds: of compilation.
    """

    models: Any
    losses: np.ndarray
    errors: dict[str, np.ndarray]
    seconds: float
    compile_seconds: float


class _State(NamedTuple):
    """A model in training; `sizes` are the scales of its levels, if calibrated."""

    model: Any
    optimizer_state: Any
    sizes: Any
    step: jax.Array


def train(study: Study, data: Problem, folder: Any = None) -> Outcome:
    """Trains all models of a study, or continues from the checkpoints in a folder.

    Args:
      study: what to train.
      data: from `problem`.
      folder: where to keep checkpoints of long studies, if anywhere.

    Returns:
      The trained models with their history and errors.

    Raises:
      opjax.training.NonFiniteError: if no rate and seed stays finite.
    """
    seeds = jnp.asarray(study.seeds)
    rates = jnp.asarray(study.rates, jnp.float32)
    begin = time.monotonic()
    state = jax.jit(_every_model(partial(_start, study), None))(
        seeds, rates, data.single
    )
    shape = (len(study.rates), len(study.seeds), study.num_steps)
    progress = {
        "state": state,
        "losses": np.full(shape, np.nan, np.float32),
        "step": 0,
        "seconds": 0.0,
    }
    found = None if folder is None else checkpoint.restore(folder, progress)
    if found is not None:
        progress = found.payload
        print(f"Continuing from {found.path}.", file=sys.stderr)
    advance = {}
    for length in _chunks(study, progress["step"]):
        run = jax.jit(_every_model(partial(_advance, study, length), 0))
        advance[length] = run.lower(
            seeds, rates, data.single, progress["state"]
        ).compile()
    compiled = saved_at = time.monotonic()
    earlier = progress["seconds"]
    while (step := progress["step"]) < study.num_steps:
        length = min(_CHUNK, study.num_steps - step)
        state, losses = advance[length](seeds, rates, data.single, progress["state"])
        progress["losses"][..., step : step + length] = losses
        progress |= {"state": state, "step": step + length}
        now = time.monotonic()
        progress["seconds"] = earlier + now - compiled
        _look(study, progress["losses"], step + length)
        late = now - saved_at > _CHECKPOINT_SECONDS
        if folder is not None and (late or step + length == study.num_steps):
            checkpoint.save(folder, step + length, progress, keep=1)
            saved_at = now
    models = progress["state"].model
    return Outcome(
        models,
        progress["losses"],
        evaluate(models, data),
        progress["seconds"],
        compiled - begin,
    )


def _chunks(study: Study, step: int) -> set[int]:
    """Lengths of the calls that remain."""
    remaining = study.num_steps - step
    return {min(_CHUNK, remaining), remaining % _CHUNK} - {0}


def _every_model(function: Callable[..., Any], state_axis: int | None) -> Any:
    """Lifts a function of seed, rate, problem and state to all rates and seeds."""
    rest = (None,) if state_axis is None else (None, state_axis)
    over_seeds = jax.vmap(function, in_axes=(0, None, *rest))
    # Right-hand sides depend on seeds only, so all rates share those of a seed.
    return jax.vmap(over_seeds, in_axes=(None, 0, *rest))


def _start(
    study: Study, seed: jax.Array, rate: jax.Array, data: poisson.FourierProblem
) -> _State:
    start, key = study.start, jax.random.key(seed)
    model = poisson_models.build(study.setup, start, jax.random.fold_in(key, 0))
    samples = _batch(study, seed, 0, data)
    sizes = None
    if start.principal:
        model = nn.principal_keys(model, *samples, whitening=start.whitening)
    if start.calibrated:
        model, sizes = nn.calibrate(model, *samples)
    optimizer = _optimizer(study, rate, sizes)
    return _State(model, optimizer.init(model), sizes, jnp.zeros((), jnp.int32))


def _advance(
    study: Study,
    length: int,
    seed: jax.Array,
    rate: jax.Array,
    data: poisson.FourierProblem,
    state: _State,
) -> tuple[_State, jax.Array]:
    optimizer = _optimizer(study, rate, state.sizes)

    def loss(model, samples):
        prediction = model(samples.right_sides)
        return poisson.weighted_mse(prediction, samples.solutions)

    def step(state, _):
        # Batch 0 is the one that starts were made from.
        samples = _batch(study, seed, state.step + 1, data)
        value, gradient = jax.value_and_grad(loss)(state.model, samples)
        updates, optimizer_state = optimizer.update(
            gradient, state.optimizer_state, state.model
        )
        model = optax.apply_updates(state.model, updates)
        return _State(model, optimizer_state, state.sizes, state.step + 1), value

    return jax.lax.scan(step, state, length=length)


def _batch(study, seed, step, data) -> poisson.Samples:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 1), step)
    return poisson.sample(key, data, num_samples=study.batch_size)


def _optimizer(study: Study, rate: Any, sizes: Any) -> optax.GradientTransformation:
    """Adam (AdamW without decay), its updates in units of the sizes of the factors."""
    start, schedule = study.start, rate
    if start.cosine:
        warm_up = max(study.num_steps // 20, 1)
        total = max(study.num_steps, warm_up + 1)
        shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, warm_up, total)

        def schedule(count):
            return rate * shape(count)

    adam = optax.adam(schedule, b1=start.beta1, b2=start.beta2)
    if sizes is None:
        return adam
    return optax.chain(adam, training.scale_updates(sizes))


def _look(study: Study, losses: np.ndarray, step: int) -> None:
    """Shows progress; refuses to go on if nothing is left that is finite."""
    now = losses[..., step - 1]
    finite = np.isfinite(losses[..., :step]).all(axis=-1)
    if not finite.any():
        raise training.NonFiniteError(
            f"Study {study.name}: all runs (rates {study.rates}, seeds {study.seeds}) "
            f"have met a NaN or infinite loss by step {step}; lower the learning rate."
        )
    text = f"{study.name} step {step}/{study.num_steps} "
    text += f"median loss {np.median(now[finite]):.3g}"
    if not finite.all():
        text += f", {np.count_nonzero(~finite)} of {finite.size} runs diverged"
    print(text, file=sys.stderr, flush=True)
