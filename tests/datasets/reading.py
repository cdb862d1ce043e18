"""Reads the tests' own files, or states why they are refused."""

from pathlib import Path
from typing import Any

from opjax import files
from opjax.files import ReadOptions, series
from opjax.samples import Sample
from tests.refused import value_error


def read(path: Path | str, **options: Any) -> list[Sample]:
    """Returns the samples of a file or folder."""
    return files.read(path, ReadOptions(**options))


def read_one(path: Path | str, **options: Any) -> Sample:
    """Returns the only sample of a file or folder."""
    (sample,) = read(path, **options)
    return sample


def refused(path: Path | str, message: str, **options: Any) -> None:
    """A file, or one of a folder, is refused by its path and with this message."""
    with value_error(message) as error:
        read(path, **options)
    assert str(path) in str(error.value)


def read_series(
    path: Path | str, *, min_frames: int = 2, in_memory: bool = True, **options: Any
) -> series.Cases:
    """Returns the series of a file or folder."""
    return series.read_series(
        path, ReadOptions(**options), min_frames=min_frames, in_memory=in_memory
    )
