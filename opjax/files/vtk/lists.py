"""Files that list other files: collections, time series, blocks of a mesh.

Only files in the folder of the list are read: names with `..`, absolute paths and links
out of the folder raise an error.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from opjax.files import limits

_MAX_BYTES = 2**24
_MAX_ENTRIES = 2**20

SUFFIXES = (".pvd", ".series")


class Entry(NamedTuple):
    """An entry of a list, as text.

    Attributes:
      file: its name, relative to the folder of the list.
      time: its time.
      part: index of the piece of the mesh.
    """

    file: str
    time: str
    part: str = ""


def entries(path: Path) -> list[Entry]:
    """Reads a `.pvd` file, or a `.series` file (ParaView's list of files by time).

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged or too large, or lists no file.
    """
    found = _of_json(path) if path.suffix.lower() == ".series" else _of_xml(path)
    if not found:
        raise limits.damaged(path, "it lists no frames")
    # Windows has other separators.
    return [one._replace(file=one.file.replace("\\", "/")) for one in found]


def frames(path: Path) -> list[tuple[float, list[str]]]:
    """Returns the sorted times of a list, and the files (pieces) of each.

    Args:
      path: a `.pvd` or `.series` file.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged or too large, lists no file, or a time is not a
        number.
    """
    every = entries(path)
    times: list[float] = []
    for number, one in enumerate(every):
        try:
            times.append(float(one.time))
        except ValueError:
            raise limits.damaged(path, f"frame {number} has no time") from None
    if len({one.part for one in every}) == 1:  # a time that is there twice is an error
        return [(time, [one.file]) for time, one in zip(times, every, strict=True)]
    pieces: dict[float, list[str]] = {}
    for time, one in zip(times, every, strict=True):
        pieces.setdefault(time, []).append(one.file)
    return sorted(pieces.items())


def _of_xml(path: Path) -> list[Entry]:
    elements = [one.attrib for one in read(path, "Collection").iter("DataSet")]
    return [
        Entry(one.get("file", ""), one.get("timestep", ""), one.get("part", ""))
        for one in elements
    ]


def _of_json(path: Path) -> list[Entry]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ValueError(f"a list with more than {_MAX_BYTES} bytes")
        known = json.loads(path.read_text())["files"]
        return [Entry(str(one["name"]), str(one["time"])) for one in known]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise limits.damaged(path, error) from error


def read(path: Path, kind: str) -> Element:
    """Reads the tree of a list.

    Args:
      path: the file.
      kind: required type of the list, as VTK names it.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged, too large or of another type.
    """
    root = tree(path)
    if root.tag != "VTKFile" or root.get("type") != kind:
        raise limits.damaged(path, f"it is {root.tag}, not a VTK {kind.lower()}")
    return root


def tree(path: Path) -> Element:
    """Parses a small XML file; entities, which can expand, raise an error.

    Raises:
      OSError: if it cannot be read.
      ValueError: if it is damaged or too large.
    """
    if path.stat().st_size > _MAX_BYTES:
        raise limits.damaged(path, f"a list with more than {_MAX_BYTES} bytes")
    builder, parser = TreeBuilder(), expat.ParserCreate()
    count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MAX_ENTRIES:
            raise ValueError("too many entries")
        builder.start(tag, attributes)

    def refuse(*_: Any) -> None:
        raise ValueError("entities are not allowed")

    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(path.read_bytes(), True)
        return builder.close()
    except (expat.ExpatError, ValueError, AssertionError) as error:
        raise limits.damaged(path, error) from None


def beside(path: Path, name: str, suffixes: tuple[str, ...], what: str) -> Path:
    """Returns a file that a list names, in the folder of the list or below.

    Args:
      path: the list.
      name: name of the file.
      suffixes: allowed suffixes.
      what: description of the files, in the plural, for messages.

    Raises:
      ValueError: if the file is outside the folder or has another format.
    """
    place = Path(name)
    if not name or "\0" in name or place.is_absolute() or ".." in place.parts:
        raise ValueError(
            f"{path} lists the file {name[:80]!r}, which is not in its folder; {what} "
            "must be in the same folder or in subfolders."
        )
    if place.suffix.lower() not in suffixes:
        raise ValueError(
            f"{path} lists {name[:80]!r}; {what} are {' and '.join(suffixes)} files."
        )
    return path.parent / place


def is_inside(path: Path, file: Path) -> bool:
    """Whether a file exists in the folder of a list, and is not a link out of it."""
    inside = file.resolve().is_relative_to(path.parent.resolve())
    return inside and file.is_file()
