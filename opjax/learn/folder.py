"""The folder of a run: its lock, configuration, environment and result."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, TypeVar

import jax

from opjax.learn.json_files import to_json, tuples, write_json, writing
from opjax.learn.provenance import environment

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second process out
    fcntl = None

_LOGGER = logging.getLogger(__name__)
_Config = TypeVar("_Config")


class RunDirectory(NamedTuple):
    """An open, locked run folder.

    Attributes:
      path: the folder.
      config: the configuration as JSON object.
      resumed: whether the folder held a run of this configuration already.
    """

    path: pathlib.Path
    config: dict[str, Any]
    resumed: bool

    @property
    def checkpoints(self) -> pathlib.Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"


@contextlib.contextmanager
def open_run(
    workdir: str | os.PathLike, config: Any, *, command: str = ""
) -> Iterator[RunDirectory]:
    """Creates or reopens the folder of a run and holds its lock.

    A folder that holds a run of the same configuration is continued; in that of a study
    the choice of its members may change: those that are finished are kept, and its
    result is made anew.

    Args:
      workdir: folder.
      config: frozen dataclass of JSON values (not containing `workdir`).
      command: what repeats the run.

    Raises:
      OSError: if the folder cannot be written.
      RuntimeError: if another process is using it.
      ValueError: if it holds a run of a different configuration.
    """
    path = pathlib.Path(workdir).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Without a buffer nothing is left to be written when it is closed.
        lock = open(path / ".lock", "ab+", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise OSError(
            f"Cannot write to the run folder {path}: {error.strerror or error}. Make "
            "it writable or give another --workdir."
        ) from error
    with lock:
        _take(lock, path)
        values = to_json(dataclasses.asdict(config))
        resumed = _begun(path) and (path / "config.json").exists()
        if resumed:
            _match(path, config, values)
        write_json(path / "config.json", values)
        write_json(path / "environment.json", environment(path, command))
        yield RunDirectory(path, values, resumed)


def _take(lock: IO[bytes], path: pathlib.Path) -> None:
    """Locks the open file, where the system has locks to give, and signs it."""
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().decode().strip() or "unknown"
            raise RuntimeError(
                f"Process {owner} is already running in {path}. Wait for it, stop it "
                f"(kill {owner}), or give another --workdir."
            ) from None
        except OSError as error:  # a network file system without locks
            _LOGGER.warning("No lock for %s, use it once at a time: %s", path, error)
    with writing(path / ".lock"):
        lock.truncate(0)
        lock.write(str(os.getpid()).encode())


def _begun(path: pathlib.Path) -> bool:
    """Whether a run has begun to train; before, there is nothing to lose."""
    traces = ("metrics.jsonl", "checkpoints", "result.json")
    depths = ("", "*/", "*/*/")  # the run itself, members, members of its parts
    return any(any(path.glob(f"{d}{name}")) for d in depths for name in traces)


def _match(path: pathlib.Path, config: Any, now: dict[str, Any]) -> None:
    """Raises ValueError for another configuration; makes room for other members."""
    stored = _stored(path, type(config))
    pairs = {
        name: (stored.get(name, "(absent)"), now.get(name, "(unknown)"))
        for name in sorted(stored.keys() | now.keys())
    }
    differing = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    members = {f.name for f in dataclasses.fields(config) if f.metadata.get("members")}
    refused = [
        f"{name}: {there!r} there, {here!r} now"
        for name, (there, here) in differing.items()
        if name not in members
    ]
    if refused:
        raise ValueError(
            f"{path} holds a run with another configuration ({'; '.join(refused)}). "
            "Give another --workdir, or the same configuration to continue that run "
            "(--workdir alone does)."
        )
    if differing:  # other members: finished ones stay, the result is made anew
        (path / "result.json").unlink(missing_ok=True)


def read_config(workdir: str | os.PathLike, cls: type[_Config]) -> _Config | None:
    """Reads the configuration of a run, to continue it by `--workdir` alone.

    Args:
      workdir: folder of the run; one of an earlier version may lack fields, which take
        their defaults.
      cls: dataclass of the configuration.

    Returns:
      The configuration, or None if the folder has none.

    Raises:
      ValueError: if `config.json` is damaged or has unknown fields.
    """
    path = pathlib.Path(workdir)
    if not (path / "config.json").exists():
        return None
    stored = _stored(path, cls)
    unknown = stored.keys() - {field.name for field in dataclasses.fields(cls)}  # pyright: ignore
    if unknown:
        raise ValueError(
            f"{path} holds a run of another program or version: its config.json has "
            f"the unknown fields {sorted(unknown)}. Continue it with the program it "
            "was started with, or give another --workdir."
        )
    return cls(**{name: tuples(value) for name, value in stored.items()})


def _stored(path: pathlib.Path, cls: Any) -> dict[str, Any]:
    """The JSON values of `config.json`, and the defaults of absent fields."""
    try:
        values = json.loads((path / "config.json").read_text())
        if not isinstance(values, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise ValueError(
            f"{path} has a damaged config.json ({error}). Restore it from a copy, "
            "delete it where nothing is to be continued, or give another --workdir."
        ) from error
    defaults = {
        field.name: to_json(field.default)
        for field in dataclasses.fields(cls)
        if field.default is not dataclasses.MISSING
    }
    return defaults | values


def run_once(
    workdir: str | os.PathLike,
    config: Any,
    work: Callable[[RunDirectory], dict[str, Any]],
    *,
    command: str = "",
) -> dict[str, Any]:
    """Runs a program in float32 in its folder, or reads the result of a finished run.

    Args:
      workdir: folder of the run, see `open_run`.
      config: as for `open_run`.
      work: computes the result, continuing from what the folder holds.
      command: as for `open_run`.

    Returns:
      The result as JSON values, also written to `result.json`.
    """
    with jax.enable_x64(False), open_run(workdir, config, command=command) as directory:
        finished = directory.path / "result.json"
        if finished.exists():
            print(f"{directory.path} holds a finished run.", file=sys.stderr)
        else:
            write_json(finished, work(directory))
        return json.loads(finished.read_text())
