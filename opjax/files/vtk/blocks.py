"""Meshes of several blocks, `.vtm`: a mesh, and named boundaries."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from opjax.files import limits
from opjax.files.vtk import joining, lists, xml_files
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk.mesh import VtkMesh

_KIND = "vtkMultiBlockDataSet"
_MAX_BLOCKS = 1000
_DEEPEST = 16  # blocks inside one another
_NEAR = 1e-6  # of the width of the mesh
# Dimensions of VTK's kinds of cells; of all others, that of solids.
_DIMENSIONS = {
    **{**dict.fromkeys((0, 1, 2), 0), **dict.fromkeys((3, 4, 21), 1)},
    **dict.fromkeys((5, 6, 7, 8, 9, 22, 23, 28, 34), 2),
}


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads the block of the highest dimension; other blocks are its boundaries.

    Args:
      path: the file, which names the files of the blocks.
      max_bytes: maximum size of all arrays of a block.

    Returns:
      The mesh of that block, with a mask `boundary_NAME` of its points for every other
      block.

    Raises:
      OSError: if a file cannot be read.
      ValueError: if a file is damaged, too large or outside the folder; if several
        blocks have the highest dimension; or if a point of a boundary is not a point of
        the mesh.
    """
    root = lists.read(path, _KIND)
    named: list[tuple[str, VtkMesh]] = []
    for name, file in _blocks(path, root):
        if not lists.is_inside(path, file):
            raise ValueError(f"{path}: the block {name!r}, {file}, is missing.")
        named.append((name, xml_files.read(file, max_bytes)))
        if len(named) > _MAX_BLOCKS:
            raise limits.damaged(path, f"more than {_MAX_BLOCKS} blocks")
    return assembled(path, named)


def assembled(
    path: Path, named: Sequence[tuple[str, VtkMesh]], *, pieces: bool = False
) -> VtkMesh:
    """Returns the block of the highest dimension, with masks of the others.

    Args:
      path: the file, for messages.
      named: blocks with their names.
      pieces: whether several blocks of the highest dimension are pieces of one mesh.

    Raises:
      ValueError: if there are several, and they are not pieces; or as from `read`.
    """
    named = [(name, mesh) for name, mesh in named if mesh.num_cells]
    dimensions = [_dimension(mesh) for _, mesh in named]
    highest = max(dimensions, default=0)
    solid = [m for (_, m), d in zip(named, dimensions, strict=True) if d == highest]
    if not solid or (len(solid) > 1 and not pieces):
        raise ValueError(
            f"{path} has {len(named)} blocks of cells, with the dimensions "
            f"{dimensions}: exactly one must have the highest dimension, the mesh; "
            "save pyvista.read(old).combine() as .vtu, which keeps the values of both "
            "sides of an interface; combine(merge_points=True) keeps one of them."
        )
    mesh = joining.joined(path, solid)
    masks: dict[str, np.ndarray] = {}
    for (name, block), dimension in zip(named, dimensions, strict=True):
        if dimension == highest:
            continue
        mask = masks.setdefault(f"boundary_{name}", np.zeros(mesh.num_points, np.uint8))
        mask[_points_of(path, name, block, mesh)] = 1
    if taken := sorted(set(masks) & set(mesh.point_data.arrays)):
        raise ValueError(f"{path}: the mesh already has the fields {taken}.")
    data = mesh.point_data
    data = dataclasses.replace(data, arrays=data.arrays | masks)
    mesh = dataclasses.replace(mesh, point_data=data)
    meshes.check(path, mesh)
    return mesh


def _blocks(path: Path, root: Element) -> Iterator[tuple[str, Path]]:
    """Names and files of blocks; one without a name has that of its parent."""

    def inside(parent: Element, name: str, depth: int) -> Iterator[tuple[str, Path]]:
        if depth > _DEEPEST:
            raise limits.damaged(path, "blocks that contain themselves")
        for element in parent:
            own = element.get("name") or name
            if element.tag in ("Block", "Piece"):
                yield from inside(element, own, depth + 1)
            elif element.tag == "DataSet" and element.get("file"):
                file = element.get("file", "")
                yield own, lists.beside(path, file, (".vtu", ".vtp"), "blocks")

    for part in root.findall(_KIND):
        yield from inside(part, "", 0)


def _dimension(mesh: VtkMesh) -> int:
    return max(_DIMENSIONS.get(kind, 3) for kind in np.unique(mesh.types).tolist())


def _points_of(path: Path, name: str, block: VtkMesh, mesh: VtkMesh) -> np.ndarray:
    """Which points of the mesh are those of a block, by their coordinates."""
    from scipy.spatial import KDTree

    for points in (block.points, mesh.points):
        if not (np.abs(points) < np.finfo(np.float32).max).all():
            raise limits.damaged(path, "non-finite coordinates")
    width = np.ptp(mesh.points, axis=0).max()
    distances, nearest = KDTree(mesh.points).query(block.points)
    far = distances > _NEAR * width
    if far.any():
        raise ValueError(
            f"{path}: {far.sum()} of {len(far)} points of the block {name!r} are not "
            f"points of the mesh, the first one is point {int(np.argmax(far))}; "
            "boundaries must be parts of the same mesh."
        )
    return np.asarray(nearest)
