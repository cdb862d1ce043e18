"""The folder of a run: configuration, environment, lock, metrics and result."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import logging
import math
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any, TypeVar

import jax
import numpy as np

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second process out
    fcntl = None

_LOGGER = logging.getLogger(__name__)
_Config = TypeVar("_Config")
_PACKAGES = ("opjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


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


def open_run(workdir: str | os.PathLike, config: Any) -> RunDirectory:
    """Creates or reopens the folder of a run and takes its lock.

    Args:
      workdir: folder; created if missing, continued if it holds a run of the same
        configuration.
      config: frozen dataclass of JSON values (not containing `workdir`).

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
        fields = to_json(dataclasses.asdict(config))
        resumed = _match(path, fields)
        if not resumed:
            write_json(path / "config.json", fields)
        write_json(path / "environment.json", _environment(path))
    except BaseException:
        with contextlib.suppress(OSError):  # a full disk fails once more at closing
            lock.close()
        raise
    return RunDirectory(path, fields, resumed, lock)


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


def stored_config(workdir: str | os.PathLike, cls: type[_Config]) -> _Config | None:
    """Reads the configuration of an earlier run, to continue it by `--workdir` alone.

    Args:
      workdir: folder of the run.
      cls: dataclass of the configuration; lists become tuples.

    Returns:
      The configuration, or None if the folder has none.

    Raises:
      ValueError: if `config.json` is damaged or lacks or adds fields.
    """
    path = pathlib.Path(workdir)
    if not (path / "config.json").exists():
        return None

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    fields = _stored_fields(path)
    names = {field.name for field in dataclasses.fields(cls)}  # pyright: ignore
    if names != fields.keys():
        raise ValueError(
            f"{path} holds a run of another program or version: its config.json lacks "
            f"{sorted(names - fields.keys())} and has the unknown fields "
            f"{sorted(fields.keys() - names)}. Continue it with the program it was "
            "started with, or give another --workdir."
        )
    return cls(**{name: tuples(value) for name, value in fields.items()})


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
    last_line: bool = True,
) -> dict[str, Any]:
    """Runs a program in float32 in its folder, or reads the result of a finished run.

    Args:
      workdir: folder of the run, see `open_run`.
      config: frozen dataclass of JSON values.
      work: computes the result, continuing from what the folder holds.
      last_line: whether to print the result, as the last line of a program.

    Returns:
      The result, also written to `result.json`.

    Raises:
      OSError: if the folder cannot be written.
      RuntimeError: if another process works in it.
      ValueError: if it holds another configuration.
    """
    with jax.enable_x64(False), open_run(workdir, config) as directory:
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


class MetricsWriter:
    """Appends rows to `metrics.jsonl`, and to TensorBoard if asked.

    Opened with the number of rows a checkpoint knew of, it drops the ones after, so a
    resumed run leaves the file an uninterrupted one would have written.
    """

    def __init__(self, run: RunDirectory, *, rows: int = 0, tensorboard: bool = False):
        path = run.path / "metrics.jsonl"
        old = path.read_text().splitlines(keepends=True) if path.exists() else []
        write_text(path, "".join(old[:rows]))
        self.rows = rows
        self._path = path
        with writing(path):
            self._file = open(path, "a")  # noqa: SIM115 - closed by `close`
        self._board = None
        if tensorboard:
            try:
                from tensorboardX import SummaryWriter  # pyright: ignore
            except ImportError:
                self._file.close()
                raise ModuleNotFoundError(
                    "--tensorboard needs tensorboardX: pip install "
                    "'opjax[tensorboard]', or leave the flag out: "
                    "metrics.jsonl is written in any case."
                ) from None
            step = json.loads(old[rows - 1])["step"] + 1 if 0 < rows <= len(old) else 0
            self._board = SummaryWriter(
                str(run.path / "tensorboard"),
                purge_step=step,
                filename_suffix=f".{rows}",  # two files may be of the same second
            )

    def write(self, row: dict[str, Any]) -> None:
        """Appends one row, which must have a "step", and pushes it to the disk."""
        row = to_json(row)
        with writing(self._path):
            self._file.write(json.dumps(row, allow_nan=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self.rows += 1
        if self._board is not None:
            for name, value in row.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, row["step"])

    def close(self) -> None:
        """Closes the files."""
        with writing(self._path):
            self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(workdir: str | os.PathLike) -> list[dict[str, Any]]:
    """Reads the complete rows of a run's `metrics.jsonl`."""
    path = pathlib.Path(workdir) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def to_json(value: Any) -> Any:
    """Turns arrays and tuples into JSON values; non-finite numbers become null."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return to_json(np.asarray(value).tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, os.PathLike) else value


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a JSON file in one piece."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a text file in one piece: readers see the old file or the new one."""
    with replacing(path) as temporary:
        temporary.write_text(text)


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[pathlib.Path]:
    """Gives a temporary path to write to, which becomes `path` when complete."""
    path = pathlib.Path(path)
    temporary = path.with_name(path.name + ".tmp")
    with writing(path):
        try:
            yield temporary
            temporary.replace(path)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


@contextlib.contextmanager
def writing(path: str | os.PathLike) -> Iterator[None]:
    """Raises OSErrors of its body with the name of the file and the way out."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"Cannot write {os.fspath(path)}: {error.strerror or error}. Free disk "
            "space or make the folder writable, then start again with the same "
            "--workdir: the last checkpoint is kept."
        ) from error


def _stored_fields(path: pathlib.Path) -> dict[str, Any]:
    try:
        fields = json.loads((path / "config.json").read_text())
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
    except ValueError as error:
        raise ValueError(
            f"{path} has a damaged config.json ({error}). Restore it from a copy, "
            "delete it where nothing is to be continued, or give another --workdir."
        ) from error
    return fields


def _match(path: pathlib.Path, fields: dict[str, Any]) -> bool:
    # Where training never began, for want of data say, there is nothing to lose.
    traces = ("metrics.jsonl", "checkpoints", "result.json")
    begun = any((path / name).exists() for name in traces)
    if not begun or not (path / "config.json").exists():
        return False
    stored = _stored_fields(path)
    missing = object()
    differing = [
        f"{name}: {stored.get(name, '(absent)')!r} there, "
        f"{fields.get(name, '(absent)')!r} now"
        for name in sorted(stored.keys() | fields.keys())
        if stored.get(name, missing) != fields.get(name, missing)
    ]
    if differing:
        raise ValueError(
            f"{path} holds a run with another configuration ({'; '.join(differing)}). "
            "Give another --workdir, or the same configuration to continue that run "
            "(--workdir alone does)."
        )
    return True


def _environment(path: pathlib.Path) -> dict[str, Any]:
    versions = {}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    file, starts = path / "environment.json", []
    with contextlib.suppress(OSError, ValueError, KeyError):
        starts = json.loads(file.read_text())["starts"]
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "devices": [str(device) for device in jax.devices()],
        "device_kind": jax.devices()[0].device_kind,
        "x64": jax.dtypes.canonicalize_dtype("float64") == "float64",
        "cpu_count": os.cpu_count(),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "command": [sys.executable, *sys.argv],
        "starts": [*starts, now],
    }


def _git(*arguments: str) -> str | None:
    folder = pathlib.Path(__file__).parent
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
        return done.stdout.strip()
    return None
