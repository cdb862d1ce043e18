"""Arrays of numbers in `.mat` files of MATLAB 5 to 7.

A file is 128 bytes, the last two of which say the order of bytes, and elements: type,
length, data. An array is an element of elements (its class, shape, name and values),
compressed as a whole or not. SciPy's reader believes lengths and types, and a wrong one
may end the process; here nothing is read or made before its length is compared with
what is there.
"""

import contextlib
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

_MATRIX, _COMPRESSED = 14, 15
_UINT32, _INT32, _INT8 = 6, 5, 1
# Types of values as stored, and of arrays in MATLAB: numbers of the format.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4"}
_STORED |= {7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2"}
_CLASSES |= {12: "i4", 13: "u4", 14: "i8", 15: "u8"}
_COMPLEX = 0x800
_AT_ONCE = 2**20


def load(path: Path, key: str, max_bytes: int) -> tuple[list[str], np.ndarray | None]:
    """Reads one array.

    Args:
      path: the file.
      key: name of the array.
      max_bytes: largest size of the array.

    Returns:
      The names of all variables, at least up to that one, and it, if it is there.

    Raises:
      OSError: if the file cannot be read.
      ValueError: if it is damaged, or the array too large or none of real numbers.
    """
    names = []
    with open(path, "rb") as file:
        order = _order(file.read(128))
        for element in _elements(file, path.stat().st_size, order):
            flags, shape, name = element.head()
            names.append(name)
            if name == key:
                return names, _values(element, flags, shape, max_bytes)
    return names, None


def _order(start: bytes) -> str:
    orders = {b"IM": "<", b"MI": ">"}
    if len(start) < 128 or start[126:] not in orders:
        raise ValueError("it does not begin as files of MATLAB 5 to 7 do")
    return orders[start[126:]]


class _Element:
    """An array, read from its start on.

    Args:
      chunks: bytes of the element, a few at once.
      order: of bytes.
    """

    def __init__(self, chunks: Iterator[bytes], order: str):
        self._chunks, self._rest, self.order = chunks, b"", order

    def read(self, size: int) -> bytes:
        """The next bytes; ValueError if there are fewer."""
        parts, missing = [self._rest], size - len(self._rest)
        while missing > 0:
            part = next(self._chunks, b"")
            if not part:
                raise ValueError(f"{missing} bytes are missing at the end of an array")
            parts.append(part)
            missing -= len(part)
        found = b"".join(parts) if len(parts) > 1 else parts[0]
        self._rest = found[size:]
        return found[:size] if self._rest else found

    def numbers(self, count: int) -> list[int]:
        """The next whole numbers of 32 bits."""
        return np.frombuffer(self.read(4 * count), self.order + "u4").tolist()

    def part(self, most: int) -> tuple[int, bytes]:
        """Type and bytes of the next element inside."""
        (kind,) = self.numbers(1)
        size = kind >> 16
        if size:  # four bytes at most are in the tag itself
            kind, data = kind & 0xFFFF, self.read(4)
            if size > 4:
                raise ValueError(f"a small element of {size} bytes")
            return kind, data[:size]
        (size,) = self.numbers(1)
        if size > most:
            raise ValueError(f"an element of {size} bytes where {most} are the most")
        data = self.read(size)
        with contextlib.suppress(ValueError):  # the last one may go without
            self.read(-size % 8)
        return kind, data

    def head(self) -> tuple[int, tuple[int, ...], str]:
        """Flags with the class, shape and name."""
        kind, size = self.numbers(2)
        if kind != _MATRIX:
            raise ValueError(f"a variable of type {kind}, expected an array")
        if not size:  # as MATLAB writes what it cannot
            return 0, (), ""
        expected = ((_UINT32, 8), (_INT32, 4 * 32), (_INT8, 256))
        found = [self.part(most) for _, most in expected]
        if [kind for kind, _ in found] != [kind for kind, _ in expected]:
            raise ValueError("the head of an array is not as it has to be")
        (_, flags), (_, shape), (_, name) = found
        if len(flags) != 8 or len(shape) % 4:
            raise ValueError("the head of an array is not as it has to be")
        (first,) = np.frombuffer(flags[:4], self.order + "u4").tolist()
        sizes = tuple(np.frombuffer(shape, self.order + "i4").tolist())
        return first, sizes, name.decode("latin-1")


def _values(
    element: _Element, flags: int, shape: tuple[int, ...], max_bytes: int
) -> np.ndarray:
    kind = flags & 0xFF
    if kind not in _CLASSES or flags & _COMPLEX:
        raise ValueError(f"class {kind} with flags {flags:#x} is none of real numbers")
    dtype, count = np.dtype(_CLASSES[kind]), math.prod(shape)
    if not shape or min(shape) < 0 or count * dtype.itemsize > max_bytes:
        raise ValueError(
            f"shape {shape} of {dtype} is not one of at most {max_bytes} bytes"
        )
    stored, data = element.part(count * 8)
    if stored not in _STORED:
        raise ValueError(f"values of type {stored}, which are no numbers")
    values = np.frombuffer(data, element.order + _STORED[stored])
    if len(values) != count:
        raise ValueError(f"shape {shape} needs {count} values, it has {len(values)}")
    return values.astype(dtype, order="C").reshape(shape, order="F")


def _elements(file: IO[bytes], size: int, order: str) -> Iterator[_Element]:
    """Arrays one after the other."""
    start = 128
    while start < size:
        file.seek(start)
        tag = file.read(8)
        if len(tag) < 8:
            raise ValueError("it ends within a tag")
        kind, length = np.frombuffer(tag, order + "u4").tolist()
        if length > size - start - 8:
            raise ValueError(f"an element of {length} bytes, of which some are missing")
        if kind == _COMPRESSED:
            yield _Element(_inflated(_part(file, start + 8, length)), order)
        else:  # with its tag
            yield _Element(_part(file, start, length + 8), order)
        start += 8 + length


def _part(file: IO[bytes], start: int, size: int) -> Iterator[bytes]:
    """Bytes of a part of a file, a few at once."""
    for first in range(0, size, _AT_ONCE):
        file.seek(start + first)
        yield file.read(min(_AT_ONCE, size - first))


def _inflated(parts: Iterator[bytes]) -> Iterator[bytes]:
    """What is compressed in them, a few bytes at once."""
    stream = zlib.decompressobj()
    for part in parts:
        while part:
            found = stream.decompress(part, _AT_ONCE)
            if found:
                yield found
            part = stream.unconsumed_tail
            if stream.eof:
                return
    if not stream.eof:
        raise ValueError("the compressed values end early")
