"""Pairs of cells that are mapped to each other along rays, and functions on them."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

CHANNELS = 6  # of the features of a point
_WAVES = (2.0, 3.0, 4.0)  # of the boundary of a void
_RADIAL, _ANGULAR = 2, 2  # highest waves of the functions


class Mesh(NamedTuple):
    """Points of a cell, a disc of radius one with a void.

    Attributes:
      features: coordinates, those from the centre of the void, and distances along the
        ray to the void and to the circle, shape `(n, 6)`.
      weights: quadrature weights, shape `(n,)`.
      values: of a function, shape `(n, 1)`.
      reference: depth between void and circle in [0, 1], and direction, a unit vector:
        what points of two cells that are mapped to each other share, shape `(n, 3)`.
    """

    features: jax.Array
    weights: jax.Array
    values: jax.Array
    reference: jax.Array


class Pair(NamedTuple):
    """A function on one cell and its image on another."""

    source: Mesh
    target: Mesh


def draw(key: jax.Array, num_source: int, num_target: int) -> Pair:
    """Draws two cells, points in them, and a function with its image.

    The function is a random sum of waves `cos(pi p s)` over the depth times waves of
    the angle, p at most 2 and angular waves at most 2, damped by their order.
    """
    of_function, of_source, of_target = jax.random.split(key, 3)
    shape = _RADIAL + 1, 2 * _ANGULAR + 1
    orders = jnp.arange(shape[0])[:, None] + (jnp.arange(shape[1])[None] + 1) // 2
    coefficients = jax.random.normal(of_function, shape) / (1 + orders)
    return Pair(
        _mesh(of_source, num_source, coefficients),
        _mesh(of_target, num_target, coefficients),
    )


def _mesh(key: jax.Array, num_points: int, coefficients: jax.Array) -> Mesh:
    """Points of a random cell: random rays, uniform in area on every ray."""
    of_void, of_centre, of_angle, of_area = jax.random.split(key, 4)
    waves = jax.random.uniform(of_void, (2, len(_WAVES)), minval=-0.12, maxval=0.12)
    centre = jax.random.uniform(of_centre, (2,), minval=-0.2, maxval=0.2)
    angles = 2 * jnp.pi * jax.random.uniform(of_angle, (num_points,))
    phases = angles[:, None] * jnp.array(_WAVES, angles.dtype)[None]
    inner = 0.35 * (1 + jnp.cos(phases) @ waves[0] + jnp.sin(phases) @ waves[1])
    rays = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
    along = rays @ centre
    outer = jnp.sqrt(along**2 + 1 - centre @ centre) - along
    areas = (outer**2 - inner**2) / 2
    share = jax.random.uniform(of_area, (num_points,))
    radii = jnp.sqrt(inner**2 + 2 * share * areas)
    offsets = radii[:, None] * rays
    gaps = jnp.stack([radii - inner, outer - radii], axis=1)
    depth = (radii - inner) / (outer - inner)
    return Mesh(
        jnp.concatenate([offsets + centre[None], offsets, gaps], axis=1),
        2 * jnp.pi * areas / num_points,
        values(depth, angles, coefficients)[:, None],
        jnp.concatenate([depth[:, None], rays], axis=1),
    )


def values(depth: jax.Array, angles: jax.Array, coefficients: jax.Array) -> jax.Array:
    """Returns the function of depth and angle, shape `(n,)`."""
    order = jnp.arange(coefficients.shape[0], dtype=depth.dtype)
    radial = jnp.cos(jnp.pi * depth[:, None] * order[None])
    wave = jnp.arange(1, _ANGULAR + 1, dtype=angles.dtype)
    phases = angles[:, None] * wave[None]
    pairs = jnp.stack([jnp.sin(phases), jnp.cos(phases)], axis=2)
    ones = jnp.ones_like(angles)[:, None]
    angular = jnp.concatenate([ones, pairs.reshape(len(angles), -1)], axis=1)
    return jnp.sum((radial @ coefficients) * angular, axis=1)
