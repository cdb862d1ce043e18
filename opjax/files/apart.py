"""Parsing of untrusted files in a separate process, whose crash does no harm.

Some libraries read beyond their memory if a file is damaged. They run in one process,
`_parse_apart`, which is started at the first request, kept, and replaced if it crashes
or takes too long. Its responses are arrays and JSON values; nothing is unpickled.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opjax.files import _parse_apart, limits
from opjax.files._parse_apart import Message

# Processor time for a file: a constant, and a part that grows with its size.
_SECONDS, _SECONDS_PER_BYTE = 20, 1e-5
# Where many processes share a processor, the clock runs so many times as fast.
_PATIENCE = 10
# Memory for a file: a constant, and a part that grows with its size, which is what an
# image needs whose voxels become cells of eight corners.
_MEMORY, _MEMORY_PER_BYTE = 2**30, 128


def ask(
    operation: str,
    path: Path,
    values: Mapping[str, Any] | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    *,
    max_bytes: int,
    beside: Sequence[Path] = (),
) -> Message:
    """Asks the separate process to perform an operation on a file.

    Args:
      operation: one of the operations of `_parse_apart`.
      path: the file, for error messages.
      values: JSON values that the operation needs.
      arrays: arrays that the operation needs.
      max_bytes: maximum size of all arrays of the response.
      beside: other files that the operation reads; they count for its limits of time
        and memory.

    Returns:
      The response.

    Raises:
      ValueError: if the library rejects the file, crashes, takes too long or needs too
        much memory, or the response is too large.
    """
    size = sum(one.stat().st_size for one in (path, *beside) if one.is_file())
    size += sum(array.nbytes for array in (arrays or {}).values())
    request = {
        "do": operation,
        "path": str(path.absolute()),
        "seconds": _SECONDS + int(_SECONDS_PER_BYTE * size),
        "memory": _MEMORY + _MEMORY_PER_BYTE * size,
    }
    message = Message(request | dict(values or {}), dict(arrays or {}))
    try:
        answer = _PARSER.exchange(message, max_bytes)
    except _parse_apart.TooLargeError as error:
        limits.check_size(path, "its arrays", error.size, max_bytes)
        raise
    except _EndedError as error:
        raise limits.damaged(path, error) from error
    if (reason := answer.values.get("error")) is not None:
        raise limits.damaged(path, reason)
    return answer


class _EndedError(Exception):
    """The process ended, or its answer is none."""


class _Parser:
    """The other process."""

    def __init__(self):
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._leave_to_parent)
        atexit.register(self.stop)

    def exchange(self, request: Message, max_bytes: int) -> Message:
        """Sends a request, and waits for the answer.

        Raises:
          TooLargeError: if the answer is too large.
          _EndedError: if there is no answer.
        """
        with self._lock:
            try:
                return self._exchange(request, max_bytes)
            except BaseException:  # a later answer would be taken for the next one's
                self.stop()
                raise

    def _exchange(self, request: Message, max_bytes: int) -> Message:
        process = self._process
        if process is None or process.poll() is not None:
            process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        seconds = _PATIENCE * request.values["seconds"]
        timer = threading.Timer(seconds, process.kill)
        timer.daemon = True
        timer.start()
        try:
            _parse_apart.send(process.stdin, request)
            answer = _parse_apart.receive(process.stdout, max_bytes)
        except _parse_apart.TooLargeError:
            raise
        except Exception as error:  # an answer may be anything
            raise _EndedError(_reason(process)) from error
        finally:
            timer.cancel()
        if answer is None:
            raise _EndedError(_reason(process))
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        self.stop()
        self._process = subprocess.Popen(
            [sys.executable, "-P", _parse_apart.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Parsing needs no threads, whose stacks would count as memory.
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        return self._process

    def stop(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close(process)

    def _leave_to_parent(self) -> None:
        """Forgets the process in a fork of the one that started it."""
        process, self._process = self._process, None
        self._lock = threading.Lock()
        if process is not None:
            process.returncode = 0  # it is not ours to wait for
            _close(process)


def _close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # what is buffered cannot be sent any more
            if stream is not None:
                stream.close()


def _reason(process: subprocess.Popen[bytes]) -> str:
    """Says how a process ended that has not answered."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1)  # which has closed its output and is about to end
    status = process.poll()
    if status is None:
        return "the process that parses it answers nonsense"
    if status < 0:
        return f"it ends the process that parses it, by {signal.Signals(-status).name}"
    return f"it ends the process that parses it, with status {status}"


_PARSER = _Parser()
