"""Versions of the files that opjax writes: an integer `format` in each of them.

It increases when an older opjax would misread a file. Files of 0.1.0 contain no format,
which counts as format 0. Format 1 differs only by containing this number.
"""

import os
from importlib import metadata
from typing import Any

# The newest formats, which are written; all before them are read.
CHECKPOINT = 1
CONFIGURATION = 1
OPERATOR = 1
ONNX = 1
CALIBRATION = 1
PUBLISHED = 1


class NewerFormatError(ValueError):
    """A file written by a later opjax."""


def check(path: str | os.PathLike[str], found: Any, newest: int, *, what: str) -> None:
    """Checks the format of a file.

    Args:
      path: the file, for messages.
      found: format in the file; 0 if there is none.
      newest: newest supported format.
      what: description of such files, for messages.

    Raises:
      NewerFormatError: if it is newer.
      ValueError: if it is not a valid format.
    """
    if type(found) is not int or found < 0:
        raise ValueError(
            f"{path} is damaged: {str(found)[:40]!r} is not a format number."
        )
    if found > newest:
        raise NewerFormatError(
            f"{path} has format {str(found)[:20]} of {what}, but this opjax "
            f"({metadata.version('opjax')}) reads only formats up to {newest}. "
            'Update opjax: pip install --upgrade "opjax".'
        )
