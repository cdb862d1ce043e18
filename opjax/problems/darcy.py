r"""Darcy flow with piecewise constant permeability, as published with the FNO.

On the unit square, `-div(a grad u) = f` with `u = 0` on the boundary. Coefficient and
solution are sampled at `K x K` cell centres `x_i = (i + 1/2) / K`, but the equation is
solved on the `K x K` nodes `i / (K - 1)`: not-a-knot cubic splines interpolate
coefficient and source from cells to nodes, extrapolating by half a cell, and the
solution back. On the nodes, the five-point scheme with arithmetic means of the
coefficient is used.

The scheme is kept with its flaws because the published arrays contain them: splines
overshoot at the jumps of the coefficient, and on fine grids a few boundary nodes even
have negative values. The linear system is still solvable, but not with diagonal
scaling.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems import grids, random_fields, splines
from opjax.problems.laplacian import laplacian_inverse


class DarcySolution(NamedTuple):
    """A discrete solution, and the residual and iterations of the solver.

    `residual` is `|b - A u| / |b|` in the norm `|r|^2 = r^T L^-1 r` of the discrete
    Laplacian `L`. Up to the contrast of the coefficient, it is the relative energy
    error.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import darcy
      >>> found = darcy.solve(np.ones((8, 8), np.float32))
      >>> bool(found.residual < 1e-5), found.solution.shape
      (True, (8, 8))
    """

    solution: jax.Array
    residual: jax.Array
    iterations: jax.Array


class DarcySample(NamedTuple):
    """Coefficient and solution on the coarse grid, and results of the solver.

    Examples:
      >>> import jax
      >>> from opjax.problems import darcy
      >>> sample = darcy.sample(jax.random.key(0), num_points=9, stride=2)
      >>> sample.coefficient.shape, sample.solution.shape
      ((5, 5), (5, 5))
    """

    coefficient: jax.Array
    solution: jax.Array
    residual: jax.Array
    iterations: jax.Array


def threshold(field: ArrayLike, *, high: float = 12.0, low: float = 3.0) -> jax.Array:
    """Converts a field to a two-phase coefficient: `high` if it is >= 0, else `low`.

    Args:
      field: field of any shape.
      high: coefficient where the field is non-negative.
      low: coefficient where the field is negative.

    Returns:
      The coefficient, with the shape and dtype of `field`. Its gradient is zero.

    Raises:
      ValueError: if `high` or `low` is not positive.
      TypeError: if `field` is not floating point.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.darcy import threshold
      >>> print(threshold(np.array([-0.5, 0.0, 2.0])))
      [ 3. 12. 12.]
    """
    _checks.floating(field=field)
    _checks.positive(high=high, low=low)
    field = jnp.asarray(field)
    phases = jnp.asarray(high, field.dtype), jnp.asarray(low, field.dtype)
    return jnp.where(field >= 0, *phases)


@partial(jax.jit, static_argnames=("tolerance", "max_iterations"))
def solve(
    coefficient: ArrayLike,
    *,
    source: ArrayLike = 1.0,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
) -> DarcySolution:
    r"""Solves `-div(a grad u) = f`, `u = 0` on the boundary, for one coefficient.

    At an interior node, with spacing `h = 1 / (K - 1)` and a spline `a` at the nodes,

        h^-2 sum_{neighbours j of i} (a_i + a_j) / 2 (u_i - u_j) = f_i,

    by conjugate gradients, preconditioned with a fast Poisson solver. The number of
    iterations (about 30) grows with the contrast of `a` but not with `K`. The solution
    is differentiable in `coefficient` and `source`, at the cost of a second solve.

    Args:
      coefficient: permeability at the `K x K` cell centres, `K >= 4`.
      source: right-hand side, a number or an array like `coefficient`.
      tolerance: residual (see `DarcySolution`) at which the solver stops; limited below
        by the rounding unit of the dtype.
      max_iterations: maximum number of iterations; compare `residual` with `tolerance`
        to check whether it sufficed.

    Returns:
      The solution at the cell centres, shape `(K, K)`, in the dtype of `coefficient`;
      the true residual, recomputed from the solution; the number of iterations. A
      negative coefficient may make the system indefinite; check `residual`.

    Raises:
      ValueError: if `coefficient` is not square or too small, `source` is neither a
        number nor of the same shape, or a numerical option is not positive.
      TypeError: if `coefficient` is not floating point.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import darcy
      >>> uniform = np.ones((21, 21), np.float32)
      >>> once, twice = (darcy.solve(a * uniform).solution for a in (1, 2))
      >>> round(float(once.max()), 3)
      0.074
      >>> round(float(twice.max() / once.max()), 3)  # twice as permeable
      0.5

    References:
      Li et al., "Fourier Neural Operator", ICLR 2021 (arXiv:2010.08895), App. A.3.2;
      Cao, "Choose a Transformer", NeurIPS 2021 (arXiv:2105.14995), App. C.3.
    """
    _check_problem(coefficient, source)
    _checks.positive(tolerance=tolerance, max_iterations=max_iterations)
    coefficient = jnp.asarray(coefficient)
    num_points, dtype = coefficient.shape[0], coefficient.dtype
    nodes = splines.cells_to_nodes(coefficient)
    right_side = jnp.asarray(source).astype(dtype)
    if right_side.ndim:
        right_side = splines.cells_to_nodes(right_side)[1:-1, 1:-1]
    right_side = jnp.broadcast_to(right_side, (num_points - 2, num_points - 2))
    apply = partial(_flux_balance, nodes)
    inverse = laplacian_inverse((num_points - 2, num_points - 2), dtype)
    interior, iterations = jax.lax.custom_linear_solve(
        apply,
        right_side,
        partial(
            _conjugate_gradients,
            inverse=inverse,
            tolerance=max(tolerance, float(jnp.finfo(dtype).eps)),
            max_iterations=max_iterations,
        ),
        symmetric=True,
        has_aux=True,
    )
    residual = _relative_residual(apply, inverse, interior, right_side)
    return DarcySolution(
        splines.nodes_to_cells(jnp.pad(interior, 1)), residual, iterations
    )


@partial(
    jax.jit,
    static_argnames=("num_points", "stride", "dtype", "tolerance", "max_iterations"),
)
def sample(
    key: jax.Array,
    *,
    num_points: int = 421,
    stride: int = 5,
    dtype: DTypeLike | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 200,
) -> DarcySample:
    """Draws one pair of the Darcy data set: random two-phase coefficient, solution.

    Coefficients are 12 and 3 by the sign of a Gaussian field with `alpha = 2` and `tau
    = 3`; the source is 1. The problem is solved on `num_points x num_points` cells and
    then subsampled; solving on the coarse grid would be a different operator.

    Args:
      key: PRNG key.
      num_points: number of cell centres per side of the solver's grid; 421 was
        published.
      stride: keep every `stride`-th cell centre of each axis; must divide `num_points -
        1`. 421 points with stride 5 give 85 x 85.
      dtype: floating-point dtype; JAX's default dtype if omitted.
      tolerance: see `solve`.
      max_iterations: see `solve`.

    Returns:
      Coefficient and solution at the points `(stride * i + 1/2) / num_points`, shape
      `(n, n)` with `n = (num_points - 1) / stride + 1`; residual and number of
      iterations.

    Raises:
      ValueError: if `stride` does not divide `num_points - 1`, or as from `solve`.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> import numpy as np
      >>> from opjax.problems import darcy
      >>> sample = darcy.sample(jax.random.key(0), num_points=21, stride=5)
      >>> sample.solution.shape
      (5, 5)
      >>> np.unique(sample.coefficient).tolist()
      [3.0, 12.0]
    """
    grids.check_stride(num_points, stride, periodic=False)
    field = random_fields.gaussian_random_field(key, num_points=num_points, dtype=dtype)
    coefficient = threshold(field)
    solution, residual, iterations = solve(
        coefficient, tolerance=tolerance, max_iterations=max_iterations
    )
    coarse = coefficient[::stride, ::stride], solution[::stride, ::stride]
    return DarcySample(*coarse, residual, iterations)


def _check_problem(coefficient: ArrayLike, source: ArrayLike) -> None:
    random_fields.square("coefficient", coefficient)
    if jnp.shape(coefficient)[0] < 4:
        raise ValueError(
            f"coefficient has shape {jnp.shape(coefficient)}, expected at least (4, 4):"
            " a not-a-knot cubic spline needs four points."
        )
    if jnp.shape(source) not in ((), jnp.shape(coefficient)):
        raise ValueError(
            f"source has shape {jnp.shape(source)}, expected a number or the shape "
            f"{jnp.shape(coefficient)} of coefficient; use `jax.vmap` for batches."
        )


def _flux_balance(nodes: jax.Array, interior: jax.Array) -> jax.Array:
    """Applies the five-point operator, zero boundary values, to interior nodes."""
    u = jnp.pad(interior, 1)
    scale = (nodes.shape[0] - 1) ** 2 / 2
    inner = nodes[:, 1:-1]
    down = (inner[1:] + inner[:-1]) * (u[1:, 1:-1] - u[:-1, 1:-1])
    inner = nodes[1:-1]
    right = (inner[:, 1:] + inner[:, :-1]) * (u[1:-1, 1:] - u[1:-1, :-1])
    return scale * (down[:-1] - down[1:] + right[:, :-1] - right[:, 1:])


_Operator = Callable[[jax.Array], jax.Array]
# Solution, residual, direction, energy of the residual, iterations.
_State = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


def _conjugate_gradients(
    apply: _Operator,
    right_side: jax.Array,
    *,
    inverse: _Operator,
    tolerance: float,
    max_iterations: int,
) -> tuple[jax.Array, jax.Array]:
    """Preconditioned conjugate gradients from zero; returns solution and iterations."""

    def unfinished(state: _State) -> jax.Array:
        _, _, _, energy, iterations = state
        return (energy > limit) & (iterations < max_iterations)

    def iterate(state: _State) -> _State:
        solution, residual, direction, energy, iterations = state
        image = apply(direction)
        step = energy / jnp.vdot(direction, image)
        solution = solution + step * direction
        residual = residual - step * image
        corrected = inverse(residual)
        new_energy = jnp.vdot(residual, corrected)
        direction = corrected + (new_energy / energy) * direction
        return solution, residual, direction, new_energy, iterations + 1

    corrected = inverse(right_side)
    energy = jnp.vdot(right_side, corrected)
    limit = energy * tolerance**2
    start = jnp.zeros_like(right_side), right_side, corrected, energy
    solution, _, _, _, iterations = jax.lax.while_loop(
        unfinished, iterate, (*start, jnp.zeros((), jnp.int32))
    )
    return solution, iterations


def _relative_residual(
    apply: _Operator, inverse: _Operator, interior: jax.Array, right_side: jax.Array
) -> jax.Array:
    """Residual norm over that of the right side, without gradient; zero for zero."""
    right_side = jax.lax.stop_gradient(right_side)
    residual = jax.lax.stop_gradient(right_side - apply(interior))
    squares = [jnp.vdot(v, inverse(v)) for v in (residual, right_side)]
    tiny = jnp.finfo(right_side.dtype).tiny
    return jnp.sqrt(jnp.maximum(squares[0], 0) / jnp.maximum(squares[1], tiny))
