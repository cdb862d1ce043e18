"""A ridge that is selected from the data by generalised cross-validation."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._jitted import jitted
from opjax._sequential import one_by_one
from opjax.linalg import at_least_single

_eigh = one_by_one(jnp.linalg.eigh)


@jitted(static=("num_candidates", "smallest", "largest"))
def gcv_ridge(
    matrix: Float[ArrayLike, "k d"],
    target: Float[ArrayLike, "k c"],
    *,
    num_candidates: int = 64,
    smallest: float = 1e-6,
    largest: float = 10.0,
) -> Float[Array, ""]:
    r"""Returns the Tikhonov weight selected by generalised cross-validation.

    With `A = matrix`, `B = target` and the fit `H B = A X` of `ridge_solve`, it
    minimises

        GCV(r) = k |(I - H) B|_F^2 / trace(I - H)^2
               = k sum_i f_i^2 |u_i^T B|^2 / (sum_i f_i)^2,    f_i = r / (s_i^2 + r),

    over the `k` left singular vectors `u_i` and values `s_i` of `A`, zeros included. It
    is leave-one-out cross-validation over the rows, made independent of rotations of
    the rows. One decomposition of the smaller Gram matrix gives it for every weight.
    The minimum is searched on a logarithmic grid, and between its points on a parabola.

    The weight is a constant in differentiation: gradients flow only through the solve.

    Args:
      matrix: the data `A`, shape `(k, d)`.
      target: the right-hand sides `B`, shape `(k, c)`.
      num_candidates: number of points of the grid.
      smallest: first weight of the grid, relative to the square of the largest singular
        value.
      largest: last weight of the grid, relative to the same value.

    Returns:
      The weight, for `ridge_solve(..., ridge=weight)`, a scalar. If the matrix is zero,
      it is the first candidate, because any positive weight gives the same solution.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if rows do not match, or the candidates are not positive, ascending,
        and at least three.

    Examples:
      >>> import numpy as np
      >>> from opjax.adaptive_ridge import gcv_ridge
      >>> rng = np.random.default_rng(0)
      >>> matrix, noise = rng.normal(size=(20, 3)), rng.normal(size=(20, 1))
      >>> target = matrix @ np.ones((3, 1)) + noise
      >>> bool(gcv_ridge(matrix, target) > gcv_ridge(matrix, target - noise))
      True

    References:
      Golub, Heath and Wahba, "Generalized cross-validation as a method for choosing a
        good ridge parameter", Technometrics 21(2), 1979.
    """
    matrix, target = _checks.arrays(2, matrix=matrix, target=target)
    _checks.same_axis(0, "rows", {"matrix": matrix, "target": target})
    if not (num_candidates >= 3 and 0 < smallest < largest):
        raise ValueError(
            f"{num_candidates=} must be at least 3, and {smallest=} and {largest=} "
            "must be positive and ascending."
        )
    a, b = map(at_least_single, map(lax.stop_gradient, (matrix, target)))
    squares, energies, rest = _spectrum(a, b.astype(a.dtype))
    tiny = jnp.finfo(a.dtype).tiny
    scale = jnp.maximum(squares[-1], 1e6 * tiny / smallest)  # no weight is subnormal
    rest_modes = a.shape[0] - squares.size

    def log_gcv(log_ridge: Array) -> Array:
        ridge = scale * jnp.exp(log_ridge)
        left = ridge / (squares + ridge)
        residual = jnp.sum(left**2 * energies) + rest
        return jnp.log(residual + tiny) - 2 * jnp.log(jnp.sum(left) + rest_modes)

    ends = math.log(smallest), math.log(largest)
    grid = jnp.linspace(*ends, num_candidates, dtype=a.dtype)
    values = jax.vmap(log_gcv)(grid)
    best = jnp.argmin(values)
    middle = jnp.clip(best, 1, num_candidates - 2)
    low, here, high = (values[middle + i] for i in (-1, 0, 1))
    bend = low - 2 * here + high
    inside = (best == middle) & (bend > 0)
    shift = jnp.where(inside, (low - high) / (2 * jnp.where(inside, bend, 1)), 0)
    step = grid[1] - grid[0]
    return (scale * jnp.exp(grid[best] + shift * step)).astype(target.dtype)


def _spectrum(a: Array, b: Array) -> tuple[Array, Array, Array]:
    """Squares of the singular values, the energies of `b` in their left vectors, rest.

    Of the smaller Gram matrix, in rising order; `rest` is the energy of `b` outside of
    the range of `a`, as far as that has no vectors here.
    """
    highest = lax.Precision.HIGHEST
    k, d = a.shape
    small = a if k <= d else a.T
    squares, vectors = _eigh(jnp.matmul(small, small.T, precision=highest))
    squares = jnp.maximum(squares, 0)
    if k <= d:
        energies = jnp.sum(jnp.matmul(vectors.T, b, precision=highest) ** 2, axis=1)
        return squares, energies, jnp.zeros((), a.dtype)
    left = jnp.matmul(a, vectors, precision=highest)
    products = jnp.matmul(left.T, b, precision=highest)
    kept = squares > d * jnp.finfo(a.dtype).eps * squares[-1]
    energies = jnp.sum(products**2, axis=1) / jnp.where(kept, squares, 1)
    energies = jnp.where(kept, energies, 0)
    return squares, energies, jnp.maximum(jnp.sum(b**2) - jnp.sum(energies), 0)
