"""Samples of `.h5` files whose arrays are read and written in slices of points."""

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from opjax._files import replacing
from opjax.datasets import _own_arrays, _own_sample


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
      group: an HDF5 group that can be written to, if the file can.
      arrays: of `Sample`, by name, those that there are.
    """

    name: str
    group: Any
    arrays: dict[str, Columns]

    def add(self, names: Sequence[str]) -> "Written":
        """Makes place for fields, a name for each channel, as in `own.write`.

        Raises:
          ValueError: if a field of that name exists.
        """
        taken = sorted(set(self.group) & set(names))
        if taken:
            raise ValueError(
                f"{self.name} has fields {taken} already; choose other names."
            )
        n, columns = len(self.arrays["mesh_points"]), {}
        for name in dict.fromkeys(names):
            chosen = [i for i, other in enumerate(names) if other == name]
            shape = (n,) if len(chosen) == 1 else (n, len(chosen))
            array = self.group.create_dataset(name, shape, np.float32)
            columns[name] = array, chosen[0] if len(chosen) == 1 else chosen
        return Written(columns)


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
) -> Iterator[list[Mapped]]:
    """Copies a file, which appears when complete, and opens its samples.

    Args:
      source: an `.h5` file of one sample, or of one group for each.
      path: where the copy is to be.
      features: names of fields that together are the input function; by default
        `features`, where it exists.
      target: likewise, the output function, where all of them exist.

    Raises:
      FileNotFoundError: if the source does not exist.
      ImportError: if h5py is missing.
      OSError: if the copy cannot be written.
      ValueError: if the source is of another format or damaged, or a field is missing
        or not what it has to be.
    """
    if source.suffix.lower() != ".h5":
        raise ValueError(f"{source} is read as a whole; only .h5 files have slices.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.samefile(source):
        raise ValueError(f"{path} is the source itself; write to another folder.")
    with replacing(path) as temporary:
        shutil.copyfile(source, temporary)
        asked = {"features": tuple(features), "target": tuple(target)}
        with _own_arrays.open_writable(source, temporary) as groups:
            yield [
                Mapped(name, group, _arrays(name, group, asked))
                for name, group in (
                    (str(source / key) if key else str(source), group)
                    for key, group in groups.items()
                )
            ]


def _arrays(
    name: str, group: Any, asked: Mapping[str, tuple[str, ...]]
) -> dict[str, Columns]:
    def fields(names: Sequence[str], *, flat: bool = False) -> Columns:
        found = {key: _own_arrays.dataset(name, group, key) for key in names}
        return Columns(name, found, flat=flat)

    if "mesh_points" not in group:
        raise _own_sample.missing(name, "mesh_points", group)
    arrays = {"mesh_points": fields(["mesh_points"])}
    for key, names in asked.items():
        names = names or ((key,) if key in group else ())
        absent = [n for n in names if n not in group]
        if absent and key == "features":
            raise _own_sample.missing(name, absent[0], group)
        if names and not absent:
            arrays[key] = fields(names)
    if "quadrature_weights" in group:
        arrays["quadrature_weights"] = fields(["quadrature_weights"], flat=True)
    return arrays
