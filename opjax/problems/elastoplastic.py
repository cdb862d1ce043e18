"""Elasto-plastic sheets in plane stress on structured meshes, by explicit dynamics.

    rho dv/dt = div sigma,    |dev sigma| <= (2/3)^(1/2) yield_stress,

with linear elasticity in corotational rates and the associated flow rule of J2
plasticity without hardening. Strains, rotations and changes of thickness may be large.
Elements are bilinear quadrilaterals with one integration point, with a small stiffness
against zero-energy modes; time integration is by central differences.

Arrays over nodes have shape `(2, n, m)`, arrays over elements `(..., n - 1, m - 1)`;
corners `(i, j)`, `(i + 1, j)`, `(i + 1, j + 1)`, `(i, j + 1)` are counterclockwise.
Units are mm, ms, g, N and MPa, a consistent system.

References:
  Flanagan and Belytschko, "A uniform strain hexahedron and quadrilateral with
  orthogonal hourglass control", Int. J. Numer. Meth. Eng. 17, 1981.
  Hughes and Winget, "Finite rotation effects in numerical integration of rate
  constitutive equations", Int. J. Numer. Meth. Eng. 15, 1980.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_COURANT = 0.4  # of the time in which a wave crosses an element of the initial mesh
_HOURGLASS = 0.01  # of the stiffness E / (1 - nu^2); about a tenth of the true one
_BULK_VISCOSITY = 0.06
_NEWTON_STEPS = 3
_PADDING = (
    ((0, 1), (0, 1)),
    ((1, 0), (0, 1)),
    ((1, 0), (1, 0)),
    ((0, 1), (1, 0)),
)


class Material(NamedTuple):
    """Constants of the sheet; the defaults are the known ones of the published data.

    Attributes:
      young: Young's modulus, MPa.
      poisson: Poisson's ratio.
      yield_stress: yield stress in uniaxial tension, MPa.
      density: density, g / mm^3.
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
        """Stiffness `E / (1 - nu^2)` for plane stress with uniaxial strain."""
        return self.young / (1 - self.poisson**2)

    @property
    def wave_speed(self) -> float:
        """Speed of longitudinal waves in the sheet, mm / ms."""
        return math.sqrt(self.plane / self.density)


STEEL = Material()


class State(NamedTuple):
    """The state of the sheet at one time; velocities are half a step behind.

    Attributes:
      displacement: displacement, mm, shape `(2, n, m)`.
      velocity: velocity, mm / ms, shape `(2, n, m)`.
      stress: stress components xx, yy and xy, MPa, shape `(3, n - 1, m - 1)`.
      thickness: thickness of the elements relative to the initial one, shape `(n - 1, m
        - 1)`.
      hourglass: generalised stress of the zero-energy modes, `(2, n - 1, m - 1)`.
      rate: growth rate of the area, tr D, 1 / ms, shape `(n - 1, m - 1)`.
      dissipated: plastic work of every element, mJ per mm of initial thickness.
    """

    displacement: jax.Array
    velocity: jax.Array
    stress: jax.Array
    thickness: jax.Array
    hourglass: jax.Array
    rate: jax.Array
    dissipated: jax.Array


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
    """Maximum stable time step, with a margin for elements shrinking to half, in ms."""
    sides = [np.linalg.norm(np.diff(reference, axis=a), axis=0).min() for a in (1, 2)]
    return _COURANT * float(min(sides)) / material.wave_speed


def nodal_masses(reference: np.ndarray, material: Material = STEEL) -> np.ndarray:
    """A quarter of the mass of every adjacent element, g per mm of thickness."""
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
      free: 0 for fixed nodes, 1 for the others; `(n, m)`, or `(2, n, m)`.
      step: length of the time step, ms.
      material: constants of the sheet.
      bulk_viscosity: damping of the shortest waves, relative to critical damping.

    Returns:
      `advance(state, loads)`, with nodal forces, N per mm, `(2, n, m)`.
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
      nodes: current nodes, shape `(2, n, m)`.
      state: state; stress, thickness, hourglass stress and area rate are used.
      viscosity: pressure per rate, MPa ms.
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
    """Updates stress and thickness over a step.

    Args:
      state: state with the velocity of the step.
      middle: nodes at the middle of the step, shape `(2, n, m)`. With gradients at
        these nodes, a rotation of the whole sheet rotates the stress exactly and has no
        other effect.
      step: length of the time step, ms.
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
    spin = (along_x[1] - along_y[0]) / 2
    cosine, sine = _rotation(jnp.asarray(step / 2 * spin))
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
    r"""Projects stresses beyond the yield surface back onto it, in plane stress.

    For `m = (xx + yy) / 2`, `h = (xx - yy) / 2` and `t = xy`, the von Mises stress is
    `(m^2 + 3 h^2 + 3 t^2)^(1/2)`, and the backward Euler step of the associated flow is

        m = m_trial / (1 + K l),    (h, t) = (h, t)_trial / (1 + 3 G l),
        K = E / (2 (1 - nu)),

    with the `l >= 0` for which the von Mises stress equals the yield stress, if the
    trial stress exceeds it.

    Args:
      trial: trial values of `m`, `h` and `t`, MPa, shape `(3, ...)`.
      material: constants of the sheet.

    Returns:
      The stresses, with the same shape, and `l`, 1 / MPa, with shape `(...)`.

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


_Values = TypeVar("_Values", jax.Array, np.ndarray)


def _corners(values: _Values) -> tuple[_Values, _Values, _Values, _Values]:
    """Nodal values at the corners of every element, counterclockwise."""
    return (
        values[:, :-1, :-1],
        values[:, 1:, :-1],
        values[:, 1:, 1:],
        values[:, :-1, 1:],
    )


def _rotation(tangent: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine of twice the angle with this tangent."""
    scale = 1 / (1 + tangent**2)
    return (1 - tangent**2) * scale, 2 * tangent * scale
