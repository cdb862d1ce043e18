"""Named arrays of `.npz` and `.h5` files from anywhere, without trusting them."""

import contextlib
import math
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from opjax._files import replacing
from opjax.datasets import _files

Groups = Mapping[str, Mapping[str, np.ndarray]]


@contextlib.contextmanager
def open_npz(path: Path, max_bytes: int) -> Iterator[Groups]:
    """Opens an archive; its arrays are read when they are looked up.

    Raises:
      ValueError: if it is damaged or too large, and at a look-up if an array is
        pickled, damaged or larger than its place in the archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {
                info.filename.removesuffix(".npy"): info for info in archive.infolist()
            }
            total = sum(info.file_size for info in members.values())
            check_size(path, "its arrays", total, max_bytes)
            yield {"": _Members(path, archive, members)}
    except zipfile.BadZipFile as error:
        raise damaged(path, error) from error


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
    if group and group not in file:
        raise ValueError(f"{path} has no group {group!r} any more.")
    names = [group] if group else list(file)
    groups = [n for n in names if isinstance(_stored(file, n), h5py.Group)]
    if 0 < len(groups) < len(names):
        raise ValueError(
            f"{path} has groups {sorted(groups)[:5]} beside arrays "
            f"{sorted(set(file) - set(groups))[:5]}: put the arrays of one sample "
            "at the top, or every sample into a group of its own."
        )
    return {name: file[name] for name in sorted(groups)} or {"": file}


@contextlib.contextmanager
def open_datasets(path: Path) -> Iterator[Mapping[str, Any]]:
    """Opens a file of arrays, none of which is read.

    Raises:
      ImportError: if h5py is missing.
      ValueError: if the file is damaged, or holds something else than arrays of its
        own.
    """
    with _open_hdf5(path) as file:
        yield {name: dataset(path, file, name) for name in file}


@contextlib.contextmanager
def open_writable(source: Path, path: Path) -> Iterator[dict[str, Any]]:
    """Opens the groups of a copy of `source`, which messages name, to be added to."""
    try:
        file = _h5py(path).File(path, "r+")
    except OSError as error:
        raise damaged(source, error) from error
    with file:
        yield _groups(source, file)


def _open_hdf5(path: Path) -> Any:
    try:
        return _h5py(path).File(path, "r")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise damaged(path, error) from error


def dataset(path: str | Path, group: Any, name: str) -> Any:
    """An array of a group that is stored in this very file, unread."""
    array: Any = _stored(group, name)
    kind = _h5py(Path(path)).Dataset
    if not isinstance(array, kind) or array.external or array.is_virtual:
        raise ValueError(
            f"{path}: {name!r} is not an array stored in this file; copy it there."
        )
    return array


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
        except MemoryError:
            raise
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


class _Datasets(Mapping[str, np.ndarray]):
    """Arrays of an HDF5 group by name."""

    def __init__(self, path, group, max_bytes):
        self._path, self._group, self._max_bytes = path, group, max_bytes

    def __iter__(self) -> Iterator[str]:
        return iter(self._group)

    def __len__(self) -> int:
        return len(self._group)

    def __contains__(self, name: object) -> bool:
        return name in self._group.keys()  # noqa: SIM118 - else links are followed

    def __getitem__(self, name: str) -> np.ndarray:
        array = dataset(self._path, self._group, name)
        size = array.size * array.dtype.itemsize
        check_size(self._path, f"the values of {name!r}", size, self._max_bytes)
        if array.dtype.hasobject:
            return np.empty(array.shape, object)  # refused by its dtype, unread
        try:
            return array[()]
        except OSError as error:
            raise damaged(self._path, f"array {name!r}: {error}") from error


def _stored(group: Any, name: str) -> Any:
    """A group or array of this very file; None for links, which may leave it."""
    link = group.get(name, getlink=True)
    return group[name] if type(link).__name__ == "HardLink" else None


def _h5py(path: Path) -> ModuleType:
    return _files.optional("h5py", path)


def _put(group: Any, arrays: Mapping[str, np.ndarray]) -> None:
    for name, array in arrays.items():
        group.create_dataset(name, data=array)
