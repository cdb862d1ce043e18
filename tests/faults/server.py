"""Runs subjects in forked processes, which are killed at moments of a schedule.

The process that forks has imported everything and has not started JAX's devices, so
that a run costs what it computes; programs that JAX has compiled once are read from a
folder. A moment is the number of an event: a file that is opened for writing, renamed,
removed or pushed to the disk, a call of training or validation. See `Moment`.
"""

import builtins
import contextlib
import io
import json
import os
import pathlib
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import jax

from opjax.learn.run import stopping
from opjax.learn.run.loop import Loop
from tests.faults import content, subjects

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_OPEN = open
_PATHS = {"os.rename": 1, "os.remove": 0, "os.rmdir": 0, "os.mkdir": 0}
_TERM = {signal.SIGTERM}
_BROKEN = 70  # status of a child with an exception; EX_SOFTWARE
# What an event is about, by a part of its path; the first one counts.
PHASES = {
    "cache/": "data",
    "predicted/": "prediction",
    "pages/": "report",
    "checkpoints": "checkpoint",
    "operator": "operator",
    "metrics.jsonl": "metrics",
    "result.json": "result",
    "config.json": "start",
    "environment.json": "start",
    ".lock": "start",
    "figures": "evaluation",
    "predictions": "evaluation",
    "losses": "evaluation",
    "members": "report",
    "tables": "report",
}


class Moment(NamedTuple):
    """When a process gets a signal.

    Attributes:
      event: so many seconds after this one, the first being 0; None for the start.
      delay: seconds; at zero the event itself does not happen any more.
      number: the signal.
    """

    event: int | None
    delay: float
    number: int = signal.SIGKILL


class Ended(NamedTuple):
    """How a child ended: its status, what it wrote, the phases of its events."""

    status: int
    text: str
    phases: list[str]
    seconds: float


def run(
    name: str,
    root: pathlib.Path,
    given: pathlib.Path,
    moment: Moment | None = None,
    work: Callable[[pathlib.Path, pathlib.Path], None] | None = None,
) -> Ended:
    """Runs a subject in a folder, to its end or to a moment; leaves `content.json`."""
    root.mkdir(parents=True, exist_ok=True)
    reading, writing = os.pipe()
    log, begin = root.with_suffix(".log"), time.monotonic()
    # SIGTERM waits until the child has its handler, however slow the machine is.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _TERM)
    child = os.fork()
    if not child:
        os.close(reading)
        _child(work or subjects.SUBJECTS[name], root, given, moment, writing, log)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(writing)
    try:
        phases = _followed(child, reading, moment)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(reading)
    return Ended(status, log.read_text(), phases, time.monotonic() - begin)


def _followed(child: int, reading: int, moment: Moment | None) -> list[str]:
    """Sends the signal, if it comes from here, and reads the phases of a whole run."""
    begun = b""
    if moment is not None and moment.event is not None and moment.delay:
        begun = os.read(reading, 1)  # a mark; of a child without that event, its answer
    if moment is not None and (moment.event is None or begun == b"!"):
        _send(child, reading, moment)
    return _rest(reading, begun)


def _send(child: int, reading: int, moment: Moment) -> None:
    """Sends the signal after the delay, unless the child has ended."""
    select.select([reading], [], [], moment.delay)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, moment.number)


def _rest(reading: int, begun: bytes) -> list[str]:
    parts = [begun]
    while part := os.read(reading, 2**16):
        parts.append(part)
    text = b"".join(parts).decode().lstrip("!")  # marks of threads
    return json.loads(text) if text else []


def _child(
    work: Callable[[pathlib.Path, pathlib.Path], None],
    root: pathlib.Path,
    given: pathlib.Path,
    moment: Moment | None,
    writing: int,
    log: pathlib.Path,
) -> None:
    status = _BROKEN
    try:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        events = Events(root, moment, writing)
        with stopping.at_once():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TERM)
            with subjects.still(), events.seen():
                work(root, given)
            sys.stdout.flush()
            found = content.of(root, log.read_text())
            root.with_suffix(".json").write_text(json.dumps(found))
            os.write(writing, json.dumps(events.phases).encode())
            signal.pthread_sigmask(signal.SIG_BLOCK, _TERM)  # it has ended
        status = 0
    except stopping.Stopped:
        status = stopping.STATUS
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


class Events:
    """The events of a process in a folder, and what happens at one of them."""

    def __init__(self, root: pathlib.Path, moment: Moment | None, writing: int):
        self.phases: list[str] = []
        self._root, self._moment, self._writing = str(root) + os.sep, moment, writing
        self._on = False

    @contextlib.contextmanager
    def seen(self):
        """Watches; a hook cannot be taken away, the process ends soon."""
        sys.addaudithook(self._audit)
        fsync = os.fsync
        self._on = True
        with contextlib.ExitStack() as stack:
            for method, phase in (("advance", "training"), ("_validate", "validation")):
                stack.enter_context(self._before(Loop, method, phase))
            patched = mock.patch.object(os, "fsync", lambda fd: self._sync(fsync, fd))
            stack.enter_context(patched)
            for owner in (builtins, io):
                stack.enter_context(mock.patch.object(owner, "open", self._open))
            yield
        self._on = False

    def _before(self, owner: Any, name: str, phase: str) -> Any:
        method = getattr(owner, name)

        def called(*given: Any) -> Any:
            self._happens(phase)
            return method(*given)

        return mock.patch.object(owner, name, called)

    def _open(self, file: Any, mode: str = "r", *given: Any, **more: Any) -> Any:
        """Opens a file; that it is open, and empty maybe, is an event as well."""
        found = _OPEN(file, mode, *given, **more)
        if set(mode) & set("wax+"):
            self._about(file)
        return found

    def _sync(self, fsync: Any, descriptor: int) -> None:
        self._about(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def _audit(self, event: str, given: tuple[Any, ...]) -> None:
        if not self._on:
            return
        if event == "open" and given[2] and given[2] & _WRITES:
            self._about(given[0])
        elif event in _PATHS:
            self._about(given[_PATHS[event]])

    def _about(self, path: Any) -> None:
        if isinstance(path, (str, os.PathLike)):
            path = os.fspath(path)
            if isinstance(path, str) and path.startswith(self._root):
                inside = path.removeprefix(self._root)
                known = (phase for part, phase in PHASES.items() if part in inside)
                self._happens(next(known, "other"))

    def _happens(self, phase: str) -> None:
        number = len(self.phases)
        self.phases.append(phase)
        if self._moment is not None and number == self._moment.event:
            if self._moment.delay:
                os.write(self._writing, b"!")
            else:
                os.kill(os.getpid(), self._moment.number)


def prepare(compiled: pathlib.Path) -> None:
    """Lets all processes share what JAX compiles."""
    jax.config.update("jax_compilation_cache_dir", str(compiled))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
