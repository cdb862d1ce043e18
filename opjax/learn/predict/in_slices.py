"""Predictions from one file to another in slices, without holding the mesh."""

import math
import pathlib
from typing import Any

import numpy as np

from opjax import files
from opjax.files import mapped
from opjax.files.mapped import Columns, Mapped
from opjax.learn.predict.trained import Trained
from opjax.samples import Sample, ranges


def predict_file(
    found: Trained,
    file: pathlib.Path,
    output: pathlib.Path,
    names: list[str],
    limits: dict[str, Any],
    *,
    point_dim: int | None = None,
) -> list[dict[str, Any]]:
    """Predicts on the samples of a file, slice by slice.

    Args:
      found: the operator.
      file: see `mapped.copied`.
      output: the copy of it with predictions.
      names: of the channels of predictions.
      limits: `chunk_size`, `memory_gib` and `scratch`, see `Trained.stream`.
      point_dim: as for `files.read`; as in training by default.

    Returns:
      What `report.json` says of the samples.

    Raises:
      OSError: if the copy cannot be written.
      ValueError: if the operator cannot be evaluated in chunks, or the file is not what
        it takes.
    """
    config = found.description["config"]
    _refuse(config)
    if point_dim is None and file.suffix.lower() == ".vtu":
        point_dim = config.get("point_dim") or None
    fields = {
        "features": files.parse_names(config.get("feature_names")),
        "target": files.parse_names(config.get("target_names")),
    }
    copied = mapped.copied(file, output, point_dim=point_dim, **fields)
    with copied as samples:
        for sample in samples:
            if config.get("quadrature") and "quadrature_weights" not in sample.arrays:
                raise ValueError(
                    f"{sample.name} has no quadrature_weights, which are not made of "
                    "cells in slices: add them to its fields, they are those of "
                    "`files.read(..., quadrature=True)`; or predict without --stream."
                )
        return [_predict(found, sample, names, limits) for sample in samples]


def _predict(
    found: Trained, sample: Mapped, names: list[str], limits: dict[str, Any]
) -> dict[str, Any]:
    arrays = dict(sample.arrays)
    target, weights = arrays.pop("target", None), arrays.get("quadrature_weights")
    report, start = _Report(found.description, len(arrays["mesh_points"])), 0
    parts = found.stream(arrays, **limits)
    written = sample.add(names)
    for values in parts:
        if not np.isfinite(values).all():
            raise ValueError(
                f"The prediction for {sample.name} is not finite; its values are too "
                "far from those of training."
            )
        rows = slice(start, start + len(values))
        written.put(start, values)
        report.add(arrays, rows)
        if target is not None:
            report.compare(
                values, target[rows], None if weights is None else weights[rows]
            )
        start += len(values)
    assert start == len(arrays["mesh_points"])
    return {"name": sample.name} | report.row()


class _Report:
    """What `ranges.compare` and `metrics.relative_l2` say of all slices together."""

    def __init__(self, description: dict[str, Any], num_points: int):
        self._description, self._n = description, num_points
        self._row: dict[str, float] = {}
        self._squares = np.zeros(2)

    def add(self, arrays: dict[str, Columns], rows: slice) -> None:
        """Adds points."""
        features = arrays["features"][rows] if "features" in arrays else None
        sample = Sample(arrays["mesh_points"][rows], features=features)
        for key, value in ranges.compare(self._description, sample).items():
            before = self._row.get(key, 0.0)
            share = before + value * sample.num_points / self._n
            self._row[key] = share if key.endswith("outside") else max(before, value)

    def compare(self, values: np.ndarray, target: np.ndarray, weights: Any) -> None:
        """Adds squares of errors and targets."""
        column = 1.0 if weights is None else np.asarray(weights, np.float64)[:, None]
        some = np.asarray(column > 0) if weights is not None else True
        for place, part in enumerate((values - target, target)):
            square = np.where(some, np.asarray(part, np.float64), 0) ** 2
            self._squares[place] += np.sum(column * square)

    def row(self) -> dict[str, Any]:
        """The row of the report."""
        fewest, most = self._description["num_points"]
        factor = {"num_points_factor": max(self._n / most, fewest / self._n, 1.0)}
        found: dict[str, Any] = {"num_points": self._n} | self._row | factor
        if self._squares[1]:
            found["relative_l2"] = math.sqrt(self._squares[0] / self._squares[1])
        return found


def _refuse(config: dict[str, Any]) -> None:
    """Raises ValueError for an operator whose input needs whole meshes."""
    for name, default in (
        ("location", "points"),
        ("boundary_names", ""),
        ("geometry", ""),
    ):
        if (value := config.get(name) or default) != default:
            raise ValueError(
                f"This operator was trained with {name}={value}, which needs whole "
                "meshes; leave out --stream."
            )
