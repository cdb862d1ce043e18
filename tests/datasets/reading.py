"""Reads the samples of the tests' own files, or states why they are refused."""

from pathlib import Path
from typing import Any

from opjax import files
from opjax.samples import Sample
from tests.refused import value_error


def read_one(path: Path | str, **options: Any) -> Sample:
    """Returns the only sample of a file or folder."""
    (sample,) = files.read(path, files.ReadOptions(**options))
    return sample


def refused(path: Path | str, message: str, **options: Any) -> None:
    """A file or folder is refused with this message."""
    with value_error(message):
        files.read(path, files.ReadOptions(**options))
