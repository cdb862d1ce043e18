r"""Forming of an elasto-plastic sheet by a rigid die, by explicit dynamics.

A block of 50 x 15 mm in plane stress rests on a fixed base. A die comes down on it at
constant speed, without friction:

    rho dv/dt = div sigma,    |dev sigma| <= (2/3)^(1/2) yield_stress,

with linear elasticity in rates that turn with the material, and the associated flow of
J2 plasticity without hardening. Lengths are in mm, stresses in MPa, times in
ms, forces in N, so densities are in g / mm^3 and energies in mJ.

Bilinear quadrilaterals with one integration point, whose zero-energy modes a small
stiffness holds; central differences in time; penalty contact at the nodes of the
upper side. Arrays over nodes have shape `(2, n, m)`, over elements `(..., n - 1, m -
1)`. As in the published data, `x` falls along axis 1 and `y` along axis 2, so the
upper side is column 0 and the base the last column.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from opjax import _checks
from opjax.problems import random_fields

WIDTH, HEIGHT = 50.0, 15.0
_CORNER = (0.35, 14.9)  # of the published mesh: its node (0, 0)
_COURANT = 0.4  # of the time in which a wave crosses an element of the initial mesh
_PENALTY = 0.1  # stiffness of the contact over node mass per squared time step
_HOURGLASS = 0.01  # of the stiffness E / (1 - nu^2); about a tenth of the true one
_BULK_VISCOSITY = 0.06
_NEWTON_STEPS = 3


class Material(NamedTuple):
    """Constants of the sheet; the defaults are those of the published data.

    Attributes:
      young: modulus of elasticity, MPa.
      poisson: Poisson's ratio.
      yield_stress: in uniaxial tension, MPa.
      density: g / mm^3.
    """

    young: float = 200e3
    poisson: float = 0.3
    yield_stress: float = 70.0
    density: float = 7.85e-3

    @property
    def shear(self) -> float:
        """Shear modulus."""
        return self.young / (2 * (1 + self.poisson))

    @property
    def plane(self) -> float:
        """Stiffness `E / (1 - nu^2)` of plane stress against strain on one side."""
        return self.young / (1 - self.poisson**2)

    @property
    def wave_speed(self) -> float:
        """Speed of longitudinal waves in the sheet, mm / ms."""
        return math.sqrt(self.plane / self.density)


STEEL = Material()


class State(NamedTuple):
    """The sheet at one time; velocities are half a step behind.

    Attributes:
      displacement: mm, shape `(2, n, m)`.
      velocity: mm / ms, shape `(2, n, m)`.
      stress: components xx, yy and xy, MPa, shape `(3, n - 1, m - 1)`.
      thickness: of the elements over the initial one, shape `(n - 1, m - 1)`.
      hourglass: generalised stress of the zero-energy modes, `(2, n - 1, m - 1)`.
      rate: of the growth of area, tr D, 1 / ms, shape `(n - 1, m - 1)`.
      dissipated: plastic work of every element, mJ, per mm of initial thickness.
    """

    displacement: jax.Array
    velocity: jax.Array
    stress: jax.Array
    thickness: jax.Array
    hourglass: jax.Array
    rate: jax.Array
    dissipated: jax.Array


class PlasticitySample(NamedTuple):
    """Profile of the die, `(n,)`, and the mesh at all times, `(n, m, frames, 4)`."""

    die: jax.Array
    motion: jax.Array


def reference_mesh(num_points: tuple[int, int] = (101, 31)) -> np.ndarray:
    """Initial nodes, `x_i = 0.35 - 50 i / (n - 1)`, `y_j = 14.9 - 15 j / (m - 1)`.

    Args:
      num_points: nodes `n` along the block and `m` across, at least two each.

    Returns:
      The nodes, float64, shape `(2, n, m)`.

    Raises:
      ValueError: if there are fewer nodes.
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
    r"""Draws the profile of a die: heights of its lower side over its lowest place.

    Eight heights at equal distances, independent and uniform in `[0, amplitude]`, are
    joined by cubic Hermite polynomials whose slopes at the heights are central
    differences, one-sided at the ends. The distribution of the published heights is
    not known; theirs is another.

    Args:
      key: PRNG key.
      num_points: points along the block.
      amplitude: largest height, mm.
      dtype: floating-point dtype; JAX's default one if left out.

    Returns:
      The profile, shape `(num_points,)`, not negative.

    Raises:
      ValueError: if `num_points` is below two or `amplitude` not positive.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.
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
    between the nodes and constant beyond the ends of the block; the times of the frames
    are equal parts of `travel / speed`, the first is zero.

    On 51 x 16 nodes, displacements differ from those on 101 x 31 by 7 percent (relative
    L2, one die); twice the speed makes 1 percent. Not modelled: contact of the sides
    with the die, friction, hardening. Our hourglass and contact stiffness and the bulk
    viscosity are not those of the published program, which are not known.

    Args:
      die: profile at the `n` nodes along the block, mm, shape `(n,)`.
      num_across: nodes across the block.
      travel: way of the die, mm.
      speed: of the die, mm / ms.
      num_frames: times, at least two.
      material: constants of the sheet.

    Returns:
      Coordinates `x`, `y` of all nodes at all times and their displacements, mm, shape
      `(n, num_across, num_frames, 4)`. NaN where an element collapses, as below dies
      that are too deep or too steep.

    Raises:
      ValueError: if `die` has not one axis, there are fewer than two nodes or frames,
        or a number is not positive.
      TypeError: if `die` is not floating point.
    """
    _checks.floating(die=die)
    _checks.rank(1, die=die)
    _checks.positive(travel=travel, speed=speed)
    if num_frames < 2:
        raise ValueError(f"{num_frames=} must be at least 2.")
    die = jnp.asarray(die)
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
    """Draws one die and the motion of the block below it.

    Args:
      key: PRNG key.
      num_points: nodes along the block and across.
      amplitude: largest height of the die, mm, see `die_profile`.
      travel: as in `solve`, likewise all below.
      speed: of the die, mm / ms.
      num_frames: times.
      material: constants of the sheet.
      dtype: floating-point dtype; JAX's default one if left out.

    Returns:
      The die's profile and the motion.

    Raises:
      ValueError: as `die_profile` and `solve`.
      TypeError: if `dtype` is not floating point, or is float64 while x64 is off.
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


def initial_state(mesh: jax.Array) -> State:
    """The sheet at rest without stress, for nodes of shape `(2, n, m)`."""
    elements = mesh[0, 1:, 1:]
    return State(
        displacement=jnp.zeros_like(mesh),
        velocity=jnp.zeros_like(mesh),
        stress=jnp.zeros((3, *elements.shape), mesh.dtype),
        thickness=jnp.ones_like(elements),
        hourglass=jnp.zeros((2, *elements.shape), mesh.dtype),
        rate=jnp.zeros_like(elements),
        dissipated=jnp.zeros_like(elements),
    )


def time_step(reference: np.ndarray, material: Material = STEEL) -> float:
    """Longest stable time step, with room for elements to shrink to half, in ms."""
    sides = [np.linalg.norm(np.diff(reference, axis=a), axis=0).min() for a in (1, 2)]
    return _COURANT * float(min(sides)) / material.wave_speed


def nodal_masses(reference: np.ndarray, material: Material = STEEL) -> np.ndarray:
    """A quarter of the mass of every adjoining element, g per mm of thickness."""
    a, b, c, d = _corners(reference)
    p, q = c - a, d - b
    quarter = material.density * (p[0] * q[1] - p[1] * q[0]) / 8
    padded = [np.pad(quarter, pad) for pad in _PADDING]
    return padded[0] + padded[1] + padded[2] + padded[3]


def make_step(
    reference: np.ndarray,
    *,
    free: np.ndarray,
    step: ArrayLike,
    material: Material = STEEL,
    bulk_viscosity: float = _BULK_VISCOSITY,
) -> Callable[[State, jax.Array], State]:
    """Builds the time step of a sheet.

    Args:
      reference: initial nodes, shape `(2, n, m)`.
      free: 0 where a node does not move, 1 elsewhere; `(n, m)`, or `(2, n, m)`.
      step: length of the step, ms.
      material: constants of the sheet.
      bulk_viscosity: damping of the shortest waves, over the critical one.

    Returns:
      `advance(state, loads)`, with forces on the nodes, N per mm, `(2, n, m)`.
    """
    masses, dtype = nodal_masses(reference, material), jnp.result_type(step)
    mesh = jnp.asarray(reference, dtype)
    size = float(np.sqrt(8 * masses.max() / material.density / 2))
    inverse = jnp.asarray(np.broadcast_to(free / masses, mesh.shape), dtype)
    viscosity = bulk_viscosity * material.density * material.wave_speed * size

    def advance(state: State, loads: jax.Array) -> State:
        forces = internal_forces(mesh + state.displacement, state, viscosity)
        velocity = state.velocity + step * inverse * (loads + forces)
        displacement = state.displacement + step * velocity
        middle = mesh + state.displacement + step / 2 * velocity
        state = state._replace(displacement=displacement, velocity=velocity)
        return update_stress(state, middle, step, material)

    return advance


def internal_forces(
    nodes: jax.Array, state: State, viscosity: ArrayLike = 0.0
) -> jax.Array:
    """Forces of the elements on their nodes, N per mm of thickness, `(2, n, m)`.

    Args:
      nodes: present nodes, shape `(2, n, m)`.
      state: stress, thickness, hourglass stress and rate of area are read.
      viscosity: pressure over rate, MPa ms.
    """
    a, b, c, d = _corners(nodes)
    p, q, skew = c - a, d - b, a - b + c - d
    area = (p[0] * q[1] - p[1] * q[0]) / 2
    xx, yy, xy = state.stress
    xx, yy = xx + viscosity * state.rate, yy + viscosity * state.rate
    forces = []
    for held, row in zip(state.hourglass, ((xx, xy), (xy, yy)), strict=True):
        held = state.thickness * held
        first, second = (
            state.thickness * stress - held * s / area
            for stress, s in zip(row, skew, strict=True)
        )
        on_c = -(first * q[1] - second * q[0]) / 2
        on_d = (first * p[1] - second * p[0]) / 2
        parts = (-on_c - held, -on_d + held, on_c - held, on_d + held)
        padded = [jnp.pad(part, pad) for part, pad in zip(parts, _PADDING, strict=True)]
        forces.append(padded[0] + padded[1] + padded[2] + padded[3])
    return jnp.stack(forces)


def update_stress(
    state: State, middle: jax.Array, step: ArrayLike, material: Material
) -> State:
    """Carries stress and thickness through a step.

    Args:
      state: its velocity is that of the step.
      middle: nodes in the middle of the step, shape `(2, n, m)`. Gradients there make
        a turn of the whole sheet turn the stress, exactly, and change nothing else.
      step: length of the step, ms.
      material: constants of the sheet.

    Returns:
      The state with new stress, thickness, hourglass stress, rate and dissipation.
    """
    a, b, c, d = _corners(middle)
    p, q, skew = c - a, d - b, a - b + c - d
    double = p[0] * q[1] - p[1] * q[0]
    a, b, c, d = _corners(state.velocity)
    fp, fq = c - a, d - b
    along_x = (fp * q[1][None] - fq * p[1][None]) / double[None]
    along_y = (fq * p[0][None] - fp * q[0][None]) / double[None]
    modes = a - b + c - d - skew[0][None] * along_x - skew[1][None] * along_y
    cosine, sine = _rotation(step / 2 * (along_x[1] - along_y[0]) / 2)
    xx, yy, xy = state.stress
    mean, half = (xx + yy) / 2, (xx - yy) / 2
    # Double angles for the tensor, single ones for the vector below.
    cosine_2, sine_2 = cosine**2 - sine**2, 2 * cosine * sine
    half, xy = cosine_2 * half - sine_2 * xy, sine_2 * half + cosine_2 * xy
    rate = along_x[0] + along_y[1]
    bulk = material.young / (2 * (1 - material.poisson))
    new, amount = return_to_yield(
        jnp.stack(
            [
                mean + bulk * step * rate,
                half + material.shear * step * (along_x[0] - along_y[1]),
                xy + material.shear * step * (along_x[1] + along_y[0]),
            ]
        ),
        material,
    )
    elastic = -2 * material.poisson / material.young * (new[0] - mean)
    thickness = state.thickness * jnp.exp(elastic - amount * new[0])
    hold_x, hold_y = state.hourglass
    held = jnp.stack([cosine * hold_x - sine * hold_y, sine * hold_x + cosine * hold_y])
    work = amount * material.yield_stress**2 * thickness * double / 2
    return state._replace(
        stress=jnp.stack([new[0] + new[1], new[0] - new[1], new[2]]),
        thickness=thickness,
        hourglass=held + _HOURGLASS * material.plane * step * modes,
        rate=rate,
        dissipated=state.dissipated + work,
    )


def return_to_yield(
    trial: jax.Array, material: Material = STEEL
) -> tuple[jax.Array, jax.Array]:
    r"""Returns stresses beyond the yield surface to it, in plane stress.

    For `m = (xx + yy) / 2`, `h = (xx - yy) / 2` and `t = xy`, von Mises' stress is
    `(m^2 + 3 h^2 + 3 t^2)^(1/2)`, and the backward Euler step of the associated flow

        m = m_trial / (1 + K l),    (h, t) = (h, t)_trial / (1 + 3 G l),
        K = E / (2 (1 - nu)),

    with the `l >= 0` that makes it the yield stress, if the trial's is above.

    Args:
      trial: `m`, `h` and `t`, MPa, shape `(3, ...)`.
      material: constants of the sheet.

    Returns:
      The stresses, of the same shape, and `l`, 1 / MPa, of shape `(...)`.

    References:
      Simo and Taylor, "A return mapping algorithm for plane stress elastoplasticity",
      Int. J. Numer. Meth. Eng. 22, 1986.
    """
    bulk, shear = material.young / (2 * (1 - material.poisson)), 3 * material.shear
    mean, rest = trial[0] ** 2, 3 * (trial[1] ** 2 + trial[2] ** 2)
    amount = jnp.zeros_like(mean)
    # Newton for 1 / mises = 1 / yield_stress, which is almost linear in l.
    for _ in range(_NEWTON_STEPS):
        u, v = 1 / (1 + bulk * amount), 1 / (1 + shear * amount)
        square = mean * u**2 + rest * v**2
        slope = jnp.maximum(mean * bulk * u**3 + rest * shear * v**3, 1e-30)
        excess = jnp.sqrt(square) / material.yield_stress - 1
        amount = jnp.maximum(amount + excess * square / slope, 0)
    u, v = 1 / (1 + bulk * amount), 1 / (1 + shear * amount)
    return trial * jnp.stack([u, v, v]), amount


def contact_force(
    nodes: jax.Array, die: jax.Array, fall: ArrayLike, *, stiffness: ArrayLike
) -> jax.Array:
    """Forces of the die on nodes above its lower side, normal to it, N per mm.

    Args:
      nodes: of the upper side of the block, shape `(2, n)`.
      die: its profile, shape `(n,)`.
      fall: way of the die so far, mm.
      stiffness: force over depth, N / mm^2.

    Returns:
      The forces, shape `(2, n)`.
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


_PADDING = (
    ((0, 1), (0, 1)),
    ((1, 0), (0, 1)),
    ((1, 0), (1, 0)),
    ((0, 1), (1, 0)),
)


def _corners(values):
    """Nodal values at the corners of every element, counterclockwise."""
    return (
        values[:, :-1, :-1],
        values[:, 1:, :-1],
        values[:, 1:, 1:],
        values[:, :-1, 1:],
    )


def _rotation(tangent) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of twice the angle with this tangent."""
    scale = 1 / (1 + tangent**2)
    return (1 - tangent**2) * scale, 2 * tangent * scale
