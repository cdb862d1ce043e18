"""Output of progress messages."""

import contextlib
import sys


def say(text: str) -> None:
    """Writes a line to standard error.

    Write errors, such as a full disk, are ignored.
    """
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
