"""Named boundaries of meshes, and features of the geometry."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from opjax import geometry
from opjax.files import boundary_sets, cases
from opjax.files import patches as rules
from opjax.files.boundary_sets import PREFIX, NamedSet
from opjax.files.npz import Arrays
from opjax.files.options import Names, ReadOptions
from opjax.files.topology import Topology, topology
from opjax.files.vtk.fields import axes_of
from opjax.samples import Patch
from opjax.samples.base import AXES

_SOME = 500  # facets that are looked at
_MOST_INSIDE = 0.25  # of the facets of a boundary that may be sides of cracks


class Geometric(NamedTuple):
    """Boundaries and geometric features of a sample.

    Attributes:
      values: additional features, `(n, c)`.
      channels: their names.
      boundaries: indices of the points (or cells) of each named boundary, sorted.
      patches: quadrature rules on the boundaries, if requested.
    """

    values: np.ndarray
    channels: tuple[str, ...]
    boundaries: dict[str, np.ndarray]
    patches: dict[str, Patch] | None = None


def of(
    name: str, arrays: Arrays, options: ReadOptions, row: cases.Row | None = None
) -> Geometric:
    """Computes indicators of named boundaries, distances to them and normals.

    Args:
      name: name of the sample, for messages.
      arrays: arrays of the file.
      options: requested boundaries and features, and whether a row of the sample is a
        point or a cell.
      row: the row of the sample in a table of cases, for scalars in conditions.

    Raises:
      ValueError: if there is no such boundary, it has no facets, or required cells are
        missing.
    """
    location, features = options.location, options.geometry
    on_cells = location == "cells"
    conditions = options.conditions
    on_boundary = conditions and boundary_sets.has_cells(arrays)
    cells = None
    if features or on_cells or options.facets or on_boundary:
        cells = topology(name, arrays)
    num_points = len(arrays["mesh_points"])
    facets = None
    if cells is not None:
        beside = on_cells and bool(options.boundary_names or conditions)
        outside = cells.is_solid and bool(options.facets or conditions)
        if features or beside or outside:
            facets = _facets(cells, surface=bool(features))
    sets = boundary_sets.named_sets(name, arrays, options, row, cells, facets)
    if features and cells is not None and facets is not None:
        _check_conforming(cells, facets.corners)
    axes = axes_of(arrays)
    columns = [np.zeros((num_points, 0), np.float32)]
    channels: list[str] = []
    members: dict[str, np.ndarray] = {}
    if on_cells and cells is not None:
        columns = [np.zeros((len(cells.rows), 0), np.float32)]
    for key, one in sets.items():
        mask = one.points
        if on_cells:
            assert cells is not None
            mask = _touching(cells, facets, one)[cells.rows]
        members[key] = np.flatnonzero(mask)
        columns.append(mask[:, None].astype(np.float32))
        channels.append(f"{PREFIX}{key}")
    if features:
        assert cells is not None
        assert facets is not None
        for key in tuple(sets) or ("",):
            points = sets[key].points if key else np.ones(num_points, bool)
            corners = _with_facets(cells, facets, points).corners
            chosen = _chosen(name, key, corners, points)
            if not cells.is_solid:
                turned = _outwards(cells, corners, chosen)
            else:
                turned = corners[chosen]
            measures = _measures(cells, turned, location, features, axes, whole=not key)
            columns += [array.astype(np.float32) for array in measures.values()]
            ending = f"_{key}" if key else ""
            channels += [f"{what}{ending}" for what in measures]
    values, patches = np.concatenate(columns, axis=1), None
    if options.facets:
        assert cells is not None
        try:
            of_boundaries = _patches(cells, facets, sets, on_cells=on_cells)
        except ValueError as error:
            raise ValueError(f"{name}: the facets of boundaries: {error}") from error
        patches = {
            key: patch._replace(axes=axes) for key, patch in of_boundaries.items()
        }
    return Geometric(values, tuple(channels), members, patches)


def _patches(
    cells: Topology,
    facets: geometry.Facets | None,
    sets: Mapping[str, NamedSet],
    *,
    on_cells: bool,
) -> dict[str, Patch]:
    """Rules of integration over named boundaries, and over a surface as a whole.

    A boundary without facets has none.
    """
    solid = cells.is_solid
    if facets is None or not solid:
        facets = _facets(cells, surface=not solid)
    chosen: dict[str, geometry.Facets] = {}
    for key, one in sets.items():
        of_set = _with_facets(cells, facets, one.points)
        mask = one.points[of_set.corners].all(axis=1)
        if not solid and one.cells is not None and one.cells.any():
            mask = one.cells[of_set.cells]
        chosen[key] = geometry.Facets(of_set.corners[mask], of_set.cells[mask])
    if not solid:
        chosen[""] = facets
    patches: dict[str, Patch] = {}
    for key, (corners, of_cells) in chosen.items():
        own = np.searchsorted(cells.rows, of_cells) if on_cells else None
        if not len(corners):
            continue
        if not solid:
            kind = next(iter(cells.blocks))
            patches[key] = rules.of_body(cells.points, corners, kind, own)
        elif own is None:
            patches[key] = rules.at_points(cells.points, corners)
        else:
            patches[key] = rules.at_cells(cells.points, corners, own)
    return patches


def _facets(cells: Topology, *, surface: bool) -> geometry.Facets:
    """Facets of a mesh: of its boundary; of a surface in space, its own cells."""
    if cells.dimension == cells.points.shape[1] - 1 and surface:
        if "strip" in cells.blocks or (
            cells.dimension == 1 and boundary_sets.most_corners(cells) > 2
        ):
            raise ValueError(
                f"{cells.name} has strips or polylines; save "
                "pyvista.read(old).triangulate()."
            )
        return boundary_sets.surface_facets(cells)
    if cells.dimension < 2:
        raise ValueError(
            f"{cells.name} contains only lines, but boundaries need surfaces or solids."
        )
    return cells.boundary()


def _with_facets(
    cells: Topology, facets: geometry.Facets, points: np.ndarray
) -> geometry.Facets:
    """The facets, or those inside a mesh too where only these belong to a boundary.

    The interface of two blocks, each with its own points, may have a name.
    """
    if not cells.is_solid or points[facets.corners].all(axis=1).any():
        return facets
    return cells.boundary(joined=False)


def _check_conforming(cells: Topology, facets: np.ndarray) -> None:
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
            f"{cells.name}: about {share:.0%} of the faces with only one cell are "
            "inside the mesh, because neighbouring cells divide them differently. "
            "Normals and distances would refer to these inner faces. Tetrahedra "
            "that pyvista's triangulate() creates from second-order cells have "
            "this problem: use the file with second-order cells, or a mesh of "
            "first-order cells."
        )


def _outwards(cells: Topology, facets: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Chosen facets of a surface as its closed parts are seen from outside.

    Parts that none of them belongs to have no say, and may be open.

    Args:
      name: name of the sample, for messages.
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
            f"{cells.name} is an open surface: {len(error.edges)} edges, the first one "
            f"between points {error.edges[0].tolist()}, have no neighbour. Normals "
            "and distances need a closed surface; close it, or omit --geometry."
        ) from error
    except ValueError as error:
        raise ValueError(f"{cells.name}: {error}") from error
    return turned[chosen[whole]]


def _measures(
    cells: Topology,
    facets: np.ndarray,
    location: str,
    features: Names,
    axes: Sequence[int],
    *,
    whole: bool,
) -> dict[str, np.ndarray]:
    """Columns of normals and distances by name."""
    points, p = cells.points, cells.points.shape[1]
    of_distance = [kind for kind in ("distance", "layers") if kind in features]
    if cells.dimension < p and of_distance and whole:
        raise ValueError(
            f"{cells.name} is a surface, so the distance of its points is zero; omit "
            f"{' and '.join(of_distance)}, or name a part of it with --boundary_names."
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
        named = [AXES[axis] for axis in axes or range(p)]
        measures |= {f"normal_{n}": normals[:, [i]] for i, n in enumerate(named)}
    if "distance" in features:
        measures["distance"] = nearest.distance[:, None]
    if "layers" in features:
        for kind, values in geometry.layers(nearest.distance, points, facets).items():
            measures[f"layer_{kind}"] = values[:, None]
    return measures


def _chosen(name: str, key: str, facets: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Which facets have all their points in a named boundary, `(m,)`; at least one."""
    inside = np.asarray(points[facets].all(axis=1))
    if key and not inside.any():
        raise ValueError(
            f"{name}: no facet on the boundary of the mesh lies in {key!r}; normals "
            "and distances need at least one."
        )
    return inside


def _touching(
    cells: Topology, facets: geometry.Facets | None, one: NamedSet
) -> np.ndarray:
    """Which cells of the file have a facet in a named boundary, or are marked."""
    mask = np.zeros(cells.num_cells, bool)
    if one.cells is not None:
        mask |= one.cells
    if facets is not None:
        facets = _with_facets(cells, facets, one.points)
        mask[facets.cells[one.points[facets.corners].all(axis=1)]] = True
    return mask
