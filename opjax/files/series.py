"""Series in files: evolving fields on one mesh, one case per file or folder.

A case is

- an `.npz` or `.h5` file (or a group of an `.h5` file) with an array `times (t,)` and
  fields `(t, n)` or `(t, n, c)`; other arrays are the same as in `files.read`;
- a `.pvd`, `.vtu.series` or `.vtm.series` file that lists `.vtu` (or `.vtm`) files of
  its folder with their times;
- a folder of numbered `.vtu` (or `.vtm`) files, `flow_0000.vtu`, `flow_0001.vtu`. Times
  are the field data `TimeValue`, `TIME`, `Time` or `time`, or otherwise the numbers in
  the names; decimals as in `flow_0.25.vtu` are times.

A folder may contain many cases of one kind, including folders of cases. Scalars of a
case are in its file or in a table beside it, see `opjax.files.cases`.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax._files import OnePath
from opjax.files import building, cases, components, frames, matlab, stored_frames
from opjax.files.division import check_apart
from opjax.files.formats import Paths, opened
from opjax.files.frames import Listed, find_cases
from opjax.files.npz import Arrays
from opjax.files.options import DEFAULT, ReadOptions
from opjax.files.stored_frames import StoredFrames
from opjax.files.vtk.fields import MeshArrays
from opjax.samples import Sample, Series
from opjax.samples import series as rules
from opjax.samples.division import SHARES, Divided, Shares
from opjax.samples.fields import channels_of
from opjax.samples.narrowing import narrow
from opjax.samples.series import Frames
from opjax.samples.stored import Place

# Options that series have.
_OPTIONS = (
    "features",
    "target",
    "scalars",
    "point_dim",
    "quadrature",
    "location",
    "boundary_names",
    "boundary",
    "geometry",
    "grid_axes",
    "max_bytes",
)


class SeriesSplits(Divided[Sequence[Series]]):
    """The series of a task, split.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.files.series import series_splits
      >>> points, times = np.random.default_rng(0).uniform(size=(5, 2)), np.arange(3.0)
      >>> arrays = {"mesh_points": points, "times": times}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i in range(4):
      ...         arrays["target"] = np.outer(times + i, points[:, 0])  # (t, n)
      ...         np.savez(f"{folder}/{i}.npz", **arrays)
      ...     splits = series_splits([folder])
      >>> type(splits).__name__, splits.channels
      ('SeriesSplits', {'features': (), 'target': ('target',)})
    """

    elements = "series"


class Cases(NamedTuple):
    """Series, and the names of their channels, see `SeriesSplits`.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.files.series import read_series
      >>> points, times = np.random.default_rng(0).uniform(size=(5, 2)), np.arange(3.0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     u = np.outer(times, points[:, 0])  # (t, n)
      ...     np.savez(f"{folder}/a.npz", mesh_points=points, times=times, target=u)
      ...     cases = read_series(folder)
      >>> len(cases.series), cases.channels
      (1, {'features': (), 'target': ('target',)})
    """

    series: list[Series]
    channels: dict[str, tuple[str, ...]]


class _Found(NamedTuple):
    """A series of a file, and what is known of it besides, see `building.Built`."""

    series: Series
    channels: dict[str, tuple[str, ...]]
    part: str
    layer: int | None = None


class _How(NamedTuple):
    """How series are read, see `read_series`."""

    options: ReadOptions
    min_frames: int
    in_memory: bool


def read_series(
    paths: Paths,
    options: ReadOptions = DEFAULT,
    *,
    min_frames: int = 2,
    in_memory: bool = True,
) -> Cases:
    """Reads series without unpickling, and checks that all fit the same model.

    Args:
      paths: folder, files, or folders of cases, see the module docstring.
      options: content of a series. `target` are the evolving fields, `features` are
        constant input fields, in the first frame or all of them; cells and boundaries
        are taken from the first frame.
        Scalars may be field data of the first `.vtu` file.
      min_frames: minimum number of frames of a series. With one, a field without a time
        axis is a single frame, and times may be missing.
      in_memory: whether frames are kept in memory. Otherwise a frame is read from its
        file on every access; not supported for `.npz` files.

    Returns:
      The series in float32, with times in float64; their `name` is the file or folder.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py is needed but missing.
      ValueError: if a file is damaged or too large; an array is missing or of the wrong
        shape; numbers of files have a gap; the mesh or a feature changes within a
        series; an option does not support series; or as from `samples.series.check`.
        The message names the file and the frame.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.files.series import read_series
      >>> points, times = np.random.default_rng(0).uniform(size=(5, 2)), np.arange(3.0)
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     u = np.outer(times, points[:, 0])  # (t, n)
      ...     np.savez(f"{folder}/a.npz", mesh_points=points, times=times, target=u)
      ...     [series] = read_series(folder).series
      >>> series.times.tolist(), series.values.shape
      ([0.0, 1.0, 2.0], (3, 5, 1))
    """
    read = _read_all(paths, _how(options, min_frames, in_memory))
    return Cases([one.series for one in read], read[0].channels)


def _how(options: ReadOptions, min_frames: int, in_memory: bool) -> _How:
    """How series are read; a field that evolves is called target if it has no name."""
    options.check_only(_OPTIONS, "series")
    target = options.target or ("target",)
    return _How(dataclasses.replace(options, target=target), min_frames, in_memory)


def _read_all(paths: Paths, how: _How) -> list[_Found]:
    """Reads series, at least one, and checks that all fit the same model."""
    every = [one for case in find_cases(paths) for one in _read(case, how)]
    rules.check([one.series for one in every], min_frames=how.min_frames)
    building.warn_of_layers((one.series.name, one.layer) for one in every)
    rules.warn_of_still([one.series for one in every], every[0].channels["target"])
    return every


def series_splits(
    train: Sequence[OnePath],
    test: Sequence[OnePath] = (),
    options: ReadOptions = DEFAULT,
    shares: Shares = SHARES,
    *,
    min_frames: int = 2,
    in_memory: bool = True,
) -> SeriesSplits:
    """Reads series and splits them.

    Args:
      train: folders or files of the training series, see `read_series`.
      test: the same for the test set. If empty, a fraction of the training series is
        held out.
      options: content of a series.
      shares: fractions of the split. A column `split` of `cases.csv` takes precedence
        over the fractions, even if no scalars are requested.
      min_frames: minimum number of frames of a series.
      in_memory: whether frames are kept in memory.

    Raises:
      OSError: if there are no files.
      ValueError: as for `read_series`; or if a case is in both lists, or there are too
        few to split.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.files.series import series_splits
      >>> points, times = np.random.default_rng(0).uniform(size=(5, 2)), np.arange(3.0)
      >>> arrays = {"mesh_points": points, "times": times}
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i in range(4):
      ...         arrays["target"] = np.outer(times + i, points[:, 0])  # (t, n)
      ...         np.savez(f"{folder}/{i}.npz", **arrays)
      ...     splits = series_splits([folder])
      >>> len(splits.train), len(splits.validation), len(splits.test)
      (2, 1, 1)
    """
    how = _how(options, min_frames, in_memory)
    read, tests = _read_all(train, how), None
    data = [one.series for one in read]
    if test:
        check_apart(find_cases(train), find_cases(test), "cases", "cases")
        tests = [one.series for one in _read_all(test, how)]
        rules.check([data[0], *tests], min_frames=min_frames)
    parts = [one.part for one in read]
    divided = SeriesSplits.divide(data, tests, shares, parts=parts)
    source = f"own series ({','.join(map(str, train))})"
    return divided._replace(source=source, channels=read[0].channels)


def _read(case: Path, how: _How) -> Iterator[_Found]:
    """Reads the series of a file or folder."""
    if case.is_dir() or case.suffix.lower() in frames.MESHES:
        yield _of_frames(case, list(frames.listed(case)), how)
        return
    if not how.in_memory and case.suffix.lower() == ".npz":
        raise ValueError(
            f"{case}: frames of an .npz archive cannot be read one by one, as needed "
            "for series on disk; save .h5 or .vtu files, or load it completely."
        )
    with opened(case, how.options) as groups:
        for group, arrays in groups.items():
            one = _of_arrays(case, group, arrays, how)
            if not how.in_memory:
                _check_stored(case, arrays, how.options)
                series = one.series
                fields, points = how.options.target, series.num_points
                read = partial(stored_frames.of_hdf5, case, group, fields, points)
                later = StoredFrames(read, series.values.shape, series.name)
                one = one._replace(series=series._replace(values=later))
            yield one


def _check_stored(case: Path, arrays: Arrays, options: ReadOptions) -> None:
    """Raises ValueError for a target that no array of the file holds as it is."""
    for key in options.target:
        if key not in arrays:
            raise ValueError(
                f"{case}: {key} is a component of a field, but frames on disk support "
                "only whole fields; name the field, or load it completely."
            )


def _of_arrays(case: Path, group: str, arrays: Arrays, how: _How) -> _Found:
    name, options = Place(str(case), group).name, how.options
    arrays = components.with_components(
        arrays, options.target, axes=1 + (options.grid_axes or 1)
    )
    for key in options.target:
        if key not in arrays:
            raise building.missing(name, key, arrays)
    fields = {key: np.asarray(arrays[key]) for key in options.target}
    if "times" not in arrays and how.min_frames > 1:
        raise ValueError(
            f"{name} has no array 'times', only {sorted(arrays)}; add the times of the "
            "frames, (t,)."
        )
    others = {k: np.asarray(arrays[k]) for k in arrays if k not in fields}
    points = others.get("mesh_points")
    if points is not None and points.ndim == 3:
        others["mesh_points"] = _still(name, points)
    times = others.pop("times", None)
    if times is None:
        fields = {key: field[None] for key, field in fields.items()}
        times = np.zeros(1)
    times = np.asarray(times)
    building.check_numbers(name, "times", times.dtype)
    times = matlab.vector(times)
    if times.ndim == 0:  # one frame, at that time
        fields, times = {k: f[None] for k, f in fields.items()}, times[None]
    counts = {key: len(field) if field.ndim else 0 for key, field in fields.items()}
    wrong = {key: count for key, count in counts.items() if (count,) != times.shape}
    if wrong:
        key, count = next(iter(wrong.items()))
        raise ValueError(
            f"{name}: times has shape {times.shape}, but {key} has {count} frames "
            f"{fields[key].shape}: frames or times are missing."
        )
    if not len(times):
        raise ValueError(f"{name} has no frames; a series needs at least one.")
    lead = fields[options.target[0]].shape[: 1 + (options.grid_axes or 1)]
    for key in options.features or ("features",):
        whole = components.split(key, others)
        key = whole[0] if whole and key not in others else key
        if key in others and others[key].shape[: len(lead)] == lead != times.shape:
            frames = building.numbers(name, key, others[key])
            others[key] = _constant(name, key, frames)
    fields = {k: building.numbers(name, k, field) for k, field in fields.items()}
    for key, field in fields.items():
        if field.ndim > 1:
            _check_finite(name, key, field, options.grid_axes)
    first = {key: field[0] for key, field in fields.items()}
    built = _build(name, case, group, first | others, options)
    values = [
        narrow(fields[key].reshape(len(times), built.sample.num_points, -1))
        for key in options.target
    ]
    return _found(built, times, np.concatenate(values, axis=2))


def _check_finite(name: str, key: str, field: np.ndarray, axes: int) -> None:
    """Raises ValueError, naming the frame, unless all of a field is finite.

    Args:
      name: of the series.
      key: of the field.
      field: its frames, `(t, n)` or `(t, n, c)`.
      axes: of a grid of points, if `n` are several axes.
    """
    for frame, now in enumerate(field):
        bad = ~np.isfinite(now)
        if bad.any():
            first = np.argwhere(bad)[0].tolist()
            point = tuple(first[:axes]) if axes else first[0]
            raise ValueError(
                f"{name}: frame {frame} of {key} has {bad.sum()} non-finite values, "
                f"the first one at point {point}; end the series before it or repair "
                "the frame."
            )


def _build(
    name: str, case: Path, group: str, arrays: Arrays, options: ReadOptions
) -> building.Built:
    """Builds the first frame of a series, with the scalars of the case."""
    for key in options.features:
        if key in arrays and np.ndim(arrays[key]) == 0:
            raise ValueError(
                f"{name}: {key} is one number for the whole case, not a field; pass "
                f"it as a scalar, --scalar_names={key}, instead of --feature_names."
            )
    row = cases.row_of(case, group, named=options.has_scalars)
    return building.build(name, arrays, options, row)


def _still(name: str, points: np.ndarray) -> np.ndarray:
    """The points of a mesh that is given for every frame; it must not move."""
    for frame, now in enumerate(points):
        if not np.array_equal(now, points[0]):
            raise ValueError(
                f"{name}: the mesh changes within the series, at frame {frame}; a "
                "series must have one mesh. Interpolate to one mesh, or pass the "
                "displacement as a field."
            )
    return points[0]


def _constant(name: str, key: str, frames: np.ndarray) -> np.ndarray:
    """The values of a feature that is given for every frame; it must not change."""
    for number, now in enumerate(frames):
        if not np.array_equal(now, frames[0], equal_nan=True):
            note = ""
            if frames.ndim == 2 and frames.shape[0] == frames.shape[1]:
                note = f" If its shape {frames.shape} is that of points and channels, "
                note += "store each channel as a field."
            raise _changes(name, key, f"{number}", note)
    return frames[0]


def _found(built: building.Built, times: np.ndarray, values: Frames) -> _Found:
    """A series whose mesh, constants and scalars are those of its first frame."""
    sample = built.sample
    names = built.channels.get("scalars", ())
    numbers = () if sample.scalars is None else sample.scalars.tolist()
    series = Series(
        sample.mesh_points,
        np.asarray(times, np.float64),
        values,
        features=sample.features,
        quadrature_weights=sample.quadrature_weights,
        cells=sample.cells,
        grid_shape=sample.grid_shape,
        scalars=dict(zip(names, numbers, strict=True)) or None,
        name=sample.name,
        axes=sample.axes,
    )
    layer = None if built.plane is None else built.plane.layer
    return _Found(series, built.channels, built.part, layer)


def _of_frames(case: Path, listed: list[Listed], how: _How) -> _Found:
    """Reads a series of `.vtu` files."""
    values: list[np.ndarray] = []
    times: list[float] = []
    first: building.Built | None = None
    # Weights, features and scalars are those of the first frame.
    names = ("features", "scalars", "boundary_names", "geometry")
    later = dataclasses.replace(
        how.options, quadrature=False, boundary="", **dict.fromkeys(names, ())
    )
    named = how.options.features
    for number, (file, time, step) in enumerate(listed):
        with opened(file, later if first else how.options, step=step) as groups:
            arrays = groups[""]
            if first is None:
                built = first = _build(str(file), case, "", arrays, how.options)
            else:
                held = tuple(key for key in named if _holds(arrays, key, later))
                options = dataclasses.replace(later, features=held)
                built = building.build(str(file), arrays, options)
                _check_same_scalars(case, number, file, arrays, first)
                _check_same_features(case, number, file, first, built)
            _check_same_mesh(case, number, file, first.sample, built.sample)
            now = built.sample.target
            assert now is not None
            if values and now.shape != values[0].shape:
                raise ValueError(
                    f"{case}: frame {number} ({file.name}) has {now.shape[1]} "
                    f"target channels, but frame 0 has {values[0].shape[1]}."
                )
            values.append(now if how.in_memory or not values else values[0])
            times.append(building.time_of(arrays) if time is None else time)
    assert first is not None
    if any(map(math.isnan, times)):  # some have no time of their own
        times = frames.numbers(case, [frame.file for frame in listed])
    first = first._replace(sample=first.sample._replace(name=str(case)))
    if how.in_memory:
        return _found(first, np.asarray(times), np.stack(values))
    read = partial(stored_frames.of_meshes, listed, later)
    stored = StoredFrames(read, (len(times), *values[0].shape), str(case))
    return _found(first, np.asarray(times), stored)


def _check_same_mesh(
    case: Path, number: int, file: Path, first: Sample, now: Sample
) -> None:
    same = np.array_equal(first.mesh_points, now.mesh_points)
    if same and (first.cells is None) == (now.cells is None):
        same = first.cells is None or np.array_equal(first.cells, now.cells)  # pyright: ignore
    if not same:
        raise ValueError(
            f"{case}: the mesh changes within the series, at frame {number} "
            f"({file.name}); a series must have one mesh. Interpolate to one mesh, or "
            "pass the displacement as a field."
        )


def _holds(arrays: Arrays, key: str, options: ReadOptions) -> bool:
    """Whether a frame has a field, or a component of it, at the location of points."""
    arrays = components.with_components(arrays, (key,))
    if options.location == "cells" and isinstance(arrays, MeshArrays):
        return key in arrays.mesh.cell_data.arrays
    return key in arrays


def _check_same_features(
    case: Path, number: int, file: Path, first: building.Built, now: building.Built
) -> None:
    """Raises ValueError for a feature that a later frame has otherwise."""
    if first.sample.features is None or now.sample.features is None:
        return
    before, after = (channels_of(one.channels["features"]) for one in (first, now))
    for key in before.keys() & after.keys():
        was = first.sample.features[:, before[key]]
        if _differ(was, now.sample.features[:, after[key]]):
            raise _changes(str(case), key, f"{number} ({file.name})")


def _differ(was: np.ndarray, now: np.ndarray) -> bool:
    """Whether values differ by more than their rounding."""
    if was.shape != now.shape:
        return True
    eps = max(np.finfo(array.dtype).eps for array in (was, now))
    return bool((np.abs(now - was) > 4 * eps * np.abs(was).max(initial=0)).any())


def _changes(name: str, key: str, frame: str, note: str = "") -> ValueError:
    return ValueError(
        f"{name}: the feature {key} changes within the series, between frame 0 and "
        f"frame {frame}; --feature_names are constant. Add {key} to --target_names "
        f"instead, or store the same values in all frames.{note}"
    )


def _check_same_scalars(
    case: Path, number: int, file: Path, arrays: Arrays, first: building.Built
) -> None:
    """Raises ValueError for a scalar that a later frame says otherwise."""
    scalars = first.sample.scalars
    if scalars is None:
        return
    for key, value in zip(first.channels["scalars"], scalars, strict=True):
        now = cases.read(str(file), arrays, None, (key,), needed=False)
        if now is not None and now[0] != value:
            raise ValueError(
                f"{case}: the scalar {key} changes within the series, from {value:g} "
                f"to {now[0]:g} at frame {number} ({file.name}); a scalar is one "
                "number for the whole case. Pass quantities that change as fields in "
                "--target_names."
            )
