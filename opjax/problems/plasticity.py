r"""Forming of an elasto-plastic sheet by a rigid die, with explicit dynamics.

A block of 50 x 15 mm in plane stress lies on a fixed base. A die moves down on it at
constant speed, without friction:

    rho dv/dt = div sigma,    |dev sigma| <= (2/3)^(1/2) yield_stress,

with linear elasticity in corotational rates and the associated flow rule of J2
plasticity without hardening. Lengths are in mm, stresses in MPa, times in ms, forces in
N, so densities are in g / mm^3 and energies in mJ.

The sheet is that of `opjax.problems.elastoplastic`; the die acts on the nodes of the
upper side by penalty forces. Arrays over nodes have shape `(2, n, m)`. As in the
published data, `x` decreases along axis 1 and `y` along axis 2, so the upper side is
column 0 and the base is the last column.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems import random_fields
from opjax.problems.elastoplastic import (
    STEEL,
    Material,
    State,
    initial_state,
    make_step,
    nodal_masses,
    time_step,
)

WIDTH, HEIGHT = 50.0, 15.0
_CORNER = (0.35, 14.9)  # of the published mesh: its node (0, 0)
_PENALTY = 0.1  # stiffness of the contact over node mass per squared time step


class PlasticitySample(NamedTuple):
    """Profile of the die, `(n,)`, and the mesh at all times, `(n, m, frames, 4)`.

    Examples:
      >>> import jax
      >>> from opjax.problems import plasticity
      >>> small = {"num_points": (11, 4), "num_frames": 2, "travel": 0.1}
      >>> sample = plasticity.sample(jax.random.key(0), **small)
      >>> sample.die.shape, sample.motion.shape
      ((11,), (11, 4, 2, 4))
    """

    die: jax.Array
    motion: jax.Array


def reference_mesh(num_points: tuple[int, int] = (101, 31)) -> np.ndarray:
    """Initial nodes, `x_i = 0.35 - 50 i / (n - 1)`, `y_j = 14.9 - 15 j / (m - 1)`.

    Args:
      num_points: number of nodes, `n` along the block and `m` across, at least two
        each.

    Returns:
      The nodes, float64, shape `(2, n, m)`.

    Raises:
      ValueError: if an axis has fewer than two nodes.

    Examples:
      >>> from opjax.problems import plasticity
      >>> nodes = plasticity.reference_mesh((11, 4))
      >>> nodes.shape, [round(x, 3) for x in nodes[:, -1, -1].tolist()]
      ((2, 11, 4), [-49.65, -0.1])
    """
    if min(num_points) < 2:
        raise ValueError(f"{num_points=} must be at least 2 along both axes.")
    x = _CORNER[0] - WIDTH * np.linspace(0, 1, num_points[0])
    y = _CORNER[1] - HEIGHT * np.linspace(0, 1, num_points[1])
    return np.stack(np.meshgrid(x, y, indexing="ij"))


def die_profile(
    key: jax.Array,
    *,
    num_points: int = 101,
    amplitude: ArrayLike = 3.0,
    dtype: DTypeLike | None = None,
) -> jax.Array:
    r"""Draws the profile of a die: heights of its lower side above its lowest point.

    Eight heights at equal distances, independent and uniform in `[0, amplitude]`, are
    connected by cubic Hermite polynomials. Their slopes at the heights are central
    differences, one-sided at the ends. The distribution of the published heights is
    unknown, and differs from this one.

    Args:
      key: PRNG key.
      num_points: number of points along the block.
      amplitude: maximum height, mm.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The non-negative profile, shape `(num_points,)`.

    Raises:
      ValueError: if `num_points` is below two or `amplitude` not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import plasticity
      >>> die = plasticity.die_profile(jax.random.key(0), num_points=11)
      >>> die.shape, float(die.min())
      ((11,), 0.0)
    """
    if num_points < 2:
        raise ValueError(f"{num_points=} must be at least 2.")
    _checks.positive(amplitude=amplitude)
    dtype = random_fields.available_dtype(dtype)
    heights = jax.random.uniform(key, (8,), dtype) * jnp.asarray(amplitude, dtype)
    slopes = jnp.gradient(heights)
    place = 7 * jnp.linspace(0, 1, num_points, dtype=dtype)
    left = jnp.clip(jnp.floor(place), 0, 6).astype(jnp.int32)
    t = place - left.astype(dtype)
    s = 1 - t
    profile = s**2 * ((1 + 2 * t) * heights[left] + t * slopes[left])
    profile += t**2 * ((1 + 2 * s) * heights[left + 1] - s * slopes[left + 1])
    return profile - jnp.min(profile)


@partial(jax.jit, static_argnames=("num_across", "num_frames", "material"))
def solve(
    die: ArrayLike,
    *,
    num_across: int = 31,
    travel: ArrayLike = 4.5,
    speed: ArrayLike = 3.0,
    num_frames: int = 20,
    material: Material = STEEL,
) -> jax.Array:
    r"""Presses a die into the block.

    The lower side of the die is at `y = 14.9 + die(x) - speed t`, with `die` linear
    between the nodes and constant beyond the ends of the block. The times of the frames
    are equally spaced from zero to `travel / speed`.

    On 51 x 16 nodes, displacements differ from those on 101 x 31 by 7 percent (relative
    L2, one die); doubling the speed changes them by 1 percent. The model does not
    include contact of the sides with the die, friction or hardening. The hourglass
    stiffness, contact stiffness and bulk viscosity of the published program are
    unknown; the values here are our choice.

    Args:
      die: profile of the die at the `n` nodes along the block, mm, shape `(n,)`.
      num_across: number of nodes across the block.
      travel: distance that the die moves, mm.
      speed: speed of the die, mm / ms.
      num_frames: number of times, at least two.
      material: constants of the sheet.

    Returns:
      Coordinates `x`, `y` of all nodes at all times and their displacements, mm, shape
      `(n, num_across, num_frames, 4)`. NaN if an element collapses, which happens with
      dies that are too deep or too steep.

    Raises:
      ValueError: if `die` does not have one axis, there are fewer than two nodes or
        frames, or a number is not positive.
      TypeError: if `die` is not floating point.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import plasticity
      >>> flat = np.zeros(11, np.float32)
      >>> motion = plasticity.solve(flat, num_across=4, travel=0.1, num_frames=2)
      >>> round(float(motion[:, 0, -1, 3].mean()), 2)  # the upper side went down
      -0.1
    """
    (die,) = _checks.arrays(1, die=die)
    _checks.positive(travel=travel, speed=speed)
    if num_frames < 2:
        raise ValueError(f"{num_frames=} must be at least 2.")
    reference = reference_mesh((die.shape[0], num_across))
    interval = jnp.asarray(travel, die.dtype) / jnp.asarray(speed, die.dtype)
    interval = interval / (num_frames - 1)
    steps = jnp.ceil(interval / time_step(reference, material)).astype(jnp.int32)
    step = interval / jnp.maximum(steps, 1).astype(die.dtype)
    mesh = jnp.asarray(reference, die.dtype)
    masses = nodal_masses(reference, material)
    free = np.ones(masses.shape)
    free[:, -1] = 0
    advance = make_step(reference, free=free, step=step, material=material)
    stiffness = _PENALTY * float(masses.max()) / step**2

    def body(index: jax.Array, state: State) -> State:
        fall = jnp.asarray(speed, die.dtype) * step * index.astype(die.dtype)
        upper = (mesh + state.displacement)[:, :, 0]
        push = contact_force(upper, die, fall, stiffness=stiffness)
        loads = jnp.zeros_like(mesh).at[:, :, 0].set(push)
        return advance(state, loads)

    def frame(state: State, first: jax.Array) -> tuple[State, jax.Array]:
        state = jax.lax.fori_loop(first * steps, (first + 1) * steps, body, state)
        return state, state.displacement

    start, frames = initial_state(mesh), jnp.arange(num_frames - 1, dtype=jnp.int32)
    _, displacement = jax.lax.scan(frame, start, frames)
    displacement = jnp.concatenate([start.displacement[None], displacement])
    motion = jnp.concatenate([mesh[None] + displacement, displacement], axis=1)
    return jnp.transpose(motion, (2, 3, 0, 1))


@partial(jax.jit, static_argnames=("num_points", "num_frames", "material", "dtype"))
def sample(
    key: jax.Array,
    *,
    num_points: tuple[int, int] = (101, 31),
    amplitude: ArrayLike = 3.0,
    travel: ArrayLike = 4.5,
    speed: ArrayLike = 3.0,
    num_frames: int = 20,
    material: Material = STEEL,
    dtype: DTypeLike | None = None,
) -> PlasticitySample:
    """Draws one die, and computes the motion of the block under it.

    Args:
      key: PRNG key.
      num_points: numbers of nodes along the block and across.
      amplitude: maximum height of the die, mm, see `die_profile`.
      travel: see `solve`, also for the options below.
      speed: speed of the die, mm / ms.
      num_frames: number of times.
      material: constants of the sheet.
      dtype: floating-point dtype; JAX's default dtype if omitted.

    Returns:
      The die's profile and the motion.

    Raises:
      ValueError: as from `die_profile` and `solve`.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.

    Examples:
      >>> import jax
      >>> from opjax.problems import plasticity
      >>> small = {"num_points": (11, 4), "num_frames": 2, "travel": 0.1}
      >>> plasticity.sample(jax.random.key(0), **small).motion.shape
      (11, 4, 2, 4)
    """
    die = die_profile(key, num_points=num_points[0], amplitude=amplitude, dtype=dtype)
    motion = solve(
        die,
        num_across=num_points[1],
        travel=travel,
        speed=speed,
        num_frames=num_frames,
        material=material,
    )
    return PlasticitySample(die, motion)


def contact_force(
    nodes: jax.Array, die: jax.Array, fall: ArrayLike, *, stiffness: ArrayLike
) -> jax.Array:
    """Forces of the die on nodes above its lower side, normal to it, N per mm.

    Args:
      nodes: nodes of the upper side of the block, shape `(2, n)`.
      die: profile of the die, shape `(n,)`.
      fall: distance that the die has moved so far, mm.
      stiffness: force per depth, N / mm^2.

    Returns:
      The forces, shape `(2, n)`.

    Examples:
      >>> import jax.numpy as jnp
      >>> from opjax.problems import plasticity
      >>> upper = jnp.asarray(plasticity.reference_mesh((5, 2))[:, :, 0])
      >>> force = plasticity.contact_force(upper, jnp.zeros(5), 0.01, stiffness=100.0)
      >>> round(float(force[1, 2]), 3)  # a flat die, 0.01 mm deep
      -1.0
    """
    last = die.shape[0] - 1
    place = jnp.clip((_CORNER[0] - nodes[0]) * (last / WIDTH), 0, last)
    left = jnp.clip(jnp.floor(place), 0, last - 1).astype(jnp.int32)
    share = place - left.astype(die.dtype)
    # Slopes are interpolated as well: their jumps would set the nodes ringing.
    slopes = jnp.asarray(jnp.gradient(die)) * (-last / WIDTH)  # x falls along nodes
    height, slope = (
        (1 - share) * values[left] + share * values[left + 1]
        for values in (die, slopes)
    )
    depth = jnp.maximum(nodes[1] - (_CORNER[1] + height - fall), 0)
    force = stiffness * depth / (1 + slope**2)
    return jnp.stack([force * slope, -force])
