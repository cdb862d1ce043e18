"""Covers of meshes and point clouds: parts of a partition, extended by an overlap."""

from typing import Any

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax.schwarz.covers import Cover, cover


def partition_cover(
    labels: Int[ArrayLike, " n"],
    *,
    overlap: float,
    edges: Int[ArrayLike, "e 2"] | None = None,
    mesh_points: Float[ArrayLike, "n p"] | None = None,
) -> Cover:
    """Extends the parts of a partition by an overlap; together they cover the points.

    Args:
      labels: index of the part of every point, from zero, shape `(n,)`, for example
        from `partition_points` or a mesh partitioner.
      overlap: with edges, the number of layers of neighbours to add; with mesh points,
        the distance within which points are added, in domain lengths.
      edges: pairs of neighbours in any order, shape `(e, 2)`.
      mesh_points: points, shape `(n, p)`, in the units of `lengths`.

    Returns:
      The cover with its partition of unity.

    Raises:
      TypeError: if labels or edges are not integers, or `mesh_points` is not floating
        point.
      ValueError: if shapes do not match, labels are negative or skip a number, a
        point of an edge does not exist, a coordinate is not finite, the overlap is
        negative or not a whole number of layers, or not exactly one of edges and mesh
        points is given.

    Examples:
      >>> import numpy as np
      >>> from opjax import schwarz
      >>> edges = np.array([[0, 1], [1, 2], [2, 3], [3, 4], [4, 5]])
      >>> labels = schwarz.partition_graph(edges, num_points=6, num_subdomains=2)
      >>> cover = schwarz.partition_cover(labels, overlap=1, edges=edges)
      >>> cover.sizes.tolist()
      [4, 4]
    """
    _checks.on_host(labels=labels, mesh_points=mesh_points)
    labels = checked_labels(labels)
    _checks.non_negative(overlap=overlap)
    if edges is not None and mesh_points is None:
        if overlap != int(overlap):
            raise ValueError(
                f"{overlap=} is a number of layers of neighbours, so it must be an "
                "integer; pass mesh_points for an overlap in domain lengths."
            )
        graph = adjacency(edges, len(labels))
        subdomains = _grown_by_layers(labels, graph, int(overlap))
    elif mesh_points is not None and edges is None:
        points = checked_points(mesh_points)
        _checks.same_points(labels=labels, mesh_points=points)
        subdomains = _grown_by_distance(labels, points, overlap)
    else:
        given = "neither" if edges is None else "both"
        raise ValueError(
            "Pass either edges, to extend parts by layers of neighbours, or "
            f"mesh_points, to extend them by a distance; got {given}."
        )
    return cover(subdomains, num_points=len(labels))


def adjacency(edges: Int[ArrayLike, "e 2"], num_points: int) -> Any:
    """The sparse symmetric matrix of a graph, true at neighbours."""
    from scipy.sparse import csr_array

    edges = np.asarray(edges)
    _check_integers(edges=edges)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise ValueError(f"edges has shape {edges.shape}, expected (e, 2).")
    outside = edges[(edges < 0) | (edges >= num_points)]
    if outside.size:
        raise ValueError(
            f"edges contains point {outside[0]}, but points are numbered from 0 to "
            f"{num_points - 1}; remove the edges of padding points."
        )
    rows, columns = np.concatenate([edges, edges[:, ::-1]]).astype(int).T
    entries = np.ones(len(rows), bool)
    return csr_array((entries, (rows, columns)), (num_points, num_points))


def _grown_by_layers(labels: np.ndarray, graph: Any, layers: int) -> list[np.ndarray]:
    from scipy.sparse import csc_array

    points = np.arange(len(labels))
    members = csc_array((np.ones(len(labels), bool), (points, labels)))
    for _ in range(layers):
        members = members + graph @ members
    members = members.tocsc()
    members.sort_indices()
    return np.split(members.indices, members.indptr[1:-1])


def _grown_by_distance(
    labels: np.ndarray, points: np.ndarray, distance: float
) -> list[np.ndarray]:
    from scipy.spatial import KDTree

    subdomains = []
    for number in range(labels.max() + 1):
        part = points[labels == number]
        lower, upper = part.min(axis=0), part.max(axis=0)
        # Few points are near the bounding box, and only those are searched.
        to_box = np.maximum(lower - points, points - upper).max(axis=1)
        near = np.flatnonzero(to_box <= distance)
        to_part, _ = KDTree(part).query(points[near])
        subdomains.append(near[to_part <= distance])
    return subdomains


def checked_points(mesh_points: Float[ArrayLike, "n p"]) -> Float[np.ndarray, "n p"]:
    """Checks points and returns them in float64."""
    points = np.asarray(mesh_points)
    _checks.floating(mesh_points=points)
    if points.ndim != 2 or points.shape[1] == 0:
        raise ValueError(f"mesh_points has shape {points.shape}, expected (n, p).")
    bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
    if bad.size:
        raise ValueError(
            f"{bad.size} of {len(points)} mesh_points are not finite, the first "
            f"ones are {bad[:8].tolist()}."
        )
    return points.astype(float)


def checked_labels(given: ArrayLike) -> np.ndarray:
    """Checks indices of parts and returns them as integers."""
    labels = np.asarray(given)
    _check_integers(labels=labels)
    if labels.ndim != 1 or labels.size == 0:
        raise ValueError(f"labels has shape {labels.shape}, expected (n,) with n >= 1.")
    if labels.min() < 0:
        raise ValueError(
            f"labels contains {labels.min()}; subdomains are numbered from 0."
        )
    present = np.unique(labels)
    empty = np.flatnonzero(present != np.arange(present.size))
    if empty.size:
        raise ValueError(
            f"Subdomain {empty[0]} is empty: labels contain {present.size} numbers "
            f"up to {present[-1]}. Renumber them with `np.unique(labels, "
            "return_inverse=True)[1]`."
        )
    return labels.astype(int)


def _check_integers(**arrays: np.ndarray) -> None:
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.integer):
            raise TypeError(f"{name} has dtype {array.dtype}, expected integers.")
