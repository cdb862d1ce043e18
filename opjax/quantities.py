r"""Quantities of interest of a field: integrals, extremes, forces and moments.

A field has values at the points of one mesh; `w_i` are quadrature weights, and `a_i`
area vectors of a boundary, so that `sum_i f(x_i) a_i ~ int f n dA`
(`opjax.geometry.point_area_vectors`). A point of weight zero takes part in nothing.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks


@jax.jit
def integral(
    values: Float[ArrayLike, "n ..."], quadrature_weights: Float[ArrayLike, " n"]
) -> Float[Array, "..."]:
    r"""Integral of a field, `sum_i w_i f_i`.

    Args:
      values: at the points, shape `(n,)` or `(n, q)`; not read where the weight is
        zero.
      quadrature_weights: shape `(n,)`, in units of volume.

    Returns:
      A scalar, or shape `(q,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> float(integral(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.25])))
      1.0
    """
    values, weights = _field(values, quadrature_weights)
    columns = weights.reshape(-1, *[1] * (values.ndim - 1))
    # No NaN of a masked point gets into the sum, nor into its gradient.
    return jnp.sum(columns * jnp.where(columns == 0, 0, values), axis=0)


@jax.jit
def mean(
    values: Float[ArrayLike, "n ..."], quadrature_weights: Float[ArrayLike, " n"]
) -> Float[Array, "..."]:
    r"""Mean of a field, `sum_i w_i f_i / sum_i w_i`.

    Args:
      values: at the points, shape `(n,)` or `(n, q)`; not read where the weight is
        zero.
      quadrature_weights: shape `(n,)`; NaN is returned if all are zero.

    Returns:
      A scalar, or shape `(q,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """
    return integral(values, quadrature_weights) / jnp.sum(
        jnp.asarray(quadrature_weights)
    )


@jax.jit
def maximum(
    values: Float[ArrayLike, "n ..."],
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "..."]:
    """Largest value of a field at the points whose weight is not zero.

    Args:
      values: at the points, shape `(n,)` or `(n, q)`.
      quadrature_weights: shape `(n,)`; all points count if None. If all weights are
        zero, minus infinity is returned.

    Returns:
      A scalar, or shape `(q,)`. The gradient is shared among equal largest values.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """
    if quadrature_weights is None:
        values = jnp.asarray(values)
        _checks.floating(values=values)
        _one_or_two_axes(values)
        return jnp.max(values, axis=0)
    values, weights = _field(values, quadrature_weights)
    columns = weights.reshape(-1, *[1] * (values.ndim - 1))
    return jnp.max(jnp.where(columns == 0, -jnp.inf, values), axis=0)


@jax.jit
def minimum(
    values: Float[ArrayLike, "n ..."],
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "..."]:
    """Smallest value of a field at the points whose weight is not zero.

    Args:
      values: at the points, shape `(n,)` or `(n, q)`.
      quadrature_weights: shape `(n,)`; all points count if None. If all weights are
        zero, infinity is returned.

    Returns:
      A scalar, or shape `(q,)`. The gradient is shared among equal smallest values.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """
    return -maximum(-jnp.asarray(values), quadrature_weights)


@jax.jit
def force(
    pressure: Float[ArrayLike, " n"],
    area_vectors: Float[ArrayLike, "n p"],
    *,
    shear: Float[ArrayLike, "n p"] | None = None,
) -> Float[Array, " p"]:
    r"""Force of a fluid on a wall, `sum_i (p_i a_i + tau_i |a_i|)`.

    Args:
      pressure: at the points, or means over facets, shape `(n,)`.
      area_vectors: of the points or facets, out of the fluid and into the wall, shape
        `(n, p)`; those of a mesh of the fluid point this way, those of a mesh of the
        body have the other sign.
      shear: stress `tau` of the fluid on the wall, shape `(n, p)`; none by default.

    Returns:
      Shape `(p,)`. A constant pressure has no force on a closed wall.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.
    """
    return jnp.sum(_forces(pressure, area_vectors, shear), axis=0)


@jax.jit
def moment(
    pressure: Float[ArrayLike, " n"],
    area_vectors: Float[ArrayLike, "n p"],
    mesh_points: Float[ArrayLike, "n p"],
    *,
    center: Float[ArrayLike, " p"],
    shear: Float[ArrayLike, "n p"] | None = None,
) -> Float[Array, "..."]:
    r"""Moment of the force of a fluid on a wall, `sum_i (x_i - c) x f_i`.

    Args:
      pressure: at the points, or means over facets, shape `(n,)`.
      area_vectors: as in `force`, shape `(n, p)`.
      mesh_points: where they act, shape `(n, p)`, `p` of 2 or 3.
      center: the point `c`, shape `(p,)`.
      shear: as in `force`.

    Returns:
      A scalar in the plane, positive counterclockwise; shape `(3,)` in space.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, or `p` is neither 2 nor 3.
    """
    forces = _forces(pressure, area_vectors, shear)
    points, center = jnp.asarray(mesh_points), jnp.asarray(center)
    _checks.floating(mesh_points=points, center=center)
    if points.shape != forces.shape or center.shape != forces.shape[1:]:
        raise ValueError(
            f"mesh_points {points.shape} and center {center.shape} do not fit "
            f"area_vectors {forces.shape}, expected (n, p), (p,) and (n, p)."
        )
    if forces.shape[1] not in (2, 3):
        raise ValueError(
            f"area_vectors have shape {forces.shape}: moments are those of forces in "
            "2 or 3 dimensions."
        )
    arms = points - center[None, :]
    if forces.shape[1] == 3:
        return jnp.sum(jnp.cross(arms, forces), axis=0)
    return jnp.sum(arms[:, 0] * forces[:, 1] - arms[:, 1] * forces[:, 0])


@jax.jit
def drag_and_lift(force: Float[ArrayLike, " 2"], *, angle: ArrayLike) -> Array:
    r"""Components of a force along the incoming flow, and across it.

        D = F_1 cos a + F_2 sin a,    L = F_2 cos a - F_1 sin a.

    Args:
      force: in the plane of the flow, shape `(2,)`; in space, its components along the
        first axis and along the one that points up.
      angle: of the incoming flow with the first axis, in radians.

    Returns:
      Drag and lift, shape `(2,)`; lift is a quarter turn counterclockwise from drag.

    Raises:
      TypeError: if the force is not floating point.
      ValueError: if it has another shape.
    """
    force = jnp.asarray(force)
    _checks.floating(force=force)
    if force.shape != (2,):
        raise ValueError(f"force has shape {force.shape}, expected (2,).")
    angle = jnp.asarray(angle, force.dtype)
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    drag = force[0] * cosine + force[1] * sine
    return jnp.stack([drag, force[1] * cosine - force[0] * sine])


def coefficient(
    force: ArrayLike,
    *,
    density: ArrayLike = 1.0,
    speed: ArrayLike = 1.0,
    area: ArrayLike = 1.0,
    length: ArrayLike = 1.0,
) -> Array:
    r"""Dimensionless coefficient of a force or moment, `2 F / (rho v^2 A l)`.

    Args:
      force: of any shape.
      density: of the incoming flow, `rho`.
      speed: of the incoming flow, `v`.
      area: reference area `A`; the chord in the plane.
      length: reference length `l`, for moments only.

    Returns:
      The shape of `force`.

    Raises:
      TypeError: if the force is not floating point.
      ValueError: if a reference value is not positive and finite.
    """
    force = jnp.asarray(force)
    _checks.floating(force=force)
    _checks.positive(density=density, speed=speed, area=area, length=length)
    density, speed, area, length = (
        jnp.asarray(value, force.dtype) for value in (density, speed, area, length)
    )
    return 2 / (density * speed**2 * area * length) * force


def _forces(
    pressure: ArrayLike, area_vectors: ArrayLike, shear: ArrayLike | None
) -> Array:
    """Forces at the points, `(n, p)`."""
    pressure, vectors = jnp.asarray(pressure), jnp.asarray(area_vectors)
    _checks.floating(pressure=pressure, area_vectors=vectors)
    _checks.rank(1, pressure=pressure)
    _checks.rank(2, area_vectors=vectors)
    _checks.same_points(pressure=pressure, area_vectors=vectors)
    found = pressure[:, None] * vectors
    if shear is None:
        return found
    shear = jnp.asarray(shear)
    _checks.floating(shear=shear)
    _checks.rank(2, shear=shear)
    _checks.same_points(shear=shear, area_vectors=vectors)
    _checks.same_channels(shear=shear, area_vectors=vectors)
    squares = jnp.sum(vectors**2, axis=1, keepdims=True)
    # The root has no gradient at zero, where a point is not at the wall.
    areas = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return found + shear * areas


def _field(values: ArrayLike, weights: ArrayLike) -> tuple[Array, Array]:
    values, weights = jnp.asarray(values), jnp.asarray(weights)
    _checks.floating(values=values, quadrature_weights=weights)
    _one_or_two_axes(values)
    _checks.rank(1, quadrature_weights=weights)
    _checks.same_points(values=values, quadrature_weights=weights)
    return values, weights


def _one_or_two_axes(values: Array) -> None:
    if values.ndim not in (1, 2):
        raise ValueError(
            f"values have shape {values.shape}, expected (n,) or (n, q) of one sample; "
            "use `jax.vmap` for batches."
        )
