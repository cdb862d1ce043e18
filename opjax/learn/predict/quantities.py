"""Quantities of interest of predicted fields, on the meshes of samples."""

from collections.abc import Mapping, Sequence

import jax
import numpy as np

from opjax import geometry, quadrature, quantities
from opjax.files import components, patches
from opjax.learn.config.quantities import (
    ACROSS_FLOW,
    EXTREMES,
    FLUX,
    FORCES,
    MOMENTS,
    SUM,
    Quantity,
    Value,
)
from opjax.samples import Patch, Sample

Names = Mapping[str, Sequence[str]]

# Kinds of cells by dimension and number of corners, but for four of them in space.
_OF_CORNERS = {
    **{(2, 2): "line", (2, 3): "triangle", (2, 4): "quad", (3, 3): "triangle"},
    **{(3, 5): "pyramid", (3, 6): "wedge", (3, 8): "hexahedron"},
}
_ACROSS_PLANE = 0.1  # of a vector, that may point out of the plane of its mesh


def measure(
    wanted: Sequence[Quantity],
    sample: Sample,
    fields: Sequence[np.ndarray],
    names: Names,
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
            rule = _rule(one, sample)
            for row, values in zip(rows, fields, strict=True):
                field = _field(one, np.asarray(values, np.float64), names)
                with jax.enable_x64(True):
                    row[one.text] = _value(one, sample, names, field[rule.rows], rule)
        except ValueError as error:
            raise ValueError(f"{sample.name}: {one.text}: {error}") from None
    return rows


def _field(wanted: Quantity, values: np.ndarray, names: Names) -> np.ndarray:
    """Values of the field that a quantity names, `(n, c)`.

    It is a predicted field, a component of one, or a vector whose components are
    predicted. It has one channel, but for sums and fluxes.
    """
    listed = list(names.get("target", ())) or ["target"] * values.shape[1]
    fields = {
        name: values[:, [i for i, other in enumerate(listed) if other == name]]
        for name in dict.fromkeys(listed)
    }
    found, name = fields.get(wanted.field), wanted.field
    parts = components.split(name, fields)
    if found is None and parts is not None:
        component = components.component(fields[parts[0]], parts[1])
        found = None if component is None else component[:, None]
    of_vector = [fields[key] for a in "xyz" if (key := f"{name}_{a}") in fields]
    if found is None and len(of_vector) > 1:
        found = np.concatenate(of_vector, axis=1)
    every = [
        part
        for key, field in fields.items()
        for part in (key, *components.listed(key, field.shape[1]))
    ]
    if found is None:
        raise ValueError(
            f"the field {name!r} has 0 predicted channels, expected one; predicted are "
            f"{', '.join(every)}."
        )
    count, vector = found.shape[1], wanted.kind in (SUM, FLUX)
    if count != 1 and not (vector and count <= 3):
        known = components.listed(name, count)
        raise ValueError(
            f"the field {name!r} has {count} predicted channels, expected one; "
            + (f"name one of {', '.join(known)}." if known else "predict one alone.")
        )
    return found


def _rule(wanted: Quantity, sample: Sample) -> Patch:
    """Which rows of a sample count for a quantity, and with which weights."""
    points, counted = np.asarray(sample.mesh_points, np.float64), _counted(sample)
    if wanted.is_over_facets:
        return _of_facets(wanted, points, counted, sample)
    mask = _on_boundary(wanted, sample)
    if wanted.kind == SUM:
        if masked := int((mask & ~counted).sum()):
            raise ValueError(
                f"{masked} of its points have weight zero, whose values count for "
                "nothing; a sum needs all of them."
            )
        return _without_areas(mask, points)
    if wanted.kind in EXTREMES:
        return _without_areas(_some(mask & counted), points)
    weights = sample.quadrature_weights
    if weights is None:
        if sample.cells is None:
            raise ValueError(
                "the sample has neither quadrature_weights nor cells; add weights to "
                "its file."
            )
        weights = quadrature.cell_weights(points, sample.cells)
    return _without_areas(mask, points)._replace(areas=np.asarray(weights, np.float64))


def _of_facets(
    wanted: Quantity, points: np.ndarray, counted: np.ndarray, sample: Sample
) -> Patch:
    patch = dict(sample.patches or {}).get(wanted.boundary)
    if patch is None:
        patch = _from_cells(wanted, points, sample)
    if patch.open_edges:
        _check_closed(wanted, patch)
    wrong = ~counted[patch.rows]
    if wanted.is_force or wanted.kind == FLUX:
        masked = int((patch.area_vectors[wrong] != 0).any(axis=1).sum())
        if masked:
            raise ValueError(
                f"the wall has {masked} points of weight zero, whose values count for "
                "nothing; a force needs the pressure at all of its points."
            )
        return patch
    _some(~wrong & (patch.areas > 0))
    return patch._replace(areas=np.where(wrong, 0, patch.areas))


def _check_closed(wanted: Quantity, patch: Patch) -> None:
    """Raises ValueError for a quantity that means nothing on an open boundary."""
    edges = f"open at {patch.open_edges} edges (ends, in the plane)"
    if patch.surface and (wanted.is_force or wanted.kind == FLUX):
        raise ValueError(
            f"the wall, {patch.surface}s of a surface, is {edges}, so its inside is "
            "not known. Name the whole wall of a body, or close the surface."
        )
    if wanted.needs_closed:
        raise ValueError(
            f"the wall is {edges}: the force of a constant pressure on it is not zero. "
            "Name the whole wall of a body, or give the pressure on the other side of "
            f"the wall, {wanted.text}:reference=0."
        )


def _without_areas(mask: np.ndarray, points: np.ndarray) -> Patch:
    """A rule that takes some rows with weights of one."""
    rows = np.flatnonzero(mask)
    none = np.zeros((len(rows), points.shape[1]))
    return Patch(rows, np.ones(len(rows)), none, points[rows])


def _counted(sample: Sample) -> np.ndarray:
    """Which points count, `(n,)`: those of positive weight."""
    if sample.quadrature_weights is None:
        return np.ones(sample.num_points, bool)
    return np.asarray(sample.quadrature_weights) > 0


def _some(mask: np.ndarray) -> np.ndarray:
    """Points that count, of which there must be one."""
    if not mask.any():
        raise ValueError("all of its points have weight zero, so nothing is known.")
    return mask


def _on_boundary(wanted: Quantity, sample: Sample) -> np.ndarray:
    """Which points are in the boundary that a quantity names, if any; `(n,)`."""
    mask = np.ones(sample.num_points, bool)
    if wanted.boundary:
        mask[:] = False
        mask[_named(wanted, sample)] = True
    return mask


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


def _from_cells(wanted: Quantity, points: np.ndarray, sample: Sample) -> Patch:
    """Facets of a boundary, or of a surface as a whole, by the sample's own cells."""
    on_wall = _on_boundary(wanted, sample)
    cells = sample.cells
    if cells is None:
        raise ValueError(
            "facets need fields at points and cells of one kind, which the sample "
            "does not have; see --location and the cells of its file."
        )
    kind = _kind_of(points, cells)
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
    if surface:
        return patches.of_body(points, chosen, kind)
    return patches.at_points(points, chosen)


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


def _value(
    wanted: Quantity, sample: Sample, names: Names, field: np.ndarray, rule: Patch
) -> float:
    """A quantity of the values `(r, c)` of its field at the rows of its rule."""
    if wanted.kind == FLUX:
        return float(np.sum(_in_space(field, rule.area_vectors) * rule.area_vectors))
    if wanted.kind == SUM:
        return (
            float(np.linalg.norm(field.sum(axis=0)))
            if field.shape[1] > 1
            else (float(field.sum()))
        )
    values = field[:, 0]
    if not wanted.is_force:
        return float(_REDUCTIONS[wanted.kind](*_padded(values, rule.areas)))
    reference, times = (
        _constant(dict(wanted.references).get(key, usual), sample, names)
        for key, usual in (("reference", 0.0), ("kinematic", 1.0))
    )
    values = times * (values - reference)
    if wanted.kind in MOMENTS:
        found = _moment(wanted, values, rule)
    else:
        found = np.asarray(quantities.force(*_padded(values, rule.area_vectors)))
    if wanted.is_coefficient:
        density, speed, area = (
            _constant(dict(wanted.references).get(key, 1.0), sample, names)
            for key in ("density", "speed", "area")
        )
        found = np.asarray(
            quantities.coefficient(found, density=density, speed=speed, area=area)
        )
    if wanted.kind in ACROSS_FLOW:
        return _across(wanted, found, _constant(wanted.angle or 0.0, sample, names))
    axis = (FORCES if wanted.kind in FORCES else MOMENTS).index(wanted.kind)
    if wanted.kind in MOMENTS and found.size == 1:
        return float(found)
    if axis >= len(found):
        raise ValueError(f"the mesh has {len(found)} dimensions only.")
    return float(found[axis])


_REDUCTIONS = {
    "max": quantities.maximum,
    "min": quantities.minimum,
    "mean": quantities.mean,
    "integral": quantities.integral,
}


def _moment(wanted: Quantity, values: np.ndarray, rule: Patch) -> np.ndarray:
    """The moment of a pressure, `(3,)` in space, a number in the plane."""
    p = rule.centers.shape[1]
    about = np.array(wanted.about or [0.0] * p)
    if p == 2 and wanted.kind != MOMENTS[2]:
        raise ValueError("the mesh has 2 dimensions only, whose moment is moment_z.")
    if len(about) != p and not (p == 2 and len(about) == 3):
        raise ValueError(
            f"about= has {len(about)} coordinates, but the mesh {p} dimensions."
        )
    arrays = _padded(values, rule.area_vectors, rule.centers)
    return np.asarray(quantities.moment(*arrays, center=about[:p]))


def _across(wanted: Quantity, force: np.ndarray, angle: float) -> float:
    """Drag or lift of a force in the plane."""
    if len(force) != 2:
        raise ValueError(
            "drag and lift are those of flows in the plane; ask for force_x, force_y "
            "or force_z."
        )
    angle = np.deg2rad(angle) if wanted.degrees else angle
    both = quantities.drag_and_lift(force, angle=angle)
    return float(both[ACROSS_FLOW.index(wanted.kind)])


def _in_space(field: np.ndarray, area_vectors: np.ndarray) -> np.ndarray:
    """Vectors of a flux, in as many dimensions as the mesh has."""
    count, p = field.shape[1], area_vectors.shape[1]
    if count < max(p, 2):
        raise ValueError(
            f"the field has {count} channels, but the mesh {p} dimensions; a flux is "
            "one of a vector, such as flux:U@outlet."
        )
    across, size = np.linalg.norm(field[:, p:]), np.linalg.norm(field)
    if across > _ACROSS_PLANE * size:
        raise ValueError(
            "the vectors point out of the plane of the mesh; a flux needs the plane "
            "of the first two axes."
        )
    return field[:, :p]


def _constant(value: Value, sample: Sample, names: Names) -> float:
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
