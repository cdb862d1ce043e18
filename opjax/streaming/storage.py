"""Storage of the features of all points between passes: in memory or on disk.

In 16 bits they are rounded, with the bounds of `opjax.precision`; float16 is scaled by
a power of two per array.
"""

import os
import shutil
import tempfile
from types import TracebackType
from typing import Any

import jax.numpy as jnp
import numpy as np

from opjax import precision
from opjax.streaming.plan import Folder


class Storage:
    """Arrays of chunks in numbered slots, in memory or in an anonymous file.

    A file is read and written instead of memory-mapped, because pages of a mapped file
    count as memory of the process. It is deleted with the process.

    Args:
      slots: number of arrays stored per chunk.
      num_chunks: number of chunks.
      shape: shape of an array.
      dtype: dtype of an array.
      folder: folder for a file on disk; None for memory.
      storage_dtype: dtype in which arrays are stored, see `precision`; None for their
        own dtype.

    Raises:
      OSError: if the folder cannot be written or does not have enough space.
    """

    def __init__(
        self,
        slots: int,
        num_chunks: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        folder: Folder = None,
        storage_dtype: str | None = None,
    ):
        precision.check_stored(storage_dtype=storage_dtype)
        self._shape, self._given = tuple(shape), np.dtype(dtype)
        self._dtype = jnp.dtype(storage_dtype or dtype)
        # Powers of two that arrays were scaled by.
        self._powers: Any = None
        if storage_dtype == "float16":
            self._powers = np.zeros((slots, num_chunks), np.int32)
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
        array = self._stored(slot, number).astype(self._given, copy=False)
        if self._powers is None:
            return array
        return np.ldexp(array, -self._powers[slot, number])

    def _stored(self, slot: int, number: int) -> np.ndarray:
        if self._arrays is not None:
            return self._arrays[slot, number]
        array: Any = np.empty(self._shape, self._dtype)
        assert self._file is not None
        self._file.seek(self._place(slot, number))
        if self._file.readinto(array.view(np.uint8).data.cast("B")) != self._size:
            raise OSError("A scratch file was truncated while it was read.")
        return array

    def put(self, slot: int, number: int, array: np.ndarray) -> None:
        """Stores the array of a chunk, replacing the previous one."""
        if self._powers is not None:
            power = precision.EXPONENT - np.frexp(np.max(np.abs(array)))[1]
            self._powers[slot, number] = power
            array = np.ldexp(array, power)
        if self._arrays is not None:
            self._arrays[slot, number] = array
            return
        assert self._file is not None
        self._file.seek(self._place(slot, number))
        whole: Any = np.ascontiguousarray(array, self._dtype)
        self._file.write(whole.view(np.uint8).data.cast("B"))
        self._file.flush()

    def _place(self, slot: int, number: int) -> int:
        return (slot * self._num_chunks + number) * self._size


def _open(folder: str | os.PathLike[str], needed: int) -> Any:
    try:
        free = shutil.disk_usage(folder).free
        file = tempfile.TemporaryFile(dir=folder, prefix="opjax-")  # noqa: SIM115
    except OSError as error:
        raise OSError(
            f"The scratch folder {os.fspath(folder)!r} cannot be written: {error}. "
            "Use an existing folder on a disk, not in memory."
        ) from error
    if needed > free:
        file.close()
        raise OSError(
            f"The scratch folder {os.fspath(folder)!r} has {free / 2**30:.1f} GiB "
            f"of free space, but {needed / 2**30:.1f} GiB are needed; raise "
            "store_every."
        )
    return file
