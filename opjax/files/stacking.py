"""Files with many samples along axis 0: HDF5, folders of `.npy` files, and `.npz`.

The first two are read row by row, an archive as a whole.
"""

import contextlib
import math
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from opjax.files import hdf5, limits, npz
from opjax.files.npz import Arrays, Groups, Lazy

# Number of axes of an array that all samples share; all others have samples along
# axis 0.
_SHARED = {"mesh_points": 2, "cells": 2, "quadrature_weights": 1, "grid_shape": 1}


def is_folder(path: Path) -> bool:
    """Whether a path is a folder with one `.npy` file per array."""
    return path.is_dir() and any(path.glob("*.npy"))


@contextlib.contextmanager
def open_stacked(path: Path, max_bytes: int) -> Generator[Groups]:
    """Opens a file or folder. A row of an array is read on access.

    Args:
      path: an `.npz` or `.h5` file, or a folder of `.npy` files.
      max_bytes: maximum size of an array of one sample.

    Raises:
      FileNotFoundError: if it does not exist.
      ImportError: if h5py is missing.
      ValueError: if it is damaged or of another format, or arrays have different
        numbers of samples.
    """
    if path.is_dir():
        yield _Samples(
            path, {f.stem: _mapped(f) for f in path.glob("*.npy")}, max_bytes
        )
        return
    if path.suffix.lower() == ".npz":  # cannot be read by row
        with npz.open_npz(path, limits.limit(path)) as groups:
            yield _Samples(path, dict(groups[""]), max_bytes)
        return
    if path.suffix.lower() not in hdf5.SUFFIXES:
        raise ValueError(
            f"{path} cannot be read as stacked samples: samples along axis 0 must "
            "be in .npz or .h5 files, or in folders of .npy files."
        )
    with hdf5.open_datasets(path) as arrays:
        for array in arrays.values():  # as many samples as the file can hold
            array.check(limits.limit(path))
        yield _Samples(path, arrays, max_bytes)


def _mapped(path: Path) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise
    except Exception as error:  # headers are parsed as Python
        raise limits.damaged(path, error) from error


class _Samples(Groups):
    """Samples by row number."""

    def __init__(
        self,
        path: Path,
        arrays: Mapping[str, np.ndarray | hdf5.Dataset],
        max_bytes: int,
    ):
        self._path, self._arrays, self._max_bytes = path, arrays, max_bytes
        self._shared = {n for n, axes in _SHARED.items() if _axes(arrays, n) == axes}
        lengths = {
            name: len(array) if array.shape else 0
            for name, array in arrays.items()
            if name not in self._shared
        }
        if len(set(lengths.values())) != 1:
            listed = ", ".join(f"{name} {n}" for name, n in sorted(lengths.items()))
            raise ValueError(
                f"{path} must have the same number of samples along axis 0 of "
                f"every array, but it has {listed or 'none'}."
            )
        self._length = min(lengths.values())

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self._length))

    def __getitem__(self, row: str) -> Arrays:
        if not 0 <= int(row) < self._length:
            raise ValueError(
                f"{self._path} has {self._length} samples, so sample {row} does "
                "not exist."
            )
        return Lazy(sorted(self._arrays), partial(self._read, int(row)))

    def _read(self, row: int, name: str) -> np.ndarray:
        """Reads an array of a sample."""
        array = self._arrays[name]
        shape = array.shape if name in self._shared else array.shape[1:]
        size, what = math.prod(shape) * array.dtype.itemsize, f"the values of {name!r}"
        limits.check_size(self._path, what, size, self._max_bytes)
        if array.dtype.hasobject:
            return np.empty(shape, object)  # unread: its dtype is refused later
        return np.array(array[()] if name in self._shared else array[row])


def _axes(arrays: Mapping[str, np.ndarray | hdf5.Dataset], name: str) -> int:
    return len(arrays[name].shape) if name in arrays else 0
