"""Files that are complete or not there: written beside their place, then renamed.

What opjax reads may be damaged, or made to do harm. Whatever a file holds, readers
return what it says or raise one of `REFUSALS`, with its name: ValueError if it is
damaged, too large, of another format or not what was asked for; OSError if it cannot be
read, and of checkpoints, `opjax.checkpoint.CheckpointError`, which is one. Nothing is
unpickled, no name in a file becomes a path, and no file chooses what is imported.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

# What readers raise for files that they do not read, and nothing else.
REFUSALS = (ValueError, OSError)


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
