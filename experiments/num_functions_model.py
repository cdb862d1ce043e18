"""Pairs of the inverse Laplacian, learned functions of the coordinate, their map."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.typing import ArrayLike

from opjax import attention, linalg, projection
from opjax.nn import MLP
from opjax.problems import poisson

RIGHT_SIDES = ("white", "fourier")
_RIDGE = linalg.Additive(1e-6, relative=True)
# max of g (2 - g^2): above threshold * _GATE, closing costs more than a gate.
_GATE = 4 / 3 * np.sqrt(2 / 3)
_OPEN = 0.01  # minimum norm of a row of the map, in units of sqrt(threshold)


class Pairs(NamedTuple):
    """Right-hand sides whose second moment is the distribution's, and solutions.

    The mean of `|M f - u|^2` over the distribution is the sum over the columns, and the
    squared norm of all solutions is one.

    Attributes:
      points: coordinates, shape `(n, 1)`.
      inputs: right-hand sides, shape `(n, p)`.
      targets: solutions, shape `(n, p)`.
    """

    points: jax.Array | np.ndarray
    inputs: jax.Array | np.ndarray
    targets: jax.Array | np.ndarray

    @property
    def weights(self) -> jax.Array:
        """Quadrature weights, shape `(n,)`."""
        return jnp.full_like(self.points[:, 0], 1 / (len(self.points) + 1))


def pairs(right_sides: str, num_points: int, num_modes: int) -> Pairs:
    """Tabulates pairs in double precision.

    Args:
      right_sides: white, equal and independent normal coefficients of the first sines;
        or fourier, the distribution of the paper, where errors are relative to the norm
        of every solution.
      num_points: number of interior points.
      num_modes: number of sines; of fourier, the same number of cosines as well.
    """
    points = np.arange(1, num_points + 1)[:, None] / (num_points + 1)
    with jax.enable_x64(True):
        problem = poisson.fourier_problem(num_points, num_modes=num_modes)
        if right_sides == "white":
            modes, solutions = (np.asarray(a)[:, ::2] for a in problem[:2])
            root = np.eye(num_modes)
        else:
            modes, solutions = map(np.asarray, problem[:2])
            key = jax.random.key(0)
            moment = poisson.population_moment(key, problem, num_samples=100_000)
            root = np.linalg.cholesky(moment)
    size = np.linalg.norm(solutions @ root) / np.sqrt(num_points + 1)
    return Pairs(points, modes @ root / size, solutions @ root / size)


def widths(pairs: Pairs) -> np.ndarray:
    """Returns the least error of every rank 0, 1, ..., p, shape `(p + 1,)`."""
    values = np.linalg.svd(pairs.targets, compute_uv=False)
    tails = np.cumsum(np.append(values, 0)[::-1] ** 2)[::-1]
    return np.sqrt(tails / tails[0])


def sines(points: np.ndarray, number: int) -> np.ndarray:
    """Singular functions of the inverse Laplacian, shape `(n, k)`."""
    return np.sin(np.pi * points * np.arange(1, number + 1))


def hats(points: np.ndarray, number: int) -> np.ndarray:
    """Linear elements with equidistant nodes, shape `(n, k)`."""
    nodes = np.arange(1, number + 1) / (number + 1)
    return np.maximum(0, 1 - (number + 1) * np.abs(points - nodes))


def polynomials(points: np.ndarray, number: int) -> np.ndarray:
    """Legendre polynomials, shape `(n, k)`."""
    return np.polynomial.legendre.legvander(2 * points[:, 0] - 1, number - 1)


def fixed_error(basis: np.ndarray, pairs: Pairs) -> float:
    """Returns the relative error of the least-squares map between fixed functions."""
    basis, _ = np.linalg.qr(basis)
    inputs, targets = np.asarray(pairs.inputs), np.asarray(pairs.targets)
    coefficients = basis.T @ inputs
    functional_map = basis.T @ targets @ np.linalg.pinv(coefficients)
    error = basis @ (functional_map @ coefficients) - targets
    return float(np.linalg.norm(error) / np.linalg.norm(targets))


class Functions(nnx.Module):
    """Two sets of `k` functions of the coordinate, orthonormal on every grid.

    A perceptron of waves with random frequencies and phases, whose amplitudes decay
    with the frequency.
    """

    def __init__(
        self,
        num_functions: int,
        *,
        num_waves: int,
        max_frequency: float,
        width: int,
        threshold: jax.Array | float,
        rngs: nnx.Rngs,
    ):
        uniform = functools.partial(jax.random.uniform, shape=(num_waves,))
        self.frequencies = nnx.Param(max_frequency * uniform(rngs.params()))
        self.phases = nnx.Param(2 * jnp.pi * uniform(rngs.params()))
        outputs = 2 * num_functions
        self.perceptron = MLP(num_waves, width, outputs, kernel_init=None, rngs=rngs)
        self.gates = nnx.Param(jnp.ones(num_functions))
        self.threshold = nnx.Param(jnp.asarray(threshold, float))  # not trained

    def __call__(self, pairs: Pairs) -> tuple[jax.Array, jax.Array]:
        """Returns the functions of queries and of keys, shapes `(n, k)`."""
        frequencies = self.frequencies[...]
        angles = jnp.pi * pairs.points * frequencies[None] + self.phases[...][None]
        sizes = 1 / (1 + jnp.abs(frequencies))
        sizes = sizes * jnp.sqrt(2 / jnp.mean(sizes**2))
        functions = self.perceptron(sizes[None] * jnp.cos(angles))

        def orthonormal(one: jax.Array) -> jax.Array:
            gram = projection.gram(one, quadrature_weights=pairs.weights)
            return linalg.whiten(one, gram)

        query, key = jnp.split(functions, 2, axis=1)
        return orthonormal(query), orthonormal(key)


def expand(
    functions: Functions, pairs: Pairs, *, kept: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    r"""Applies functional attention with gates to all right-hand sides.

        U = Phi diag(g) C diag(g) Psi^T W F,

    where C is the regularised least-squares map between the coefficients of F and of
    the solutions.

    Args:
      functions: the functions Phi, Psi and gates g.
      pairs: right-hand sides F and solutions.
      kept: ones for functions Phi to keep and zeros for others, shape `(k,)`; all gates
        are then one. The rank of the map is at most the number of ones.

    Returns:
      Coefficients `diag(g) C diag(g) Psi^T W F`, shape `(k, p)`, and functions Phi.
    """
    query, key = functions(pairs)
    gates = jnp.abs(functions.gates[...])
    if kept is not None:
        query, gates = query * kept[None], jnp.ones_like(gates)
    attended = attention.functional_attention_map(
        pairs.targets,
        pairs.inputs,
        query,
        key,
        ridge=_RIDGE,
        query_weights=pairs.weights,
        key_weights=pairs.weights,
    )
    inputs = projection.project(pairs.inputs, key, quadrature_weights=pairs.weights)
    gated = gates[:, None] * attended.functional_map * gates[None]
    return gated @ inputs, query


def squared_error(
    coefficients: jax.Array, functions: jax.Array, pairs: Pairs
) -> jax.Array:
    """Returns the mean square error relative to the mean square of the solutions."""
    difference = projection.reconstruct(coefficients, functions) - pairs.targets
    return jnp.sum(pairs.weights @ difference**2)


def loss(functions: Functions, pairs: Pairs, *, method: str) -> jax.Array:
    """Returns the loss of a method with the functions' threshold t.

    Without a penalty the logarithm of the error. In closed form, both penalties keep as
    many functions as there are squared singular values above t:

        map      error + 2 sqrt(t) sum_j |row j of the map|
        gates    error + (4/3) sqrt(2/3) t sum_j g_j.
    """
    coefficients, basis = expand(functions, pairs)
    error = squared_error(coefficients, basis, pairs)
    threshold = jax.lax.stop_gradient(functions.threshold[...])
    if method == "map":
        rows = jnp.sqrt(jnp.sum(coefficients**2, axis=1) + 1e-20)  # smooth at zero
        return error + 2 * jnp.sqrt(threshold) * jnp.sum(rows)
    if method == "gates":
        return error + _GATE * threshold * jnp.sum(jnp.abs(functions.gates[...]))
    return jnp.log(error)


def open_rows(coefficients: jax.Array, threshold: ArrayLike) -> jax.Array:
    """Returns which functions the map uses, shape `(k,)`."""
    sizes = jnp.linalg.norm(coefficients, axis=1)
    return sizes > _OPEN * jnp.sqrt(threshold)


def truncate(coefficients: jax.Array, threshold: ArrayLike) -> tuple[jax.Array, ...]:
    """Returns the singular parts with squares above the threshold and their number."""
    left, values, right = jnp.linalg.svd(coefficients, full_matrices=False)
    kept = values**2 > threshold
    parts = (left * jnp.where(kept, values, 0)[None]) @ right
    return parts, jnp.sum(kept)
