"""Archives of arrays, `.npz`, with declared sizes checked before reading."""

import contextlib
import math
import zipfile
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from opjax.files import limits

Arrays = Mapping[str, np.ndarray]
Groups = Mapping[str, Arrays]


@contextlib.contextmanager
def open_npz(path: Path, max_bytes: int) -> Generator[Groups]:
    """Opens an archive. An array is read on access.

    Args:
      path: the file.
      max_bytes: maximum size of all arrays together, uncompressed.

    Raises:
      ValueError: if the archive is damaged or too large. Access raises it if the array
        is pickled, damaged or larger than its space in the archive.
    """
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
        except OSError:
            raise
        except Exception as error:  # a damaged file can raise any kind of error
            raise limits.damaged(path, error) from error
        members = {
            name: info
            for info in archive.infolist()
            if not _is_note(name := info.filename.removesuffix(".npy"))
        }
        total = sum(info.file_size for info in members.values())
        limits.check_size(path, "its arrays", total, max_bytes)

        def read(name: str) -> np.ndarray:
            # `numpy.load` would allocate whatever the header of an array says.
            info = members[name]
            try:
                with archive.open(info) as member:
                    return _read_member(member, info.file_size)
            except Exception as error:  # a damaged file can raise any kind of error
                raise limits.damaged(path, f"array {name!r}: {error}") from error

        yield {"": Lazy(members, read)}


def _is_note(name: str) -> bool:
    """Whether a name is that of a note of MATLAB's files, such as `__header__`."""
    return name.startswith("__") and name.endswith("__")


def add(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Adds arrays to an archive; creates it if missing."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asarray(array), allow_pickle=False)


class Lazy(Arrays):
    """Arrays by name, each read when it is looked up.

    Args:
      names: names of the arrays.
      read: `read(name)` returns an array.
    """

    def __init__(self, names: Collection[str], read: Callable[[str], np.ndarray]):
        self._names, self._read = names, read

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._read(name)


def _read_member(member: IO[bytes], size: int) -> np.ndarray:
    version = npy.read_magic(member)
    headers = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }
    if version not in headers:
        raise ValueError(
            f"version {version} of the format, which is only for structured arrays"
        )
    shape, fortran_order, dtype = headers[version](member)
    if dtype.hasobject:
        raise ValueError(
            "it contains pickled Python objects, which can execute code; save an "
            "array of numbers"
        )
    length = math.prod(shape) * dtype.itemsize
    if member.tell() + length != size:
        raise ValueError(
            f"shape {shape} with {dtype} needs {length} bytes, but it has "
            f"{size - member.tell()}"
        )
    array = np.frombuffer(bytearray(member.read(length)), dtype)
    member.read(1)  # zipfile compares the checksum only at the end of a member
    return array.reshape(shape, order="F" if fortran_order else "C")
