"""What a golden file holds, and which of it an adapter has looked at."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class UnsupportedError(Exception):
    """The file needs something that opjax, or its adapter, does not have."""


class Recorded(Mapping):
    """A mapping that remembers which of its values were read.

    Nothing that the reference code was given may stay unread, or opjax would have
    ignored it. Asking whether a name is there does not read it.

    Args:
      values: names and values of a file.
      kind: what the names stand for, for messages.
      read: names that were read; mappings may share it.
    """

    def __init__(self, values: Mapping, kind: str, read: set[str] | None = None):
        self.kind = kind
        self.read = set() if read is None else read
        self._values = dict(values)

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            raise KeyError(f"no {self.kind} {name!r} in this file")
        self.read.add(name)
        return self._values[name]

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def unread(self) -> list[str]:
        """Returns the names that were never asked for."""
        return sorted(set(self._values) - self.read)

    def plain(self) -> dict[str, Any]:
        """Returns names and values as a dictionary, without reading any."""
        return dict(self._values)

    def holding(self, values: Mapping) -> "Recorded":
        """Returns a mapping of other values under these names, with this record."""
        return Recorded(values, self.kind, self.read)

    def renamed(self, rename: Callable[[str], str]) -> "Recorded":
        """Returns the same values under other names, with this record."""
        return _Renamed(self, {rename(name): name for name in self})


class _Renamed(Recorded):
    """Values of another mapping under new names, mapped to the `old` ones."""

    def __init__(self, original: Recorded, old: Mapping[str, str]):
        super().__init__(old, original.kind)
        self._original = original

    def __getitem__(self, name):
        return self._original[super().__getitem__(name)]
