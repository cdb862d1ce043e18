"""Named sets of points and cells: masks, indices, and user-defined conditions."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from opjax import geometry
from opjax.files import cases
from opjax.files.expressions import Expression
from opjax.files.npz import Arrays
from opjax.files.options import ReadOptions
from opjax.files.topology import Topology, topology
from opjax.files.vtk.fields import MeshArrays
from opjax.geometry import inner

PREFIX = "boundary_"
_NUMBERS, _NAMES = "boundary", "boundary_names"
_AXES = "xyz"
_VERTICES = 2  # VTK's kinds of cells up to this one have no extent


class NamedSet(NamedTuple):
    """A named boundary: masks of points `(n,)`, and of cells if available."""

    points: np.ndarray
    cells: np.ndarray | None = None


def named_sets(
    name: str,
    arrays: Arrays,
    options: ReadOptions,
    row: cases.Row | None,
    cells: Topology | None,
    facets: geometry.Facets | None,
) -> dict[str, NamedSet]:
    """Finds the named boundaries of a sample, from the file and from conditions.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of the file.
      options: requested boundaries.
      row: the row of the sample in a table of cases.
      cells: cells of the file, if known.
      facets: facets of the boundary of the mesh, if it has one.

    Raises:
      ValueError: if there is no such boundary, its array is invalid, or a condition has
        an unknown name or is false everywhere.
    """
    num_points = len(arrays["mesh_points"])
    sets = {
        key: _named_set(name, arrays, key, num_points, cells)
        for key in options.boundary_names
    }
    for key, condition in options.conditions.items():
        sets[key] = _of_condition(name, arrays, key, condition, row, cells, facets)
    return sets


def _of_condition(
    name: str,
    arrays: Arrays,
    key: str,
    condition: Expression,
    row: cases.Row | None,
    cells: Topology | None,
    facets: geometry.Facets | None,
) -> NamedSet:
    """The points of the mesh's boundary where a condition holds, or marked cells.

    A condition of arrays of cells alone is one of cells.
    """
    values = _Values(name, arrays, row)
    try:
        mask = condition({one: values.of(one) for one in condition.names})
    except ValueError as error:
        raise ValueError(f"{name}: the boundary {key}: {error}") from None
    if not values.at_points and values.at_cells:
        cells = cells or topology(name, arrays)
        _some(name, key, condition, mask, values)
        return _with_cells(cells, np.zeros(len(cells.points), bool), mask)
    if mask.shape != (len(arrays["mesh_points"]),):
        raise ValueError(
            f"{name}: the boundary {key}: {condition.text!r} contains no coordinate "
            "and no field, so it holds everywhere or nowhere."
        )
    if cells is not None and cells.is_solid:
        assert facets is not None
        outer = np.zeros(len(mask), bool)
        outer[facets.corners] = True
        outer[_between(cells, facets.corners)] = True
        mask = mask & _in_places(cells.points, mask, outer)
    _some(name, key, condition, mask, values)
    return NamedSet(mask)


def _in_places(points: np.ndarray, mask: np.ndarray, outer: np.ndarray) -> np.ndarray:
    """Points that are `outer`, or those of a mask in the place of one in the mask."""
    if not (mask & ~outer).any():
        return outer
    rows = np.flatnonzero(mask)
    places = inner.places(points[rows])
    outer = outer.copy()
    outer[rows] = np.isin(places, places[outer[rows]])
    return outer


class _Values:
    """Values of the names of a condition: coordinates, fields, numbers of the case.

    Attributes:
      at_points: whether one of them has a value for each point.
      at_cells: likewise for each cell.
    """

    def __init__(self, name: str, arrays: Arrays, row: cases.Row | None):
        self._name, self._arrays, self._row = name, arrays, row
        self._cell_data: Mapping[str, np.ndarray] = {}
        self._coordinates = _coordinates(arrays)
        if isinstance(arrays, MeshArrays):
            self._cell_data = arrays.mesh.cell_data.arrays
        self.at_points = self.at_cells = False

    def of(self, key: str) -> np.ndarray | float:
        """The values of a name; raises ValueError if it is unknown."""
        if key in self._coordinates:
            self.at_points = True
            return self._coordinates[key]
        num_points = len(self._arrays["mesh_points"])
        if key in self._arrays and self._arrays[key].shape == (num_points,):
            self.at_points = True
            return self._arrays[key]
        if key in self._cell_data and self._cell_data[key].ndim == 1:
            self.at_cells = True
            return self._cell_data[key]
        scalar = cases.read(self._name, self._arrays, self._row, (key,), needed=False)
        if scalar is None:
            columns = () if self._row is None else self._row.columns
            names = [*self._coordinates, *self._arrays, *self._cell_data, *columns]
            raise ValueError(
                f"{key!r} is unknown; available: {', '.join(dict.fromkeys(names))}."
            )
        return float(scalar[0])

    def ranges(self) -> str:
        """Where the mesh is, for messages."""
        return ", ".join(
            f"{axis} from {values.min():g} to {values.max():g}"
            for axis, values in self._coordinates.items()
        )


def _coordinates(arrays: Arrays) -> dict[str, np.ndarray]:
    """Coordinates of the points by axis; of a mesh in a plane of space, all three."""
    points = np.asarray(arrays["mesh_points"], np.float64)
    plane = arrays.plane if isinstance(arrays, MeshArrays) else None
    axes = range(points.shape[1]) if plane is None else plane.axes
    coordinates = {
        _AXES[axis]: column for axis, column in zip(axes, points.T, strict=False)
    }
    constants = {} if plane is None else plane.constants
    for axis, value in constants.items():
        coordinates[_AXES[axis]] = np.full(len(points), value)
    return dict(sorted(coordinates.items()))


def has_cells(arrays: Arrays) -> bool:
    """Whether a file has cells other than single points."""
    if isinstance(arrays, MeshArrays):
        return bool((arrays.mesh.types > _VERTICES).any())
    return "cells" in arrays


def _some(
    name: str, key: str, condition: Expression, mask: np.ndarray, known: _Values
) -> None:
    """Raises ValueError for a condition that holds nowhere."""
    if not mask.any():
        raise ValueError(
            f"{name}: no point on the boundary of the mesh satisfies "
            f"{condition.text!r}, the condition of {key}; the mesh has "
            f"{known.ranges()}. Compare coordinates with a tolerance: x < 1e-6, not x "
            "== 0."
        )


def surface_facets(cells: Topology) -> geometry.Facets:
    """The cells of a surface as facets, in the orientation of the file."""
    order = {"pixel": [0, 1, 3, 2]}
    widest = most_corners(cells)
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


def most_corners(cells: Topology) -> int:
    """Maximum number of corners of the cells."""
    return max(block.cells.shape[1] for block in cells.blocks.values())


def _named_set(
    name: str, arrays: Arrays, key: str, num_points: int, cells: Topology | None
) -> NamedSet:
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
            + (f"it has {', '.join(names)}." if names else "it has no named boundary.")
        )
    return boundary


def _mask_of(name: str, key: str, array: np.ndarray, rows: int) -> np.ndarray | None:
    """A mask that an array of any name holds; None if it is no array of the rows.

    Raises:
      ValueError: if it has other values than zero and one.
    """
    if array.shape != (rows,) or array.dtype.kind not in "iubf":
        return None
    values = np.unique(array)
    if not np.isin(values, (0, 1)).all():
        some = ", ".join(f"{value:g}" for value in values[:4])
        raise ValueError(
            f"{name}: {key} is not a mask of zeros and ones: its values are "
            f"{some}{'...' * (len(values) > 4)}. Define the boundary by a condition, "
            f"--boundary=\"wall: '{key}' == {values[-1]:g}\"."
        )
    return array != 0


def _is_mask(array: np.ndarray) -> bool:
    """Whether an array of whole numbers has nothing but zeros and ones, and both."""
    array = np.asarray(array)
    small = array.ndim == 1 and array.dtype.kind in "iub" and array.size > 1
    return small and array.min() == 0 and array.max() == 1


def _in_arrays(name: str, arrays: Arrays, key: str, num_points: int) -> NamedSet | None:
    """Of arrays `boundary_KEY`, or of `boundary`, a number for each point."""
    if PREFIX + key in arrays and PREFIX + key != _NAMES:
        array, mask = np.asarray(arrays[PREFIX + key]), np.zeros(num_points, bool)
        if array.ndim != 1 or array.dtype.kind not in "iub":
            fits = False
        elif array.dtype.kind == "b":
            fits = len(array) == num_points
        else:
            fits = not array.size or bool(array.min() >= 0 and array.max() < num_points)
        if not fits:
            raise ValueError(
                f"{name}: {PREFIX}{key} has shape {array.shape} and type "
                f"{array.dtype}; expected point indices from 0 to {num_points - 1}, "
                f"or a mask of {num_points} booleans."
            )
        mask[array] = True
        return NamedSet(mask)
    if _NUMBERS not in arrays:
        mask = None
        if key in arrays:
            mask = _mask_of(name, key, np.asarray(arrays[key]), num_points)
        return None if mask is None else NamedSet(mask)
    numbers = _checked_numbers(name, np.asarray(arrays[_NUMBERS]), num_points)
    names = arrays.get(_NAMES)
    number = _number(numbers, names, key)
    if number is None:
        return None
    cells = None
    if "cells" in arrays:
        with contextlib.suppress(ValueError):  # points of other cells are as they are
            cells = topology(name, arrays)
    return NamedSet(_with_corners(cells, numbers, number))


def _in_mesh(name: str, arrays: MeshArrays, key: str) -> NamedSet | None:
    """Of masks `boundary_KEY` or `KEY`, or numbers `boundary`, at points or cells."""
    mesh = arrays.mesh
    of_points = _rows_in(name, arrays, key, mesh.point_data.arrays, mesh.num_points)
    of_cells = _rows_in(name, arrays, key, mesh.cell_data.arrays, mesh.num_cells)
    if of_points is None and of_cells is None:
        return None
    return _with_cells(
        topology(name, arrays),
        np.zeros(mesh.num_points, bool) if of_points is None else of_points,
        np.zeros(mesh.num_cells, bool) if of_cells is None else of_cells,
    )


def _rows_in(
    name: str,
    arrays: MeshArrays,
    key: str,
    data: Mapping[str, np.ndarray],
    rows: int,
) -> np.ndarray | None:
    """Which points, or cells, are in a named boundary; None if data do not say it."""
    if PREFIX + key in data:
        array = data[PREFIX + key]
        if array.ndim != 1 or array.dtype.kind not in "iubf":
            raise ValueError(
                f"{name}: {PREFIX}{key} has shape {array.shape} and type "
                f"{array.dtype}; expected one number per point or cell, nonzero on "
                "the boundary."
            )
        return array != 0
    if _NUMBERS in data:
        numbers = _checked_numbers(name, data[_NUMBERS], rows)
        names = arrays.mesh.field_data.arrays.get(_NAMES)
        number = _number(numbers, names, key)
        if number is not None and data is arrays.mesh.point_data.arrays:
            return _with_corners(topology(name, arrays), numbers, number)
        if number is not None:
            return numbers == number
    return _mask_of(name, key, data[key], rows) if key in data else None


def _with_cells(cells: Topology, points: np.ndarray, marked: np.ndarray) -> NamedSet:
    """A boundary of points and cells: all corners of those of lower dimensions."""
    points = points.copy()
    for block in cells.others:
        points[block.points[marked[block.rows]]] = True
    rows = np.zeros_like(marked)
    rows[cells.rows] = marked[cells.rows]
    if rows.any() and cells.is_solid:
        # Cells beside a boundary: their points that are on the boundary of the mesh.
        facets = cells.boundary()
        chosen = facets.corners[rows[facets.cells]]
        points[chosen] = True
        points[_between(cells, chosen)] = True
    elif rows.any():  # patches of a surface
        for block in cells.blocks.values():
            points[block.points[rows[block.rows]]] = True
    return NamedSet(points, rows)


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
    if not cells.is_solid and "strip" in cells.blocks:
        return mask
    facets = (cells.boundary() if cells.is_solid else surface_facets(cells)).corners
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
        keys = [k for k in data if k.startswith(PREFIX) and k != _NAMES]
        listed += [k.removeprefix(PREFIX) for k in keys]
        listed += [k for k in data if k not in (*keys, _NUMBERS) and _is_mask(data[k])]
        if _NUMBERS in data and names is not None:
            listed += [str(text) for text in np.ravel(names).tolist()]
        elif _NUMBERS in data and np.asarray(data[_NUMBERS]).dtype.kind in "iu":
            numbers = np.unique(data[_NUMBERS])
            listed += [str(k) for k in numbers[numbers > 0].tolist()[:8]]
    return sorted(set(listed))
