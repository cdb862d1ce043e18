"""SIGTERM and Ctrl-C: a training saves everything it needs to continue, and ends."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Generator

STATUS = 75  # of a program that was stopped; EX_TEMPFAIL, try again


class Stopped(Exception):
    """A training was stopped by a signal; the same call continues from its checkpoint.

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
    """Returns a sentence on whether the same command resumes the stopped run."""
    return f"The same command {'continues' if continues else 'starts anew'}."


@contextlib.contextmanager
def put_off() -> Generator[Callable[[], bool]]:
    """Delays SIGTERM and Ctrl-C inside the context, and reports whether one came.

    A second Ctrl-C raises KeyboardInterrupt. Outside the main thread, which alone
    receives signals, no signal is ever reported.
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
    """Ends the process with `STATUS` on SIGTERM or Ctrl-C inside the context.

    It is used for all work except training: finished results are on disk, so nothing
    has to be saved, and no other library can delay the end.

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
