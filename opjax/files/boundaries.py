"""Named boundaries of meshes, and features of the geometry."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from opjax import geometry
from opjax.files.npz import Arrays
from opjax.files.options import Names, ReadOptions
from opjax.files.topology import Topology, topology
from opjax.files.vtk.fields import MeshArrays

_PREFIX = "boundary_"
_NUMBERS, _NAMES = "boundary", "boundary_names"
_AXES = "xyz"
_SOME = 500  # facets that are looked at
_MOST_INSIDE = 0.25  # of the facets of a boundary that may be sides of cracks


class Geometric(NamedTuple):
    """What is known of a sample from the shape of its mesh.

    Attributes:
      values: more features, `(n, c)`.
      channels: their names.
      boundaries: indices of the points (or cells) of each named boundary, sorted.
    """

    values: np.ndarray
    channels: tuple[str, ...]
    boundaries: dict[str, np.ndarray]


class _Set(NamedTuple):
    """A named boundary: masks of points `(n,)`, and of cells of the file, if marked."""

    points: np.ndarray
    cells: np.ndarray | None = None


def of(name: str, arrays: Arrays, options: ReadOptions) -> Geometric:
    """Computes indicators of named boundaries, distances to them and normals.

    Args:
      name: of the sample, for messages.
      arrays: of the file.
      options: which boundaries and features, and whether a row of the sample is a
        point or a cell.

    Raises:
      ValueError: if there is no such boundary, it has no facets, or cells are missing
        where they are needed.
    """
    location, features = options.location, options.geometry
    boundary_names = options.boundary_names
    cells = topology(name, arrays) if features or location == "cells" else None
    num_points = len(arrays["mesh_points"])
    sets = {key: _set(name, arrays, key, num_points, cells) for key in boundary_names}
    facets = None if cells is None else _facets(name, cells, surface=bool(features))
    if features and cells is not None and facets is not None:
        _check_conforming(name, cells, facets.corners)
    columns: list[np.ndarray] = []
    channels: list[str] = []
    members: dict[str, np.ndarray] = {}
    for key, one in sets.items():
        mask = one.points
        if location == "cells":
            assert cells is not None
            mask = _touching(cells, facets, one)[cells.rows]
        members[key] = np.flatnonzero(mask)
        columns.append(mask[:, None].astype(np.float32))
        channels.append(f"{_PREFIX}{key}")
    if features:
        assert cells is not None
        assert facets is not None
        for key in boundary_names or ("",):
            points = sets[key].points if key else np.ones(num_points, bool)
            chosen = _chosen(name, key, facets.corners, points)
            if cells.dimension < cells.points.shape[1]:
                turned = _outwards(name, cells, facets.corners, chosen)
            else:
                turned = facets.corners[chosen]
            measures = _measures(name, cells, turned, location, features, whole=not key)
            columns += [array.astype(np.float32) for array in measures.values()]
            ending = f"_{key}" if key else ""
            channels += [f"{what}{ending}" for what in measures]
    return Geometric(np.concatenate(columns, axis=1), tuple(channels), members)


def _facets(name: str, cells: Topology, *, surface: bool) -> geometry.Facets:
    """Facets of a mesh: of its boundary; of a surface in space, its own cells."""
    if cells.dimension == cells.points.shape[1] - 1 and surface:
        if "strip" in cells.blocks or (cells.dimension == 1 and _corners(cells) > 2):
            raise ValueError(
                f"{name} has strips or polylines; save pyvista.read(old).triangulate()."
            )
        return _surface(cells)
    if cells.dimension < 2:
        raise ValueError(
            f"{name} has lines only; a boundary is that of surfaces or solids."
        )
    return cells.boundary()


def _check_conforming(name: str, cells: Topology, facets: np.ndarray) -> None:
    """Raises ValueError if cells of a solid do not share whole faces.

    Faces that neighbours divide differently count as boundary on both sides: there,
    facets of opposite normals are in one place. Cracks have some of them too.
    """
    if cells.dimension < 3 or not len(facets):
        return
    some = facets[np.linspace(0, len(facets) - 1, _SOME).astype(int)]
    middles = cells.points[some].mean(axis=1)
    nearest = geometry.nearest_facets(middles, cells.points, facets)
    share = np.mean(~nearest.normal.any(axis=1))
    if share > _MOST_INSIDE:
        raise ValueError(
            f"{name}: about {share:.0%} of the faces that only one cell has are inside "
            "of the mesh, since neighbours divide them differently; normals and "
            "distances would be those of faces inside. Tetrahedra that pyvista's "
            "triangulate() makes of second-order cells are such: give the file of the "
            "second-order cells, which is read, or mesh with first-order cells."
        )


def _surface(cells: Topology) -> geometry.Facets:
    """The cells of a surface, each a facet as the file lists it."""
    order = {"pixel": [0, 1, 3, 2]}
    widest = _corners(cells)
    rows = np.concatenate([block.rows for block in cells.blocks.values()])
    corners = np.concatenate(
        [
            np.pad(
                block.cells[:, order.get(kind, ...)],
                [(0, 0), (0, widest - block.cells.shape[1])],
                mode="edge",
            )
            for kind, block in cells.blocks.items()
        ]
    )[np.argsort(rows)]
    return geometry.Facets(corners, np.sort(rows))


def _outwards(
    name: str, cells: Topology, facets: np.ndarray, chosen: np.ndarray
) -> np.ndarray:
    """Chosen facets of a surface as its closed parts are seen from outside.

    Parts that none of them belongs to have no say, and may be open.

    Args:
      name: of the sample, for messages.
      cells: of the surface.
      facets: all of them, `(m, corners)`.
      chosen: which ones are wanted, `(m,)`.

    Raises:
      ValueError: if a part is open or has one side only.
    """
    parts = geometry.surface_parts(cells.points, facets)
    whole = np.isin(parts, parts[chosen])
    try:
        turned = geometry.outward_facets(cells.points, facets[whole])
    except geometry.OpenSurfaceError as error:
        raise ValueError(
            f"{name} is an open surface: {len(error.edges)} edges, the first one "
            f"between points {error.edges[0].tolist()}, have no neighbour. Normals and "
            "distances need a closed surface; close it, or leave out --geometry."
        ) from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return turned[chosen[whole]]


def _corners(cells: Topology) -> int:
    return max(block.cells.shape[1] for block in cells.blocks.values())


def _measures(
    name: str,
    cells: Topology,
    facets: np.ndarray,
    location: str,
    features: Names,
    *,
    whole: bool,
) -> dict[str, np.ndarray]:
    """Columns of normals and distances by name."""
    points, p = cells.points, cells.points.shape[1]
    if cells.dimension < p and "distance" in features and whole:
        raise ValueError(
            f"{name} is a surface, whose points have distance zero to it; leave out "
            "distance, or name a part of it, --boundary_names."
        )
    where = points
    if location == "cells":
        where = cells.gathered(
            {
                kind: geometry.cell_centers(points, block.shape, kind)
                for kind, block in cells.blocks.items()
            }
        )
    nearest = geometry.nearest_facets(where, points, facets)
    normals = nearest.normal
    if location == "points":  # at points of the boundary, the mean of its facets
        own = geometry.point_normals(points, facets)
        touching = np.any(own != 0, axis=1)
        normals = np.where(touching[:, None], own, normals)
    measures: dict[str, np.ndarray] = {}
    if "normals" in features:
        measures |= {f"normal_{_AXES[i]}": normals[:, i : i + 1] for i in range(p)}
    if "distance" in features:
        measures["distance"] = nearest.distance[:, None]
    return measures


def _chosen(name: str, key: str, facets: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Which facets have all their points in a named boundary, `(m,)`; at least one."""
    inside = np.asarray(points[facets].all(axis=1))
    if key and not inside.any():
        raise ValueError(
            f"{name}: no facet of the mesh's boundary has all its points in "
            f"{key!r}; normals and distances need one."
        )
    return inside


def _touching(cells: Topology, facets: geometry.Facets | None, one: _Set) -> np.ndarray:
    """Which cells of the file have a facet in a named boundary, or are marked."""
    mask = np.zeros(cells.num_cells, bool)
    if one.cells is not None:
        mask |= one.cells
    if facets is not None:
        mask[facets.cells[one.points[facets.corners].all(axis=1)]] = True
    return mask


def _set(
    name: str, arrays: Arrays, key: str, num_points: int, cells: Topology | None
) -> _Set:
    """Finds a named boundary.

    Raises:
      ValueError: if there is none, or its array is not what it has to be.
    """
    if isinstance(arrays, MeshArrays):
        boundary = _in_mesh(name, arrays, key)
    else:
        boundary = _in_arrays(name, arrays, key, num_points)
    if boundary is None:
        names = _known(arrays)
        raise ValueError(
            f"{name} has no boundary {key!r}; "
            + (f"it has {', '.join(names)}." if names else "it has none with a name.")
        )
    return boundary


def _in_arrays(name: str, arrays: Arrays, key: str, num_points: int) -> _Set | None:
    """Of arrays `boundary_KEY`, or of `boundary`, a number for each point."""
    if _PREFIX + key in arrays and _PREFIX + key != _NAMES:
        array, mask = np.asarray(arrays[_PREFIX + key]), np.zeros(num_points, bool)
        if array.ndim != 1 or array.dtype.kind not in "iub":
            fits = False
        elif array.dtype.kind == "b":
            fits = len(array) == num_points
        else:
            fits = not array.size or bool(array.min() >= 0 and array.max() < num_points)
        if not fits:
            raise ValueError(
                f"{name}: {_PREFIX}{key} has shape {array.shape} and type "
                f"{array.dtype}; a boundary is point indices from 0 to "
                f"{num_points - 1}, or a mask of {num_points} booleans."
            )
        mask[array] = True
        return _Set(mask)
    if _NUMBERS not in arrays:
        return None
    numbers = _checked_numbers(name, np.asarray(arrays[_NUMBERS]), num_points)
    names = arrays.get(_NAMES)
    number = _number(numbers, names, key)
    if number is None:
        return None
    cells = None
    if "cells" in arrays:
        with contextlib.suppress(ValueError):  # points of other cells are as they are
            cells = topology(name, arrays)
    return _Set(_with_corners(cells, numbers, number))


def _in_mesh(name: str, arrays: MeshArrays, key: str) -> _Set | None:
    """Of masks `boundary_KEY`, or numbers `boundary`, at points or cells."""
    mesh = arrays.mesh
    names = mesh.field_data.arrays.get(_NAMES)
    masks: list[np.ndarray] = []
    present = False
    for data, rows in (
        (mesh.point_data.arrays, mesh.num_points),
        (mesh.cell_data.arrays, mesh.num_cells),
    ):
        mask = np.zeros(rows, bool)
        if _PREFIX + key in data:
            array = data[_PREFIX + key]
            if array.ndim != 1 or array.dtype.kind not in "iubf":
                raise ValueError(
                    f"{name}: {_PREFIX}{key} has shape {array.shape} and type "
                    f"{array.dtype}; a boundary is one number for each point or cell, "
                    "not zero on it."
                )
            mask, present = array != 0, True
        elif _NUMBERS in data:
            numbers = _checked_numbers(name, data[_NUMBERS], rows)
            number = _number(numbers, names, key)
            if number is not None:
                mask, present = numbers == number, True
                if data is mesh.point_data.arrays:
                    cells = topology(name, arrays)
                    mask = _with_corners(cells, numbers, number)
        masks.append(mask)
    if not present:
        return None
    return _with_cells(topology(name, arrays), *masks)


def _with_cells(cells: Topology, points: np.ndarray, marked: np.ndarray) -> _Set:
    """A boundary of points and cells: all corners of those of lower dimensions."""
    points = points.copy()
    for block in cells.others:
        points[block.points[marked[block.rows]]] = True
    rows = np.zeros_like(marked)
    rows[cells.rows] = marked[cells.rows]
    if rows.any() and cells.dimension == cells.points.shape[1]:
        # Cells beside a boundary: their points that are on the boundary of the mesh.
        facets = cells.boundary()
        chosen = facets.corners[rows[facets.cells]]
        points[chosen] = True
        points[_between(cells, chosen)] = True
    elif rows.any():  # patches of a surface
        for block in cells.blocks.values():
            points[block.points[rows[block.rows]]] = True
    return _Set(points, rows)


def _between(cells: Topology, facets: np.ndarray) -> np.ndarray:
    """Points of cells of higher order that are on facets, but no corners.

    Facets are curved by less than a tenth of their longest side; points of other facets
    and inside of cells are farther away.
    """
    others = [b.between.ravel() for b in cells.blocks.values() if b.between is not None]
    if not others or not len(facets):
        return np.zeros(0, np.int64)
    every = np.unique(np.concatenate(others))
    nearest = geometry.nearest_facets(cells.points[every], cells.points, facets)
    corners = cells.points[facets]
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2).max(axis=1)
    return every[nearest.distance < 0.1 * sides[nearest.facet]]


def _with_corners(
    cells: Topology | None, numbers: np.ndarray, number: int
) -> np.ndarray:
    """Points of a patch, with the corners that it shares with others, `(n,)`.

    A point has one number, but a corner belongs to all patches that meet there. A facet
    whose points have several numbers, none of them zero, belongs to the patch of that
    point whose normal is most like the facet's, since normals turn at a corner; to the
    smallest of these numbers where several are.

    Args:
      cells: of the mesh, if they are known.
      numbers: of the points; zero for points of no patch.
      number: of the patch.
    """
    mask = numbers == number
    if cells is None or cells.dimension < 2 or number <= 0:
        return mask
    solid = cells.dimension == cells.points.shape[1]
    if not solid and "strip" in cells.blocks:
        return mask
    facets = (cells.boundary() if solid else _surface(cells)).corners
    own = numbers[facets]
    mixed = (own != own[:, :1]).any(axis=1) & (own > 0).all(axis=1)
    if not (mixed & (own == number).any(axis=1)).any():
        return mask
    vectors = geometry.facet_area_vectors(cells.points, facets)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    normals = geometry.point_normals(cells.points, facets)[facets[mixed]]
    alike = np.einsum("mcp,mp->mc", normals, (vectors / lengths)[mixed])
    best = alike >= alike.max(axis=1, keepdims=True) - 1e-6
    of_patch = np.where(best, own[mixed], np.iinfo(np.int64).max).min(axis=1) == number
    mask[facets[mixed][of_patch]] = True
    return mask


def _checked_numbers(name: str, numbers: np.ndarray, rows: int) -> np.ndarray:
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or len(numbers) != rows:
        raise ValueError(
            f"{name}: {_NUMBERS} has shape {numbers.shape} and type {numbers.dtype}; "
            f"expected {rows} integers, the numbers of boundaries."
        )
    return numbers


def _number(numbers: np.ndarray, names: np.ndarray | None, key: str) -> int | None:
    """The number of a boundary: its place in the names from 1, or the name itself."""
    if names is not None:
        listed = [str(text) for text in np.ravel(names).tolist()]
        return listed.index(key) + 1 if key in listed else None
    if key.isdecimal() and len(key) < 19 and (numbers == int(key)).any():
        return int(key)
    return None


def _known(arrays: Arrays) -> list[str]:
    """Names of the boundaries that a file has."""
    every: list[Mapping[str, np.ndarray]] = [arrays]
    names = arrays.get(_NAMES)
    if isinstance(arrays, MeshArrays):
        mesh = arrays.mesh
        every = [mesh.point_data.arrays, mesh.cell_data.arrays]
        names = mesh.field_data.arrays.get(_NAMES)
    listed: list[str] = []
    for data in every:
        keys = [k for k in data if k.startswith(_PREFIX) and k != _NAMES]
        listed += [k.removeprefix(_PREFIX) for k in keys]
        if _NUMBERS in data and names is not None:
            listed += [str(text) for text in np.ravel(names).tolist()]
        elif _NUMBERS in data and np.asarray(data[_NUMBERS]).dtype.kind in "iu":
            numbers = np.unique(data[_NUMBERS])
            listed += [str(k) for k in numbers[numbers > 0].tolist()[:8]]
    return sorted(set(listed))
