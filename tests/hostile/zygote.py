"""A process that parses exported operators in forks of it, as `opjax.export` would.

What it saves is the start of an interpreter with JAX, half a second for every file: the
same functions parse under the same limits, and what becomes of them is judged alike.
"""

import itertools
import json
import os
import select
import signal
import struct
import time

from opjax import _export_apart, export

_SECONDS, _MEMORY = export._SECONDS, export._MEMORY
# Files one of which is parsed as it is outside of tests.
_EVERY = 25
_PATIENCE = 20  # seconds on the clock, before a process of its own has to tell


def install() -> None:
    """Lets forks parse operators from now on, but for every 25th."""
    forked, real, calls = Zygote().parse, export._parsed_apart, itertools.count()

    def parse(content: bytes) -> str:
        if not next(calls) % _EVERY:
            return real(content)
        reason = forked(content)
        # Forks may wait for threads that only their parent has.
        return real(content) if "SIGKILL" in reason else reason

    export._parsed_apart = parse


class Zygote:
    """Forked when there is JAX and no thread yet."""

    def __init__(self):
        from jax._src.export import serialization  # noqa: F401
        from jax._src.interpreters import mlir  # noqa: F401

        asked, self._ask = os.pipe()
        self._answers, answer = os.pipe()
        if not os.fork():
            os.close(self._ask)
            try:
                _serve(asked, answer)
            finally:
                os._exit(0)
        os.close(asked)
        os.close(answer)

    def parse(self, content: bytes) -> str:
        """Says why an operator was not parsed, or nothing."""
        _write(self._ask, content)
        status, said = json.loads(_read(self._answers) or b'[1, ""]')
        return export._reason(status, said.encode("latin-1"))


def _serve(asked: int, answer: int) -> None:
    """Parses what it is asked, until nobody asks any more."""
    while (content := _read(asked)) is not None:
        source, sink = os.pipe()
        child = os.fork()
        if not child:
            _parse(content, sink)
        os.close(sink)
        status, said = _ended(child, source)
        os.close(source)
        _write(answer, json.dumps([status, said.decode("latin-1")]).encode())


def _parse(content: bytes, sink: int) -> None:
    from jax._src.interpreters import mlir

    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        pool = mlir.ir.ThreadPool()  # pyright: ignore
        mlir.global_thread_pool = pool  # a fork has not the threads of its parent
        _export_apart.limit(_SECONDS, _MEMORY)
        os.write(sink, _export_apart.parse(content).encode() + b"\n")
        status = 0
    finally:
        os._exit(status)


def _ended(child: int, source: int) -> tuple[int, bytes]:
    """What a process printed, and how it ended; it is killed if that takes long."""
    said, deadline = b"", time.monotonic() + _PATIENCE
    while True:
        wait = max(deadline - time.monotonic(), 0)
        if not select.select([source], [], [], wait)[0]:
            os.kill(child, signal.SIGKILL)
        part = os.read(source, 2**16)
        if not part:
            break
        said += part
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def _write(pipe: int, data: bytes) -> None:
    rest = memoryview(struct.pack("<Q", len(data)) + data)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _read(pipe: int) -> bytes | None:
    head = _exactly(pipe, 8)
    return None if head is None else _exactly(pipe, struct.unpack("<Q", head)[0])


def _exactly(pipe: int, size: int) -> bytes | None:
    found = b""
    while len(found) < size:
        part = os.read(pipe, size - len(found))
        if not part:
            return None
        found += part
    return found
