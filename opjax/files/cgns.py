"""Meshes of CGNS files, `.cgns`, stored as HDF5; and samples of PLAID.

A node of the tree is a group with a label, whose value is the array ` data`. A sample
of PLAID is a folder `sample_*` with such a file, `meshes/mesh_*.cgns`: its globals are
field data, its nodal tags are boundaries. VTK's reader ignores both.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax.files import conversion, hdf5, limits
from opjax.files.vtk import mesh as meshes
from opjax.files.vtk import polyhedra
from opjax.files.vtk.mesh import NamedArrays, VtkMesh

_VALUE = " data"
_AXES = ("CoordinateX", "CoordinateY", "CoordinateZ")


class _Kind(NamedTuple):
    """A kind of elements: its number in VTK, number of points and dimension.

    `order` are the places of VTK's points among those of CGNS, where they differ.
    """

    vtk: int
    corners: int
    dimension: int
    order: tuple[int, ...] = ()


# VTK has the edges of the upper end before those between the ends, CGNS behind them.
_WEDGE = (*range(9), 12, 13, 14, 9, 10, 11)
_BOX = (*range(12), 16, 17, 18, 19, 12, 13, 14, 15)
_KINDS = {
    **{2: _Kind(1, 1, 0), 3: _Kind(3, 2, 1), 5: _Kind(5, 3, 2), 7: _Kind(9, 4, 2)},
    **{10: _Kind(10, 4, 3), 12: _Kind(14, 5, 3), 14: _Kind(13, 6, 3)},
    17: _Kind(12, 8, 3),
    **{4: _Kind(21, 3, 1), 6: _Kind(22, 6, 2), 8: _Kind(23, 8, 2), 9: _Kind(28, 9, 2)},
    **{11: _Kind(24, 10, 3), 21: _Kind(27, 13, 3)},
    15: _Kind(26, 15, 3, _WEDGE),
    16: _Kind(32, 18, 3, (*_WEDGE, 15, 16, 17)),
    18: _Kind(25, 20, 3, _BOX),
    19: _Kind(29, 27, 3, (*_BOX, 24, 22, 21, 23, 20, 25, 26)),
}
_OTHERS = {13: "PYRA_14", 20: "MIXED", 22: "NGON_n", 23: "NFACE_n"}


class _Node:
    """A node of the tree of a file.

    Args:
      path: the file.
      group: the open group.
      max_bytes: maximum size of an array.
    """

    def __init__(self, path: Path, group: Any, max_bytes: int):
        self.path, self._group, self._most = path, group, max_bytes

    def children(self, label: str) -> dict[str, "_Node"]:
        """Nodes of a label below this one, by name."""
        nodes: dict[str, _Node] = {}
        for name in hdf5.names(self.path, self._group):
            group = hdf5.member(self.path, self._group, name)
            with limits.reading(self.path):
                own = b"" if group is None else group.attrs.get("label", b"")
                matches = not hasattr(group, "dtype") and own in (label, label.encode())
            if matches:
                nodes[name] = _Node(self.path, group, self._most)
        return nodes

    def value(self) -> np.ndarray | None:
        """The array of the node in one axis; None if it has none."""
        if _VALUE not in hdf5.names(self.path, self._group):
            return None
        array = hdf5.dataset(self.path, self._group, _VALUE)
        what = "the values of a node"
        limits.check_size(self.path, what, array.num_bytes, self._most)
        if array.dtype.kind not in "iuf":
            raise limits.damaged(self.path, f"a node has values of {array.dtype}")
        return array[()].reshape(-1)

    def numbers(self) -> np.ndarray:
        """The whole numbers of the node.

        Raises:
          ValueError: if it has none.
        """
        numbers = self.value()
        if numbers is None or numbers.dtype.kind not in "iu":
            raise limits.damaged(self.path, "a node without its values")
        return numbers.astype(np.int64)

    def word(self, label: str, default: str) -> str:
        """The text of the first node of a label below this one."""
        for node in self.children(label).values():
            value = node.value()
            if value is not None and value.dtype.itemsize == 1:
                return value.astype(np.uint8).tobytes().decode("ascii", "replace")
        return default


class _Elements(NamedTuple):
    """Elements of all sections, one after the other."""

    offsets: np.ndarray
    corners: np.ndarray
    types: np.ndarray
    dimensions: np.ndarray


def read(path: Path, max_bytes: int) -> VtkMesh:
    """Reads the only zone of a file.

    Args:
      path: the file.
      max_bytes: maximum size of an array.

    Returns:
      The mesh with its fields, boundary conditions as masks `boundary_NAME`, and
      numbers of the case as field data.

    Raises:
      ImportError: if h5py is missing.
      OSError: if the file cannot be read.
      ValueError: if the file is damaged or too large, has several zones, or its zone is
        structured or contains polyhedra or elements above second order.
    """
    with hdf5.open_file(path) as file:
        bases = _Node(path, file, max_bytes).children("CGNSBase_t")
        zones = [
            (base, zone)
            for base in bases.values()
            for zone in base.children("Zone_t").values()
            if zone.children("GridCoordinates_t")
        ]
        if len(zones) != 1:
            raise ValueError(
                f"{path} has {len(zones)} zones with coordinates, expected "
                f"one.{conversion.way(path) if zones else ''}"
            )
        mesh = _zone(path, *zones[0])
        for base in bases.values():
            mesh.field_data.arrays |= _arrays(base)
    meshes.check(path, mesh)
    return mesh


def _zone(path: Path, base: _Node, zone: _Node) -> VtkMesh:
    if zone.word("ZoneType_t", "Structured").strip("\0 ") != "Unstructured":
        raise ValueError(
            f"{path} has a structured zone; save it as an unstructured one, or as .npz "
            f"with grid_shape.{conversion.way(path)}"
        )
    (grid,) = list(zone.children("GridCoordinates_t").values())[:1]
    coordinates = _arrays(grid)
    axes = [coordinates[name] for name in _AXES if name in coordinates]
    sizes = {len(axis) for axis in axes}
    if not axes or sizes != {int(zone.numbers()[:1].sum())}:
        raise limits.damaged(path, f"coordinates of {sorted(sizes)} points")
    axes += [np.zeros_like(axes[0])] * (3 - len(axes))
    points = meshes.coordinates(np.stack(axes, axis=1))
    elements = _elements(path, zone)
    mesh = VtkMesh(points, *elements[:3])
    _add_fields(path, base, zone, mesh, elements.dimensions)
    _add_boundaries(path, zone, mesh)
    return mesh


def _arrays(node: _Node) -> dict[str, np.ndarray]:
    """Numbers below a node by name; texts, which are of single bytes, are left out."""
    arrays: dict[str, np.ndarray] = {}
    for name, child in node.children("DataArray_t").items():
        value = child.value()
        if value is not None and value.dtype.itemsize > 1:
            arrays[name] = value.astype(value.dtype.newbyteorder("="), copy=False)
    return arrays


def _elements(path: Path, zone: _Node) -> _Elements:
    """Elements in the order of their numbers, which begin with one."""
    sections: list[tuple[int, _Kind, np.ndarray]] = []
    for name, node in zone.children("Elements_t").items():
        number = int(node.numbers()[:1].sum())
        if number not in _KINDS:
            raise ValueError(
                f"{path}: the elements {name!r} have the CGNS type "
                f"{_OTHERS.get(number, number)}; only sections with one element "
                "type of first or second order are "
                f"supported.{conversion.way(path)}"
            )
        values = {k: n.numbers() for k, n in node.children("IndexRange_t").items()}
        values |= {k: n.numbers() for k, n in node.children("DataArray_t").items()}
        kind = _KINDS[number]
        first, last = (*values.get("ElementRange", np.zeros(0)).tolist(), 0, 0)[:2]
        corners = values.get("ElementConnectivity", np.zeros(0, np.int64))
        if len(corners) != kind.corners * (last - first + 1):
            raise limits.damaged(path, f"{name!r} has {len(corners)} corners")
        if kind.order:
            corners = corners.reshape(-1, kind.corners)[:, kind.order].ravel()
        sections.append((first, kind, corners - 1))
    sections.sort(key=lambda section: section[0])
    counts = [len(corners) // kind.corners for _, kind, corners in sections]
    if [first for first, *_ in sections] != [
        1 + sum(counts[:i]) for i in range(len(counts))
    ]:
        raise limits.damaged(path, "element numbers that are not consecutive")
    repeated = np.repeat(np.arange(len(sections)), counts)
    of_kind = np.array([k[:3] for _, k, _ in sections], np.int64).reshape(-1, 3)
    sizes = of_kind[repeated, 1]
    return _Elements(
        polyhedra.offsets_of(sizes),
        np.concatenate([np.zeros(0, np.int64), *(corners for *_, corners in sections)]),
        of_kind[repeated, 0],
        of_kind[repeated, 2],
    )


def _add_fields(
    path: Path, base: _Node, zone: _Node, mesh: VtkMesh, dimensions: np.ndarray
) -> None:
    """Adds the solutions at points and cells; elements of lower dimension get NaN."""
    dimension = int(base.numbers()[:1].sum())
    inside = np.flatnonzero(dimensions == dimension)
    for solution in zone.children("FlowSolution_t").values():
        location = solution.word("GridLocation_t", "Vertex").strip("\0 ")
        if location == "Vertex":
            mesh.point_data.arrays |= _arrays(solution)
            continue
        if location != "CellCenter":
            raise ValueError(
                f"{path} has fields at {location}; only point data and cell data "
                "are supported."
            )
        for name, values in _arrays(solution).items():
            whole = values
            if len(values) == len(inside) != mesh.num_cells:
                whole = np.full(mesh.num_cells, np.nan)
                whole[inside] = values
            mesh.cell_data.arrays[name] = whole


def _add_boundaries(path: Path, zone: _Node, mesh: VtkMesh) -> None:
    """Adds boundary conditions, which are sets of points or of elements."""
    for parent in zone.children("ZoneBC_t").values():
        for name, node in parent.children("BC_t").items():
            location = node.word("GridLocation_t", "Vertex").strip("\0 ")
            data = mesh.point_data if location == "Vertex" else mesh.cell_data
            count = mesh.num_points if location == "Vertex" else mesh.num_cells
            mask = np.zeros(count, np.uint8)
            mask[_members(path, name, node, count)] = 1
            _add(path, data, f"boundary_{name}", mask)


def _add(path: Path, data: NamedArrays, name: str, mask: np.ndarray) -> None:
    if name in data.arrays:
        raise ValueError(
            f"{path} has a field and a boundary with the name {name!r}; rename "
            "one of them."
        )
    data.arrays[name] = mask


def _members(path: Path, name: str, node: _Node, count: int) -> np.ndarray:
    """Indices of a list or range of points, counted from zero."""
    lists: Mapping[str, _Node] = node.children("IndexArray_t")
    ranges: Mapping[str, _Node] = node.children("IndexRange_t")
    if "PointRange" in ranges:
        first, last = (*ranges["PointRange"].numbers().tolist(), 0, 0)[:2]
        members = np.array([first, last]) - 1
    else:
        members = lists["PointList"].numbers() - 1 if "PointList" in lists else None
    if members is None or (
        members.size and not (0 <= members.min() <= members.max() < count)
    ):
        raise limits.damaged(
            path, f"the boundary {name!r} is not a list of numbers from 1 to {count}"
        )
    return np.arange(members[0], members[1] + 1) if "PointRange" in ranges else members


def samples(folder: Path) -> list[Path]:
    """Lists the meshes of PLAID samples in a folder, or of a single sample.

    Raises:
      ValueError: if a sample has several meshes, which belong to different times.
    """
    meshes: list[Path] = []
    for sample in (folder, *sorted(folder.glob("sample_*"))):
        files = sorted((sample / "meshes").glob("*.cgns"))
        if len(files) > 1:
            raise ValueError(
                f"{sample} has {len(files)} meshes, one per time; pass the .cgns "
                "files of one time."
            )
        meshes += files
    return meshes


def stem(path: Path) -> str:
    """Base name of a file's copy; for a sample of PLAID, the name of the sample."""
    sample = path.parent.parent.name
    inside = path.parent.name == "meshes" and sample.startswith("sample_")
    return sample if inside and path.suffix.lower() == ".cgns" else path.stem
