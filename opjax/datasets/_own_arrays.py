"""Named arrays of `.npz` and `.h5` files from anywhere, without trusting them."""

import contextlib
import math
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.lib import format as npy

from opjax._files import replacing
from opjax.datasets import _archives, _files
from opjax.datasets._archives import Groups, check_size, damaged

# Ways of HDF5 to store chunks that are known to be bounded: shuffled, with a checksum,
# and compressed, once.
_COMPRESSIONS = {1, 4, 32000}
_FILTERS = {2, 3, 6} | _COMPRESSIONS


@contextlib.contextmanager
def open_hdf5(
    path: Path, max_bytes: int, *, group: str | None = None
) -> Iterator[Groups]:
    """Opens a file of one sample, or of one group for each sample.

    Args:
      path: the file.
      max_bytes: largest size of an array.
      group: the only one that is wanted; None for all.

    Raises:
      ImportError: if h5py is missing.
      ValueError: if the file is damaged, empty, or has arrays beside groups, and at a
        look-up if an array is too large or stored elsewhere.
    """
    with _open_hdf5(path) as file:
        found = _groups(path, file, group)
        yield {n: _Datasets(path, g, max_bytes) for n, g in found.items()}


def _groups(path: Path, file: Any, group: str | None = None) -> dict[str, Any]:
    """Groups of samples by name, all or one; the file itself if it is one sample."""
    h5py: Any = _h5py(path)
    present = names(path, file)
    if group and group not in present:
        raise ValueError(f"{path} has no group {group!r} any more.")
    wanted = {n: _stored(path, file, n) for n in ([group] if group else present)}
    groups = {n: g for n, g in sorted(wanted.items()) if isinstance(g, h5py.Group)}
    if 0 < len(groups) < len(wanted):
        raise ValueError(
            f"{path} has groups {list(groups)[:5]} beside arrays "
            f"{sorted(set(present) - set(groups))[:5]}: put the arrays of one sample "
            "at the top, or every sample into a group of its own."
        )
    return groups or {"": file}


def names(path: str | Path, group: Any) -> list[str]:
    """Names of what is in a group."""
    with reading(path):
        return list(group)


@contextlib.contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Raises ValueError for whatever HDF5 meets in a damaged file."""
    try:
        yield
    except Exception as error:  # h5py makes one of many kinds of its error codes
        raise damaged(Path(path), error) from error


@contextlib.contextmanager
def open_datasets(path: Path) -> Iterator[Mapping[str, Any]]:
    """Opens a file of arrays, none of which is read.

    Raises:
      ImportError: if h5py is missing.
      ValueError: if the file is damaged, or holds something else than arrays of its
        own.
    """
    with _open_hdf5(path) as file:
        yield {name: dataset(path, file, name) for name in names(path, file)}


@contextlib.contextmanager
def open_writable(source: Path, path: Path) -> Iterator[dict[str, Any]]:
    """Opens the groups of a copy of `source`, which messages name, to be added to."""
    with reading(source):
        file = _h5py(path).File(path, "r+")
    try:
        yield _groups(source, file)
    finally:
        with reading(source):
            file.close()


@contextlib.contextmanager
def _open_hdf5(path: Path) -> Iterator[Any]:
    h5py: Any = _h5py(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    with reading(path):
        file = h5py.File(path, "r")
    with file:
        yield file


class Dataset:
    """An array of an HDF5 file that is stored there, read where it is indexed."""

    def __init__(self, path: Path, name: str, array: Any):
        self._path, self._name, self._array = path, name, array
        with reading(path):
            self.shape, self.dtype = tuple(map(int, array.shape)), array.dtype
            self.size = math.prod(self.shape)
            self.num_bytes = self.size * self.dtype.itemsize
            chunk = math.prod(array.chunks or (0,)) * self.dtype.itemsize
            properties = array.id.get_create_plist()
            count = properties.get_nfilters()
            filters = [properties.get_filter(i)[0] for i in range(count)]
        check_size(path, f"chunks of {name!r}", chunk, _archives.limit(path))
        several = sum(code in _COMPRESSIONS for code in filters) > 1
        if several or not _FILTERS.issuperset(filters):
            raise ValueError(
                f"{path}: {name!r} is compressed by filters {filters}; read are gzip, "
                "lzf or szip, once. Write it again."
            )

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        with reading(self._path):
            return self._array[index]


def dataset(path: str | Path, group: Any, name: str) -> Dataset:
    """An array of a group that is stored in this very file, unread."""
    array: Any = _stored(path, group, name)
    stored = isinstance(array, _h5py(Path(path)).Dataset)
    if stored:
        with reading(file_of(path)):
            stored = not (array.external or array.is_virtual or array.shape is None)
    if not stored:
        raise ValueError(
            f"{path}: {name!r} is not an array stored in this file; copy it there."
        )
    return Dataset(file_of(path), name, array)


def file_of(path: str | Path) -> Path:
    """The file of a sample whose name may go on with its group."""
    path = Path(path)
    while not path.is_file() and path != path.parent:
        path = path.parent
    return path


def write_npz(
    path: Path,
    source: Path | None,
    arrays: Mapping[str, np.ndarray],
    fields: Mapping[str, np.ndarray],
) -> None:
    """Writes arrays, those of `source` as they are, and fields to a new archive."""
    with replacing(path) as temporary:
        if source is not None:
            shutil.copyfile(source, temporary)
        with zipfile.ZipFile(temporary, "a", zipfile.ZIP_DEFLATED) as archive:
            for name, array in {**({} if source else arrays), **fields}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), allow_pickle=False)


def write_hdf5(
    path: Path,
    source: Path | None,
    group: str,
    arrays: Mapping[str, np.ndarray],
    fields: Mapping[str, np.ndarray],
) -> None:
    """Writes arrays, or those of `source`, and fields to a file or one of its groups.

    A file of one sample appears when complete; groups are added to an existing file.
    """
    h5py: Any = _h5py(path)
    if group:
        with h5py.File(path, "a") as file:
            if group in file:
                del file[group]
            if source is None:
                _put(file.create_group(group), arrays)
            else:
                with h5py.File(source, "r") as original:
                    original.copy(group, file, name=group)
            _put(file[group], fields)
        return
    with replacing(path) as temporary:
        if source is not None:
            shutil.copyfile(source, temporary)
        with h5py.File(temporary, "a") as file:
            _put(file, {} if source else arrays)
            _put(file, fields)


class _Datasets(Mapping[str, np.ndarray]):
    """Arrays of an HDF5 group by name."""

    def __init__(self, path, group, max_bytes):
        self._path, self._group, self._max_bytes = path, group, max_bytes
        self._names = names(path, group)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __getitem__(self, name: str) -> np.ndarray:
        array, what = dataset(self._path, self._group, name), f"the values of {name!r}"
        check_size(self._path, what, array.num_bytes, self._max_bytes)
        if array.dtype.hasobject:
            return np.empty(array.shape, object)  # refused by its dtype, unread
        return array[()]


def _stored(path: str | Path, group: Any, name: str) -> Any:
    """A group or array of this very file; None for links, which may leave it."""
    with reading(file_of(path)):
        link = group.get(name, getlink=True)
        return group[name] if type(link).__name__ == "HardLink" else None


def _h5py(path: Path) -> ModuleType:
    return _files.optional("h5py", path)


def _put(group: Any, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        group.create_dataset(name, data=array)
