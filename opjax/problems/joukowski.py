r"""Potential flow around Joukowski airfoils, in closed form, to test airfoil codes.

The map `z = zeta + 1 / zeta` maps a circle through `zeta = 1` to an airfoil with a
cusped trailing edge at `z = 2`. It maps the flow around the circle, whose circulation
makes the velocity at that edge finite, to the flow around the airfoil. Lengths are
scaled and shifted so that the airfoil extends from `x = 0` to `x = 1`. The fluid has
unit density and no viscosity: it slips along the wall, and there is no drag.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike


class PotentialFlow(NamedTuple):
    """A flow at the nodes of a mesh around an airfoil of unit chord.

    Attributes:
      points: coordinates, `(num_radii, num_angles, 2)`, counterclockwise along the
        second axis; the first row is on the airfoil.
      velocity: velocity, with the same shape.
      pressure: pressure relative to the freestream, `(num_radii, num_angles)`.
      normals: normals of the airfoil, into the fluid, `(num_angles, 2)`.
      lift: exact lift coefficient, a scalar; the drag coefficient is zero.
    """

    points: jax.Array
    velocity: jax.Array
    pressure: jax.Array
    normals: jax.Array
    lift: jax.Array


@partial(jax.jit, static_argnames=("num_radii", "num_angles", "dtype"))
def flow(
    speed: ArrayLike,
    angle: ArrayLike,
    centre: ArrayLike,
    *,
    num_radii: int = 24,
    num_angles: int = 64,
    extent: ArrayLike = 4.0,
    dtype: DTypeLike = float,
) -> PotentialFlow:
    r"""Evaluates the flow on a mesh of circles around the circle of the map.

    With the circle of radius `R = |1 - mu|` around `mu` and `d = zeta - mu`,

        u - i v = (U e^{-i a} - U e^{i a} R^2 / d^2 + i G / (2 pi d)) / (dz / dzeta),
        G = 4 pi U R sin(a + b),    b = asin(Im(mu) / R),
        p = (U^2 - u^2 - v^2) / 2,    c_l = 2 G / (U c),

    by the Kutta-Joukowski theorem, where `c` is the chord. Nodes avoid the trailing
    edge, where the map is singular.

    Args:
      speed: freestream speed `U`.
      angle: angle `a` between the incoming flow and the chord, in radians.
      centre: centre `mu` of the circle, shape `(2,)`, left of the origin and inside the
        unit circle. The first coordinate is about `-0.77` times the relative thickness
        of the airfoil, the second is half its camber.
      num_radii: number of circles, with radii in geometric progression.
      num_angles: number of nodes per circle.
      extent: ratio of the last radius to the first.
      dtype: floating-point dtype of the result.

    Returns:
      The flow. At zero thickness the velocity at the leading edge is infinite.

    Raises:
      TypeError: if `dtype` is not floating point.
      ValueError: if `centre` does not have shape `(2,)` or there are too few nodes.

    References:
      Milne-Thomson, "Theoretical Hydrodynamics", 5th edition, 1968, chapter 7.
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype={jnp.dtype(dtype)} must be a floating-point dtype.")
    speed, angle, centre, extent = (
        jnp.asarray(value, dtype) for value in (speed, angle, centre, extent)
    )
    if centre.shape != (2,) or num_radii < 2 or num_angles < 3:
        raise ValueError(
            f"centre has shape {centre.shape}, expected (2,); {num_radii=} must be "
            f"at least 2, and {num_angles=} at least 3."
        )
    mu = jax.lax.complex(centre[0], centre[1])
    radius = jnp.abs(1 - mu)
    beta = jnp.arcsin(centre[1] / radius)
    step = 2 * jnp.pi / num_angles
    turns = step * (jnp.arange(num_angles, dtype=dtype) + 0.5) - beta
    steps = jnp.arange(num_radii, dtype=dtype) / (num_radii - 1)
    offset = _real(radius * extent**steps)[:, None] * _turned(turns)[None, :]
    zeta = mu + offset
    slope = 1 - 1 / zeta**2
    left, chord = _chord(mu, radius)
    stream = _real(speed) * _turned(angle)
    circulation = 4 * jnp.pi * speed * radius * jnp.sin(angle + beta)
    swirl = 1j * _real(circulation / (2 * jnp.pi))
    conjugate = jnp.conj(stream) - stream * (_real(radius) / offset) ** 2
    velocity = jnp.conj((conjugate + swirl / offset) / slope)
    # The map turns the normals of the circle by the argument of its derivative.
    normals = (offset * slope)[0]
    normals = normals / _real(jnp.abs(normals))
    return PotentialFlow(
        points=_pair((zeta + 1 / zeta - _real(left)) / _real(chord)),
        velocity=_pair(velocity),
        pressure=(speed**2 - jnp.abs(velocity) ** 2) / 2,
        normals=_pair(normals),
        lift=2 * circulation / (speed * chord),
    )


def _chord(mu: jax.Array, radius: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Leftmost abscissa of the airfoil, from a fine sample, and its distance to 2."""
    turns = jnp.linspace(0, 2 * jnp.pi, 4097, dtype=radius.dtype)
    zeta = mu + _real(radius) * _turned(turns)
    left = jnp.min(jnp.real(zeta + 1 / zeta))
    return left, 2 - left


def _real(values: jax.Array) -> jax.Array:
    return jax.lax.complex(values, jnp.zeros_like(values))


def _turned(angles: jax.Array) -> jax.Array:
    return jax.lax.complex(jnp.cos(angles), jnp.sin(angles))


def _pair(values: jax.Array) -> jax.Array:
    return jnp.stack([jnp.real(values), jnp.imag(values)], axis=-1)
