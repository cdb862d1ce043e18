"""Surfaces of `.stl` files: triangles, whose equal corners are merged."""

from pathlib import Path

import numpy as np

from opjax.files import limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import polyhedra
from opjax.files.vtk.mesh import VtkMesh

_TRIANGLE = np.dtype(
    [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")]
)
_HEAD = 84  # bytes before the triangles, of which the last four are their number
_TRIANGLES = 5  # VTK's number of the kind


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads a surface, in binary or text form.

    Args:
      path: the file.
      max_bytes: maximum size of the file.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, incomplete or too large.
    """
    limits.check_size(path, "its triangles", path.stat().st_size, max_bytes)
    data = path.read_bytes()
    with limits.reading(path):
        corners = _binary(data)
        corners = _text(data) if corners is None else corners
        if not np.isfinite(corners).all():
            raise ValueError("non-finite coordinates")
        points = corners.reshape(-1, 3)
        first, indices = polyhedra.first_rows(points)
        count = len(corners)
        mesh = VtkMesh(
            points[first],
            3 * np.arange(count + 1),
            indices,
            np.full(count, _TRIANGLES, np.int64),
        )
    meshes.check(path, mesh)
    return mesh


def _binary(data: bytes) -> np.ndarray | None:
    """Corners `(m, 3, 3)` of a binary file; None if its length is not that of one."""
    if len(data) < _HEAD:
        return None
    count = int(np.frombuffer(data, "<u4", 1, _HEAD - 4)[0])
    if len(data) != _HEAD + count * _TRIANGLE.itemsize:
        return None
    return np.frombuffer(data, _TRIANGLE, count, _HEAD)["corners"].astype(np.float32)


def _text(data: bytes) -> np.ndarray:
    words = data.lower()
    first, *parts = words.split(b"vertex")
    if not first.lstrip().startswith(b"solid") or b"endsolid" not in words[-500:]:
        raise ValueError("neither text nor binary triangles of the stated length")
    if len(parts) != 3 * words.count(b"endfacet"):
        raise ValueError(f"{len(parts)} corners of {words.count(b'endfacet')} facets")
    values = [part.split(None, 3)[:3] for part in parts]
    corners = np.array(
        [[float(word) for word in three] for three in values], np.float32
    )
    return corners.reshape(-1, 3, 3)
