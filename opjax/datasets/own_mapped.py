"""Samples of `.h5` and `.vtu` files, read and written in slices of points."""

import contextlib
import math
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax._files import replacing
from opjax.datasets import _own_arrays, _own_sample, _own_vtu, _vtu_slices
from opjax.datasets._vtu_copy import Copy


class Columns:
    """Fields of a file side by side, in single precision, read where they are sliced.

    Args:
      name: of the sample.
      fields: arrays of the file by name, `(n,)` or `(n, channels)`.
      flat: whether one field of shape `(n,)` stays what it is.

    Raises:
      ValueError: if they have not real numbers, other axes, or different lengths.
    """

    def __init__(self, name: str, fields: Mapping[str, Any], *, flat: bool = False):
        self._name, self._fields, self._flat = name, dict(fields), flat
        for key, array in self._fields.items():
            _own_sample.check_numbers(name, key, array.dtype)
            if len(array.shape) not in ((1,) if flat else (1, 2)):
                raise ValueError(f"{name}: {key} has shape {array.shape}, not (n, c).")
        lengths = {array.shape[0] for array in self._fields.values()}
        if len(lengths) > 1:
            raise ValueError(
                f"{name}: {', '.join(fields)} have {sorted(lengths)} rows."
            )
        channels = sum(math.prod(a.shape[1:]) for a in self._fields.values())
        self.shape = (lengths.pop(),) if flat else (lengths.pop(), channels)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        parts = []
        for key, array in self._fields.items():
            part = _own_sample.numbers(self._name, key, array[rows])
            parts.append(part if self._flat else part.reshape(len(part), -1))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Mapped(NamedTuple):
    """A sample in a file.

    Attributes:
      name: the file, with the group.
      arrays: of `Sample`, by name, those that there are.
      present: names of all arrays of the file.
      create: makes room for arrays of float32 with these names and shapes.
    """

    name: str
    arrays: dict[str, Columns]
    present: Collection[str]
    create: Callable[[dict[str, tuple[int, ...]]], Mapping[str, Any]]

    def add(self, names: Sequence[str]) -> "Written":
        """Makes room for fields, a name for each channel, as in `own.write`; once.

        Raises:
          OSError: if the file cannot be written.
          ValueError: if a field of that name exists, or the file is damaged.
        """
        taken = sorted(set(self.present) & set(names))
        if taken:
            raise ValueError(
                f"{self.name} has fields {taken} already; choose other names."
            )
        n, shapes, channels = len(self.arrays["mesh_points"]), {}, {}
        for name in dict.fromkeys(names):
            chosen = [i for i, other in enumerate(names) if other == name]
            shapes[name] = (n,) if len(chosen) == 1 else (n, len(chosen))
            channels[name] = chosen[0] if len(chosen) == 1 else chosen
        made = self.create(shapes)
        return Written({name: (made[name], channels[name]) for name in shapes})


class Written(NamedTuple):
    """Fields that are written in slices, and which channels each has."""

    columns: dict[str, tuple[Any, Any]]

    def put(self, start: int, values: np.ndarray) -> None:
        """Writes channels `(m, q)` of the points from `start` on."""
        for array, chosen in self.columns.values():
            array[start : start + len(values)] = values[:, chosen]


@contextlib.contextmanager
def copied(
    source: Path,
    path: Path,
    *,
    features: Sequence[str] = (),
    target: Sequence[str] = (),
    point_dim: int | None = None,
) -> Iterator[list[Mapped]]:
    """Copies a file, which appears when complete, and opens its samples.

    Args:
      source: an `.h5` file of one sample, or of one group for each; or a `.vtu` file.
      path: where the copy is to be.
      features: names of fields that together are the input function; by default
        `features`, where it exists.
      target: likewise, the output function, where all of them exist.
      point_dim: of `.vtu` files, as for `own.read`.

    Raises:
      FileNotFoundError: if the source does not exist.
      ImportError: if h5py is missing.
      OSError: if the copy cannot be written.
      ValueError: if the source is of another format or damaged, or a field is missing
        or not what it has to be; likewise when slices are read.
    """
    suffix = source.suffix.lower()
    if suffix not in _OPENED:
        known = " and ".join(_OPENED)
        raise ValueError(
            f"{source} is read as a whole; only {known} files have slices."
        )
    if point_dim is not None and suffix != ".vtu":
        raise ValueError(f"{point_dim=} means nothing for {source}; leave it out.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.samefile(source):
        raise ValueError(f"{path} is the source itself; write to another folder.")
    asked = {"features": tuple(features), "target": tuple(target)}
    with (
        replacing(path) as temporary,
        _OPENED[suffix](source, temporary, asked, point_dim) as samples,
    ):
        yield samples


@contextlib.contextmanager
def _hdf5(
    source: Path, path: Path, asked: Mapping[str, tuple[str, ...]], _: None
) -> Iterator[list[Mapped]]:
    def mapped(key: str, group: Any) -> Mapped:
        def lookup(field: str) -> Any:
            return _own_arrays.dataset(name, group, field)

        def create(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
            with _own_arrays.reading(source):
                return {
                    field: group.create_dataset(field, shape, np.float32)
                    for field, shape in shapes.items()
                }

        name = str(source / key) if key else str(source)
        present = set(_own_arrays.names(source, group))
        arrays = _arrays(name, present, lookup, asked)
        return Mapped(name, arrays, present, create)

    shutil.copyfile(source, path)
    with _own_arrays.open_writable(source, path) as groups:
        yield [mapped(key, group) for key, group in groups.items()]


@contextlib.contextmanager
def _vtu(
    source: Path,
    path: Path,
    asked: Mapping[str, tuple[str, ...]],
    point_dim: int | None,
) -> Iterator[list[Mapped]]:
    with _vtu_slices.open_mesh(source) as mesh, open(path, "wb") as file:
        axes = _own_vtu.axes(source, *mesh.ranges(), point_dim)
        found = mesh.fields | {"mesh_points": _vtu_slices.Axes(mesh.points, axes)}
        arrays = _arrays(str(source), found, found.__getitem__, asked)
        copy = Copy(file, mesh)
        yield [Mapped(str(source), arrays, set(found), copy.create)]
        copy.check()


_OPENED = {".h5": _hdf5, ".vtu": _vtu}


def _arrays(
    name: str,
    present: Collection[str],
    lookup: Callable[[str], Any],
    asked: Mapping[str, tuple[str, ...]],
) -> dict[str, Columns]:
    def fields(names: Sequence[str], *, flat: bool = False) -> Columns:
        return Columns(name, {key: lookup(key) for key in names}, flat=flat)

    if "mesh_points" not in present:
        raise _own_sample.missing(name, "mesh_points", present)
    arrays = {"mesh_points": fields(["mesh_points"])}
    for key, names in asked.items():
        names = names or ((key,) if key in present else ())
        absent = [n for n in names if n not in present]
        if absent and key == "features":
            raise _own_sample.missing(name, absent[0], present)
        if names and not absent:
            arrays[key] = fields(names)
    if "quadrature_weights" in present:
        arrays["quadrature_weights"] = fields(["quadrature_weights"], flat=True)
    return arrays
