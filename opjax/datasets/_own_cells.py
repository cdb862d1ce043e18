"""Quadrature weights of the points of a mesh from its cells."""

import math

import numpy as np


def cell_weights(points: np.ndarray, cells: np.ndarray, *, name: str) -> np.ndarray:
    """Lumped masses of the points, from simplices or quadrilaterals.

    Cells of four corners are tetrahedra in space and quadrilaterals in the plane, which
    take the mean of both ways to divide them.

    Args:
      points: coordinates, shape `(n, p)`.
      cells: point indices, shape `(m, corners)`.
      name: what messages call the mesh.

    Returns:
      Weights, shape `(n,)`; zero for points of no cell.

    Raises:
      ValueError: if the cells are of another kind.
    """
    corners, dimension = cells.shape[1], points.shape[1]
    if corners == 4 and dimension == 2:
        ways = [(0, 1, 2), (0, 2, 3), (0, 1, 3), (1, 2, 3)]
        triangles = np.concatenate([cells[:, way] for way in ways])
        return simplex_weights(points, triangles) / 2
    if not 2 <= corners <= dimension + 1:
        raise ValueError(
            f"{name}: no quadrature weights for cells of {corners} corners in "
            f"{dimension} dimensions; divide them into simplices, or give "
            "quadrature_weights."
        )
    return simplex_weights(points, cells)


def simplex_weights(points: np.ndarray, simplices: np.ndarray) -> np.ndarray:
    r"""Lumped masses: every corner takes an equal share of its simplices.

        w_i = sum_{T containing i} |T| / (k + 1),    |T| = det(E E^T)^{1/2} / k!,

    with the edges `E` from one corner to the `k` others: exact for linear functions.
    """
    corners = np.asarray(points, np.float64)[simplices]
    edges = corners[:, 1:] - corners[:, :1]
    gram = edges @ edges.swapaxes(1, 2)
    k = edges.shape[1]
    volumes = np.sqrt(np.maximum(np.linalg.det(gram), 0)) / math.factorial(k)
    shares = np.repeat(volumes / (k + 1), k + 1)
    return np.bincount(simplices.reshape(-1), shares, minlength=len(points))
