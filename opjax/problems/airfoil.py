r"""Transonic flow around a deformed airfoil, as published with Geo-FNO.

The NACA 0012 profile, `0 <= x <= 1`, lies in a box of 1.5 x 0.2. Eight points of the
box move vertically and deform the profile:

    y -> y + sum_k (d_k (h - y) + d_{7-k} (h + y)) / (2 h) L_k(x),    k = 0, ..., 3,

with `h = 0.1` and the cubic Lagrange polynomials `L_k` for `x = -0.25, 0.25, 0.75,
1.25`. A gas flows along `x` with Mach number 0.8; see `opjax.problems.euler`.

Deformation, distribution and C-mesh are those of the published code. The solver is
different: it is cell-centred with the HLLC flux and the van Albada limiter; the
published one is node-centred with the Roe flux and a minmod limiter. No published
sample was available for comparison, so shock positions may differ by one or more cells.

Accuracy, for the undeformed profile at Mach 0.8 and 1.25 degrees: lift and drag
coefficients are 0.28 and 0.042 on 111 x 26 points and 0.31 and 0.030 on the published
221 x 51 points; fine meshes give about 0.36 and 0.023 (AGARD AR-211). The mesh is
coarse at the leading edge. The numerical entropy generated there (5 and 3 % of `p /
rho^gamma` at the wall, including shocks) reduces the Mach number all along the wall.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks
from opjax.problems import euler

NUM_DISPLACEMENTS = 8
_KNOTS = (-0.25, 0.25, 0.75, 1.25)
_HALF_HEIGHT = 0.1
_GROWTH = 1.02  # of the spacing in the first three quarters of a stretched line


class EulerFlow(NamedTuple):
    """Flow at the nodes of a mesh, in units of freestream density and pressure.

    Attributes:
      density: density, shape `(n + 1, m + 1)`.
      velocity: velocity, `(n + 1, m + 1, 2)`.
      pressure: pressure, `(n + 1, m + 1)`.
      mach: local Mach number, `(n + 1, m + 1)`.
      num_steps: number of time steps.
      residual: final residual, relative to that of a uniform stream.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import airfoil
      >>> cells = {"num_airfoil": 12, "num_wake": 4, "num_radial": 6}
      >>> mesh = airfoil.mesh(np.zeros(8, np.float32), **cells)
      >>> flow = airfoil.solve(mesh, num_wake=4, max_steps=20)
      >>> flow.mach.shape, flow.velocity.shape, int(flow.num_steps)
      ((21, 7), (21, 7, 2), 25)
    """

    density: jax.Array
    velocity: jax.Array
    pressure: jax.Array
    mach: jax.Array
    num_steps: jax.Array
    residual: jax.Array


def random_displacements(key: jax.Array) -> jax.Array:
    """Draws displacements with the distribution of the published set.

    Args:
      key: PRNG key.

    Returns:
      Eight numbers: the first is zero, the others are uniform on [-0.05, 0.05].

    Examples:
      >>> import jax
      >>> from opjax.problems import airfoil
      >>> moves = airfoil.random_displacements(jax.random.key(0))
      >>> moves.shape, float(moves[0]), bool(abs(moves).max() <= 0.05)
      ((8,), 0.0, True)

    References:
      Li et al., "Fourier Neural Operator with Learned Deformations", JMLR 24, 2023
      (arXiv:2207.05209), Section 4.3.
    """
    displacements = jax.random.uniform(
        key, (NUM_DISPLACEMENTS,), minval=-0.05, maxval=0.05
    )
    return displacements.at[0].set(0)


@partial(jax.jit, static_argnames=("num_airfoil",))
def profile(displacements: ArrayLike, *, num_airfoil: int = 120) -> jax.Array:
    """Points of the deformed profile, from the trailing edge over the upper side.

    Args:
      displacements: displacements of the points of the box, from left to right along
        its lower side and from right to left along its upper side, shape `(8,)`, in
        chords.
      num_airfoil: number of edges around the profile, even; 120 was published.

    Returns:
      Points, shape `(num_airfoil + 1, 2)`; the first and the last point are equal.

    Raises:
      TypeError: if the displacements are not floating point.
      ValueError: if there are not eight displacements, or `num_airfoil` is odd or below
        six.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import airfoil
      >>> points = airfoil.profile(np.zeros(8, np.float32), num_airfoil=12)
      >>> points.shape, round(float(2 * points[:, 1].max()), 2)  # NACA 0012: 12 % thick
      ((13, 2), 0.12)
    """
    _checks.floating(displacements=displacements)
    displacements = jnp.asarray(displacements)
    if displacements.shape != (NUM_DISPLACEMENTS,):
        raise ValueError(
            f"displacements has shape {displacements.shape}, expected (8,)."
        )
    points = _undeformed(num_airfoil)
    x, y = (jnp.asarray(points[:, k], displacements.dtype) for k in (0, 1))
    polynomials = jnp.asarray(_lagrange(points[:, 0]), displacements.dtype)
    lower = polynomials @ displacements[:4]
    upper = polynomials @ displacements[:3:-1]
    moved = lower * (_HALF_HEIGHT - y) + upper * (_HALF_HEIGHT + y)
    return jnp.stack([x, y + moved / (2 * _HALF_HEIGHT)], axis=-1)


@partial(jax.jit, static_argnames=("num_airfoil", "num_wake", "num_radial", "radius"))
def mesh(
    displacements: ArrayLike,
    *,
    num_airfoil: int = 120,
    num_wake: int = 50,
    num_radial: int = 50,
    radius: float = 40.0,
) -> jax.Array:
    """The published C-mesh: straight lines outwards from the profile and its wake.

    Args:
      displacements: see `profile`.
      num_airfoil: number of cells around the profile, even; 120 was published.
      num_wake: number of cells along either side of the wake; 50 was published.
      num_radial: number of cells outwards; 50 was published.
      radius: radius of the outer half circle, and distance from the leading edge to the
        outlet, in chords.

    Returns:
      Nodes, shape `(num_airfoil + 2 num_wake + 1, num_radial + 1, 2)`; the first index
      runs from the outlet above the wake to the trailing edge, over the upper and back
      along the lower side of the profile, and below the wake to the outlet.

    Raises:
      TypeError: as from `profile`.
      ValueError: as from `profile`, or if a number is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import airfoil
      >>> cells = {"num_airfoil": 12, "num_wake": 4, "num_radial": 6}
      >>> airfoil.mesh(np.zeros(8, np.float32), **cells).shape
      (21, 7, 2)
    """
    _checks.positive(num_wake=num_wake, num_radial=num_radial, radius=radius)
    body = profile(displacements, num_airfoil=num_airfoil)
    constant = partial(jnp.asarray, dtype=body.dtype)
    edge = np.hypot(*(_undeformed(num_airfoil)[1] - [1, 0]))
    along = constant(_stretched(num_wake, edge / (radius - 1))[1:, None])
    outlet = constant([[radius, 0.0]])
    wake = body[:1] * (1 - along) + outlet * along
    inner = jnp.concatenate([wake[::-1], body, wake])
    angles = np.linspace(math.pi / 2, 3 * math.pi / 2, num_airfoil + 1)
    arc = radius * np.stack([np.cos(angles), np.sin(angles)], axis=-1) + [1, 0]
    back = np.linspace(1, radius, num_wake + 1)[1:]
    above, below = (
        np.stack([back, np.full(num_wake, y)], axis=-1) for y in (radius, -radius)
    )
    outer = constant(np.concatenate([above[::-1], arc, below]))
    share = constant(_stretched(num_radial, 2 / num_airfoil / radius))[None, :, None]
    return inner[:, None] * (1 - share) + outer[:, None] * share


def solve(
    mesh_points: ArrayLike,
    *,
    num_wake: int = 50,
    mach: ArrayLike = 0.8,
    angle_of_attack: ArrayLike = 0.0,
    courant_number: float = 2.0,
    tolerance: float = 1e-4,
    max_steps: int = 20000,
) -> EulerFlow:
    """Solves for the steady flow around a profile.

    Args:
      mesh_points: points from `mesh`; the flow has the same dtype.
      num_wake: see `mesh`.
      mach: freestream Mach number.
      angle_of_attack: angle of attack, in degrees.
      courant_number: see `euler.steady`.
      tolerance: residual at which the solver stops, relative to that of a uniform
        stream. 1e-4 leaves an error of 0.1 % of the Mach number (relative L2), 1e-5
        less than 0.01 %.
      max_steps: maximum number of time steps.

    Returns:
      The flow at the nodes, in units of freestream density and pressure. It is not
      steady if its residual is above the tolerance or NaN.

    Raises:
      TypeError: if the points are not floating point.
      ValueError: if the mesh is not two-dimensional, the wake leaves no wall or its two
        sides differ, a cell is inverted (the last two are not checked if traced), or a
        number is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import airfoil
      >>> cells = {"num_airfoil": 12, "num_wake": 4, "num_radial": 6}
      >>> mesh = airfoil.mesh(np.zeros(8, np.float32), **cells)
      >>> flow = airfoil.solve(mesh, num_wake=4, mach=0.5, max_steps=20)
      >>> round(float(flow.mach[0, -1]), 2)  # far away
      0.5
    """
    _checks.floating(mesh_points=mesh_points)
    mesh_points = jnp.asarray(mesh_points)
    _checks.positive(mach=mach, courant_number=courant_number, tolerance=tolerance)
    _checks.positive(max_steps=max_steps)
    _check_mesh(mesh_points, num_wake)
    return _solve(
        mesh_points,
        jnp.asarray(mach, mesh_points.dtype),
        jnp.asarray(angle_of_attack, mesh_points.dtype),
        num_wake=int(num_wake),
        courant_number=float(courant_number),
        tolerance=float(tolerance),
        max_steps=int(max_steps),
    )


@partial(
    jax.jit, static_argnames=("num_wake", "courant_number", "tolerance", "max_steps")
)
def _solve(
    mesh_points: jax.Array,
    mach: jax.Array,
    angle_of_attack: jax.Array,
    *,
    num_wake: int,
    courant_number: float,
    tolerance: float,
    max_steps: int,
) -> EulerFlow:
    angle = jnp.deg2rad(angle_of_attack)
    speed = mach * math.sqrt(euler.GAMMA)
    one = jnp.ones_like(speed)
    stream = jnp.stack([one, speed * jnp.cos(angle), speed * jnp.sin(angle), one])
    flow = euler.steady(
        euler.metrics(mesh_points),
        stream,
        num_wake=num_wake,
        courant_number=courant_number,
        tolerance=tolerance,
        max_steps=max_steps,
    )
    nodes = euler.at_nodes(flow.state, num_wake=num_wake)
    return EulerFlow(
        density=nodes[0],
        velocity=jnp.moveaxis(nodes[1:3], 0, -1),
        pressure=nodes[3],
        mach=euler.mach_number(nodes),
        num_steps=flow.num_steps,
        residual=flow.residual,
    )


def _check_mesh(mesh_points: jax.Array, num_wake: int) -> None:
    shape = mesh_points.shape
    if len(shape) != 3 or shape[2] != 2 or min(shape[0] - 1, shape[1] - 1) < 2:
        raise ValueError(
            f"mesh_points has shape {shape}, expected (n + 1, m + 1, 2) with at "
            "least two cells along each axis."
        )
    if not 0 < 2 * num_wake < shape[0] - 1:
        raise ValueError(
            f"{num_wake=} must be positive, and smaller than half of the "
            f"{shape[0] - 1} cells along the first axis."
        )
    if isinstance(mesh_points, jax.core.Tracer):
        return
    line = mesh_points[: num_wake + 1, 0]
    gap = float(jnp.max(jnp.abs(line - mesh_points[: -num_wake - 2 : -1, 0])))
    if gap > 1e-5:
        raise ValueError(
            f"The two sides of the wake are up to {gap} apart, but both ends of "
            f"the first axis must be the same points; check that {num_wake=} is "
            "that of the mesh."
        )
    bad = int(jnp.sum(~(euler.metrics(mesh_points).volumes > 0)))
    if bad:
        raise ValueError(
            f"{bad} cells of the mesh are inverted; use smaller displacements."
        )


def _undeformed(num_airfoil: int) -> np.ndarray:
    """NACA 0012 with a closed trailing edge, `(num_airfoil + 1, 2)`."""
    if num_airfoil % 2 or num_airfoil < 6:
        raise ValueError(f"{num_airfoil=} must be even and at least 6.")
    half = np.linspace(0, 1, num_airfoil // 2)
    x = np.concatenate([[0, half[1] / 4], half[1:]])[::-1]
    powers = np.stack([np.sqrt(x), x, x**2, x**3, x**4])
    y = 0.6 * np.array([0.2969, -0.1260, -0.3516, 0.2843, -0.1036]) @ powers
    y[0] = 0
    lower = np.stack([x, -y], axis=-1)[-2::-1]
    return np.concatenate([np.stack([x, y], axis=-1), lower])


def _lagrange(x: np.ndarray) -> np.ndarray:
    """Values of the four polynomials, `(len(x), 4)`."""
    columns = []
    for k, knot in enumerate(_KNOTS):
        others = np.array(_KNOTS[:k] + _KNOTS[k + 1 :])
        columns.append(np.prod((x[:, None] - others) / (knot - others), axis=1))
    return np.stack(columns, axis=-1)


def _stretched(count: int, first: float) -> np.ndarray:
    """Points from 0 to 1 whose `count` steps grow from `first` by constant factors.

    If the factor exceeds 1.02, it applies to the first three quarters only.
    """
    if first * count >= 1:
        return np.linspace(0, 1, count + 1)
    factor = _factor(count, 1 / first)
    steps = first * factor ** np.arange(count)
    near = 3 * (count + 1) // 4 - 1
    if factor > _GROWTH and near > 0:
        steps = first * _GROWTH ** np.arange(near)
        left, step = 1 - steps.sum(), first * _GROWTH**near
        factor = _factor(count - near, left / step)
        steps = np.append(steps, step * factor ** np.arange(count - near))
    return np.append(0, np.cumsum(steps)) / steps.sum()


def _factor(count: int, total: float) -> float:
    """The factor `r > 1` with `1 + r + ... + r^(count - 1) = total`."""
    low, high = 1.0, total ** (1 / max(count - 1, 1))
    for _ in range(200):
        middle = (low + high) / 2
        if np.sum(middle ** np.arange(count, dtype=float)) < total:
            low = middle
        else:
            high = middle
    return (low + high) / 2
