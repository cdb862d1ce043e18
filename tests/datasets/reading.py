"""Writes and reads the tests' own files, or states why they are refused."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import ArrayLike

from opjax import files
from opjax.files import ReadOptions, series
from opjax.files.formats import Paths
from opjax.samples import Sample
from tests.refused import value_error


def save(path: Path, arrays: Mapping[str, ArrayLike]) -> Path:
    """Writes arrays into an archive, an HDF5 file, or one file each in a folder."""
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix:
        with h5py.File(path, "w") as file:
            for name, array in arrays.items():
                file[name] = array
    else:
        path.mkdir(exist_ok=True)
        for name, array in arrays.items():
            np.save(path / f"{name}.npy", array)
    return path


def read(path: Paths, **options: Any) -> list[Sample]:
    """Returns the samples of a file or folder."""
    return files.read(path, ReadOptions(**options))


def read_one(path: Paths, **options: Any) -> Sample:
    """Returns the only sample of a file or folder."""
    (sample,) = read(path, **options)
    return sample


def refused(path: Paths, message: str, **options: Any) -> None:
    """A file, or one of a folder, is refused by its path and with this message."""
    with value_error(message) as error:
        read(path, **options)
    assert str(path) in str(error.value)


def read_series(
    path: Paths, *, min_frames: int = 2, in_memory: bool = True, **options: Any
) -> series.Cases:
    """Returns the series of a file or folder."""
    return series.read_series(
        path, ReadOptions(**options), min_frames=min_frames, in_memory=in_memory
    )
