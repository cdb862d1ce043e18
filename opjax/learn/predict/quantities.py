"""Quantities of interest of predicted fields, on the meshes of samples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from opjax import geometry, quadrature, quantities
from opjax.learn.config.quantities import ACROSS_FLOW, FORCES, Quantity, Value
from opjax.samples import Sample

# Kinds of cells by dimension and number of corners, but for four of them in space.
_OF_CORNERS = {
    **{(2, 2): "line", (2, 3): "triangle", (2, 4): "quad", (3, 3): "triangle"},
    **{(3, 5): "pyramid", (3, 6): "wedge", (3, 8): "hexahedron"},
}


class _Wall(NamedTuple):
    """Facets of a boundary: of a mesh of the fluid, or of a body's surface.

    Attributes:
      facets: point indices; those of a mesh of the fluid look out of it.
      surface: the kind of the cells of a surface; empty for a mesh of the fluid.
    """

    facets: np.ndarray
    surface: str = ""


def measure(
    wanted: Sequence[Quantity],
    sample: Sample,
    fields: Sequence[np.ndarray],
    names: Mapping[str, Sequence[str]],
) -> list[dict[str, float]]:
    """Computes quantities of several fields on the mesh of one sample.

    Args:
      wanted: what to compute.
      sample: the mesh, with its inputs in physical units.
      fields: values `(n, q)` at its points, such as predicted and true ones.
      names: of the channels of `features` and `target`.

    Returns:
      For each of the fields, numbers by the text of the quantity.

    Raises:
      ValueError: if a field or boundary is unknown, weights or cells are missing, a
        wall is open, or a reference value is no constant. The message names the sample.
    """
    rows: list[dict[str, float]] = [{} for _ in fields]
    for one in wanted:
        try:
            column = _column(one, names.get("target", ()), fields[0].shape[1])
            weights, vectors = _weights(one, sample)
            for row, values in zip(rows, fields, strict=True):
                values = np.asarray(values[:, column], np.float64)
                with jax.enable_x64(True):
                    row[one.text] = _value(one, sample, names, values, weights, vectors)
        except ValueError as error:
            raise ValueError(f"{sample.name}: {one.text}: {error}") from None
    return rows


def _column(wanted: Quantity, targets: Sequence[str], count: int) -> int:
    listed = list(targets) or ["target"] * count
    places = [i for i, name in enumerate(listed) if name == wanted.field]
    if len(places) != 1:
        raise ValueError(
            f"the field {wanted.field!r} has {len(places)} predicted channels, "
            f"expected one; predicted are {', '.join(listed)}."
        )
    return places[0]


def _weights(wanted: Quantity, sample: Sample) -> tuple[np.ndarray, np.ndarray | None]:
    """Weights of the points, `(n,)`, and of forces their area vectors, `(n, p)`."""
    points, counted = np.asarray(sample.mesh_points, np.float64), _counted(sample)
    if wanted.is_force:
        vectors = _area_vectors(points, _wall(wanted, sample))
        if masked := int((vectors[~counted] != 0).any(axis=1).sum()):
            raise ValueError(
                f"the wall has {masked} points of weight zero, whose values count for "
                "nothing; a force needs the pressure at all of its points."
            )
        return np.ones(len(points)), vectors
    if wanted.kind in ("max", "min"):
        if wanted.boundary:
            counted = counted & _on_boundary(wanted, sample)
        return _some(counted.astype(np.float64)), None
    if wanted.boundary:
        areas = _areas(points, _wall(wanted, sample).facets)
        return _some(np.where(counted, areas, 0)), None
    if sample.quadrature_weights is not None:
        return np.asarray(sample.quadrature_weights, np.float64), None
    if sample.cells is None:
        raise ValueError(
            "the sample has neither quadrature_weights nor cells; add weights to its "
            "file."
        )
    return quadrature.cell_weights(points, sample.cells), None


def _counted(sample: Sample) -> np.ndarray:
    """Which points count, `(n,)`: those of positive weight."""
    if sample.quadrature_weights is None:
        return np.ones(sample.num_points, bool)
    return np.asarray(sample.quadrature_weights) > 0


def _some(weights: np.ndarray) -> np.ndarray:
    """Weights, not all of which may be zero."""
    if not weights.any():
        raise ValueError("all of its points have weight zero, so nothing is known.")
    return weights


def _area_vectors(points: np.ndarray, wall: _Wall) -> np.ndarray:
    """Area vectors of the points of a closed wall, out of the fluid, `(n, p)`."""
    what = f"the wall, {wall.surface}s of a surface," if wall.surface else "the wall"
    facets = wall.facets
    edges = geometry.open_edges(_merged(points, facets))
    if wall.surface:
        try:
            facets, edges = geometry.outward_facets(points, facets), edges[:0]
        except geometry.OpenSurfaceError as error:
            edges = error.edges
    if len(edges):
        raise ValueError(
            f"{what} is open at {len(edges)} edges (ends, in the plane): the force of "
            "a constant pressure on it is not zero. Name the whole wall of a body, or "
            "close the surface."
        )
    vectors = geometry.point_area_vectors(points, facets)
    return -vectors if wall.surface else vectors


def _named(wanted: Quantity, sample: Sample) -> np.ndarray:
    known = dict(sample.boundaries or {})
    if wanted.boundary not in known:
        listed = ", ".join(known) or "none"
        raise ValueError(
            f"the boundary {wanted.boundary!r} is unknown, known are: {listed}. Name "
            f"it when training, --boundary_names={wanted.boundary}."
        )
    found = np.asarray(known[wanted.boundary])
    if not found.size:
        raise ValueError(f"the boundary {wanted.boundary!r} has no points.")
    return found


def _on_boundary(wanted: Quantity, sample: Sample) -> np.ndarray:
    """Which points are in the boundary that a quantity names, if any; `(n,)`."""
    mask = np.ones(sample.num_points, bool)
    if wanted.boundary:
        mask[:] = False
        mask[_named(wanted, sample)] = True
    return mask


def _wall(wanted: Quantity, sample: Sample) -> _Wall:
    """Facets of the boundary that a quantity names, or of a surface as a whole."""
    points, cells = np.asarray(sample.mesh_points, np.float64), sample.cells
    if cells is None:
        raise ValueError(
            "normals need fields at points and cells of one kind, which the sample "
            "does not have; see --location and the cells of its file."
        )
    on_wall, kind = _on_boundary(wanted, sample), _kind_of(points, cells)
    surface = geometry.KINDS[kind].dimension < points.shape[1]
    if surface:
        facets = np.asarray(cells)
    elif not wanted.boundary:
        raise ValueError("name the wall, as in " + f"{wanted.kind}:{wanted.field}@wall")
    else:
        facets = geometry.boundary_facets(points, {kind: cells}).corners
    chosen = facets[on_wall[facets].all(axis=1)]
    if not len(chosen):
        raise ValueError(
            f"no facet has all its points in the boundary {wanted.boundary!r}."
        )
    return _Wall(chosen, kind if surface else "")


def _kind_of(points: np.ndarray, cells: np.ndarray) -> str:
    """The kind of the cells of a mesh, or of a surface."""
    shape = points.shape[1], cells.shape[1]
    if shape == (3, 4):
        return quadrature.kind_of_four(points, cells)
    if shape not in _OF_CORNERS:
        raise ValueError(
            f"cells of {shape[1]} corners in {shape[0]} dimensions have no known "
            "facets."
        )
    return _OF_CORNERS[shape]


def _merged(points: np.ndarray, facets: np.ndarray) -> np.ndarray:
    """Facets with one number for all points in one place, as at a trailing edge."""
    _, places = np.unique(points, axis=0, return_inverse=True)
    return places.reshape(-1)[facets]


def _areas(points: np.ndarray, facets: np.ndarray) -> np.ndarray:
    """Lumped areas (lengths) of facets at their points, `(n,)`."""
    parts, _ = geometry.facet_triangles(points, facets)
    vectors = geometry.facet_area_vectors(points, parts)
    areas = np.linalg.norm(vectors, axis=1) / parts.shape[1]
    return np.bincount(
        parts.reshape(-1), areas.repeat(parts.shape[1]), minlength=len(points)
    )


def _value(
    wanted: Quantity,
    sample: Sample,
    names: Mapping[str, Sequence[str]],
    values: np.ndarray,
    weights: np.ndarray,
    vectors: np.ndarray | None,
) -> float:
    simple = {
        "max": quantities.maximum,
        "min": quantities.minimum,
        "mean": quantities.mean,
        "integral": quantities.integral,
    }
    if vectors is None:
        return float(simple[wanted.kind](*_padded(values, weights)))
    force = quantities.force(*_padded(values, vectors))
    if wanted.references:
        references = dict(wanted.references)
        density, speed, area = (
            _constant(references.get(key, 1.0), sample, names)
            for key in ("density", "speed", "area")
        )
        force = quantities.coefficient(force, density=density, speed=speed, area=area)
    if wanted.kind in FORCES:
        axis = FORCES.index(wanted.kind)
        if axis >= len(force):
            raise ValueError(f"the mesh has {len(force)} dimensions only.")
        return float(force[axis])
    if len(force) != 2:
        raise ValueError(
            "drag and lift are those of flows in the plane; ask for force_x, force_y "
            "or force_z."
        )
    assert wanted.angle is not None
    angle = _constant(wanted.angle, sample, names)
    angle = np.deg2rad(angle) if wanted.degrees else angle
    both = quantities.drag_and_lift(force, angle=angle)
    return float(both[ACROSS_FLOW.index(wanted.kind)])


def _constant(
    value: Value, sample: Sample, names: Mapping[str, Sequence[str]]
) -> float:
    """A number, a scalar of the case, or the constant value of an input."""
    if not isinstance(value, str):
        return value
    scalars = list(names.get("scalars", ()))
    if sample.scalars is None:
        scalars = []
    listed = list(names.get("features", ())) if sample.features is not None else []
    if [*scalars, *listed].count(value) != 1:
        known = ", ".join([*scalars, *listed]) or "none"
        raise ValueError(
            f"there is no one scalar or input {value!r}; inputs are: {known}."
        )
    if value in scalars:
        assert sample.scalars is not None
        return float(sample.scalars[scalars.index(value)])
    assert sample.features is not None
    column = np.asarray(sample.features[:, listed.index(value)], np.float64)
    if np.ptp(column) > 1e-6 * np.abs(column).max():
        raise ValueError(
            f"the input {value!r} is between {column.min():.6g} and "
            f"{column.max():.6g}, expected a constant."
        )
    return float(column[0])


def _padded(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays with zero rows up to a power of two: few sizes are compiled."""
    n = len(arrays[0])
    rows = (1 << (n - 1).bit_length()) - n
    return [np.pad(a, [(0, rows)] + [(0, 0)] * (a.ndim - 1)) for a in arrays]
