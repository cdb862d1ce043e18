"""Writing samples with predictions, in addition to the content of their files."""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from opjax._files import OnePath, replacing
from opjax.files import building, components, hdf5, npz
from opjax.files.formats import check_suffix, opened, written_suffix
from opjax.files.npz import Arrays
from opjax.files.options import DEFAULT, ReadOptions
from opjax.files.reading import build
from opjax.files.topology import spread, topology
from opjax.files.vtk import fields as vtk_fields
from opjax.samples import Place, Sample, base, check
from opjax.samples.fields import by_name

_WHOLE = ReadOptions(max_bytes=2**62)  # no limit on sizes


def write(
    path: OnePath,
    sample: Sample,
    prediction: np.ndarray | None = None,
    *,
    names: Sequence[str] | None = None,
    source: OnePath | None = None,
    location: str = "points",
) -> None:
    """Writes a sample with a prediction in addition to its own arrays.

    The full content of the original file is kept: other fields, cells and, in VTK
    files, coordinates. In an `.h5` file of groups, a group is added or replaced. Other
    files are written atomically.

    Args:
      path: file to write; its suffix defines the format and must be that of `source`.
      sample: a sample from `read`, or any other sample.
      prediction: values at its points, shape `(n, q)`; None writes only the sample.
      names: one name per channel, by default `"prediction"` for all; channels of the
        same name become one field.
      source: file (for a group, with the group) whose arrays are kept; by default the
        file from which the sample was read, if it exists.
      location: `"cells"` if the points of the sample are cell centroids, see `read`;
        the prediction then becomes cell data.

    Raises:
      ImportError: if h5py or VTK is needed but missing.
      OSError: if the file cannot be written.
      ValueError: if the suffix is unknown or not that of the source, `path` is the
        source, the prediction does not fit the sample or its names, or a field of that
        name exists.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files, samples
      >>> points = np.random.default_rng(0).uniform(size=(5, 2))
      >>> [sample] = samples.from_arrays(mesh_points=points, target=points[None, :, 0])
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     files.write(f"{folder}/a.npz", sample, prediction=np.ones((5, 1)))
      ...     sorted(np.load(f"{folder}/a.npz"))
      ['mesh_points', 'prediction', 'target']
    """
    path = Path(path).expanduser()
    check_suffix(path)
    fields = _fields(sample, prediction, names)
    file, group = _split(sample.name if source is None else os.fspath(source))
    if file is None and source is not None:
        raise FileNotFoundError(f"{source} does not exist, but its arrays are needed.")
    if file is None:
        _create(path, _arrays(sample, fields))
        return
    _check_place(file, path)
    in_space = sample.mesh_points.shape[1] == 3
    whole = dataclasses.replace(_WHOLE, point_dim=3 if in_space else None)
    with opened(file, whole) as groups:
        if group not in groups:
            raise ValueError(f"{file} has groups {sorted(groups)}, not {group!r}.")
        arrays = groups[group]
        _check_same_points(file, arrays, sample, location)
        fields = _at(location, file, arrays, fields)
        _check_free(file, _present(arrays, location), fields)
        path.parent.mkdir(parents=True, exist_ok=True)
        if group:  # is added to a file that may exist
            hdf5.copy_group(file, path, group)
            hdf5.add(path, group, fields)
            return
        with replacing(path) as temporary:
            _start_copy(file, temporary)
            _extend(temporary, file, "", arrays, fields, location)


class Extended(NamedTuple):
    """A sample of a file that is being copied.

    Attributes:
      sample: the sample, whose name is that of the original.
      path: the copy.
      file: the original file.
      group: the group of the sample, if any.
      arrays: arrays of the original file.
      location: whether a row of the sample is a point or a cell.
    """

    sample: Sample
    path: Path
    file: Path
    group: str
    arrays: Arrays
    location: str = "points"

    def known(self, names: Iterable[str]) -> list[str]:
        """Returns those of some fields, or of their components, that the file has."""
        present = _present(self.arrays, self.location)
        return [n for n in names if n in present or components.split(n, present)]

    def add(self, prediction: np.ndarray, names: Sequence[str] | None = None) -> None:
        """Adds a prediction to the copy; may be called only once.

        Args:
          prediction: values at the points of the sample, shape `(n, q)`.
          names: one name per channel, as for `write`.

        Raises:
          OSError: if the copy cannot be written.
          ValueError: if the prediction does not fit the sample or its names, or a field
            of that name exists.
        """
        fields = _fields(self.sample, prediction, names)
        grid = self.sample.grid_shape
        if grid is not None and "mesh_points" not in self.arrays:
            fields = {k: v.reshape(*grid, *v.shape[1:]) for k, v in fields.items()}
        fields = _at(self.location, self.file, self.arrays, fields)
        _check_free(self.file, _present(self.arrays, self.location), fields)
        _extend(self.path, self.file, self.group, self.arrays, fields, self.location)


@contextlib.contextmanager
def extended(
    source: OnePath,
    path: OnePath,
    options: ReadOptions = DEFAULT,
) -> Generator[list[Extended]]:
    """Reads the samples of a file once, and copies it with predictions added.

        with files.extended("new/part.vtu", "predicted/part.vtu") as samples:
            for each in samples:
                each.add(trained(each.sample))

    Args:
      source: the file.
      path: its copy, which is created when the context ends without an error.
      options: content of a sample. Predictions are at its points or cells; cells of
        lower dimensions get NaN. Files of stacked samples are not copied.

    Raises:
      FileNotFoundError: if there is no file.
      ImportError: if h5py or VTK is needed but missing.
      OSError: if the copy cannot be written.
      ValueError: as for `read`, or if `path` is the source or has another suffix.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     np.savez(f"{folder}/a.npz", mesh_points=points, target=points[:, 0])
      ...     with files.extended(f"{folder}/a.npz", f"{folder}/b.npz") as samples:
      ...         for each in samples:
      ...             each.add(np.ones((5, 1)), names=["u_predicted"])
      ...     sorted(np.load(f"{folder}/b.npz"))
      ['mesh_points', 'target', 'u_predicted']
    """
    source, path = Path(source).expanduser(), Path(path).expanduser()
    check_suffix(source)
    _check_place(source, path)
    if options.stacked:
        raise ValueError(f"stacked=True: {source} cannot be copied with predictions.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary, opened(source, options) as groups:
        _start_copy(source, temporary)
        several: list[Extended] = []
        for group, arrays in groups.items():
            sample = build(Place(str(source), group), arrays, options).sample
            place = temporary, source, group, arrays, options.location
            several.append(Extended(sample, *place))
            building.check_agree(several[0].sample, sample)
        samples = [each.sample for each in several]
        check(samples)
        building.warn_of_duplicates(map(building.num_duplicates, samples))
        yield several
        if not temporary.exists():  # nothing was added to a mesh
            _extend(temporary, source, "", several[0].arrays, {}, options.location)


def _arrays(sample: Sample, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns all arrays of a sample, and fields.

    Raises:
      ValueError: if the sample has an array of the name of a field.
    """
    stored = base.arrays(sample, (*base.FIELDS, "cells", "grid_shape"))
    arrays = {name: np.asarray(array) for name, array in stored.items()}
    _check_free(sample.name, arrays, fields)
    return arrays | dict(fields)


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
    return by_name(prediction, listed)


def _split(name: str) -> tuple[Path | None, str]:
    """Returns the file and group that the name of a sample says, if there is such."""
    path = Path(name).expanduser()
    if name and path.is_file():
        return path, ""
    if name and path.parent.suffix.lower() in hdf5.SUFFIXES and path.parent.is_file():
        return path.parent, path.name
    return None, ""


def _check_place(file: Path, path: Path) -> None:
    expected = written_suffix(file)
    if path.suffix.lower() != expected.lower():
        raise ValueError(
            f"{path} must have the suffix {expected}, because it is a copy of {file}."
        )
    if path.exists() and path.samefile(file):
        raise ValueError(f"{path} is the source file; write to another folder.")


def _at(
    location: str, file: Path, arrays: Arrays, fields: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Fields with one row for each point, or each cell, of the file."""
    if location == "points":
        return fields
    return {name: spread(arrays, a, str(file)) for name, a in fields.items()}


def _present(arrays: Arrays, location: str) -> Collection[str]:
    """Names of the fields that a location of a file has."""
    if location == "cells" and isinstance(arrays, vtk_fields.MeshArrays):
        return arrays.mesh.cell_data.arrays
    return arrays


def _check_same_points(
    file: Path, arrays: Arrays, sample: Sample, location: str
) -> None:
    if location == "cells":
        count = len(topology(str(file), arrays).rows)
        if count != sample.num_points:
            raise ValueError(
                f"{file} has {count} cells, but the sample has {sample.num_points} "
                "points, expected one per cell."
            )
        return
    if "mesh_points" in arrays and len(arrays["mesh_points"]) == sample.num_points:
        return
    raise ValueError(
        f"{file} has a different mesh than the sample with {sample.num_points} "
        "points that was read from it."
    )


def _check_free(
    file: str | Path, present: Collection[str], fields: Mapping[str, np.ndarray]
) -> None:
    if taken := sorted(set(present) & set(fields)):
        note = "choose other names"
        if any(name.split("_")[0] == "prediction" for name in taken):
            note = (
                "it is the output of a prediction. Predict on the file it was made of, "
                "or choose other names"
            )
        raise ValueError(f"{file} already has the fields {taken}; {note}.")


def _create(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes a file of arrays alone."""
    if written_suffix(path) != path.suffix:
        raise ValueError(f"{path} is read only; write a {written_suffix(path)} file.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        if path.suffix.lower() == ".npz":
            npz.add(temporary, arrays)
        elif path.suffix.lower() in hdf5.SUFFIXES:
            hdf5.add(temporary, "", arrays)
        else:
            vtk_fields.create(temporary, arrays)


def _start_copy(file: Path, path: Path) -> None:
    """Copies a file to which fields will be added; a mesh is written with them."""
    if file.suffix.lower() in (".npz", *hdf5.SUFFIXES):
        shutil.copyfile(file, path)


def _extend(
    path: Path,
    file: Path,
    group: str,
    arrays: Arrays,
    fields: Mapping[str, np.ndarray],
    location: str,
) -> None:
    """Adds fields to a copy.

    Args:
      path: the copy.
      file: the original file.
      group: the group of the sample, if any.
      arrays: arrays of the original file.
      fields: arrays to add.
      location: whether their rows are points or cells.
    """
    if isinstance(arrays, vtk_fields.MeshArrays):
        vtk_fields.extend(path, file, arrays.mesh, fields, location)
    elif path.suffix.lower() == ".npz":
        npz.add(path, fields)
    else:
        hdf5.add(path, group, fields)
