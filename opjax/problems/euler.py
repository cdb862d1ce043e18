r"""Steady Euler equations of a perfect gas on a structured C-mesh, by finite volumes.

    div (rho u) = 0,    div (rho u u + p I) = 0,    div (u (rho E + p)) = 0,

with `rho E = p / (gamma - 1) + rho |u|^2 / 2`. The first index of a C-mesh runs along
the wake, around a body and back along the wake, the second one outwards. States are
cell averages, `(4, n, m)`: density, two velocities and pressure (primitive variables),
or density, momentum and energy (conserved variables).

The scheme is of second order: slopes of primitive variables with the van Albada
limiter, the HLLC flux, mirrored states at walls, and the freestream beyond the outer
boundary. Local time steps with five stages continue until the residual has decreased to
the tolerance.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

GAMMA = 1.4
_STAGES = (0.0695, 0.1602, 0.2898, 0.5060, 1.0)  # van Leer, Tai and Powell, Table 3
_SMOOTH = 1e-2  # squared differences well below are not limited: steps converge
_STEPS_PER_TEST = 25


class Metrics(NamedTuple):
    """Geometry of the cells.

    Attributes:
      first_faces: normals of faces between cells that differ in the first index, with
        the length of the face, shape `(2, n + 1, m)`.
      second_faces: normals of faces between cells that differ in the second index, `(2,
        n, m + 1)`.
      volumes: areas of the cells, `(n, m)`.
    """

    first_faces: jax.Array
    second_faces: jax.Array
    volumes: jax.Array


class Steady(NamedTuple):
    """A steady state, with the number of steps and the final residual.

    Attributes:
      state: primitive variables, shape `(4, n, m)`.
      num_steps: number of time steps, a multiple of 25.
      residual: root mean square of the time derivative of the density, relative to its
        initial value.
    """

    state: jax.Array
    num_steps: jax.Array
    residual: jax.Array


def metrics(mesh_points: jax.Array) -> Metrics:
    """Normals and areas of the cells of a mesh, in either orientation.

    Args:
      mesh_points: nodes, shape `(n + 1, m + 1, 2)`.

    Returns:
      The geometry; normals point to the cell of larger index. Areas of inverted cells
      are negative.
    """
    x, y = mesh_points[..., 0], mesh_points[..., 1]
    dx, dy = x[1:, 1:] - x[:-1, :-1], y[1:, 1:] - y[:-1, :-1]
    ex, ey = x[:-1, 1:] - x[1:, :-1], y[:-1, 1:] - y[1:, :-1]
    areas = (dx * ey - dy * ex) / 2
    sign = jnp.sign(jnp.sum(areas))
    first = jnp.stack([jnp.diff(y, axis=1), -jnp.diff(x, axis=1)])
    second = jnp.stack([-jnp.diff(y, axis=0), jnp.diff(x, axis=0)])
    return Metrics(sign * first, sign * second, sign * areas)


def conserved(state: jax.Array) -> jax.Array:
    """Density, momentum and energy of a primitive state, `(4, ...)`."""
    density, u, v, pressure = state
    energy = pressure / (GAMMA - 1) + density * (u * u + v * v) / 2
    return jnp.stack([density, density * u, density * v, energy])


def primitive(state: jax.Array) -> jax.Array:
    """Density, velocity and pressure of a conserved state, `(4, ...)`."""
    density, u, v = state[0], state[1] / state[0], state[2] / state[0]
    pressure = (GAMMA - 1) * (state[3] - (state[1] * u + state[2] * v) / 2)
    return jnp.stack([density, u, v, pressure])


def mach_number(state: jax.Array) -> jax.Array:
    """Mach number of a primitive state."""
    density, u, v, pressure = state
    return jnp.sqrt((u * u + v * v) * density / (GAMMA * pressure))


def flux(left: jax.Array, right: jax.Array, normals: jax.Array) -> jax.Array:
    """The HLLC flux of conserved variables through faces.

    Args:
      left: primitive states on the side that the normals point away from, `(4, ...)`.
      right: primitive states on the side that the normals point to.
      normals: normals with the length of the face, `(2, ...)`.

    Returns:
      Flux through the faces, `(4, ...)`.

    References:
      Toro, Spruce and Speares, Shock Waves 4, 1994; wave speeds of Einfeldt, SIAM J.
      Numer. Anal. 25(2), 1988.
    """
    length = jnp.hypot(normals[0], normals[1])
    nx, ny = normals[0] / length, normals[1] / length
    slowest, fastest = _wave_speeds(left, right, nx, ny)
    (rho_l, _, _, p_l), (rho_r, _, _, p_r) = left, right
    q_l, q_r = left[1] * nx + left[2] * ny, right[1] * nx + right[2] * ny
    mass_l, mass_r = rho_l * (slowest - q_l), rho_r * (fastest - q_r)
    contact = (p_r - p_l + mass_l * q_l - mass_r * q_r) / (mass_l - mass_r)
    upwind = contact >= 0
    wave = jnp.where(upwind, slowest, fastest)
    density, u, v, pressure = jnp.where(upwind[None], left, right)
    q = u * nx + v * ny
    energy = pressure / (GAMMA - 1) + density * (u * u + v * v) / 2
    # Between the outer waves; where both run to one side the state itself is carried.
    inside = jnp.where(upwind, slowest < 0, fastest > 0)
    speed = jnp.where(inside, contact, q)
    thinner = jnp.where(inside, (wave - q) / (wave - contact), 1)
    push = jnp.where(inside, pressure + density * (wave - q) * (contact - q), pressure)
    mass = density * thinner * speed
    work = (energy * (wave - q) - pressure * q + push * contact) / (wave - contact)
    energy = jnp.where(inside, work, energy)
    across = speed - q
    return length[None] * jnp.stack(
        [
            mass,
            mass * (u + across * nx) + push * nx,
            mass * (v + across * ny) + push * ny,
            speed * (energy + push),
        ]
    )


def residual(
    state: jax.Array, geometry: Metrics, free_stream: jax.Array, *, num_wake: int
) -> jax.Array:
    """Net flux out of every cell.

    Args:
      state: conserved variables, `(4, n, m)`.
      geometry: geometry of the mesh.
      free_stream: primitive variables of the freestream, `(4,)`.
      num_wake: number of wake cells at either end of the first index. The two ends are
        neighbours; the cells between them are at the wall.

    Returns:
      Net flux of the conserved variables, `(4, n, m)`.
    """
    inside = primitive(state)
    far = free_stream[:, None, None]
    ends = jnp.broadcast_to(far, (4, 2, inside.shape[2]))
    left, right = _at_faces(jnp.concatenate([ends, inside, ends], axis=1), 1)
    first = flux(left, right, geometry.first_faces)
    wake = _is_wake(inside.shape[1], num_wake)
    below = _behind(inside, wake)
    above = jnp.broadcast_to(far, (4, inside.shape[1], 2))
    left, right = _at_faces(jnp.concatenate([below, inside, above], axis=2), 2)
    mirrored = _mirror(right[:, :, 0], geometry.second_faces[:, :, 0])
    left = left.at[:, :, 0].set(jnp.where(wake[None], left[:, :, 0], mirrored))
    second = flux(left, right, geometry.second_faces)
    return jnp.diff(first, axis=1) + jnp.diff(second, axis=2)


_Carry = tuple[jax.Array, jax.Array, jax.Array]  # state, residual, tests


def steady(
    geometry: Metrics,
    free_stream: jax.Array,
    *,
    num_wake: int,
    courant_number: float = 2.0,
    tolerance: float = 1e-4,
    max_steps: int = 20000,
) -> Steady:
    """Iterates from the freestream to a steady state.

    Args:
      geometry: geometry of the mesh.
      free_stream: primitive variables of the freestream, `(4,)`, of order one.
      num_wake: see `residual`.
      courant_number: Courant number of the steps; in tests, 2.5 converged and 3 did
        not.
      tolerance: residual at which the iteration stops, see `Steady`.
      max_steps: maximum number of steps.

    Returns:
      The state; its residual is NaN or above the tolerance if it did not converge.

    References:
      van Leer, Tai and Powell, AIAA paper 89-1933, 1989: the stages.
    """
    advance = partial(
        _advance, geometry, free_stream, num_wake=num_wake, cfl=courant_number
    )
    far = jnp.broadcast_to(free_stream[:, None, None], (4, *geometry.volumes.shape))
    state = conserved(far)
    first = _size(residual(state, geometry, free_stream, num_wake=num_wake), geometry)

    def unfinished(carry: _Carry) -> jax.Array:
        _, size, count = carry
        return (size > tolerance * first) & (count * _STEPS_PER_TEST < max_steps)

    def steps(carry: _Carry) -> _Carry:
        state, _, count = carry
        state, sizes = lax.scan(advance, state, length=_STEPS_PER_TEST)
        return state, sizes[-1], count + 1

    state, size, count = lax.while_loop(
        unfinished, steps, (state, first, jnp.asarray(0))
    )
    return Steady(primitive(state), count * _STEPS_PER_TEST, size / first)


def at_nodes(state: jax.Array, *, num_wake: int) -> jax.Array:
    """Means of the four cells around nodes, with linear extrapolation to the wall.

    Args:
      state: primitive variables, `(4, n, m)`.
      num_wake: see `residual`.

    Returns:
      Values at the nodes, `(4, n + 1, m + 1)`.
    """
    wake = _is_wake(state.shape[1], num_wake)[None, :]
    first = state[:, :, 0]
    below = jnp.where(wake, first[:, ::-1], 2 * first - state[:, :, 1])
    padded = jnp.concatenate([below[:, :, None], state, state[:, :, -1:]], axis=2)
    padded = jnp.concatenate([padded[:, :1], padded, padded[:, -1:]], axis=1)
    along = (padded[:, 1:] + padded[:, :-1]) / 2
    values = (along[:, :, 1:] + along[:, :, :-1]) / 2
    # The trailing edge is one point, and the wake from both sides the same ones.
    nodes = jnp.arange(values.shape[1])
    shared = jnp.minimum(nodes, nodes[::-1]) <= num_wake
    line = values[:, :, 0]
    line = jnp.where(shared[None], (line + line[:, ::-1]) / 2, line)
    return values.at[:, :, 0].set(line)


def _advance(
    geometry: Metrics,
    free_stream: jax.Array,
    state: jax.Array,
    _: None,
    *,
    num_wake: int,
    cfl: float,
) -> tuple[jax.Array, jax.Array]:
    step = (cfl / _spectral_radius(state, geometry))[None]
    start = state

    def stage(state: jax.Array, share: jax.Array) -> tuple[jax.Array, jax.Array]:
        rate = residual(state, geometry, free_stream, num_wake=num_wake)
        return start - share * step * rate, _size(rate, geometry)

    # A loop of one compiled stage instead of five.
    state, sizes = lax.scan(stage, state, jnp.asarray(_STAGES, state.dtype))
    return state, sizes[-1]


def _size(rate: jax.Array, geometry: Metrics) -> jax.Array:
    return jnp.sqrt(jnp.mean(jnp.square(rate[0] / geometry.volumes)))


def _spectral_radius(state: jax.Array, geometry: Metrics) -> jax.Array:
    """Volume over the time in which waves cross a cell."""
    density, u, v, pressure = primitive(state)
    sound = jnp.sqrt(GAMMA * pressure / density)
    first, second = geometry.first_faces, geometry.second_faces
    means = (first[:, 1:] + first[:, :-1]) / 2, (second[..., 1:] + second[..., :-1]) / 2
    across, outwards = (
        jnp.abs(u * n[0] + v * n[1]) + sound * jnp.hypot(n[0], n[1]) for n in means
    )
    return across + outwards


def _is_wake(size: int, num_wake: int) -> jax.Array:
    index = jnp.arange(size)
    return jnp.minimum(index, index[::-1]) < num_wake


def _behind(inside: jax.Array, wake: jax.Array) -> jax.Array:
    """Two rows of states behind the first one: the wake's other side, or continued."""
    first, second = inside[:, :, 0], inside[:, :, 1]
    near = jnp.where(wake[None], first[:, ::-1], 2 * first - second)
    return jnp.stack([second[:, ::-1], near], axis=-1)


def _mirror(state: jax.Array, normals: jax.Array) -> jax.Array:
    """The state with the velocity across faces turned round."""
    density, u, v, pressure = state
    nx, ny = normals / jnp.hypot(normals[0], normals[1])[None]
    out = u * nx + v * ny
    return jnp.stack([density, u - 2 * out * nx, v - 2 * out * ny, pressure])


def _at_faces(padded: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Limited linear states on both sides of faces; two padded cells at the ends."""
    part = partial(lax.slice_in_dim, padded, axis=axis)
    size = padded.shape[axis]
    before = part(1, size - 1) - part(0, size - 2)
    after = part(2, size) - part(1, size - 1)
    a, b = before * before + _SMOOTH, after * after + _SMOOTH
    half = (before * b + after * a) / (2 * (a + b))
    middle = part(1, size - 1)
    end = size - 2
    left = lax.slice_in_dim(middle + half, 0, end - 1, axis=axis)
    return left, lax.slice_in_dim(middle - half, 1, end, axis=axis)


def _wave_speeds(
    left: jax.Array, right: jax.Array, nx: jax.Array, ny: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Bounds of the outer waves from both states and their mean of Roe."""

    def each(state: jax.Array) -> tuple[jax.Array, ...]:
        density, u, v, pressure = state
        sound = GAMMA * pressure / density
        enthalpy = sound / (GAMMA - 1) + (u * u + v * v) / 2
        return jnp.sqrt(density), u * nx + v * ny, jnp.sqrt(sound), enthalpy

    root_l, q_l, sound_l, enthalpy_l = each(left)
    root_r, q_r, sound_r, enthalpy_r = each(right)
    share = root_l / (root_l + root_r)
    u, v = (share * left[k] + (1 - share) * right[k] for k in (1, 2))
    enthalpy = share * enthalpy_l + (1 - share) * enthalpy_r
    sound = jnp.sqrt((GAMMA - 1) * (enthalpy - (u * u + v * v) / 2))
    q = u * nx + v * ny
    return jnp.minimum(q_l - sound_l, q - sound), jnp.maximum(q_r + sound_r, q + sound)
