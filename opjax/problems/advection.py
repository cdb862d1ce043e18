r"""Advection and diffusion on a mesh of triangles, with linear finite elements.

    du/dt + a . grad u = nu Laplace u,    du/dn = 0 on the boundary,

with a steady velocity `a = (d psi / dy, -d psi / dx)` of a stream function `psi` that
is zero on the boundary. The velocity is divergence-free and there is no flow through
the boundary, so the integral of `u` is conserved, also by the discrete problem. Time
steps are Crank-Nicolson steps.
"""

from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Float, Int

from opjax import _checks
from opjax._stiffness import assembled
from opjax.problems.poisson_mesh import (
    assemble,
    boundary_nodes,
    edges_of,
    opposite_edges,
    scattered_nodes,
    signed_areas,
    with_area,
)

_MARGIN = 0.6  # spacings between the boundary and the nodes inside
_ATTEMPTS = 20


class Shape(NamedTuple):
    """A domain around the origin, of radius `1 + depth cos(waves angle + phase)`.

    Attributes:
      waves: number of waves of the radius around the boundary.
      depth: relative amplitude of the waves.
      phase: phase of the waves, in radians.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems.advection import Shape
      >>> flower = Shape(waves=5, depth=0.2)
      >>> flower.radius(np.array([0.0, np.pi / 5])).tolist()
      [1.2, 0.8]
    """

    waves: int = 2
    depth: float = 0.0
    phase: float = 0.0

    def radius(self, angle: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Returns the radius of the boundary at angles."""
        return 1 + self.depth * np.cos(self.waves * angle + self.phase)

    def relative(self, points: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
        """Returns the radius of points relative to the radius of the boundary."""
        angle = np.arctan2(points[:, 1], points[:, 0])
        return np.linalg.norm(points, axis=1) / self.radius(angle)


def mesh(
    shape: Shape, *, spacing: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Makes an unstructured Delaunay mesh of a shape.

    Interior nodes are those of a lattice of equilateral triangles, each moved at random
    by up to a quarter of the spacing in both coordinates.

    Args:
      shape: the domain.
      spacing: spacing of the nodes, at most 0.5.
      seed: seed of the displacements.

    Returns:
      Nodes, shape `(N, 2)`, and triangles, with three nodes each, counter-clockwise,
      shape `(t, 3)`.

    Raises:
      RuntimeError: if 20 meshes in a row do not contain the boundary as edges, for
        example because the waves are deeper than the spacing resolves.
      ValueError: if the spacing is out of range, or the depth is negative or not below
        1.

    Examples:
      >>> from opjax.problems import advection, poisson_mesh
      >>> disc = advection.Shape()
      >>> nodes, cells = advection.mesh(disc, spacing=0.25)
      >>> round(float(poisson_mesh.signed_areas(nodes, cells).sum()), 2)  # near pi
      3.11
    """
    if not 0 < spacing <= 0.5:
        raise ValueError(f"{spacing=} must be positive and at most 0.5.")
    if not 0 <= shape.depth < 1:
        raise ValueError(f"{shape.depth=} must be at least 0 and less than 1.")
    rng = np.random.default_rng(seed)
    for _ in range(_ATTEMPTS):
        attempt = _attempt(shape, spacing, rng)
        if attempt is not None:
            return attempt
    raise RuntimeError(
        f"None of {_ATTEMPTS} meshes of {shape} with {spacing=} follows the boundary; "
        "use a smaller spacing or shallower waves."
    )


def refine(
    shape: Shape, nodes: Float[ArrayLike, "N 2"], cells: Int[ArrayLike, "t 3"]
) -> tuple[np.ndarray, np.ndarray]:
    """Divides every triangle into four, at the midpoints of its edges.

    Midpoints of edges on the boundary are moved to the boundary of the shape.

    Args:
      shape: the domain.
      nodes: nodes of a mesh of the shape, shape `(N, 2)`.
      cells: triangles, with three nodes each, shape `(t, 3)`.

    Returns:
      Nodes, of which the first `N` are the given ones, and `4 t` triangles.

    Examples:
      >>> from opjax.problems import advection
      >>> disc = advection.Shape()
      >>> nodes, cells = advection.mesh(disc, spacing=0.5)
      >>> fine_nodes, fine_cells = advection.refine(disc, nodes, cells)
      >>> len(fine_cells) / len(cells)
      4.0
    """
    nodes, cells = np.asarray(nodes, float), np.asarray(cells)
    edges, counts, which = edges_of(cells)
    added = nodes[edges].mean(axis=1)
    added[counts == 1] /= shape.relative(added[counts == 1])[:, None]
    middles = len(nodes) + which  # between nodes 0 and 1, 1 and 2, 2 and 0
    corners = [
        np.stack([cells[:, i], middles[:, i], middles[:, i - 1]], axis=1)
        for i in range(3)
    ]
    return np.concatenate([nodes, added]), np.concatenate([*corners, middles])


def velocity(
    nodes: Float[ArrayLike, "N 2"],
    cells: Int[ArrayLike, "t 3"],
    stream: Float[ArrayLike, " N"],
) -> np.ndarray:
    """Returns the velocity at the nodes, averaged over the adjacent triangles.

    Args:
      nodes: nodes of the mesh, shape `(N, 2)`.
      cells: triangles, with three nodes each, shape `(t, 3)`.
      stream: stream function at the nodes, shape `(N,)`.

    Returns:
      The mean velocity of the adjacent triangles, weighted by their areas, `(N, 2)`.

    Examples:
      >>> from opjax.problems import advection
      >>> nodes, cells = advection.mesh(advection.Shape(), spacing=0.5)
      >>> flow = advection.velocity(nodes, cells, nodes[:, 1])  # psi = y: along x
      >>> print(flow[0].round(6))
      [1. 0.]
    """
    nodes, cells = np.asarray(nodes, float), np.asarray(cells)
    flows = _turned(nodes, cells, np.asarray(stream, float))
    areas = signed_areas(nodes, cells)
    weights, sums = np.zeros(len(nodes)), np.zeros((len(nodes), 2))
    for corner in cells.T:
        np.add.at(weights, corner, np.abs(areas))
        np.add.at(sums, corner, np.sign(areas)[:, None] * flows / 2)
    return sums / weights[:, None]


def solve(
    nodes: Float[ArrayLike, "N 2"],
    cells: Int[ArrayLike, "t 3"],
    initial: Float[ArrayLike, " N"],
    stream: Float[ArrayLike, " N"],
    *,
    diffusivity: float,
    interval: float,
    num_frames: int,
    substeps: int = 8,
) -> np.ndarray:
    """Solves for the frames after the first one.

    Args:
      nodes: nodes of the mesh, shape `(N, 2)`.
      cells: triangles, with three nodes each, shape `(t, 3)`.
      initial: initial field at the nodes, shape `(N,)`.
      stream: stream function at the nodes, zero on the boundary, shape `(N,)`.
      diffusivity: positive diffusivity `nu`.
      interval: positive time between frames.
      num_frames: number of frames after the first one.
      substeps: number of time steps between frames.

    Returns:
      The frames, shape `(num_frames, N)`.

    Raises:
      TypeError: if nodes are not floating point or cells not integers.
      ValueError: if a number is not positive, a field does not have one finite value
        per node, the stream function is not zero on the boundary, or as from
        `poisson_mesh.assemble`.

    Examples:
      >>> import numpy as np
      >>> from opjax.problems import advection
      >>> nodes, cells = advection.mesh(advection.Shape(), spacing=0.25)
      >>> stream = 1 - (nodes**2).sum(axis=1)  # turns around the origin
      >>> stream[advection.boundary_nodes(cells)] = 0
      >>> time = {"diffusivity": 0.01, "interval": 0.1, "num_frames": 3}
      >>> frames = advection.solve(nodes, cells, np.ones(len(nodes)), stream, **time)
      >>> bool(np.allclose(frames, 1))  # a constant stays
      True
      >>> frames.shape == (3, len(nodes))
      True
    """
    from scipy.sparse.linalg import splu

    _checks.positive(diffusivity=diffusivity, interval=interval)
    _checks.positive(num_frames=num_frames, substeps=substeps)
    stiffness, mass = assemble(nodes, cells)
    nodes, cells = np.asarray(nodes, float), np.asarray(cells)
    state = _field(initial, len(nodes), "initial")
    stream = _field(stream, len(nodes), "stream")
    most = float(np.abs(stream[boundary_nodes(cells)]).max())
    if most > 1e-12 * np.abs(stream).max(initial=0):
        raise ValueError(
            f"stream has values up to {most:g} on the boundary, expected 0 (no "
            "flow through it)."
        )
    change = diffusivity * stiffness + _convection(nodes, cells, stream)
    half = interval / substeps / 2
    implicit, explicit = splu((mass + half * change).tocsc()), mass - half * change
    frames = np.empty((num_frames, len(nodes)))
    for frame in frames:
        for _ in range(substeps):
            state = implicit.solve(explicit @ state)
        frame[:] = state
    return frames


def _attempt(
    shape: Shape, spacing: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray] | None:
    """A mesh, or None if it does not follow the boundary."""
    from scipy.spatial import Delaunay

    count = round(2 * np.pi / spacing)
    angle = 2 * np.pi * np.arange(count) / count
    direction = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    boundary = shape.radius(angle)[:, None] * direction
    reach = (1 + shape.depth) / spacing
    rows = np.arange(-np.ceil(reach / np.sqrt(0.75)), np.ceil(reach / np.sqrt(0.75)))
    columns = np.arange(-np.ceil(reach) - 1, np.ceil(reach) + 1)
    inside = scattered_nodes(rows, columns, spacing, rng)
    inside = inside[shape.relative(inside) < 1 - _MARGIN * spacing]
    nodes = np.concatenate([boundary, inside])
    cells = Delaunay(nodes).simplices
    corners = np.sort(cells, axis=1)
    kept = (corners[:, 2] >= count) | (shape.relative(nodes[cells].mean(axis=1)) < 1)
    cells = with_area(nodes, cells[kept], spacing)
    edges, counts, _ = edges_of(cells)
    ring = np.sort(np.stack([np.arange(count), (np.arange(count) + 1) % count], 1))
    outer = {tuple(edge) for edge in edges[counts == 1].tolist()}
    if outer != {tuple(edge) for edge in ring.tolist()}:
        return None
    return (nodes, cells) if len(np.unique(cells)) == len(nodes) else None


def _turned(nodes: np.ndarray, cells: np.ndarray, stream: np.ndarray) -> np.ndarray:
    """Velocities of triangles times twice their signed areas, `(t, 2)`."""
    opposite = opposite_edges(nodes, cells)
    return np.einsum("ti,tic->tc", stream[cells], opposite)


def _convection(nodes: np.ndarray, cells: np.ndarray, stream: np.ndarray) -> Any:
    """The sparse matrix of integrals of `hat_i (a . grad hat_j)`, `(N, N)`.

    On a triangle, `a` and the gradients are constant, and a hat has a third of the
    area. Rows sum to zero, and columns to the flow through the boundary, zero.
    """
    opposite = opposite_edges(nodes, cells)
    gradients = np.stack([-opposite[..., 1], opposite[..., 0]], axis=2)
    flows = _turned(nodes, cells, stream)
    areas = signed_areas(nodes, cells)
    along = np.einsum("tc,tjc->tj", flows, gradients) / (4 * areas[:, None])
    values = np.repeat(np.sign(areas)[:, None, None] * along[:, None] / 3, 3, axis=1)
    return assembled(values, cells, len(nodes))


def _field(values: ArrayLike, count: int, name: str) -> np.ndarray:
    field = np.asarray(values, float)
    if field.shape != (count,) or not np.isfinite(field).all():
        raise ValueError(
            f"{name} has shape {field.shape}, expected {count} finite values, one "
            "per node."
        )
    return field
