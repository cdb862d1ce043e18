"""Reading and writing `.mat` and `.npz` files, without ever unpickling."""

import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from opjax._files import replacing


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
      ImportError: if scipy or h5py is needed and missing.
      ValueError: if the file is damaged or lacks the array.
    """
    if path.suffix == ".npz":
        load = _load_npz
    elif _is_hdf5(path):
        load = _load_hdf5(optional("h5py", path))
    else:
        load = _load_matlab(optional("scipy.io", path))
    try:
        found, array = load(path, key)
    except MemoryError:
        raise
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


def _load_npz(path, key):
    # Opened here because np.load forgets to close a file that it cannot read.
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as content:
        return content.files, content[key] if key in content.files else None


def _load_matlab(scipy_io):
    def load(path, key):
        found = [name for name, *_ in scipy_io.whosmat(path)]
        if key not in found:
            return found, None
        return found, scipy_io.loadmat(path, variable_names=[key])[key]

    return load


def _load_hdf5(h5py):
    def load(path, key):
        with h5py.File(path, "r") as file:
            # MATLAB stores columns first, so all axes arrive in reverse.
            return list(file), file[key][()].T if key in file else None

    return load
