"""What programs say on their way."""

import contextlib
import sys


def say(text: str) -> None:
    """Writes a line to the standard error, which may be a file on a full disk.

    What cannot be written there is no reason to stop.
    """
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)
