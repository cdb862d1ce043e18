"""Checkpoints that are complete or ignored, and restored with their exact types.

A checkpoint is a directory, one per step. Orbax writes the arrays into it. When all
files are on disk, a manifest is written last: it contains the checksum of every file,
and its own. A checkpoint without a manifest does not count, and one that does not match
its manifest is ignored. So after a crash, a power failure or disk errors, the previous
checkpoint is usable.

Leaves are stored by their path in the pytree, and restored into the structure of a
template. Modules, optimizer states and typed PRNG keys are restored bit for bit.

Scope: the calling process reads and writes alone, even if it is one of several. Only
the first of several processes can write. Arrays that are split over devices of other
processes cannot be saved. Restored arrays are placed like the template's, independently
of their original devices.
"""

import contextlib
import errno
import os
import pathlib
import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from opjax import _formats
from opjax._files import replacing, sync
from opjax._trees import Json, PyTree
from opjax.training import _arrays, _leaves, _manifest

_NAME = re.compile(r"step_(\d{10})")


class CheckpointError(OSError):
    """A checkpoint could not be written or read; others are unchanged.

    Examples:
      >>> from opjax.training import checkpoint
      >>> checkpoint.read_metadata("no/such/folder", 1)
      Traceback (most recent call last):
          ...
      opjax.training.checkpoint.CheckpointError: Cannot read ...
    """


class Restored(NamedTuple):
    """A checkpoint in memory.

    Attributes:
      step: the step at which it was saved.
      payload: the pytree, with the types of the template.
      metadata: the JSON object saved with it.
      path: path from which it was read.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = checkpoint.save(folder, 7, {"w": np.ones(2)}, metadata={"seed": 3})
      ...     found = checkpoint.restore(folder, {"w": np.zeros(2)})
      >>> found.step, found.payload["w"].tolist(), found.metadata
      (7, [1.0, 1.0], {'seed': 3})
    """

    step: int
    payload: Any
    metadata: dict[str, Any]
    path: pathlib.Path


def save(
    directory: str | os.PathLike[str],
    step: int,
    payload: PyTree,
    *,
    metadata: dict[str, Any] | None = None,
    keep: int = 2,
) -> pathlib.Path:
    """Writes a checkpoint, then deletes the ones that are no longer needed.

    Checkpoints of later steps are deleted, too: if they exist, the run was restarted
    from an earlier step because they were damaged or rejected.

    Args:
      directory: folder of all checkpoints of a run; created if missing.
      step: step of the checkpoint; an existing one is replaced.
      payload: pytree of arrays and numbers: states, keys, normalisers, positions.
      metadata: JSON object, such as the configuration.
      keep: number of latest checkpoints to keep, including this one.

    Returns:
      The path of the complete checkpoint.

    Raises:
      CheckpointError: if the directory cannot be written or the disk is full.
      RuntimeError: if the process is one of several, and not the first one.
      TypeError: if a leaf is neither array, number nor PRNG key.
      ValueError: if `keep` or `step` is out of range.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = checkpoint.save(folder, 100, {"w": np.ones(2)})
      ...     checkpoint.all_steps(folder)
      [100]
    """
    if keep < 1 or not 0 <= step < 10**10:
        raise ValueError(
            f"{keep=} must be at least 1, and {step=} must lie between 0 and 10^10."
        )
    _arrays.check_process()
    directory = pathlib.Path(directory).absolute()
    path = directory / f"step_{step:010d}"
    arrays = {name: a for name, a in _leaves.arrays(payload).items() if a.size}
    begun = False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _probe(directory)
        _remove_incomplete(directory)
        begun = True
        _delete(path)
        _write(path, step, arrays, metadata or {})
    except (OSError, ValueError, RuntimeError) as error:
        if begun:  # what is there of it takes space
            _delete(path)
            _remove_incomplete(directory)
        raise CheckpointError(
            f"Cannot write the checkpoint of step {step} to {directory}: "
            f"{_reason(error)}. Free disk space or make the directory writable (or "
            "choose another), then start again: complete earlier checkpoints are kept."
        ) from error
    for later in all_steps(directory):
        if later > step:
            _delete(directory / f"step_{later:010d}")
    tidy(directory, step, keep=keep)
    return path


def restore(
    directory: str | os.PathLike[str], like: PyTree, *, step: int | None = None
) -> Restored | None:
    """Reads the newest complete checkpoint; skips damaged ones with a warning.

    Args:
      directory: folder of all checkpoints of a run.
      like: template pytree of the same structure, with arrays, numbers or
        `jax.ShapeDtypeStruct` as leaves (values are ignored). Arrays are placed on the
        template's devices.
      step: step of the checkpoint to read; it is an error if it cannot be read.

    Returns:
      The checkpoint, or None if there is none.

    Raises:
      CheckpointError: if checkpoints exist but none can be read, or the requested one
        cannot.
      ValueError: if the structure, a shape or a dtype differs from the template,
        because the configuration has changed; or if a later opjax wrote it.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = checkpoint.save(folder, 100, {"w": np.ones(2)})
      ...     found = checkpoint.restore(folder, like={"w": np.zeros(2)})
      >>> found.step, found.payload["w"].tolist()
      (100, [1.0, 1.0])
    """
    directory = pathlib.Path(directory).absolute()
    steps = all_steps(directory)
    if step is not None and step not in steps:
        raise CheckpointError(f"{directory} has no step {step}, only {steps}.")
    damaged = []
    for candidate in reversed(steps) if step is None else [step]:
        path = directory / f"step_{candidate:010d}"
        try:
            arrays, info = _read(path, like)
        except (_MismatchError, _formats.NewerFormatError):
            raise
        except Exception as error:  # Orbax and TensorStore raise many kinds
            reason = str(error).strip().splitlines()[0][:200] if str(error) else ""
            damaged.append(f"{path.name} ({type(error).__name__}: {reason})")
            continue
        if damaged:
            warnings.warn(
                f"Ignored damaged checkpoints in {directory}: {'; '.join(damaged)}. "
                f"Continuing from step {candidate}.",
                stacklevel=2,
            )
        return Restored(
            candidate, _leaves.rebuild(arrays, like), info["metadata"], path
        )
    if damaged:
        raise CheckpointError(
            f"No readable checkpoint in {directory}: {'; '.join(damaged)}. Restore the "
            "folder from a copy, or delete it to start from the beginning."
        )
    return None


def tidy(directory: str | os.PathLike[str], step: int, *, keep: int) -> None:
    """Deletes incomplete checkpoints, and old ones that a killed `save` left behind.

    Args:
      directory: folder of all checkpoints of a run.
      step: step of a checkpoint that is known to be valid; later ones are kept.
      keep: number of latest checkpoints to keep, up to this one.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for step in (1, 2, 3):
      ...         _ = checkpoint.save(folder, step, {"w": np.ones(2)}, keep=3)
      ...     checkpoint.tidy(folder, 3, keep=1)
      ...     checkpoint.all_steps(folder)
      [3]
    """
    directory = pathlib.Path(directory)
    _remove_incomplete(directory)
    for old in [one for one in all_steps(directory) if one <= step][:-keep]:
        _delete(directory / f"step_{old:010d}")


def read_metadata(directory: str | os.PathLike[str], step: int) -> dict[str, Any]:
    """Reads the metadata of a checkpoint, to build a template for `restore`.

    Raises:
      CheckpointError: if there is none, or it is damaged.
      ValueError: if a later opjax wrote it.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     _ = checkpoint.save(folder, 5, {"w": np.ones(2)}, metadata={"seed": 3})
      ...     checkpoint.read_metadata(folder, 5)
      {'seed': 3}
    """
    path = pathlib.Path(directory) / f"step_{step:010d}"
    try:
        return _manifest.read(path)["metadata"]
    except _formats.NewerFormatError:
        raise
    except (OSError, ValueError, LookupError, RecursionError, AttributeError) as error:
        raise CheckpointError(
            f"Cannot read {path / _manifest.NAME}: {error}. Restore the folder from a "
            "copy, or delete it and create it again."
        ) from error


def mapped(
    function: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], tree: PyTree
) -> Any:
    """Applies a function to the named arrays of a payload.

    Args:
      function: function that returns arrays of the same names, shapes and dtypes.
      tree: payload, which provides the types and devices of the result.

    Examples:
      >>> import numpy as np
      >>> from opjax.training import checkpoint
      >>> def doubled(arrays):
      ...     return {name: 2 * array for name, array in arrays.items()}
      >>> checkpoint.mapped(doubled, {"w": np.ones(2)})
      {'w': array([2., 2.])}
    """
    return _leaves.rebuild(function(_leaves.arrays(tree)), tree)


def all_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Lists the steps of the complete checkpoints in a directory, in ascending order.

    Examples:
      >>> import tempfile
      >>> from opjax.training import checkpoint
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     checkpoint.all_steps(folder)  # no checkpoint yet
      []
    """
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        return []
    complete = (p.parent.name for p in directory.glob(f"step_*/{_manifest.NAME}"))
    matches = map(_NAME.fullmatch, complete)
    return sorted(int(match[1]) for match in matches if match)


class _MismatchError(ValueError):
    """The template has another structure, shape or dtype than the checkpoint."""


def _write(
    path: pathlib.Path,
    step: int,
    arrays: dict[str, np.ndarray],
    metadata: Json,
) -> None:
    """Writes a checkpoint; its manifest follows when all else is on the disk."""
    _arrays.write(path, arrays)
    for place, _, files in os.walk(path):
        for name in ("", *files):
            sync(pathlib.Path(place, name))
    sync(path.parent)
    with replacing(path / _manifest.NAME) as manifest:
        manifest.write_text(_manifest.text(path, step, metadata))
    sync(path)


def _read(
    path: pathlib.Path, like: PyTree
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Returns the non-empty arrays of a template, and the values of the manifest.

    Raises:
      Exception: whatever Orbax and TensorStore raise, if the checkpoint is damaged.
      _MismatchError: if the arrays are not those of the template.
    """
    info = _manifest.read(path)
    if info["crc32"] != _manifest.checksums(path):
        raise OSError("its files do not match its manifest")
    arrays = _arrays.read(path)
    expected, missing, extra = _leaves.compared(arrays, like)
    if missing or extra:
        raise _MismatchError(
            f"{path} was saved with another structure: missing {missing[:5]}, "
            f"unexpected {extra[:5]}. Use the configuration and version with which "
            "it was saved (config.json, environment.json), or another directory."
        )
    for name, array in arrays.items():
        leaf = expected[name]
        if (array.dtype, leaf.dtype) == (np.float32, np.float64):
            # Normalisers of opjax 0.2 are in single precision; nothing is lost.
            array = arrays[name] = array.astype(np.float64)
        if (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
            raise _MismatchError(
                f"{path}: {name} was saved with shape {array.shape} and dtype "
                f"{array.dtype}, expected {leaf.shape} and {leaf.dtype}. Use the "
                "configuration and version with which it was saved, or another "
                "directory."
            )
    return arrays, info


def _reason(error: Exception) -> str:
    """What went wrong, in a line; of TensorStore's long ones the system's words."""
    said = str(error).strip() or repr(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES):
        if os.strerror(number) in said:
            return os.strerror(number)
    return said.splitlines()[0][:300]


def _probe(directory: pathlib.Path) -> None:
    """Raises OSError if nothing can be written to the directory."""
    probe = directory / f".probe-{os.getpid()}"
    try:
        probe.write_bytes(b"opjax")
    finally:
        probe.unlink(missing_ok=True)


def _delete(path: pathlib.Path) -> None:
    """Deletes a checkpoint, of which a process that is killed leaves no half."""
    with contextlib.suppress(OSError):
        (path / _manifest.NAME).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _remove_incomplete(directory: pathlib.Path) -> None:
    """Deletes what killed or failing processes have left of checkpoints."""
    for left in (*directory.glob("step_*"), *directory.glob(".probe-*")):
        if left.is_dir() and not (left / _manifest.NAME).exists():
            shutil.rmtree(left, ignore_errors=True)
        elif not left.is_dir():
            with contextlib.suppress(OSError):
                left.unlink()
