"""Construction of samples from the named arrays of a file, with its name in errors."""

import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from opjax import quadrature as rules
from opjax.files import boundaries, cases, columns, components, conversion, hdf5, matlab
from opjax.files.gridded import on_grid
from opjax.files.npz import Arrays
from opjax.files.options import Names, ReadOptions
from opjax.files.topology import at_cells, check_indices, other_location
from opjax.files.vtk.fields import MeshArrays, Plane, axes_of
from opjax.samples import Sample, Series, base, layout
from opjax.samples.base import is_real
from opjax.samples.digests import digest, digest_of_series
from opjax.samples.narrowing import narrow

# Points may move by this share of the width of a mesh; an offset of ten times the width
# moves them as far.
_LOST = 3e-7
# Field data with the time of a file: of ParaView and OpenFOAM, VisIt, and others.
TIMES = ("TimeValue", "TIME", "Time", "time")


class Built(NamedTuple):
    """A sample with its metadata.

    Attributes:
      sample: the sample.
      channels: names of the channels of its `features` and `target`.
      moved: largest displacement of a point by rounding to single precision, divided by
        the width of the mesh.
      part: entry `split` of the sample in a table of cases; empty if there is none.
      plane: for a VTK file, the position of its points in space; None for others.
      time: time stored in its file; NaN if there is none.
    """

    sample: Sample
    channels: dict[str, tuple[str, ...]]
    moved: float = 0.0
    part: str = ""
    plane: Plane | None = None
    time: float = math.nan


def build(
    name: str,
    arrays: Arrays,
    options: ReadOptions,
    row: cases.Row | None = None,
) -> Built:
    """Builds a sample from named arrays.

    Args:
      name: name of the sample, for messages.
      arrays: all arrays of the sample in its file.
      options: arrays to use.
      row: the row of the sample in a table of cases.

    Raises:
      ValueError: if an array is missing or invalid.
    """
    if error := columns.apart(name, arrays, (*options.target, *options.features)):
        raise error
    stored = arrays
    arrays = _with_components(name, arrays, options)
    if options.grid_axes:
        arrays = on_grid(name, arrays, sorted({*options.fields}), options.grid_axes)
    whole = arrays
    if options.location == "cells":
        arrays = at_cells(name, arrays, options.fields)
    if "mesh_points" not in arrays:
        raise missing(name, "mesh_points", arrays)
    points = numbers(name, "mesh_points", arrays["mesh_points"])
    points = narrow(_column(points, name, "mesh_points"))
    _check_location(name, options, whole, arrays)
    features = _field(name, "features", options.features, arrays, len(points), True)
    target = _field(
        name, "target", options.target, arrays, len(points), options.need_target
    )
    named = patches = None
    if options.needs_shape:
        shape = boundaries.of(name, whole, options, row)
        named, patches = shape.boundaries, shape.patches
        features = _with(name, features, shape) if shape.channels else features
    cells = None
    if "cells" in arrays:
        cells = _checked_cells(name, np.asarray(arrays["cells"]), points)
    weights = None
    if "quadrature_weights" in arrays:
        weights = numbers(name, "quadrature_weights", arrays["quadrature_weights"])
        weights = weights.astype(np.float32, copy=False)
    elif options.quadrature:
        weights = _weights(name, points, cells)
    scalars = cases.read(name, stored, row, options.scalars)
    needed, asked = options.need_target, options.target_scalars
    target_scalars = cases.read(name, stored, row, asked, needed=needed)
    further = cases.read(name, stored, row, options.numbers)
    sample = Sample(
        points,
        target=target.values,
        features=features.values,
        quadrature_weights=weights,
        cells=cells,
        grid_shape=_grid_shape(name, arrays),
        name=name,
        boundaries=named or None,
        scalars=scalars,
        target_scalars=target_scalars,
        patches=patches,
        numbers=None if further is None else cases.named(options.numbers, further),
        axes=axes_of(stored),
    )
    channels = {"features": features.channels, "target": target.channels}
    if options.scalars:
        channels["scalars"] = tuple(options.scalars)
    if options.target_scalars:
        channels["target_scalars"] = tuple(options.target_scalars)
    part = "" if row is None else row.part
    plane = stored.plane if isinstance(stored, MeshArrays) else None
    return Built(sample, channels, _moved(points), part, plane, time_of(stored))


def _with_components(name: str, arrays: Arrays, options: ReadOptions) -> Arrays:
    """The arrays of a file, and components of them that are asked for by name."""
    try:
        return components.with_components(
            arrays, options.fields, axes=options.grid_axes or 1
        )
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def time_of(arrays: Arrays) -> float:
    """The time stored in a file; NaN if there is none."""
    data = arrays.mesh.field_data.arrays if isinstance(arrays, MeshArrays) else {}
    for name in TIMES:
        time = np.asarray(data.get(name, ()))
        if time.size == 1 and time.dtype.kind in "fiu":
            return float(time.ravel()[0])
    return math.nan


def _check_location(
    name: str, options: ReadOptions, whole: Arrays, arrays: Arrays
) -> None:
    """Raises ValueError for a field that the file has at the other location only."""
    target = options.target if options.need_target else ()
    for key in (*options.features, *target):
        if key in arrays:
            continue
        if note := other_location(name, key, whole, options.location):
            raise ValueError(note)
        raise missing(name, key, whole)


def _with(name: str, features: "_Field", shape: boundaries.Geometric) -> "_Field":
    """Appends features of the shape to those of the file."""
    values = shape.values
    if not np.isfinite(values).all():
        raise ValueError(f"{name}: normals or distances are not finite.")
    if features.values is not None:
        values = np.concatenate([features.values, values], axis=1)
    return _Field(values, features.channels + shape.channels)


def _moved(exact: np.ndarray) -> float:
    """How far float32 would move points at most, over the width of the mesh."""
    rounded = exact.astype(np.float32)
    if exact.dtype != np.float64 or not np.isfinite(exact).all():
        return 0.0  # the latter is refused by name
    width = np.ptp(exact, axis=0).max() if len(exact) else 0.0
    return float(np.abs(exact - rounded).max() / width) if width > 0 else 0.0


class _Field(NamedTuple):
    """Values of the fields of an input or output, and the name of each channel."""

    values: np.ndarray | None
    channels: tuple[str, ...]


def _field(
    name: str,
    role: str,
    names: Names,
    arrays: Arrays,
    num_points: int,
    needed: bool,
) -> _Field:
    names = names or ((role,) if role in arrays else ())
    absent = [n for n in names if n not in arrays]
    if absent and needed:
        raise missing(name, absent[0], arrays)
    if absent or not names:
        return _Field(None, ())
    columns: list[np.ndarray] = []
    channels: list[str] = []
    for key in names:
        column = _column(numbers(name, key, arrays[key]), name, key)
        if len(column) != num_points:
            raise _other_rows(name, key, len(column), num_points, arrays)
        bad = ~np.isfinite(column)
        if bad.any():
            raise ValueError(
                f"{name}: {key} has {bad.sum()} non-finite values, the first one at "
                f"point {np.argwhere(bad)[0][0]}; remove the points or the sample. "
                "Points with quadrature weight 0 are ignored: give them weight 0 and "
                "any finite value."
            )
        columns.append(narrow(column))
        channels += [key] * column.shape[1]
    values = columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)
    return _Field(values, tuple(channels))


def _other_rows(
    name: str, key: str, rows: int, num_points: int, arrays: Arrays
) -> ValueError:
    """The error for a field with another number of rows than the sample has points."""
    note = ""
    if "cells" in arrays and rows == len(arrays["cells"]):
        note = " It has one for each cell: give --location=cells to read cell data."
    elif rows == 1:
        note = " A number of the whole sample is a scalar: give --scalar_names, or "
        note += "--target_scalars to predict it."
    elif np.shape(arrays["mesh_points"]) == (num_points, rows):
        note = f" mesh_points has the shape {(num_points, rows)}: store it transposed "
        note += "if its rows are the coordinates."
    return ValueError(
        f"{name}: {key} has {rows} rows, but mesh_points {num_points}: expected one "
        f"row per point.{note}"
    )


def _weights(name: str, points: np.ndarray, cells: np.ndarray | None) -> np.ndarray:
    if cells is None:
        raise ValueError(
            f"{name} has neither quadrature_weights nor cells to compute them from."
        )
    centred = points.astype(np.float64)
    centred -= centred.mean(axis=0) if np.isfinite(centred).all() else 0
    try:
        return rules.cell_weights(centred, cells).astype(np.float32)
    except ValueError as error:
        raise ValueError(
            f"{name}: {error} Alternatively, add quadrature_weights."
        ) from error


def _grid_shape(name: str, arrays: Arrays) -> tuple[int, ...] | None:
    if "grid_shape" not in arrays:
        return None
    shape = matlab.whole(matlab.vector(np.asarray(arrays["grid_shape"])))
    if shape.ndim != 1 or shape.dtype.kind not in "iu":
        raise ValueError(
            f"{name}: grid_shape must be integers, one for each axis, not "
            f"{shape.dtype} of shape {shape.shape}."
        )
    return tuple(map(int, shape))


def numbers(name: str, key: str, array: ArrayLike) -> np.ndarray:
    """Returns an array in single precision, or double if the input has more digits.

    Raises:
      ValueError: if it is not real-valued.
    """
    array = np.asarray(array)
    check_numbers(name, key, array.dtype)
    double = array.dtype.itemsize >= (8 if array.dtype.kind == "f" else 4)
    if double and np.abs(array).max(initial=0) <= np.finfo(np.float32).max:
        return np.ascontiguousarray(array, np.float64)
    with np.errstate(over="ignore"):  # infinite values are refused by name later
        return np.ascontiguousarray(array, np.float32)


def check_numbers(name: str, key: str, dtype: np.dtype[Any]) -> None:
    """Raises ValueError unless a dtype holds real numbers."""
    if not is_real(dtype):
        raise ValueError(
            f"{name}: {key} has dtype {dtype}, expected real numbers"
            + (
                "; pass the real and the imaginary part separately."
                if dtype.kind == "c"
                else "."
            )
        )


def _column(array: np.ndarray, name: str, key: str) -> np.ndarray:
    if array.ndim not in (1, 2):
        raise ValueError(
            f"{name}: {key} has shape {array.shape}, expected (n, channels). For "
            "fields on a grid without mesh_points, pass the number of axes: "
            "grid_axes=2."
        )
    return array[:, None] if array.ndim == 1 else array


def _checked_cells(name: str, cells: np.ndarray, points: np.ndarray) -> np.ndarray:
    cells = matlab.whole(cells)
    if cells.dtype.kind not in "iu" or cells.ndim != 2:
        raise ValueError(
            f"{name}: cells must be point indices, integers of shape (m, corners), not "
            f"{cells.dtype} of shape {cells.shape}."
        )
    check_indices(name, cells, points)
    return cells.astype(np.int64)


def missing(name: str, key: str, arrays: Iterable[str]) -> ValueError:
    """Returns the error for a missing array."""
    note = ""
    if Path(name).suffix.lower() in (".vtu", ".vtk"):
        note = " Fields are point data; cell data need --location=cells."
    elif Path(name).suffix.lower() in (".stl", ".ply"):
        note = " It is a surface; save one with fields as .vtp by pyvista."
    elif Path(name).suffix.lower() == ".cas":
        note = " Its fields are in the .dat file of the same name, next to it."
    elif key == "mesh_points":
        note = " Of fields on a grid, (h, w) or (h, w, channels), give grid_axes=2."
    file = hdf5.file_of(Path(name))
    if file.suffix.lower() in hdf5.SUFFIXES and file.is_file():
        note = conversion.companion(file) or note
    longer = [other for other in arrays if "," in other and key in other.split(",")]
    if longer:
        note = f' A name with a comma needs quotes: "{longer[0]}".'
    note = components.note(key, arrays) or note
    return ValueError(f"{name} has no array {key!r}, only {sorted(arrays)}.{note}")


def check_agree(first: Sample, sample: Sample) -> None:
    """Raises ValueError, naming both files, unless one model fits both samples."""
    for field in ("mesh_points", "features", "target", "quadrature_weights"):
        shapes: list[tuple[int, ...] | None] = []
        for one in (first, sample):
            array = getattr(one, field)
            shapes.append(None if array is None else np.shape(array)[1:])
        if shapes[0] != shapes[1]:
            has = [
                f"{s[0]} channels of {field}" if s else f"no {field}" for s in shapes
            ]
            if field == "quadrature_weights":
                has = [f"no {field}" if s is None else field for s in shapes]
            raise ValueError(
                f"{first.name} has {has[0]}, but {sample.name} has {has[1]}: all "
                "samples of a data set must be consistent."
            )


def check_plane(first: Built, built: Built, point_dim: int | None) -> None:
    """Raises ValueError, naming both files, for meshes in different planes of space."""
    one, other = first.plane, built.plane
    if one is None or other is None or point_dim is not None:
        return
    names = first.sample.name, built.sample.name
    base.check_plane(names[0], one.axes, names[1], other.axes)
    for axis in sorted(one.constants.keys() & other.constants.keys()):
        here, there = one.constants[axis], other.constants[axis]
        if abs(here - there) > 1e-6 * max(one.width, other.width):
            raise ValueError(
                f"{names[0]} lies at {'xyz'[axis]} = {here:g}, but {names[1]} at "
                f"{there:g}: two-dimensional meshes must lie in the same plane. Use "
                f"point_dim=3 (--point_dim=3) if models need {'xyz'[axis]}, or "
                "point_dim=2 if it does not matter."
            )


def warn_of_layers(found: Iterable[tuple[str, int | None]]) -> None:
    """Prints which meshes of one cell thickness are read as two-dimensional.

    Args:
      found: names of samples, and their `Plane.layer`.
    """
    axes = dict(found)
    flat = {name: axis for name, axis in axes.items() if axis is not None}
    if flat:
        name, axis = next(iter(flat.items()))
        warnings.warn(
            f"{len(flat)} of {len(axes)} meshes, {name} among them, are one cell "
            f"thick along {'xyz'[axis]} and are read as two-dimensional: the two "
            "sides are not a boundary, and volumes are areas. point_dim=3 "
            "(--point_dim=3) keeps them three-dimensional.",
            stacklevel=3,
        )


def warn_of_channels_first(first: Built) -> None:
    """Warns about gridded files without points whose first axis may be channels."""
    sample = first.sample
    for name, array in {"features": sample.features, "target": sample.target}.items():
        if array is not None and sample.grid_shape is not None:
            layout.warn_of_channels_first(
                f"{sample.name}: {name}", sample.grid_shape, array.shape[1]
            )


def warn_of_duplicates(counts: Iterable[tuple[str, int]]) -> None:
    """Warns about points that coincide.

    Args:
      counts: results of `num_duplicates` for all samples.
    """
    every = dict(counts)
    bad = {name: count for name, count in every.items() if count}
    if bad:
        name, count = next(iter(bad.items()))
        warnings.warn(
            f"{sum(bad.values())} points in {len(bad)} of {len(every)} samples "
            f"coincide with another point in float32; {count} in {name}. They are "
            "kept as separate points: merge them unless they are intended, and "
            "subtract large offsets from the coordinates.",
            stacklevel=3,
        )


def warn_of_offsets(
    found: Iterable[tuple[str, float]], told: Iterable[tuple[str, int]]
) -> None:
    """Warns about coordinates that lose digits in single precision.

    Args:
      found: names of samples, and their `Built.moved`.
      told: names and numbers of coinciding points that were already reported.
    """
    moves, warned = dict(found), {name for name, count in told if count}
    bad = {k: moved for k, moved in moves.items() if moved > _LOST and k not in warned}
    if bad:
        name, moved = max(bad.items(), key=lambda pair: pair[1])
        warnings.warn(
            f"Coordinates of {len(bad)} of {len(moves)} samples lose digits in "
            f"float32: points of {name} move by up to {moved:.1e} of the width of the "
            "mesh. Subtract the same offset from all files.",
            stacklevel=3,
        )


def copies(found: Iterable[Sample | Series]) -> list[tuple[str, str]]:
    """Returns the names of identical samples: the first one and its copy."""
    seen: dict[str, str] = {}
    pairs: list[tuple[str, str]] = []
    for sample in found:
        own = digest(sample) if isinstance(sample, Sample) else digest_of_series(sample)
        first = seen.setdefault(own, sample.name)
        if first != sample.name:
            pairs.append((first, sample.name))
    return pairs


def num_duplicates(sample: Sample) -> tuple[str, int]:
    """Returns the name of a sample and its number of duplicate points."""
    points = sample.mesh_points.astype(np.float32)
    ordered = points[np.lexsort(points.T)]
    count = np.all(ordered[1:] == ordered[:-1], axis=1).sum()
    return sample.name, int(count)
