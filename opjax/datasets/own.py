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

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax.datasets import _own_arrays, _own_sample, _own_vtu, summaries
from opjax.datasets import samples as _samples
from opjax.datasets.samples import Sample
from opjax.datasets.stored import Place, Stored

SUFFIXES = (".npz", ".h5", ".vtu", ".vtk")
_ARRAYS = ("features", "target", "quadrature_weights", "cells", "grid_shape")
_Paths = str | os.PathLike | Sequence[str | os.PathLike]
_Names = str | Sequence[str] | None


def find(paths: _Paths) -> list[Path]:
    """Lists the files of a data set, in the order of their names.

    Args:
      paths: a folder, whose files of other formats are passed over, a file, or a
        pattern such as `"data/*.npz"`; or several of these.

    Returns:
      The files, each once, all of one format.

    Raises:
      FileNotFoundError: if a path does not exist or a folder or pattern has no file.
      ValueError: if a format is unknown or there are several.
    """
    listed = [paths] if isinstance(paths, str | os.PathLike) else paths
    found = sorted({file for path in listed for file in _files_of(path)})
    if not found:
        raise FileNotFoundError("No files were given; name a folder or files.")
    formats = Counter(file.suffix.lower() for file in found)
    if len(formats) > 1:
        counts = ", ".join(f"{count} {suffix}" for suffix, count in formats.items())
        raise ValueError(
            f"A data set has one format, but {found[0].parent} and the other paths "
            f"have {counts} files; name those of one format, '*{found[0].suffix}'."
        )
    return found


def read(
    paths: _Paths,
    *,
    features: _Names = None,
    target: _Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    need_target: bool = True,
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
      max_bytes: largest size of the arrays of a file, uncompressed.

    Returns:
      The samples in float32; their `name` is the file, with the group.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or PyVista is needed and missing.
      ValueError: if a file is damaged, pickled, too large or of an unknown format; an
        array is missing, not of real numbers, not finite or of the wrong shape; cells
        name points that do not exist; or samples differ in dimension or channels.
    """
    names = parse_names(features), parse_names(target)
    how = _How(*names, point_dim, quadrature, need_target, max_bytes)
    found = []
    for _, sample in _each(find(paths), how):
        found.append(sample)
        _own_sample.check_agree(found[0], sample)
    _samples.check(found)
    _own_sample.warn_of_duplicates(map(_own_sample.num_duplicates, found))
    return found


def stored(
    paths: _Paths,
    *,
    features: _Names = None,
    target: _Names = None,
    point_dim: int | None = None,
    quadrature: bool = False,
    max_bytes: int = 2**33,
) -> Stored:
    """Looks at samples as `read` does, one after the other, and leaves them on disk.

    Args:
      paths: see `read`; likewise the others.
      features: names of fields that together are the input function.
      target: names of the fields to predict.
      point_dim: number of leading axes that are space.
      quadrature: make weights of the points from the cells.
      max_bytes: largest size of the arrays of a file.

    Returns:
      The same samples, each of which is read from its file when it is looked up.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or PyVista is needed and missing.
      ValueError: as for `read`.
    """
    names = parse_names(features), parse_names(target)
    how = _How(*names, point_dim, quadrature, True, max_bytes)
    places, known, duplicates = [], [], []
    first: Sample | None = None
    for place, sample in _each(find(paths), how):
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
    max_bytes: int

    def open(
        self, file: Path, group: str | None = None
    ) -> AbstractContextManager[_own_arrays.Groups]:
        """Opens a file, or one group of it."""
        given = self.max_bytes, self.point_dim, self.quadrature
        return _opened(file, *given, group=group)

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
    paths: _Paths, names: _Names, *, max_bytes: int = 2**33
) -> tuple[str, ...] | None:
    """Names of the channels that fields have, from the first file.

    Args:
      paths: as for `read`.
      names: fields, as for `read`.
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
    with _opened(find(paths)[0], max_bytes, None, False) as groups:
        arrays = next(iter(groups.values()))
        for name in parse_names(names):
            if name not in arrays:
                return None
            array = arrays[name]
            listed += [name] * (array.shape[1] if array.ndim == 2 else 1)
    return tuple(listed)


def write(
    path: str | os.PathLike,
    sample: Sample,
    prediction: np.ndarray | None = None,
    *,
    names: Sequence[str] | None = None,
    source: str | os.PathLike | None = None,
) -> None:
    """Writes a sample with a prediction beside its own arrays.

    All of the file that a sample was read from is kept: other fields, cells and, in VTK
    files, coordinates. A group is added to, or replaced in, an `.h5` file of groups;
    other files appear when complete.

    Args:
      path: file to write; its suffix is the format, that of `source`.
      sample: as returned by `read`, or any other.
      prediction: values at its points, shape `(n, q)`; None to write the sample alone.
      names: a name for each channel, `"prediction"` for all by default; channels of
        the same name become one field.
      source: file (for a group, with the group) whose arrays are kept; by default
        where the sample was read, if that file exists.

    Raises:
      ImportError: if h5py or PyVista is needed and missing.
      OSError: if the file cannot be written.
      ValueError: if the suffix is unknown or not that of the source, `path` is the
        source, the prediction does not fit the sample or its names, or a field of that
        name exists.
    """
    path = Path(path).expanduser()
    _check_suffix(path)
    fields = _fields(sample, prediction, names)
    arrays = {"mesh_points": sample.mesh_points}
    arrays |= {name: getattr(sample, name) for name in _ARRAYS}
    arrays = {name: np.asarray(a) for name, a in arrays.items() if a is not None}
    file, group = _split(sample.name if source is None else os.fspath(source))
    if file is None and source is not None:
        raise FileNotFoundError(f"{source} does not exist; arrays of it were to keep.")
    present = arrays if file is None else _present(path, file, group, sample)
    taken = sorted(set(present) & set(fields))
    if taken:
        raise ValueError(
            f"{file or sample.name} has fields {taken} already; choose other names."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".npz":
        _own_arrays.write_npz(path, file, arrays, fields)
    elif path.suffix.lower() == ".h5":
        _own_arrays.write_hdf5(path, file, group, arrays, fields)
    else:
        _own_vtu.write_vtk(path, file, arrays, fields)


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


def _files_of(path: str | os.PathLike) -> list[Path]:
    root = Path(path).expanduser()
    if root.is_dir():
        files = [f for f in root.iterdir() if f.is_file() and f.name[0] != "."]
        known = [f for f in files if f.suffix.lower() in SUFFIXES]
        if not known:
            suffixes = sorted({f.suffix or f.name for f in files})[:8]
            raise FileNotFoundError(
                f"The folder {root} has no {', '.join(SUFFIXES)} files, but "
                f"{len(files)} others {suffixes}; samples are files directly in it."
            )
        return known
    if root.exists():
        _check_suffix(root)
        return [root]
    matches = [Path(match) for match in glob.glob(str(root))]
    if not matches:
        raise FileNotFoundError(f"{root} is no file and no folder, and matches none.")
    return [file for match in matches for file in _files_of(match)]


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(
            f"{path} has the unknown suffix {path.suffix!r}; samples are "
            f"{', '.join(SUFFIXES)} files."
        )


def _opened(
    file: Path,
    max_bytes: int,
    point_dim: int | None,
    quadrature: bool,
    *,
    group: str | None = None,
) -> AbstractContextManager[_own_arrays.Groups]:
    suffix = file.suffix.lower()
    if suffix == ".npz":
        return _own_arrays.open_npz(file, max_bytes)
    if suffix == ".h5":
        return _own_arrays.open_hdf5(file, max_bytes, group=group)
    return _own_vtu.open_vtk(
        file, max_bytes, point_dim=point_dim, quadrature=quadrature
    )


def _fields(
    sample: Sample, prediction: np.ndarray | None, names: Sequence[str] | None
) -> dict[str, np.ndarray]:
    if prediction is None:
        return {}
    prediction = np.asarray(prediction)
    if prediction.ndim != 2 or len(prediction) != sample.num_points:
        raise ValueError(
            f"prediction has shape {prediction.shape}, expected ({sample.num_points}, "
            f"channels) for {sample.name or 'the sample'}."
        )
    listed = ["prediction"] * prediction.shape[1] if names is None else list(names)
    if len(listed) != prediction.shape[1]:
        raise ValueError(
            f"names={listed} must name the {prediction.shape[1]} channels of the "
            "prediction."
        )
    columns = {n: [i for i, m in enumerate(listed) if m == n] for n in listed}
    return {
        name: prediction[:, chosen[0] if len(chosen) == 1 else chosen]
        for name, chosen in columns.items()
    }


def _split(name: str) -> tuple[Path | None, str]:
    """File and group that a sample's name says, if there is such a file."""
    path = Path(name).expanduser()
    if name and path.is_file():
        return path, ""
    if name and path.parent.suffix.lower() == ".h5" and path.parent.is_file():
        return path.parent, path.name
    return None, ""


def _present(path: Path, file: Path, group: str, sample: Sample) -> set[str]:
    """Names of the arrays that are there already, of the right number of points."""
    if path.suffix.lower() != file.suffix.lower():
        raise ValueError(
            f"{path} and {file} must have the same suffix: the format is kept."
        )
    if path.exists() and path.samefile(file):
        raise ValueError(f"{path} is the source itself; write to another folder.")
    with _opened(file, 2**62, None, False) as groups:
        if group not in groups:
            raise ValueError(f"{file} has groups {sorted(groups)}, not {group!r}.")
        arrays = groups[group]
        if "mesh_points" not in arrays or len(arrays["mesh_points"]) != len(
            sample.mesh_points
        ):
            raise ValueError(
                f"{file} has another mesh than the sample of {sample.num_points} "
                "points that was read from it."
            )
        return set(arrays)
