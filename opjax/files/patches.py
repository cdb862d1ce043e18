"""Facets of named boundaries, for integrals of point data or cell data over them.

If fields are cell data, a facet has the value of its cell. This is exact if the normal
derivative is zero, as for the pressure on a wall; otherwise it is the value half a cell
away. If fields are point data, a facet uses the values at its corners.
"""

import jax
import jax.numpy as jnp
import numpy as np

from opjax import geometry
from opjax.samples import Patch


def at_points(points: np.ndarray, facets: np.ndarray) -> Patch:
    """Distributes the areas of facets to their points.

    Args:
      points: points of the mesh, `(n, p)`.
      facets: point indices, `(m, corners)`, oriented out of the mesh.
    """
    points = np.asarray(points, np.float64)
    vectors = geometry.point_area_vectors(points, facets)
    parts, _ = geometry.facet_triangles(points, facets)
    sizes = np.linalg.norm(geometry.facet_area_vectors(points, parts), axis=1)
    share = sizes.repeat(parts.shape[1]) / parts.shape[1]
    areas = np.bincount(parts.reshape(-1), share, minlength=len(points))
    rows = np.unique(facets)
    return Patch(
        rows,
        areas[rows],
        vectors[rows],
        points[rows],
        _num_open(points, facets),
        facets=np.asarray(facets),
    )


def moved(patch: Patch, points: np.ndarray, places: jax.Array) -> Patch:
    """Returns the rule of `at_points` for moved points, with JAX arrays.

    Args:
      patch: rule at the points of a mesh; a rule for cells is unchanged.
      points: original points of that mesh, `(n, p)`, which define how polygons are
        divided.
      places: moved points, `(n, p)`.
    """
    if patch.facets is None:
        return patch
    vectors = geometry.point_area_vectors(places, patch.facets)[patch.rows]
    parts, _ = geometry.facet_triangles(points, patch.facets)
    squares = (geometry.facet_area_vectors(places, parts) ** 2).sum(axis=1)
    flat = squares <= 0
    sizes = jnp.where(flat, 0, jnp.sqrt(jnp.where(flat, 1, squares)))
    share = jnp.repeat(sizes / parts.shape[1], parts.shape[1])
    areas = jnp.zeros(len(points), share.dtype).at[parts.reshape(-1)].add(share)
    # Points that do not count have no area.
    return patch._replace(
        areas=jnp.where(patch.areas == 0, 0, areas[patch.rows]),
        area_vectors=vectors,
        centers=places[patch.rows],
    )


def at_cells(points: np.ndarray, facets: np.ndarray, rows: np.ndarray) -> Patch:
    """Assigns the areas of facets to their cells.

    Args:
      points: points of the mesh, `(n, p)`.
      facets: point indices, `(m, corners)`, oriented out of the mesh.
      rows: index of the sample's cell for each facet, `(m,)`.
    """
    points = np.asarray(points, np.float64)
    vectors = geometry.facet_area_vectors(points, facets)
    parts, owners = geometry.facet_triangles(points, facets)
    sizes = np.linalg.norm(geometry.facet_area_vectors(points, parts), axis=1)
    areas = np.bincount(owners, sizes, minlength=len(facets))
    middles = points[parts].mean(axis=1) * sizes[:, None]
    centers = np.stack(
        [np.bincount(owners, column, minlength=len(facets)) for column in middles.T], 1
    )
    centers /= np.maximum(areas, np.finfo(float).tiny)[:, None]
    return Patch(rows, areas, vectors, centers, _num_open(points, facets))


def of_body(
    points: np.ndarray, facets: np.ndarray, kind: str, rows: np.ndarray | None = None
) -> Patch:
    """Assigns the areas of a body's surface to its points or cells, oriented inwards.

    Args:
      points: points of the surface, `(n, p)`.
      facets: its cells, `(m, corners)`, in any orientation.
      kind: type of the cells.
      rows: indices of the sample's cells, `(m,)`; None for point data.
    """
    points, num_open = np.asarray(points, np.float64), 0
    try:
        facets = geometry.outward_facets(points, facets)
    except geometry.OpenSurfaceError as error:
        num_open = len(error.edges)
    rule = at_points(points, facets) if rows is None else at_cells(points, facets, rows)
    if rule.facets is not None:
        rule = rule._replace(facets=rule.facets[:, ::-1])
    vectors = -rule.area_vectors
    return rule._replace(area_vectors=vectors, open_edges=num_open, surface=kind)


def _num_open(points: np.ndarray, facets: np.ndarray) -> int:
    """Number of open edges, where points in one place are one: at a trailing edge."""
    _, places = np.unique(points, axis=0, return_inverse=True)
    return len(geometry.open_edges(places.reshape(-1)[facets]))
