r"""90 % intervals of sine waves from a few noisy observations: do they cover?

    python -m benchmarks.sine_intervals

Trains eight basis functions of the coordinate, a small perceptron, with the ridge
regression of functional attention on top: the coefficients of a wave are fitted to its
observations. The loss is the negative log likelihood of the values to come. Three
seeds. On 1000 other waves, with 5 to 40 observations and noise of known deviation 0.3,
it compares the share of noisy values inside the interval and the mean half width of

    closed form      `uncertainty.ridge_variance` of one seed, and the noise
    ensemble         the deviation between the three seeds' predictions, and the noise
    Gaussian process a squared exponential kernel, whose variance and length maximise
                     the marginal likelihood of the observations of the wave
    sine and cosine  the closed form with these two functions: what is best if one knows
                     that all waves are a sine of this length

and prints a Markdown table, for the closed form with median and range over the seeds.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags
from flax import nnx
from jax import Array
from jax.typing import ArrayLike

from opjax import linalg, uncertainty
from opjax.learn.tables import median_and_range, table
from opjax.nn.layers import MLP
from opjax.problems import sinusoid

_STEPS = flags.DEFINE_integer("sine_steps", 3000, "Steps of training", lower_bound=1)
_TASKS = flags.DEFINE_integer("sine_tasks", 1000, "Number of test waves", lower_bound=1)
NOISE = 0.3
CONTEXTS = (5, 10, 20, 40)
NUM_BASIS, _NUM_QUERY, _BATCH = 8, 20, 32
_NORMAL = 1.6448536269514722  # 95 % of a standard normal variable lie below
_SPREAD = 4.25  # mean square of a coefficient of sine and cosine, over all waves
_LENGTHS = (0.5, 0.8, 1.2, 1.8, 2.5, 3.5)  # of the kernel
_VARIANCES = (0.3, 1.0, 3.0, 10.0, 30.0)


class Interval(NamedTuple):
    """Predictions of values to come, with noise: mean and standard deviation."""

    mean: Array
    deviation: Array


class Basis(nnx.Module):
    """Functions of the coordinate, and the ridge."""

    def __init__(self, *, rngs: nnx.Rngs):
        hidden = (64, 64)
        self.functions = MLP(1, hidden, NUM_BASIS, kernel_init=None, rngs=rngs)
        self.log_ridge = nnx.Param(jnp.zeros(()))

    def __call__(self, points: Array, values: Array, queries: Array) -> Interval:
        """Predicts a wave from its observations, by ridge regression in closed form."""
        key, query = self.functions(points / 6), self.functions(queries / 6)
        return closed_form(key, values, query, jnp.exp(self.log_ridge[...]))


def closed_form(key: Array, values: Array, query: Array, ridge: ArrayLike) -> Interval:
    """Ridge regression from functions at the observations to those at the queries."""
    mean = query @ linalg.ridge_solve(key, values, ridge=ridge)
    variance = uncertainty.ridge_variance(
        query, key.T, ridge=ridge, noise_variance=NOISE**2
    )
    return Interval(mean[:, 0], jnp.sqrt(variance + NOISE**2))


def sine_and_cosine(points: Array, values: Array, queries: Array) -> Interval:
    """Predicts a wave by the two functions that all waves consist of."""

    def functions(x: Array) -> Array:
        return jnp.concatenate([jnp.sin(x), jnp.cos(x)], axis=1)

    ridge = NOISE**2 / _SPREAD
    return closed_form(functions(points), values, functions(queries), ridge)


def gaussian_process(points: Array, values: Array, queries: Array) -> Interval:
    """Predicts a wave by a Gaussian process, of the most likely of all kernels."""

    def of(length: Array, variance: Array) -> tuple[Array, Interval]:
        def kernel(x: Array, y: Array) -> Array:
            return variance * jnp.exp(-((x - y.T) ** 2) / (2 * length**2))

        system = kernel(points, points) + NOISE**2 * jnp.eye(len(points))
        factor = jnp.linalg.cholesky(system)
        lower = partial(jax.scipy.linalg.solve_triangular, factor, lower=True)
        white, cross = lower(values), lower(kernel(points, queries))
        likelihood = -jnp.sum(white**2) / 2 - jnp.sum(jnp.log(jnp.diag(factor)))
        spread = variance - jnp.sum(cross**2, axis=0) + NOISE**2
        return likelihood, Interval((cross.T @ white)[:, 0], jnp.sqrt(spread))

    lengths, variances = jnp.meshgrid(jnp.array(_LENGTHS), jnp.array(_VARIANCES))
    likelihood, found = jax.vmap(of)(lengths.ravel(), variances.ravel())
    best = jnp.argmax(likelihood)
    return Interval(*(each[best] for each in found))


def draw(key: jax.Array, count: int, num_context: int) -> tuple[Array, ...]:
    """Observed points and values, queries and their values, all values with noise."""
    first, second, third = jax.random.split(key, 3)
    tasks = sinusoid.sample(
        first, num_tasks=count, num_context=num_context, num_query=_NUM_QUERY
    )
    known = NOISE * jax.random.normal(second, tasks.context_values.shape)
    asked = NOISE * jax.random.normal(third, tasks.query_values.shape)
    given = tasks.context_points, tasks.context_values + known
    return *given, tasks.query_points, tasks.query_values + asked


def fit(seed: int, *, num_steps: int) -> Basis:
    """Trains the basis and the ridge on waves with 10 observations."""
    start, key = jax.random.split(jax.random.key(seed))
    model = Basis(rngs=nnx.Rngs(start))
    schedule = optax.cosine_decay_schedule(3e-3, num_steps)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(schedule))

    def loss(model: Basis, arrays: tuple[Array, ...]) -> Array:
        *given, values = arrays
        found = jax.vmap(model)(*given)
        error = (found.mean - values[..., 0]).ravel()
        return uncertainty.gaussian_nll(error, found.deviation.ravel())

    def step(carry: tuple[Any, Any], key: jax.Array) -> tuple[tuple[Any, Any], Array]:
        model, state = carry
        value, gradient = jax.value_and_grad(loss)(model, draw(key, _BATCH, 10))
        updates, state = optimizer.update(gradient, state, model)
        return (optax.apply_updates(model, updates), state), value

    @jax.jit
    def train(model: Basis, keys: jax.Array) -> Basis:
        return jax.lax.scan(step, (model, optimizer.init(model)), keys)[0][0]

    return train(model, jax.random.split(key, num_steps))


def mixed(each: Sequence[Interval]) -> Interval:
    """What an ensemble says that knows the noise, but no variance of its members."""
    means = jnp.stack([one.mean for one in each])
    spread = jnp.var(means, axis=0, ddof=1) + NOISE**2
    return Interval(jnp.mean(means, axis=0), jnp.sqrt(spread))


def score(found: Interval, values: Array) -> tuple[float, float, float]:
    """Share of values inside the 90 % interval, mean half width, and RMS error."""
    error, half = found.mean - values[..., 0], _NORMAL * found.deviation
    inside = jnp.abs(error) <= half
    numbers = jnp.mean(inside), jnp.mean(half), jnp.sqrt(jnp.mean(error**2))
    one, two, three = map(float, numbers)
    return one, two, three


def compare(models: Sequence[Basis], *, num_tasks: int) -> list[list[str]]:
    """Rows of the table."""
    rows: list[list[str]] = []
    learned = jax.jit(lambda model, *given: jax.vmap(model)(*given))
    process, family = (
        jax.jit(jax.vmap(f)) for f in (gaussian_process, sine_and_cosine)
    )
    for number, count in enumerate(CONTEXTS):
        *given, values = draw(jax.random.key(1000 + number), num_tasks, count)
        each = [learned(model, *given) for model in models]
        scores = {
            "closed form": [score(one, values) for one in each],
            "ensemble": [score(mixed(each), values)],
            "Gaussian process": [score(process(*given), values)],
            "sine and cosine": [score(family(*given), values)],
        }
        for name, several in scores.items():
            columns = np.transpose(several)
            shown = [median_and_range(list(c), digits=3) for c in columns]
            rows.append([str(count), name, *shown])
    return rows


def main(argv: Sequence[str]) -> None:
    """Trains three seeds and prints the table."""
    if len(argv) > 1:
        raise app.UsageError(f"Unexpected arguments: {argv[1:]}.")
    begin = time.monotonic()
    models = [fit(seed, num_steps=_STEPS.value) for seed in range(3)]
    jax.block_until_ready(models)
    print(f"Training took {time.monotonic() - begin:.0f} s.")
    head = ["observations", "intervals", "coverage", "half width", "RMS error"]
    print(table(head, compare(models, num_tasks=_TASKS.value)))


if __name__ == "__main__":
    app.run(main)
