"""Compares trained models of the inverse Laplacian with the exact one."""

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.poisson_schwarz import models as structures
from experiments.poisson_schwarz.models import Study
from opjax.problems import poisson
from opjax.problems.laplacian import laplacian_inverse

_COLUMNS = 256  # columns of the operator held at once when it is compared


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
        model = structures.closed_form(setup, inputs)
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
