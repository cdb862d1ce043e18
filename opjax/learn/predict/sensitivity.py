"""Derivatives of a quantity of interest with respect to points, inputs and scalars."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax import geometry
from opjax.files import boundary_sets
from opjax.learn.config.quantities import EXTREMES
from opjax.learn.messages import say
from opjax.learn.predict import functions, prediction
from opjax.learn.predict.prediction import LIMITS, Limits
from opjax.learn.predict.pulled import Pulled
from opjax.learn.predict.quantities import Measured, kind_of
from opjax.learn.predict.trained import Trained
from opjax.learn.tables import write_csv
from opjax.samples import Sample

FILE = "sensitivity.csv"
ROW = "sensitivity"  # what a row of the report calls them
_FIELD = "sensitivity"


class Sensitivity:
    """Exact derivatives of a predicted quantity, in reverse mode.

    Meshes that are larger than a chunk are gone over in chunks, see `pulled`.

    Args:
      operator: the operator that predicts it.
      text: one quantity, as in --quantities.
      limits: bounds of the memory.

    Raises:
      ValueError: if the operator starts from a baseline.
    """

    def __init__(self, operator: Trained, text: str, limits: Limits = LIMITS):
        _ = operator.function  # raises for operators that are no functions
        self._operator, self._text, self._limits = operator, text, limits

    def of(
        self, sample: Sample
    ) -> tuple[np.ndarray, list[str], dict[str, dict[str, Any]]]:
        """Returns fields `(n, c)`, the names of their channels, and a row.

        The fields are the derivatives with respect to the coordinates,
        `sensitivity_points`; along the outward normal at boundary points of the mesh,
        `sensitivity_normal`; and with respect to each input, `sensitivity_NAME`.
        Masks of boundaries are omitted, because they have no values between 0 and 1.
        The row contains the value of the quantity and its derivatives with respect to
        the scalars.

        Raises:
          ValueError: if the quantity is not defined on the mesh, or a derivative is not
            finite.
        """
        in_chunks = sample.num_points > self._limits.chunk_size
        in_chunks = in_chunks and not prediction.obstacle(self._operator)
        value, by = (self._in_chunks if in_chunks else self._at_once)(sample)
        if not all(np.isfinite(slope).all() for slope in by.values()):
            raise ValueError(
                f"{sample.name}: a derivative of {self._text} is not finite."
            )
        fields, names = [by[0]], [f"{_FIELD}_points"] * by[0].shape[1]
        normals = _normals(sample)
        if normals is not None:
            fields.append(np.sum(by[0] * normals, axis=1, keepdims=True))
            names.append(f"{_FIELD}_normal")
        if 1 in by:
            kept = kept_inputs(self._operator)
            fields.append(by[1][:, list(kept)])
            names += kept.values()
        row = row_of(self._operator, self._text, value, by.get(2))
        if functions.one(self._text).kind in EXTREMES:
            values = self._operator.both(sample, limits=self._limits).values
            _, of_values, _ = self._of_quantity(sample, values)
            say_ties(sample.name, self._text, int((of_values != 0).sum()))
        return np.concatenate(fields, axis=1), names, row

    def _at_once(self, sample: Sample) -> tuple[float, dict[int, np.ndarray]]:
        """The value, and derivatives by the arguments of a call, by their places."""
        operator = self._operator
        quantity = operator.quantity(self._text, sample)
        arrays = operator.arguments(sample)
        asked = [i for i in (0, 1, 2) if arrays[i] is not None]
        value, slopes = jax.jit(
            jax.value_and_grad(quantity, argnums=[i + 1 for i in asked])
        )(operator.parameters, *arrays)
        return float(value), dict(zip(asked, map(np.asarray, slopes), strict=True))

    def _in_chunks(self, sample: Sample) -> tuple[float, dict[int, np.ndarray]]:
        """The same of a mesh that is gone over in chunks.

        dQ / dx = (partial Q / partial x) + (dv / dx)^T (partial Q / partial v)
        """
        operator, columns = self._operator, prediction.arrays_of(sample)
        values = operator.both(sample, limits=self._limits).values
        value, of_values, by = self._of_quantity(sample, values)
        case = sample if operator.scaling is not None else None
        pulled = Pulled(
            operator, columns, of_values, self._limits, values=values, case=case
        )
        parts = list(pulled)
        by[0] = by[0] + np.concatenate([part.points for part in parts])
        if 1 in by:
            features = [part.features for part in parts if part.features is not None]
            by[1] = by[1] + np.concatenate(features)
        if 2 in by:
            by[2] = by[2] + pulled.scalars
        return value, by

    def _of_quantity(
        self, sample: Sample, values: np.ndarray
    ) -> tuple[float, np.ndarray, dict[int, np.ndarray]]:
        """The quantity of a known field, and its derivatives with that field fixed."""
        operator, asked = self._operator, functions.one(self._text)
        measured = Measured(asked, sample, operator.channel_names)
        arrays = operator.arguments(sample)

        def quantity(field: jax.Array, given: functions.Arguments) -> jax.Array:
            given = given._replace(quadrature_weights=arrays.quadrature_weights)
            return measured(functions.case(operator, given).sample, field)

        find = jax.jit(jax.value_and_grad(quantity, argnums=(0, 1)))
        field = jnp.asarray(values, arrays.points.dtype)
        inputs = arrays._replace(quadrature_weights=None)
        value, (of_values, slopes) = find(field, inputs)
        by = {i: np.asarray(slopes[i]) for i in (0, 1, 2) if arrays[i] is not None}
        return float(value), np.asarray(of_values), by


def say_ties(name: str, text: str, count: int) -> None:
    """Says that several points share a largest or smallest value."""
    if count > 1:
        say(
            f"{name}: {count} points have the same value {text}. It has no unique "
            "derivative; the mean of theirs is written."
        )


def kept_inputs(operator: Trained) -> dict[int, str]:
    """Names of the derivatives by inputs, by their channels, without masks."""
    count = operator.channels.features
    listed = operator.channel_names.get("features") or ["features"] * count
    return {
        channel: f"{_FIELD}_{name}"
        for channel, name in enumerate(listed)
        if not name.startswith(boundary_sets.PREFIX)
    }


def names_of(operator: Trained, dim: int) -> list[str]:
    """Names of the derivatives by coordinates and inputs, one for each channel."""
    return [f"{_FIELD}_points"] * dim + list(kept_inputs(operator).values())


def row_of(
    operator: Trained, text: str, value: float, of_scalars: np.ndarray | None
) -> dict[str, dict[str, Any]]:
    """Returns what the report says: the value, and its derivatives by the scalars."""
    slopes = () if of_scalars is None else of_scalars
    names = functions.scalars_of(operator)
    names = names or [f"scalars_{i}" for i in range(len(slopes))]
    by_name = dict(zip(names, map(float, slopes), strict=True))
    return {ROW: {"quantity": text, "value": value, "scalars": by_name}}


def write(path: pathlib.Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes a table of values and derivatives by scalars, one row per case.

    Args:
      path: path of the table.
      rows: rows of the report.
    """
    lines = [
        {"file": row["name"], one["quantity"]: one["value"]}
        | {f"by {name}": slope for name, slope in one["scalars"].items()}
        for row in rows
        for one in [row[ROW]]
    ]
    write_csv(path, lines)


def _normals(sample: Sample) -> np.ndarray | None:
    """Outward normals at the points of the boundary of a mesh, `(n, p)`, else zero."""
    points, cells = np.asarray(sample.mesh_points, np.float64), sample.cells
    if cells is None:
        return None
    kind = kind_of(points, cells)
    if geometry.KINDS[kind].dimension < points.shape[1]:  # a surface
        return None
    facets = geometry.boundary_facets(points, {kind: cells}).corners
    return geometry.point_normals(points, facets)
