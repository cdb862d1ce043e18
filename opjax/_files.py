"""Atomic writing of files: written to a temporary name, then renamed.

Files may be damaged or malicious. For any file content, readers return its values or
raise one of `REFUSALS`, with the name of the file: ValueError if it is damaged, too
large, of another format or of the wrong kind; OSError if it cannot be read; and for
checkpoints `checkpoint.CheckpointError`, which is an OSError. Nothing is unpickled, no
file decides what is imported, and a name in a file becomes a path only in file lists,
`.pvd` and `.vtm`, and only below their folder.
"""

import contextlib
import errno
import os
import re
from collections.abc import Generator
from pathlib import Path

OnePath = str | os.PathLike[str]
# What readers raise for files that they do not read, and nothing else.
REFUSALS = (ValueError, OSError)
# What `replacing` calls its temporary files.
_TEMPORARY = re.compile(r"\.(.+)\.\d+\.[0-9a-f]{8}(\.[^.]*)?")
# How file systems say that they cannot be asked to write to the disk.
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


@contextlib.contextmanager
def replacing(path: OnePath) -> Generator[Path]:
    """Yields a temporary path with the same suffix, renamed to `path` at the end.

    Readers see the old or the new file, even after a power failure. Two writers do not
    interfere.

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
        sync(temporary)
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def sync(path: OnePath) -> None:
    """Flushes a file or folder to the disk, if its file system supports it.

    Raises:
      OSError: if it cannot be written to the disk.
    """
    if os.name == "nt":  # wants files open for writing, and no folders
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNABLE:
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(folder: OnePath, *stems: str) -> None:
    """Deletes temporary files of processes that were killed while writing them.

    Call it only if no other process writes to the folder.

    Args:
      folder: folder, which may be missing; its subfolders are not changed.
      *stems: stems of the final files; any if there is none.
    """
    with contextlib.suppress(OSError):
        for path in list(Path(folder).iterdir()):
            match = _TEMPORARY.fullmatch(path.name)
            if match is not None and (not stems or match[1] in stems):
                with contextlib.suppress(OSError):
                    path.unlink()
