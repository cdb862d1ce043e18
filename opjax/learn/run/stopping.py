"""SIGTERM and Ctrl-C: a training saves all that it needs to continue, and ends."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator

STATUS = 75  # of a program that was stopped; EX_TEMPFAIL, try again


class Stopped(Exception):
    """A training was told to stop; what it saved is continued by the same call.

    Examples:
      >>> from opjax import learn
      >>> try:
      ...     raise learn.Stopped("a checkpoint is saved")  # as learn.fit, after Ctrl-C
      ... except learn.Stopped as stopped:
      ...     print(stopped)
      a checkpoint is saved
    """


_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def again(continues: bool) -> str:
    """Returns what the same command does: whether it goes on with what was stopped."""
    return f"The same command {'continues' if continues else 'starts anew'}."


@contextlib.contextmanager
def put_off() -> Generator[Callable[[], bool]]:
    """Puts SIGTERM and Ctrl-C off while inside, and tells whether one has come.

    A second Ctrl-C raises KeyboardInterrupt. Outside of the main thread, which gets no
    signals, none ever has come.
    """
    came = threading.Event()

    def note(number: int, _: object) -> None:
        if number == signal.SIGINT and came.is_set():
            raise KeyboardInterrupt
        came.set()

    with _handled(note):
        yield came.is_set


@contextlib.contextmanager
def at_once(*, continues: bool = True) -> Generator[None]:
    """Ends the process with `STATUS` when SIGTERM or Ctrl-C comes while inside.

    For all that a program does but training: what is complete is on the disk, so there
    is nothing to save, and nothing that another library does can hold the end up.

    Args:
      continues: see `again`.
    """

    def end(*_: object) -> None:
        with contextlib.suppress(OSError):
            os.write(2, f"Stopped. {again(continues)}\n".encode())
        os._exit(STATUS)

    with _handled(end):
        yield


@contextlib.contextmanager
def _handled(handler: Callable[[int, object], None]) -> Generator[None]:
    """Handles signals while inside, in the main thread, which alone gets them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former or signal.SIG_DFL)
