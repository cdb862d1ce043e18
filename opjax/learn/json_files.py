"""Atomic writing of files in run folders, and conversion to JSON values."""

import contextlib
import json
import math
import os
import pathlib
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from opjax import _files


def to_json(value: Any) -> Any:
    """Converts arrays and tuples to JSON values; non-finite numbers become null."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return to_json(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, os.PathLike) else value


def tuples(value: Any) -> Any:
    """Converts the lists of JSON values to tuples."""
    return tuple(map(tuples, value)) if isinstance(value, list) else value


def read_object(path: pathlib.Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged or does not contain an object.
    """
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is damaged: it is not a JSON object.")
    return content


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as JSON, converted by `to_json`."""
    text = json.dumps(to_json(value), indent=2, allow_nan=False)
    write_text(path, text + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file atomically: readers see either the old or the new file."""
    with replacing(path) as temporary:
        temporary.write_text(text)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[pathlib.Path]:
    """Yields a temporary path, which replaces `path` when complete."""
    with writing(path), _files.replacing(path) as temporary:
        yield temporary


@contextlib.contextmanager
def writing(path: str | os.PathLike[str]) -> Generator[None]:
    """Adds the file name and a remedy to the OSErrors of its body."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"Cannot write {os.fspath(path)}: {error.strerror or error}. Free disk "
            "space or make the folder writable, then start again with the same "
            "--workdir: the last checkpoint is kept."
        ) from error
