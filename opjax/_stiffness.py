"""Stiffness matrices and lumped masses of triangles, clouds of points and grids."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np


def assembled(local: np.ndarray, cells: np.ndarray, num_points: int) -> Any:
    """The sum of the matrices of cells, `(t, c, c)`, over their points, `(t, c)`."""
    from scipy.sparse import coo_array

    count = cells.shape[1]
    rows = np.repeat(cells, count, axis=1).ravel()
    columns = np.tile(cells, (1, count)).ravel()
    shape = num_points, num_points
    return coo_array((local.ravel(), (rows, columns)), shape).tocsr()


def of_triangles(points: np.ndarray, triangles: np.ndarray) -> tuple[Any, np.ndarray]:
    """Stiffness matrix and lumped masses of linear elements."""
    n, p = points.shape
    if p not in (2, 3) or triangles.ndim != 2 or triangles.shape[1] != 3:
        raise ValueError(
            f"triangles {triangles.shape} must have three vertices each, and "
            f"mesh_points {points.shape} must have 2 or 3 dimensions."
        )
    if triangles.min() < 0 or triangles.max() >= n:
        raise ValueError(
            f"triangles contain point indices from {triangles.min()} to "
            f"{triangles.max()}, but there are {n} points."
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
            f"{np.count_nonzero(doubled <= 0)} triangles have zero area and "
            f"{np.count_nonzero(masses <= 0)} points belong to no triangle; remove "
            "them."
        )
    local = squares / (2 * doubled)[:, None, None]
    return assembled(local, triangles, n), masses


def of_cloud(
    points: np.ndarray, num_neighbors: int, dimension: int
) -> tuple[Any, np.ndarray]:
    """Graph Laplacian with Gaussian weights between neighbours, and equal masses.

    It is divided by the mean of `sum_j w_ij |x_j - x_i|^2 / (2 dimension)`, its value
    on quadratic functions, so that it approximates the Laplacian where neighbours are
    evenly distributed.
    """
    from scipy.sparse import coo_matrix, diags
    from scipy.spatial import KDTree

    n = len(points)
    if n <= num_neighbors:
        raise ValueError(
            f"mesh_points {points.shape}: {n} points have fewer than {num_neighbors=} "
            "neighbours each; lower num_neighbors."
        )
    nearest = KDTree(points).query(points, num_neighbors + 1)
    distances, neighbors = map(np.asarray, nearest)
    width = np.mean(distances[:, -1] ** 2)
    if not width > 0:
        raise ValueError("All points of mesh_points coincide.")
    squares = distances[:, 1:] ** 2
    weights = np.exp(-4 * squares / width)
    scale = n * np.mean(np.sum(weights * squares, axis=1)) / (2 * dimension)
    rows = np.repeat(np.arange(n), num_neighbors)
    place = (rows, neighbors[:, 1:].ravel())
    graph = coo_matrix((weights.ravel() / scale, place), shape=(n, n))
    graph = (graph + graph.T) / 2
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    return (diags(degrees) - graph).tocsr(), np.full(n, 1 / n)


def of_grid(coefficient: np.ndarray, periodic: bool) -> tuple[Any, np.ndarray]:
    """Multilinear elements on the unit box; nodes are the entries of `coefficient`.

    Every cell has the mean coefficient of its corners. On a periodic grid the last
    nodes are one step before the first.
    """
    shape = coefficient.shape
    cells = shape if periodic else tuple(count - 1 for count in shape)
    local, volume = _element([1 / count for count in cells])
    corners = np.stack(np.meshgrid(*len(shape) * [[0, 1]], indexing="ij"), -1)
    first = np.stack(np.meshgrid(*map(np.arange, cells), indexing="ij"), -1)
    nodes = first.reshape(-1, 1, len(shape)) + corners.reshape(1, -1, len(shape))
    numbers = np.ravel_multi_index(tuple(np.moveaxis(nodes % shape, -1, 0)), shape)
    values = coefficient.ravel()[numbers].mean(axis=1)[:, None, None] * local
    n = coefficient.size
    masses = np.bincount(numbers.ravel(), minlength=n) * (volume / 2 ** len(shape))
    return assembled(values, np.asarray(numbers), n), masses


def _element(spacings: Sequence[float]) -> tuple[np.ndarray, float]:
    """Stiffness of one cell, a sum over axes of products of those of intervals."""
    stiffnesses = [np.array([[1, -1], [-1, 1]]) / h for h in spacings]
    masses = [np.array([[2, 1], [1, 2]]) * h / 6 for h in spacings]
    total = sum(
        functools.reduce(np.kron, [*masses[:axis], one, *masses[axis + 1 :]])
        for axis, one in enumerate(stiffnesses)
    )
    return np.asarray(total), float(np.prod(spacings))
