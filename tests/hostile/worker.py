"""Reads broken files in forked processes with limits, and sees what they touch.

    python -m tests.hostile.worker '{"seed": 0, "jobs": [["npz", 0, 100]]}'

A line of JSON for every file: `format`, `index`, `outcome` (`ok`, `refused` or
`escape`), `reason`, `seconds` and `peak`, bytes that memory grew by meanwhile.
"""

import contextlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from opjax.files import limits
from tests.hostile import mutations, readers

SECONDS = 10.0  # of a processor, for a file
_HANGS = 240.0  # on the clock, where many share a processor
PEAK = 2**28  # bytes that memory may grow by for a file
_SPACE = 2**30  # address space of a process, beside what it began with
_SPACE_JAX = 2**33  # its threads and compilers reserve much that they never touch
_EXPANDED = 2**24  # see `limits.limit`
# What happens while a file is read, and must not. Names of audit events of Python.
_EVENTS = ("pickle.find_class", "socket.connect", "socket.bind", "subprocess.Popen")
_EVENTS += ("os.system", "os.exec", "os.posix_spawn", "os.fork", "os.symlink")
_WRITES = ("os.mkdir", "os.rename", "os.remove", "os.chmod", "shutil.copyfile")


_PARSERS = ("_export_apart.py", "_parse_apart.py")


class _Watch:
    """Notes what Python is asked to do while it is on."""

    def __init__(self, folder: Path):
        self.on, self.seen, self._folder = False, [], str(folder)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, given: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "subprocess.Popen" and any(
            str(word).endswith(_PARSERS) for word in given[1]
        ):
            return  # a process that parses a file instead of this one
        if event in _EVENTS or (event == "exec" and self._foreign(given[0])):
            self.seen.append(f"{event} {str(given)[:100]}")
        elif event == "open" and self._writes(*given):
            self.seen.append(f"writes {given[0]}")
        elif event in _WRITES and not self._inside(given[-1 if "copy" in event else 0]):
            self.seen.append(f"{event} {str(given)[:100]}")

    def _foreign(self, code: Any) -> bool:
        """Whether code is none of an installed module, such as one that is imported."""
        name = getattr(code, "co_filename", "")
        return not name.endswith(".py") and not name.startswith("<frozen")

    def _writes(self, path: Any, mode: Any, flags: Any) -> bool:
        writing = bool(set(mode or "") & set("wax+"))
        flagged = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        return bool(writing or flagged) and not self._inside(path)

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return True
        return os.path.realpath(os.fsdecode(path)).startswith((self._folder, "/dev/"))


def _memory(name: str) -> int:
    """A number of `/proc/self/status`, in bytes."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise ValueError(name)


def _broken(chosen: readers.Format, originals: list[bytes], key: list[int]) -> bytes:
    """The file of an index."""
    rng = np.random.default_rng(key)
    if chosen.crafted is not None and rng.random() < 0.15:
        return chosen.crafted(rng)
    original = mutations.pick(rng, originals)
    data = mutations.choose(original, rng, chosen.mutations)
    if chosen.seal is not None and rng.random() < 0.7:
        data = chosen.seal(data, original)
    return data


class Reader:
    """Reads the files of a format, one after the other.

    Args:
      name: of the format.
      seed: of all files.
      folder: an empty one.
    """

    def __init__(self, name: str, seed: int, folder: Path):
        self._format = readers.FORMATS[name]
        self._key = [seed, zlib.crc32(name.encode())]
        self.path, self._watch = folder / self._format.name, _Watch(folder)
        self._empty = folder / "here"
        self._empty.mkdir()
        os.chdir(self._empty)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._format.prepare is not None:
            self._format.prepare(self.path)
            self._originals = [self.path.read_bytes()]
        else:
            self._originals = [self._format.original(seed) for seed in range(12)]
        for original in self._originals[:4]:  # imports what is imported late
            self.path.write_bytes(original)
            for read in self._format.read:
                with contextlib.suppress(*readers.REFUSALS):
                    read(self.path)
        self._before = self._files()

    def _files(self) -> set[str]:
        found = self.path.parent, self._empty, self._empty.parent
        return {entry.path for place in found for entry in os.scandir(place)}

    def data(self, index: int) -> bytes:
        """The file of an index."""
        return _broken(self._format, self._originals, [*self._key, index])

    def read(self, index: int) -> dict[str, Any]:
        """Reads the file, which is that of an index."""
        read = self._format.read[index % len(self._format.read)]
        Path("/proc/self/clear_refs").write_text("5")
        before, begin, reason = _memory("VmRSS"), time.process_time(), ""
        outcome, self._watch.on = "ok", True
        try:
            read(self.path)
        except BaseException as error:
            self._watch.on, outcome = False, "refused"
            reason = readers.verdict(error, self.path)
        self._watch.on = False
        seconds, peak = time.process_time() - begin, _memory("VmHWM") - before
        if peak > PEAK:
            reason = f"memory grew by {peak} bytes"
        if seconds > SECONDS:
            reason = f"takes {seconds:.0f} s"
        reason = " ".join([reason, *self._watch.seen, *(self._files() - self._before)])
        self._watch.seen.clear()
        if reason.strip():
            outcome = "escape"
        row = {"index": index, "outcome": outcome, "reason": reason.strip()}
        return row | {"seconds": seconds, "peak": max(peak, 0)}


def _child(pipe: int, job: list[Any], seed: int, deadline: float, folder: Path) -> None:
    """Reads files until the deadline, and writes a line before and after each."""
    name, first, last = job
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    warnings.simplefilter("ignore")
    limits.EXPANDED_BYTES = _EXPANDED
    reader = Reader(name, seed, folder)
    space = _SPACE_JAX if name in ("checkpoint", "exported") else _SPACE
    space += _memory("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.dup(pipe), "w", buffering=1) as file:
        for index in range(first, last):
            if time.monotonic() > deadline:
                break
            reader.path.write_bytes(reader.data(index))
            file.write(json.dumps({"begins": index}) + "\n")
            file.write(json.dumps(reader.read(index)) + "\n")
        file.write(json.dumps({"done": True}) + "\n")


def _supervised(job: list[Any], seed: int, deadline: float) -> Iterator[dict[str, Any]]:
    """Forks a process for a job, and another one behind each file that ends it."""
    name, first, last = job
    while first < last and time.monotonic() < deadline:
        begun, ended = None, ""
        with tempfile.TemporaryDirectory(prefix="opjax-hostile-") as folder:
            source, sink = os.pipe()
            child = os.fork()
            if not child:
                os.close(source)
                status = 1
                try:
                    root = Path(folder).resolve()
                    _child(sink, [name, first, last], seed, deadline, root)
                    status = 0
                except BaseException as error:
                    os.write(sink, json.dumps({"broken": repr(error)}).encode() + b"\n")
                finally:
                    os._exit(status)
            os.close(sink)
            for line in _lines(source):
                if line is None:
                    os.kill(child, signal.SIGKILL)
                    ended = "hangs"
                elif "begins" in line:
                    begun = line["begins"]
                elif "broken" in line:
                    raise RuntimeError(f"the reader of {name}: {line['broken']}")
                elif "done" in line:
                    first = last
                else:
                    begun, first = None, line["index"] + 1
                    yield line | {"format": name}
            _, status = os.waitpid(child, 0)
        if first == last:
            return
        if begun is None:
            raise RuntimeError(f"the reader of {name} ended with {status} at {first}")
        ended = ended or f"ends the process, status {status}"
        row = {"format": name, "index": begun, "outcome": "escape", "reason": ended}
        yield row | {"seconds": _HANGS if ended == "hangs" else 0.0, "peak": 0}
        first = begun + 1


def _lines(source: int) -> Iterator[dict[str, Any] | None]:
    """Lines as they come; None, once, if none comes for too long."""
    rest, first = b"", True
    with open(source, "rb", buffering=0) as file:
        while True:
            wait = 5 * _HANGS if first else _HANGS
            if not select.select([file], [], [], wait)[0]:
                yield None
                return
            part = file.read(2**16)
            if not part:
                return
            first = False
            *complete, rest = (rest + part).split(b"\n")
            yield from map(json.loads, complete)


def main() -> None:
    """Runs the jobs of the command line."""
    given = json.loads(sys.argv[1])
    names = {name for name, *_ in given["jobs"]}
    if "exported" in names:
        from tests.hostile import zygote

        zygote.install()  # before there are threads
    # What forked processes would otherwise import one by one.
    import h5py  # noqa: F401
    import scipy.io  # noqa: F401

    if names & {"vtu", "vtp", "vtk", "polyhedra"}:
        import pyvista  # noqa: F401
    deadline = given.get("deadline", float("inf"))
    for job in given["jobs"]:
        for row in _supervised(job, given["seed"], deadline):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
