"""The folder of a run: its lock, configuration, environment and result."""

import contextlib
import dataclasses
import datetime
import importlib.metadata
import json
import logging
import os
import pathlib
import platform
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from typing import IO, Any, NamedTuple, TypeVar

import jax

from opjax import _formats
from opjax._files import remove_leftovers
from opjax._trees import Json
from opjax.files.fingerprints import Fingerprint, difference
from opjax.files.formats import OnePath
from opjax.learn.config import fields, renamed
from opjax.learn.json_files import read_object, to_json, tuples, write_json, writing
from opjax.learn.messages import say
from opjax.learn.run import hosts

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second process out
    fcntl = None

_LOGGER = logging.getLogger(__name__)
_Config = TypeVar("_Config", bound=fields.Configuration)
_PACKAGES = ("opjax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class RunDirectory(NamedTuple):
    """An open, locked run folder; with several processes, that of the first one."""

    path: pathlib.Path
    config: dict[str, Any]  # as JSON values
    resumed: bool  # whether it held a run of this configuration already

    @property
    def checkpoints(self) -> pathlib.Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"


# Of the sets of a run, by name: which files they are.
DataFiles = Mapping[str, Fingerprint]


@contextlib.contextmanager
def open_run(
    workdir: OnePath,
    config: fields.Configuration,
    *,
    command: str = "",
    data: Callable[[], DataFiles] | None = None,
) -> Generator[RunDirectory]:
    """Creates or reopens the folder of a run and holds its lock.

    If the folder contains a run of the same configuration, the run is continued. In the
    folder of a study, models and seeds may be added or removed: finished members are
    kept, and the result is computed again. `command` is the command that repeats the
    run. `data()` returns the training files; they must not have changed since the run
    began, unless it is finished.

    With several processes, only the first one opens the folder. The others wait, do not
    use it, and need no access to it.

    Raises:
      OSError: if it cannot be written.
      RuntimeError: if another run uses the folder, or the first process cannot open it.
      ValueError: if it contains another configuration, files have changed since the run
        began, or the configurations of the processes differ.
    """
    path = pathlib.Path(workdir).absolute()
    values = to_json(dataclasses.asdict(config))
    hosts.require_same("their configuration", values)
    with contextlib.ExitStack() as stack:
        opened = _opened(path, config, values, command, data)
        resumed = hosts.tell(lambda: stack.enter_context(opened))
        yield RunDirectory(path, values, resumed)


@contextlib.contextmanager
def _opened(
    path: pathlib.Path,
    config: fields.Configuration,
    values: Json,
    command: str,
    data: Callable[[], DataFiles] | None,
) -> Generator[bool]:
    """Holds the lock of a folder; tells whether it held this run already."""
    fresh = not path.exists()
    try:
        path.mkdir(parents=True, exist_ok=True)
        # Without a buffer nothing is left to be written when it is closed.
        lock = open(path / ".lock", "ab+", buffering=0)  # noqa: SIM115
    except OSError as error:
        raise OSError(
            f"Cannot write to the run folder {path}: {error.strerror or error}. Make "
            "it writable or use another --workdir."
        ) from error
    with lock:
        _take(lock, path)
        for folder in (path, path / "figures"):
            remove_leftovers(folder)
        resumed = _begun(path) and (path / "config.json").exists()
        others = resumed and _match(path, config, values)
        finished = (path / "result.json").exists() and not others
        if data is not None and not finished:
            _match_data(path, data(), begun=resumed)
        if others:  # finished members stay, the result is made anew
            (path / "result.json").unlink(missing_ok=True)
        written = {"format": _formats.CONFIGURATION, **values}
        write_json(path / "config.json", written)
        write_json(path / "environment.json", environment(path, command))
        try:
            yield resumed
        except BaseException:
            if fresh and not _begun(path):
                _remove(path)
            raise


def _remove(path: pathlib.Path) -> None:
    """Removes a folder that a run has made and left before it trained."""
    for name in ("config.json", "data.json", "environment.json", ".lock"):
        (path / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # it holds something else
        path.rmdir()


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
                f"(kill {owner}), or use another --workdir."
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


def _match_data(path: pathlib.Path, now: DataFiles, *, begun: bool) -> None:
    """Raises ValueError if files are not those that a run began with; or keeps them."""
    file = path / "data.json"
    if begun and file.exists():
        try:
            stored = {k: Fingerprint(**v) for k, v in read_object(file).items()}
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{path} has a damaged data.json ({error}), which lists the training "
                "data. Restore it from a copy, or use another --workdir."
            ) from error
        for name in now:
            if name in stored and stored[name].digest != now[name].digest:
                changes = difference(stored[name], now[name])
                raise ValueError(
                    f"{path} contains a run on other files of --{name}: "
                    f"{stored[name]} there, {now[name]} "
                    f"now{f', {changes}' if changes else ''}. Use another "
                    "--workdir, or restore the files to continue that run."
                )
    write_json(file, {name: fingerprint._asdict() for name, fingerprint in now.items()})


def _match(path: pathlib.Path, config: fields.Configuration, now: Json) -> bool:
    """Raises ValueError for another configuration; tells whether members differ."""
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
        way = ""
        if "init_from" in now and (path / "result.json").exists():
            way = f" Or train its operator further: --init_from={path} --workdir=NEW."
        raise ValueError(
            f"{path} contains a run with another configuration "
            f"({'; '.join(refused)}). Use another --workdir, or pass the same "
            f"configuration or only --workdir to continue that run.{way}"
        )
    return bool(differing)


def read_config(workdir: OnePath, cls: type[_Config]) -> _Config | None:
    """Reads the configuration of a run, which `--workdir` alone continues.

    Fields that an earlier version lacked get the value that it used. Returns None if
    the folder has no configuration. Raises ValueError if it is damaged, has unknown
    fields, or was written by a later opjax.
    """
    path = pathlib.Path(workdir)
    if not (path / "config.json").exists():
        return None
    stored = _stored(path, cls)
    unknown = stored.keys() - {field.name for field in dataclasses.fields(cls)}  # pyright: ignore
    if unknown:
        raise ValueError(
            f"{path} contains a run of another program or version: its config.json "
            f"has the unknown fields {sorted(unknown)}. Continue it with the "
            "program that started it, or use another --workdir."
        )
    values = {name: tuples(value) for name, value in stored.items()}
    try:
        fields.check_types(cls, values)
        return cls(**values)
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has an invalid config.json: {error}") from error


def _stored(path: pathlib.Path, cls: type[fields.Configuration]) -> dict[str, Any]:
    """The JSON values of `config.json`; of absent fields those of earlier versions."""
    try:
        values = read_object(path / "config.json")
    except ValueError as error:
        raise ValueError(
            f"{path} has a damaged config.json ({error}). Restore it from a copy, "
            "delete it if you do not want to continue the run, or use another "
            "--workdir."
        ) from error
    version = values.pop("format", 0)
    what = "configurations"
    _formats.check(path / "config.json", version, _formats.CONFIGURATION, what=what)
    names = [field.name for field in dataclasses.fields(cls)]
    values = renamed.current(values, names)
    defaults = {
        field.name: to_json(field.metadata.get("before", field.default))
        for field in dataclasses.fields(cls)
        if field.default is not dataclasses.MISSING
    }
    return defaults | values


def run_once(
    workdir: OnePath,
    config: fields.Configuration,
    work: Callable[[RunDirectory], dict[str, Any]],
    *,
    command: str = "",
    data: Callable[[], DataFiles] | None = None,
) -> dict[str, Any]:
    """Runs a program in float32 in its folder, or reads the result of a finished run.

    Arguments are those of `open_run`; `work` continues from the content of the folder.
    """
    opened = open_run(workdir, config, command=command, data=data)
    with jax.enable_x64(False), opened as directory:
        result = hosts.tell(lambda: _result(directory.path))
        if result is not None:
            if hosts.first():
                say(f"{directory.path} contains a finished run.")
            return result
        result = work(directory)
        file = directory.path / "result.json"
        hosts.tell(lambda: write_json(file, result))
        return hosts.tell(lambda: json.loads(file.read_text()))


def _result(path: pathlib.Path) -> dict[str, Any] | None:
    """The result of a finished run; None if there is none that can be read."""
    with contextlib.suppress(FileNotFoundError):
        try:
            return read_object(path / "result.json")
        except ValueError as error:
            say(f"{path} has a damaged result.json, which is computed again: {error}")
    return None


def provenance(folder: pathlib.Path, *, seconds: float) -> str:
    """Returns the content of a folder's `environment.json` as a Markdown list."""
    environment = json.loads((folder / "environment.json").read_text())
    source = f"opjax {environment['packages'].get('opjax', 'of unknown version')}"
    if environment["git_commit"]:
        modified = " with uncommitted changes" if environment["git_modified"] else ""
        source = f"commit {environment['git_commit']}{modified}"
    packages = ", ".join(
        f"{k} {environment['packages'][k]}" for k in ("jax", "flax", "optax")
    )
    processor = ""  # of runs that did not write it down
    if "processor" in environment:
        processor = f" of {environment['processor']}"
    return (
        f"- command: `{environment['command']}`\n"
        f"- {source}, {environment['starts'][-1][:10]}\n"
        f"- {environment['cpu_count']} cores{processor}, "
        f"{environment['device_kind']}; {environment['platform']}\n"
        f"- Python {environment['python']}, {packages}\n"
        f"- {seconds:.0f} s in total, including compilation (last process only, if the "
        f"run was resumed)\n"
    )


def environment(path: pathlib.Path, command: str) -> dict[str, Any]:
    """The software and hardware of a run; earlier starts in the folder are kept."""
    versions, starts = {}, []
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    with contextlib.suppress(OSError, ValueError, KeyError):
        starts = json.loads((path / "environment.json").read_text())["starts"]
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": versions,
        "devices": [str(device) for device in jax.devices()],
        "device_kind": jax.devices()[0].device_kind,
        "processes": hosts.count(),
        "x64": jax.dtypes.canonicalize_dtype("float64") == "float64",
        "cpu_count": os.cpu_count(),
        "processor": processor(),
        "git_commit": _git("rev-parse", "HEAD"),
        "git_modified": bool(_git("status", "--porcelain", "--untracked-files=no")),
        "command": command or " ".join(sys.argv),
        "starts": [*starts, now],
    }


def processor() -> str:
    """The name of the processor, from Linux if possible, otherwise from Python."""
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    """What git says of this package, if it is a clone.

    An installed package may be inside of a user's own clone, which does not count.
    """
    command = ["git", "-C", str(pathlib.Path(__file__).parent)]

    def said(*arguments: str) -> str:
        return subprocess.check_output(
            [*command, *arguments], stderr=subprocess.DEVNULL, text=True, timeout=10
        ).strip()

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said("ls-files", "--error-unmatch", pathlib.Path(__file__).name)
        return said(*arguments)
    return None
