r"""Poisson's equation on a mesh of triangles, with linear finite elements.

`-Laplace u = f`, `u = 0` on the boundary. With stiffness matrix `A` and lumped masses
`W`, the discrete problem is `A u = W f`. In the coordinates `W^{1/2} f` and `W^{1/2}
u`, Euclidean norms are L2 norms, and the inverse, `W^{1/2} A^{-1} W^{1/2}`, is
symmetric.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax._stiffness import assembled
from opjax.problems import poisson

# Without the upper right quarter, in order.
_CORNERS = np.array([(0, 0), (1, 0), (1, 0.5), (0.5, 0.5), (0.5, 1), (0, 1)])
_MARGIN, _JITTER = 0.65, 0.25  # of interior nodes, in spacings


class Elements(NamedTuple):
    """The discrete problem for the interior points of a mesh.

    Attributes:
      mesh_points: interior points, shape `(n, 2)`.
      edges: pairs of points that share an edge of a triangle, shape `(e, 2)`.
      stiffness: sparse matrix `A`, shape `(n, n)`.
      mass: sparse mass matrix, not lumped, shape `(n, n)`.
      lumped: masses `W`, a third of the area of the triangles around each point, shape
        `(n,)`.

    Examples:
      >>> from opjax.problems import poisson_mesh
      >>> elements = poisson_mesh.discretize(*poisson_mesh.l_shaped_mesh(num_columns=8))
      >>> elements.stiffness.shape == (len(elements.mesh_points),) * 2
      True
    """

    mesh_points: np.ndarray
    edges: np.ndarray
    stiffness: Any
    mass: Any
    lumped: np.ndarray


def l_shaped_mesh(*, num_columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Makes an unstructured Delaunay mesh of an L-shaped domain.

    The domain is the unit square without its upper right quarter. Boundary nodes are
    equidistant. Interior nodes are those of a lattice of equilateral triangles, each
    moved at random by up to a quarter of the spacing in both coordinates.

    Args:
      num_columns: number of spacings along the longest side, even and at least 4.
      seed: seed of the displacements.

    Returns:
      Nodes, shape `(N, 2)`, and triangles, with three nodes each, counter-clockwise,
      shape `(t, 3)`.

    Raises:
      ValueError: if `num_columns` is odd or below 4.

    Examples:
      >>> from opjax.problems import poisson_mesh
      >>> nodes, cells = poisson_mesh.l_shaped_mesh(num_columns=8)
      >>> area = poisson_mesh.signed_areas(nodes, cells).sum()
      >>> nodes.shape[1], cells.shape[1], round(float(area), 6)
      (2, 3, 0.75)
    """
    if num_columns < 4 or num_columns % 2:
        raise ValueError(f"{num_columns=} must be even and at least 4.")
    ends, boundary = np.roll(_CORNERS, -1, axis=0), []
    for start, end in zip(_CORNERS, ends, strict=True):
        count = round(num_columns * np.abs(end - start).max())
        boundary.append(start + np.arange(count)[:, None] / count * (end - start))
    boundary = np.concatenate(boundary)
    return triangulate(boundary, _depth, num_columns=num_columns, seed=seed)


def triangulate(
    boundary: np.ndarray,
    depth: Callable[[np.ndarray], np.ndarray],
    *,
    num_columns: int,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Makes an unstructured Delaunay mesh of a domain in the unit square.

    The triangulation is not constrained. If boundary nodes are much farther apart than
    the spacing, it may cut across the boundary, which is refused.

    Args:
      boundary: at least 3 boundary nodes in the unit square, shape `(b, 2)`.
      depth: distances of points, `(n, 2)`, to the boundary, negative outside, `(n,)`.
      num_columns: number of spacings along the unit square.
      seed: seed of the displacements of the interior nodes, see `l_shaped_mesh`.

    Returns:
      Nodes and triangles, as from `l_shaped_mesh`.

    Raises:
      ValueError: if `num_columns` is not a positive integer, `boundary` has another
        shape, fewer than 3 nodes, a node twice or one outside the unit square, no
        triangle is inside the domain, or the mesh does not end at these nodes.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson_mesh
      >>> turn = 2 * np.pi * np.arange(24)[:, None] / 24
      >>> circle = 0.5 + 0.5 * np.concatenate([np.cos(turn), np.sin(turn)], axis=1)
      >>> nodes, cells = poisson_mesh.triangulate(
      ...     circle,
      ...     lambda points: 0.5 - np.linalg.norm(points - 0.5, axis=1),
      ...     num_columns=8,
      ...     seed=0,
      ... )
      >>> area = poisson_mesh.signed_areas(nodes, cells).sum()
      >>> float(area) < np.pi / 4, round(float(area), 2)
      (True, 0.78)
    """
    from scipy.spatial import Delaunay

    if num_columns < 1 or num_columns % 1:
        raise ValueError(f"{num_columns=} must be a positive integer.")
    boundary = np.asarray(boundary)
    if boundary.ndim != 2 or boundary.shape[1] != 2 or len(boundary) < 3:
        raise ValueError(
            f"boundary has shape {boundary.shape}, expected (b, 2), b >= 3."
        )
    outside = np.flatnonzero(~((boundary >= 0) & (boundary <= 1)).all(axis=1))
    if outside.size:
        raise ValueError(
            f"Boundary node {outside[0]}, {boundary[outside[0]]}, is not in the unit "
            "square."
        )
    _, first, which = np.unique(
        boundary, axis=0, return_index=True, return_inverse=True
    )
    repeated = np.flatnonzero(first[which.reshape(-1)] != np.arange(len(boundary)))
    if repeated.size:
        raise ValueError(
            f"Boundary node {repeated[0]}, {boundary[repeated[0]]}, is there twice."
        )
    spacing = 1 / num_columns
    rows = np.arange(1, num_columns / np.sqrt(0.75))
    rng = np.random.default_rng(seed)
    inside = scattered_nodes(rows, np.arange(num_columns + 1), spacing, rng)
    inside = inside[depth(inside) > _MARGIN * spacing]
    nodes = np.concatenate([boundary, inside])
    cells = Delaunay(nodes).simplices
    # Three nodes of one side are no triangle, and what is outside has some.
    kept = depth(nodes[cells].mean(axis=1)) > 1e-6 * spacing
    cells = with_area(nodes, cells[kept], spacing)
    if not cells.size:
        raise ValueError(
            "The domain has no point inside: depth is not positive in any triangle."
        )
    edges, counts, _ = edges_of(cells)
    ends = np.bincount(edges[counts == 1].ravel(), minlength=len(nodes))
    wrong = np.flatnonzero(ends != 2 * (np.arange(len(nodes)) < len(boundary)))
    if wrong.size:
        raise ValueError(
            f"The triangles do not follow the boundary near {nodes[wrong[0]]}: "
            f"boundary nodes must be about as close as the spacing {spacing:.3g}."
        )
    return nodes, cells


def scattered_nodes(
    rows: np.ndarray, columns: np.ndarray, spacing: float, rng: np.random.Generator
) -> np.ndarray:
    """Returns nodes of equilateral triangles, each moved at random, `(n, 2)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import scattered_nodes
      >>> rng = np.random.default_rng(0)
      >>> scattered_nodes(np.arange(3), np.arange(4), 0.1, rng).shape
      (12, 2)
    """
    x = (columns + 0.5 * (rows[:, None] % 2)) * spacing
    y = np.broadcast_to(rows[:, None] * np.sqrt(0.75) * spacing, x.shape)
    nodes = np.stack([x.ravel(), y.ravel()], axis=1)
    return nodes + _JITTER * spacing * rng.uniform(-1, 1, size=nodes.shape)


def with_area(nodes: np.ndarray, cells: np.ndarray, spacing: float) -> np.ndarray:
    """Returns the triangles of positive area, counter-clockwise, shape `(t, 3)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import with_area
      >>> nodes = np.array([(0, 0), (1, 0), (0, 1), (2, 0)], float)
      >>> with_area(nodes, np.array([(0, 2, 1), (0, 1, 3)]), 1.0).tolist()
      [[1, 2, 0]]
    """
    cells = cells[np.abs(signed_areas(nodes, cells)) > 1e-3 * spacing**2]
    turned = signed_areas(nodes, cells) < 0
    cells[turned] = cells[turned][:, ::-1]
    return cells


def opposite_edges(nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Returns the opposite edge of each node of triangles, `(t, 3, 2)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import opposite_edges
      >>> nodes = np.array([(0, 0), (1, 0), (0, 1)])
      >>> opposite_edges(nodes, np.array([(0, 1, 2)])).tolist()
      [[[-1, 1], [0, -1], [1, 0]]]
    """
    return np.roll(nodes[cells], -2, axis=1) - np.roll(nodes[cells], -1, axis=1)


def local_stiffness(nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Returns the stiffness matrices of triangles, shape `(t, 3, 3)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import local_stiffness
      >>> nodes = np.array([(0, 0), (1, 0), (0, 1)])
      >>> local_stiffness(nodes, np.array([(0, 1, 2)])).tolist()
      [[[1.0, -0.5, -0.5], [-0.5, 0.5, 0.0], [-0.5, 0.0, 0.5]]]
    """
    # Gradients of the three hats, opposite edges turned by a right angle.
    edge = opposite_edges(nodes, cells)
    areas = np.abs(signed_areas(nodes, cells))[:, None, None]
    return np.einsum("tic,tjc->tij", edge, edge) / (4 * areas)


def assemble(
    nodes: Float[ArrayLike, "N 2"], cells: Int[ArrayLike, "t 3"]
) -> tuple[Any, Any]:
    """Assembles linear finite elements for all nodes, without boundary values.

    Args:
      nodes: nodes of the mesh, shape `(N, 2)`.
      cells: triangles, with three nodes each, shape `(t, 3)`.

    Returns:
      The stiffness matrix and the mass matrix, sparse, shape `(N, N)`.

    Raises:
      TypeError: as from `discretize`.
      ValueError: as from `discretize`, but all nodes may be on the boundary.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson_mesh
      >>> nodes = np.array([(0, 0), (1, 0), (0, 1)], float)
      >>> stiffness, mass = poisson_mesh.assemble(nodes, np.array([(0, 1, 2)]))
      >>> print(stiffness.toarray())
      [[ 1.  -0.5 -0.5]
       [-0.5  0.5  0. ]
       [-0.5  0.   0.5]]
      >>> round(float(mass.sum()), 6)  # the area
      0.5
    """
    nodes, cells = _checked_mesh(nodes, cells)
    areas = np.abs(signed_areas(nodes, cells))
    gradients = local_stiffness(nodes, cells)
    masses = areas[:, None, None] * (np.ones((3, 3)) + np.eye(3)) / 12
    stiffness, mass = (
        assembled(local, cells, len(nodes)) for local in (gradients, masses)
    )
    return stiffness, mass


def discretize(
    nodes: Float[ArrayLike, "N 2"], cells: Int[ArrayLike, "t 3"]
) -> Elements:
    """Assembles linear finite elements with zero values on the boundary.

    Args:
      nodes: nodes of the mesh, shape `(N, 2)`.
      cells: triangles, with three nodes each, shape `(t, 3)`.

    Returns:
      The discrete problem for the interior points, in the order of the nodes.

    Raises:
      TypeError: if nodes are not floating point or cells not integers.
      ValueError: if shapes do not match these, a node does not exist, a triangle has no
        area, or there is no interior node.

    Examples:
      >>> from opjax.problems import poisson_mesh
      >>> from scipy.sparse.linalg import spsolve
      >>> mesh = poisson_mesh.l_shaped_mesh(num_columns=16)
      >>> elements = poisson_mesh.discretize(*mesh)
      >>> u = spsolve(elements.stiffness, elements.lumped)  # -Laplace u = 1
      >>> round(float(u.max()), 3)
      0.037
    """
    nodes, cells = _checked_mesh(nodes, cells)
    stiffness, mass = assemble(nodes, cells)
    inside = np.setdiff1d(cells, boundary_nodes(cells))
    if not inside.size:
        raise ValueError(
            "All nodes are on the boundary; the mesh needs interior nodes."
        )
    edges, *_ = edges_of(cells)
    edges = edges[np.isin(edges, inside).all(axis=1)]
    return Elements(
        nodes[inside],
        np.searchsorted(inside, edges),
        stiffness[inside][:, inside],
        mass[inside][:, inside],
        mass.sum(axis=1)[inside],
    )


def edges_of(
    cells: Int[ArrayLike, "t 3"],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the edges of triangles.

    Args:
      cells: triangles, with three nodes each, shape `(t, 3)`.

    Returns:
      Edges, with two nodes each, the smaller one first, shape `(e, 2)`; the number of
      triangles at each edge, one on the boundary, shape `(e,)`; and the edges of every
      triangle: from its first node to the second, to the third, and back, `(t, 3)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import edges_of
      >>> edges, counts, which = edges_of(np.array([(0, 1, 2), (1, 3, 2)]))
      >>> edges[counts == 2].tolist()  # inside, between two triangles
      [[1, 2]]
    """
    cells = np.asarray(cells)
    pairs = np.sort(np.stack([cells, np.roll(cells, -1, axis=1)], -1).reshape(-1, 2))
    edges, which, counts = np.unique(
        pairs, axis=0, return_inverse=True, return_counts=True
    )
    return edges, counts, which.reshape(-1, 3)


def boundary_nodes(cells: Int[ArrayLike, "t 3"]) -> np.ndarray:
    """Returns the nodes on the boundary of a mesh, in increasing order.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson_mesh
      >>> cells = np.array([(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 0, 4)])
      >>> poisson_mesh.boundary_nodes(cells).tolist()
      [0, 1, 2, 3]
    """
    edges, counts, _ = edges_of(cells)
    return np.unique(edges[counts == 1])


def inverse(elements: Elements) -> np.ndarray:
    """Returns the exact inverse `W^{1/2} A^{-1} W^{1/2}`, shape `(n, n)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import poisson_mesh
      >>> elements = poisson_mesh.discretize(*poisson_mesh.l_shaped_mesh(num_columns=8))
      >>> matrix = poisson_mesh.inverse(elements)
      >>> bool(np.allclose(matrix, matrix.T))
      True
    """
    root = np.sqrt(elements.lumped)
    identity = np.eye(len(root))
    dense = np.linalg.solve(elements.stiffness.toarray(), identity * root)
    return root[:, None] * dense


def fourier_problem(
    elements: Elements, *, num_modes: int = 4, decay: float = 1.5
) -> poisson.FourierProblem:
    """Tabulates products of sine and cosine modes, and their solutions.

    Args:
      elements: the discrete problem.
      num_modes: number of modes `m = 1, ...` per axis; `k = (2 num_modes)^2` functions
        in total.
      decay: exponent of the damping `m^-decay`, a product over the axes.

    Returns:
      The problem, with modes and solutions multiplied by `W^{1/2}`. Masses are relative
      to their mean, so that functions of unit size have entries of unit size.

    Raises:
      ValueError: if `num_modes` is not positive or the decay is negative.

    Examples:
      >>> from opjax.problems import poisson_mesh
      >>> elements = poisson_mesh.discretize(*poisson_mesh.l_shaped_mesh(num_columns=8))
      >>> problem = poisson_mesh.fourier_problem(elements, num_modes=2)
      >>> problem.modes.shape[1], problem.solutions.shape == problem.modes.shape
      (16, True)
    """
    _checks.positive(num_modes=num_modes)
    _checks.non_negative(decay=decay)
    axes = [poisson.modes_at(x, num_modes) for x in elements.mesh_points.T]
    modes = np.einsum("ni,nj->nij", *axes).reshape(len(axes[0]), -1)
    modes = np.sqrt(elements.lumped / elements.lumped.mean())[:, None] * modes
    damping = poisson.damping_of(num_modes, decay, axes=2)
    solutions = inverse(elements) @ modes
    return poisson.FourierProblem(*map(jnp.asarray, (modes, solutions, damping)))


def signed_areas(nodes: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Returns the areas of triangles, positive if counter-clockwise, shape `(t,)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import signed_areas
      >>> nodes = np.array([(0, 0), (1, 0), (0, 1)])
      >>> signed_areas(nodes, np.array([(0, 1, 2), (0, 2, 1)])).tolist()
      [0.5, -0.5]
    """
    first, second = np.moveaxis(nodes[cells[:, 1:]] - nodes[cells[:, :1]], 1, 0)
    return (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]) / 2


def nearest_on_polygon(
    points: np.ndarray, corners: Sequence[Sequence[float]] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nearest points on the sides of a polygon, and their distances.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.poisson_mesh import nearest_on_polygon
      >>> corners = [(0, 0), (1, 0), (0, 1)]
      >>> nearest, distances = nearest_on_polygon(np.array([[0.5, -1.0]]), corners)
      >>> nearest.tolist(), distances.tolist()
      ([[0.5, 0.0]], [1.0])
    """
    start = np.asarray(corners)
    edge = np.roll(start, -1, axis=0) - start
    along = np.einsum("nep,ep->ne", points[:, None] - start, edge)
    along = np.clip(along / np.square(edge).sum(axis=1), 0, 1)
    feet = start + along[:, :, None] * edge
    distances = np.linalg.norm(points[:, None] - feet, axis=-1)
    rows = np.arange(len(points)), distances.argmin(axis=1)
    return feet[rows], distances[rows]


def _depth(points: np.ndarray) -> np.ndarray:
    """Distances of points to the boundary of the L, negative outside."""
    _, distance = nearest_on_polygon(points, _CORNERS)
    x, y = points.T
    inside = (np.minimum(x, y) > 0) & (np.maximum(x, y) < 1) & (np.minimum(x, y) < 0.5)
    return np.where(inside, distance, -distance)


def _checked_mesh(nodes: ArrayLike, cells: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    nodes, cells = np.asarray(nodes), np.asarray(cells)
    _checks.floating(nodes=nodes)
    if not np.issubdtype(cells.dtype, np.integer):
        raise TypeError(f"cells has dtype {cells.dtype}, expected integers.")
    if nodes.ndim != 2 or nodes.shape[1] != 2:
        raise ValueError(f"nodes has shape {nodes.shape}, expected (N, 2).")
    if cells.ndim != 2 or cells.shape[1] != 3 or not cells.size:
        raise ValueError(f"cells has shape {cells.shape}, expected (t, 3), t >= 1.")
    if cells.min() < 0 or cells.max() >= len(nodes):
        raise ValueError(
            f"cells contain node indices from {cells.min()} to {cells.max()}, but "
            f"there are nodes 0 to {len(nodes) - 1}."
        )
    flat = np.flatnonzero(signed_areas(nodes.astype(float), cells) == 0)
    if flat.size:
        raise ValueError(f"Triangle {flat[0]} has zero area: nodes {cells[flat[0]]}.")
    return nodes.astype(float), cells
