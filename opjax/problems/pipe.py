r"""Steady incompressible flow through a deformed channel, as published with Geo-FNO.

    (u . grad) u + grad p = viscosity Laplace u,    div u = 0,

in the channel `0 < x < length`, `|y - centre(x)| < 1/2`. The inflow profile is a
parabola,

    u(0, y) = (max_velocity 4 t (1 - t), 0),    t = y - centre(0) + 1/2,

the velocity at the walls is zero, and at the right end `viscosity du/dx = p (1, 0)`,
the do-nothing outlet condition. The centreline is a cubic Hermite spline of four pieces
of equal length.

Velocity is biquadratic and pressure bilinear on finite elements whose edges follow the
channel. Relative to 64 x 64 elements, the L2 error of the velocity is 0.5 to 1 % with
32 x 32 elements and 5 % with 16 x 16: it is of third order.

The published set was computed on 64 x 64 elements with another code. One of its
samples, digitised from a plot, agrees with this problem up to 2 %. The distributions of
positions and slopes are estimated from nine of its meshes, and the maximum of 0.25 at
the inlet is that of the data (its paper states 1).
"""

from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from opjax import _checks
from opjax.problems import taylor_hood

_NUM_KNOTS = 5


class Centreline(NamedTuple):
    """Cubic Hermite spline with pieces of equal length.

    Attributes:
      positions: heights at the knots, shape `(k,)`.
      slopes: derivatives there with respect to the coordinate of a piece, which ranges
        over [0, 1], shape `(k,)`: the slope in `x` times the length of a piece.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import pipe
      >>> straight = pipe.Centreline(np.zeros(5), np.zeros(5))
      >>> pipe.height(straight, [0.0, 5.0]).tolist()
      [0.0, 0.0]
    """

    positions: jax.Array | np.ndarray
    slopes: jax.Array | np.ndarray


def random_centreline(key: jax.Array) -> Centreline:
    """Draws a centreline with the estimated distribution of the published set.

    Heights are zero at the inlet and otherwise uniform on [-1, 1]; slopes, in the
    coordinate of a piece, are uniform on [-2, 2].

    Args:
      key: PRNG key.

    Returns:
      Five positions and slopes.

    Examples:
      >>> import jax
      >>> from opjax.problems import pipe
      >>> line = pipe.random_centreline(jax.random.key(0))
      >>> line.positions.shape, float(line.positions[0])
      ((5,), 0.0)

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.4.
    """
    for_positions, for_slopes = jax.random.split(key)
    positions = jax.random.uniform(
        for_positions, (_NUM_KNOTS,), minval=-1.0, maxval=1.0
    )
    slopes = jax.random.uniform(for_slopes, (_NUM_KNOTS,), minval=-2.0, maxval=2.0)
    return Centreline(positions.at[0].set(0), slopes)


def height(centreline: Centreline, x: ArrayLike, *, length: float = 10.0) -> np.ndarray:
    """Evaluates a centreline.

    Args:
      centreline: centreline with `k` knots, the first at 0 and the last at `length`.
      x: evaluation points, any shape, between 0 and `length`.
      length: length of the channel.

    Returns:
      Heights, float64, with the shape of `x`.

    Raises:
      ValueError: if positions and slopes are not two finite vectors of equal length, at
        least two, or `x` is out of range.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import pipe
      >>> line = pipe.Centreline(np.array([0.0, 1.0]), np.zeros(2))  # one smooth step
      >>> pipe.height(line, [0.0, 5.0, 10.0]).tolist()
      [0.0, 0.5, 1.0]
    """
    positions, slopes = _checked(centreline)
    _checks.positive(length=length)
    x = np.asarray(x, np.float64)
    if x.size and (x.min() < 0 or x.max() > length):
        raise ValueError(
            f"x ranges from {x.min()} to {x.max()}, but must lie in [0, {length}]."
        )
    pieces = len(positions) - 1
    piece = np.minimum((x * pieces / length).astype(int), pieces - 1)
    s = x * pieces / length - piece
    return (
        positions[piece] * (1 + 2 * s) * (1 - s) ** 2
        + slopes[piece] * s * (1 - s) ** 2
        + positions[piece + 1] * s**2 * (3 - 2 * s)
        + slopes[piece + 1] * s**2 * (s - 1)
    )


def grid(
    centreline: Centreline, *, num_elements: int, length: float = 10.0
) -> np.ndarray:
    """Nodes of the biquadratic elements: equal steps in `x` and across the channel.

    Args:
      centreline: see `height`.
      num_elements: number `n` of elements along and across the channel; 64 was
        published.
      length: length of the channel.

    Returns:
      Coordinates, float64, shape `(2 n + 1, 2 n + 1, 2)`, along the channel first.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import pipe
      >>> straight = pipe.Centreline(np.zeros(5), np.zeros(5))
      >>> nodes = pipe.grid(straight, num_elements=4)
      >>> nodes.shape, nodes[-1, -1].tolist()
      ((9, 9, 2), [10.0, 0.5])
    """
    _checks.positive(num_elements=num_elements)
    x = np.linspace(0, length, 2 * num_elements + 1)
    across = np.linspace(-0.5, 0.5, 2 * num_elements + 1)
    y = height(centreline, x, length=length)[:, None] + across
    return np.stack([np.broadcast_to(x[:, None], y.shape), y], axis=-1)


def solve(
    centreline: Centreline,
    *,
    num_elements: int = 64,
    viscosity: float = 0.005,
    max_velocity: float = 0.25,
    length: float = 10.0,
    tolerance: float = 1e-10,
    max_iterations: int = 20,
) -> taylor_hood.SteadyFlow:
    """Solves for the steady flow by Newton's method.

    It starts from the inlet's parabola, extended along the channel; each step is one
    sparse direct solve.

    Args:
      centreline: centreline of the channel.
      num_elements: number `n` of elements along and across the channel; 64 was
        published.
      viscosity: kinematic viscosity, positive.
      max_velocity: positive maximum of the parabola at the inlet.
      length: length of the channel, whose width is 1.
      tolerance: maximum residual, relative to that of the initial velocity without
        pressure.
      max_iterations: maximum number of Newton steps.

    Returns:
      The flow at the nodes.

    Raises:
      RuntimeError: if Newton's method does not converge. For such a small viscosity,
        there may be no stable steady flow.
      ValueError: if a number is not positive, or as from `height`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import pipe
      >>> straight = pipe.Centreline(np.zeros(5), np.zeros(5))
      >>> flow = pipe.solve(straight, num_elements=4)  # the parabola of the inlet stays
      >>> print(flow.velocity[-1, :, 0].round(3))
      [0.    0.109 0.187 0.234 0.25  0.234 0.187 0.109 0.   ]

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.4.
      Taylor and Hood, Computers & Fluids 1(1), 1973: the elements.
    """
    _checks.positive(viscosity=viscosity, max_velocity=max_velocity)
    _checks.positive(tolerance=tolerance, max_iterations=max_iterations)
    nodes = grid(centreline, num_elements=num_elements, length=length)
    t = np.linspace(0, 1, 2 * num_elements + 1)
    velocity = np.zeros_like(nodes)
    velocity[..., 0] = max_velocity * 4 * t * (1 - t)
    # Sheared with the channel the parabola stays free of divergence.
    slope = np.gradient(nodes[:, 0, 1], nodes[:, 0, 0])[:, None]
    velocity[1:, :, 1] = (slope * velocity[..., 0])[1:]
    return taylor_hood.newton(
        nodes,
        velocity,
        viscosity=viscosity,
        tolerance=tolerance,
        max_iterations=max_iterations,
    )


def _checked(centreline: Centreline) -> tuple[np.ndarray, np.ndarray]:
    positions, slopes = (np.asarray(array, np.float64) for array in centreline)
    if positions.ndim != 1 or positions.shape != slopes.shape or len(positions) < 2:
        raise ValueError(
            f"positions has shape {positions.shape} and slopes has shape "
            f"{slopes.shape}, expected (k,) for both, with k >= 2 knots."
        )
    if not (np.isfinite(positions).all() and np.isfinite(slopes).all()):
        raise ValueError("positions and slopes of the centreline must be finite.")
    return positions, slopes
