"""Drag and lift of a 2D airfoil, from pressure and velocity on a mesh."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from opjax import _checks, quantities

AIR_VISCOSITY = 1.56e-5  # of the AirfRANS data, m^2 / s


class WallStencil(NamedTuple):
    """The `k` corners of cells at the wall, for gradients there.

    Attributes:
      surface: index of the wall point of each corner, `(k,)`.
      nodes: indices of mesh points, `(k, 3)`: the corner, and the next and the previous
        one around the cell.
      inverse: matrices `(k, 2, 2)` from differences along the two edges to derivatives.
    """

    surface: np.ndarray
    nodes: np.ndarray
    inverse: np.ndarray


def force_coefficients(
    points: ArrayLike,
    pressure: ArrayLike,
    *,
    speed: ArrayLike,
    angle: ArrayLike,
    shear: ArrayLike | None = None,
    area: ArrayLike = 1.0,
) -> jax.Array:
    r"""Integrates pressure and wall shear stress over the contour of an airfoil.

        c = 2 / (v^2 A) (int p (n . d) ds + int tau . d ds),

    where `n` is the unit normal out of the fluid, into the airfoil. The direction `d`
    is that of the incoming flow for drag, and a quarter turn counterclockwise from it
    for lift. The contour is the polygon of the points. On each
    side, `p` and `tau` are the means of its two ends, so the error is of second order
    in the length of the sides.

    Args:
      points: points around the airfoil in either direction, shape `(m, 2)`; the last
        one is connected to the first.
      pressure: pressure divided by the density, shape `(m,)`; a constant cancels.
      speed: speed `v` of the incoming flow.
      angle: angle between the incoming flow and the first axis, in radians.
      shear: shear stress of the fluid on the wall, divided by the density, shape `(m,
        2)`, from `wall_shear`; none by default.
      area: reference area; in two dimensions, the chord.

    Returns:
      Drag and lift coefficients, shape `(2,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match or there are fewer than three points.

    References:
      Xiao et al., "Functional Attention", 2026, Eq. 57.
    """
    points, pressure = jnp.asarray(points), jnp.asarray(pressure)
    _checks.floating(points=points, pressure=pressure)
    _checks.rank(1, pressure=pressure)
    _checks.same_points(points=points, pressure=pressure)
    if points.ndim != 2 or points.shape[1] != 2 or len(points) < 3:
        raise ValueError(
            f"points has shape {points.shape}, expected (m, 2) with at least three "
            "points around the airfoil."
        )
    after = jnp.roll(points, -1, axis=0)
    sides = after - points
    turned = jnp.sum(points[:, 0] * after[:, 1] - points[:, 1] * after[:, 0])
    # Into the airfoil is to the left where the contour runs counterclockwise.
    normals = jnp.sign(turned) * jnp.stack([-sides[:, 1], sides[:, 0]], axis=1)
    if shear is not None:
        (shear,) = _checks.arrays(2, shear=shear)
        _checks.same_points(points=points, shear=shear)
        shear = _mean_of_ends(shear)
    force = quantities.force(_mean_of_ends(pressure), normals, shear=shear)
    across = quantities.drag_and_lift(force, angle=angle)
    return quantities.coefficient(across, speed=speed, area=area)


def wall_shear(
    velocity: ArrayLike,
    normals: ArrayLike,
    stencil: WallStencil,
    *,
    viscosity: float = AIR_VISCOSITY,
) -> jax.Array:
    r"""Shear stress of the fluid on a wall at rest, divided by the density.

        tau = 2 nu (S - tr(S) I / 3) n,    S = (grad u + grad u^T) / 2.

    At a point of the wall, `grad u` is the mean, over its cells, of the gradient of the
    bilinear interpolation in that corner. It is exact for linear velocities.

    Args:
      velocity: velocity at the points of the mesh, shape `(n, 2)`.
      normals: normals of the wall, into the fluid, shape `(m, 2)`.
      stencil: stencil from `wall_stencil`.
      viscosity: kinematic viscosity of the fluid; turbulent viscosity is zero at the
        wall.

    Returns:
      The stress at the points of the wall, shape `(m, 2)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    References:
      Bonnet et al., "AirfRANS", NeurIPS 2022, section 3.
    """
    velocity, normals = _checks.arrays(2, velocity=velocity, normals=normals)
    inverse = jnp.asarray(stencil.inverse, velocity.dtype)
    corner, after, before = (velocity[stencil.nodes[:, i]] for i in range(3))
    along = jnp.stack([after - corner, before - corner], axis=1)
    # Row i, column j: derivative of component j along axis i.
    gradients = jnp.sum(inverse[:, :, :, None] * along[:, None, :, :], axis=2)
    m = normals.shape[0]
    total = jax.ops.segment_sum(gradients, stencil.surface, m)
    counts = jax.ops.segment_sum(
        jnp.ones(len(along), velocity.dtype), stencil.surface, m
    )
    gradient = total / counts[:, None, None]
    strain = (gradient + jnp.swapaxes(gradient, 1, 2)) / 2
    trace = strain[:, 0, 0] + strain[:, 1, 1]
    along_normal = jnp.sum(strain * normals[:, None, :], axis=2)
    return 2 * viscosity * (along_normal - trace[:, None] * normals / 3)


def wall_stencil(
    points: np.ndarray, cells: np.ndarray, surface: np.ndarray
) -> WallStencil:
    """Collects the corners of cells at the points of a wall.

    Args:
      points: points of the mesh, shape `(n, 2)`, in float64 if cells are thin.
      cells: point indices around every cell, shape `(m, corners)`.
      surface: point indices of the wall, shape `(k,)`.

    Returns:
      The stencil.

    Raises:
      ValueError: if a point of the wall is in no cell, or a cell has no area there.
    """
    place = np.full(len(points), -1)
    place[surface] = np.arange(len(surface))
    after, before = np.roll(cells, -1, axis=1), np.roll(cells, 1, axis=1)
    nodes = np.stack([cells, after, before], axis=-1).reshape(-1, 3)
    nodes = nodes[place[nodes[:, 0]] >= 0]
    rows = place[nodes[:, 0]]
    alone = np.setdiff1d(np.arange(len(surface)), rows)
    if alone.size:
        raise ValueError(
            f"{alone.size} points of the wall are in no cell, the first one is point "
            f"{surface[alone[0]]} of the mesh."
        )
    corner = points[nodes[:, 0]]
    edges = np.stack([points[nodes[:, i]] - corner for i in (1, 2)], axis=1)
    if np.any(np.linalg.det(edges) == 0):
        raise ValueError("A cell at the wall has no area: two edges are parallel.")
    inverse = np.linalg.inv(edges)
    return WallStencil(rows.astype(np.int32), nodes.astype(np.int32), inverse)


def _mean_of_ends(values: jax.Array) -> jax.Array:
    return (values + jnp.roll(values, -1, axis=0)) / 2
