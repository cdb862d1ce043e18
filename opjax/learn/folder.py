"""The folder of a run: configuration, environment, lock, metrics and result."""

import contextlib
import dataclasses
import json
import logging
import os
import pathlib
import sys
from collections.abc import Callable
from typing import IO, Any

import jax

from opjax.learn.json_files import (
    replacing,
    to_json,
    write_json,
    write_text,
    writing,
)
from opjax.learn.provenance import environment
from opjax.learn.stored import begun, match

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second process out
    fcntl = None

__all__ = [
    "RunDirectory",
    "open_run",
    "print_result",
    "replacing",
    "run_once",
    "to_json",
    "write_json",
    "write_text",
]

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass
class RunDirectory:
    """An open, locked run folder; use as a context manager to release the lock.

    Attributes:
      path: the folder.
      config: the configuration as JSON object.
      resumed: whether the folder held a run of this configuration already.
    """

    path: pathlib.Path
    config: dict[str, Any]
    resumed: bool
    _lock: Any = None

    @property
    def checkpoints(self) -> pathlib.Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    def close(self) -> None:
        """Releases the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_run(
    workdir: str | os.PathLike, config: Any, *, base: Any = None, command: str = ""
) -> RunDirectory:
    """Creates or reopens the folder of a run and takes its lock.

    In the folder of a study the choice of its members may change: members that are
    finished are kept, and its result is made anew.

    Args:
      workdir: folder; created if missing, continued if it holds a run of the same
        configuration.
      config: frozen dataclass of JSON values (not containing `workdir`).
      base: configuration that says what a folder of an earlier version means by absent
        fields, such as the preset; None for the defaults.
      command: what repeats the run.

    Returns:
      The open folder, with `config.json` and `environment.json` written.

    Raises:
      OSError: if the folder cannot be written.
      RuntimeError: if another process is using it.
      ValueError: if it holds a run of a different configuration.
    """
    path = pathlib.Path(workdir).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = open(path / ".lock", "a+")  # noqa: SIM115 - held while the run lasts
    except OSError as error:
        raise OSError(
            f"Cannot write to the run folder {path}: {error.strerror or error}. Make "
            "it writable or give another --workdir."
        ) from error
    try:
        _take(lock, path)
        values = to_json(dataclasses.asdict(config))
        resumed = begun(path) and (path / "config.json").exists()
        if resumed:
            match(path, config, base)
        write_json(path / "config.json", values)
        write_json(path / "environment.json", environment(path, command))
    except BaseException:
        with contextlib.suppress(OSError):  # a full disk fails once more at closing
            lock.close()
        raise
    return RunDirectory(path, values, resumed, lock)


def _take(lock: IO[str], path: pathlib.Path) -> None:
    """Locks the open file, where the system has locks to give, and signs it."""
    if fcntl is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise RuntimeError(
                f"Process {owner} is already running in {path}. Wait for it, stop it "
                f"(kill {owner}), or give another --workdir."
            ) from None
        except OSError as error:  # a network file system without locks
            _LOGGER.warning("No lock for %s, use it once at a time: %s", path, error)
    with writing(path / ".lock"):
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()


def print_result(run: RunDirectory, result: dict[str, Any]) -> None:
    """Writes `result.json` and prints the result as the last line of stdout.

    Args:
      run: the open folder.
      result: JSON values; non-finite numbers become null.
    """
    result = to_json(result)
    write_json(run.path / "result.json", result)
    sys.stderr.flush()
    print(json.dumps(result, allow_nan=False), flush=True)


def run_once(
    workdir: str | os.PathLike,
    config: Any,
    work: Callable[[RunDirectory], dict[str, Any]],
    *,
    base: Any = None,
    command: str = "",
    last_line: bool = True,
) -> dict[str, Any]:
    """Runs a program in float32 in its folder, or reads the result of a finished run.

    Args:
      workdir: folder of the run, see `open_run`.
      config: frozen dataclass of JSON values.
      work: computes the result, continuing from what the folder holds.
      base: as for `open_run`.
      command: as for `open_run`.
      last_line: whether to print the result, as the last line of a program.

    Returns:
      The result, also written to `result.json`.

    Raises:
      OSError: if the folder cannot be written.
      RuntimeError: if another process works in it.
      ValueError: if it holds another configuration.
    """
    with (
        jax.enable_x64(False),
        open_run(workdir, config, base=base, command=command) as directory,
    ):
        finished = directory.path / "result.json"
        if finished.exists():
            print(f"{directory.path} holds a finished run.", file=sys.stderr)
            result = json.loads(finished.read_text())
        else:
            result = to_json(work(directory))
            write_json(finished, result)
        if last_line:
            print_result(directory, result)
    return result
