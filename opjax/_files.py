"""Files that are complete or not there: written beside their place, then renamed."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[Path]:
    """Gives a temporary path, of the same suffix, that becomes `path` at the end.

    Readers see the old file or the new one, and two writers do not meet.

    Args:
      path: file to write, in an existing folder.

    Raises:
      OSError: if the file cannot be written.
    """
    path = Path(path)
    name = f".{path.stem}.{os.getpid()}.{os.urandom(4).hex()}{path.suffix}"
    temporary = path.with_name(name)
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
