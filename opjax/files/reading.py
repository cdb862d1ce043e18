"""Your own data: samples from `.npz`, `.h5` and VTK files and surfaces, and back again.

One file holds one sample on one mesh, or, in HDF5, a group does. Arrays are found by
their names:

    mesh_points         coordinates (n, p); in VTK files the points of the mesh
    features            input function (n, c), or (n,), if there is one
    target              output function (n, q), or (n,), where it is known
    quadrature_weights  weights of the points (n,)
    cells               point indices of the cells (m, corners)
    grid_shape          points per axis, of a structured grid in row-major order

and fields of other names are asked for: `read(folder, features="k,f", target="u")`.
"""

import csv
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypedDict

from opjax import samples
from opjax.files import building, cases, repeats
from opjax.files.boundaries import GEOMETRY
from opjax.files.building import Built, Wanted
from opjax.files.formats import Paths, find, opened
from opjax.files.npz import Arrays, Groups
from opjax.files.topology import LOCATIONS
from opjax.samples import Sample, layout, summaries
from opjax.samples.narrowing import narrow_samples
from opjax.samples.stored import Place, Stored

Names = str | Sequence[str] | None
MAX_BYTES = 2**33


class ReadOptions(TypedDict, total=False):
    """Keyword arguments that `read` and `extended` share."""

    features: Names
    target: Names
    point_dim: int | None
    quadrature: bool
    grid_axes: int
    need_target: bool
    max_bytes: int
    location: str
    boundary_names: Names
    geometry: Names
    scalars: Names
    target_scalars: Names


def read(
    paths: Paths,
    *,
    features: Names = None,
    target: Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    grid_axes: int = 0,
    need_target: bool = True,
    stacked: bool = False,
    max_bytes: int = MAX_BYTES,
    location: str = "points",
    boundary_names: Names = None,
    geometry: Names = None,
    scalars: Names = None,
    target_scalars: Names = None,
) -> list[Sample]:
    """Reads samples, never unpickling, and checks that all fit the same model.

    Points that coincide (in float32, to which all is rounded) are kept, and counted in
    a warning: meshes with cracks have them, and so have coordinates with a large
    offset, which should be subtracted.

    Args:
      paths: folder or files, see `find`; they are read in the order of their names.
      features: names of fields that together are the input function, as a sequence or
        with commas; scalars and vectors. By default `features`, where it exists.
      target: names of the fields to predict; by default `target`, where it exists.
      point_dim: of VTK files, whose points have three coordinates: the number of
        leading axes that are space, others being constant. By default all axes on
        which coordinates vary, so that a mesh in a plane is 2-D.
      quadrature: make weights of the points from the cells where a file has none;
        points of no cell get zero weight, which masks them.
      grid_axes: number of axes of the grid on which fields lie in files that have no
        points: 2 for arrays `(h, w)` or `(h, w, channels)`, on a uniform grid of the
        unit square. 0 for files with points.
      need_target: whether missing fields of `target` are an error; samples have no
        target otherwise.
      stacked: whether every array of a file has samples along axis 0: `.npz` and `.h5`
        files, or folders of one `.npy` file for each array. `mesh_points`, `cells`,
        `quadrature_weights` and `grid_shape` may also be one for all samples, with an
        axis less.
      max_bytes: largest size of the arrays of a file, uncompressed; of a sample, if
        they are stacked.
      location: `"cells"` for fields with one row for each cell: the points of a sample
        are then the cells' centres of mass, and its quadrature weights their volumes
        (areas). VTK files have them as cell data, others as arrays of as many rows as
        `cells`. Of a mixed mesh, cells of the highest dimension count.
      boundary_names: named boundaries, which become features that are one there and
        zero elsewhere, and `Sample.boundaries`. In VTK files they are masks
        `boundary_NAME`, or numbers `boundary` with or without names in the field data
        `boundary_names`, at points or cells; in others, arrays `boundary_NAME` of point
        indices or booleans, or numbers `boundary` of the points.
      geometry: `"normals"`, `"distance"` or both, features of the shape: the outward
        unit normal of the nearest facet, and the distance to it, of each named
        boundary, or of the mesh's boundary if none is named.
      scalars: names of numbers that are given for the whole sample, see `files.cases`:
        arrays of one number, in VTK files field data, or columns of a table
        `cases.csv` in the folder of the files.
      target_scalars: names of such numbers to predict.

    Returns:
      The samples in float32; their `name` is the file, with the group or the row.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed and missing.
      ValueError: if a file is damaged, pickled, too large or of an unknown format; an
        array is missing, not of real numbers, not finite or of the wrong shape; cells
        name points that do not exist; or samples differ in dimension or channels.
    """
    wanted = wanted_of(
        features,
        target,
        need_target,
        quadrature,
        grid_axes,
        location=location,
        boundary_names=boundary_names,
        geometry=geometry,
        scalars=scalars,
        target_scalars=target_scalars,
    )
    how = How(wanted, point_dim, stacked, max_bytes)
    return read_all(paths, how).samples


def stored(
    paths: Paths,
    *,
    features: Names = None,
    target: Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    grid_axes: int = 0,
    stacked: bool = False,
    max_bytes: int = MAX_BYTES,
    location: str = "points",
    boundary_names: Names = None,
    geometry: Names = None,
    scalars: Names = None,
    target_scalars: Names = None,
) -> Stored:
    """Looks at samples as `read` does, one after the other, and leaves them on disk.

    Args:
      paths: see `read`; likewise the others.
      features: names of fields that together are the input function.
      target: names of the fields to predict.
      point_dim: number of leading axes that are space.
      quadrature: make weights of the points from the cells.
      grid_axes: number of axes of the grid of files without points.
      stacked: whether arrays have samples along axis 0.
      max_bytes: largest size of the arrays of a file.
      location: whether fields are at points or at cells.
      boundary_names: named boundaries that become features.
      geometry: features of the shape.
      scalars: numbers that are given for the whole sample.
      target_scalars: numbers of the whole sample to predict.

    Returns:
      The same samples, each of which is read from its file when it is looked up.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed and missing.
      ValueError: as for `read`.
    """
    wanted = wanted_of(
        features,
        target,
        True,
        quadrature,
        grid_axes,
        location=location,
        boundary_names=boundary_names,
        geometry=geometry,
        scalars=scalars,
        target_scalars=target_scalars,
    )
    how = How(wanted, point_dim, stacked, max_bytes)
    return look_at_all(paths, how).samples


def wanted_of(
    features: Names,
    target: Names,
    need_target: bool,
    quadrature: bool,
    grid_axes: int,
    *,
    location: str = "points",
    boundary_names: Names = None,
    geometry: Names = None,
    scalars: Names = None,
    target_scalars: Names = None,
) -> Wanted:
    """What a sample is made of, see `read`.

    Raises:
      ValueError: if there is no such grid, location or feature, a field is named twice,
        or options do not go together.
    """
    if not 0 <= grid_axes <= 3:
        raise ValueError(f"grid_axes={grid_axes} must be 1, 2 or 3, or 0 for points.")
    names = parse_names(features), parse_names(target)
    shape = parse_names(boundary_names), parse_names(geometry)
    _check_shape(location, *shape, quadrature=quadrature, grid_axes=grid_axes)
    numbers = parse_names(scalars), parse_names(target_scalars)
    _check_once(*names, *numbers)
    return Wanted(
        *names, need_target, quadrature, grid_axes, location, *shape, *numbers
    )


def _check_once(
    features: tuple[str, ...],
    target: tuple[str, ...],
    scalars: tuple[str, ...],
    target_scalars: tuple[str, ...],
) -> None:
    """Raises ValueError for a scalar that has two roles."""
    for name in (*scalars, *target_scalars):
        if name in (*features, *target) or name in scalars and name in target_scalars:
            raise ValueError(
                f"{name} is named as a scalar and as something else; it can be one of "
                "scalar_names, target_scalars, feature_names and target_names. Rename "
                f"the scalar, for example to {name}_inlet in cases.csv."
            )
        if name in ("file", "split"):
            raise ValueError(f"A scalar cannot be named {name}, a column of the table.")


def _check_shape(
    location: str,
    boundary_names: tuple[str, ...],
    geometry: tuple[str, ...],
    *,
    quadrature: bool,
    grid_axes: int,
) -> None:
    """Raises ValueError for an unknown value, and for options that mean nothing."""
    if location not in LOCATIONS:
        raise ValueError(f"{location=} is unknown; choose from {', '.join(LOCATIONS)}.")
    if unknown := sorted(set(geometry) - set(GEOMETRY)):
        raise ValueError(f"geometry={unknown} is unknown; choose from {GEOMETRY}.")
    if quadrature and location == "cells":
        raise ValueError(
            "quadrature=True means nothing with location='cells', whose quadrature "
            "weights are the volumes of the cells; leave it out."
        )
    asked = {"location": location == "cells", "boundary_names": bool(boundary_names)}
    asked["geometry"] = bool(geometry)
    if grid_axes and any(asked.values()):
        raise ValueError(
            f"{next(k for k, given in asked.items() if given)} means nothing with "
            f"{grid_axes=}, whose files have no cells; leave one of them out."
        )


class How(NamedTuple):
    """How files are read, see `read`."""

    wanted: Wanted
    point_dim: int | None
    stacked: bool
    max_bytes: int

    @contextmanager
    def open(self, file: Path, group: str | None = None) -> Generator[Groups]:
        """Opens a file, or one group of it."""
        with opened(
            file,
            max_bytes=self.max_bytes,
            point_dim=self.point_dim,
            quadrature=self.wanted.quadrature,
            group=group,
            stacked=self.stacked,
        ) as groups:
            yield groups

    def build(self, place: Place, arrays: Arrays) -> Built:
        """Builds a sample of its arrays."""
        name = str(Path(place.file) / place.group) if place.group else place.file
        named = bool(self.wanted.scalars or self.wanted.target_scalars)
        file = Path(place.file)
        table = cases.table_of(file, named=named)
        row = None if table is None else table.row(file, place.group)
        return building.build(name, arrays, self.wanted, table=table, row=row)


class InMemory(NamedTuple):
    """Samples, the names of their channels, and what a table says they are for.

    The first one besides, with which those of other sets have to agree, and what is
    kept of all to find those that are repeated.
    """

    samples: list[Sample]
    channels: dict[str, tuple[str, ...]]
    parts: list[str]
    first: Built
    seen: list[repeats.Seen]


class OnDisk(NamedTuple):
    """Samples on disk, and what `InMemory` says of those in memory."""

    samples: Stored
    channels: dict[str, tuple[str, ...]]
    parts: list[str]
    first: Built
    seen: list[repeats.Seen]


def read_all(paths: Paths, how: How, *, like: Built | None = None) -> InMemory:
    """Reads samples, see `read`; in the plane of `like`, if that is given."""
    found: list[Sample] = []
    told = _Told(how, like)
    for _, built in _each(find(paths, stacked=how.stacked), how):
        found.append(built.sample)
        told.look_at(built)
    found = narrow_samples(found)
    samples.check(found)
    told.warn()
    first = told.first
    return InMemory(found, first.channels, told.parts, first, told.seen)


def look_at_all(paths: Paths, how: How, *, like: Built | None = None) -> OnDisk:
    """Looks at samples and leaves them on disk, see `stored` and `read_all`."""
    files = find(paths, stacked=how.stacked)
    if how.stacked and files[0].suffix.lower() == ".npz":
        raise ValueError(
            f"{files[0]} cannot be read by row, as samples that stay on disk are; save "
            "an .h5 file or a folder of .npy files, or read all of it."
        )
    places: list[Place] = []
    known: list[summaries.Summary] = []
    told = _Told(how, like)
    for place, built in _each(files, how):
        told.look_at(built)
        samples.check([built.sample])
        places.append(place)
        known.append(summaries.summarize(built.sample))
    found = Stored(places, known, partial(_one, how))
    told.warn()
    first = told.first
    return OnDisk(found, first.channels, told.parts, first, told.seen)


class _Told:
    """What is learnt of samples one by one, and said of all at the end.

    Args:
      how: they are read.
      like: a sample of another set, whose plane is theirs.
    """

    def __init__(self, how: How, like: Built | None):
        self._how, self._like = how, like
        self._first: Built | None = None
        self.parts: list[str] = []
        self._duplicates: list[tuple[str, int]] = []
        self._moved: list[tuple[str, float]] = []
        self.seen: list[repeats.Seen] = []
        self._senses: list[tuple[str, tuple[int, ...]]] = []

    @property
    def first(self) -> Built:
        """The first sample."""
        assert self._first is not None, "a sample"
        return self._first

    def look_at(self, built: Built) -> None:
        """Checks that a sample agrees with the first one, and keeps what is to be said.

        Raises:
          ValueError: if it does not.
        """
        first = self._first = self._first or built
        building.check_agree(first.sample, built.sample)
        building.check_plane(self._like or first, built, self._how.point_dim)
        sample = built.sample
        self.parts.append(built.part)
        self._duplicates.append(building.num_duplicates(sample))
        self._moved.append((sample.name, built.moved))
        self.seen.append(repeats.seen(sample, built.time))
        sense = layout.sense(sample.mesh_points, sample.grid_shape)
        self._senses.append((sample.name, sense))

    def warn(self) -> None:
        """Warns of what is doubtful, each once."""
        building.warn_of_duplicates(self._duplicates)
        building.warn_of_offsets(self._moved, self._duplicates)
        layout.check_axes(self._senses)
        if self._how.wanted.grid_axes:
            building.warn_of_channels_first(self.first)


def _each(files: Iterable[Path], how: How) -> Iterator[tuple[Place, Built]]:
    """Reads the samples of files, and says where they are."""
    for file in files:
        with how.open(file) as groups:
            for group, arrays in groups.items():
                place = Place(str(file), group)
                yield place, how.build(place, arrays)


def _one(how: How, place: Place) -> Sample:
    """Reads one sample again."""
    with how.open(Path(place.file), place.group) as groups:
        return how.build(place, groups[place.group]).sample


def channels(
    paths: Paths, names: Names, *, stacked: bool = False, max_bytes: int = MAX_BYTES
) -> tuple[str, ...] | None:
    """Names of the channels that fields have, from the first file.

    Args:
      paths: as for `read`.
      names: fields, as for `read`.
      stacked: as for `read`.
      max_bytes: as for `read`.

    Returns:
      One name for each channel, a vector's for each of its components; None if the
      file lacks a field.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed and missing.
      ValueError: as for `read`.
    """
    listed: list[str] = []
    file = find(paths, stacked=stacked)[0]
    with opened(file, max_bytes=max_bytes, stacked=stacked) as groups:
        arrays = next(iter(groups.values()))
        for name in parse_names(names):
            if name not in arrays:
                return None
            array = arrays[name]
            listed += [name] * (array.shape[1] if array.ndim == 2 else 1)
    return tuple(listed)


def parse_names(names: Names) -> tuple[str, ...]:
    """Turns names with commas between them into a tuple.

    A name that has a comma itself is put into double quotes: `"Stress, Mises",U`.

    Raises:
      ValueError: if a name is given twice.
    """
    if isinstance(names, str):
        names = next(csv.reader([names], skipinitialspace=True), [])
    stripped = tuple(name.strip() for name in names or () if name.strip())
    if len(set(stripped)) < len(stripped):
        raise ValueError(f"Every field can be named once, not {','.join(stripped)!r}.")
    return stripped
