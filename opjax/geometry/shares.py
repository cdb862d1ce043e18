"""Distribution of the volume of a cell to its points."""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax.geometry import _arrays, boundaries
from opjax.geometry import cells as kinds
from opjax.geometry.facets import Facets


def point_shares(
    mesh_points: Float[ArrayLike, "n p"], cells: kinds.Cells, kind: str
) -> Any:
    r"""Parts of the volumes of cells of one type that belong to points, on the host.

    A cell is divided into simplices around the mean of its corners, for solids also
    around the mean of the corners of each face; a function has the mean of its values
    at these. Every simplex contributes equally to its corners, and the contribution of
    a mean is divided equally among its corners. So linear functions are integrated
    exactly. If a cell is so far from convex that a contribution would be negative, it
    is set to zero and the others are reduced.

    Args:
      mesh_points: shape `(n, p)`.
      cells: point indices or faces of polyhedra, as for `cell_volumes`.
      kind: one of `KINDS`.

    Returns:
      A non-negative sparse array of scipy, `(t, n)`. Rows add up to the absolute
      volumes, columns to quadrature weights of the points.

    Raises:
      TypeError: if points are not floating point or cells not integers.
      ValueError: as for `cell_volumes`.

    Examples:
      >>> import numpy as np
      >>> from opjax.geometry import point_shares
      >>> square = np.array([[0.0, 0], [2, 0], [2, 1], [0, 1]])
      >>> point_shares(square, [[0, 1, 2, 3]], "quad").toarray().tolist()
      [[0.5, 0.5, 0.5, 0.5]]
    """
    volumes = np.abs(kinds.cell_volumes(np.asarray(mesh_points), cells, kind))
    points = _arrays.in_space(_arrays.coordinates(np.asarray(mesh_points)))
    if isinstance(cells, Facets) or kinds.KINDS[kind].dimension > 2:
        shares = _of_solids(points, boundaries.cell_facets({kind: cells}, len(points)))
    elif kind in ("line", "strip"):
        shares = _of_strips(points, np.asarray(cells), 2 if kind == "line" else 3)
    else:
        sides = boundaries.cell_facets({kind: cells}, len(points))
        shares = _of_surfaces(points, sides, len(volumes))
    shares.data = np.maximum(shares.data, 0)
    sums = np.asarray(shares.sum(axis=1)).reshape(-1)
    return _diagonal(volumes / np.where(sums > 0, sums, 1)) @ shares


def _of_solids(points: np.ndarray, faces: Facets) -> Any:
    """Shares in tetrahedra of the sides of faces, the means of faces and of cells."""
    count, n, numbers = (
        int(faces.cells.max()) + 1,
        len(points),
        np.arange(len(faces.cells)),
    )
    corners = faces.corners
    of_face = _means(numbers, corners, (len(corners), n))
    of_cell = _means(faces.cells, corners, (count, n))
    origin = (of_cell @ points)[faces.cells]
    a, m = points[corners] - origin[:, None], of_face @ points - origin
    sizes = (_arrays.cross(a, np.roll(a, -1, axis=1)) * m[:, None]).sum(axis=2) / 24
    sums = sizes.sum(axis=1)
    totals = np.bincount(faces.cells, sums, minlength=count)
    ends = sizes + np.roll(sizes, 1, axis=1)
    signs = np.where(totals < 0, -1.0, 1.0)  # all corners in another order
    return _diagonal(signs) @ (
        _sparse(ends, faces.cells, corners, (count, n))
        + _sparse(sums[:, None], faces.cells, numbers[:, None], (count, len(corners)))
        @ of_face
        + _diagonal(totals) @ of_cell
    )


def _of_surfaces(points: np.ndarray, sides: Facets, count: int) -> Any:
    """Shares in triangles of the sides and the means of cells."""
    shape = count, len(points)
    of_cell = _means(sides.cells, sides.corners, shape)
    ends = points[sides.corners] - (of_cell @ points)[sides.cells][:, None]
    vectors = _arrays.cross(ends[:, 0], ends[:, 1])
    normals = _arrays.unit(_arrays.sums(vectors, sides.cells, count))
    sizes = (vectors * normals[sides.cells]).sum(axis=1) / 6
    totals = np.bincount(sides.cells, sizes, minlength=count)
    both = np.repeat(sizes[:, None], 2, axis=1)
    of_ends = _sparse(both, sides.cells, sides.corners, shape)
    return of_ends + _diagonal(totals) @ of_cell


def _of_strips(points: np.ndarray, cells: np.ndarray, size: int) -> Any:
    """Shares in the segments of polylines or the triangles of strips."""
    count = cells.shape[1] - size + 1
    pieces = np.stack([cells[:, i : i + count] for i in range(size)], axis=2)
    kind = "line" if size == 2 else "triangle"
    corners = pieces.reshape(-1, size)
    sizes = kinds.cell_volumes(points, corners, kind) / size
    every = np.repeat(sizes[:, None], size, axis=1)
    rows = np.repeat(np.arange(len(cells)), count)
    return _sparse(every, rows, corners, (len(cells), len(points)))


def _sparse(
    values: np.ndarray, rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> Any:
    """A matrix of values `(f, c)` with one row number for each `f`; equal ones add."""
    from scipy.sparse import csr_array

    places = np.repeat(rows, columns.shape[1]), columns.reshape(-1)
    return csr_array((values.reshape(-1), places), shape=shape)


def _means(rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]) -> Any:
    """The matrix that takes the mean of all different columns that a row has."""
    pattern = _sparse(np.ones(columns.shape), rows, columns, shape)
    pattern.sum_duplicates()
    pattern.data[:] = 1
    sums = np.asarray(pattern.sum(axis=1)).reshape(-1)
    return _diagonal(1 / np.maximum(sums, 1)) @ pattern


def _diagonal(values: np.ndarray) -> Any:
    from scipy.sparse import diags_array

    return diags_array(values, format="csr")
