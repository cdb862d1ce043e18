"""Limits on the sizes of files, and the error for a damaged file."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path

# A file may claim to hold at most this many bytes, or this many times its own size.
EXPANDED_BYTES = 2**28
EXPANSION = 256


def limit(path: Path) -> int:
    """Returns the maximum plausible size of the arrays of a file, in bytes.

    Compression rarely reduces arrays of numbers by more than a small factor. A file
    that declares a much higher ratio is probably made to exhaust the memory.
    """
    return max(EXPANDED_BYTES, EXPANSION * path.stat().st_size)


def check_size(path: Path, what: str, size: int, max_bytes: int) -> None:
    """Checks the declared size of a file before anything is allocated.

    Args:
      path: the file.
      what: description of the declared arrays, in the plural, for the message.
      size: their size in bytes.
      max_bytes: maximum size.

    Raises:
      ValueError: if the size exceeds the limit.
    """
    if size > max_bytes:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) declares that {what} take "
            f"{size} bytes, above the limit of {max_bytes}: it is damaged, or too "
            "large for this machine. If you trust it, raise max_bytes."
        )


# How files begin that stand for others, and what brings those.
_POINTERS = {
    b"version https://git-lfs.github.com/spec/": "Git LFS: run git lfs pull",
    b"/annex/objects/": "git-annex: run git annex get .",
}


def check_link(path: Path) -> None:
    """Raises FileNotFoundError for a broken link, with the name of its target."""
    if path.is_symlink() and not path.exists():
        target = os.readlink(path)
        note = "restore that, or remove the link"
        if ".git/annex/" in target:
            note = "it is of git-annex: run git annex get ."
        raise FileNotFoundError(
            f"{path} is a link to {target}, which does not exist; {note}."
        )


def pointer(path: Path) -> str:
    """Kind of pointer to the real content of a file; empty for other files."""
    try:
        with open(path, "rb") as file:
            start = file.read(64)
    except OSError:
        return ""
    return next((what for k, what in _POINTERS.items() if start.startswith(k)), "")


def is_hdf5(path: Path) -> bool:
    """Whether a file is HDF5, including MATLAB 7.3 files with a 512-byte header."""
    with open(path, "rb") as file:
        start = file.read(520)
    signature = b"\x89HDF\r\n\x1a\n"
    return start.startswith((b"MATLAB 7.3", signature)) or start[512:] == signature


def head(path: Path) -> bytes:
    """The first bytes of a file; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(2**16)
    except OSError:
        return b""


def damaged(path: Path, error: object) -> ValueError:
    """Returns the error for a file that cannot be read."""
    if what := pointer(path):
        return ValueError(f"{path} has no content, it is a pointer of {what}.")
    reason = str(error).strip().splitlines()
    return ValueError(
        f"Cannot read {path} ({path.stat().st_size} bytes): "
        f"{reason[0][:300] if reason else type(error).__name__}. It seems damaged, "
        "incomplete or in another format; write it again."
    )


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
    """Converts every error of a library to the ValueError for a damaged file."""
    try:
        yield
    except Exception as error:  # a damaged file can raise any kind of error
        raise damaged(path, error) from error
