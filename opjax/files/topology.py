"""The cells of a file's mesh by type, and fields at their centroids."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from opjax import geometry, quadrature
from opjax.files import cell_blocks, matlab
from opjax.files.cell_blocks import CellBlock
from opjax.files.npz import Arrays
from opjax.files.vtk.fields import MeshArrays

# Kinds of cells by dimension and number of corners.
_OF_CORNERS = {
    **{(2, 2): "line", (2, 3): "triangle", (2, 4): "quad"},
    **{(3, 2): "line", (3, 3): "triangle"},  # of four corners, see below
    **{(3, 5): "pyramid", (3, 6): "wedge", (3, 8): "hexahedron"},
}
_MUCH_SHORTER = 0.5  # of a sum of squared lengths


class Topology(NamedTuple):
    """Points and cells of a file.

    Attributes:
      name: name of the sample, for messages.
      points: coordinates in double precision, `(n, p)`.
      blocks: cells of the highest dimension by type.
      others: cells of lower dimensions, which may mark a boundary.
      num_cells: number of all cells.
    """

    name: str
    points: np.ndarray
    blocks: dict[str, CellBlock]
    others: list[CellBlock]
    num_cells: int

    @property
    def rows(self) -> np.ndarray:
        """Indices in the file of the cells of the highest dimension, in its order."""
        return np.sort(np.concatenate([b.rows for b in self.blocks.values()]))

    @property
    def dimension(self) -> int:
        """Dimension of the cells."""
        return geometry.KINDS[next(iter(self.blocks))].dimension

    @property
    def is_solid(self) -> bool:
        """Whether cells fill the space of their points, so that facets bound them."""
        return self.dimension == self.points.shape[1]

    def boundary(self, *, joined: bool = True) -> geometry.Facets:
        """Boundary facets of the mesh, with the index of their cell in the file.

        Args:
          joined: as for `geometry.boundary_facets`.

        Raises:
          ValueError: if the cells have no facets.
        """
        cells = {kind: block.shape for kind, block in self.blocks.items()}
        facets = geometry.boundary_facets(self.points, cells, joined=joined)
        rows = np.concatenate([block.rows for block in self.blocks.values()])
        return geometry.Facets(facets.corners, rows[facets.cells])

    def gathered(self, per_block: Mapping[str, np.ndarray]) -> np.ndarray:
        """Restores the order of the file for values of the cells of each type."""
        rows = np.concatenate([block.rows for block in self.blocks.values()])
        values = np.concatenate([per_block[kind] for kind in self.blocks])
        return values[np.argsort(rows)]


def topology(name: str, arrays: Arrays) -> Topology:
    """Finds the cells of a file; higher-order cells are reduced to their corners.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of the file.

    Raises:
      ValueError: if it has no cells, or cells with unknown corners.
    """
    if "mesh_points" not in arrays:
        raise ValueError(f"{name} has no mesh_points, which cell data require.")
    points = np.asarray(arrays["mesh_points"])
    if points.ndim != 2 or points.dtype.kind != "f" or not 2 <= points.shape[1] <= 3:
        raise ValueError(
            f"{name}: mesh_points have shape {points.shape} and type {points.dtype}; "
            "cells need points (n, 2) or (n, 3) of floating-point numbers."
        )
    points = points.astype(np.float64)
    if not (np.abs(points) < np.finfo(np.float32).max).all():
        raise ValueError(
            f"{name}: mesh_points have non-finite values in single precision."
        )
    if isinstance(arrays, MeshArrays):
        if arrays.blocks is None:
            arrays.blocks = cell_blocks.of_mesh(name, arrays.mesh, points)
        of_kinds, num_cells = arrays.blocks, arrays.mesh.num_cells
    else:
        of_kinds, num_cells = _of_array(name, arrays, points)
    if not of_kinds:
        raise ValueError(f"{name} has no cells: its mesh contains only points.")
    dimensions = {kind: geometry.KINDS[kind].dimension for kind in of_kinds}
    highest = max(dimensions.values())
    if highest > points.shape[1]:
        raise ValueError(
            f"{name} has {highest}-dimensional cells, but its points vary along "
            f"only {points.shape[1]} axes; see point_dim."
        )
    blocks = {kind: b for kind, b in of_kinds.items() if dimensions[kind] == highest}
    others = [b for kind, b in of_kinds.items() if dimensions[kind] < highest]
    return Topology(name, points, blocks, others, num_cells)


def at_cells(name: str, arrays: Arrays, fields: Iterable[str]) -> dict[str, np.ndarray]:
    """Returns the arrays of a sample whose points are the cell centroids.

    Higher-order cells have the centroids and volumes of their corners.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of the file.
      fields: names of the requested arrays, if they exist.

    Returns:
      `mesh_points`, the centroids; `quadrature_weights`, the volumes (areas, lengths);
      and fields with one row for each cell of the highest dimension.

    Raises:
      ValueError: if cells are missing, inverted, flat, self-intersecting or not closed.
    """
    cells = topology(name, arrays)
    check_cells(cells)
    measured = {
        kind: (
            np.abs(geometry.cell_volumes(cells.points, block.shape, kind)),
            geometry.cell_centers(cells.points, block.shape, kind),
        )
        for kind, block in cells.blocks.items()
    }
    volumes = cells.gathered({kind: pair[0] for kind, pair in measured.items()})
    centers = cells.gathered({kind: pair[1] for kind, pair in measured.items()})
    located = {"mesh_points": centers, "quadrature_weights": volumes}
    data = arrays.mesh.cell_data.arrays if isinstance(arrays, MeshArrays) else arrays
    for key in fields:
        if key in data and key not in located:
            array = np.asarray(data[key])
            if array.ndim == 0 or len(array) != cells.num_cells:
                raise ValueError(
                    f"{name}: {key} has shape {array.shape}, but there are "
                    f"{cells.num_cells} cells: expected one row per cell. Omit "
                    "--location=cells if it contains point data."
                )
            located[key] = array[cells.rows]
    return located


def check_cells(cells: Topology) -> None:
    """Checks that cells have a positive volume and a consistent orientation.

    Raises:
      ValueError: if a cell is flat, inverted or self-intersecting. If all solids of a
        type are inverted, their corners have another order, which is no error.
    """
    for kind, block in cells.blocks.items():
        volumes = geometry.cell_volumes(cells.points, block.shape, kind)
        mirrored = (volumes < 0).all()
        points = cells.points * np.array([-1, 1, 1]) if mirrored else cells.points
        bad = geometry.invalid_cells(points, block.shape, kind)
        if bad.any():
            first = int(block.rows[np.argmax(bad)])
            raise ValueError(
                f"{cells.name}: {bad.sum()} of {len(bad)} cells of the type {kind} are "
                "degenerate, inverted or self-intersecting, the first one is cell "
                f"{first}; repair the mesh or remove them."
            )


def spread(arrays: Arrays, values: np.ndarray, name: str) -> np.ndarray:
    """Expands values of the cells of the highest dimension to rows of all cells.

    Cells of lower dimensions, for which there is no prediction, get NaN.
    """
    cells = topology(name, arrays)
    rows = cells.rows
    if len(rows) == cells.num_cells:
        return values
    whole = np.full((cells.num_cells, *values.shape[1:]), np.nan, values.dtype)
    whole[rows] = values
    return whole


def _of_array(
    name: str, arrays: Arrays, points: np.ndarray
) -> tuple[dict[str, CellBlock], int]:
    """Cells of an array of point indices."""
    if "cells" not in arrays:
        raise ValueError(
            f"{name} has no array 'cells', only {sorted(arrays)}; add the point "
            "indices of the cells, (m, corners)."
        )
    cells = matlab.whole(np.asarray(arrays["cells"]))
    shape, p = cells.shape, points.shape[1]
    kind = _OF_CORNERS.get((p, shape[1])) if cells.ndim == 2 else None
    four = cells.ndim == 2 and (p, shape[1]) == (3, 4)
    if not (kind or four) or cells.dtype.kind not in "iu" or not cells.size:
        raise ValueError(
            f"{name}: cells have shape {shape} and type {cells.dtype}, expected point "
            f"indices (m, corners) of linear cells in {p} dimensions."
        )
    check_indices(name, cells, points)
    if four:
        try:
            kind = quadrature.kind_of_four(points, cells)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
    assert kind is not None
    block = CellBlock(np.arange(len(cells)), cells.astype(np.int64))
    return {kind: block}, len(cells)


def check_indices(name: str, cells: np.ndarray, points: np.ndarray) -> None:
    """Checks the point indices of an array of cells.

    Indices that start at one do not fit the points. If the last point is in no cell,
    they do; then cells connect distant points.

    Raises:
      ValueError: if a point does not exist or indices start at one.
    """
    if not cells.size:
        return
    low, high, last = int(cells.min()), int(cells.max()), len(points) - 1
    outside = low < 0 or high > last
    from_one = low == 1 and high <= last + 1
    if not outside and not (from_one and _shorter_from_one(cells, points)):
        return
    note = ""
    if from_one:
        note = " The indices start at one, as in MATLAB: save cells - 1."
    elif low == -1 and cells.shape[1] == 4 and (cells[:, :3] >= 0).all():
        note = " Repeat the last corner of triangles: save "
        note += "numpy.where(cells < 0, cells[:, 2:3], cells)."
    elif low == -1:
        note = " Save cells of several types as .vtu."
    found = f"but there are points 0 to {last} only."
    if not outside:
        found = "and their sides are far longer than those of cells - 1."
    raise ValueError(
        f"{name}: cells contain point indices from {low} to {high}, {found}{note}"
    )


def _shorter_from_one(cells: np.ndarray, points: np.ndarray) -> bool:
    """Whether sides of cells are far shorter if their indices start at one."""
    return bool(_sides(cells - 1, points) < _MUCH_SHORTER * _sides(cells, points))


def _sides(cells: np.ndarray, points: np.ndarray) -> float:
    """Sum of the squared distances of successive corners."""
    corners = points[cells].astype(np.float64)
    return ((corners - np.roll(corners, 1, axis=1)) ** 2).sum()


def other_location(name: str, key: str, arrays: Arrays, location: str) -> str:
    """Explains how to read a field that a VTK file has in another form.

    It may have it at the other location, or with a wrong number of rows.
    """
    if not isinstance(arrays, MeshArrays):
        return ""
    mesh = arrays.mesh
    data = mesh.cell_data if location == "cells" else mesh.point_data
    for field, rows in data.misfits.items():
        if key == field or key.startswith((f"{field}_", f"{field}:")):
            count = mesh.num_cells if location == "cells" else mesh.num_points
            return (
                f"{name}: {field!r} has {rows} rows, but there are {count} {location}. "
                "The AttributeType of a vector in XDMF must be Vector, of a tensor "
                "Tensor or Tensor6; otherwise write the file again."
            )
    if location == "points" and key in mesh.cell_data.arrays:
        return (
            f"{name} has {key!r} as cell data, but point data were requested: give "
            "--location=cells (location='cells' in Python)."
        )
    if location == "cells" and key in mesh.point_data.arrays:
        return (
            f"{name} has {key!r} as point data, but cell data were requested: leave "
            "out --location=cells (location='points' in Python)."
        )
    return ""
