"""Series in files: fields that evolve on one mesh, one case per file or folder.

A case is

- an `.npz` or `.h5` file (or a group of an `.h5` file) with an array `times (t,)` and
  fields `(t, n)` or `(t, n, c)`; other arrays are as in `files.read`;
- a `.pvd` or `.vtu.series` file that lists `.vtu` (or `.vtm`) files of its folder with
  their times;
- a folder of numbered `.vtu` files, `flow_0000.vtu`, `flow_0001.vtu`, whose times are
  the field data `TimeValue`, or else the numbers; of `flow_0.25.vtu` the decimals.

A folder may hold many of one kind, folders of cases among them. Scalars of a case are
in its file, or in a table beside it, see `opjax.files.cases`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.files import building, cases, frames, matlab, stored_frames
from opjax.files.building import Wanted
from opjax.files.division import rows_at_random
from opjax.files.formats import OnePath, Paths, opened
from opjax.files.frames import Listed, find_cases
from opjax.files.npz import Arrays
from opjax.files.reading import MAX_BYTES, Names, parse_names, wanted_of
from opjax.files.stored_frames import StoredFrames
from opjax.samples import Sample, Series
from opjax.samples import series as rules
from opjax.samples.narrowing import narrow
from opjax.samples.series import Frames


class SeriesSplits(NamedTuple):
    """The series of a task.

    Attributes:
      train: for training.
      validation: chooses the model.
      test: used once.
      source: where they come from.
      channels: names of the channels of "features" (constant fields) and "target"
        (fields that evolve).
    """

    train: Sequence[Series]
    validation: Sequence[Series]
    test: Sequence[Series]
    source: str
    channels: Mapping[str, tuple[str, ...]]


class Cases(NamedTuple):
    """Series, and the names of their channels, see `SeriesSplits`."""

    series: list[Series]
    channels: dict[str, tuple[str, ...]]


class _Found(NamedTuple):
    """A series of a file, and what is known of it besides, see `building.Built`."""

    series: Series
    channels: dict[str, tuple[str, ...]]
    part: str


class How(NamedTuple):
    """How series are read, see `read_series`."""

    wanted: Wanted
    point_dim: int | None
    min_frames: int
    max_bytes: int
    in_memory: bool


def read_series(
    paths: Paths,
    *,
    target: Names = None,
    features: Names = None,
    scalars: Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    grid_axes: int = 0,
    min_frames: int = 2,
    in_memory: bool = True,
    max_bytes: int = MAX_BYTES,
) -> Cases:
    """Reads series, never unpickling, and checks that all fit the same model.

    Args:
      paths: folder, files, or folders of cases, see the top of this module.
      target: names of the fields that evolve, as a sequence or with commas; by default
        `target`.
      features: names of constant fields that models see beside them; by default
        `features`, where it exists.
      scalars: names of numbers of the case that models see too, see `files.cases`:
        arrays of one number, field data of the first `.vtu` file, or columns of
        `cases.csv` in the folder of the cases.
      point_dim: of VTK files, see `files.read`.
      quadrature: make weights of the points from the cells where a file has none.
      grid_axes: number of axes of the grid on which fields `(t, h, w)` lie in files
        that have no points; 0 for files with points.
      min_frames: fewest frames of a series. With one, fields without an axis of time
        are its only frame, and times may be missing.
      in_memory: whether frames are kept in memory. Otherwise a frame is read from its
        file whenever it is looked up; not for `.npz` files.
      max_bytes: largest size of the arrays of a file.

    Returns:
      The series in float32, with times in float64; their `name` is the file or folder.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py is needed and missing.
      ValueError: if a file is damaged or too large; an array is missing or of the wrong
        shape; numbers of files have a gap; the mesh changes within a series; or as from
        `samples.series.check`. The message names the file, and the frame.
    """
    how = _how(
        target,
        features,
        scalars,
        quadrature=quadrature,
        grid_axes=grid_axes,
        point_dim=point_dim,
        min_frames=min_frames,
        max_bytes=max_bytes,
        in_memory=in_memory,
    )
    found = _read_all(paths, how)
    return Cases([one.series for one in found], found[0].channels)


def _how(
    target: Names,
    features: Names,
    scalars: Names,
    *,
    quadrature: bool,
    grid_axes: int,
    point_dim: int | None,
    min_frames: int,
    max_bytes: int,
    in_memory: bool,
) -> How:
    """How series are read; a field that evolves is called target if it has no name."""
    wanted = wanted_of(
        features,
        parse_names(target) or ("target",),
        True,
        quadrature,
        grid_axes,
        scalars=scalars,
    )
    return How(wanted, point_dim, min_frames, max_bytes, in_memory)


def _read_all(paths: Paths, how: How) -> list[_Found]:
    """Reads series, at least one, and checks that all fit the same model."""
    found = [one for case in find_cases(paths) for one in _read(case, how)]
    rules.check([one.series for one in found], min_frames=how.min_frames)
    return found


def series_splits(
    train: Sequence[OnePath],
    test: Sequence[OnePath] = (),
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    num_train: int = 0,
    num_validation: int = 0,
    num_test: int = 0,
    seed: int = 0,
    target: Names = None,
    features: Names = None,
    scalars: Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    grid_axes: int = 0,
    min_frames: int = 2,
    in_memory: bool = True,
    max_bytes: int = MAX_BYTES,
) -> SeriesSplits:
    """Reads series and divides them at random.

    Args:
      train: folders or files of the training series, see `read_series`.
      test: likewise, of the test set. If empty, a part of the training series.
      validation_fraction: part of the training series for validation, at least one.
      test_fraction: part of the training series for the test set, if `test` is empty.
      num_train: maximum number of training series. 0 uses all of them.
      num_validation: maximum number of validation series, likewise.
      num_test: maximum number of test series, likewise.
      seed: of the division.
      target: see `read_series`; likewise the others.
      features: names of constant fields.
      scalars: names of numbers of the case. A column `split` of `cases.csv` divides the
        series in place of the fractions, also without scalars.
      point_dim: of VTK files.
      quadrature: make weights of the points from the cells.
      grid_axes: number of axes of the grid of files without points.
      min_frames: fewest frames of a series.
      in_memory: whether frames are kept in memory.
      max_bytes: largest size of the arrays of a file.

    Raises:
      OSError: if there are no files.
      ValueError: as for `read_series`; or if a case is in both lists, or there are too
        few to be divided.
    """
    how = _how(
        target,
        features,
        scalars,
        quadrature=quadrature,
        grid_axes=grid_axes,
        point_dim=point_dim,
        min_frames=min_frames,
        max_bytes=max_bytes,
        in_memory=in_memory,
    )
    read, tests = _read_all(train, how), None
    found = [one.series for one in read]
    if test:
        both = {*map(Path.resolve, find_cases(train))}
        both &= {*map(Path.resolve, find_cases(test))}
        if both:
            raise ValueError(
                f"{len(both)} cases are in train and in test, such as {min(both)}; a "
                "test needs other cases."
            )
        tests = [one.series for one in _read_all(test, how)]
        rules.check([found[0], *tests], min_frames=min_frames)
    if any(one.part for one in read):
        rows = cases.rows_of_parts([one.part for one in read], given=bool(test))
        parts = [[found[row] for row in rows[part]] for part in cases.PARTS]
        divided = SeriesSplits(parts[0], parts[1], parts[2], "own series", {})
    else:
        divided = divide(
            found,
            tests,
            validation_fraction=validation_fraction,
            test_fraction=test_fraction,
            seed=seed,
        )
    return SeriesSplits(
        divided.train[: num_train or None],
        divided.validation[: num_validation or None],
        divided.test[: num_test or None],
        f"own series ({','.join(map(str, train))})",
        read[0].channels,
    )


def divide(
    found: Sequence[Series],
    tests: Sequence[Series] | None = None,
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> SeriesSplits:
    """Divides series at random for training, validation and tests.

    Args:
      found: the series.
      tests: the test set; a part of `found` if None.
      validation_fraction: part of the training series for validation, at least one.
      test_fraction: part of the series for the test set, if it is not given.
      seed: of the division.

    Raises:
      ValueError: if they are too few to be divided.
    """
    rows = rows_at_random(
        len(found),
        validation_fraction=validation_fraction,
        test_fraction=test_fraction if tests is None else None,
        seed=seed,
        what="series",
    )
    kept, validation, test = (
        [found[row] for row in rows[part]] for part in cases.PARTS
    )
    test = test if tests is None else tests
    return SeriesSplits(kept, validation, test, "own series", {})


def _read(case: Path, how: How) -> Iterator[_Found]:
    """Reads the series of a file or folder."""
    if case.is_dir() or case.suffix.lower() in (".pvd", ".series", ".vtu"):
        yield _of_frames(case, list(frames.listed(case)), how)
        return
    if not how.in_memory and case.suffix.lower() == ".npz":
        raise ValueError(
            f"{case}: frames of an .npz archive cannot be read one by one, as series "
            "that stay on disk are; save .h5 or .vtu files, or read all of it."
        )
    with opened(case, max_bytes=how.max_bytes) as groups:
        for group, arrays in groups.items():
            one = _of_arrays(case, group, arrays, how)
            if not how.in_memory:
                series = one.series
                fields, points = how.wanted.target, series.num_points
                read = partial(stored_frames.of_hdf5, case, group, fields, points)
                later = StoredFrames(read, series.values.shape, series.name)
                one = one._replace(series=series._replace(values=later))
            yield one


def _of_arrays(case: Path, group: str, arrays: Arrays, how: How) -> _Found:
    name, wanted = str(case / group) if group else str(case), how.wanted
    for key in wanted.target:
        if key not in arrays:
            raise building.missing(name, key, arrays)
    fields = {key: np.asarray(arrays[key]) for key in wanted.target}
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
            f"{fields[key].shape}: frames are missing, or times are."
        )
    if not len(times):
        raise ValueError(f"{name} has no frames; give at least one.")
    fields = {k: building.numbers(name, k, field) for k, field in fields.items()}
    for key, field in fields.items():
        if field.ndim > 1:
            _check_finite(name, key, field, wanted.grid_axes)
    first = {key: field[0] for key, field in fields.items()}
    built = _build(name, case, group, first | others, wanted)
    values = [
        narrow(fields[key].reshape(len(times), built.sample.num_points, -1))
        for key in wanted.target
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
                f"{name}: frame {frame} of {key} has {bad.sum()} values that are not "
                f"finite, the first one at point {point}; end the series before it or "
                "repair the frame."
            )


def _build(
    name: str, case: Path, group: str, arrays: Arrays, wanted: Wanted
) -> building.Built:
    """Builds the first frame of a series, with the scalars of the case."""
    for key in wanted.features:
        if key in arrays and np.ndim(arrays[key]) == 0:
            raise ValueError(
                f"{name}: {key} is one number for the whole case, and no field; give "
                f"it as a scalar, --scalar_names={key}, not among --feature_names."
            )
    table = cases.table_of_series(case, group, named=bool(wanted.scalars))
    if table is None:
        return building.build(name, arrays, wanted)
    return building.build(name, arrays, wanted, table=table[0], row=table[1])


def _still(name: str, points: np.ndarray) -> np.ndarray:
    """The points of a mesh that is given for every frame; it must not move."""
    for frame, now in enumerate(points):
        if not np.array_equal(now, points[0]):
            raise ValueError(
                f"{name}: the mesh changes within the series, at frame {frame}; a "
                "series has one mesh. Interpolate to one, or give the displacement as "
                "a field."
            )
    return points[0]


def _found(built: building.Built, times: np.ndarray, values: Frames) -> _Found:
    """A series whose mesh, constants and scalars are those of its first frame."""
    sample = built.sample
    names = built.channels.get("scalars", ())
    given = () if sample.scalars is None else sample.scalars.tolist()
    series = Series(
        sample.mesh_points,
        np.asarray(times, np.float64),
        values,
        features=sample.features,
        quadrature_weights=sample.quadrature_weights,
        cells=sample.cells,
        grid_shape=sample.grid_shape,
        scalars=dict(zip(names, given, strict=True)) or None,
        name=sample.name,
    )
    return _Found(series, built.channels, built.part)


def _of_frames(case: Path, listed: list[Listed], how: How) -> _Found:
    """Reads a series of `.vtu` files."""
    values: list[np.ndarray] = []
    times: list[float] = []
    first: building.Built | None = None
    for number, (file, time) in enumerate(listed):
        with opened(
            file,
            max_bytes=how.max_bytes,
            point_dim=how.point_dim,
            # Weights are those of the first frame.
            quadrature=how.wanted.quadrature and first is None,
        ) as groups:
            arrays = groups[""]
            if first is None:
                built = first = _build(str(file), case, "", arrays, how.wanted)
            else:
                built = building.build(str(file), arrays, _of_later_frames(how.wanted))
                _check_same_scalars(case, number, file, arrays, first)
            _check_same_mesh(case, number, file, first.sample, built.sample)
            now = built.sample.target
            assert now is not None
            if values and now.shape != values[0].shape:
                raise ValueError(
                    f"{case}: frame {number} ({file.name}) has {now.shape[1]} "
                    f"channels of the target, frame 0 has {values[0].shape[1]}."
                )
            values.append(now if how.in_memory or not values else values[0])
            times.append(building.time_of(arrays) if time is None else time)
    assert first is not None
    if any(map(math.isnan, times)):  # some have no time of their own
        times = frames.numbers(case, [file for file, _ in listed])
    first = first._replace(sample=first.sample._replace(name=str(case)))
    if how.in_memory:
        return _found(first, np.asarray(times), np.stack(values))
    read = partial(
        stored_frames.of_vtu,
        [file for file, _ in listed],
        _of_later_frames(how.wanted),
        how.point_dim,
        how.max_bytes,
    )
    later = StoredFrames(read, (len(times), *values[0].shape), str(case))
    return _found(first, np.asarray(times), later)


def _of_later_frames(wanted: Wanted) -> Wanted:
    """What is read of the frames after the first one, which has what is constant."""
    return wanted._replace(features=(), quadrature=False, scalars=())


def _check_same_mesh(
    case: Path, number: int, file: Path, first: Sample, now: Sample
) -> None:
    same = np.array_equal(first.mesh_points, now.mesh_points)
    if same and (first.cells is None) == (now.cells is None):
        same = first.cells is None or np.array_equal(first.cells, now.cells)  # pyright: ignore
    if not same:
        raise ValueError(
            f"{case}: the mesh changes within the series, at frame {number} "
            f"({file.name}); a series has one mesh. Interpolate to one, or give the "
            "displacement as a field."
        )


def _check_same_scalars(
    case: Path, number: int, file: Path, arrays: Arrays, first: building.Built
) -> None:
    """Raises ValueError for a scalar that a later frame says otherwise."""
    known = first.sample.scalars
    if known is None:
        return
    for key, value in zip(first.channels["scalars"], known, strict=True):
        now = cases.read(str(file), arrays, None, (key,), needed=False)
        if now is not None and now[0] != value:
            raise ValueError(
                f"{case}: the scalar {key} changes within the series, from {value:g} "
                f"to {now[0]:g} at frame {number} ({file.name}); a scalar is one "
                "number for the whole case. Give what changes as a field, one of "
                "--target_names."
            )
