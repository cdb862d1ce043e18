"""Joining pieces of a mesh from parallel solvers."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opjax.files import limits
from opjax.files.vtk import lists, polyhedra, xml_files
from opjax.files.vtk.mesh import GHOSTS, NamedArrays, VtkMesh

_KIND = "PUnstructuredGrid"
_MAX_PIECES = 2**16


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a `.pvtu` file and the `.vtu` files in its folder that it names.

    Raises:
      OSError: if a file cannot be read.
      ValueError: if a file is damaged, too large or outside the folder, or the pieces
        have different arrays.
    """
    meshes = [xml_files.read(file, max_bytes) for file in pieces(path)]
    return joined(path, meshes)


def pieces(path: Path) -> list[Path]:
    """Lists the files that a `.pvtu` file names.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, names no file, or names a file that is missing or
        outside its folder.
    """
    elements = lists.read(path, _KIND).findall(f"{_KIND}/Piece")
    if not 0 < len(elements) <= _MAX_PIECES:
        raise limits.damaged(path, f"it names {len(elements)} pieces")
    files: list[Path] = []
    for element in elements:
        name = element.get("Source", "").replace("\\", "/")
        files.append(lists.beside(path, name, (".vtu",), "pieces"))
        if not lists.is_inside(path, files[-1]):
            raise ValueError(f"{path}: the piece {name[:80]!r} is missing; restore it.")
    return files


def read_frame(path: Path, max_bytes: int, step: int | None = None) -> VtkMesh:
    """Reads the pieces of a frame that a `.pvd` file lists.

    Args:
      path: the file.
      max_bytes: maximum size of all arrays of a piece.
      step: index of the frame; by default the last one.

    Raises:
      OSError: if a file cannot be read.
      ValueError: if a file is damaged, too large or outside the folder, or the pieces
        have different arrays.
    """
    frames = lists.frames(path)
    time, names = frames[-1 if step is None else step]
    meshes: list[VtkMesh] = []
    for name in names:
        file = lists.beside(path, name, (".vtu", ".vtp"), "pieces")
        if not lists.is_inside(path, file):
            raise ValueError(
                f"{path}: {name[:80]!r}, a piece at time {time:g}, is missing; restore "
                "it."
            )
        meshes.append(xml_files.read(file, max_bytes))
    return joined(path, meshes)


def joined(path: Path, several: Sequence[VtkMesh]) -> VtkMesh:
    """Joins pieces; shared points are merged.

    Args:
      path: the file, for messages.
      several: the pieces, at least one.

    Raises:
      ValueError: if pieces have different arrays.
    """
    if len(several) == 1:
        return several[0]
    several = [_own(piece) for piece in several if piece.num_points]
    if not several:
        raise limits.damaged(path, "its pieces have no points")
    # A point that a piece has twice, as at a crack, stays two points.
    repeated = np.concatenate([_repetitions(piece.points) for piece in several])
    mesh = xml_files.one(path, several, several[0].field_data)
    keys = np.column_stack([mesh.points, repeated])
    kept, places = polyhedra.first_rows(keys)
    data = {name: array[kept] for name, array in mesh.point_data.arrays.items()}
    return _renumbered(
        dataclasses.replace(
            mesh,
            points=mesh.points[kept],
            point_data=NamedArrays(data, mesh.point_data.active),
        ),
        places,
    )


def _renumbered(mesh: VtkMesh, numbers: np.ndarray) -> VtkMesh:
    """The cells of a mesh with other numbers of their points."""
    solids = mesh.polyhedra
    if solids is not None:
        solids = solids._replace(corners=numbers[solids.corners])
    return dataclasses.replace(mesh, corners=numbers[mesh.corners], polyhedra=solids)


def _repetitions(points: np.ndarray) -> np.ndarray:
    """How many points before each are in its place."""
    _, groups = np.unique(points, axis=0, return_inverse=True)
    groups = groups.reshape(-1)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(points)))
    counts = np.arange(len(points)) - np.repeat(starts, sizes)
    repeated = np.empty(len(points), np.int64)
    repeated[order] = counts
    return repeated


def without_ghosts(mesh: VtkMesh) -> VtkMesh:
    """A mesh without duplicate and hidden cells, and the points of these alone."""
    own = own_cells(mesh.cell_data.arrays)
    return mesh if own is None or own.all() else _own(mesh)


def own_cells(arrays: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Which cells are neither duplicate nor hidden; None if cell data do not say it."""
    name = next((name for name in GHOSTS if name in arrays), None)
    return (
        None if name is None else arrays[name].reshape(len(arrays[name]), -1)[:, 0] == 0
    )


def _own(mesh: VtkMesh) -> VtkMesh:
    """A mesh without ghosts, and without the arrays that say which they are."""
    arrays = mesh.cell_data.arrays
    own = own_cells(arrays)
    if own is None:
        return mesh
    data = {key: array[own] for key, array in arrays.items() if key not in GHOSTS}
    sizes = np.diff(mesh.offsets)
    corners = mesh.corners[np.repeat(own, sizes)]
    solids = None if mesh.polyhedra is None else mesh.polyhedra.of(np.flatnonzero(own))
    used = np.zeros(mesh.num_points, bool)
    used[corners] = True
    if solids is not None:
        used[solids.corners] = True
    points = {
        key: array[used]
        for key, array in mesh.point_data.arrays.items()
        if key not in GHOSTS
    }
    kept = VtkMesh(
        mesh.points[used],
        polyhedra.offsets_of(sizes[own]),
        corners,
        mesh.types[own],
        dataclasses.replace(mesh.point_data, arrays=points),
        dataclasses.replace(mesh.cell_data, arrays=data),
        mesh.field_data,
        solids,
    )
    return _renumbered(kept, np.cumsum(used) - 1)
