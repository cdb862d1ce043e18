"""Trains models of the inverse Laplacian, many rates and seeds in one compiled call."""

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import poisson_models
from experiments.poisson_models import Setup, Start
from opjax import checkpoint, nn, training
from opjax.problems import poisson
from opjax.problems.laplacian import laplacian_inverse

_COLUMNS = 256  # columns of the operator held at once when it is compared
_CHUNK = 200  # steps between looks at the clock
_CHECKPOINT_SECONDS = 30.0


@dataclasses.dataclass(frozen=True)
class Study:
    """One model trained for all rates and seeds.

    Attributes:
      name: of the study, and of its folder.
      setup: domain and model.
      start: starting factors and optimizer.
      rates: learning rates.
      seeds: seeds of factors and right-hand sides.
      num_modes: sine and cosine modes per axis.
      decay: damping exponent of random combinations.
      num_steps: optimizer steps.
      batch_size: right-hand sides of a step.
    """

    name: str
    setup: Setup
    start: Start
    rates: tuple[float, ...]
    seeds: tuple[int, ...]
    num_modes: int = 16
    decay: float = 1.5
    num_steps: int = 2000
    batch_size: int = 256


class Problem(NamedTuple):
    """A problem in float32 for training, and in float64 for evaluation.

    Attributes:
      single: modes and solutions in float32.
      double: the same in float64.
      moment: see `poisson.population_moment`.
      shown: 16 fixed right-hand sides, for the paper's tables and figures.
      test: 4096 others.
      unseen: twice as many modes per axis, some of which are never trained on.
      shape: interior points per axis.
    """

    single: poisson.FourierProblem
    double: poisson.FourierProblem
    moment: np.ndarray
    shown: poisson.Samples
    test: poisson.Samples
    unseen: poisson.FourierProblem
    shape: tuple[int, ...]


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


def problem(study: Study) -> Problem:
    """Tabulates the problem of a study."""
    shape, decay = study.setup.grid_shape, study.decay
    return _tabulate(shape, study.num_modes, decay)


@lru_cache(maxsize=1)  # studies of one problem follow each other
def _tabulate(shape: tuple[int, ...], num_modes: int, decay: float) -> Problem:
    higher = min(2 * num_modes, *shape)
    with jax.enable_x64(True):
        double = poisson.fourier_problem(shape, num_modes=num_modes, decay=decay)
        single = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), double)
        keys = jax.random.split(jax.random.key(4712), 3)
        return Problem(
            single,
            double,
            poisson.population_moment(keys[0], double),
            poisson.sample(keys[1], double, num_samples=16),
            poisson.sample(keys[2], double, num_samples=4096),
            poisson.fourier_problem(shape, num_modes=higher, decay=decay),
            shape,
        )


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
    return optax.chain(
        adam,
        optax.stateless(lambda updates, _: jax.tree.map(jnp.multiply, updates, sizes)),
    )


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


def evaluate(models: Any, data: Problem) -> dict[str, np.ndarray]:
    """Compares models, stacked along axes of rates and seeds, with the exact inverse.

    Args:
      models: stacked models.
      data: from `problem`.

    Returns:
      Arrays of shape `(r, s)`: `weighted_mse` of the population, `relative_l2` (mean
      over 4096 right-hand sides), `mean_16` and `max_16` (over the 16 shown),
      `operator_frobenius` (relative), and `unseen_l2`, the mean relative error on the
      modes beyond those trained on.
    """
    # Modes damped more than any of those trained on: higher ones.
    seen = np.asarray(data.double.damping).min()
    higher = np.flatnonzero(np.asarray(data.unseen.damping) < seen * (1 - 1e-9))
    with jax.enable_x64(True):
        models = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), models)
        leading = jax.tree.leaves(models)[0].shape[:2]
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), models)
        samples = {
            "shown": data.shown,
            "test": data.test,
            "unseen": poisson.Samples(*(leaf[:, higher] for leaf in data.unseen[:2])),
        }
        root = np.linalg.cholesky(data.moment)
        found = _errors(flat, data.double, root, samples, shape=data.shape)
    return {name: np.asarray(value).reshape(leading) for name, value in found.items()}


@partial(jax.jit, static_argnames="shape")
def _errors(models, problem, root, samples, *, shape):
    def errors(model):
        residual = model(problem.modes) - problem.solutions
        found = {name: _relative_l2(model, *pair) for name, pair in samples.items()}
        return {
            "weighted_mse": jnp.sum((residual @ root) ** 2),
            "relative_l2": jnp.mean(found["test"]),
            "mean_16": jnp.mean(found["shown"]),
            "max_16": jnp.max(found["shown"]),
            "operator_frobenius": _operator_error(model, shape),
            "unseen_l2": jnp.mean(found["unseen"]),
        }

    return jax.lax.map(errors, models)


def closed_form_errors(study: Study, data: Problem) -> dict[str, float] | None:
    """Errors of the computed factors for the structure of a study, where there are any.

    Args:
      study: names domain and structure.
      data: from `problem`.

    Returns:
      As `evaluate` for one model; `None` beyond one dimension, two levels and hats on
      interfaces, and for global models.
    """
    setup = study.setup
    if len(setup.grid_shape) > 1 or setup.levels > 2 or setup.global_rank:
        return None
    if setup.coarse_space != "interface" or setup.coarse_rank < setup.num_boxes - 1:
        return None
    inputs = np.asarray(data.double.modes) @ np.linalg.cholesky(data.moment)
    with jax.enable_x64(True):
        model = poisson_models.closed_form(setup, inputs)
        single = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None, None], model)
    return {name: float(value[0, 0]) for name, value in evaluate(single, data).items()}


def _relative_l2(model: Any, right_sides: jax.Array, solutions: jax.Array) -> jax.Array:
    """Relative errors of all samples, some columns at a time."""
    size, count = right_sides.shape
    columns = min(_COLUMNS, count)
    chunks = -(-count // columns)

    def stack(values):  # (n, b) as (chunks, n, columns), the last one padded with zeros
        padded = jnp.pad(values, ((0, 0), (0, chunks * columns - count)))
        return padded.reshape(size, chunks, columns).swapaxes(0, 1)

    def relative(pair):
        error = jnp.linalg.norm(model(pair[0]) - pair[1], axis=0)
        return error / jnp.linalg.norm(pair[1], axis=0)

    pairs = stack(right_sides), stack(solutions)
    return jax.lax.map(relative, pairs).reshape(-1)[:count]


def _operator_error(model: Any, shape: Sequence[int]) -> jax.Array:
    """`|M - A^{-1}|_F / |A^{-1}|_F`, some columns at a time."""
    size = math.prod(shape)
    columns = min(_COLUMNS, size)
    inverse = laplacian_inverse(shape, jnp.float64)

    def squares(first):
        # Rows past the last one are zero and add nothing.
        units = jax.nn.one_hot(first + jnp.arange(columns), size, dtype=jnp.float64)
        exact = jax.vmap(inverse)(units.reshape(columns, *shape)).reshape(columns, -1)
        return jnp.sum((model(units.T) - exact.T) ** 2), jnp.sum(exact**2)

    error, exact = jax.lax.map(squares, jnp.arange(0, size, columns))
    return jnp.sqrt(jnp.sum(error) / jnp.sum(exact))
