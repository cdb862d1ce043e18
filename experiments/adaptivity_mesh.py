"""Meshes of the L-shaped domain that are refined where an indicator is large."""

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import splu

from opjax.problems import poisson_mesh

Mesh = tuple[np.ndarray, np.ndarray]  # nodes and triangles
# Numbers of the triangles; the largest are divided.
Indicator = Callable[[Mesh], np.ndarray]
CORNER = 0.5, 0.5
_BULK = 0.5  # of the sum of the indicators, in the triangles of a round


def l_shape(num_columns: int) -> Mesh:
    """Right isosceles triangles of the unit square without its upper right quarter."""
    line = np.arange(num_columns + 1)
    i, j = (a.ravel() for a in np.meshgrid(line[:-1], line[:-1], indexing="ij"))
    kept = (i < num_columns // 2) | (j < num_columns // 2)
    low = (i * (num_columns + 1) + j)[kept]
    right, up = low + num_columns + 1, low + 1
    cells = np.concatenate(
        [np.stack([low, right, up], 1), np.stack([right + 1, up, right], 1)]
    )
    nodes = np.stack(np.meshgrid(line, line, indexing="ij"), -1).reshape(-1, 2)
    used, cells = np.unique(cells, return_inverse=True)
    return nodes[used] / num_columns, cells.reshape(-1, 3)


def refine(mesh: Mesh, marked: np.ndarray) -> Mesh:
    """Bisects triangles at their longest edges, and others until the mesh conforms.

    Triangles of `l_shape` keep their shape. New nodes are the last ones.
    """
    nodes, cells = mesh
    edges, _, which = poisson_mesh.edges_of(cells)
    lengths = np.linalg.norm(np.subtract(*nodes[edges].swapaxes(0, 1)), axis=1)
    turns = (lengths[which].argmax(axis=1)[:, None] + np.arange(3)) % 3
    cells, which = (np.take_along_axis(a, turns, axis=1) for a in (cells, which))
    split = np.zeros(len(edges), bool)  # edges; the first of a triangle is its longest
    new = which[marked, 0]
    while len(new):
        split[new] = True
        new = which[split[which].any(axis=1) & ~split[which[:, 0]], 0]
    number = np.where(split, len(nodes) + np.cumsum(split) - 1, -1)
    nodes = np.concatenate([nodes, nodes[edges[split]].mean(axis=1)])
    parts = [cells[number[which[:, 0]] < 0]]
    for edge in (1, 2):  # the half of a divided triangle that has this edge
        of = number[which[:, 0]] >= 0
        middle, other = number[which[of, 0]], number[which[of, edge]]
        start, end = cells[of, edge], cells[of, (edge + 1) % 3]
        whole = other < 0
        parts += [
            np.stack([start, end, middle], 1)[whole],
            np.stack([middle, start, other], 1)[~whole],
            np.stack([end, middle, other], 1)[~whole],
        ]
    return nodes, np.concatenate(parts)


def grow(mesh: Mesh, indicator: Indicator, num_points: int) -> Mesh:
    """Refines in rounds until a mesh has as many points: Dörfler's marking.

    The triangles of a round have half of the sum of the indicators. They are at least a
    twentieth of all, and too few to exceed the number by much.
    """
    while (left := num_points - len(mesh[0])) > 0:
        values = indicator(mesh)
        order = np.argsort(-values)
        bulk = np.searchsorted(np.cumsum(values[order]), _BULK * values.sum()) + 1
        most = max(left // 2, 1)
        mesh = refine(mesh, order[: min(max(bulk, len(order) // 20), most)])
    return mesh


def uniform(mesh: Mesh, num_bisections: int) -> Mesh:
    """Bisects all triangles, which about doubles the points each time."""
    for _ in range(num_bisections):
        mesh = refine(mesh, np.arange(len(mesh[1])))
    return mesh


def graded(mesh: Mesh, diameter: float) -> Mesh:
    """Refines until diameters are below `diameter * r^0.4`, `r` to the corner."""
    while (wide := diameters(mesh) > diameter * to_corner(mesh) ** 0.4).any():
        mesh = refine(mesh, np.flatnonzero(wide))
    return mesh


def to_corner(mesh: Mesh) -> np.ndarray:
    """Distances of the centres of triangles to the re-entrant corner."""
    return np.linalg.norm(mesh[0][mesh[1]].mean(axis=1) - CORNER, axis=1)


def known(mesh: Mesh) -> np.ndarray:
    """Squared errors of gradients up to a factor, of `r^(2/3)` and a smooth part.

    Of `h^2 |T| |D^2 u|^2`, with a weight of `r^(2/3)` for smooth `f`.
    """
    return diameters(mesh) ** 4 * (1 + 0.005 * to_corner(mesh) ** (-8 / 3))


def at_random(mesh: Mesh, *, rng: np.random.Generator) -> np.ndarray:
    """Indicator whose largest are triangles of random points of the domain."""
    return poisson_mesh.signed_areas(*mesh) / rng.exponential(size=len(mesh[1]))


def solve(mesh: Mesh, right_sides: np.ndarray) -> np.ndarray:
    """Linear finite elements for `-Laplace u = f`, zero on the boundary, `(n, b)`."""
    stiffness, mass = poisson_mesh.assemble(*mesh)
    inside = ~on_boundary(mesh)
    solution = np.zeros_like(right_sides)
    factors = splu(stiffness[inside][:, inside].tocsc(), permc_spec="MMD_AT_PLUS_A")
    solution[inside] = factors.solve((mass @ right_sides)[inside])
    return solution


def on_boundary(mesh: Mesh) -> np.ndarray:
    """Whether nodes are on the boundary."""
    edges, counts, _ = poisson_mesh.edges_of(mesh[1])
    return np.isin(np.arange(len(mesh[0])), edges[counts == 1])


def jumps(mesh: Mesh, values: np.ndarray) -> np.ndarray:
    """Squared jumps of normal derivatives of piecewise linear functions, `(t,)`.

    `1/2 sum_{edges e} |e|^2 [du/dn]^2`, the mean over columns of `values`, `(n, b)`:
    the usual estimate of the error of the gradient without its interior part.
    """
    nodes, cells = mesh
    edges, counts, which = poisson_mesh.edges_of(cells)
    opposite = poisson_mesh.opposite_edges(nodes, cells)
    areas = poisson_mesh.signed_areas(nodes, cells)
    inner = np.einsum("tic,tjc->tij", opposite, opposite)
    # Of the hats: |e| dphi_j/dn on edge i, outwards.
    fluxes = (
        -np.einsum("tij,tjb->tib", inner, values[cells]) / (2 * areas)[:, None, None]
    )
    fluxes = fluxes[:, [2, 0, 1]]  # edge k of `which` is opposite to node k + 2
    total = np.zeros((len(edges), values.shape[1]))
    np.add.at(total, which, fluxes)
    squares = np.where(counts == 2, np.mean(total**2, axis=1), 0)
    return squares[which].sum(axis=1) / 2


def diameters(mesh: Mesh) -> np.ndarray:
    """Diameters of right isosceles triangles."""
    return 2 * np.sqrt(poisson_mesh.signed_areas(*mesh))


def interpolation(mesh: Mesh) -> Callable[[np.ndarray], csr_array]:
    """Returns the function from points of the domain, `(m, 2)`, to matrices `(m, n)`.

    They map values at nodes to those of linear elements at the points.

    Raises:
      ValueError: from that function, if a point is outside of the mesh.
    """
    from matplotlib.tri import Triangulation

    nodes, cells = mesh
    finder = Triangulation(nodes[:, 0], nodes[:, 1], cells).get_trifinder()
    areas = poisson_mesh.signed_areas(nodes, cells)

    def matrix(points: np.ndarray) -> csr_array:
        place = np.asarray(finder(points[:, 0], points[:, 1]), int)
        if (place < 0).any():
            raise ValueError(f"Point {points[place < 0][0]} is outside of the mesh.")
        sides = nodes[cells[place]] - points[:, None]
        one, two = np.roll(sides, -1, axis=1), np.roll(sides, -2, axis=1)
        double = one[..., 0] * two[..., 1] - one[..., 1] * two[..., 0]
        weights = double / (2 * areas[place, None])
        rows = np.repeat(np.arange(len(points)), 3)
        shape = len(points), len(nodes)
        return csr_array((weights.ravel(), (rows, cells[place].ravel())), shape)

    return matrix
