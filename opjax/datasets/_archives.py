"""Archives of arrays, `.npz`, read without trusting what they say of their sizes."""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

Groups = Mapping[str, Mapping[str, np.ndarray]]
# Published files may say that they hold so many bytes, or so many times their own size.
EXPANDED_BYTES = 2**28
EXPANSION = 256


def limit(path: Path) -> int:
    """Returns how many bytes of arrays a file is believed to hold.

    Compression of numbers rarely saves more than a few times their size; what says more
    is made to fill the memory.
    """
    return max(EXPANDED_BYTES, EXPANSION * path.stat().st_size)


def check_size(path: Path, what: str, size: int, max_bytes: int) -> None:
    """Raises ValueError if a file says that it holds more than fits."""
    if size > max_bytes:
        raise ValueError(
            f"{path} ({path.stat().st_size} bytes) says that {what} take {size} bytes, "
            f"above the limit of {max_bytes}: it is not what it seems, or too large "
            "for this machine. If you trust it, raise max_bytes."
        )


def damaged(path: Path, error: object) -> ValueError:
    """Returns the error for a file that cannot be read."""
    reason = str(error).strip().splitlines()
    return ValueError(
        f"Cannot read {path} ({path.stat().st_size} bytes): "
        f"{reason[0][:300] if reason else type(error).__name__}. It seems damaged, "
        "incomplete or in another format; write it again."
    )


@contextlib.contextmanager
def open_npz(path: Path, max_bytes: int) -> Iterator[Groups]:
    """Opens an archive; its arrays are read when they are looked up.

    Raises:
      ValueError: if it is damaged or too large, and at a look-up if an array is
        pickled, damaged or larger than its place in the archive.
    """
    with contextlib.ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
        except OSError:
            raise
        except Exception as error:  # a damaged byte leads zipfile anywhere
            raise damaged(path, error) from error
        members = {
            info.filename.removesuffix(".npy"): info for info in archive.infolist()
        }
        total = sum(info.file_size for info in members.values())
        check_size(path, "its arrays", total, max_bytes)
        yield {"": _Members(path, archive, members)}


class _Members(Mapping[str, np.ndarray]):
    """Arrays of an archive by name, each checked against its place before it is read.

    `numpy.load` would allocate whatever the header of an array says.
    """

    def __init__(self, path, archive, members):
        self._path, self._archive, self._members = path, archive, members

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> np.ndarray:
        info = self._members[name]
        try:
            with self._archive.open(info) as member:
                return _read_member(member, info.file_size)
        except Exception as error:  # a damaged byte leads zipfile and NumPy anywhere
            raise damaged(self._path, f"array {name!r}: {error}") from error


def _read_member(member: IO[bytes], size: int) -> np.ndarray:
    version = npy.read_magic(member)
    headers = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }
    if version not in headers:
        raise ValueError(f"version {version} of the format is for structured arrays")
    shape, fortran_order, dtype = headers[version](member)
    if dtype.hasobject:
        raise ValueError(
            "it holds pickled Python objects, which could run foreign code; save it as "
            "an array of numbers"
        )
    length = math.prod(shape) * dtype.itemsize
    if member.tell() + length != size:
        raise ValueError(
            f"shape {shape} of {dtype} needs {length} bytes, it has "
            f"{size - member.tell()}"
        )
    array = np.frombuffer(bytearray(member.read(length)), dtype)
    member.read(1)  # the checksum is compared at the end only
    return array.reshape(shape, order="F" if fortran_order else "C")
