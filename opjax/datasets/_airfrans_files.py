"""The published files of AirfRANS: a slice of the mesh, and the airfoil's contour.

`open_mesh` also reads the files of cars.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opjax.files import extras, limits
from opjax.files.vtk import fields as vtk_fields
from opjax.files.vtk.mesh import VtkMesh

# VTK's numbers of cells.
_LINE, _POLYLINE = 3, 4


def read(internal: Path, aerofoil: Path, *, source: str) -> dict[str, np.ndarray]:
    """Reads the two files of a case.

    Args:
      internal: `..._internal.vtu`, with `U`, `p`, `nut` and `implicit_distance`.
      aerofoil: `..._aerofoil.vtp`, with `Normals`, which point into the airfoil, and
        lines.
      source: where to download them, for messages.

    Returns:
      `points` `(n, 2)`, `cells` `(k, 4)`, `surface` `(m,)`, `fields` `(n, 4)`,
      `distance` `(n,)` and `normals` `(m, 2)`, which point into the fluid, as in
      `airfrans`.

    Raises:
      ValueError: if a file is damaged or the two are inconsistent.
    """
    mesh, contour = open_mesh(internal, source), open_mesh(aerofoil, source)
    flow = {k: _point_data(mesh, k, internal) for k in ("U", "p", "nut")}
    signed = _point_data(mesh, "implicit_distance", internal)
    normals = _point_data(contour, "Normals", aerofoil)
    points = mesh.points.astype(np.float64)[:, :2]
    wall = np.flatnonzero(flow["U"][:, 0] == 0)
    order = _around(contour, aerofoil)
    return {
        "points": points,
        "cells": _quadrilaterals(mesh, internal),
        "surface": _match(points, wall, contour.points[order, :2], internal),
        "fields": np.concatenate(
            [flow["U"][:, :2], flow["p"][:, None], flow["nut"][:, None]], axis=1
        ).astype(np.float32),
        "distance": -signed.astype(np.float32),
        "normals": -normals[order, :2].astype(np.float32),
    }


def write(stem: Path, arrays: Mapping[str, Any]) -> None:
    """Writes a result of `read` to `<stem>_internal.vtu`, `<stem>_aerofoil.vtp`."""
    pyvista = extras.optional("pyvista", stem, extra="vtk")
    cells, surface, fields = (arrays[key] for key in ("cells", "surface", "fields"))
    space = np.pad(arrays["points"], ((0, 0), (0, 1)))
    counted = np.pad(cells, ((0, 0), (1, 0)), constant_values=cells.shape[1])
    kind = {3: pyvista.CellType.TRIANGLE, 4: pyvista.CellType.QUAD}[cells.shape[1]]
    mesh = pyvista.UnstructuredGrid(counted, np.full(len(cells), kind), space)
    mesh.point_data["U"] = np.pad(fields[:, :2], ((0, 0), (0, 1)))
    mesh.point_data["p"], mesh.point_data["nut"] = fields[:, 2], fields[:, 3]
    mesh.point_data["implicit_distance"] = -arrays["distance"]
    mesh.save(f"{stem}_internal.vtu")
    rows = np.arange(len(surface))
    lines = np.stack([np.full_like(rows, 2), rows, np.roll(rows, -1)], axis=1)
    contour = pyvista.PolyData(space[surface], lines=lines)
    contour.point_data["Normals"] = -np.pad(arrays["normals"], ((0, 0), (0, 1)))
    contour.save(f"{stem}_aerofoil.vtp")


def open_mesh(path: Path, source: str) -> VtkMesh:
    """Reads a published mesh.

    Args:
      path: the file.
      source: where to download it, for messages.

    Raises:
      ImportError: if VTK is needed but missing.
      ValueError: if the file is damaged or has no points.
    """
    try:
        mesh = vtk_fields.load(path, limits.limit(path))
    except ValueError as error:
        raise ValueError(f"{error} Get it from {source}.") from error
    if not mesh.num_points:
        raise ValueError(f"{path} is empty or damaged; get it again from {source}.")
    return mesh


def _point_data(mesh: VtkMesh, key: str, path: Path) -> np.ndarray:
    arrays = mesh.point_data.arrays
    if key not in arrays:
        raise ValueError(
            f"The point data of {path} are {sorted(arrays)}, without {key!r}."
        )
    values = arrays[key]
    if not np.isfinite(values).all():
        raise ValueError(f"{key} in {path} has non-finite values.")
    return values


def _quadrilaterals(mesh: VtkMesh, path: Path) -> np.ndarray:
    if np.any(np.diff(mesh.offsets) != 4):
        raise ValueError(f"{path} has cells that are not quadrilaterals.")
    return mesh.corners.reshape(-1, 4).astype(np.int32)


def _around(contour: VtkMesh, path: Path) -> np.ndarray:
    """Returns point indices in the order of the lines of a closed contour."""
    wrong = ValueError(f"The lines of {path} do not form a closed contour of segments.")
    polylines = np.any(contour.types == _POLYLINE)
    lines = contour.cells().get(_LINE)
    if lines is None or polylines:
        raise wrong
    neighbours: dict[int, list[int]] = {}
    for one, other in lines.tolist():
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    if any(len(pair) != 2 for pair in neighbours.values()):
        raise wrong
    first = next(iter(neighbours))
    order = [first, neighbours[first][0]]
    while order[-1] != first:
        one, other = neighbours[order[-1]]
        order.append(other if one == order[-2] else one)
    if len(order) - 1 != len(neighbours):
        raise wrong
    return np.array(order[:-1])


def _match(
    points: np.ndarray, wall: np.ndarray, contour: np.ndarray, path: Path
) -> np.ndarray:
    """Mesh points at the points of the contour, which may be rounded differently."""
    size = float(np.ptp(contour, axis=0).max())
    places = np.empty(len(contour), np.int32)
    for row, point in enumerate(contour):
        offsets = np.abs(points[wall] - point).max(axis=1) if len(wall) else [np.inf]
        nearest = int(np.argmin(offsets))
        if not offsets[nearest] < 1e-6 * size:
            raise ValueError(
                f"{path} has {len(wall)} points with U = 0, but U is not zero at "
                f"the point {point.tolist()} of the airfoil."
            )
        places[row] = wall[nearest]
    return places
