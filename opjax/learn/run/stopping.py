"""SIGTERM: a training saves all that it needs to continue, and ends."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator

STATUS = 75  # of a program that was stopped; EX_TEMPFAIL, try again


class Stopped(Exception):
    """A training was told to stop; what it saved is continued by the same call."""


@contextlib.contextmanager
def put_off() -> Generator[Callable[[], bool]]:
    """Puts SIGTERM off while inside, and tells whether it has come.

    Outside of the main thread, which gets no signals, it never has.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    came = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: came.set())
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextlib.contextmanager
def at_once() -> Generator[None]:
    """Ends the process with `STATUS` when SIGTERM comes while inside.

    For all that a program does but training: what is complete is on the disk, so there
    is nothing to save, and nothing that another library does can hold the end up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(2, b"Stopped. The same command continues.\n")
        os._exit(STATUS)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
