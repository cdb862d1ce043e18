"""Smooth displacements of mesh points, and a check for inverted cells."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks, geometry

_POLYGONS = ("triangle", "quad", "pixel", "polygon")


def gaussian_modes(
    mesh_points: Float[ArrayLike, "n p"],
    handles: Float[ArrayLike, "m p"],
    directions: Float[ArrayLike, "..."],
    *,
    radius: float,
    fixed: ArrayLike | None = None,
) -> Float[np.ndarray, "m n p"]:
    r"""Computes smooth displacements of a mesh, one around each handle.

        u_k(x) = s(d(x) / radius) exp(-|x - h_k|^2 / (2 radius^2)) a_k,
        s(t) = t^2 (3 - 2 t) for t < 1, else 1,

    with the distance `d` to the nearest fixed point. `moved(points, modes, amounts)`
    moves the points: an amount of 0.1 moves a point at the handle by 0.1 `a_k`. Amounts
    well below the radius do not fold the mesh.

    Args:
      mesh_points: shape `(n, p)`.
      handles: centres of the displacements, `(m, p)`.
      directions: `a`, one for all handles, `(p,)`, or one for each, `(m, p)`.
      radius: width of a displacement, in the unit of the points.
      fixed: indices of points that do not move, such as an outer boundary; none by
        default.

    Returns:
      The displacements, shape `(m, n, p)`.

    Raises:
      TypeError: if points or handles are not floating point.
      ValueError: if shapes do not match, or the radius is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax import design
      >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0]])
      >>> modes = design.gaussian_modes(
      ...     points, points[:1], np.array([0.0, 1.0]), radius=0.5, fixed=[2]
      ... )
      >>> np.round(modes[0, :, 1], 2).tolist()
      [1.0, 0.14, 0.0]
    """
    from scipy.spatial import KDTree

    _checks.floating(mesh_points=mesh_points, handles=handles)
    _checks.positive(radius=radius)
    points, centres = (np.asarray(a, np.float64) for a in (mesh_points, handles))
    if points.ndim != 2 or centres.ndim != 2 or points.shape[1] != centres.shape[1]:
        raise ValueError(
            f"mesh_points has shape {points.shape} and handles {centres.shape}, "
            "expected (n, p) and (m, p)."
        )
    along = np.broadcast_to(np.asarray(directions, np.float64), centres.shape)
    squares = np.sum((points[None] - centres[:, None]) ** 2, axis=2)
    sizes = np.exp(-squares / (2 * radius**2))
    if fixed is not None and np.size(fixed):
        distances, _ = KDTree(points[np.asarray(fixed)]).query(points)
        share = np.minimum(distances / radius, 1)
        sizes = sizes * share**2 * (3 - 2 * share)
    return sizes[:, :, None] * along[:, None, :]


def signed_volumes(
    mesh_points: Float[ArrayLike, "n p"], cells: ArrayLike, kind: str
) -> jax.Array:
    r"""Computes volumes whose sign changes when a cell is turned over.

    Those of `geometry.cell_volumes`, but for polygons in the plane, which have

        1/2 sum_{sides (a, b)} (a_1 b_2 - a_2 b_1),

    positive if their corners are counterclockwise. Cells of a surface in space have no
    sign.

    Args:
      mesh_points: shape `(n, p)`.
      cells: point indices, shape `(t, corners)`, as for `geometry.cell_volumes`.
      kind: of the cells, such as `"triangle"`.

    Returns:
      Shape `(t,)`.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: as for `geometry.cell_volumes`.

    Examples:
      >>> import numpy as np
      >>> from opjax import design
      >>> square = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])
      >>> design.signed_volumes(square, [[0, 1, 2, 3], [3, 2, 1, 0]], "quad").tolist()
      [2.0, -2.0]
    """
    points = jnp.asarray(mesh_points)
    volumes = geometry.cell_volumes(points, cells, kind)  # checks the arguments
    if kind not in _POLYGONS or points.shape[1] != 2:
        return volumes
    order = geometry.KINDS[kind].order or range(np.shape(cells)[1])
    indices = np.asarray(cells)[:, list(order)]
    a, b = points[indices], points[np.roll(indices, -1, axis=1)]
    return jnp.sum(a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0], axis=1) / 2


def moved(
    mesh_points: Float[ArrayLike, "n p"],
    modes: Float[ArrayLike, "m n p"],
    amounts: Float[ArrayLike, " m"],
) -> jax.Array:
    """Moves the points of a mesh by a sum of displacements, `x + sum_k c_k u_k(x)`.

    Args:
      mesh_points: shape `(n, p)`.
      modes: displacements `u`, from `gaussian_modes` or any others, `(m, n, p)`.
      amounts: `c`, shape `(m,)`.

    Returns:
      The points, of the type of `mesh_points`.

    Raises:
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax import design
      >>> modes = np.array([[[0.0, 1.0]], [[1.0, 0.0]]])
      >>> design.moved(np.zeros((1, 2)), modes, np.array([2.0, 3.0])).tolist()
      [[3.0, 2.0]]
    """
    points = jnp.asarray(mesh_points)
    fields, sizes = (jnp.asarray(a, points.dtype) for a in (modes, amounts))
    if fields.shape != (*sizes.shape, *points.shape):
        raise ValueError(
            f"modes has shape {fields.shape}, but mesh_points has {points.shape} and "
            f"amounts {sizes.shape}: expected {(*sizes.shape, *points.shape)}."
        )
    return points + jnp.tensordot(sizes, fields, axes=1)
