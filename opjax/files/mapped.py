"""Samples of `.h5` and `.vtu` files, read and written in slices of points."""

import contextlib
import math
import shutil
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from opjax._files import replacing
from opjax.files import building, cases, components, hdf5, limits
from opjax.files.columns import apart
from opjax.files.npz import Lazy
from opjax.files.options import DEFAULT, ReadOptions
from opjax.files.vtk import fields as vtk_fields
from opjax.files.vtk import vtu_slices, xml_files
from opjax.files.vtk.vtu_copy import Copy
from opjax.samples.fields import channels_of
from opjax.samples.sliced import Column, Numbers, Rows
from opjax.samples.stored import Place

if TYPE_CHECKING:
    import h5py

# Options that meshes in slices have.
_OPTIONS = (
    "features",
    "target",
    "scalars",
    "target_scalars",
    "point_dim",
    "need_target",
)


class Array(Rows, Protocol):
    """An array in a file, not yet read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its values."""
        ...


class Columns:
    """Fields of a file, joined along their channels and read in slices.

    Args:
      name: of the sample.
      fields: arrays of the file by name, `(n,)` or `(n, channels)`.
      flat: whether a single field keeps its shape `(n,)`.

    Raises:
      ValueError: if fields are not real-valued, or differ in number of axes or length.
    """

    def __init__(self, name: str, fields: Mapping[str, Array], *, flat: bool = False):
        self._name, self._fields, self._flat = name, dict(fields), flat
        for key, array in self._fields.items():
            building.check_numbers(name, key, array.dtype)
            if len(array.shape) not in ((1,) if flat else (1, 2)):
                raise ValueError(f"{name}: {key} has shape {array.shape}, not (n, c).")
        lengths = {array.shape[0] for array in self._fields.values()}
        if len(lengths) > 1:
            raise ValueError(
                f"{name}: the fields {', '.join(fields)} have different numbers of "
                f"rows, {sorted(lengths)}."
            )
        channels = sum(math.prod(a.shape[1:]) for a in self._fields.values())
        self.shape = (lengths.pop(),) if flat else (lengths.pop(), channels)

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The name of the field for each channel."""
        return tuple(
            name
            for name, array in self._fields.items()
            for _ in range(math.prod(array.shape[1:]))
        )

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of space of coordinates, see `Sample`."""
        (first, *_) = self._fields.values()
        return getattr(first, "axes", ())

    def __getitem__(self, rows: slice) -> np.ndarray:
        parts = []
        for key, array in self._fields.items():
            part = building.numbers(self._name, key, array[rows])
            parts.append(part if self._flat else part.reshape(len(part), -1))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


class Mapped(NamedTuple):
    """A sample in a file, read in slices.

    Attributes:
      name: the file, with the group.
      arrays: arrays of the `Sample` by name, without missing ones. Scalars are
        `Numbers`.
      present: names of all arrays of the file.
      create: allocates float32 arrays in the copy, from names and shapes.
    """

    name: str
    arrays: dict[str, Column]
    present: Collection[str]
    create: Callable[[dict[str, tuple[int, ...]]], Mapping[str, Any]]

    def add(self, names: Sequence[str]) -> "Written":
        """Allocates fields in the copy; may be called only once.

        Args:
          names: one name per channel, as for `files.write`.

        Returns:
          The fields, which are written in slices.

        Raises:
          OSError: if the file cannot be written.
          ValueError: if a field of that name exists, or the file is damaged.
        """
        taken = sorted(set(self.present) & set(names))
        if taken:
            raise ValueError(
                f"{self.name} already has the fields {taken}; choose other names."
            )
        n, shapes, channels = len(self.arrays["mesh_points"]), {}, {}
        for name, chosen in channels_of(names).items():
            shapes[name] = (n,) if len(chosen) == 1 else (n, len(chosen))
            channels[name] = chosen[0] if len(chosen) == 1 else chosen
        made = self.create(shapes)
        return Written({name: (made[name], channels[name]) for name in shapes})


class Written(NamedTuple):
    """Fields that are written in slices, with the channels of each."""

    columns: dict[str, tuple[Any, Any]]

    def put(self, start: int, values: np.ndarray, *, first: int = 0) -> None:
        """Writes channels at the points `start` to `start + m`.

        Args:
          start: the first point.
          values: of whole fields, `(m, q)`.
          first: channel that they begin with; fields without one of them are left out.
        """
        for array, chosen in self.columns.values():
            channels = np.asarray(chosen) - first
            if channels.min() >= 0 and channels.max() < values.shape[1]:
                array[start : start + len(values)] = values[:, channels]


@contextlib.contextmanager
def copied(
    source: Path, path: Path, options: ReadOptions = DEFAULT
) -> Generator[list[Mapped]]:
    """Copies a file and opens its samples to add fields.

    The copy is created when the context ends without an error.

    Args:
      source: an `.h5` file of one sample or of one group per sample, or a `.vtu` file.
      path: the copy.
      options: content of a sample; fields must be point data.

    Raises:
      FileNotFoundError: if the source does not exist.
      ImportError: if h5py is missing.
      OSError: if the copy cannot be written.
      ValueError: if the source has another format or is damaged, a field is missing or
        invalid, or an option does not support slices. Reading a slice raises it, too.
    """
    suffix = source.suffix.lower()
    if suffix not in _OPENED:
        suffixes = ".h5 and .vtu"
        raise ValueError(
            f"{source} cannot be read in slices; only {suffixes} files can."
        )
    if options.point_dim is not None and suffix != ".vtu":
        raise ValueError(
            f"point_dim={options.point_dim} has no effect on {source}, only on .vtu "
            "files; omit it."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.samefile(source):
        raise ValueError(f"{path} is the source file; write to another folder.")
    with (
        replacing(path) as temporary,
        _OPENED[suffix](source, temporary, options) as samples,
    ):
        yield samples


@contextlib.contextmanager
def _hdf5(source: Path, path: Path, options: ReadOptions) -> Generator[list[Mapped]]:
    def mapped(key: str, group: "h5py.Group") -> Mapped:
        def lookup(field: str) -> Array:
            return hdf5.dataset(Path(name), group, field)

        def create(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
            with limits.reading(source):
                return {
                    field: group.create_dataset(field, shape, np.float32)
                    for field, shape in shapes.items()
                }

        place = Place(str(source), key)
        name, present = place.name, set(hdf5.names(source, group))
        arrays = columns(place, present, lookup, options)
        return Mapped(name, arrays, present, create)

    shutil.copyfile(source, path)
    with hdf5.open_writable(source, path) as groups:
        yield [mapped(key, group) for key, group in groups.items()]


@contextlib.contextmanager
def _vtu(source: Path, path: Path, options: ReadOptions) -> Generator[list[Mapped]]:
    with vtu_slices.open_mesh(source) as mesh, open(path, "wb") as file:
        arrays = fields_of(source, mesh, options)
        place = Place(str(source), "")
        by_role = columns(place, arrays, arrays.__getitem__, options)
        copy = Copy(file, mesh)
        yield [Mapped(str(source), by_role, set(arrays), copy.create)]
        copy.check()


def fields_of(
    file: Path, mesh: vtu_slices.SlicedMesh, options: ReadOptions
) -> Mapping[str, Array]:
    """Point arrays of a `.vtu` file, read in slices, by name."""
    axes = vtk_fields.axes(file, *mesh.ranges(), options.point_dim)
    return mesh.fields | {"mesh_points": vtu_slices.Axes(mesh.points, axes)}


_OPENED = {**dict.fromkeys(hdf5.SUFFIXES, _hdf5), ".vtu": _vtu}


def columns(
    place: Place,
    present: Collection[str],
    lookup: Callable[[str], Array],
    options: ReadOptions,
) -> dict[str, Column]:
    """Selects the arrays of a sample from the arrays of a file.

    Args:
      place: location of the sample.
      present: names of all arrays of the file.
      lookup: function that returns an array by name.
      options: content of a sample.

    Returns:
      The available arrays of `Sample`, without targets if one is missing.

    Raises:
      ValueError: if `mesh_points`, a feature or a scalar is missing, an array is
        invalid, or an option does not support slices.
    """
    options.check_only(_OPTIONS, "meshes that are read in slices")
    name = place.name

    def fields(names: Sequence[str], *, flat: bool = False) -> Columns:
        return Columns(name, {key: lookup(key) for key in names}, flat=flat)

    if "mesh_points" not in present:
        shapes = {key: np.broadcast_to(0, lookup(key).shape) for key in present}
        missing = building.missing(name, "mesh_points", present)
        raise apart(name, shapes) or missing
    arrays: dict[str, Column] = {"mesh_points": fields(["mesh_points"])}
    for key, asked in {"features": options.features, "target": options.target}.items():
        names = asked or ((key,) if key in present else ())
        absent = [n for n in names if n not in present]
        parts = [n for n in absent if components.split(n, present)]
        if absent and (key == "features" or (parts and options.need_target)):
            raise building.missing(name, (parts or absent)[0], present)
        if names and not absent:
            arrays[key] = fields(names)
    if "quadrature_weights" in present:
        arrays["quadrature_weights"] = fields(["quadrature_weights"], flat=True)
    if not options.has_scalars:
        return arrays
    file = Path(place.file)
    numbers = _numbers(file, present, lookup)
    row = cases.row_of(file, place.group, named=True)
    for key, names in {
        "scalars": options.scalars,
        "target_scalars": options.target_scalars,
    }.items():
        needed = key == "scalars" or options.need_target
        values = cases.read(name, numbers, row, names, needed=needed)
        if values is not None:
            arrays[key] = Numbers(values, names)
    return arrays


def _numbers(
    file: Path, present: Collection[str], lookup: Callable[[str], Array]
) -> Lazy:
    """Arrays of one number; of larger ones type and shape are known and no values."""
    vtk = file.suffix.lower() == ".vtu"
    data = xml_files.field_data(file) if vtk else dict[str, np.ndarray]()

    def read(key: str) -> np.ndarray:
        if key in data:
            return data[key]
        array: Any = lookup(key)
        if math.prod(array.shape) == 1:
            return np.asarray(array[:] if len(array.shape) else array[()])
        return np.broadcast_to(np.zeros((), array.dtype), array.shape)

    return Lazy([*data, *present], read)
