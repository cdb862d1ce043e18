"""Reading and writing the published `.mat` layout, without ever unpickling."""

import importlib
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from opjax._files import replacing

_SOURCE = (
    "the Google Drive folder 1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt- of the Fourier neural "
    "operator"
)


class Layout(NamedTuple):
    """What the files of a problem hold: arrays `(samples, points, ..., points)`."""

    problem: str
    keys: tuple[str, ...]
    dimension: int

    def describe(self, num_points: int) -> str:
        """The shape of the arrays, in words."""
        return f"(samples, {', '.join([str(num_points)] * self.dimension)})"


def find(data_dir: str | os.PathLike, stem: str, layout: Layout) -> Path:
    """First existing file `stem` below `data_dir`.

    Raises:
      FileNotFoundError: if there is none; lists the paths and where to get the files.
    """
    root = Path(data_dir).expanduser()
    folders = root, root / stem, root / f"{stem}.mat"
    paths = [f / f"{stem}{suffix}" for f in folders for suffix in (".mat", ".npz")]
    for path in paths:
        if path.is_file():
            return path
    listed = "".join(f"\n  {path}" for path in paths)
    raise FileNotFoundError(
        f"No {layout.problem} file, looked for{listed}\nGet it from {_SOURCE}, or "
        "generate data by leaving out --data_dir."
    )


def read(
    path: Path,
    layout: Layout,
    *,
    num_points: int,
    stride: int,
    num_first: int,
    num_last: int = 0,
    dtype: type = np.float32,
) -> dict[str, np.ndarray]:
    """First and last samples of all arrays at every `stride`-th point, checked.

    Raises:
      ImportError: if scipy or h5py is needed and missing.
      ValueError: if the file is damaged or its arrays are not as expected.
    """
    variable = _reader(path, layout, num_points)
    every = (slice(None, None, stride),) * layout.dimension
    arrays = {}
    for key in layout.keys:
        array = variable(key)
        _check_array(path, key, array, layout, num_first + num_last, num_points)
        # A copy, so that the full array can be freed before the next one is read.
        chosen = np.r_[:num_first, len(array) - num_last : len(array)]
        arrays[key] = np.array(array[(slice(None), *every)][chosen], dtype)
        _check_finite(path, key, arrays[key], chosen)
    return arrays


def write(path: str | os.PathLike, arrays: Mapping[str, Any]) -> None:
    """Writes arrays to a `.mat` or `.npz` file that appears only when complete.

    Raises:
      ValueError: if the suffix is another one.
      ImportError: if scipy is needed and missing.
      OSError: if the file cannot be written.
    """
    path = Path(path).expanduser()
    if path.suffix == ".mat":
        dump = _savemat(_optional("scipy.io", path))
    elif path.suffix == ".npz":
        dump = np.savez
    else:
        raise ValueError(f"path={str(path)!r} must end in '.mat' or '.npz'.")
    with replacing(path) as temporary, open(temporary, "xb") as file:
        dump(file, **arrays)


def _savemat(scipy_io: ModuleType) -> Callable[..., None]:
    """`scipy.io.savemat` with the arguments of `numpy.savez`."""
    return lambda file, **arrays: scipy_io.savemat(file, arrays)


def _optional(module: str, path: Path) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{path} needs {module.split('.')[0]}, which is not installed: "
            'pip install "opjax[experiments]", or convert the file to .npz.'
        ) from error


def _reader(path: Path, layout: Layout, num_points: int) -> Callable[[str], np.ndarray]:
    """A function from array name to array, for the format of the file."""
    expected = f"{layout.keys}, each of shape {layout.describe(num_points)}"
    return partial(read_variable, path, source=_SOURCE, expected=expected)


def read_variable(
    path: Path, key: str, *, source: str, expected: str = ""
) -> np.ndarray:
    """Reads one array of a `.npz` or `.mat` file, never unpickling.

    Raises:
      ImportError: if scipy or h5py is needed and missing.
      ValueError: if the file is damaged or lacks the array.
    """
    if path.suffix == ".npz":
        load = _load_npz
    elif _is_hdf5(path):
        load = _load_hdf5(_optional("h5py", path))
    else:
        load = _load_matlab(_optional("scipy.io", path))
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
            f"{path} has arrays {sorted(found)}, expected {expected or repr(key)}; "
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


def _check_array(
    path, key, array, layout: Layout, num_samples: int, num_points: int
) -> None:
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{key} in {path} has dtype {array.dtype}, expected numbers.")
    if array.ndim < 1 or array.shape[1:] != (num_points,) * layout.dimension:
        raise ValueError(
            f"{key} in {path} has shape {array.shape}, expected "
            f"{layout.describe(num_points)}; for another grid pass its `num_points` "
            "and a `stride` that fits."
        )
    if len(array) < num_samples:
        raise ValueError(
            f"{path} has {len(array)} samples, {num_samples} were asked for; lower "
            "num_train or num_test (validation samples come from the training file and "
            "count too: num_validation), or generate more."
        )


def _check_finite(path, key, array: np.ndarray, samples: np.ndarray) -> None:
    finite = np.isfinite(array)
    if not finite.all():
        bad = samples[~finite.reshape(len(array), -1).all(axis=1)]
        raise ValueError(
            f"{key} in {path} has {np.count_nonzero(~finite)} values that are not "
            f"finite, in {bad.size} samples, first ones {bad[:8].tolist()}; "
            f"download it again from {_SOURCE}, or generate it again."
        )
