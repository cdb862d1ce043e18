"""Derivatives of a quantity of interest with respect to points, inputs and scalars."""

import csv
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from opjax import geometry
from opjax.learn.json_files import replacing
from opjax.learn.predict import functions
from opjax.learn.predict.quantities import kind_of
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample

FILE = "sensitivity.csv"
ROW = "sensitivity"  # what a row of the report calls them
_FIELD = "sensitivity"


class Sensitivity:
    """Exact derivatives of a predicted quantity, in reverse mode.

    Args:
      operator: the operator that predicts it.
      text: one quantity, as in --quantities.

    Raises:
      ValueError: if the operator starts from a baseline.
    """

    def __init__(self, operator: Trained, text: str):
        _ = operator.function  # raises for operators that are no functions
        self._operator, self._text = operator, text

    def of(
        self, sample: Sample
    ) -> tuple[np.ndarray, list[str], dict[str, dict[str, Any]]]:
        """Returns fields `(n, c)`, the names of their channels, and a row.

        The fields are the derivatives with respect to the coordinates,
        `sensitivity_points`; along the outward normal at boundary points of the mesh,
        `sensitivity_normal`; and with respect to each input, `sensitivity_NAME`. The
        row contains the value of the quantity and its derivatives with respect to the
        scalars.

        Raises:
          ValueError: if the quantity is not defined on the mesh, or a derivative is not
            finite.
        """
        operator = self._operator
        quantity = operator.quantity(self._text, sample)
        arrays = operator.arguments(sample)
        asked = [i for i in (0, 1, 2) if arrays[i] is not None]
        value, slopes = jax.jit(
            jax.value_and_grad(quantity, argnums=[i + 1 for i in asked])
        )(operator.parameters, *arrays)
        by = dict(zip(asked, map(np.asarray, slopes), strict=True))
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
            fields.append(by[1])
            listed = operator.description.names.get("features")
            listed = listed or ["features"] * by[1].shape[1]
            names += [f"{_FIELD}_{name}" for name in listed]
        scalars = functions.scalars_of(operator)
        if 2 in by and not scalars:
            scalars = [f"scalars_{i}" for i in range(len(by[2]))]
        of_scalars = dict(zip(scalars, map(float, by.get(2, ())), strict=True))
        row = {"quantity": self._text, "value": float(value), "scalars": of_scalars}
        return np.concatenate(fields, axis=1), names, {ROW: row}


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
    with replacing(path) as temporary, open(temporary, "w", newline="") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows(lines)


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
