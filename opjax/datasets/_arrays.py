"""Arrays of published files in any layout: search, safe reading, checks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opjax._files import OnePath
from opjax.files import variables

FNO = (
    "the Google Drive folder 1UnbQh2WWc6knEHbLn-ZaXrKUZhp7pjt- of the Fourier neural "
    "operator"
)
GEO_FNO = (
    "the Google Drive folder 1YBuaoTdOSr_qzaow-G-iwvbUI7fiUzu8 of the Fourier neural "
    "operator with learned deformations (Geo-FNO)"
)


def find(data_dir: OnePath, names: Sequence[str], *, source: str) -> Path:
    """Returns the first existing file among `names`, relative to `data_dir`.

    Raises:
      FileNotFoundError: if there is none. The message lists the paths and the download
        address.
    """
    root = Path(data_dir).expanduser()
    for name in names:
        if (root / name).is_file():
            return root / name
    listed = "".join(f"\n  {name}" for name in names)
    missing = " or ".join(dict.fromkeys(Path(name).name for name in names))
    where = f"The folder {root}" if root.is_dir() else f"{root} is not a folder; it"
    raise FileNotFoundError(
        f"{where} does not contain {missing}. Possible places in "
        f"--data_dir:{listed}\nGet it from {source}, or omit --data_dir to generate "
        "data."
    )


def find_stem(data_dir: OnePath, stem: str, *, source: str) -> Path:
    """Returns the file `stem` with suffix `.mat` or `.npz`, also in a folder `stem`."""
    folders = ("", f"{stem}/", f"{stem}.mat/")
    names = [f"{f}{stem}{suffix}" for f in folders for suffix in (".mat", ".npz")]
    return find(data_dir, names, source=source)


def read(
    path: Path,
    key: str = "",
    *,
    shape: Sequence[int | None],
    source: str,
    dtype: Any = np.float32,
    fewest: int = 0,
    keep: Any = ...,
) -> np.ndarray:
    """Reads one array of a `.npy`, `.npz` or `.mat` file (MATLAB 5 or 7.3).

    Args:
      path: the file.
      key: name of the array; for `.npy` it is only used in messages.
      shape: expected length of every axis, None for any.
      source: where to download the file, for messages.
      dtype: data type of the result.
      fewest: required number of samples, along axis 0.
      keep: index of the values to keep; the others are not checked.

    Raises:
      ImportError: if scipy or h5py is needed but missing.
      ValueError: if the file is damaged or pickled, lacks the array, or its shape or
        values are invalid.
    """
    array = _load_npy(path, source) if path.suffix == ".npy" else None
    if array is None:
        array = variables.read_variable(path, key, source=source)
    what = f"{key} in {path}" if key else str(path)
    expected = f"({', '.join('any' if n is None else str(n) for n in shape)})"
    if array.dtype.kind not in "fiu":
        raise ValueError(f"{what} has dtype {array.dtype}, expected numbers.")
    same = len(array.shape) == len(shape)
    if not same or any(
        n not in (None, m) for n, m in zip(shape, array.shape, strict=True)
    ):
        raise ValueError(
            f"{what} has shape {array.shape}, expected {expected}; the axes may be "
            "in another order, or it may be a different file. Get it from "
            f"{source}."
        )
    if len(array) < fewest:
        raise ValueError(
            f"{path} has {len(array)} samples, but {fewest} were requested; lower "
            "num_train or num_test (validation samples, num_validation, are taken "
            "from the training file and count too), or generate more samples."
        )
    # A copy, so that the full array can be freed before the next one is read.
    kept = np.array(array[keep], dtype, order="C")
    if not np.isfinite(kept).all():
        bad = np.argwhere(~np.isfinite(kept))
        samples = np.unique(bad[:, 0])
        raise ValueError(
            f"{what} has {len(bad)} non-finite values in {samples.size} samples, "
            f"the first ones are {samples[:8].tolist()}; download it again from "
            f"{source}, or generate it again."
        )
    return kept


def split(
    num_samples: int, num_train: int, num_test: int, *, test: str, what: str
) -> tuple[slice, slice]:
    """Returns the slices of the training samples and of the test samples.

    Args:
      num_samples: number of samples in the file.
      num_train: number of training samples, from the start.
      num_test: number of test samples.
      test: `"last"` for the last samples, `"next"` for the samples after the training
        samples.
      what: name of the file in messages.

    Raises:
      ValueError: if there are too few samples, so that the two sets would overlap.
    """
    if num_train < 1 or num_test < 1 or num_train + num_test > num_samples:
        raise ValueError(
            f"{what} has {num_samples} samples; {num_train=} and {num_test=} must "
            "be positive, and their sum must be at most this number."
        )
    start = num_train if test == "next" else num_samples - num_test
    return slice(0, num_train), slice(start, start + num_test)


def _load_npy(path: Path, source: str) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # headers are parsed as Python
        raise ValueError(
            f"Cannot read {path} ({path.stat().st_size} bytes): {error}. It seems "
            "damaged, incomplete or pickled (pickled files are not supported, "
            f"because they can execute code); download it again from {source}."
        ) from error
