"""The cells of a VTK mesh by type, and weights of its points."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax import geometry
from opjax.files.vtk import kinds
from opjax.files.vtk.mesh import VtkMesh

_PADDING = 64  # cells of one kind take so many times their corners, at most


class CellBlock(NamedTuple):
    """Cells of one type.

    Attributes:
      rows: indices of the cells in the file, `(t,)`.
      cells: indices of their corners, `(t, corners)`; shorter cells repeat the last.
      between: indices of the additional points of higher-order cells, on edges, faces
        and in the interior, `(t, m)`; cells with fewer repeat a corner.
      faces: faces of polyhedra, oriented outwards.
    """

    rows: np.ndarray
    cells: np.ndarray
    between: np.ndarray | None = None
    faces: geometry.Facets | None = None

    @property
    def points(self) -> np.ndarray:
        """Indices of all points of the cells."""
        parts = [self.cells] if self.between is None else [self.cells, self.between]
        return np.concatenate(parts, axis=1)

    @property
    def shape(self) -> np.ndarray | geometry.Facets:
        """The cells in the form that `opjax.geometry` accepts."""
        return self.cells if self.faces is None else self.faces


def of_mesh(name: str, mesh: VtkMesh, points: np.ndarray) -> dict[str, CellBlock]:
    """Returns the cells by type, without vertex cells.

    Args:
      name: name of the sample, for messages.
      mesh: the mesh.
      points: coordinates in double precision, only the axes of space.

    Raises:
      ValueError: if the corners of a type are unknown, or one cell has many more points
        than others.
    """
    present = set(np.unique(mesh.types).tolist()) - kinds.WITHOUT_EXTENT
    if others := present - set(kinds.SHAPES):
        raise ValueError(
            f"{name} has cells of the VTK types {kinds.named(others)}, whose corners "
            f"are unknown. {_simpler(name, others)}."
        )
    by_shape: dict[str, list[int]] = {}
    for kind in sorted(present):
        by_shape.setdefault(kinds.SHAPES[kind], []).append(kind)
    return {shape: _block(name, mesh, points, k) for shape, k in by_shape.items()}


def _block(
    name: str, mesh: VtkMesh, points: np.ndarray, numbers: list[int]
) -> CellBlock:
    """Cells of VTK's kinds that have one shape."""
    rows = np.flatnonzero(np.isin(mesh.types, numbers))
    sizes = np.diff(mesh.offsets)[rows]
    if sizes.max() * len(rows) > _PADDING * mesh.corners.size:
        raise ValueError(
            f"{name} has cells of the VTK types {kinds.named(numbers)} with up to "
            f"{sizes.max()} corners among many small cells. "
            f"{_simpler(name, numbers)}."
        )
    columns = np.minimum(np.arange(sizes.max())[None, :], sizes[:, None] - 1)
    cells = mesh.corners[mesh.offsets[rows, None] + columns]
    if kinds.POLYHEDRON in numbers and mesh.polyhedra is not None:
        faces = mesh.polyhedra.facets(name, rows)
        if points.shape[1] == 3:
            faces = geometry.outward_polyhedra(points, faces)
        return CellBlock(rows, cells, faces=faces)
    if set(numbers) & set(kinds.HIGHER):
        corners = geometry.KINDS[kinds.SHAPES[numbers[0]]].corners
        return CellBlock(rows, cells[:, :corners], cells[:, corners:])
    return CellBlock(rows, cells)


def _simpler(name: str, kinds_of_cells: Iterable[int]) -> str:
    """The command that makes linear cells of all others."""
    path = Path(name)
    # Which divides cells of higher order so that neighbours share whole faces.
    higher = set(kinds_of_cells) <= set(kinds.HIGHER)
    how = "tessellate(max_n_subdivide=0)" if higher else "triangulate()"
    return (
        'To divide them into linear cells: python -c "import pyvista; '
        f"pyvista.read({path.name!r}).{how}.save('{path.stem}_linear.vtu')\""
    )


def point_weights(name: str, mesh: VtkMesh) -> np.ndarray:
    r"""Lumped masses of the points of a mesh: positive, summing to its volume (area).

    Corners receive the sums of `geometry.point_shares`. In a second-order cell, each
    corner keeps `2^-d` of its weight, as if the cell were subdivided at the midpoints,
    and distributes the rest equally to the points on adjacent edges, faces and the
    interior.

    Args:
      name: name of the sample, for messages.
      mesh: the mesh.

    Returns:
      Shape `(n,)`; zero at points without a cell of the highest dimension.

    Raises:
      ValueError: if there are no cells, or cells of unsupported types.
    """
    present = set(np.unique(mesh.types).tolist()) - kinds.WITHOUT_EXTENT
    known = {*kinds.LINEAR, *kinds.BETWEEN}
    if others := present - known:
        raise ValueError(
            f"{name} has cells of the VTK types {kinds.named(others)}, for which "
            "quadrature weights are not available: add quadrature_weights. "
            f"{_simpler(name, others)}."
        )
    if not present:
        raise ValueError(f"{name} has no cells to compute quadrature weights from.")
    points = mesh.points.astype(np.float64)
    dimensions = {k: geometry.KINDS[kinds.SHAPES[k]].dimension for k in present}
    weights = np.zeros(len(points))
    for kind, dimension in dimensions.items():
        if dimension == max(dimensions.values()):
            block, shape = _block(name, mesh, points, [kind]), kinds.SHAPES[kind]
            shares = geometry.point_shares(points, block.shape, shape)
            if block.between is None:
                weights += shares.sum(axis=0)
            else:
                own = _of_higher_order(shares, block, kinds.BETWEEN[kind], dimension)
                np.add.at(weights, block.points, own)
    return weights


def _of_higher_order(
    shares: Any,
    block: CellBlock,
    between: Sequence[Sequence[int]],
    dimension: int,
) -> np.ndarray:
    """Weights of all points of cells of second order, `(t, points)`."""
    shares.sort_indices()
    rows, n = np.arange(len(block.rows)), shares.shape[1]
    keys = np.repeat(rows, np.diff(shares.indptr)) * n + shares.indices
    wanted = rows[:, None] * n + block.cells
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    of_corners = np.where(keys[places] == wanted, shares.data[places], 0)
    bounded = np.zeros((block.cells.shape[1], len(between)))
    for place, corners in enumerate(between):
        bounded[list(corners), place] = 1
    keep = np.where(bounded.any(axis=1), 0.5**dimension, 1)
    given = (1 - keep)[:, None] * bounded / np.maximum(bounded.sum(axis=1), 1)[:, None]
    weights = of_corners @ np.concatenate([np.diag(keep), given], axis=1)
    volumes = np.asarray(shares.sum(axis=1)).reshape(-1, 1)
    return weights * (volumes / weights.sum(axis=1, keepdims=True))
