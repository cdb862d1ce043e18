"""Atomic writing of files in run folders, and conversion to JSON values."""

import contextlib
import json
import math
import os
import pathlib
import sys
import typing
from collections.abc import Generator
from typing import Any

import jax
import numpy as np

from opjax import _files
from opjax._trees import Json


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


_WORDS = {
    bool: "true or false",
    int: "a whole number from 0",
    float: "a finite number",
    str: "a text",
}


def check_form(value: Any, form: Any, name: str) -> None:
    """Raises ValueError if a JSON value does not have the form of a type.

    Args:
      value: JSON value.
      form: bool, int (from 0, below 2^31), float (finite) or str; a list, tuple or dict
        of forms, or one of them or None; a named tuple, for an object with its fields;
        or a typed dictionary, for an object that may lack fields and have others.
      name: name of the value, for the message.

    Examples:
      >>> from opjax.learn.json_files import check_form
      >>> check_form({"target": None}, dict[str, int], "channels")
      Traceback (most recent call last):
          ...
      ValueError: channels.target=None, expected a whole number from 0.
    """
    parts = typing.get_args(form)
    if type(None) in parts:
        if value is None:
            return
        form = parts[0]
        parts = typing.get_args(form)
    container = typing.get_origin(form)
    if container in (list, tuple):
        _expect(isinstance(value, list), name, value, "a list")
        if container is list or ... in parts:
            parts = (parts[0],) * len(value)
        _expect(len(value) == len(parts), name, value, f"a list of {len(parts)}")
        for i, part in enumerate(parts):
            check_form(value[i], part, f"{name}[{i}]")
    elif container is dict or hasattr(form, "__annotations__"):
        _expect(isinstance(value, dict), name, value, "an object")
        _check_object(value, form, name)
    else:
        kinds = (float, int) if form is float else (form,)
        fits = type(value) in kinds
        if fits and form is int:
            fits = 0 <= value < 2**31
        elif fits and form is float:
            fits = abs(value) <= sys.float_info.max
        _expect(fits, name, value, _WORDS[form])


def _check_object(value: Json, form: type[object], name: str) -> None:
    """Checks the fields of an object, see `check_form`."""
    if typing.get_origin(form) is dict:
        hints, required = dict.fromkeys(value, typing.get_args(form)[1]), set[str]()
    else:
        hints = typing.get_type_hints(form)
        optional = getattr(form, "_field_defaults", hints)
        required = getattr(form, "__required_keys__", hints.keys() - optional.keys())
    if missing := sorted(required - value.keys()):
        raise ValueError(f"{name} has no {missing[0]}.")
    if hasattr(form, "_fields") and (other := sorted(value.keys() - hints.keys())):
        raise ValueError(f"{name} has the unknown field {other[0]}.")
    for key in hints.keys() & value.keys():
        check_form(value[key], hints[key], f"{name}.{key}")


def _expect(fits: bool, name: str, value: object, words: str) -> None:
    if not fits:
        raise ValueError(f"{name}={repr(value)[:80]}, expected {words}.")


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
