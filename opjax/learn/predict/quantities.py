"""Quantities of interest of predicted fields, on the meshes of samples."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from opjax import geometry, quadrature, quantities
from opjax.learn.config.quantities import ACROSS_FLOW, FORCES, Quantity, Value
from opjax.samples import Sample

# Kinds of cells by dimension and number of corners.
_OF_CORNERS = {
    **{(2, 3): "triangle", (2, 4): "quad", (3, 4): "tetra"},
    **{(3, 5): "pyramid", (3, 6): "wedge", (3, 8): "hexahedron"},
}


class _Wall(NamedTuple):
    """A boundary, with normals out of the fluid; those of a body's surface turned."""

    facets: np.ndarray
    outwards: float


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
    n = sample.num_points
    if wanted.is_force:
        wall = _wall(wanted, sample)
        edges = geometry.open_edges(_merged(sample.mesh_points, wall.facets))
        if len(edges):
            raise ValueError(
                f"the wall is open at {len(edges)} edges (ends, in the plane): the "
                "force of a constant pressure on it is not zero. Name the whole wall "
                "of a body, or close the surface."
            )
        points = np.asarray(sample.mesh_points, np.float64)
        vectors = geometry.point_area_vectors(points, wall.facets)
        return np.ones(n), wall.outwards * vectors
    if wanted.kind in ("max", "min"):
        if not wanted.boundary:
            return np.ones(n), None
        weights = np.zeros(n)
        weights[_named(wanted, sample)] = 1
        return weights, None
    if wanted.boundary:
        return _areas(sample, _wall(wanted, sample).facets), None
    if sample.quadrature_weights is not None:
        return np.asarray(sample.quadrature_weights, np.float64), None
    if sample.cells is None:
        raise ValueError(
            "the sample has neither quadrature_weights nor cells; add weights to its "
            "file."
        )
    points = np.asarray(sample.mesh_points, np.float64)
    return quadrature.cell_weights(points, sample.cells), None


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


def _wall(wanted: Quantity, sample: Sample) -> _Wall:
    """Facets of the boundary that a quantity names, or of a surface as a whole."""
    points, cells = np.asarray(sample.mesh_points, np.float64), sample.cells
    if cells is None:
        raise ValueError(
            "normals need fields at points and cells of one kind, which the sample "
            "does not have; see --location and the cells of its file."
        )
    n, p = points.shape
    shape = p, cells.shape[1]
    on_wall = np.ones(n, bool)
    if wanted.boundary:
        on_wall = np.zeros(n, bool)
        on_wall[_named(wanted, sample)] = True
    if shape in ((2, 2), (3, 3)):  # the surface of a body
        facets, outwards = cells, -1.0
        if geometry.enclosed_volume(points, facets) < 0:
            facets = facets[:, ::-1]
    elif shape not in _OF_CORNERS:
        raise ValueError(
            f"cells of {shape[1]} corners in {p} dimensions have no known facets."
        )
    elif not wanted.boundary:
        raise ValueError("name the wall, as in " + f"{wanted.kind}:{wanted.field}@wall")
    else:
        kind, outwards = _OF_CORNERS[shape], 1.0
        facets = geometry.boundary_facets(points, {kind: cells}).corners
        # Tetrahedra of a mesh share faces, quads of a surface only edges.
        if kind == "tetra" and len(cells) > 1 and len(facets) == 4 * len(cells):
            raise ValueError(
                "cells of four corners share no faces, so they are taken for quads of "
                "a surface; give its triangles."
            )
    chosen = facets[on_wall[facets].all(axis=1)]
    if not len(chosen):
        raise ValueError(
            f"no facet has all its points in the boundary {wanted.boundary!r}."
        )
    return _Wall(chosen, outwards)


def _merged(points: np.ndarray, facets: np.ndarray) -> np.ndarray:
    """Facets with one number for all points in one place, as at a trailing edge."""
    _, places = np.unique(points, axis=0, return_inverse=True)
    return places.reshape(-1)[facets]


def _areas(sample: Sample, facets: np.ndarray) -> np.ndarray:
    """Lumped areas (lengths) of facets at their points, `(n,)`."""
    points = np.asarray(sample.mesh_points, np.float64)
    parts = [facets]
    if facets.shape[1] > 2:  # fans of triangles; a repeated corner adds nothing
        middle = range(1, facets.shape[1] - 1)
        parts = [facets[:, [0, i, i + 1]] for i in middle]
    found = np.zeros(len(points))
    for part in parts:
        vectors = geometry.facet_area_vectors(points, part)
        areas = np.linalg.norm(vectors, axis=1) / part.shape[1]
        np.add.at(found, part, areas[:, None])
    return found


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
    given = {key: _constant(value, sample, names) for key, value in wanted.references}
    if given:
        force = quantities.coefficient(force, **given)
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
