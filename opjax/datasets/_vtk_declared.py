"""What VTK files say of their sizes, before VTK makes room for it."""

import math
import mmap
import re
from pathlib import Path
from typing import Any
from xml.parsers import expat

import numpy as np

from opjax.datasets import _archives

_VERSION = re.compile(rb"# vtk DataFile Version ([1-5])\.\d\s*\n[^\n]*\n\s*(\w+)\s")
_CELLS = (b"cells", b"vertices", b"lines", b"polygons", b"triangle_strips")
_DEEPEST = 32
_LONGEST = 12  # digits
# Attributes of elements that say how much there is.
_COUNTS = re.compile(r"NumberOf(Points|Cells|Verts|Lines|Strips|Polys|Tuples)")
_TYPES = "UnstructuredGrid", "PolyData"
# Words of the legacy format with one or more numbers behind them.
_WORDS = re.compile(
    rb"(?i)(?<![^\s])(?:(points|cells|cell_types|vertices|lines|polygons|"
    rb"triangle_strips|point_data|cell_data|[xyz]_coordinates|field\s+\S+|"
    rb"lookup_table\s+\S+|offsets|connectivity|metadata|information|dimensions|"
    rb"color_scalars\s+\S+|scalars\s+\S+\s+[a-z_0-9]+)|(extent))"
    rb"((?:\s+-?\d+){1,6})(?![^\s])"
)
# Arrays of fields: name, components, rows, type.
_FIELD = re.compile(
    rb"(?i)(?<=\s)(\d+)\s+(\d+)\s+(?:bit|(?:unsigned_)?(?:char|short|int|long|"
    rb"vtktypeint64)|float|double|string|vtkidtype|variant)(?![^\s])"
)


def check(path: Path, max_bytes: int) -> None:
    """Checks a file that VTK is to read.

    Args:
      path: a file as XML, or of the legacy format if it ends with `.vtk`.
      max_bytes: largest size of its points and cells.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is none, is nested deeply, declares entities, or says that it
        holds more than that, or more than its bytes can be.
    """
    (_legacy if path.suffix.lower() == ".vtk" else _xml)(path, max_bytes)


def _legacy(path: Path, max_bytes: int) -> None:
    size = path.stat().st_size
    if not size:
        raise _archives.damaged(path, "it is empty")
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        version = _VERSION.match(data)
        kind = version[2].upper() if version else b""
        if version is None or kind not in (b"ASCII", b"BINARY"):
            raise _archives.damaged(path, "it does not begin as files of VTK do")
        words: list[bytes] = []
        for found in _WORDS.finditer(data):
            word = (found[1] or found[2]).split()[0].lower()
            numbers = [_number(path, text) for text in found[3].split()]
            words.append(word)
            if word == b"dimensions":  # which may have no bytes for points
                count = 12 * math.prod(map(abs, numbers[:3]))
                _archives.check_size(path, "its points", count, max_bytes)
            elif min(numbers[:2]) < 0 or max(numbers[:2]) > size:
                what = f"{found[0][:40]!r} is more than {size} bytes can hold"
                raise _archives.damaged(path, what)
            elif word in _CELLS and int(version[1]) < 5:
                start, binary = found.end(), kind == b"BINARY"
                _check_cells(path, data, start, numbers, binary)
        _check_order(path, words)
        for found in _FIELD.finditer(data):
            if math.prod(_number(path, text) for text in found.groups()) > 8 * size:
                what = f"{found[0][:40]!r} is more than {size} bytes can hold"
                raise _archives.damaged(path, what)


def _check_order(path: Path, words: list[bytes]) -> None:
    """Cells are followed by their types, which VTK takes for granted."""
    head = words
    for word in (b"point_data", b"cell_data"):
        head = head[: head.index(word)] if word in head else head
    kept = [w for w in head if w in (b"cells", b"cell_types", b"field")]
    if b"cells" in kept or b"cell_types" in kept:
        while kept[0] == b"field":
            del kept[0]
        if kept != [b"cells", b"cell_types"]:
            order = ", ".join(word.decode() for word in kept)
            raise _archives.damaged(path, f"cells and types in the order {order}")


def _check_cells(
    path: Path, data: mmap.mmap, start: int, numbers: list[int], binary: bool
) -> None:
    """Walks along cells, each a number of corners and the corners, as VTK will."""
    count, length = (*numbers, 0)[:2]
    begin = data.find(b"\n", start) + 1
    if binary:
        found = np.frombuffer(data[begin : begin + 4 * length], ">i4")
    else:
        words = data[start : start + 24 * length].split(maxsplit=length)[:length]
        plain = all(word.isdigit() and len(word) < 10 for word in words)
        found = np.array(words if plain else [], np.int64)
    place, cells = 0, found.tolist()
    for _ in range(count):
        if place >= len(cells) or cells[place] < 0:
            break
        place += 1 + cells[place]
    if len(cells) != length or place != length:
        raise _archives.damaged(path, f"{count} cells do not fill {length} numbers")


def _number(path: Path, text: Any) -> int:
    if len(text) > _LONGEST:
        raise _archives.damaged(path, f"a number of {len(text)} digits")
    return int(text)


class _AppendedError(Exception):
    """Appended data begin, which are no XML."""


def _xml(path: Path, max_bytes: int) -> None:
    open_elements: list[str] = []
    total = rows = 0

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal total, rows
        open_elements.append(tag)
        if len(open_elements) > _DEEPEST:
            raise _archives.damaged(path, f"elements in {_DEEPEST} others")
        kind = attributes.get("type")
        if len(open_elements) == 1 and (tag != "VTKFile" or kind not in _TYPES):
            raise ValueError(
                f"{path} holds {kind or tag!r}, expected one mesh, {_TYPES}; write "
                "every block to a file of its own."
            )
        if tag == "AppendedData":
            raise _AppendedError
        counts = [v for k, v in attributes.items() if _COUNTS.fullmatch(k)]
        found = [_count(path, text) for text in counts]
        if tag == "Piece":
            rows = max([rows, *found])
        channels = _count(path, attributes.get("NumberOfComponents", "1"))
        total += 12 * sum(found)
        most = max(total, 8 * channels * rows)
        _archives.check_size(path, "its points and cells", most, max_bytes)

    def end(tag: str) -> None:
        open_elements.pop()

    def refuse(*_: Any) -> None:
        raise _archives.damaged(path, "it declares types or entities of XML")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    with open(path, "rb") as file:
        try:
            while part := file.read(2**18):
                parser.Parse(part, False)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise _archives.damaged(path, error) from error
        except _AppendedError:
            pass


def _count(path: Path, text: str) -> int:
    text = text.strip()
    if not text.isascii() or not text.isdecimal() or len(text) > _LONGEST:
        raise _archives.damaged(path, f"the number {text[:40]!r} of its elements")
    return int(text)
