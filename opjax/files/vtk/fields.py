"""Named arrays of VTK files and surface files, read and written."""

import contextlib
import dataclasses
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax.files import cell_blocks, cgns, limits
from opjax.files.npz import Groups
from opjax.files.vtk import (
    blocks,
    foreign,
    joining,
    layers,
    legacy,
    ply,
    stl,
    vtu_write,
    xml_files,
)
from opjax.files.vtk.mesh import VtkMesh
from opjax.quadrature import cell_weights, kind_of_four

# VTK's numbers of the linear cells, by dimension: number of corners to kind.
_LINEAR = {1: {2: 3}, 2: {3: 5, 4: 9}, 3: {4: 10, 8: 12, 6: 13, 5: 14}}
_VERTEX = 1
# Points are flat on an axis if they vary by less of the width of the mesh.
_FLAT = 1e-6
# Simplices of three, two and one dimension.
_SIMPLICES = (10, 5, 3)


class Plane(NamedTuple):
    """Position of a mesh in three-dimensional space.

    Attributes:
      axes: axes along which the points vary.
      constants: the common coordinate on each other axis.
      width: width of the bounding box of the points.
      layer: the thickness axis, if a mesh one cell thick was read as two-dimensional.
    """

    axes: tuple[int, ...]
    constants: Mapping[int, float]
    width: float
    layer: int | None = None


class MeshArrays(dict[str, np.ndarray]):
    """Arrays of a mesh by name, and the mesh.

    Args:
      mesh: the full content of the file.
      arrays: its point arrays, with `mesh_points` and `cells`.

    Attributes:
      plane: position of the points in space, if the points were read from the file.
      blocks: its cells by type, computed on first use.
    """

    def __init__(self, mesh: VtkMesh, arrays: Mapping[str, np.ndarray]):
        super().__init__(arrays)
        self.mesh = mesh
        self.plane: Plane | None = None
        self.blocks: dict[str, cell_blocks.CellBlock] | None = None


def axes_of(arrays: Mapping[str, np.ndarray]) -> tuple[int, ...]:
    """Returns the axes of space that a mesh varies along; empty if unknown."""
    plane = arrays.plane if isinstance(arrays, MeshArrays) else None
    return () if plane is None else plane.axes


@contextlib.contextmanager
def open_vtk(
    path: Path,
    max_bytes: int,
    *,
    point_dim: int | None,
    quadrature: bool,
    step: int | None = None,
) -> Generator[Groups]:
    """Reads a mesh: its arrays by name, with `mesh_points`, `cells` and weights.

    Args:
      path: the file.
      max_bytes: maximum size of an array.
      point_dim: number of leading axes that are space. None selects all axes on which
        coordinates vary; for a mesh that is one cell thick, the two other axes.
      quadrature: whether to compute `quadrature_weights` from the cells.
      step: index of the frame, if the file has several.

    Raises:
      ImportError: if VTK is needed but missing.
      ValueError: if the file is damaged or too large, has no points, or coordinates
        vary on the omitted axes.
    """
    mesh = load(path, max_bytes, step)
    if not mesh.num_points:
        raise ValueError(f"{path} has no points: the mesh is empty.")
    mesh = layers.flattened(path, mesh, point_dim)
    points, arrays = mesh.points, MeshArrays(mesh, mesh.point_data.arrays)
    low, high = points.min(axis=0), points.max(axis=0)
    chosen = axes(path, low, high, point_dim)
    arrays["mesh_points"] = points[:, chosen]
    others = {a: float(low[a]) for a in range(3) if a not in chosen}
    layer = None if mesh.layer is None else mesh.layer.axis
    others = others if layer is None else {}
    arrays.plane = Plane(tuple(chosen), others, float((high - low).max()), layer)
    cells = _cells(mesh)
    if cells is not None:
        arrays["cells"] = cells
    if quadrature and "quadrature_weights" not in arrays:
        arrays["quadrature_weights"] = _weights(path, mesh)
    yield {"": arrays}


def load(path: Path, max_bytes: int, step: int | None = None) -> VtkMesh:
    """Reads a mesh with all its data, without ghost cells.

    Args:
      path: a legacy file `.vtk`; an XML file, `.vtu` or `.vtp`; a surface, `.stl` or
        `.ply`; blocks, `.vtm`; pieces, `.pvtu` or `.pvd`; `.cgns`; or a file with one
        of the formats of `foreign`.
      max_bytes: maximum size of an array.
      step: index of the frame, if the file has several; by default the last one.

    Raises:
      ImportError: if VTK is needed but missing.
      OSError: if the file cannot be read.
      ValueError: if the file is damaged or too large, or a legacy file has ghost cells.
    """
    mesh = _loaded(path, max_bytes, step)
    own = joining.without_ghosts(mesh)
    if own is not mesh and path.suffix.lower() == ".vtk":  # it is copied as a whole
        raise ValueError(
            f"{path} has {mesh.num_cells - own.num_cells} ghost cells, which are left "
            "out of .vtu files only; save pyvista.read(old) as .vtu."
        )
    return own


def _loaded(path: Path, max_bytes: int, step: int | None) -> VtkMesh:
    suffix = path.suffix.lower()
    if suffix == ".pvd":
        return joining.read_frame(path, max_bytes, step)
    if suffix in foreign.SUFFIXES:
        return foreign.read(path, max_bytes, step)
    readers = {".vtk": legacy.read, ".vtm": blocks.read, ".cgns": cgns.read}
    readers |= {".stl": stl.read, ".ply": ply.read, ".pvtu": joining.read}
    return readers.get(suffix, xml_files.read)(path, max_bytes)


def extend(
    path: Path,
    source: Path,
    mesh: VtkMesh,
    fields: Mapping[str, np.ndarray],
    location: str,
) -> None:
    """Writes a mesh that was read from a file, with additional fields.

    Args:
      path: file to write, with the suffix of the source.
      source: the file that was read.
      mesh: content of the source.
      fields: arrays to add, by name.
      location: whether their rows are points or cells.
    """
    if mesh.layer is not None:
        if location == "points":
            fields = {name: rows[mesh.layer.numbers] for name, rows in fields.items()}
        mesh = mesh.layer.solid
    if path.suffix.lower() == ".vtk":
        legacy.write(path, None, fields, source, location)
    elif location == "cells":
        data = dataclasses.replace(
            mesh.cell_data, arrays=mesh.cell_data.arrays | dict(fields)
        )
        vtu_write.write(path, dataclasses.replace(mesh, cell_data=data), {})
    else:
        vtu_write.write(path, mesh, fields)


def create(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes point arrays: `mesh_points`, `cells` if there are any, and fields.

    Raises:
      ImportError: if VTK is needed but missing.
      ValueError: if VTK does not support the points or cells.
    """
    points = arrays["mesh_points"]
    if points.shape[1] > 3:
        raise ValueError(
            f"{path}: points in {points.shape[1]} dimensions cannot be written to "
            "a VTK file, which needs three; write .npz."
        )
    cells, kind = _cells_of(arrays.get("cells"), points)
    offsets = cells.shape[1] * np.arange(len(cells) + 1)
    mesh = VtkMesh(
        np.pad(points, [(0, 0), (0, 3 - points.shape[1])]),
        offsets,
        cells.reshape(-1).astype(np.int64),
        np.full(len(cells), kind),
    )
    names = set(arrays) - {"mesh_points", "cells", "grid_shape"}
    fields = {name: arrays[name] for name in sorted(names)}
    if path.suffix.lower() == ".vtk":
        legacy.write(path, mesh, fields, None)
    else:
        vtu_write.write(path, mesh, fields)


def axes(
    path: Path, low: np.ndarray, high: np.ndarray, point_dim: int | None
) -> list[int]:
    """Returns the axes of space for points between two corners.

    An axis on which coordinates are constant, up to rounding, is not an axis of space.

    Raises:
      ValueError: if coordinates vary on an omitted axis.
    """
    extent = high.astype(np.float64) - low
    rounding = 4 * np.finfo(low.dtype).eps * np.maximum(np.abs(low), np.abs(high))
    width = extent.max()
    flat = extent <= np.maximum(_FLAT * width, np.minimum(rounding, 1e-3 * width))
    if point_dim is None:
        if flat.all():  # one point: where it is not zero
            return [a for a in range(3) if low[a] != 0 or high[a] != 0] or [0]
        return [a for a in range(3) if not flat[a]]
    if not 1 <= point_dim <= 3 or not flat[point_dim:].all():
        raise ValueError(
            f"{path}: {point_dim=} must be 1, 2 or 3, and coordinates beyond it "
            "must be constant, or the mesh must be one cell thick and read as a "
            f"whole; it extends from {low} to {high}."
        )
    return list(range(point_dim))


def _cells(mesh: VtkMesh) -> np.ndarray | None:
    """Returns the cells of the highest dimension, if all are linear and of one kind."""
    linear = {kind for kinds in _LINEAR.values() for kind in kinds.values()}
    if not set(np.unique(mesh.types).tolist()) <= linear | {_VERTEX}:
        return None
    cells = mesh.cells()
    for kinds in reversed(_LINEAR.values()):
        of_dimension = [cells[kind] for kind in kinds.values() if kind in cells]
        if of_dimension:
            return of_dimension[0] if len(of_dimension) == 1 else None
    return None


def _weights(path: Path, mesh: VtkMesh) -> np.ndarray:
    """Weights of simplices as those of arrays; of all others by their cells."""
    kinds = set(np.unique(mesh.types).tolist())
    if kinds <= {0, _VERTEX, *_SIMPLICES}:
        cells = mesh.cells()
        for kind in _SIMPLICES:
            if kind in cells:
                with limits.reading(path):
                    return cell_weights(mesh.points, cells[kind])
    return cell_blocks.point_weights(str(path), mesh)


def _cells_of(cells: Any, points: np.ndarray) -> tuple[np.ndarray, int]:
    """Returns the cells and VTK's number of their kind; vertices if there are none."""
    if cells is None:
        return np.arange(len(points))[:, None], _VERTEX
    dimensions = [d for d, kinds in _LINEAR.items() if cells.shape[1] in kinds]
    fitting = [d for d in dimensions if d <= points.shape[1]]
    if not fitting:
        raise ValueError(
            f"Cells with {cells.shape[1]} corners in {points.shape[1]} dimensions "
            "are not linear VTK cells."
        )
    dimension = fitting[-1]
    if dimension == 3 and cells.shape[1] == 4 and len(cells):
        with contextlib.suppress(ValueError):  # they may be either; let them be solid
            dimension = 2 if kind_of_four(points, cells) == "quad" else 3
    return cells, _LINEAR[dimension][cells.shape[1]]
