"""Meshes that are one cell thick, such as OpenFOAM's meshes of two-dimensional flows.

They are read as one mesh of polygons: a point and the opposite point are merged, and a
cell becomes a polygon. The two sides are not a boundary, volumes become areas, and
predictions at a point are written to both sides.
"""

import dataclasses
from pathlib import Path

import numpy as np

from opjax import geometry
from opjax.files import cell_blocks
from opjax.files.vtk import kinds, polyhedra
from opjax.files.vtk.mesh import Layer, VtkMesh

_PRISMS = {11, 12, 13, kinds.POLYHEDRON}  # VTK's kinds of cells that can be layers
_POLYGONS = {3: 5, 4: 9}  # and of polygons by their corners
_NEAR = 1e-6  # of the width, is the distance of points in one place
_ALIKE = 1e-4  # of the largest value, is what opposite values differ by
_THIN = 0.25  # of the other widths, is the thickness at most unless asked for


def flattened(path: Path, mesh: VtkMesh, point_dim: int | None) -> VtkMesh:
    """Returns the polygons of a mesh that is one cell thick; other meshes unchanged.

    Every cell must have one face on each side. All points lie on the two sides, each
    opposite a point with the same values. Unless two dimensions are requested, the mesh
    must also be thin.

    Args:
      path: the file, for messages.
      mesh: the mesh.
      point_dim: 2 if the mesh must be flat along the last axis, None for any axis. With
        other values, meshes are returned unchanged.

    Returns:
      A mesh with `layer` and the points of one side; or the given mesh.

    Raises:
      ValueError: if two dimensions are requested, but opposite values differ.
    """
    present = set(np.unique(mesh.types).tolist())
    if point_dim not in (None, 2) or not present or not present <= _PRISMS:
        return mesh
    extents = np.ptp(mesh.points.astype(np.float64), axis=0)
    for axis in (2,) if point_dim else range(3):
        others = np.delete(extents, axis)
        if point_dim or 0 < extents[axis] <= _THIN * others.min():
            sides = _sides(mesh.points, axis)
            if (
                sides is not None
                and (faces := _polygons(path, mesh, sides)) is not None
            ):
                differing = _differing(mesh, sides)
                if point_dim and differing:
                    raise ValueError(
                        f"{path}: {point_dim=} was requested and the mesh is one "
                        f"cell thick, but {differing} differ on its two sides; "
                        "omit it."
                    )
                return mesh if differing else _flat(mesh, axis, sides, faces)
    return mesh


def _sides(points: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Points of one side and those opposite, `(n / 2,)` each; None of other meshes."""
    from scipy.spatial import KDTree

    if not np.isfinite(points).all():
        return None
    along = points[:, axis].astype(np.float64)
    across = np.delete(points, axis, axis=1).astype(np.float64)
    rounding = 4 * np.finfo(points.dtype).eps * np.abs(points).max()
    near = _NEAR * np.ptp(across, axis=0).max() + rounding
    first, last = (
        np.flatnonzero(np.abs(along - z) <= near) for z in (along.min(), along.max())
    )
    if not len(first) == len(last) == len(points) / 2 or np.ptp(along) <= 2 * near:
        return None
    distances, partners = KDTree(across[last]).query(across[first])
    opposite = np.asarray(partners)
    if distances.max() > near or len(np.unique(opposite)) < len(first):
        return None
    return first, last[opposite]


def _polygons(
    path: Path, mesh: VtkMesh, sides: tuple[np.ndarray, np.ndarray]
) -> np.ndarray | None:
    """Corners of the face of each cell on the first side; None unless all have one."""
    points = mesh.points.astype(np.float64)
    blocks = cell_blocks.of_mesh(str(path), mesh, points)
    shapes = {kind: block.shape for kind, block in blocks.items()}
    facets = geometry.cell_facets(shapes, mesh.num_points)
    rows = np.concatenate([block.rows for block in blocks.values()])[facets.cells]
    polygons: list[np.ndarray] = []
    for side in sides:
        mask = np.zeros(mesh.num_points, bool)
        mask[side] = True
        inside = np.flatnonzero(mask[facets.corners].all(axis=1))
        if not (np.bincount(rows[inside], minlength=mesh.num_cells) == 1).all():
            return None
        polygons.append(facets.corners[inside[np.argsort(rows[inside])]])
    return polygons[0]


def _differing(mesh: VtkMesh, sides: tuple[np.ndarray, np.ndarray]) -> list[str]:
    """Names of the fields at points that are not the same on both sides."""
    names: list[str] = []
    for name, array in mesh.point_data.arrays.items():
        one, other = (array[side] for side in sides)
        if name.startswith("boundary_"):
            continue
        if array.dtype.kind not in "fiu":
            alike = np.array_equal(one, other)
        else:
            scale = np.abs(array[np.isfinite(array)]).max(initial=0)
            alike = np.allclose(one, other, rtol=0, atol=_ALIKE * scale, equal_nan=True)
        names += [] if alike else [name]
    return names


def _flat(
    mesh: VtkMesh, axis: int, sides: tuple[np.ndarray, np.ndarray], faces: np.ndarray
) -> VtkMesh:
    first, last = sides
    numbers = np.zeros(mesh.num_points, np.int64)
    numbers[first] = numbers[last] = np.arange(len(first))
    sizes = np.argmax(faces == faces[:, -1:], axis=1) + 1
    used = np.arange(faces.shape[1]) < sizes[:, None]
    data = {
        name: array[first]
        for name, array in mesh.point_data.arrays.items()
        if not name.startswith("boundary_") or np.array_equal(array[first], array[last])
    }
    return dataclasses.replace(
        mesh,
        points=mesh.points[first],
        offsets=polyhedra.offsets_of(sizes),
        corners=numbers[faces[used]],
        types=np.array([_POLYGONS.get(s, 7) for s in range(sizes.max() + 1)])[sizes],
        point_data=dataclasses.replace(mesh.point_data, arrays=data),
        polyhedra=None,
        layer=Layer(mesh, numbers, axis),
    )
