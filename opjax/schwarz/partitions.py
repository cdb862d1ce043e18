"""Partitions of meshes and point clouds into equal parts, by recursive bisection."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax.schwarz.boxes import interval_starts
from opjax.schwarz.meshes import adjacency, checked_points

# Averaging steps that straighten a cut of a graph; more of them shorten it little.
_SMOOTHING_STEPS = 30


def partition_points(
    mesh_points: Float[ArrayLike, "n p"], *, num_subdomains: int
) -> Int[np.ndarray, " n"]:
    """Splits points into equal parts by recursive coordinate bisection.

    A set of points is cut across the longest side of its bounding box, until every part
    is one subdomain. Points with equal coordinates are ordered by index.

    Args:
      mesh_points: points, shape `(n, p)`, in the units of `lengths`.
      num_subdomains: number of parts, at most `n`; their sizes differ by at most one.

    Returns:
      The index of the part of every point, shape `(n,)`.

    Raises:
      TypeError: if `mesh_points` is not floating point.
      ValueError: if its shape is not the one given above, a coordinate is not finite,
        or there are more parts than points.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> mesh_points = np.array([[0.0, 0], [3, 0], [1, 0], [2, 0]])
      >>> schwarz.partition_points(mesh_points, num_subdomains=2).tolist()
      [0, 1, 0, 1]

    References:
      Simon, "Partitioning of unstructured problems for parallel processing", Computing
      Systems in Engineering 2, 1991, with both algorithms of this module.
    """
    _checks.on_host(mesh_points=mesh_points)
    points = checked_points(mesh_points)

    def order(part: np.ndarray) -> np.ndarray:
        inside = points[part]
        axis = np.argmax(np.ptp(inside, axis=0))
        return np.argsort(inside[:, axis], kind="stable")

    return _bisect(len(points), num_subdomains, order)


def partition_graph(
    edges: Int[ArrayLike, "e 2"], *, num_points: int, num_subdomains: int
) -> Int[np.ndarray, " n"]:
    """Splits points into equal parts by recursive bisection of their graph.

    Two breadth-first searches from points far apart assign distances to the points of a
    set. The difference of the distances, smoothed by averages over neighbours, is a
    height that increases from one end to the other. The set is cut at its median
    height, recursively, until every part is one subdomain. Connected components are
    processed one after another. No coordinates are needed; parts are compact, though
    not always connected.

    Args:
      edges: pairs of neighbours in any order, shape `(e, 2)`.
      num_points: number `n` of all points.
      num_subdomains: number of parts, at most `n`; their sizes differ by at most one.

    Returns:
      The index of the part of every point, shape `(n,)`.

    Raises:
      TypeError: if edges are not integers.
      ValueError: if their shape is not the one given above, a point does not exist, or
        there are more parts than points.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> edges = np.array([[0, 1], [1, 2], [2, 3]])
      >>> schwarz.partition_graph(edges, num_points=4, num_subdomains=2).tolist()
      [1, 1, 0, 0]
    """
    from scipy.sparse import csgraph

    graph = adjacency(edges, num_points)

    def order(part: np.ndarray) -> np.ndarray:
        inside = graph[part][:, part]
        _, component = csgraph.connected_components(inside, directed=False)
        last = np.cumsum(np.bincount(component)) - 1
        numbering, numbers = np.argsort(component, kind="stable"), []
        # A search ends far from its start, where the next one begins.
        for _ in range(3):
            numbering = _breadth_first(inside, component, numbering[last])
            numbers.append(np.argsort(numbering))
        height = (numbers[2] - numbers[1]).astype(float)
        degree = np.maximum(inside.sum(axis=1), 1)
        for _ in range(_SMOOTHING_STEPS):
            height = (height + inside @ height / degree) / 2
        return np.lexsort((height, component))

    return _bisect(num_points, num_subdomains, order)


def _bisect(
    num_points: int, num_subdomains: int, order: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Halves sets of points, taken in the given order, down to the subdomains."""
    if not 1 <= num_subdomains <= num_points:
        raise ValueError(
            f"{num_subdomains=} must be between 1 and the number of points, "
            f"{num_points}: every subdomain needs one."
        )
    starts = interval_starts(num_points, num_subdomains)
    labels = np.zeros(num_points, int)
    parts = [(np.arange(num_points), 0, num_subdomains)]
    while parts:
        part, first, end = parts.pop()
        if end - first == 1:
            labels[part] = first
            continue
        middle = (first + end) // 2
        ordered = part[order(part)]
        left, right = np.split(ordered, [starts[middle] - starts[first]])
        parts += [(np.sort(left), first, middle), (np.sort(right), middle, end)]
    return labels


def _breadth_first(graph: Any, component: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Order of a search from one start in each component, one after the other."""
    from scipy.sparse import csgraph, csr_array

    # A further point, whose neighbours are the starts, so that one search finds all.
    n = graph.shape[0]
    indices = np.append(graph.indices, starts)
    pointers = np.append(graph.indptr, len(indices))
    rooted = csr_array((np.ones(len(indices)), indices, pointers), (n + 1, n + 1))
    order = csgraph.breadth_first_order(rooted, n, return_predecessors=False)[1:]
    return order[np.argsort(component[order], kind="stable")]
