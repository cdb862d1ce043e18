"""Where features of all points are kept between passes: in memory or on disk."""

import os
import shutil
import tempfile
from types import TracebackType
from typing import Any

import numpy as np


class Storage:
    """Arrays of chunks in numbered slots, in memory or in a file without a name.

    A file is read and written, not mapped: pages of a mapped file count as memory of
    the process. It disappears with the process.

    Args:
      slots: how many arrays are kept of a chunk.
      num_chunks: how many chunks there are.
      shape: of an array.
      dtype: of an array.
      folder: for a file on disk; None for memory.

    Raises:
      OSError: if the folder cannot be written or has not enough space.
    """

    def __init__(
        self, slots: int, num_chunks: int, shape: Any, dtype: Any, folder: Any = None
    ):
        self._shape, self._dtype = tuple(shape), np.dtype(dtype)
        self._num_chunks, self._file, self._arrays = num_chunks, None, None
        size = int(np.prod(self._shape)) * self._dtype.itemsize
        self._size, needed = size, slots * num_chunks * size
        if folder is None:
            self._arrays = np.empty((slots, num_chunks, *self._shape), self._dtype)
        elif needed:
            self._file = _open(folder, needed)

    def __enter__(self) -> "Storage":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Gives memory or disk back."""
        self._arrays = None
        if self._file is not None:
            self._file.close()

    def get(self, slot: int, number: int) -> np.ndarray:
        """Returns the array of a chunk."""
        if self._arrays is not None:
            return self._arrays[slot, number]
        found: Any = np.empty(self._shape, self._dtype)
        assert self._file is not None
        self._file.seek(self._place(slot, number))
        if self._file.readinto(memoryview(found).cast("B")) != self._size:
            raise OSError("A scratch file was cut while it was read.")
        return found

    def put(self, slot: int, number: int, array: np.ndarray) -> None:
        """Keeps the array of a chunk in place of what was there."""
        if self._arrays is not None:
            self._arrays[slot, number] = array
            return
        assert self._file is not None
        self._file.seek(self._place(slot, number))
        whole: Any = np.ascontiguousarray(array, self._dtype)
        self._file.write(memoryview(whole).cast("B"))
        self._file.flush()

    def _place(self, slot: int, number: int) -> int:
        return (slot * self._num_chunks + number) * self._size


def _open(folder: Any, needed: int) -> Any:
    try:
        free = shutil.disk_usage(folder).free
        file = tempfile.TemporaryFile(dir=folder, prefix="opjax-")  # noqa: SIM115
    except OSError as error:
        raise OSError(
            f"The scratch folder {os.fspath(folder)!r} cannot be written: {error}. "
            "Name a folder that exists, on a disk rather than in memory."
        ) from error
    if needed > free:
        file.close()
        raise OSError(
            f"The scratch folder {os.fspath(folder)!r} has {free / 2**30:.1f} GiB free "
            f"and {needed / 2**30:.1f} GiB are needed; raise store_every."
        )
    return file
