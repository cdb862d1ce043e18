"""Point clouds: spread-out samples, nearest points, size, and rotations.

As everywhere in opjax, a quadrature weight of zero masks a point: `farthest_points`
never selects it, `nearest_points` never finds it, and means ignore it.
"""

import functools
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax._sequential import one_by_one
from opjax.quadrature import active

_BLOCK = 256  # queries of one block of the search for nearest points


@partial(jax.jit, static_argnames="num_samples")
@split_by_compiler
def farthest_points(
    points: Float[ArrayLike, "n p"],
    *,
    num_samples: int,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Int[Array, " num_samples"]:
    r"""Selects points that are spread out, each as far as possible from earlier ones.

        i_1 = argmax_i |x_i - mean(x)|,
        i_{k+1} = argmax_i min_{j <= k} |x_i - x_{i_j}|,

    where the first of equally far points, up to rounding, is selected. A smaller sample
    is the start of a larger one. The first point is the farthest from the mean, so the
    sample does not depend on rotation, translation and order of the points, up to
    rounding.

    Complexity: `O(n num_samples)`.

    Args:
      points: coordinates, shape `(n, p)`.
      num_samples: number of points to select.
      quadrature_weights: shape `(n,)`; points of zero weight are not selected, and all
        positive weights are treated equally. If there are fewer such points than
        `num_samples`, points are repeated.

    Returns:
      Indices of the selected points, int32 of shape `(num_samples,)`.

    Raises:
      TypeError: if `points` is not floating point.
      ValueError: if shapes do not match or there are fewer points than `num_samples`.

    Examples:
      >>> import numpy as np
      >>> from opjax.point_clouds import farthest_points
      >>> points = np.array([[0.0, 0], [0.1, 0], [1, 0], [0, 2]])
      >>> farthest_points(points, num_samples=2).tolist()
      [3, 2]

    References:
      Eldar et al., "The farthest point strategy for progressive image sampling", IEEE
      Transactions on Image Processing 6(9), 1997.
    """
    points, valid = _cloud(points, quadrature_weights)
    n = points.shape[0]
    if not 1 <= num_samples <= n:
        raise ValueError(
            f"{num_samples=} must lie between 1 and {n}, the number of points of "
            f"points {points.shape}; use fewer samples, or repeat points first."
        )
    columns = points.T

    def choose(distances: Array) -> Array:
        return _first_smallest(jnp.where(valid, -distances, 1))

    def step(distances: Array, _: None) -> tuple[Array, Array]:
        index = choose(distances)
        return jnp.minimum(distances, _squares(columns, points[index])), index

    first = choose(_squares(columns, _mean(points, valid)))
    distances = _squares(columns, points[first])
    _, others = lax.scan(step, distances, length=num_samples - 1)
    return jnp.concatenate([first[None], others])


@jax.jit
@split_by_compiler
def nearest_points(
    queries: Float[ArrayLike, "m p"],
    points: Float[ArrayLike, "n p"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Int[Array, " m"]:
    r"""Finds the nearest point of every query, to copy values from points to queries.

        i(q) = argmin_i |q - x_i|,    values_at_queries = values[i].

    The first of several nearest points is returned. Coordinates are subtracted before
    they are squared, because a difference of squares would cancel far from the origin.

    Complexity: `O(m n)`, computed in blocks of queries.

    Args:
      queries: coordinates, shape `(m, p)`.
      points: coordinates, shape `(n, p)`.
      quadrature_weights: weights of the points, shape `(n,)`; points of zero weight are
        never found.

    Returns:
      Indices of points, int32 of shape `(m,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match or there are no points.

    Examples:
      >>> import numpy as np
      >>> from opjax.point_clouds import nearest_points
      >>> points = np.array([[0.0, 0], [1, 0]])
      >>> nearest_points(np.array([[0.9, 0.0], [0.2, 0.0]]), points).tolist()
      [1, 0]
    """
    (queries,) = _checks.arrays(2, queries=queries)
    points, valid = _cloud(points, quadrature_weights)
    _checks.same_axis(1, "coordinates (axis 1)", {"queries": queries, "points": points})
    columns = points.T

    def nearest(query: Array) -> Array:
        squares = _squares(columns, query)
        return _first_smallest(jnp.where(valid, squares, jnp.inf))

    return lax.map(nearest, queries, batch_size=_BLOCK)


def centre_and_scale(
    points: Float[ArrayLike, "n p"],
    *,
    length: ArrayLike | None = None,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "n p"]:
    r"""Moves the mean of a cloud to the origin and divides by a length.

        y_i = (x_i - mean(x)) / length.

    Args:
      points: coordinates, shape `(n, p)`.
      length: unit of the result, in the units of `points`; by default the largest
        distance of a point from the mean, so that the cloud fits into the unit ball;
        one if all points coincide. A common length for all clouds preserves their
        sizes.
      quadrature_weights: shape `(n,)`; points of zero weight are excluded from the
        mean, but also moved. All positive weights are treated equally.

    Returns:
      Coordinates, shape `(n, p)`.

    Raises:
      TypeError: if `points` is not floating point.
      ValueError: if shapes do not match, there are no points, or the length is not
        positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.point_clouds import centre_and_scale
      >>> centre_and_scale(np.array([[1.0, 0], [3, 0]])).tolist()
      [[-1.0, 0.0], [1.0, 0.0]]
    """
    points, valid = _cloud(points, quadrature_weights)
    centred = points - _mean(points, valid)[None, :]
    if length is None:
        squares = jnp.sum(centred**2, axis=1)
        low = jnp.min(points, axis=0, where=valid[:, None], initial=jnp.inf)
        high = jnp.max(points, axis=0, where=valid[:, None], initial=-jnp.inf)
        largest = jnp.max(jnp.where(valid, squares, 0))
        length = jnp.sqrt(jnp.where(jnp.all(low >= high), 1, largest))
    else:
        _checks.positive(length=length)
    return centred / jnp.asarray(length, points.dtype)


@partial(jax.jit, static_argnames="dtype")
def random_rotation(
    key: Array, *, dtype: DTypeLike = jnp.float32
) -> Float[Array, "3 3"]:
    r"""Draws a uniformly random rotation in 3D, from the Haar measure of SO(3).

    It is the rotation of a unit quaternion `(w, v)`, uniform on the sphere,

        R = (w^2 - |v|^2) I + 2 v v^T + 2 w [v]_x.

    Args:
      key: PRNG key.
      dtype: floating-point dtype.

    Returns:
      A matrix, shape `(3, 3)`, for `points @ rotation`.

    Raises:
      TypeError: if `dtype` is not floating point.

    Examples:
      >>> import jax
      >>> import numpy as np
      >>> from opjax.point_clouds import random_rotation
      >>> rotation = random_rotation(jax.random.key(0))
      >>> bool(np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-5))
      True

    References:
      Shoemake, "Uniform random rotations", Graphics Gems III, 1992.
    """
    if not jnp.issubdtype(dtype, jnp.floating):
        raise TypeError(f"dtype={jnp.dtype(dtype)} must be a floating-point dtype.")
    normal = jax.random.normal(key, (4,), dtype)
    w, x, y, z = normal / jnp.linalg.norm(normal)
    v = jnp.stack([x, y, z])
    zero = jnp.zeros((), dtype)
    cross = jnp.stack([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, 3)
    square = (w * w - jnp.sum(v * v)) * jnp.eye(3, dtype=dtype)
    return square + 2 * v[:, None] * v[None, :] + 2 * w * cross


@jax.jit
@split_by_compiler
def principal_axes(
    points: Float[ArrayLike, "n 3"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "3 3"]:
    r"""Returns a rotation of a 3D cloud to its principal axes, the same for all poses.

    The columns `a_1, a_2, a_3` are the directions of largest to smallest variance; the
    third moments `sum_i (a . (x_i - mean))^3` of the first two are positive, and `a_3 =
    a_1 x a_2`. So `points @ axes` does not change if the points are rotated, provided
    that variances and moments distinguish the axes. A symmetric cloud has no such axes;
    for an almost symmetric one, they are sensitive to details.

    Args:
      points: coordinates, shape `(n, 3)`.
      quadrature_weights: shape `(n,)`; points of zero weight are ignored, and all
        positive weights are treated equally.

    Returns:
      A rotation, shape `(3, 3)`.

    Raises:
      TypeError: if `points` is not floating point.
      ValueError: if shapes do not match or there are no points.

    Examples:
      >>> import numpy as np
      >>> from opjax.point_clouds import principal_axes
      >>> points = np.random.default_rng(0).normal(size=(50, 3)) * [1.0, 3.0, 2.0]
      >>> abs(principal_axes(points)[:, 0]).argmax().item()  # the longest axis is y
      1
    """
    points, valid = _cloud(points, quadrature_weights)
    if points.shape[1] != 3:
        raise ValueError(f"points has shape {points.shape}, expected (n, 3).")
    centred = points - _mean(points, valid)[None, :]
    centred = jnp.where(valid[:, None], centred, 0)
    # The default precision of accelerators would turn the axes by 1e-3.
    covariance = jnp.matmul(centred.T, centred, precision=lax.Precision.HIGHEST)
    _, vectors = one_by_one(jnp.linalg.eigh)(covariance)
    first, second = vectors.T[:0:-1]

    def oriented(axis: Array) -> Array:
        moment = jnp.sum(jnp.sum(centred * axis[None, :], axis=1) ** 3)
        return jnp.where(moment < 0, -axis, axis)

    first, second = oriented(first), oriented(second)
    return jnp.stack([first, second, jnp.cross(first, second)], axis=1)


def _cloud(points: ArrayLike, weights: ArrayLike | None) -> tuple[Array, Array]:
    """Checks a cloud; returns its points and which of them count."""
    (points,) = _checks.arrays(2, points=points)
    if not points.size:
        raise ValueError(
            f"points has shape {points.shape}, but at least one point is needed."
        )
    if weights is None:
        return points, jnp.ones(points.shape[0], bool)
    (weights,) = _checks.arrays(1, quadrature_weights=weights)
    _checks.same_points(points=points, quadrature_weights=weights)
    return points, active(weights)


def _squares(columns: Array, centre: Array) -> Array:
    """Squared distances `(n,)` of points, given as `(p, n)`, from one point."""
    # One coordinate after another: a CPU takes seven times as long for a sum over axis
    # 0 of an array.
    terms = [(column - centre[axis]) ** 2 for axis, column in enumerate(columns)]
    return functools.reduce(jnp.add, terms)


def _first_smallest(values: Array) -> Array:
    """Does what `jnp.argmin` does, which takes a CPU seven times as long."""
    last = values.size - 1
    rank = jnp.arange(values.size, dtype=jnp.int32)
    smallest = jnp.min(values)
    # Values that the compiler computes again to compare them may round differently.
    slack = 4 * jnp.finfo(values.dtype).eps * jnp.abs(smallest)
    return jnp.min(jnp.where(values <= smallest + slack, rank, last))


def _mean(points: Array, valid: Array) -> Array:
    total = jnp.sum(jnp.where(valid[:, None], points, 0), axis=0)
    return total / jnp.sum(valid).astype(points.dtype)
