"""Eigenfunctions of the Laplacian of a mesh or a point cloud, as a basis on it.

Computed once per mesh on the host, in double precision, by SciPy's sparse solver.
"""

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks


def laplacian_eigenfunctions(
    mesh_points: Float[ArrayLike, "n p"],
    *,
    num_functions: int,
    triangles: Int[ArrayLike, "t 3"] | None = None,
    num_neighbors: int = 12,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Returns the lowest eigenfunctions of the Laplacian with natural boundaries.

        L phi_j = lambda_j M phi_j,    Phi^T M Phi = I,    0 = lambda_1 <= lambda_2 ...,

    with linear finite elements on triangles (cotangent weights, lumped masses `M`); on
    a cloud of points with the graph Laplacian of Gaussian weights between neighbours
    and equal masses `1 / n`, whose eigenvalues are known up to a factor.

    Args:
      mesh_points: points, shape `(n, p)`; `p` is 2 or 3 for a mesh of triangles.
      num_functions: number `k` of eigenfunctions, less than `n`.
      triangles: vertex indices, shape `(m, 3)`; `None` for a cloud.
      num_neighbors: neighbours of a point of a cloud.

    Returns:
      Functions `(n, k)`, eigenvalues `(k,)` in rising order, and masses `(n,)`, the
      quadrature weights in which the functions are orthonormal; float64. Every function
      is positive where it is largest in size, so that signs are the same everywhere.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if there are too few points, or triangles name points that do not
        exist, leave points out or have no area.

    References:
      Ovsjanikov et al., "Functional Maps", ACM TOG 31(4), 2012; Belkin and Niyogi,
      "Laplacian eigenmaps", Neural Computation 15(6), 2003.
    """
    from scipy.sparse import diags
    from scipy.sparse.linalg import eigsh

    points = np.asarray(mesh_points)
    _checks.floating(mesh_points=points)
    _checks.rank(2, mesh_points=points)
    _checks.positive(num_functions=num_functions, num_neighbors=num_neighbors)
    points = points.astype(np.float64)
    n = len(points)
    if num_functions >= n:
        raise ValueError(
            f"{num_functions=} must be less than the {n} points of mesh_points "
            f"{points.shape}."
        )
    if triangles is None:
        stiffness, masses = _graph(points, num_neighbors)
    else:
        stiffness, masses = _triangles(points, np.asarray(triangles))
    root = 1 / np.sqrt(masses)
    symmetric = diags(root) @ stiffness @ diags(root)
    # Shifted a little below zero, where the matrix is regular; a start of our own makes
    # the result the same every time.
    shift = -1e-6 * symmetric.diagonal().mean()
    start = np.random.default_rng(0).normal(size=n)
    eigenvalues, vectors = eigsh(
        symmetric.tocsc(), k=num_functions, sigma=shift, v0=start
    )
    order = np.argsort(eigenvalues)
    functions = root[:, None] * vectors[:, order]
    largest = np.argmax(np.abs(functions), axis=0)
    functions = functions * np.sign(functions[largest, np.arange(num_functions)])
    return functions, np.maximum(eigenvalues[order], 0), masses


def _triangles(points: np.ndarray, triangles: np.ndarray):
    """Stiffness matrix and lumped masses of linear elements."""
    from scipy.sparse import coo_matrix

    n, p = points.shape
    if p not in (2, 3) or triangles.ndim != 2 or triangles.shape[1] != 3:
        raise ValueError(
            f"triangles {triangles.shape} must have three vertices each, of points in "
            f"2 or 3 dimensions; mesh_points {points.shape}."
        )
    if triangles.min() < 0 or triangles.max() >= n:
        raise ValueError(
            f"triangles name points {triangles.min()} to {triangles.max()}, but there "
            f"are {n}."
        )
    corners = points[triangles]
    edges = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)  # opposite each
    squares = np.einsum("tij,tkj->tik", edges, edges)
    doubled = np.sqrt(
        np.maximum(squares[:, 0, 0] * squares[:, 1, 1] - squares[:, 0, 1] ** 2, 0)
    )
    masses = np.bincount(triangles.ravel(), np.repeat(doubled / 6, 3), minlength=n)
    if not doubled.min() > 0 or not masses.min() > 0:
        raise ValueError(
            f"{np.count_nonzero(doubled <= 0)} triangles have no area and "
            f"{np.count_nonzero(masses <= 0)} points belong to none; remove them."
        )
    local = squares / (2 * doubled)[:, None, None]
    rows = np.repeat(triangles, 3, axis=1).ravel()
    columns = np.tile(triangles, (1, 3)).ravel()
    return coo_matrix((local.ravel(), (rows, columns)), shape=(n, n)).tocsr(), masses


def _graph(points: np.ndarray, num_neighbors: int):
    """Graph Laplacian of Gaussian weights between neighbours, and equal masses."""
    from scipy.sparse import coo_matrix, diags
    from scipy.spatial import KDTree

    n = len(points)
    if n <= num_neighbors:
        raise ValueError(
            f"mesh_points {points.shape}: {n} points have fewer than {num_neighbors=} "
            "neighbours each; lower num_neighbors."
        )
    found = KDTree(points).query(points, num_neighbors + 1)
    distances, neighbors = map(np.asarray, found)
    width = np.mean(distances[:, -1] ** 2)
    if not width > 0:
        raise ValueError("All points of mesh_points coincide.")
    weights = np.exp(-4 * distances[:, 1:] ** 2 / width).ravel()
    rows = np.repeat(np.arange(n), num_neighbors)
    graph = coo_matrix((weights, (rows, neighbors[:, 1:].ravel())), shape=(n, n))
    graph = (graph + graph.T) / 2
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    return (diags(degrees) - graph).tocsr(), np.full(n, 1 / n)
