"""Checkpoints that are complete or ignored, restored into exactly the types saved.

One directory per step, written by Orbax under a temporary name and renamed when it is
complete; when all of it is on the disk, a manifest with the checksum of every file, and
of itself, is written last. A checkpoint that does not agree with its manifest is
ignored, so a killed run, a power cut or a bad disk leaves the previous checkpoint
usable. Leaves are stored by their path in the pytree and put back
into the structure of a template, so modules and optimizer states come back as what they
were, every bit the same, typed PRNG keys too.

Scope: the calling process reads and writes alone, also where it is one of several, so
arrays that are split over the devices of others cannot be saved. Arrays are gathered,
and placed like the template's, whatever devices they were on.
"""

import contextlib
import errno
import json
import logging
import os
import pathlib
import re
import shutil
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from orbax.checkpoint import v1 as ocp
from orbax.checkpoint.experimental.v1._src.saving import execution

from opjax import _formats
from opjax._files import replacing, sync

_NAME = re.compile(r"step_(\d{10})")
_MANIFEST = "opjax_manifest.json"
_NEVER = 10**9  # seconds
_KEYS = {"step", "metadata", "crc32"}  # the first manifests had no "own" and "format"


class CheckpointError(OSError):
    """A checkpoint could not be written; earlier ones are untouched."""


class Restored(NamedTuple):
    """A checkpoint in memory.

    Attributes:
      step: the step it was saved at.
      payload: the pytree, of the template's types.
      metadata: the JSON object saved with it.
      path: where it was read.
    """

    step: int
    payload: Any
    metadata: dict[str, Any]
    path: pathlib.Path


def save(
    directory: str | os.PathLike[str],
    step: int,
    payload: Any,
    *,
    metadata: dict[str, Any] | None = None,
    keep: int = 2,
) -> pathlib.Path:
    """Writes a checkpoint, then deletes the ones no longer needed.

    Those of later steps are deleted, too: the run went back behind them, because they
    were damaged or not wanted.

    Args:
      directory: folder of all checkpoints of a run; created if missing.
      step: number of the checkpoint; an existing one is replaced.
      payload: pytree of arrays and numbers: states, keys, normalisers, positions.
      metadata: JSON object, such as the configuration.
      keep: number of latest checkpoints to keep, this one included.

    Returns:
      The path of the complete checkpoint.

    Raises:
      CheckpointError: if the directory cannot be written or the disk is full.
      TypeError: if a leaf is neither array, number nor PRNG key.
      ValueError: if `keep` or `step` is out of range.
    """
    if keep < 1 or not 0 <= step < 10**10:
        raise ValueError(f"{keep=} must be at least 1, {step=} between 0 and 10^10.")
    directory = pathlib.Path(directory).absolute()
    path: Any = directory / f"step_{step:010d}"  # Orbax's own annotation is narrower
    arrays = {k: v for k, v in _flatten(payload).items() if v.size}
    info, begun = {"step": step, "metadata": metadata or {}}, False
    info["format"] = _formats.CHECKPOINT
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _probe(directory)
        _remove_incomplete(directory)
        begun = True
        with _quiet():
            ocp.save_checkpointables(path, {"arrays": arrays}, overwrite=True)
        for place, _, files in os.walk(path):
            for name in ("", *files):
                sync(pathlib.Path(place, name))
        sync(directory)
        with replacing(path / _MANIFEST) as manifest:
            manifest.write_text(_signed(info | {"crc32": _checksums(path)}))
        sync(path)
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
    directory: str | os.PathLike[str], like: Any, *, step: int | None = None
) -> Restored | None:
    """Reads the newest complete checkpoint, passing over damaged ones with a warning.

    Args:
      directory: folder of all checkpoints of a run.
      like: template pytree of the same structure; arrays, numbers or
        `jax.ShapeDtypeStruct` leaves (values are ignored). Arrays are placed on the
        template's devices.
      step: read this one and raise if it cannot be read.

    Returns:
      The checkpoint, or None if there is none.

    Raises:
      CheckpointError: if checkpoints exist and none can be read, or not the wanted one.
      ValueError: if the structure, a shape or a dtype differs from the template: the
        configuration has changed; or if a later opjax wrote it.
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
        except _Mismatch as error:
            raise ValueError(str(error)) from None
        except _formats.NewerFormatError:
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
        return Restored(candidate, _unflatten(arrays, like), info["metadata"], path)
    if damaged:
        raise CheckpointError(
            f"No readable checkpoint in {directory}: {'; '.join(damaged)}. Restore the "
            "folder from a copy, or delete it to start from the beginning."
        )
    return None


def tidy(directory: str | os.PathLike[str], step: int, *, keep: int) -> None:
    """Deletes incomplete checkpoints, and old ones that a killed `save` has left.

    Args:
      directory: folder of all checkpoints of a run.
      step: of a checkpoint that is known to be good; later ones stay.
      keep: number of latest checkpoints to keep, up to this one.
    """
    directory = pathlib.Path(directory)
    _remove_incomplete(directory)
    for old in [found for found in all_steps(directory) if found <= step][:-keep]:
        _delete(directory / f"step_{old:010d}")


def read_metadata(directory: str | os.PathLike[str], step: int) -> dict[str, Any]:
    """Reads the metadata of a checkpoint, to build a template for `restore` from.

    Raises:
      CheckpointError: if there is none, or it is damaged.
      ValueError: if a later opjax wrote it.
    """
    path = pathlib.Path(directory) / f"step_{step:010d}" / _MANIFEST
    try:
        return _verified(path)["metadata"]
    except _formats.NewerFormatError:
        raise
    except (OSError, ValueError, LookupError, RecursionError, AttributeError) as error:
        raise CheckpointError(
            f"Cannot read {path}: {error}. Restore the folder from a copy, or delete "
            "it and make it anew."
        ) from error


def mapped(
    function: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]], tree: Any
) -> Any:
    """Applies a function to the arrays of a payload, by their names in a checkpoint.

    Args:
      function: returns arrays of the same names, shapes and dtypes.
      tree: payload, whose types and devices the result has.
    """
    return _unflatten(function(_flatten(tree)), tree)


def all_steps(directory: str | os.PathLike[str]) -> list[int]:
    """Lists the steps of the complete checkpoints in a directory, in rising order."""
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        return []
    complete = (p.parent.name for p in directory.glob(f"step_*/{_MANIFEST}"))
    found = map(_NAME.fullmatch, complete)
    return sorted(int(match[1]) for match in found if match)


class _Mismatch(Exception):
    pass


def _read(path: Any, like: Any) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    expected = _flatten(like, abstract=True)
    info = _verified(path / _MANIFEST)
    if info["crc32"] != _checksums(path):
        raise OSError("its files do not match its manifest")
    with _quiet():
        stored = ocp.checkpointables_metadata(path).metadata["arrays"]
        names = {k: v for k, v in expected.items() if v.size}
        missing, extra = (
            sorted(set(names) - set(stored)),
            sorted(set(stored) - set(names)),
        )
        if missing or extra:
            raise _Mismatch(
                f"{path} was saved with another structure: missing {missing[:5]}, "
                f"unexpected {extra[:5]}. Use the configuration and version it was "
                "saved with (config.json, environment.json), or another directory."
            )
        for name, leaf in names.items():
            have = tuple(stored[name].shape), np.dtype(stored[name].dtype)
            if have != (leaf.shape, leaf.dtype):
                raise _Mismatch(
                    f"{path}: {name} was saved with shape {have[0]} and dtype "
                    f"{have[1]}, expected {leaf.shape} and {leaf.dtype}. Use "
                    "the configuration and version it was saved with, or another "
                    "directory."
                )
        template = {k: np.empty(v.shape, v.dtype) for k, v in names.items()}
        loaded = ocp.load_checkpointables(path, {"arrays": template})
    arrays = {k: np.empty(v.shape, v.dtype) for k, v in expected.items() if not v.size}
    return {**loaded["arrays"], **arrays}, info


def _reason(error: Exception) -> str:
    """What went wrong, in a line; of TensorStore's long ones the system's words."""
    said = str(error).strip() or repr(error)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES):
        if os.strerror(number) in said:
            return os.strerror(number)
    return said.splitlines()[0][:300]


def _signed(info: dict[str, Any]) -> str:
    """The text of a manifest, with the CRC-32 of its values under `own`."""
    info = json.loads(json.dumps(info))  # as it will be read
    own = zlib.crc32(json.dumps(info, sort_keys=True).encode())
    return json.dumps(info | {"own": own}, indent=1)


def _verified(path: pathlib.Path) -> dict[str, Any]:
    """The values of a manifest.

    The checksum comes first, in every format, so that damage is no newer format.

    Raises:
      OSError: if one has changed.
      ValueError: if it is no JSON, or of a newer format.
    """
    info = json.loads(path.read_text())
    own = info.pop("own", None)
    found = zlib.crc32(json.dumps(info, sort_keys=True).encode())
    if own not in (None, found):
        raise OSError("its manifest has changed")
    known = info.pop("format", 0)
    _formats.check(path, known, _formats.CHECKPOINT, what="checkpoints")
    if set(info) != _KEYS:
        raise OSError("its manifest has changed")
    return info


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
        (path / _MANIFEST).unlink(missing_ok=True)
    shutil.rmtree(path, ignore_errors=True)


def _remove_incomplete(directory: pathlib.Path) -> None:
    """Deletes what killed or failing processes have left of checkpoints."""
    for left in (*directory.glob("step_*"), *directory.glob(".probe-*")):
        if left.is_dir() and not (left / _MANIFEST).exists():
            shutil.rmtree(left, ignore_errors=True)
        elif not left.is_dir():
            with contextlib.suppress(OSError):
                left.unlink()


def _checksums(path: pathlib.Path) -> dict[str, int]:
    """CRC-32 of every file of a checkpoint; Orbax itself notices only some damage."""
    files = sorted(f for f in path.rglob("*") if f.is_file())
    return {
        f.relative_to(path).as_posix(): zlib.crc32(f.read_bytes())
        for f in files
        if not f.name.startswith(_MANIFEST)
    }


def _flatten(tree: Any, *, abstract: bool = False) -> dict[str, Any]:
    """Maps each leaf's path to a NumPy array (or its shape and dtype)."""
    flat: dict[str, Any] = {}
    leaf: Any
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        name = jax.tree_util.keystr(path).replace("/", "|") or "value"
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            if not isinstance(leaf, (jax.Array, np.ndarray, np.generic, int, float)):
                raise TypeError(
                    f"Leaf {name} is a {type(leaf).__name__}; checkpoints hold arrays "
                    "and numbers, put anything else into `metadata`."
                )
            if not isinstance(leaf, jax.Array):
                leaf = np.asarray(leaf)
        if _is_key(leaf):
            data: Any = jax.random.key_data
            leaf = jax.eval_shape(data, leaf) if abstract else data(leaf)
        flat[name] = (
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            if abstract
            else np.asarray(leaf)
        )
    return flat


def _unflatten(arrays: dict[str, np.ndarray], like: Any) -> Any:
    leaves, structure = jax.tree.flatten(like)
    values = (arrays[name] for name in _flatten(like, abstract=True))
    return structure.unflatten(map(_convert, values, leaves))


def _convert(value: np.ndarray, leaf: Any) -> Any:
    if isinstance(leaf, (bool, int, float)) and not isinstance(leaf, np.generic):
        return type(leaf)(value)
    if isinstance(leaf, (np.ndarray, np.generic)):
        return value if isinstance(leaf, np.ndarray) else value[()]
    if _is_key(leaf):
        found = []  # traced, because the template may be abstract
        jax.eval_shape(lambda key: found.append(jax.random.key_impl(key)), leaf)
        return jax.random.wrap_key_data(jnp.asarray(value), impl=found[0])
    sharding = getattr(leaf, "sharding", None)
    # Copied: device_put may alias a NumPy buffer, and donated buffers must be ours.
    if sharding is not None and not sharding.is_fully_addressable:
        data = np.array(value)
        return jax.make_array_from_process_local_data(sharding, data, data.shape)
    return jax.device_put(jnp.array(value), sharding)


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jax.dtypes.prng_key))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lets Orbax work in this process alone, without messages; its errors reach us."""
    loggers = [logging.getLogger(name) for name in ("absl", "asyncio")]
    levels = [logger.level for logger in loggers]
    own, check = jax.process_index(), execution._check_directory_consistency
    alone = ocp.options.MultiprocessingOptions(primary_host=own, active_processes={own})
    # In the background, a folder that cannot be made would be waited for, for minutes;
    # a save times out by a clock that may be set meanwhile.
    at_once = ocp.options.AsyncOptions(
        create_directories_asynchronously=False, timeout_secs=_NEVER
    )
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    # Whatever processes are active, Orbax 0.12 would have all of them compare paths.
    execution._check_directory_consistency = lambda directory: None
    try:
        with ocp.Context(multiprocessing_options=alone, async_options=at_once):
            yield
    finally:
        execution._check_directory_consistency = check
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
