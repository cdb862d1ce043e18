"""Meshes with fields at their points in `.vtu` and `.vtk` files, as PyVista's."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opjax._files import replacing
from opjax.datasets import _files, _own_arrays, _vtk_legacy, _vtk_mesh, _vtk_xml
from opjax.quadrature import cell_weights

# VTK's numbers of the linear cells, by dimension: corners to number.
_LINEAR = {1: {2: 3}, 2: {3: 5, 4: 9}, 3: {4: 10, 8: 12, 6: 13, 5: 14}}


@contextlib.contextmanager
def open_vtk(
    path: Path, max_bytes: int, *, point_dim: int | None, quadrature: bool
) -> Iterator[_own_arrays.Groups]:
    """Reads a mesh: its arrays by name, with `mesh_points`, `cells` and weights.

    Args:
      path: the file.
      max_bytes: largest size of the coordinates.
      point_dim: number of leading axes that are space; None for all axes on which not
        all coordinates are zero.
      quadrature: whether to make `quadrature_weights` from the cells.

    Raises:
      ImportError: if PyVista is missing.
      ValueError: if the file is damaged or too large, has no points, or the axes left
        out vary.
    """
    mesh = load(path, max_bytes)
    with _own_arrays.reading(path):
        points = np.asarray(mesh.points)
        fields = mesh.point_data
        arrays = {name: np.asarray(fields[name]) for name in fields.keys()}  # noqa: SIM118
        grid: Any = mesh.cast_to_unstructured_grid()
        cells = _cells(grid)
    if not len(points):
        raise ValueError(f"{path} has no points: the mesh is empty.")
    chosen = axes(path, points.min(axis=0), points.max(axis=0), point_dim)
    arrays["mesh_points"] = points[:, chosen]
    if cells is not None:
        arrays["cells"] = cells
    if quadrature and "quadrature_weights" not in arrays:
        arrays["quadrature_weights"] = _weights(path, grid)
    yield {"": arrays}


def write_vtk(
    path: Path,
    source: Path | None,
    arrays: Mapping[str, Any],
    fields: Mapping[str, np.ndarray],
) -> None:
    """Writes the mesh of `source` with all its fields, or one of arrays, and fields."""
    pyvista = _files.optional("pyvista", path, extra="vtk")
    if source is not None:
        mesh = load(source, 2**62)
    else:
        points = np.asarray(arrays["mesh_points"])
        if points.shape[1] > 3:
            raise ValueError(
                f"{path}: points in {points.shape[1]} dimensions do not fit a VTK "
                "file, which has three; write .npz."
            )
        cells, kind = _cells_of(arrays.get("cells"), points)
        space = np.pad(points, [(0, 0), (0, 3 - points.shape[1])])
        mesh = pyvista.UnstructuredGrid({kind: cells}, space)
        names = set(arrays) - {"mesh_points", "cells", "grid_shape"}
        for name in sorted(names):
            mesh.point_data[name] = arrays[name]
    for name, field in fields.items():
        mesh.point_data[name] = field
    with replacing(path) as temporary:
        mesh.save(temporary)


def load(path: Path, max_bytes: int) -> Any:
    """Reads a data set of PyVista, of which VTK itself sees no byte of the file.

    Args:
      path: the file, XML, or of the legacy format if it ends with `.vtk`.
      max_bytes: largest size of an array.

    Raises:
      ImportError: if PyVista is missing.
      OSError: if it cannot be read.
      ValueError: if it is damaged or too large.
    """
    read = _vtk_legacy.read if path.suffix.lower() == ".vtk" else _vtk_xml.read
    return _vtk_mesh.build(path, read(path, max_bytes))


def axes(
    path: Path, low: np.ndarray, high: np.ndarray, point_dim: int | None
) -> list[int]:
    """The axes of space of points between two corners.

    Raises:
      ValueError: if others are left out than constant ones.
    """
    if point_dim is None:
        return [a for a in range(3) if low[a] != 0 or high[a] != 0] or [0]
    if not 1 <= point_dim <= 3 or (low[point_dim:] != high[point_dim:]).any():
        raise ValueError(
            f"{path}: {point_dim=} must be 1, 2 or 3, and axes beyond it constant; the "
            f"mesh reaches from {low} to {high}."
        )
    return list(range(point_dim))


def _cells(grid: Any) -> np.ndarray | None:
    """Cells of the highest dimension, if all are linear and of one kind."""
    kinds = {int(kind): cells for kind, cells in grid.cells_dict.items()}
    linear = {number for numbers in _LINEAR.values() for number in numbers.values()}
    if not kinds.keys() <= linear | {1}:
        return None
    for numbers in reversed(_LINEAR.values()):
        found = [kinds[n] for n in numbers.values() if n in kinds]
        if found:
            return np.asarray(found[0], np.int64) if len(found) == 1 else None
    return None


def _weights(path: Path, grid: Any) -> np.ndarray:
    if curved := _vtk_mesh.CURVED.intersection(np.unique(grid.celltypes).tolist()):
        raise ValueError(
            f"{path} has cells of VTK's kinds {sorted(curved)}, of which quadrature "
            "weights are not made: give quadrature_weights, or save "
            "pyvista.read(old).triangulate()."
        )
    with _own_arrays.reading(path):
        simplices = {int(k): c for k, c in grid.triangulate().cells_dict.items()}
        for kind in (10, 5, 3):  # tetrahedra, else triangles, else lines
            if kind in simplices:
                return cell_weights(np.asarray(grid.points), simplices[kind])
    raise ValueError(f"{path} has no cells to take quadrature weights from.")


def _cells_of(cells: Any, points: np.ndarray) -> tuple[np.ndarray, int]:
    if cells is None:
        return np.arange(len(points))[:, None], 1
    dimensions = [d for d, kinds in _LINEAR.items() if cells.shape[1] in kinds]
    fitting = [d for d in dimensions if d <= points.shape[1]]
    if not fitting:
        raise ValueError(
            f"Cells of {cells.shape[1]} corners in {points.shape[1]} dimensions are no "
            "linear cells that VTK knows."
        )
    return cells, _LINEAR[fitting[-1]][cells.shape[1]]
