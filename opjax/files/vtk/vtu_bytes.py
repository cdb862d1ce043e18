"""Bytes of the arrays in a VTK XML file, read on request.

    plain        length in bytes, values
    compressed   number of blocks, length of a block, of the last one if it is shorter,
                 lengths of the compressed blocks; the blocks

Both are raw or in base64; in base64, lengths and blocks are encoded separately.
"""

import binascii
import lzma
import threading
import zlib
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from opjax.files import limits
from opjax.files.vtk.vtu_head import Span

# VTK's own are of 2^15 bytes.
MAX_BLOCK = 2**26


class _Lz4:
    """Decompresses LZ4 with VTK's copy of its library, which checks damaged blocks."""

    def decompress(self, data: bytes, size: int) -> bytes:
        """Returns fewer than `size` bytes; raises ValueError for damaged blocks."""
        from vtkmodules.util.numpy_support import vtk_to_numpy  # pyright: ignore
        from vtkmodules.vtkIOCore import vtkLZ4DataCompressor  # pyright: ignore

        reader: Any = vtkLZ4DataCompressor()
        shown = reader.GetGlobalWarningDisplay()
        reader.SetGlobalWarningDisplay(0)  # it would print what we raise
        try:
            block = reader.Uncompress(data, len(data), size - 1)
        finally:
            reader.SetGlobalWarningDisplay(shown)
        if block is None:
            raise ValueError("not LZ4 data of this size")
        return vtk_to_numpy(block).tobytes()


_DECOMPRESSORS: dict[str, Any] = {
    "vtkZLibDataCompressor": zlib.decompressobj,
    "vtkLZMADataCompressor": lzma.LZMADecompressor,
    "vtkLZ4DataCompressor": _Lz4,
}


class ByteFormat(NamedTuple):
    """How a file stores values.

    Attributes:
      header: data type of the lengths.
      compressor: VTK's name of the compressor, or None.
    """

    header: np.dtype
    compressor: str | None

    def check(self, path: Path) -> None:
        """Raises ValueError if the compressor is unknown."""
        if self.compressor is not None and self.compressor not in _DECOMPRESSORS:
            names = ", ".join(_DECOMPRESSORS)
            raise ValueError(
                f"{path} is compressed by {self.compressor[:40]!r}; supported: "
                f"{names} or no compression. Write it again."
            )


class StoredBytes:
    """A file that any thread can read."""

    def __init__(self, path: Path, file: BinaryIO):
        self.path, self._file, self._lock = path, file, threading.Lock()

    def read(self, span: Span, first: int, last: int) -> bytes:
        """Reads the decoded bytes `first` to `last` of a span.

        Raises:
          ValueError: if they are missing, or are not valid base64.
        """
        start, stop = first, last
        if span.base64:
            start, stop = 4 * (first // 3), 4 * -(-last // 3)
        if not 0 <= first <= last or span.first + stop > span.last:
            wanted = f"bytes {span.first + start} to {span.first + stop}"
            raise self.damaged(f"{wanted} are beyond the end of its data, {span.last}")
        with self._lock:
            self._file.seek(span.first + start)
            found = self._file.read(stop - start)
        if len(found) < stop - start:
            raise self.damaged("it became shorter")
        if not span.base64:
            return found
        try:
            decoded = binascii.a2b_base64(found, strict_mode=True)
        except binascii.Error as error:
            raise self.damaged(f"at byte {span.first + start}: {error}") from error
        wanted = decoded[first - 3 * (first // 3) :][: last - first]
        if len(wanted) < last - first:
            raise self.damaged(
                f"at byte {span.first + start}: the base64 text is truncated"
            )
        return wanted

    def between(self, span: Span) -> bytes:
        """Reads the text of a span."""
        return self.read(span, 0, span.last - span.first)

    def damaged(self, error: object) -> ValueError:
        """Returns the error for this file."""
        return limits.damaged(self.path, error)


class Plain:
    """Uncompressed values."""

    def __init__(self, stored: StoredBytes, span: Span, encoding: ByteFormat):
        self._stored, self._span, self._start = stored, span, encoding.header.itemsize
        header = stored.read(span, 0, self._start)
        self.size = int(np.frombuffer(header, encoding.header)[0])
        if self.size:  # the last byte is there
            self.read(self.size - 1, self.size)

    def read(self, first: int, last: int) -> bytes:
        """Reads bytes `first` to `last` of the values."""
        start = self._start
        return self._stored.read(self._span, start + first, start + last)


class Compressed:
    """Values in separately compressed blocks."""

    def __init__(self, stored: StoredBytes, span: Span, encoding: ByteFormat):
        self._stored, word = stored, encoding.header
        assert encoding.compressor is not None
        self._decompressor = _DECOMPRESSORS[encoding.compressor]
        three = stored.read(span, 0, 3 * word.itemsize)
        count, self._block, last = map(int, np.frombuffer(three, word))
        if count and not last <= self._block <= MAX_BLOCK:
            raise ValueError(
                f"{stored.path} has compressed blocks of {self._block} bytes, above "
                f"the limit of {MAX_BLOCK}. Write it again: "
                "pyvista.read(old).save(new)."
            )
        self.size = (count - 1) * self._block + (last or self._block) if count else 0
        length = (3 + count) * word.itemsize
        lengths = np.frombuffer(stored.read(span, 3 * word.itemsize, length), word)
        ends = np.cumsum(lengths, dtype=np.uint64)
        self._ends = np.concatenate([np.zeros(1, np.uint64), ends])
        start = span.first + (4 * -(-length // 3) if span.base64 else length)
        self._span = span._replace(first=start)
        self._last: tuple[int, bytes] = (-1, b"")  # slices often share a block
        if self.size:
            self._block_of(count - 1)

    def read(self, first: int, last: int) -> bytes:
        """Reads bytes `first` to `last` of the values."""
        if not 0 <= first <= last <= self.size:
            raise self._stored.damaged(f"{self.size} bytes of values, expected {last}")
        if first == last:
            return b""
        begin = first // self._block
        blocks = map(self._block_of, range(begin, -(-last // self._block)))
        return b"".join(blocks)[first - begin * self._block :][: last - first]

    def _block_of(self, number: int) -> bytes:
        kept, block = self._last
        if kept == number:
            return block
        first, last = map(int, self._ends[number : number + 2])
        size = min(self._block, self.size - number * self._block)
        compressed = self._stored.read(self._span, first, last)
        try:
            block = self._decompressor().decompress(compressed, size + 1)
        except (zlib.error, lzma.LZMAError, ValueError) as error:
            raise self._stored.damaged(f"block {number}: {error}") from error
        if len(block) != size:
            what = f"block {number} has {len(block)} bytes or more, not {size}"
            raise self._stored.damaged(what)
        self._last = number, block
        return block
