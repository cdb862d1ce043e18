"""Words and numbers of VTK's legacy files."""

import mmap
import re
from pathlib import Path
from urllib.parse import unquote_to_bytes

import numpy as np

from opjax.datasets import _archives, _vtk_text

# Types by name. Indices are 32 bits wide in these files; long ones are as on Linux.
_TYPES = {"unsigned_char": "u1", "char": "i1", "signed_char": "i1", "short": "i2"}
_TYPES |= {"unsigned_short": "u2", "unsigned_int": "u4", "int": "i4", "float": "f4"}
_TYPES |= {"unsigned_long": "u8", "long": "i8", "double": "f8", "vtkidtype": "i4"}
_TYPES |= {"vtktypeint64": "i8", "vtktypeuint64": "u8"}
_TYPES |= {f"vtktypeint{8 * n}": f"i{n}" for n in (1, 2, 4)}
_TYPES |= {f"vtktypeuint{8 * n}": f"u{n}" for n in (1, 2, 4)}
_TYPES |= {"unsigned_long_long": "u8", "long_long": "i8"}
_WORD = re.compile(rb"\s*(\S{1,1024})")
_SPACES = re.compile(rb"\s*")
_LINE = re.compile(rb"[^\n]{0,4096}\n")
_LONGEST = 12  # digits
_STEP = 2**20  # bytes of text that are looked at at once


class Values:
    """A place in a file, and what is behind it.

    Args:
      path: the file.
      data: all of it.
      place: where to begin.
      max_bytes: largest size of an array.
      binary: whether arrays are binary.
    """

    def __init__(
        self, path: Path, data: mmap.mmap, place: int, max_bytes: int, *, binary: bool
    ):
        self._path, self._data, self._place = path, data, place
        self._most, self.binary = max_bytes, binary

    def _damaged(self, what: object) -> ValueError:
        return _archives.damaged(self._path, f"{what}, at byte {self._place}")

    def word(self, *, lower: bool = True, last: bool = False) -> str:
        """The next word; empty at the end, if it may be the last one."""
        match = _WORD.match(self._data, self._place)
        if match is None:
            if last and _SPACES.fullmatch(self._data, self._place):
                return ""
            raise self._damaged("it ends")
        self._place = match.end()
        text = match[1].decode("latin-1")
        return text.lower() if lower else text

    def rest_of_line(self) -> str:
        """What is left of a line, which ends."""
        match = _LINE.match(self._data, self._place)
        if match is None:
            raise self._damaged("a line without end")
        self._place = match.end()
        return match[0].decode("latin-1").strip()

    def number(self, text: str) -> int:
        """A word as a number that counts something."""
        if not (text.isascii() and text.isdecimal() and len(text) <= _LONGEST):
            raise self._damaged(f"{text[:40]!r} where a number is expected")
        return int(text)

    def integer(self) -> int:
        """The next word, as a number that counts something."""
        return self.number(self.word())

    def real(self) -> float:
        """The next word, as a number."""
        text = self.word()
        try:
            return float(text)
        except ValueError as error:
            raise self._damaged(f"{text[:40]!r}, no number") from error

    def check_size(self, size: int, what: str) -> None:
        """Raises ValueError if an array of these bytes is too large."""
        _archives.check_size(self._path, f"its {what}", size, self._most)

    def skip_block(self) -> None:
        """Passes over the rest of this line, and what is in front of an empty one."""
        self.rest_of_line()
        while self._place < len(self._data) and self.rest_of_line():
            pass

    def skip_metadata(self) -> None:
        """Passes over metadata, if they are next."""
        match = _WORD.match(self._data, self._place)
        if match is not None and match[1].lower() == b"metadata":
            self._place = match.end()
            self.skip_block()

    def array(self, count: int, kind: str, name: str) -> np.ndarray:
        """The next numbers, or strings.

        Args:
          count: how many.
          kind: VTK's name of their type.
          name: for messages.
        """
        if kind in ("string", "utf8_string"):
            return self._strings(count, name)
        if kind not in _TYPES and kind != "bit":
            raise self._damaged(f"{name[:40]!r} has the type {kind[:40]!r}")
        dtype = np.dtype(">" + _TYPES.get(kind, "u1"))
        size = count * dtype.itemsize
        if kind == "bit" and self.binary:
            size = -(-count // 8)
        if (size if self.binary else 2 * count - 1) > len(self._data) - self._place:
            what = f"{count} {kind} of {name[:40]!r} are more than its bytes can hold"
            raise self._damaged(what)
        self.check_size(count * dtype.itemsize, f"values of {name[:40]!r}")
        if not self.binary:
            return self._text(count, dtype)
        self.rest_of_line()
        if size > len(self._data) - self._place:
            raise self._damaged(f"{name[:40]!r} has no end")
        found = np.frombuffer(self._data[self._place : self._place + size], "u1")
        self._place += size
        if kind == "bit":
            return np.unpackbits(found)[:count]
        return found.view(dtype).astype(dtype.newbyteorder("="))

    def _text(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Numbers as text, which ends where there are enough."""
        parts = [np.zeros(0, dtype.newbyteorder("="))]
        while count:
            block = self._data[self._place : self._place + _STEP]
            if len(block) == _STEP and not block[-1:].isspace():  # a word goes on
                block = block[: len(block) - len(block.rsplit(maxsplit=1)[-1])]
            ends = _vtk_text.ends(block)[:count]
            if not len(ends):
                raise self._damaged(f"{count} numbers are missing")
            try:
                parts.append(_vtk_text.parse(block[: ends[-1]], dtype))
            except ValueError as error:
                raise self._damaged(error) from error
            self._place += int(ends[-1])
            count -= len(ends)
        return np.concatenate(parts)

    def _strings(self, count: int, name: str) -> np.ndarray:
        """Texts: lines in which what is no letter is coded, or lengths and bytes."""
        if count > len(self._data) - self._place:
            raise self._damaged(f"{count} texts of {name[:40]!r} are too many")
        self.rest_of_line()
        found = []
        for _ in range(count):
            if self.binary:
                length = self._length()
                text = self._data[self._place : self._place + length]
                self._place += length
                if len(text) < length:
                    raise self._damaged("a text without end")
            else:
                text = unquote_to_bytes(self.rest_of_line())
            found.append(text.decode("utf-8", "replace").rstrip("\0"))
        # All will be as wide as the widest, four bytes a letter.
        self.check_size(4 * count * max(map(len, found), default=0), "texts")
        return np.array(found, object)

    def _length(self) -> int:
        """The length of a text: two bits say in how many bytes it is."""
        first = self._data[self._place : self._place + 1]
        width = 1 << (3 - (first[0] >> 6)) if first else 1
        stored = self._data[self._place : self._place + width]
        self._place += width
        if len(stored) < width:
            raise self._damaged("a text without end")
        return int.from_bytes(stored, "big") & (2 ** (8 * width - 2) - 1)
