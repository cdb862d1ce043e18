"""Quantities of interest of predicted fields on the meshes of samples."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import geometry, quadrature
from opjax.files import components, patches
from opjax.learn.config.quantities import EXTREMES, FLUX, MEANS, SHEARS, SUM, Quantity
from opjax.learn.predict.prediction import has_weight
from opjax.learn.predict.quantity_values import Names, value
from opjax.samples import Patch, Sample

# Kinds of cells by dimension and number of corners, but for four of them in space.
_OF_CORNERS = {
    **{(2, 2): "line", (2, 3): "triangle", (2, 4): "quad", (3, 3): "triangle"},
    **{(3, 5): "pyramid", (3, 6): "wedge", (3, 8): "hexahedron"},
}


def measure(
    wanted: Sequence[Quantity],
    sample: Sample,
    fields: Sequence[np.ndarray],
    names: Names,
) -> list[dict[str, float]]:
    """Computes quantities of several fields on the mesh of one sample.

    Args:
      wanted: quantities to compute.
      sample: the mesh, with its inputs in physical units.
      fields: values `(n, q)` at its points, for example predicted and true ones.
      names: names of the channels of `features` and `target`.

    Returns:
      For each of the fields, a dictionary of numbers by the text of the quantity.

    Raises:
      ValueError: if a field or boundary is unknown, weights or cells are missing, a
        wall is open, or a reference value is not constant. The message names the
        sample.
    """
    rows: list[dict[str, float]] = [{} for _ in fields]
    for one in wanted:
        try:
            rule = rule_of(one, sample)
            for row, values in zip(rows, fields, strict=True):
                field = field_of(one, np.asarray(values, np.float64), names)
                with jax.enable_x64(True):
                    number = value(one, sample, names, field[rule.rows], rule)
                    row[one.text] = float(number)
        except ValueError as error:
            raise ValueError(f"{sample.name}: {one.text}: {error}") from None
    return rows


class Measured:
    """A quantity on the mesh of a sample, as a function of JAX arrays.

    Args:
      wanted: quantities to compute.
      sample: the mesh, on the host.
      names: names of the channels of `scalars`, `features` and `target`.

    Raises:
      ValueError: as from `measure`.
    """

    def __init__(self, wanted: Quantity, sample: Sample, names: Names):
        channels = len(names.get("target", ())) or 1
        measure([wanted], sample, [np.zeros((sample.num_points, channels))], names)
        self._wanted, self._sample, self._names = wanted, sample, names
        self.num_channels = field_of(wanted, np.zeros((1, channels)), names).shape[1]
        self._rule = rule_of(wanted, sample)

    def __call__(self, case: Sample, values: jax.Array) -> jax.Array:
        """Computes the quantity; areas follow the points that a field is given at.

        Args:
          case: the arrays of the sample, which JAX may trace.
          values: of the predicted field, `(n, q)`.
        """
        quantity, rule = self._wanted, self._rule
        field, weights = (
            field_of(quantity, values, self._names),
            case.quadrature_weights,
        )
        if quantity.is_over_facets:
            points = np.asarray(self._sample.mesh_points, np.float64)
            rule = patches.moved(rule, points, jnp.asarray(case.mesh_points))
        elif quantity.kind in MEANS and weights is not None:
            rule = rule._replace(areas=weights)
        rule = rule._replace(areas=jnp.asarray(rule.areas, field.dtype))
        vectors = jnp.asarray(rule.area_vectors, field.dtype)
        rule = rule._replace(area_vectors=vectors)
        return value(quantity, case, self._names, field[rule.rows], rule)


def field_of(wanted: Quantity, values: Any, names: Names) -> Any:
    """Returns the values of the field that a quantity names, `(n, c)`.

    It is a predicted field, a component of one, or a vector whose components are
    predicted. It has one channel, but for sums and fluxes.

    Args:
      wanted: the quantity.
      values: all predicted channels, `(n, q)`, of NumPy or JAX.
      names: names of the channels of `target`.

    Raises:
      ValueError: if the field is unknown or has too many channels.
    """
    listed = list(names.get("target", ())) or ["target"] * values.shape[1]
    fields = {
        name: values[:, np.flatnonzero([other == name for other in listed])]
        for name in dict.fromkeys(listed)
    }
    channels, name = fields.get(wanted.field), wanted.field
    parts = components.split(name, fields)
    if channels is None and parts is not None:
        component = components.component(fields[parts[0]], parts[1])
        channels = None if component is None else component[:, None]
    of_vector = [fields[key] for a in "xyz" if (key := f"{name}_{a}") in fields]
    if channels is None and len(of_vector) > 1:
        channels = (jnp if isinstance(values, jax.Array) else np).concatenate(
            of_vector, axis=1
        )
    every = [
        part
        for key, field in fields.items()
        for part in (key, *components.listed(key, field.shape[1]))
    ]
    if channels is None:
        raise ValueError(
            f"the field {name!r} has 0 predicted channels, expected one; predicted "
            f"fields: {', '.join(every)}."
        )
    count, vector = channels.shape[1], wanted.kind in (SUM, FLUX, *SHEARS)
    if count != 1 and not (vector and count <= 3):
        parts_of_field = components.listed(name, count)
        raise ValueError(
            f"the field {name!r} has {count} predicted channels, expected one; "
            + (
                f"name one of {', '.join(parts_of_field)}."
                if parts_of_field
                else "predict one alone."
            )
        )
    return channels


def rule_of(wanted: Quantity, sample: Sample) -> Patch:
    """Returns which rows of a sample count for a quantity, and their weights.

    Args:
      wanted: the quantity.
      sample: the mesh, on the host.

    Raises:
      ValueError: as from `measure`.
    """
    points, counted = np.asarray(sample.mesh_points, np.float64), has_weight(sample)
    if wanted.is_over_facets:
        return _of_facets(wanted, points, counted, sample)
    mask = _on_boundary(wanted, sample)
    if wanted.kind == SUM:
        if masked := int((mask & ~counted).sum()):
            raise ValueError(
                f"{masked} of its points have weight zero, so their values are "
                "unreliable; a sum needs all points."
            )
        return _without_areas(mask, points)
    if wanted.kind in EXTREMES:
        return _without_areas(_some(mask & counted), points)
    weights = sample.quadrature_weights
    if weights is None:
        if sample.cells is None:
            raise ValueError(
                "the sample has neither quadrature_weights nor cells of one type; "
                "train with --quadrature, which computes weights from cells of any "
                "types, or add weights to its file."
            )
        weights = quadrature.cell_weights(points, sample.cells)
    return _without_areas(mask, points)._replace(areas=np.asarray(weights, np.float64))


def _of_facets(
    wanted: Quantity, points: np.ndarray, counted: np.ndarray, sample: Sample
) -> Patch:
    if sample.patches is None:
        patch = _from_cells(wanted, points, sample)._replace(axes=sample.axes)
    elif wanted.boundary in sample.patches:
        patch = sample.patches[wanted.boundary]
    else:
        if not wanted.boundary:
            raise _nameless(wanted)
        _named(wanted, sample)
        raise _without_facets(wanted)
    if patch.open_edges:
        _check_closed(wanted, patch)
    wrong = ~counted[patch.rows]
    if wanted.is_force or wanted.kind == FLUX:
        masked = int((patch.area_vectors[wrong] != 0).any(axis=1).sum())
        if masked:
            raise ValueError(
                f"the wall has {masked} points of weight zero, where values are "
                "unreliable; a force needs the pressure at all points."
            )
        return patch
    _some(~wrong & (patch.areas > 0))
    return patch._replace(areas=np.where(wrong, 0, patch.areas))


def _check_closed(wanted: Quantity, patch: Patch) -> None:
    """Raises ValueError for a quantity that means nothing on an open boundary."""
    edges = f"open at {patch.open_edges} edges (ends, in the plane)"
    if patch.surface and (wanted.is_force or wanted.kind == FLUX):
        raise ValueError(
            f"the wall consists of {patch.surface}s of a surface and is {edges}, "
            "so its inside is undefined. Use the whole wall of a body, or close "
            "the surface."
        )
    if wanted.needs_closed:
        raise ValueError(
            f"the wall is {edges}: the force of a constant pressure on it is not "
            "zero. Use the whole wall of a body, or pass the pressure on the "
            f"other side of the wall, {wanted.text}:reference=0."
        )


def _without_areas(mask: np.ndarray, points: np.ndarray) -> Patch:
    """A rule that takes some rows with weights of one."""
    rows = np.flatnonzero(mask)
    none = np.zeros((len(rows), points.shape[1]))
    return Patch(rows, np.ones(len(rows)), none, points[rows])


def _some(mask: np.ndarray) -> np.ndarray:
    """Points that count, of which there must be one."""
    if not mask.any():
        raise ValueError("all of its points have weight zero, so it is undefined.")
    return mask


def _on_boundary(wanted: Quantity, sample: Sample) -> np.ndarray:
    """Which points are in the boundary that a quantity names, if any; `(n,)`."""
    mask = np.ones(sample.num_points, bool)
    if wanted.boundary:
        mask[:] = False
        mask[_named(wanted, sample)] = True
    return mask


def _named(wanted: Quantity, sample: Sample) -> np.ndarray:
    boundaries = dict(sample.boundaries or {})
    if wanted.boundary not in boundaries:
        listed = ", ".join(boundaries) or "none"
        raise ValueError(
            f"the boundary {wanted.boundary!r} is unknown; available: {listed}. "
            f"Pass it in training, --boundary_names={wanted.boundary}."
        )
    points = np.asarray(boundaries[wanted.boundary])
    if not points.size:
        raise ValueError(f"the boundary {wanted.boundary!r} has no points.")
    return points


def _from_cells(wanted: Quantity, points: np.ndarray, sample: Sample) -> Patch:
    """Facets of a boundary, or of a surface as a whole, by the sample's own cells."""
    on_wall = _on_boundary(wanted, sample)
    cells = sample.cells
    if cells is None:
        raise ValueError(
            "boundaries need cells of one type and fields at their points, which the "
            "sample does not have; see --location and the cells of its file."
        )
    kind = kind_of(points, cells)
    surface = geometry.KINDS[kind].dimension < points.shape[1]
    if surface:
        facets = np.asarray(cells)
    elif not wanted.boundary:
        raise _nameless(wanted)
    else:
        facets = geometry.boundary_facets(points, {kind: cells}).corners
    chosen = facets[on_wall[facets].all(axis=1)]
    if not surface and not len(chosen):  # an interface of blocks inside the mesh
        every = geometry.boundary_facets(points, {kind: cells}, joined=False).corners
        chosen = every[on_wall[every].all(axis=1)]
    if not len(chosen):
        raise _without_facets(wanted)
    if surface:
        return patches.of_body(points, chosen, kind)
    return patches.at_points(points, chosen)


def _nameless(wanted: Quantity) -> ValueError:
    return ValueError(f"name the wall, as in {wanted.kind}:{wanted.field}@wall")


def _without_facets(wanted: Quantity) -> ValueError:
    return ValueError(
        f"no facet has all its points in the boundary {wanted.boundary!r}, which needs "
        "whole sides or faces of cells of the mesh's boundary."
    )


def kind_of(points: np.ndarray, cells: np.ndarray) -> str:
    """The cell type of a mesh or of a surface."""
    shape = points.shape[1], cells.shape[1]
    if shape == (3, 4):
        return quadrature.kind_of_four(points, cells)
    if shape not in _OF_CORNERS:
        raise ValueError(
            f"cells of {shape[1]} corners in {shape[0]} dimensions have no facets "
            "that opjax supports."
        )
    return _OF_CORNERS[shape]
