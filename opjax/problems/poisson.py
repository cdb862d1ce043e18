r"""Poisson's equation on the unit cube, with mixed Fourier right-hand sides.

`-Laplace u = f`, `u = 0` on the boundary, discretised by second-order finite
differences at the interior points `i / (n + 1)` of each axis. The right-hand sides span
few modes, so the mean error over all of them is a trace, see `population_moment`.
"""

import functools
import math
import operator as operators
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems.laplacian import laplacian_inverse

_COLUMNS = 256  # of an operator at once


class FourierProblem(NamedTuple):
    """The space of right-hand sides, with the exact discrete solutions.

    Attributes:
      modes: right-hand sides, alternating `sin(pi m x)` and `cos(pi m x)`, shape `(n,
        k)`; in several dimensions, products of these.
      solutions: the discrete solutions, shape `(n, k)`.
      damping: factors of the modes in random combinations, shape `(k,)`.

    Examples:
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(31, num_modes=2)
      >>> problem.modes.shape, problem.solutions.shape, problem.damping.shape
      ((31, 4), (31, 4), (4,))
    """

    modes: jax.Array
    solutions: jax.Array
    damping: jax.Array


class Samples(NamedTuple):
    """Right-hand sides and solutions, with samples as columns, shape `(n, b)`.

    Examples:
      >>> import jax
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(31, num_modes=2)
      >>> samples = poisson.sample(jax.random.key(0), problem, num_samples=8)
      >>> samples.right_sides.shape, samples.solutions.shape
      ((31, 8), (31, 8))
    """

    right_sides: jax.Array
    solutions: jax.Array


def solve(right_side: ArrayLike) -> jax.Array:
    r"""Solves the discrete problem directly, in `O(n log n)` operations.

        sum_axes (2 u_i - u_{i-1} - u_{i+1}) / h^2 = f_i,    h = 1 / (n + 1).

    Args:
      right_side: values at the interior points, one axis per dimension.

    Returns:
      The solution at the same points.

    Raises:
      TypeError: if the right-hand side is not floating point.
      ValueError: if it is a scalar.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson
      >>> bent = poisson.solve(np.ones(31))  # u = x (1 - x) / 2
      >>> round(float(bent[15]), 4)
      0.125

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      Eq. 2-5.
    """
    right_side = jnp.asarray(right_side)
    _checks.floating(right_side=right_side)
    if right_side.ndim == 0 or right_side.size == 0:
        raise ValueError(
            f"right_side has shape {right_side.shape}, expected one axis of "
            "interior points per dimension."
        )
    return laplacian_inverse(right_side.shape, right_side.dtype)(right_side)


def fourier_problem(
    grid_shape: int | Sequence[int],
    *,
    num_modes: int = 16,
    decay: float = 1.5,
    solver: Callable[[jax.Array], jax.Array] = solve,
    dtype: DTypeLike | None = None,
) -> FourierProblem:
    """Tabulates the first sine and cosine modes and their solutions.

    Args:
      grid_shape: number of interior points per axis, in row-major order; a number for
        1-D.
      num_modes: number of modes `m = 1, ...` per axis; `k = (2 num_modes)^p` functions
        in total.
      decay: exponent of the damping `m^-decay`, a product over the axes.
      solver: function from right-hand sides on the grid to solutions, for another
        equation.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The problem.

    Raises:
      TypeError: if a number is not an integer or the dtype is not floating point.
      ValueError: if a number of points or modes is not positive, the decay is negative,
        or there are more modes than points on an axis.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(63, num_modes=1)
      >>> ratio = problem.modes[31, 0] / problem.solutions[31, 0]  # of sin(pi x)
      >>> round(float(ratio), 1), round(np.pi**2, 1)
      (9.9, 9.9)

    References:
      Köhler and Rheinbach, 2026, section 5.3.
    """
    axes = grid_shape if isinstance(grid_shape, Sequence) else (grid_shape,)
    shape, num_modes = tuple(map(operators.index, axes)), operators.index(num_modes)
    if dtype is not None and not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype={jnp.dtype(dtype)} must be a floating-point dtype.")
    _checks.positive(grid_shape=shape, num_modes=num_modes)
    if not 1 <= num_modes <= min(shape, default=0):
        raise ValueError(
            f"{num_modes=} is more than the grid grid_shape={shape} can resolve; use "
            "fewer modes or more points."
        )
    _checks.non_negative(decay=decay)
    factors = [
        modes_at(np.arange(1, size + 1) / (size + 1), num_modes) for size in shape
    ]
    modes = jnp.asarray(functools.reduce(np.kron, factors), dtype)
    on_grid = jnp.moveaxis(modes, 1, 0).reshape(-1, *shape)
    solutions = jax.lax.map(solver, on_grid).reshape(len(on_grid), -1).T
    damping = damping_of(num_modes, decay, axes=len(shape))
    return FourierProblem(modes, solutions, jnp.asarray(damping, dtype))


def sample(key: jax.Array, problem: FourierProblem, *, num_samples: int) -> Samples:
    """Draws mixed Fourier right-hand sides of unit norm, with their solutions.

    Half of them, rounded down, are single modes with a random sign. The others are
    random combinations of modes, with normal coefficients times the damping. Here the
    two kinds alternate; the paper shuffles them. Only the order in a batch differs.

    Args:
      key: PRNG key.
      problem: modes, solutions and damping.
      num_samples: number `b` of samples.

    Returns:
      The samples.

    Raises:
      ValueError: if the number of samples is not positive.

    Examples:
      >>> import jax
      >>> import numpy as np
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(31, num_modes=2)
      >>> samples = poisson.sample(jax.random.key(0), problem, num_samples=3)
      >>> print(np.linalg.norm(samples.right_sides, axis=0).round(3))
      [1. 1. 1.]

    References:
      Köhler and Rheinbach, 2026, section 5.3.
    """
    _checks.positive(num_samples=num_samples)
    pure_key, normal_key = jax.random.split(key)
    num_modes, dtype = problem.damping.size, problem.modes.dtype
    shape = (num_modes, (num_samples + 1) // 2)
    # One number chooses mode and sign: that of -1 - m is mode m with the sign minus.
    choice = jax.random.randint(pure_key, (1, shape[1]), -num_modes, num_modes)
    mode = jnp.where(choice < 0, -1 - choice, choice)
    sign = jnp.where(choice < 0, -1, 1).astype(dtype)
    pure = jnp.where(mode == jnp.arange(num_modes)[:, None], sign, 0)
    mixed = jax.random.normal(normal_key, shape, dtype) * problem.damping[:, None]
    # Taking turns mixes both kinds as well as a permutation, without its sorting.
    coefficients = jnp.stack([mixed, pure], axis=2).reshape(num_modes, -1)
    coefficients = coefficients[:, :num_samples]
    right_sides = problem.modes @ coefficients
    scale = 1 / jnp.linalg.norm(right_sides, axis=0, keepdims=True)
    return Samples(scale * right_sides, problem.solutions @ (scale * coefficients))


def weighted_mse(
    prediction: ArrayLike, solution: ArrayLike, *, floor: float = 1e-30
) -> jax.Array:
    r"""Returns the mean over samples of the squared relative error.

        mean_b (|p_b - u_b|^2 / n) / max(|u_b|^2 / n, floor)

    Args:
      prediction: predictions with samples as columns, shape `(n, b)`.
      solution: solutions with samples as columns, shape `(n, b)`.
      floor: minimum of the mean square in the denominator.

    Returns:
      The scalar error.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson
      >>> solution = np.ones((4, 2))
      >>> float(poisson.weighted_mse(1.5 * solution, solution))
      0.25

    References:
      Köhler and Rheinbach, 2026, Eq. 21.
    """
    prediction, solution = _checks.arrays(2, prediction=prediction, solution=solution)
    _checks.same_points(prediction=prediction, solution=solution)
    _checks.same_channels(prediction=prediction, solution=solution)
    _checks.non_negative(floor=floor)
    size = jnp.sqrt(jnp.maximum(jnp.mean(solution**2, axis=0), floor))
    # Divides before it squares, so that derivatives in float32 stay finite.
    return jnp.mean(jnp.mean(((prediction - solution) / size[None, :]) ** 2, axis=0))


def population_moment(
    key: jax.Array, problem: FourierProblem, *, num_samples: int = 400_000
) -> np.ndarray:
    r"""Returns the weighted second moment of the samples' coefficients.

        C = E[c c^T / |u|^2],    weighted MSE of M = trace(E^T E C),    E = M F - U,

    for samples `f = F c`, `u = U c`. The part of single modes is exact, that of random
    combinations is a Monte Carlo estimate.

    Args:
      key: PRNG key.
      problem: modes `F` and solutions `U`.
      num_samples: number of random combinations.

    Returns:
      The moment in float64, shape `(k, k)`, symmetric positive definite.

    Raises:
      ValueError: if the number of samples is not positive.

    Examples:
      >>> import jax
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(31, num_modes=2)
      >>> key = jax.random.key(0)
      >>> moment = poisson.population_moment(key, problem, num_samples=100)
      >>> moment.shape
      (4, 4)
    """
    _checks.positive(num_samples=num_samples)
    solutions = np.asarray(problem.solutions, np.float64)
    damping = np.asarray(problem.damping, np.float64)
    seed = np.asarray(jax.random.key_data(key)).ravel()
    normal = np.random.default_rng(seed).normal
    # Norms from the triangular factor: few operations, and no squares to cancel.
    factor: Any = np.linalg.qr(solutions, mode="r")
    moment = np.zeros((damping.size, damping.size))
    for size in np.diff(np.linspace(0, num_samples, 21).astype(int)):
        mixed = normal(size=(size, damping.size)) * damping
        mixed /= np.linalg.norm(mixed @ factor.T, axis=1, keepdims=True)
        moment += mixed.T @ mixed / num_samples
    pure = np.diag(1 / np.sum(solutions**2, axis=0)) / damping.size
    return (moment + pure) / 2


def population_mse(
    operator: Callable[[jax.Array], jax.Array],
    problem: FourierProblem,
    moment: ArrayLike,
) -> jax.Array:
    r"""Returns the weighted mean square error of a linear operator over all samples.

        trace(E^T E C),    E = M F - U.

    Args:
      operator: linear operator `M`, from `(n, c)` to `(n, c)`.
      problem: modes `F` and solutions `U`.
      moment: moment `C`, from `population_moment`, shape `(k, k)`.

    Returns:
      The scalar error.

    Examples:
      >>> import jax
      >>> import jax.numpy as jnp
      >>> from opjax.problems import poisson
      >>> problem = poisson.fourier_problem(31, num_modes=2)
      >>> key = jax.random.key(0)
      >>> moment = poisson.population_moment(key, problem, num_samples=100)
      >>> error = poisson.population_mse(jnp.zeros_like, problem, moment)
      >>> round(float(error), 3)  # of a mean of one: the operator predicts zero
      1.0
    """
    residual = operator(problem.modes) - problem.solutions
    return jnp.sum((residual @ jnp.linalg.cholesky(jnp.asarray(moment))) ** 2)


def operator_error(
    operator: Callable[[jax.Array], jax.Array],
    grid_shape: Sequence[int],
    *,
    solver: Callable[[jax.Array], jax.Array] = solve,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    r"""Returns the relative error of a linear operator in the Frobenius norm.

        |M - A^{-1}|_F / |A^{-1}|_F,

    where `A^{-1}` is the exact discrete inverse, computed a few columns at a time.

    Args:
      operator: linear operator `M`, from `(n, c)` to `(n, c)`.
      grid_shape: number of interior points per axis.
      solver: the inverse, a function from values on the grid to values on the grid.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The scalar error.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.problems import poisson
      >>> float(poisson.operator_error(jnp.zeros_like, (7,)))  # predicts zero
      1.0
    """
    shape = tuple(grid_shape)
    size = math.prod(shape)

    def squares(point: jax.Array) -> tuple[jax.Array, jax.Array]:
        unit = jax.nn.one_hot(point, size, dtype=dtype or float)
        exact = solver(unit.reshape(shape)).reshape(size)
        difference = operator(unit[:, None])[:, 0] - exact
        return jnp.sum(difference**2), jnp.sum(exact**2)

    error, exact = jax.lax.map(squares, jnp.arange(size), batch_size=_COLUMNS)
    return jnp.sqrt(jnp.sum(error) / jnp.sum(exact))


def modes_at(coordinates: np.ndarray, num_modes: int) -> np.ndarray:
    """Returns interleaved sine and cosine modes `(n, 2 num_modes)` at points `(n,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson import modes_at
      >>> print(modes_at(np.array([0.5]), 2).round(3))
      [[ 1.  0.  0. -1.]]
    """
    angles = np.pi * np.outer(coordinates, np.arange(1, num_modes + 1))
    modes = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return modes.reshape(len(angles), -1)


def damping_of(num_modes: int, decay: float, *, axes: int) -> np.ndarray:
    """Damping of the products of modes over several axes, shape `((2 modes)^axes,)`.

    Examples:
      >>> from opjax.problems.poisson import damping_of
      >>> print(damping_of(2, 1.0, axes=1))
      [1.  1.  0.5 0.5]
    """
    orders = np.repeat(np.arange(1, num_modes + 1), 2) ** -float(decay)
    return functools.reduce(np.multiply.outer, [orders] * axes).ravel()
