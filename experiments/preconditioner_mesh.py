"""Flow in two phases on unstructured meshes, with parts of their points."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy import sparse
from scipy.spatial import KDTree

from experiments.preconditioner_problem import System
from opjax import schwarz
from opjax.problems import elasticity, poisson_mesh
from opjax.problems.random_fields import gaussian_random_field

_NUM_MODES = 5  # of the edge of a void


class Mesh(NamedTuple):
    """Linear elements for the interior points of a mesh, and subdomains of these.

    Attributes:
      points: the interior points, shape `(n, 2)`.
      cells: their numbers in the triangles, -1 on the boundary, shape `(t, 3)`.
      stiffness: of the triangles, with a coefficient of one, shape `(t, 3, 3)`.
      centres: of the triangles, shape `(t, 2)`.
      labels: part of every point, shape `(n,)`; -1 for padding.
      cover: the parts, extended by layers of neighbours.
    """

    points: Any
    cells: Any
    stiffness: Any
    centres: Any
    labels: Any
    cover: schwarz.Cover


def make(
    domain: str, seed: int, *, num_points: int, num_parts: int, overlap: int
) -> Mesh:
    """Makes a mesh with about so many interior points.

    Args:
      domain: the unit square with a random void in the middle, that of
        `opjax.problems.elasticity`, or without a quarter.
      seed: of the points and the void.
      num_points: about how many.
      num_parts: number of subdomains.
      overlap: layers of neighbours that a subdomain adds to its part.

    Raises:
      ValueError: if `domain` is neither `"void"` nor `"l_shape"`.
    """
    if domain == "void":
        nodes, cells = _around_void(seed, num_points)
    elif domain == "l_shape":
        columns = 2 * round(_columns(0.75, 4.0, num_points) / 2)
        nodes, cells = poisson_mesh.l_shaped_mesh(num_columns=columns, seed=seed)
    else:
        raise ValueError(f"{domain=} is unknown; choose from 'void', 'l_shape'.")
    inside = np.setdiff1d(cells, poisson_mesh.boundary_nodes(cells))
    number = np.full(len(nodes), -1)
    number[inside] = np.arange(len(inside))
    edges, *_ = poisson_mesh.edges_of(cells)
    points, edges = nodes[inside], number[edges]
    labels = schwarz.partition_points(points, num_subdomains=num_parts)
    cover = schwarz.partition_cover(
        labels, overlap=overlap, edges=edges[edges.min(axis=1) >= 0]
    )
    stiffness = poisson_mesh.local_stiffness(nodes, cells)
    centres = nodes[cells].mean(axis=1)
    return Mesh(points, number[cells], stiffness, centres, labels, cover)


def _columns(area: float, perimeter: float, num_points: int) -> float:
    """Spacings along the unit square: points keep off from the boundary."""
    of_area, of_boundary = np.sqrt(0.75) * num_points, 0.65 * perimeter
    return (of_boundary + np.sqrt(of_boundary**2 + 4 * of_area * area)) / (2 * area)


def _around_void(seed: int, num_points: int) -> tuple[np.ndarray, np.ndarray]:
    modes = np.random.default_rng(seed).normal(size=(2, _NUM_MODES))

    def edge_of_void(count: int) -> np.ndarray:
        angles = np.linspace(0, 2 * np.pi, count, endpoint=False)
        ray = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return 0.5 + elasticity.void_radius(modes, angles)[:, None] * ray

    fine = edge_of_void(4000)
    lengths = np.linalg.norm(np.roll(fine, -1, axis=0) - fine, axis=1)
    area = 1 - np.square(fine - 0.5).sum(axis=1).mean() * np.pi
    columns = round(_columns(area, 4 + lengths.sum(), num_points))
    ends = np.cumsum(lengths) - lengths
    even = np.linspace(0, lengths.sum(), round(lengths.sum() * columns), endpoint=False)
    line, one = np.arange(columns) / columns, np.ones(columns)
    square = [(line, 0 * one), (one, line), (1 - line, one), (0 * one, 1 - line)]
    nodes = [np.stack(side, axis=1) for side in square]
    tree = KDTree(fine)

    def depth(points: np.ndarray) -> np.ndarray:
        x, y = (points - 0.5).T
        radius = elasticity.void_radius(modes, np.arctan2(y, x))
        to_void = np.copysign(tree.query(points)[0], np.hypot(x, y) - radius)
        return np.minimum(to_void, 0.5 - np.maximum(np.abs(x), np.abs(y)))

    boundary = np.concatenate([*nodes, fine[np.searchsorted(ends, even)]])
    return poisson_mesh.triangulate(boundary, depth, num_columns=columns, seed=seed)


def stack(meshes: Sequence[Mesh]) -> Mesh:
    """Pads meshes with the same number of subdomains to one size."""
    count = max(len(mesh.points) for mesh in meshes)

    def padded(*leaves: Any, fill: int = 0) -> np.ndarray:
        shape = np.max([leaf.shape for leaf in leaves], axis=0)
        pads = (np.stack([0 * shape, shape - leaf.shape], axis=1) for leaf in leaves)
        return np.stack(
            [
                np.pad(leaf, pad, constant_values=fill)
                for leaf, pad in zip(leaves, pads, strict=True)
            ]
        )

    same = [
        mesh._replace(
            cover=schwarz.Cover(mesh.cover.indices, mesh.cover.weights, count)
        )
        for mesh in meshes
    ]
    labels = padded(*(mesh.labels for mesh in meshes), fill=-1)
    return jax.tree.map(padded, *same)._replace(labels=labels)


def entries(
    key: jax.Array, mesh: Mesh, num_columns: int, contrast: ArrayLike
) -> jax.Array:
    """Draws a coefficient as on grids: stiffness of the triangles, `(t, 3, 3)`."""
    field = gaussian_random_field(key, num_points=num_columns)
    column, row = (jnp.asarray(mesh.centres) * num_columns).astype(int).T
    phase = jnp.where(field[column, row] > 0, 0.5, -0.5)
    return jnp.asarray(contrast) ** phase[:, None, None] * mesh.stiffness


def dense_system(mesh: Mesh, values: jax.Array) -> System:
    """The scaled matrix of one of stacked meshes; padding is the identity."""
    n, cells = len(mesh.points), mesh.cells
    matrix = jnp.zeros((n + 1, n + 1), values.dtype)
    matrix = matrix.at[cells[:, :, None], cells[:, None]].add(values)[:n, :n]
    diagonal = jnp.diag(matrix)
    roots = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    matrix = matrix / (roots[:, None] * roots[None]) + jnp.diag(
        jnp.where(diagonal > 0, 0.0, 1.0)
    )
    roots = jnp.where(diagonal > 0, roots, 0)
    return System(matrix, roots, mesh.points, mesh.labels, mesh.cover)


def sparse_system(mesh: Mesh, values: np.ndarray) -> System:
    """The same of one mesh, sparse."""
    n, inside = len(mesh.points), mesh.cells >= 0
    both = inside[:, :, None] & inside[:, None]
    rows = np.broadcast_to(mesh.cells[:, :, None], both.shape)[both]
    columns = np.broadcast_to(mesh.cells[:, None], both.shape)[both]
    matrix = sparse.coo_array((values[both], (rows, columns)), (n, n)).tocsr()
    roots = np.sqrt(matrix.diagonal())
    scale = sparse.diags_array(1 / roots)
    matrix = (scale @ matrix @ scale).tocsr()
    return System(matrix, roots, mesh.points, mesh.labels, mesh.cover)
