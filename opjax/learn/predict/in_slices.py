"""Predictions from file to file in slices, without the whole mesh in memory."""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from opjax.files import mapped, sliced
from opjax.files.mapped import Mapped, Written
from opjax.learn.named_types import Numbers, Row
from opjax.learn.predict import case_table, functions, prediction, sensitivity
from opjax.learn.predict.field_errors import Sums
from opjax.learn.predict.pulled import Pulled
from opjax.learn.predict.sliced_quantity import SlicedQuantity
from opjax.learn.predict.trained import Trained
from opjax.samples import SCALARS, Sample, ranges
from opjax.samples.sliced import Column, axes_of


def predict_file(
    found: Trained,
    file: pathlib.Path,
    output: pathlib.Path,
    names: list[str],
    limits: prediction.Limits,
    *,
    point_dim: int | None = None,
    slopes_of: str | None = None,
) -> list[Row]:
    """Predicts on the samples of a file, slice by slice.

    Args:
      found: the operator.
      file: the input file, see `mapped.copied`.
      output: the copy of the file, with predictions.
      names: names of the predicted channels.
      limits: memory limits.
      point_dim: as for `files.read`; by default, as in training.
      slopes_of: one quantity, whose derivatives are written, too.

    Returns:
      The entries of `report.json` for the samples.

    Raises:
      OSError: if the copy cannot be written.
      ValueError: if the operator cannot be evaluated in chunks, or the file does not
        fit it.
    """
    config = found.config
    _refuse(config)
    prediction.refuse_whole(found, sliced=True)
    options = found.read_options(point_dim=point_dim)
    if file.suffix.lower() == ".vtu":
        point_dim = options.point_dim
    options = dataclasses.replace(
        options, point_dim=point_dim, quadrature=False, grid_axes=0
    )
    rows: list[Row] = []
    if not names:  # no field, so no copy
        for place in sliced.places_of(file):
            with sliced.opened(place, options) as arrays:
                name = place.name
                _check_weights(config, name, arrays)
                rows.append(_predict(found, name, arrays, None, limits))
        return rows
    with mapped.copied(file, output, options) as samples:
        for sample in samples:
            _check_weights(config, sample.name, sample.arrays)
        return [
            _predict(
                found,
                one.name,
                one.arrays,
                partial(_add, one, names),
                limits,
                slopes_of,
            )
            for one in samples
        ]


def _check_weights(
    config: dict[str, Any], name: str, arrays: Mapping[str, Column]
) -> None:
    if config.get("quadrature") and "quadrature_weights" not in arrays:
        raise ValueError(
            f"{name} has no quadrature_weights, and they cannot be computed from "
            "cells in slices: add them to its fields, as computed by "
            "`files.read(..., files.ReadOptions(quadrature=True))`; or predict "
            "without --stream."
        )


def _predict(
    operator: Trained,
    name: str,
    columns: Mapping[str, Column],
    add: Callable[[Sequence[str]], Written] | None,
    limits: prediction.Limits,
    slopes_of: str | None = None,
) -> Row:
    """Predicts on a sample; `add` allocates the fields to write, if there are any."""
    arrays: dict[str, Any] = dict(columns)
    scalars, target_scalars = (
        arrays.pop(key)[:] if key in arrays else None for key in SCALARS
    )
    target, weights = arrays.pop("target", None), arrays.get("quadrature_weights")
    case = Sample(
        np.zeros((1, 1)),
        scalars=scalars,
        target_scalars=target_scalars,
        name=name,
        axes=axes_of(arrays),
    )
    operator.check_plane(case)
    if case.scalars is not None:
        arrays["scalars"] = case.scalars
    report, start = _Report(operator, len(arrays["mesh_points"])), 0
    parts = operator.stream_channels(
        arrays,
        limits=limits,
    )
    quantity, more = None, list[str]()
    if slopes_of is not None:
        quantity = SlicedQuantity(functions.one(slopes_of), operator, weights)
        more = sensitivity.names_of(operator, arrays["mesh_points"].shape[1])
    written = None if add is None else add(more)
    means = prediction.Means(operator.model)
    for part in parts:
        values = prediction.decoded(operator, part)
        prediction.check_finite_output(name, values)
        rows = slice(start, start + len(values))
        column = None if weights is None else weights[rows]
        if written is not None:
            written.put(start, values)
        if quantity is not None:
            quantity.add(start, values)
        means.add(part, column)
        report.add(arrays, rows)
        if target is not None and written is not None:
            report.sums.add(values, target[rows], column)
        start += len(values)
    assert start == len(arrays["mesh_points"])
    read = means.scalars(operator.normalizers)
    of_scalars = case_table.row_of(operator.channel_names, case, read)
    row = {"name": name} | report.row() | of_scalars
    if quantity is not None and slopes_of is not None:
        assert written is not None
        args = slopes_of, arrays, quantity, limits, written
        row |= _write_slopes(operator, name, *args)
    return row


def _write_slopes(
    operator: Trained,
    name: str,
    text: str,
    arrays: dict[str, Any],
    quantity: SlicedQuantity,
    limits: prediction.Limits,
    written: Written,
) -> Row:
    """Writes derivatives by the inputs, slice by slice; returns those by scalars."""
    pulled, start = Pulled(operator, arrays, quantity, limits), 0
    kept = list(sensitivity.kept_inputs(operator))
    for part in pulled:
        fields = [part.points]
        if part.features is not None:
            fields.append(part.features[:, kept])
        slopes = np.concatenate(fields, axis=1)
        if not np.isfinite(slopes).all():
            raise ValueError(f"{name}: a derivative of {text} is not finite.")
        written.put(start, slopes, first=operator.channels.target)
        start += len(slopes)
    sensitivity.say_ties(name, text, quantity.num_ties)
    return sensitivity.row_of(operator, text, quantity.value, pulled.scalars)


def _add(one: Mapped, names: list[str], more: Sequence[str]) -> Written:
    return one.add([*names, *more])


class _Report:
    """What `ranges.compare` and `field_errors` say of all slices together."""

    def __init__(self, found: Trained, num_points: int):
        self._description, self._n = found.description, num_points
        self._row: Numbers = {}
        self._beyond: Row = {}  # of the case, the same in all slices
        self.sums = Sums(found.fields)

    def add(self, arrays: dict[str, Any], rows: slice) -> None:
        """Adds points."""
        features = arrays["features"][rows] if "features" in arrays else None
        sample = Sample(
            arrays["mesh_points"][rows],
            features=features,
            scalars=arrays.get("scalars"),
        )
        row = ranges.compare(self._description.training, sample)
        self._beyond = {k: row.pop(k) for k in (ranges.BEYOND,) if k in row}
        for key, value in row.items():
            before = self._row.get(key, 0.0)
            share = before + value * sample.num_points / self._n
            self._row[key] = share if key.endswith("outside") else max(before, value)

    def row(self) -> Row:
        """The row of the report."""
        fewest, most = self._description.num_points
        factor = {"num_points_factor": max(self._n / most, fewest / self._n, 1.0)}
        row: Row = {"num_points": self._n, **self._row, **self._beyond}
        return row | factor | (self.sums.errors().row() if self.sums.mass else {})


def _refuse(config: dict[str, Any]) -> None:
    """Raises ValueError for an operator whose input needs whole meshes."""
    for name, default in (
        ("location", "points"),
        ("boundary_names", ""),
        ("boundary", ""),
        ("geometry", ""),
    ):
        if (value := config.get(name) or default) != default:
            raise ValueError(
                f"This operator was trained with {name}={value}, which needs whole "
                "meshes; omit --stream."
            )
