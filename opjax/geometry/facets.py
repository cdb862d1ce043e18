"""Areas, normals and integrals of the facets of a boundary.

Facets are sides in the plane and polygons in 3D, counterclockwise when seen from
outside. A facet with fewer corners than others repeats its last one.
"""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax.geometry import _arrays


class Facets(NamedTuple):
    """Facets of a mesh.

    Attributes:
      corners: point indices, `(m, 2)` for meshes of surfaces, `(m, 4)` or more for
        solids, where facets of fewer corners repeat their last one; counterclockwise
        when seen from outside.
      cells: index of the cell of each facet, `(m,)`, counted over all cell types in
        their order.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import boundary_facets
      >>> points = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> facets = boundary_facets(points, {"triangle": [[0, 1, 2], [0, 2, 3]]})
      >>> len(facets.corners), facets.cells.tolist()
      (4, [0, 0, 1, 1])
    """

    corners: np.ndarray
    cells: np.ndarray


def facet_area_vectors(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Float[Any, "m p"]:
    r"""Outward normals of facets, multiplied by their areas (lengths in the plane).

        A = (b_y - a_y, a_x - b_x)              of a side (a, b) in the plane,
        A = 1/2 sum_{sides (a, b)} a x b        of a polygon in space,

    which is exact for every polygon and for a bilinear facet. They add up to zero over
    a closed boundary.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Shape `(m, p)`.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import facet_area_vectors
      >>> facet_area_vectors(np.array([[0.0, 0], [2, 0]]), [[0, 1]]).tolist()
      [[0.0, -2.0]]
    """
    points, facets = _checked(mesh_points, facets)
    return _triangles(points, facets).sum(axis=1)


def point_area_vectors(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Float[Any, "n p"]:
    r"""Weights `a_i` of points with `sum_i f(x_i) a_i ~ int f n dA` over facets.

    A facet is divided into triangles around the mean of its corners, where a function
    has the mean of its values. Each triangle (side, in the plane) contributes equally
    to its corners. So linear functions are integrated exactly over planar facets: the
    force of a linear pressure on a closed boundary is its gradient times the volume.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Shape `(n, p)`; zero at points without a facet.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import point_area_vectors
      >>> point_area_vectors(np.array([[0.0, 0], [2, 0]]), [[0, 1]]).tolist()
      [[0.0, -1.0], [0.0, -1.0]]
    """
    points, facets = _checked(mesh_points, facets)
    vectors = _triangles(points, facets)
    if points.shape[1] == 2:
        shares = vectors.repeat(2, axis=1) / 2
    else:  # triangle i has corners i and i + 1, and the mean of all
        xp = _arrays.namespace(points)
        shares = (vectors + xp.roll(vectors, 1, axis=1)) / 3
        own = xp.asarray(corner_shares(facets), points.dtype)[:, :, None]
        shares = shares + vectors.sum(axis=1, keepdims=True) * own / 3
    return _sums(points, facets, shares)


def point_normals(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Float[Any, "n p"]:
    r"""Outward unit normals at the points of a boundary.

        n_i = N_i / |N_i|,    N_i = sum_{facets F containing i} A_F,

    with the facets' `facet_area_vectors`.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices, `(m, 2)` in the plane, `(m, corners)` in space.

    Returns:
      Shape `(n, p)`; zero at points without a facet, and where the normals of facets
      cancel.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import point_normals
      >>> square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
      >>> sides = [[0, 1], [1, 2], [2, 3], [3, 0]]
      >>> point_normals(square, sides)[0].round(3).tolist()
      [-0.707, -0.707]
    """
    points, facets = _checked(mesh_points, facets)
    xp = _arrays.namespace(points)
    vectors = _triangles(points, facets).sum(axis=1, keepdims=True)
    repeated = np.pad(facets[:, 1:] == facets[:, :-1], [(0, 0), (1, 0)])
    shares = xp.where(repeated[:, :, None], 0, vectors)
    return _arrays.unit(_sums(points, facets, shares))


def enclosed_volume(
    mesh_points: Float[ArrayLike, "n p"], facets: Int[ArrayLike, "m corners"]
) -> Float[Any, ""]:
    r"""Volume (area in the plane) inside a closed boundary, `1/p int x . n dA`.

    Args:
      mesh_points: shape `(n, p)`, `p` of 2 or 3.
      facets: point indices of the whole boundary, see `open_edges`.

    Returns:
      A scalar; negative if normals point inwards.

    Raises:
      TypeError: if points are not floating point or facets not integers.
      ValueError: if shapes do not match these or a point does not exist.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import enclosed_volume
      >>> square = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])
      >>> float(enclosed_volume(square, [[0, 1], [1, 2], [2, 3], [3, 0]]))
      2.0
    """
    weights = point_area_vectors(mesh_points, facets)
    points = _arrays.coordinates(mesh_points)
    middle = points.mean(
        axis=0, keepdims=True
    )  # against cancellation; a constant adds nothing
    return ((points - middle) * weights).sum() / points.shape[1]


def middles(corners: _arrays.Array, facets: np.ndarray) -> _arrays.Array:
    """Means of the distinct corners `(m, corners, p)` of facets."""
    shares = _arrays.namespace(corners).asarray(corner_shares(facets), corners.dtype)
    return (corners * shares[:, :, None]).sum(axis=1)


def corner_shares(facets: np.ndarray) -> np.ndarray:
    """The weight of each corner in the mean; zero for a repeated corner."""
    own = np.pad(facets[:, 1:] != facets[:, :-1], [(0, 0), (1, 0)], constant_values=1)
    return own / own.sum(axis=1, keepdims=True)


def _checked(mesh_points: ArrayLike, facets: ArrayLike) -> tuple[Any, np.ndarray]:
    points = _arrays.coordinates(mesh_points)
    indices = _arrays.indices("facets", facets, len(points))
    corners, p = indices.shape[1], points.shape[1]
    if not (corners == p == 2 or (corners >= p == 3)):
        raise ValueError(
            f"facets have shape {indices.shape} and mesh_points {points.shape}: in "
            "2D, facets need 2 corners, in 3D at least 3."
        )
    return points, indices


def _triangles(points: _arrays.Array, facets: np.ndarray) -> Any:
    """Area vectors of triangles around the middle of each facet, or of the side."""
    xp, corners = _arrays.namespace(points), points[facets]
    if points.shape[1] == 2:
        along = corners[:, 1:] - corners[:, :1]
        return xp.stack([along[..., 1], -along[..., 0]], axis=-1)
    corners = corners - middles(corners, facets)[:, None]
    return _arrays.cross(corners, xp.roll(corners, -1, axis=1)) / 2


def _sums(
    points: _arrays.Array, facets: np.ndarray, shares: _arrays.Array
) -> _arrays.Array:
    """Adds up the shares `(m, corners, p)` of points."""
    rows = shares.reshape(-1, points.shape[1])
    return _arrays.sums(rows, facets.reshape(-1), len(points))
