"""Reading and writing `.mat` and `.npz` files, without ever unpickling."""

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from opjax._files import replacing
from opjax.datasets import _archives, _mat5


def write(path: str | os.PathLike, arrays: Mapping[str, Any]) -> None:
    """Writes arrays to a `.mat` or `.npz` file that appears only when complete.

    Raises:
      ValueError: if the suffix is another one.
      ImportError: if scipy is needed and missing.
      OSError: if the file cannot be written.
    """
    path = Path(path).expanduser()
    if path.suffix == ".mat":
        dump = _savemat(optional("scipy.io", path))
    elif path.suffix == ".npz":
        dump = np.savez
    else:
        raise ValueError(f"path={str(path)!r} must end in '.mat' or '.npz'.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        dump(file, **arrays)


def save(folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes arrays to `.npy` files that appear only when complete.

    Raises:
      OSError: if a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with replacing(folder / name) as temporary:
            np.save(temporary, array)


def _savemat(scipy_io: ModuleType) -> Callable[..., None]:
    """`scipy.io.savemat` with the arguments of `numpy.savez`."""
    return lambda file, **arrays: scipy_io.savemat(file, arrays)


def optional(module: str, path: Path, *, extra: str = "experiments") -> Any:
    """Imports a library that `path` needs; raises ImportError with its extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{path} needs {module.split('.')[0]}, which is not installed: "
            f'pip install "opjax[{extra}]", or convert the file to .npz.'
        ) from error


def read_variable(path: Path, key: str, *, source: str) -> np.ndarray:
    """Reads one array of a `.npz` or `.mat` file, never unpickling.

    Raises:
      ImportError: if h5py is needed and missing.
      OSError: if the file cannot be opened.
      ValueError: if the file is damaged or lacks the array, or says that it holds
        more than a file of its size can be believed to.
    """
    if path.suffix == ".npz":
        load = _load_npz
    elif _is_hdf5(path):
        optional("h5py", path)
        load = _load_hdf5
    else:
        load = _load_matlab
    try:
        found, array = load(path, key)
    except Exception as error:  # whatever a damaged byte leads the libraries into
        raise ValueError(
            f"Cannot read {path} ({path.stat().st_size} bytes): "
            f"{type(error).__name__}: {error}. It seems damaged or incomplete; "
            f"download it again from {source}, or generate it again."
        ) from error
    if array is None:
        raise ValueError(
            f"{path} has arrays {sorted(found)}, expected {key!r}; "
            f"rename them, or get the file from {source}."
        )
    return array


def _is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5, as MATLAB 7.3 writes it behind a 512-byte header."""
    with open(path, "rb") as file:
        start = file.read(520)
    signature = b"\x89HDF\r\n\x1a\n"
    return start.startswith((b"MATLAB 7.3", signature)) or start[512:] == signature


def _load_npz(path: Path, key: str) -> tuple[list[str], np.ndarray | None]:
    with _archives.open_npz(path, _archives.limit(path)) as groups:
        members = groups[""]
        return list(members), members.get(key)


def _load_matlab(path: Path, key: str) -> tuple[list[str], np.ndarray | None]:
    return _mat5.load(path, key, _archives.limit(path))


def _load_hdf5(path: Path, key: str) -> tuple[list[str], np.ndarray | None]:
    from opjax.datasets import _own_arrays  # which asks us for its library

    with _own_arrays.open_datasets(path) as found:
        if key not in found:
            return list(found), None
        most, array = _archives.limit(path), found[key]
        _archives.check_size(path, f"the values of {key!r}", array.num_bytes, most)
        # MATLAB stores columns first, so all axes arrive in reverse.
        return list(found), array[()].T
