"""Samples built from the named arrays of a file, with errors that name it."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from opjax import quadrature as rules
from opjax.datasets.samples import Sample


def build(
    name: str,
    arrays: Mapping[str, np.ndarray],
    asked: dict[str, tuple[str, ...]],
    need_target: bool,
    quadrature: bool,
) -> Sample:
    """Builds a sample of named arrays."""
    if "mesh_points" not in arrays:
        raise missing(name, "mesh_points", arrays)
    points = _column(
        numbers(name, "mesh_points", arrays["mesh_points"]), name, "mesh_points"
    )
    fields: dict[str, Any] = {}
    for field, names in asked.items():
        names = names or ((field,) if field in arrays else ())
        absent = [n for n in names if n not in arrays]
        if absent and (field == "features" or need_target):
            raise missing(name, absent[0], arrays)
        if names and not absent:
            fields[field] = _joined(name, names, arrays, len(points))
    if "cells" in arrays:
        fields["cells"] = _checked_cells(name, np.asarray(arrays["cells"]), len(points))
    if "grid_shape" in arrays:
        shape = np.asarray(arrays["grid_shape"])
        if shape.ndim != 1 or shape.dtype.kind not in "iu":
            raise ValueError(
                f"{name}: grid_shape must be integers, one for each axis, not "
                f"{shape.dtype} of shape {shape.shape}."
            )
        fields["grid_shape"] = tuple(map(int, shape))
    if "quadrature_weights" in arrays:
        fields["quadrature_weights"] = numbers(
            name, "quadrature_weights", arrays["quadrature_weights"]
        )
    elif quadrature:
        if "cells" not in fields:
            raise ValueError(
                f"{name} has neither quadrature_weights nor cells to make them from."
            )
        try:
            weights = rules.cell_weights(points, fields["cells"])
        except ValueError as error:
            raise ValueError(f"{name}: {error} Or give quadrature_weights.") from error
        fields["quadrature_weights"] = weights.astype(np.float32)
    return Sample(points, name=name, **fields)


def numbers(name: str, key: str, array: Any) -> np.ndarray:
    """Returns an array in single precision; raises ValueError unless it is real."""
    array = np.asarray(array)
    check_numbers(name, key, array.dtype)
    with np.errstate(over="ignore"):  # refused by name, as what is not finite
        return np.ascontiguousarray(array, np.float32)


def check_numbers(name: str, key: str, dtype: np.dtype) -> None:
    """Raises ValueError unless a type is one of real numbers."""
    if dtype.kind not in "fiub":
        raise ValueError(
            f"{name}: {key} has dtype {dtype}, expected real numbers"
            + ("; give real and imaginary part." if dtype.kind == "c" else ".")
        )


def _column(array: np.ndarray, name: str, key: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name}: {key} has shape {array.shape}, expected (n, channels); reshape "
            "grids to one axis of points, and give their grid_shape."
        )
    return array[:, None] if array.ndim == 1 else array


def _joined(
    name: str, keys: Iterable[str], arrays: Mapping[str, np.ndarray], num_points: int
) -> np.ndarray:
    columns = []
    for key in keys:
        columns.append(_column(numbers(name, key, arrays[key]), name, key))
        if len(columns[-1]) != num_points:
            raise ValueError(
                f"{name}: {key} has {len(columns[-1])} rows, but mesh_points "
                f"{num_points}: one row for each point is needed."
            )
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def _checked_cells(name: str, cells: np.ndarray, num_points: int) -> np.ndarray:
    if cells.dtype.kind not in "iu" or cells.ndim != 2:
        raise ValueError(
            f"{name}: cells must be point indices, integers of shape (m, corners), not "
            f"{cells.dtype} of shape {cells.shape}."
        )
    if cells.size and not (cells.min() >= 0 and cells.max() < num_points):
        raise ValueError(
            f"{name}: cells name points from {cells.min()} to {cells.max()}, but there "
            f"are points 0 to {num_points - 1} only."
        )
    return cells.astype(np.int64)


def missing(name: str, key: str, arrays: Iterable[str]) -> ValueError:
    """Returns the error for an array that is not there."""
    note = ""
    if Path(name).suffix.lower() in (".vtu", ".vtk"):
        note = " Fields are point data; convert cell data first."
    return ValueError(f"{name} has no array {key!r}, only {sorted(arrays)}.{note}")


def check_agree(first: Sample, sample: Sample) -> None:
    """Raises ValueError, naming both files, unless two samples fit one model."""
    for field in ("mesh_points", "features", "target", "quadrature_weights"):
        shapes = []
        for one in (first, sample):
            array = getattr(one, field)
            shapes.append(None if array is None else np.shape(array)[1:])
        if shapes[0] != shapes[1]:
            has = [f"{s[0]} channels of" if s else "no" for s in shapes]
            if field == "quadrature_weights":
                has = ["no" if s is None else "with" for s in shapes]
            raise ValueError(
                f"{first.name} has {has[0]} {field}, but {sample.name} {has[1]}: all "
                "samples of a data set must agree."
            )


def warn_of_duplicates(counts: Iterable[tuple[str, int]]) -> None:
    """Says how many points coincide, from names and `num_duplicates` of samples."""
    known = dict(counts)
    bad = {name: count for name, count in known.items() if count}
    if bad:
        name, count = next(iter(bad.items()))
        warnings.warn(
            f"{sum(bad.values())} points in {len(bad)} of {len(known)} samples are in "
            f"the place of another point, in float32; {count} in {name}. They count "
            "as points of their own: merge them unless they are meant, and subtract "
            "large offsets of the coordinates.",
            stacklevel=3,
        )


def num_duplicates(sample: Sample) -> tuple[str, int]:
    """Returns the name of a sample and how many of its points are others' again."""
    points = sample.mesh_points
    ordered = points[np.lexsort(points.T)]
    count = np.all(ordered[1:] == ordered[:-1], axis=1).sum()
    return sample.name, int(count)
