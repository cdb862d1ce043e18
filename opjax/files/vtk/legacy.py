"""Meshes of legacy files, `.vtk`, read and written by VTK in a separate process."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from opjax.files import apart, extras, limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import polyhedra
from opjax.files.vtk.mesh import NamedArrays, VtkMesh

_FAR = 2**62  # no limit on sizes


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a mesh, surface, grid or image as an unstructured mesh.

    Args:
      path: the file.
      max_bytes: maximum size of all arrays together.

    Raises:
      ImportError: if VTK is missing.
      ValueError: if the file is damaged, too large or contains anything but one mesh.
    """
    extras.require("vtkmodules", path, extra="vtk")
    values, arrays = apart.ask("read_vtk", path, max_bytes=max_bytes)
    mesh = mesh_of(path, arrays)
    with limits.reading(path):
        if values["scalars"] is not None:
            mesh.point_data.active["Scalars"] = str(values["scalars"])
    return mesh


def mesh_of(
    path: Path, arrays: Mapping[str, np.ndarray], *, misfits: bool = False
) -> VtkMesh:
    """Returns the mesh from the arrays of the separate process.

    Args:
      path: the file.
      arrays: geometry and fields, named as in `_parse_apart`.
      misfits: whether to leave out fields with another number of rows.

    Raises:
      ValueError: if they are inconsistent.
    """
    with limits.reading(path):
        mesh = _mesh(path, arrays)
        mesh.point_data = NamedArrays(with_prefix(arrays, "point "))
        mesh.cell_data = NamedArrays(with_prefix(arrays, "cell "))
        mesh.field_data = NamedArrays(with_prefix(arrays, "field "))
    if misfits:
        mesh.point_data = mesh.point_data.fitting(mesh.num_points)
        mesh.cell_data = mesh.cell_data.fitting(mesh.num_cells)
    meshes.check(path, mesh)
    return mesh


def write(
    path: Path,
    mesh: VtkMesh | None,
    fields: Mapping[str, np.ndarray],
    source: Path | None,
    location: str = "points",
) -> None:
    """Writes the mesh of a file, or a given mesh, with additional fields.

    Args:
      path: file to write.
      mesh: the mesh, if there is no source.
      fields: arrays at the points or cells.
      source: file that provides the mesh.
      location: whether rows of the fields are points or cells.

    Raises:
      ImportError: if VTK is missing.
      ValueError: if the source is damaged or the file cannot be written.
    """
    extras.require("vtkmodules", path, extra="vtk")
    arrays = {} if mesh is None or source is not None else _geometry(mesh)
    place = "cell" if location == "cells" else "point"
    arrays |= {f"{place} {name}": np.asarray(a) for name, a in fields.items()}
    values = {"output": str(path.absolute())}
    apart.ask("write_vtk", source or path, values, arrays, max_bytes=_FAR)


def _geometry(mesh: VtkMesh) -> dict[str, np.ndarray]:
    return {
        "points": mesh.points,
        "offsets": mesh.offsets,
        "corners": mesh.corners,
        "types": mesh.types,
    }


def _mesh(path: Path, arrays: Mapping[str, np.ndarray]) -> VtkMesh:
    every = {
        name: meshes.integers(path, name, array)
        for name, array in arrays.items()
        if name in ("offsets", "corners", "types") or name.startswith(("face", "poly"))
    }
    points = meshes.coordinates(arrays["points"])
    mesh = VtkMesh(points, every["offsets"], every["corners"], every["types"])
    mesh.polyhedra = polyhedra.read(path, every, mesh.types, _FAR)
    return mesh


def with_prefix(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Arrays whose names start with a prefix, with the prefix removed."""
    names = [name for name in arrays if name.startswith(prefix)]
    return {name.removeprefix(prefix): arrays[name] for name in names}
