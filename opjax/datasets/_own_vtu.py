"""Meshes with fields at their points in `.vtu` and `.vtk` files, through PyVista."""

import contextlib
import logging
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opjax._files import replacing
from opjax.datasets import _files, _own_arrays, _vtk_declared
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
    """Reads a data set; whatever VTK says meanwhile means that it is damaged.

    Raises:
      ImportError: if PyVista is missing.
      ValueError: if it is damaged or too large.
    """
    pyvista = _files.optional("pyvista", path, extra="vtk")
    _vtk_declared.check(path, max_bytes)
    said: list[str] = []
    try:
        with _vtk_messages(said):
            mesh = pyvista.get_reader(path).read()
    except Exception as error:  # PyVista hands on whatever VTK's readers meet
        said.append(str(error))
    if said:
        raise _own_arrays.damaged(path, " ".join(" ".join(said).split()))
    if not isinstance(mesh, pyvista.DataSet):
        raise ValueError(
            f"{path} holds a {type(mesh).__name__}, expected one mesh; write every "
            "block to a file of its own."
        )
    _check_cells(path, mesh)
    return mesh


def _check_cells(path: Path, mesh: Any) -> None:
    """Raises ValueError for cells that VTK would follow beyond its arrays."""
    with _own_arrays.reading(path):
        found = []
        if hasattr(mesh, "GetPolys"):
            found = [mesh.GetVerts(), mesh.GetLines(), mesh.GetPolys()]
            found.append(mesh.GetStrips())
        elif hasattr(mesh, "celltypes"):
            found = [mesh.GetCells()]
            if len(mesh.celltypes) != mesh.n_cells:
                raise ValueError("as many types as cells are needed")
        for cells in found:
            ends, corners = (
                _plain(cells.GetOffsetsArray()),
                _plain(cells.GetConnectivityArray()),
            )
            if len(ends) and (
                ends[0] != 0 or ends[-1] != len(corners) or (np.diff(ends) < 0).any()
            ):
                raise ValueError("cells do not follow one another")
            if len(corners) and not (
                corners.min() >= 0 and corners.max() < mesh.n_points
            ):
                raise ValueError(
                    f"cells name points from {corners.min()} to {corners.max()}, "
                    f"there are {mesh.n_points}"
                )


def _plain(array: Any) -> np.ndarray:
    """An array of VTK, stored or computed."""
    from vtkmodules.util.numpy_support import vtk_to_numpy  # pyright: ignore

    if array is None:
        return np.zeros(0, np.int64)
    if not array.HasStandardMemoryLayout():
        return np.array([array.GetTuple1(i) for i in range(array.GetNumberOfTuples())])
    return vtk_to_numpy(array)


@contextlib.contextmanager
def _vtk_messages(said: list[str]) -> Iterator[None]:
    """Collects the messages of VTK and PyVista, which print them by default."""
    from vtkmodules.vtkCommonCore import (  # pyright: ignore
        vtkLogger,
        vtkOutputWindow,
        vtkStringOutputWindow,
    )

    window, before = vtkStringOutputWindow(), vtkOutputWindow.GetInstance()
    verbosity = vtkLogger.GetCurrentVerbosityCutoff()
    with _python_messages(said):
        vtkOutputWindow.SetInstance(window)
        vtkLogger.SetStderrVerbosity(vtkLogger.VERBOSITY_OFF)
        try:
            yield
        finally:
            vtkOutputWindow.SetInstance(before)
            vtkLogger.SetStderrVerbosity(verbosity)
            text = window.GetOutput()  # bytes, if it quotes some that are no text
            said.extend(filter(None, [_text(text).strip()]))


def _text(said: str | bytes) -> str:
    return said.decode("utf-8", "replace") if isinstance(said, bytes) else said


@contextlib.contextmanager
def _python_messages(said: list[str]) -> Iterator[None]:
    """Collects warnings; on the main thread alone, all of which shares them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    level = logging.root.manager.disable
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logging.disable(logging.ERROR)
        try:
            yield
        finally:
            logging.disable(level)
            said.extend(str(w.message) for w in caught if w.category is UserWarning)


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
