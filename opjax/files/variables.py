"""Safe reading and writing of single arrays in `.mat` and `.npz` files."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax._files import replacing
from opjax.files import apart, extras, hdf5, limits, npz


def write(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to a `.mat` or `.npz` file atomically.

    Raises:
      ValueError: if the suffix is not supported.
      ImportError: if scipy is needed but missing.
      OSError: if the file cannot be written.
    """
    path = Path(path).expanduser()
    if path.suffix not in (".mat", ".npz"):
        raise ValueError(f"path={str(path)!r} must end in '.mat' or '.npz'.")
    scipy_io = extras.optional("scipy.io", path) if path.suffix == ".mat" else None
    named: dict[str, Any] = dict(arrays)
    with replacing(path) as temporary, open(temporary, "xb") as file:
        if scipy_io is None:
            np.savez(file, **named)
        else:
            scipy_io.savemat(file, named)


def save(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to `.npy` files, each of them atomically.

    Raises:
      OSError: if a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with replacing(folder / name) as temporary:
            np.save(temporary, array)


def read_variable(path: Path, key: str, *, source: str) -> np.ndarray:
    """Reads one array of a `.npz` or `.mat` file, without unpickling.

    Args:
      path: the file.
      key: name of the array.
      source: where to download the file, for messages.

    Raises:
      ImportError: if h5py is needed but missing.
      OSError: if the file cannot be opened.
      ValueError: if the file is damaged, lacks the array, or declares more data than a
        file of its size can contain.
    """
    if path.suffix == ".npz":
        load = _load_npz
    elif limits.is_hdf5(path):
        extras.optional("h5py", path)
        load = _load_hdf5
    else:
        load = _load_matlab
    try:
        variable = load(path, key)
    except Exception as error:  # a damaged file can raise any kind of error
        raise ValueError(
            f"Cannot read {path} ({path.stat().st_size} bytes): "
            f"{type(error).__name__}: {error}. It seems damaged or incomplete; "
            f"download it again from {source}, or generate it again."
        ) from error
    if variable.array is None:
        raise ValueError(
            f"{path} has the arrays {sorted(variable.names)}, expected {key!r}; "
            f"rename them, or get the file from {source}."
        )
    return variable.array


class _Found(NamedTuple):
    """The names of the arrays of a file, and the wanted one if the file has it."""

    names: list[str]
    array: np.ndarray | None


def _load_npz(path: Path, key: str) -> _Found:
    with npz.open_npz(path, limits.limit(path)) as groups:
        members = groups[""]
        return _Found(list(members), members.get(key))


def _load_matlab(path: Path, key: str) -> _Found:
    values, arrays = apart.ask(
        "read_matlab", path, {"key": key}, max_bytes=limits.limit(path)
    )
    return _Found(values["names"], arrays.get(key))


def _load_hdf5(path: Path, key: str) -> _Found:
    with hdf5.open_datasets(path) as arrays:
        if key not in arrays:
            return _Found(list(arrays), None)
        # MATLAB stores columns first, so all axes arrive in reverse.
        return _Found(list(arrays), arrays[key].values(limits.limit(path)).T)
