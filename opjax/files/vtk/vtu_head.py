"""The structure of a VTK XML file, read without the values of its arrays."""

from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from opjax.files import limits

# Maximum number of characters outside of the values of arrays.
_MAX_TEXT = 2**20
# Maximum number of elements, and of elements inside one another.
_MAX_ELEMENTS, _DEEPEST = 2**16, 32
AGAIN = "write it again, pyvista.read(old).save(new), or predict without --stream"


class Span(NamedTuple):
    """A range of bytes of a file.

    Attributes:
      first: its first byte.
      last: the byte after its last byte.
      base64: whether it is base64, in which four bytes encode three.
      text: whether it contains numbers as text.
    """

    first: int
    last: int
    base64: bool
    text: bool = False


class Head(NamedTuple):
    """A file without the values of its arrays.

    Attributes:
      root: its XML tree, without the values of arrays, except small text arrays.
      spans: start of the values of each array, and their latest possible end.
      kind: the kind of mesh.
    """

    root: Element
    spans: dict[Element, Span]
    kind: str

    @property
    def pieces(self) -> list[Element]:
        """The pieces of the mesh."""
        return self.root.findall(f"{self.kind}/Piece")

    @property
    def piece(self) -> Element:
        """The only piece of a mesh that is read in slices."""
        return self.pieces[0]


def read_head(
    path: Path, *, kind: str = "UnstructuredGrid", sliced: bool = True
) -> Head:
    """Reads a file up to its appended data and locates the values of arrays.

    Args:
      path: the file.
      kind: required type of the mesh.
      sliced: whether its arrays will be read in slices.

    Raises:
      ValueError: if it is damaged or has another type. With `sliced`, also if it has
        several pieces or text arrays.
    """
    events = _Events(path, sliced=sliced)
    with open(path, "rb") as file:
        try:
            while part := file.read(2**18):
                events.parse(part)
            events.parse(b"", final=True)
        except expat.ExpatError as error:
            raise limits.damaged(path, error) from error
        except _AppendedError:  # and what follows is no XML
            pass
        root = events.tree()
        if root.tag != "VTKFile" or root.get("type") != kind:
            raise ValueError(
                f"{path} contains {root.get('type') or root.tag!r}, expected one "
                f"mesh, {kind!r}; write every block to a separate file."
            )
        spans = events.inline | _appended(path, file, events)
    head = Head(root, spans, kind)
    if sliced and len(head.pieces) != 1:
        raise ValueError(
            f"{path} has {len(head.pieces)} pieces, but only files with one piece can "
            f"be read in slices; {AGAIN}."
        )
    return head


class _AppendedError(Exception):
    """Appended data begin."""


class _Events:
    """Builds the tree of a file without the values of arrays."""

    def __init__(self, path: Path, *, sliced: bool):
        self._path, self._builder, self._text = path, TreeBuilder(), 0
        self._sliced, self._count = sliced, 0
        self._open: list[str] = []  # elements that are not closed yet
        self._array: Element | None = None  # whose values are skipped
        self._first: int | None = None  # where these values begin
        self.inline: dict[Element, Span] = {}
        self.appended: list[Element] = []  # arrays
        self.start: int | None = None  # of the element of their values
        self.base64 = False
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._characters
        self._parser.StartDoctypeDeclHandler = self._refuse_entities

    def parse(self, part: bytes, *, final: bool = False) -> None:
        """Reads on."""
        self._parser.Parse(part, final)

    def tree(self) -> Element:
        """The root, with all elements closed."""
        for tag in reversed(self._open):
            self._builder.end(tag)
        return self._builder.close()

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        self._end_values()
        if tag == "AppendedData":
            encoding = attributes.get("encoding", "base64")
            if encoding not in ("raw", "base64"):
                raise limits.damaged(
                    self._path, f"appended data with the encoding {encoding!r}"
                )
            self.start, self.base64 = self._parser.CurrentByteIndex, encoding != "raw"
            raise _AppendedError
        element = self._builder.start(tag, attributes)
        self._open.append(tag)
        self._count += 1
        if len(self._open) > _DEEPEST:
            raise limits.damaged(self._path, f"more than {_DEEPEST} nested elements")
        if self._count > _MAX_ELEMENTS:
            what = f"more than {_MAX_ELEMENTS} elements"
            raise limits.damaged(self._path, what)
        if tag in ("DataArray", "Array"):
            self._begin_array(element)

    def _begin_array(self, element: Element) -> None:
        stored = element.get("format", "ascii")
        if "TimeStep" in element.attrib:
            raise ValueError(
                f"{self._path} has several time steps; write each of them to a "
                "separate file."
            )
        if stored == "appended":
            self.appended.append(element)
        elif stored == "binary" or not self._sliced:
            self._array = element
        elif "FieldData" not in self._open:  # which are few, and stay text
            raise ValueError(
                f"{self._path}: {element.get('Name')!r} is text (format {stored!r}), "
                f"which cannot be read in slices; {AGAIN}."
            )

    def _end(self, tag: str) -> None:
        self._end_values()
        self._builder.end(tag)
        self._open.pop()

    def _characters(self, text: str) -> None:
        if self._array is None:
            self._text += len(text)
            if self._text > _MAX_TEXT:
                raise limits.damaged(self._path, "too much text outside its arrays")
            self._builder.data(text)
        elif self._first is None and text.strip():
            spaces = len(text) - len(text.lstrip())
            self._first = self._parser.CurrentByteIndex + spaces
            self._parser.CharacterDataHandler = None  # of which there are many

    def _end_values(self) -> None:
        if self._array is not None:
            last = self._parser.CurrentByteIndex
            first = last if self._first is None else self._first
            text = self._array.get("format", "ascii") != "binary"
            self.inline[self._array] = Span(first, last, not text, text)
        self._array = self._first = None
        self._parser.CharacterDataHandler = self._characters

    def _refuse_entities(self, *_: object) -> None:
        raise limits.damaged(self._path, "it declares XML entities")


def _appended(path: Path, file: BinaryIO, events: _Events) -> dict[Element, Span]:
    """Returns where appended values are. Offsets count from behind an underscore."""
    if not events.appended:
        return {}
    if events.start is None:
        raise limits.damaged(path, "it has no appended data")
    file.seek(events.start)
    tag, _, begin = file.read(2**12).partition(b">")
    spaces = len(begin) - len(begin.lstrip())
    if begin[spaces : spaces + 1] != b"_":
        raise limits.damaged(path, "no underscore before its appended data")
    origin = events.start + len(tag) + 1 + spaces + 1
    tail = max(origin, file.seek(0, 2) - 2**10)
    file.seek(tail)
    values, closed, end = file.read().rpartition(b"</AppendedData>")
    if not closed or b"</VTKFile>" not in end:
        raise limits.damaged(path, "its end is missing")
    last, spans = tail + len(values), {}
    for element in events.appended:
        offset = element.get("offset", "")
        if not offset.isdecimal() or origin + int(offset) > last:
            what = f"{element.get('Name')!r} is at {offset!r} of its appended data"
            raise limits.damaged(path, what)
        spans[element] = Span(origin + int(offset), last, events.base64)
    return spans
