"""Writing samples with predictions, beside what their files hold already."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from opjax.datasets import _own_arrays, _own_vtu
from opjax.datasets._own_files import check_suffix, opened
from opjax.datasets.samples import Sample

_ARRAYS = ("features", "target", "quadrature_weights", "cells", "grid_shape")


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
    check_suffix(path)
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
    with opened(file, 2**62, None, False) as groups:
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
