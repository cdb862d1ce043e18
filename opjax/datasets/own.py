"""Your own data: samples from `.npz`, `.h5`, `.vtu` and `.vtk` files, and back again.

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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.datasets import _own_arrays, _own_sample, summaries
from opjax.datasets import samples as _samples
from opjax.datasets._own_files import Paths, find, opened
from opjax.datasets._own_write import write
from opjax.datasets.samples import Sample
from opjax.datasets.stored import Place, Stored

__all__ = ["channels", "find", "parse_names", "read", "stored", "write"]

_Names = str | Sequence[str] | None


def read(
    paths: Paths,
    *,
    features: _Names = None,
    target: _Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    need_target: bool = True,
    stacked: bool = False,
    max_bytes: int = 2**33,
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
        leading axes that are space, others being constant. By default all axes but
        those where all coordinates are zero, so that a mesh in the plane is 2-D.
      quadrature: make weights of the points from the cells where a file has none;
        points of no cell get zero weight, which masks them.
      need_target: whether missing fields of `target` are an error; samples have no
        target otherwise.
      stacked: whether every array of a file has samples along axis 0: `.h5` files, or
        folders of one `.npy` file for each array. `mesh_points`, `cells`,
        `quadrature_weights` and `grid_shape` may also be one for all samples, with an
        axis less.
      max_bytes: largest size of the arrays of a file, uncompressed; of a sample, if
        they are stacked.

    Returns:
      The samples in float32; their `name` is the file, with the group or the row.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or PyVista is needed and missing.
      ValueError: if a file is damaged, pickled, too large or of an unknown format; an
        array is missing, not of real numbers, not finite or of the wrong shape; cells
        name points that do not exist; or samples differ in dimension or channels.
    """
    names = parse_names(features), parse_names(target)
    how = _How(*names, point_dim, quadrature, need_target, stacked, max_bytes)
    found = []
    for _, sample in _each(find(paths, stacked=stacked), how):
        found.append(sample)
        _own_sample.check_agree(found[0], sample)
    _samples.check(found)
    _own_sample.warn_of_duplicates(map(_own_sample.num_duplicates, found))
    return found


def stored(
    paths: Paths,
    *,
    features: _Names = None,
    target: _Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    stacked: bool = False,
    max_bytes: int = 2**33,
) -> Stored:
    """Looks at samples as `read` does, one after the other, and leaves them on disk.

    Args:
      paths: see `read`; likewise the others.
      features: names of fields that together are the input function.
      target: names of the fields to predict.
      point_dim: number of leading axes that are space.
      quadrature: make weights of the points from the cells.
      stacked: whether arrays have samples along axis 0.
      max_bytes: largest size of the arrays of a file.

    Returns:
      The same samples, each of which is read from its file when it is looked up.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or PyVista is needed and missing.
      ValueError: as for `read`.
    """
    names = parse_names(features), parse_names(target)
    how = _How(*names, point_dim, quadrature, True, stacked, max_bytes)
    places, known, duplicates = [], [], []
    first: Sample | None = None
    for place, sample in _each(find(paths, stacked=stacked), how):
        first = first or sample
        _own_sample.check_agree(first, sample)
        _samples.check([sample])
        places.append(place)
        known.append(summaries.summarize(sample))
        duplicates.append(_own_sample.num_duplicates(sample))
    _own_sample.warn_of_duplicates(duplicates)
    return Stored(places, known, partial(_one, how))


class _How(NamedTuple):
    """How files are read, see `read`."""

    features: tuple[str, ...]
    target: tuple[str, ...]
    point_dim: int | None
    quadrature: bool
    need_target: bool
    stacked: bool
    max_bytes: int

    def open(
        self, file: Path, group: str | None = None
    ) -> AbstractContextManager[_own_arrays.Groups]:
        """Opens a file, or one group of it."""
        given = self.max_bytes, self.point_dim, self.quadrature
        return opened(file, *given, group=group, stacked=self.stacked)

    def build(self, place: Place, arrays: Mapping[str, np.ndarray]) -> Sample:
        """Builds a sample of its arrays."""
        name = str(Path(place.file) / place.group) if place.group else place.file
        asked = {"features": self.features, "target": self.target}
        given = name, arrays, asked, self.need_target, self.quadrature
        return _own_sample.build(*given)


def _each(files: Iterable[Path], how: _How) -> Iterator[tuple[Place, Sample]]:
    """Reads the samples of files, and says where they are."""
    for file in files:
        with how.open(file) as groups:
            for group, arrays in groups.items():
                place = Place(str(file), group)
                yield place, how.build(place, arrays)


def _one(how: _How, place: Place) -> Sample:
    """Reads one sample again."""
    with how.open(Path(place.file), place.group) as groups:
        return how.build(place, groups[place.group])


def channels(
    paths: Paths, names: _Names, *, stacked: bool = False, max_bytes: int = 2**33
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
      ImportError: if h5py or PyVista is needed and missing.
      ValueError: as for `read`.
    """
    listed: list[str] = []
    (file, *_), given = find(paths, stacked=stacked), (max_bytes, None, False)
    with opened(file, *given, stacked=stacked) as groups:
        arrays = next(iter(groups.values()))
        for name in parse_names(names):
            if name not in arrays:
                return None
            array = arrays[name]
            listed += [name] * (array.shape[1] if array.ndim == 2 else 1)
    return tuple(listed)


def parse_names(names: _Names) -> tuple[str, ...]:
    """Turns names with commas between them into a tuple.

    Raises:
      ValueError: if a name is given twice.
    """
    listed = names.split(",") if isinstance(names, str) else names or ()
    stripped = tuple(name.strip() for name in listed if name.strip())
    if len(set(stripped)) < len(stripped):
        raise ValueError(f"Every field can be named once, not {','.join(stripped)!r}.")
    return stripped
