"""Functions on pairs of cells with one void, and the map between the cells.

Every cell is the image of the unit square with a round void. A map moves its points
along rays, to a random void, after a swirl around the void. Corresponding points of two
cells have the same reference point.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from opjax import metrics
from opjax.problems import elasticity

_CENTRE, _VOID, _REACH = 0.5, 0.3, 0.5  # the reference void; nothing moves beyond 0.5
_NUM_WAVES = 128
_LENGTH = 0.25  # of the correlation of the functions, in sides of the cell


class Cell(NamedTuple):
    """A cell at `n` points.

    Attributes:
      reference: coordinates in the square with a round void, shape `(n, 2)`.
      points: coordinates in the cell, shape `(n, 2)`.
      descriptors: coordinates, distances to the void along rays, and probes, `(n, c)`.
      values: functions to transfer, shape `(n, f)`.
      weights: quadrature weights, shape `(n,)`; they sum to the area of the cell.
    """

    reference: jax.Array
    points: jax.Array
    descriptors: jax.Array
    values: jax.Array
    weights: jax.Array


class Waves(NamedTuple):
    """Random functions, sums of plane waves that all of them share.

    Attributes:
      frequencies: shape `(2, w)`.
      phases: shape `(w,)`.
      sizes: shape `(w, f)`.
    """

    frequencies: jax.Array
    phases: jax.Array
    sizes: jax.Array

    def __call__(self, points: Float[Array, "n 2"]) -> Float[Array, "n f"]:
        """Returns the values at points."""
        return jnp.cos(points @ self.frequencies + self.phases[None]) @ self.sizes


class Law(NamedTuple):
    """How pairs are drawn.

    Attributes:
      num_probes: number of known functions, which both cells have.
      num_functions: number of functions to transfer.
      swirl: maximum angle of the swirl at the void, in radians.
    """

    num_probes: int
    num_functions: int
    swirl: float


def draw(
    key: jax.Array, law: Law, num_pairs: int, num_points: int
) -> tuple[Cell, Cell]:
    """Draws pairs of cells and random functions, stacked along axis 0."""
    of_normals, of_uniforms = jax.random.split(key)
    columns = 2 + law.num_probes + law.num_functions
    # Two calls for all numbers, because each takes a second to compile.
    normals = jax.random.normal(of_normals, (num_pairs, _NUM_WAVES * columns + 20))
    uniforms = jax.random.uniform(of_uniforms, (num_pairs, _NUM_WAVES + 6))

    def pair(normals: jax.Array, uniforms: jax.Array) -> tuple[Cell, Cell]:
        modes, of_waves = jnp.split(normals, [20])
        sizes = of_waves.reshape(_NUM_WAVES, columns)
        shifts, swirls, phases = jnp.split(uniforms, [4, 6])
        waves = Waves(
            sizes[:, :2].T / _LENGTH,
            2 * jnp.pi * phases,
            sizes[:, 2:] * jnp.sqrt(2 / _NUM_WAVES),
        )
        source, target = (
            _cell(law, waves, *numbers, num_points)
            for numbers in zip(
                *(modes.reshape(2, 2, 5), law.swirl * (2 * swirls - 1)),
                shifts.reshape(2, 2),
                strict=True,
            )
        )
        return source, target

    return jax.vmap(pair)(normals, uniforms)


def _cell(
    law: Law,
    waves: Waves,
    modes: jax.Array,
    angle: jax.Array,
    shift: jax.Array,
    num_points: int,
) -> Cell:
    reference, area = reference_points(shift, num_points)
    points, growth = place(reference, modes, angle)
    probes, values = jnp.split(waves(reference), [law.num_probes], axis=1)
    descriptors = [points - _CENTRE, gap(points, modes)[:, None], probes]
    return Cell(
        reference,
        points,
        jnp.concatenate(descriptors, axis=1),
        values,
        growth * area / num_points,
    )


def coarse(
    pairs: tuple[Cell, Cell], num_source: int, num_target: int
) -> tuple[Cell, Cell]:
    """Keeps the first points of stacked sources and targets, so many of each.

    They are spread as all of them are, so weights grow by one factor.
    """

    def first(cell: Cell, count: int) -> Cell:
        kept = jax.tree.map(lambda leaf: leaf[:, :count], cell)
        return kept._replace(weights=kept.weights * (cell.points.shape[1] / count))

    return first(pairs[0], num_source), first(pairs[1], num_target)


def reference_points(
    shift: Float[Array, " 2"], num_points: int
) -> tuple[Float[Array, "n 2"], float]:
    """The first points outside the void of a shifted low-discrepancy sequence (R2).

    Returns the points and the area that they cover.
    """
    steps = jnp.array([0.7548776662466927, 0.5698402909980532])
    every = jnp.arange(2 * num_points, dtype=steps.dtype)[:, None]
    points = (shift + every * steps) % 1
    inside = jnp.linalg.norm(points - _CENTRE, axis=1) < _VOID
    order = jnp.argsort(inside, stable=True)[:num_points]
    return points[order], 1 - float(jnp.pi) * _VOID**2


def place(
    points: Float[Array, "n 2"], modes: Float[Array, "2 5"], angle: jax.Array
) -> tuple[Float[Array, "n 2"], Float[Array, " n"]]:
    r"""Maps reference points into the cell; returns also the growth of areas.

        phi' = phi + angle g,    rho' = rho + (r(phi') - 0.3) g,    g = s^2 (2 - s),

    with `s = 1` at the reference void, linear in the radius, and zero from 0.5 on. A
    swirl keeps areas, so they grow by `(rho' / rho) (d rho' / d rho)`.
    """
    ray = points - _CENTRE
    rho = jnp.linalg.norm(ray, axis=1)
    part = jnp.maximum((_REACH - rho) / (_REACH - _VOID), 0)
    fade = part**2 * (2 - part)
    slope = (3 * part**2 - 4 * part) / (_REACH - _VOID)
    phi = jnp.arctan2(ray[:, 1], ray[:, 0]) + angle * fade
    excess = elasticity.void_radius(modes, phi) - _VOID
    moved = rho + excess * fade
    direction = jnp.stack([jnp.cos(phi), jnp.sin(phi)], axis=1)
    return _CENTRE + moved[:, None] * direction, moved / rho * (1 + excess * slope)


def gap(points: Float[Array, "n 2"], modes: Float[Array, "2 5"]) -> Float[Array, " n"]:
    """Distance of points to the void along the rays from the centre."""
    ray = points - _CENTRE
    radius = elasticity.void_radius(modes, jnp.arctan2(ray[:, 1], ray[:, 0]))
    return jnp.linalg.norm(ray, axis=1) - radius


def errors(predicted: jax.Array | np.ndarray, cell: Cell) -> jax.Array:
    """Relative L2 errors of the functions on a cell, shape `(f,)`."""
    weights = cell.weights
    error = partial(metrics.relative_l2, quadrature_weights=weights, rescale=False)
    return jax.vmap(error, (1, 1))(predicted, cell.values)
