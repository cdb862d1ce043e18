"""Safe reading of named arrays in HDF5 files, `.h5` and `.hdf5`."""

import contextlib
import math
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from opjax.files import conversion, extras, limits
from opjax.files.limits import reading
from opjax.files.npz import Groups, Lazy

if TYPE_CHECKING:
    import h5py

# Filters of HDF5 whose output has a known size: shuffling, checksums and compression,
# which may be applied once.
_COMPRESSIONS = {1, 4, 32000}
_PACKED, _FILLS = ("scale_factor", "add_offset"), ("_FillValue", "missing_value")
SUFFIXES = (".h5", ".hdf5", ".hdf")
_FILTERS = {2, 3, 6} | _COMPRESSIONS


@contextlib.contextmanager
def open_hdf5(
    path: Path, max_bytes: int, *, group: str | None = None
) -> Generator[Groups]:
    """Opens a file of one sample, or of one group per sample.

    Args:
      path: the file.
      max_bytes: maximum size of an array.
      group: name of the group to open. None opens all groups.

    Raises:
      ImportError: if h5py is missing.
      ValueError: if the file is damaged or empty, or has arrays beside groups. Reading
        an array raises it if the array is too large or stored in another file.
    """
    with open_file(path) as file:
        groups = _groups(path, file, group)

        def arrays(group: "h5py.Group") -> Lazy:
            def read(name: str) -> np.ndarray:
                return dataset(path, group, name).values(max_bytes)

            return Lazy(names(path, group), read)

        yield {name: arrays(group) for name, group in groups.items()}


@contextlib.contextmanager
def open_datasets(path: Path) -> Generator[Mapping[str, "Dataset"]]:
    """Opens a file of arrays without reading them.

    Raises:
      ImportError: if h5py is missing.
      ValueError: if the file is damaged, contains anything other than arrays, or refers
        to arrays in other files.
    """
    with open_file(path) as file:
        yield {name: dataset(path, file, name) for name in names(path, file)}


@contextlib.contextmanager
def open_groups(path: Path) -> Generator[dict[str, "h5py.Group"]]:
    """Opens the groups of a file, one per sample, without reading arrays.

    Raises:
      ImportError: if h5py is missing.
      ValueError: as from `open_hdf5`.
    """
    with open_file(path) as file:
        yield _groups(path, file)


@contextlib.contextmanager
def open_writable(source: Path, path: Path) -> Generator[dict[str, "h5py.Group"]]:
    """Opens the groups of `path`, a copy of `source`, to add arrays.

    Args:
      source: the original file, for messages.
      path: its copy.
    """
    with reading(source):
        file = _h5py(path).File(path, "r+")
    try:
        yield _groups(source, file)
    finally:
        with reading(source):
            file.close()


@contextlib.contextmanager
def open_file(path: Path) -> Generator["h5py.File"]:
    """Opens a file with any content, for `names`, `member` and `dataset`.

    Raises:
      FileNotFoundError: if the file does not exist.
      ImportError: if h5py is missing.
      ValueError: if it is damaged.
    """
    h5py = _h5py(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        with reading(path):
            file = h5py.File(path, "r")
    except ValueError as error:
        raise ValueError(f"{error}{conversion.companion(path)}") from error
    with file:
        yield file


def _groups(
    path: Path, file: "h5py.File", group: str | None = None
) -> dict[str, "h5py.Group"]:
    """Returns groups of samples by name; the file itself if it is one sample."""
    h5py = _h5py(path)
    present = names(path, file)
    if group and group not in present:
        raise ValueError(f"{path} no longer has the group {group!r}.")
    members: dict[str, Any] = {
        n: member(path, file, n) for n in ([group] if group else present)
    }
    groups = {n: g for n, g in sorted(members.items()) if isinstance(g, h5py.Group)}
    if 0 < len(groups) < len(members):
        raise ValueError(
            f"{path} has groups {list(groups)[:5]} and arrays "
            f"{sorted(set(present) - set(groups))[:5]}: store the arrays of one "
            "sample at the top level, or every sample in its own group. (A name with "
            "/ creates a group: a/b is b in a; rename such "
            f"fields.){conversion.companion(path)}"
        )
    if groups and _holds_groups_alone(path, first := next(iter(groups.values()))):
        way = conversion.companion(path)
        way = way or " Store all arrays of a sample in one group at the top level."
        raise ValueError(
            f"{path}{first.name} has no arrays, only groups such as "
            f"{names(path, first)[0]}.{way}"
        )
    return groups or {"": file}


def _holds_groups_alone(path: Path, group: "h5py.Group") -> bool:
    inside = [member(path, group, name) for name in names(path, group)]
    return bool(inside) and all(isinstance(one, _h5py(path).Group) for one in inside)


def names(path: Path, group: "h5py.Group") -> list[str]:
    """Returns the names of the members of a group."""
    with reading(path):
        return list(group)


class Dataset:
    """An array stored in an HDF5 file, read when it is indexed.

    The attributes of netCDF-4 apply: values are stored ones times `scale_factor` plus
    `add_offset`, and NaN for `_FillValue` or `missing_value`.

    Attributes:
      shape: shape of the array.
      dtype: data type of the array.
      num_bytes: size of its values, uncompressed.
    """

    def __init__(self, path: Path, name: str, array: "h5py.Dataset"):
        self._path, self._name, self._array = path, name, array
        with reading(path):
            self.shape: tuple[int, ...] = tuple(map(int, array.shape))
            self.dtype: np.dtype[Any] = array.dtype
            self._packed = [_attribute(array, key) for key in _PACKED]
            self._fills = [_attribute(array, key) for key in _FILLS]
            if self._packed != [None, None]:
                self.dtype = np.dtype(np.float64)
            self.num_bytes = math.prod(self.shape) * self.dtype.itemsize
            chunk = math.prod(array.chunks or (0,)) * self.dtype.itemsize
            properties = array.id.get_create_plist()
            count = properties.get_nfilters()
            filters = [properties.get_filter(i)[0] for i in range(count)]
        limits.check_size(path, f"chunks of {name!r}", chunk, limits.limit(path))
        several = sum(code in _COMPRESSIONS for code in filters) > 1
        if several or not _FILTERS.issuperset(filters):
            raise ValueError(
                f"{path}: {name!r} is compressed by the filters {filters}; "
                "supported are gzip, lzf and szip, one at a time. Write it again."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | int | tuple[()]) -> np.ndarray:
        with reading(self._path):
            stored = values = self._array[index]
        with np.errstate(all="ignore"):
            if self._packed != [None, None]:
                factor, offset = self._packed
                values = stored * (1.0 if factor is None else factor)
                values = values + (0.0 if offset is None else offset)
            for fill in self._fills:
                if fill is None:
                    continue
                same = fill.astype(stored.dtype) if stored.dtype.kind == "f" else fill
                if (absent := stored == same).any():
                    values = np.where(absent, np.nan, values)
        return values

    def check(self, max_bytes: int) -> None:
        """Raises ValueError if the values take more than a number of bytes."""
        what = f"the values of {self._name!r}"
        limits.check_size(self._path, what, self.num_bytes, max_bytes)

    def values(self, max_bytes: int) -> np.ndarray:
        """Reads all values, if they take no more than a number of bytes."""
        self.check(max_bytes)
        if self.dtype.hasobject:
            return np.empty(self.shape, object)  # unread: its dtype is refused later
        return self[()]


def _attribute(array: "h5py.Dataset", name: str) -> np.float64 | None:
    """A number beside an array of numbers; None if there is none."""
    if array.dtype.kind not in "fiu" or name not in array.attrs:
        return None
    value = np.asarray(array.attrs[name])
    if value.size != 1 or value.dtype.kind not in "fiu":
        return None
    return np.float64(value.ravel()[0])


def dataset(path: Path, group: "h5py.Group", name: str) -> Dataset:
    """Returns an array of a group, unread.

    Args:
      path: the file, or the file with the name of the group appended.
      group: an open group.
      name: name of the array.

    Raises:
      ValueError: if the array is not stored in this file.
    """
    file = file_of(path)
    array: Any = member(path, group, name)
    stored = isinstance(array, _h5py(path).Dataset)
    if stored:
        with reading(file):
            stored = not (array.external or array.is_virtual or array.shape is None)
    if isinstance(array, _h5py(path).Group):
        raise ValueError(
            f"{path}: {name!r} is not an array stored in this file, but a group; store "
            "all arrays of a sample in one group, or at the top level."
        )
    if not stored:
        raise ValueError(
            f"{path}: {name!r} is not an array stored in this file; copy it there."
        )
    return Dataset(file, name, array)


def file_of(path: Path) -> Path:
    """Returns the file of a sample, without the name of its group."""
    while not path.is_file() and path != path.parent:
        path = path.parent
    return path


def add(path: Path, group: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Adds arrays to a file or to one of its groups; creates both if missing."""
    h5py = _h5py(path)
    with h5py.File(path, "a") as file:
        put(file.require_group(group) if group else file, arrays)


def copy_group(source: Path, path: Path, group: str) -> None:
    """Replaces a group of `path` by that of `source`, or removes it."""
    h5py = _h5py(path)
    with h5py.File(path, "a") as file:
        if group in file:
            del file[group]
        if source.is_file():
            with h5py.File(source, "r") as original:
                original.copy(group, file, name=group)


def put(group: "h5py.Group", arrays: Mapping[str, np.ndarray]) -> None:
    """Creates arrays in an open group."""
    for name, array in arrays.items():
        if "/" in name:
            raise ValueError(
                f"The field {name!r} cannot be written to an .h5 file, because / "
                "creates groups; rename it."
            )
        group.create_dataset(name, data=array)


def member(path: Path, group: "h5py.Group", name: str) -> Any:
    """Returns a group or array of this file; None for links."""
    with reading(file_of(path)):
        link = group.get(name, getlink=True)
        return group[name] if isinstance(link, _h5py(path).HardLink) else None


def _h5py(path: Path) -> Any:
    return extras.optional("h5py", path)
