"""Geometry of meshes: volumes and centroids of cells, boundaries, normals, distances.

Functions of coordinates accept NumPy arrays, with computation in double precision on
the host, or JAX arrays, which keep their dtype and can be differentiated and compiled.
Mesh topology, which does not depend on coordinates, is computed on the host.
"""

from opjax.geometry.boundaries import boundary_facets, cell_facets, open_edges
from opjax.geometry.cells import KINDS, cell_centers, cell_volumes, invalid_cells
from opjax.geometry.distances import Nearest, distance, layers, nearest_facets
from opjax.geometry.facets import (
    Facets,
    enclosed_volume,
    facet_area_vectors,
    point_area_vectors,
    point_normals,
)
from opjax.geometry.orientation import (
    OpenSurfaceError,
    outward_facets,
    surface_parts,
)
from opjax.geometry.polyhedra import outward_polyhedra
from opjax.geometry.sensors import Sensors, sensors
from opjax.geometry.shares import point_shares
from opjax.geometry.triangles import facet_triangles

__all__ = [
    "KINDS",
    "Facets",
    "Nearest",
    "OpenSurfaceError",
    "Sensors",
    "boundary_facets",
    "cell_centers",
    "cell_facets",
    "cell_volumes",
    "distance",
    "enclosed_volume",
    "facet_area_vectors",
    "facet_triangles",
    "invalid_cells",
    "layers",
    "nearest_facets",
    "open_edges",
    "outward_facets",
    "outward_polyhedra",
    "point_area_vectors",
    "point_normals",
    "point_shares",
    "sensors",
    "surface_parts",
]
