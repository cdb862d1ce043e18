"""Fingerprints of data sets, which detect changes between the starts of a run."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from opjax.files import cases, formats, frames

# Larger files are known by their beginning, their middle and their end.
_WHOLE = 2**20
_PART = 2**16
_MOST = 20_000  # files that are kept one by one
_SHOWN = 3


class Fingerprint(NamedTuple):
    """Names, sizes and a digest of the files of a data set.

    Attributes:
      files: number of files.
      num_bytes: total size.
      digest: digest of the names, sizes and contents of all files, 16 characters.
      each: digest of every file, 8 characters; empty if there are very many files.
    """

    files: int
    num_bytes: int
    digest: str
    each: dict[str, str]

    def __str__(self) -> str:
        return f"{self.files} files of {self.num_bytes} bytes ({self.digest})"


def fingerprint(
    paths: Sequence[str], *, stacked: bool = False, series: bool = False
) -> Fingerprint:
    """Computes the fingerprint of all files of a data set.

    Args:
      paths: folders, files and patterns, as for `find`.
      stacked: as for `find`.
      series: whether the files are series, as for `read_series`.

    Raises:
      OSError: if a file is missing or cannot be read.
      ValueError: as from `find` and `frames.find_cases`.
    """
    roots = frames.find_cases(paths) if series else formats.find(paths, stacked=stacked)
    every, sizes, each = hashlib.blake2b(digest_size=8), 0, dict[str, str]()
    listed = sorted(_parts(roots))
    for file in listed:
        size, content = file.stat().st_size, _digest(file)
        every.update(f"{file}\0{size}\0{content}\n".encode())
        sizes += size
        if len(listed) <= _MOST:
            each[str(file)] = content
    return Fingerprint(len(listed), sizes, every.hexdigest(), each)


def _parts(found: Iterable[Path]) -> set[Path]:
    """All files of data sets: those of folders, those that lists name, and tables."""
    parts: set[Path] = set()
    for file in found:
        table = cases.table_of(file)
        parts |= set() if table is None else {table}
        parts |= {file} if file.is_file() else set()
        beside = file.with_suffix("") if file.is_file() else file
        if beside.is_dir():
            parts |= {inner for inner in beside.rglob("*") if inner.is_file()}
        if file.suffix.lower() in frames.LISTS:
            parts |= {frame.file for frame in frames.listed(file)}
    return parts


def _digest(file: Path) -> str:
    """Eight letters that change with a file."""
    hashed, size = hashlib.blake2b(digest_size=4), file.stat().st_size
    with open(file, "rb") as stream:
        if size <= _WHOLE:
            hashed.update(stream.read())
        else:
            for place in (0, size // 2, size - _PART):
                stream.seek(place)
                hashed.update(stream.read(_PART))
    hashed.update(str(size).encode())
    return hashed.hexdigest()


def difference(before: Fingerprint, now: Fingerprint) -> str:
    """Reports which files were added, removed or changed; empty if unknown."""
    if not before.each or not now.each:
        return ""
    added = sorted(now.each.keys() - before.each.keys())
    removed = sorted(before.each.keys() - now.each.keys())
    common = before.each.keys() & now.each.keys()
    changed = sorted(k for k in common if before.each[k] != now.each[k])
    words = [
        f"{len(names)} {what}, such as {', '.join(names[:_SHOWN])}"
        for names, what in (
            (added, "added"),
            (removed, "removed"),
            (changed, "changed"),
        )
        if names
    ]
    return "; ".join(words)
