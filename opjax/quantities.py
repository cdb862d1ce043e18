r"""Quantities of interest of a field: integrals, extremes, forces and moments.

A field has values at the points of one mesh; `w_i` are quadrature weights, and `a_i`
are area vectors of a boundary, so that `sum_i f(x_i) a_i ~ int f n dA`
(`opjax.geometry.point_area_vectors`). A point of weight zero is ignored.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler

# Of the host or of JAX; results are of the kind of the arguments.
_Array = TypeVar("_Array", np.ndarray, Array)
_ROUNDING = 16  # units in the last place of the terms, that their sum may be off


@jax.jit
def integral(
    values: Float[ArrayLike, "n ..."], quadrature_weights: Float[ArrayLike, " n"]
) -> Float[Array, "..."]:
    r"""Integral of a field, `sum_i w_i f_i`.

    Args:
      values: values at the points, shape `(n,)` or `(n, q)`; ignored where the weight
        is zero.
      quadrature_weights: weights, shape `(n,)`, in units of volume.

    Returns:
      A scalar, or shape `(q,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import integral
      >>> float(integral(np.array([1.0, 2.0]), np.array([0.5, 0.25])))
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
      values: values at the points, shape `(n,)` or `(n, q)`; ignored where the weight
        is zero.
      quadrature_weights: weights, shape `(n,)`; the result is NaN if all are zero.

    Returns:
      A scalar, or shape `(q,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import mean
      >>> float(mean(np.array([1.0, 5.0]), np.array([3.0, 1.0])))
      2.0
    """
    return integral(values, quadrature_weights) / jnp.sum(
        jnp.asarray(quadrature_weights)
    )


@jax.jit
def maximum(
    values: Float[ArrayLike, "n ..."],
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "..."]:
    """Maximum of a field over the points with nonzero weight.

    Args:
      values: values at the points, shape `(n,)` or `(n, q)`.
      quadrature_weights: weights, shape `(n,)`; all points count if None. If all
        weights are zero, the result is minus infinity.

    Returns:
      A scalar, or shape `(q,)`. The gradient is shared among equal maxima.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import maximum
      >>> float(maximum(np.array([1.0, 5.0, 9.0]), np.array([1.0, 1.0, 0.0])))
      5.0
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
    """Minimum of a field over the points with nonzero weight.

    Args:
      values: values at the points, shape `(n,)` or `(n, q)`.
      quadrature_weights: weights, shape `(n,)`; all points count if None. If all
        weights are zero, the result is infinity.

    Returns:
      A scalar, or shape `(q,)`. The gradient is shared among equal minima.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import minimum
      >>> float(minimum(np.array([1.0, 5.0, -9.0]), np.array([1.0, 1.0, 0.0])))
      1.0
    """
    return -maximum(-jnp.asarray(values), quadrature_weights)


@split_by_compiler
def force(
    pressure: Float[ArrayLike, " n"],
    area_vectors: Float[ArrayLike, "n p"],
    *,
    shear: Float[ArrayLike, "n p"] | None = None,
) -> Float[Array, " p"]:
    r"""Force of a fluid on a wall, `sum_i (p_i a_i + tau_i |a_i|)`.

    The mean pressure on the wall is subtracted first, so an absolute pressure gives the
    same force as the gauge pressure:

        F = sum_i (p_i - p_0) a_i + p_0 sum_i a_i,

    where a sum of area vectors that is zero up to rounding counts as zero. NumPy arrays
    are centred in double precision before they are rounded to single precision.

    Args:
      pressure: values at the points, or means over facets, shape `(n,)`; ignored where
        the area vector is zero.
      area_vectors: area vectors of the points or facets, out of the fluid and into the
        wall, shape `(n, p)`. Those of a mesh of the fluid have this direction; those of
        a mesh of the body have the opposite sign.
      shear: shear stress `tau` of the fluid on the wall, shape `(n, p)`; none by
        default.

    Returns:
      Shape `(p,)`. A constant pressure gives zero force on a closed wall.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import force
      >>> area_vectors = np.array([[0.0, -1.0], [0.0, 1.0]])  # below and above, in m
      >>> pressure = np.array([3.0, 1.0])  # in Pa
      >>> force(pressure, area_vectors).tolist()  # in N/m
      [0.0, -2.0]
    """
    return _of_wall(_on_wall(pressure, area_vectors), shear)


@split_by_compiler
def moment(
    pressure: Float[ArrayLike, " n"],
    area_vectors: Float[ArrayLike, "n p"],
    mesh_points: Float[ArrayLike, "n p"],
    *,
    center: Float[ArrayLike, " p"],
    shear: Float[ArrayLike, "n p"] | None = None,
) -> Float[Array, "..."]:
    r"""Moment of the force of a fluid on a wall, `sum_i (x_i - c) x f_i`.

    The mean pressure on the wall is subtracted as in `force`, so a constant pressure
    gives zero moment on a closed wall.

    Args:
      pressure: values at the points, or means over facets, shape `(n,)`.
      area_vectors: see `force`, shape `(n, p)`.
      mesh_points: points of application, shape `(n, p)`, `p` of 2 or 3.
      center: reference point `c`, shape `(p,)`.
      shear: see `force`.

    Returns:
      A scalar in the plane, positive counterclockwise; shape `(3,)` in 3D.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, or `p` is neither 2 nor 3.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import moment
      >>> area_vectors = np.array([[0.0, -1.0], [0.0, 1.0]])
      >>> mesh_points = np.array([[0.0, 0.0], [1.0, 0.0]])
      >>> center = np.array([0.5, 0.0])
      >>> float(moment(np.array([3.0, 1.0]), area_vectors, mesh_points, center=center))
      2.0
    """
    pressure, vectors = _on_wall(pressure, area_vectors)
    points, center = (
        a if isinstance(a, Array) else np.asarray(a) for a in (mesh_points, center)
    )
    _checks.floating(mesh_points=points, center=center)
    if points.shape != vectors.shape or center.shape != vectors.shape[1:]:
        raise ValueError(
            f"mesh_points {points.shape} and center {center.shape} do not fit "
            f"area_vectors {vectors.shape}, expected (n, p), (p,) and (n, p)."
        )
    if vectors.shape[1] not in (2, 3):
        raise ValueError(
            f"area_vectors have shape {vectors.shape}: moments need forces in 2 or 3 "
            "dimensions."
        )
    return _of_wall((pressure, vectors, points, center), shear)


@jax.jit
def drag_and_lift(force: Float[ArrayLike, " 2"], *, angle: ArrayLike) -> Array:
    r"""Components of a force parallel and perpendicular to the incoming flow.

        D = F_1 cos a + F_2 sin a,    L = F_2 cos a - F_1 sin a.

    Args:
      force: force in the plane of the flow, shape `(2,)`; in 3D, its components along
        the first axis and along the upward axis.
      angle: angle between the incoming flow and the first axis, in radians.

    Returns:
      Drag and lift, shape `(2,)`; the lift direction is a quarter turn counterclockwise
      from the drag direction.

    Raises:
      TypeError: if the force is not floating point.
      ValueError: if it has another shape.

    Examples:
      >>> import numpy as np
      >>> from opjax.quantities import drag_and_lift
      >>> drag_and_lift(np.array([1.0, 2.0]), angle=0.0).tolist()
      [1.0, 2.0]
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
      force: force, of any shape.
      density: density `rho` of the incoming flow.
      speed: speed `v` of the incoming flow.
      area: reference area `A`; in the plane, the chord.
      length: reference length `l`, only for moments.

    Returns:
      The coefficient, with the shape of `force`.

    Raises:
      TypeError: if the force is not floating point.
      ValueError: if a reference value is not positive and finite.

    Examples:
      >>> from opjax.quantities import coefficient
      >>> round(float(coefficient(30.0, density=1.2, speed=10.0, area=0.5)), 4)
      1.0
    """
    force = jnp.asarray(force)
    _checks.floating(force=force)
    _checks.positive(density=density, speed=speed, area=area, length=length)
    density, speed, area, length = (
        jnp.asarray(value, force.dtype) for value in (density, speed, area, length)
    )
    return 2 / (density * speed**2 * area * length) * force


def _on_wall(pressure: ArrayLike, area_vectors: ArrayLike) -> tuple[Any, Any]:
    """Pressure and area vectors, checked; what is no array of JAX stays on the host."""
    pressure, vectors = (
        a if isinstance(a, Array) else np.asarray(a) for a in (pressure, area_vectors)
    )
    _checks.floating(pressure=pressure, area_vectors=vectors)
    _checks.rank(1, pressure=pressure)
    _checks.rank(2, area_vectors=vectors)
    _checks.same_points(pressure=pressure, area_vectors=vectors)
    return pressure, vectors


def _of_wall(arrays: tuple[Any, ...], shear: ArrayLike | None) -> Array:
    """Force or moment of the arguments of `_centred`, on the host if all are there."""
    if any(isinstance(array, Array) for array in arrays):
        return _of_arrays(arrays, shear)
    return _of_centred(_centred(*arrays), shear)


class _Centred(NamedTuple):
    """A pressure without its mean, and what the mean itself does.

    Attributes:
      gauge: the pressure at the points less its mean over the wall, `(n,)`.
      vectors: area vectors, `(n, p)`.
      constant: force or moment of the mean pressure; zero on a closed wall.
      arms: from the centre of moments to the points, `(n, p)`; None for forces.
    """

    gauge: Any
    vectors: Any
    constant: Any
    arms: Any = None


def _centred(
    pressure: _Array,
    vectors: _Array,
    points: _Array | None = None,
    center: _Array | None = None,
) -> _Centred:
    """Takes the mean off a pressure, in at least single precision, on the host double.

    Args:
      pressure: at the points, `(n,)`.
      vectors: area vectors, `(n, p)`.
      points: where they act, `(n, p)`; None for forces.
      center: of moments, `(p,)`.
    """
    xp = _namespace(pressure)
    arrays = [a for a in (pressure, vectors, points, center) if a is not None]
    eps = max(float(jnp.finfo(a.dtype).eps) for a in arrays[1:])
    dtype = xp.result_type(*(a.dtype for a in arrays))
    wide = np.float64 if xp is np else np.promote_types(dtype, np.float32)
    pressure, vectors, *others = (a.astype(wide) for a in arrays)
    sizes = xp.abs(vectors)
    shares = sizes.sum(axis=1)
    total, wall = shares.sum(), shares > 0
    level = xp.where(wall, pressure, 0) @ shares / xp.where(total > 0, total, 1)
    if xp is jnp:  # any level would do
        level = jax.lax.stop_gradient(level)
    gauge = xp.where(wall, pressure - level, 0)
    if points is None:
        whole = _closed(vectors.sum(axis=0), sizes.sum(axis=0), eps)
        centred = gauge, vectors, level * whole
    else:
        points, center = others
        arms = points - center[None, :]
        reach = xp.abs(points).max(axis=1) + xp.abs(center).max()
        turned = _turned(arms, vectors)
        rounding = (reach * shares).sum()
        whole = _closed(turned, rounding, eps)
        centred = gauge, vectors, level * whole, arms
    return _Centred(*(array.astype(dtype) for array in centred))


def _namespace(array: ArrayLike) -> Any:
    return jnp if isinstance(array, Array) else np


def _closed(whole: _Array, sizes: _Array, eps: float) -> _Array:
    """Sums over a wall; zero where they are zero up to the rounding of their terms."""
    xp = _namespace(whole)
    closed = xp.where(xp.abs(whole) <= _ROUNDING * eps * sizes, 0, whole)
    if xp is np:
        return closed
    return whole + jax.lax.stop_gradient(closed - whole)  # keeps the gradient


def _turned(arms: _Array, forces: _Array) -> _Array:
    """Sum of the moments of forces: a scalar in the plane, `(3,)` in space."""
    xp = _namespace(arms)
    if forces.shape[1] == 3:
        return xp.sum(xp.cross(arms, forces), axis=0)
    return xp.sum(arms[:, 0] * forces[:, 1] - arms[:, 1] * forces[:, 0])


@jax.jit
def _of_centred(centred: _Centred, shear: ArrayLike | None) -> Array:
    forces = _forces(centred.gauge, centred.vectors, shear)
    if centred.arms is None:
        return jnp.sum(forces, axis=0) + centred.constant
    return _turned(centred.arms, forces) + centred.constant


@jax.jit
def _of_arrays(arrays: tuple[ArrayLike, ...], shear: ArrayLike | None) -> Array:
    return _of_centred(_centred(*map(jnp.asarray, arrays)), shear)


def _forces(gauge: Array, vectors: Array, shear: ArrayLike | None) -> Array:
    """Forces at the points, `(n, p)`, without those of the mean pressure."""
    normal = gauge[:, None] * vectors
    if shear is None:
        return normal
    (shear,) = _checks.arrays(2, shear=shear)
    _checks.same_points(shear=shear, area_vectors=vectors)
    _checks.same_channels(shear=shear, area_vectors=vectors)
    # Scaled, so that squares of small areas do not vanish.
    unit = jax.lax.stop_gradient(jnp.max(jnp.abs(vectors), initial=0))
    unit = jnp.where(unit > 0, unit, 1)
    squares = jnp.sum((vectors / unit) ** 2, axis=1, keepdims=True)
    # The root has no gradient at zero, where a point is not at the wall.
    areas = jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))
    return normal + shear * (unit * areas)


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
