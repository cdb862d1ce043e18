r"""`-(a u')' = f` on the unit interval, with a variable coefficient.

With `u = 0` at both ends, discretised by second-order finite differences at the
interior points `i / (n + 1)`, with coefficients between them. If the coefficient is
constant, this is `poisson` in one dimension.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks

KINDS = ("constant", "channels", "random")

# Channels repeat five times, so that they fit no power of two of subdomains.
_NUM_CHANNELS, _CHANNEL_WIDTH = 5, 0.08
_NUM_CELLS = 64  # of a random coefficient


def coefficient(
    kind: str, num_points: int, *, contrast: float, seed: int = 0
) -> np.ndarray:
    r"""Returns a coefficient between neighbouring points and at both ends.

        constant:  1,
        channels:  contrast in five channels of width 0.08 about 0.1, 0.3, ..., else 1,
        random:    contrast^z on each of 64 cells of equal length,

    with `z` uniform and independent, scaled so that its extremes are zero and one.

    Args:
      kind: one of `KINDS`.
      num_points: number `n` of interior points.
      contrast: ratio of the maximum to the minimum coefficient; must be one for the
        constant kind.
      seed: seed of a random coefficient.

    Returns:
      The values at `(i + 1/2) / (n + 1)`, `i = 0, ..., n`, shape `(n + 1,)`.

    Raises:
      ValueError: if the kind is unknown, the number of points is not positive, or the
        contrast does not fit the kind.
    """
    _checks.option("kind", kind, KINDS)
    _checks.positive(num_points=num_points)
    if kind == "constant":
        if contrast != 1:
            raise ValueError(f"A constant coefficient has contrast 1, not {contrast}.")
        return np.ones(num_points + 1)
    if not 1 < contrast < np.inf:
        raise ValueError(
            f"{contrast=} must be above 1 and finite for a variable coefficient; "
            "try 1000."
        )
    middle = (np.arange(num_points + 1) + 0.5) / (num_points + 1)
    if kind == "channels":
        to_centre = np.abs(middle * _NUM_CHANNELS % 1 - 0.5) / _NUM_CHANNELS
        return np.where(to_centre < _CHANNEL_WIDTH / 2, contrast, 1.0)
    z = np.random.default_rng(seed).uniform(size=_NUM_CELLS)
    z = (z - z.min()) / np.ptp(z)
    return contrast ** z[(middle * _NUM_CELLS).astype(int)]


def solve(right_side: ArrayLike, coefficient: ArrayLike) -> jax.Array:
    r"""Solves the discrete problem directly, in `O(n)` operations.

        (a_{i-1/2} (u_i - u_{i-1}) - a_{i+1/2} (u_{i+1} - u_i)) / h^2 = f_i,

    with `h = 1 / (n + 1)`. The flux `a u'` is a constant minus the sum of the
    right-hand side; the boundary values determine the constant.

    Args:
      right_side: values `f` at the interior points, shape `(n,)`.
      coefficient: positive values `a` between points, shape `(n + 1,)`.

    Returns:
      The solution at the interior points, shape `(n,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """
    right_side, coefficient = _checks.arrays(
        1, right_side=right_side, coefficient=coefficient
    )
    size = len(right_side)
    if len(coefficient) != size + 1:
        raise ValueError(
            f"coefficient {coefficient.shape} must have one value more than "
            f"right_side {right_side.shape}: one between neighbouring points and "
            "one at each end."
        )
    resistance = (1 / coefficient).astype(right_side.dtype)
    sums = jnp.concatenate([jnp.zeros_like(right_side[:1]), jnp.cumsum(right_side)])
    # Relative to its mean the sum loses fewer digits below.
    flux = jnp.sum(resistance * sums) / jnp.sum(resistance) - sums
    return jnp.cumsum(resistance * flux)[:-1] / (size + 1) ** 2
