"""Writes the rows of `metrics.jsonl`, one per validation, and of TensorBoard."""

import contextlib
import errno
import json
import os
import pathlib
import warnings
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from opjax import _files
from opjax.learn.json_files import to_json, writing
from opjax.learn.run import board, hosts
from opjax.learn.run.folder import RunDirectory

_NAME = "metrics.jsonl"
Row = dict[str, Any]  # numbers by name, "step" among them
_BLOCK = 2**20  # bytes that are read at once


class MetricsWriter:
    """Appends rows to `metrics.jsonl`, and to TensorBoard if asked.

    If a run resumes, rows after its checkpoint are dropped, so that the file is the
    same as after an uninterrupted run. If the disk is full, rows wait for the next
    write, with a warning, and the training continues. With several processes, the first
    one writes, and the others only count.

    Attributes:
      rows: number of rows in the file.
      waiting: rows that are not yet written.
    """

    def __init__(
        self,
        run: RunDirectory,
        *,
        rows: int = 0,
        waiting: Sequence[Row] = (),
        tensorboard: bool = False,
    ):
        self.rows, self.waiting = rows, list(waiting)
        self._path = run.path / _NAME
        self._file: IO[bytes] | None = None
        self._board: board.Board | None = None
        if not hosts.first():
            return
        if tensorboard:
            board.require()
        with writing(self._path):
            self._file = open(self._path, "ab+", buffering=0)  # noqa: SIM115
            self.rows, self._size = _found(self._file, rows)
            self._file.truncate(self._size)
            _files.sync(run.path)
        if self.rows < rows:
            _warn(f"{self._path} has {self.rows} rows of {rows}; the others are gone.")
        if tensorboard:
            step = _last(self._file, self._size).get("step", -1) + 1
            # Two files may be of the same second.
            self._board = board.Board(run.path, step=step, suffix=f".{self.rows}")

    def write(self, row: Row) -> None:
        """Appends one row, which must contain "step", and flushes it to the disk."""
        if self._file is None:
            self.rows += 1
            return
        row = to_json(row)
        self.waiting.append(row)
        self._flush()
        if self._board is not None:
            self._board.add(row)

    def _flush(self) -> None:
        """Writes the rows that wait, in one piece or not at all."""
        assert self._file is not None
        lines = [json.dumps(row, allow_nan=False) + "\n" for row in self.waiting]
        content = "".join(lines).encode()
        try:
            if self._file.write(content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
            if len(self.waiting) == 1:
                _warn(
                    f"Cannot write {self._path}: {error.strerror}. Rows wait until it "
                    "can be written; training continues."
                )
            return
        self._size += len(content)
        self.rows += len(self.waiting)
        self.waiting.clear()

    def close(self) -> None:
        """Closes the files; reports the number of rows that could not be written."""
        if self._file is not None:
            if self.waiting:
                self._flush()
            if self.waiting:
                _warn(f"{self._path} lacks its last {len(self.waiting)} rows.")
            self._file.close()
        if self._board is not None:
            self._board.close()


def read_metrics(workdir: str | os.PathLike[str]) -> list[Row]:
    """Reads the complete rows of a run's `metrics.jsonl`.

    Raises:
      ValueError: if one is damaged.
    """
    path = pathlib.Path(workdir) / _NAME
    content = path.read_bytes() if path.exists() else b""
    lines = content[: content.rfind(b"\n") + 1].splitlines()
    try:
        return json.loads(b"[" + b",".join(lines) + b"]")
    except ValueError:
        for number, line in enumerate(lines, start=1):
            try:
                json.loads(line)
            except ValueError as error:
                raise ValueError(
                    f"{path} is damaged in line {number} ({error}). Restore the file "
                    "from a copy, or correct the line."
                ) from error
        raise


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=3)


def _found(file: IO[bytes], rows: int) -> tuple[int, int]:
    """The number of complete lines, at most `rows`, and where the last of them ends."""
    count = end = 0
    file.seek(0)
    while count < rows and (block := file.read(_BLOCK)):
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        ends = ends[: rows - count] + 1
        if ends.size:
            count, end = count + ends.size, file.tell() - len(block) + int(ends[-1])
    return count, end


def _last(file: IO[bytes], size: int) -> dict[str, Any]:
    """The row that ends there."""
    file.seek(max(size - _BLOCK, 0))
    lines = file.read(min(size, _BLOCK)).splitlines()
    return json.loads(lines[-1]) if lines else {}
