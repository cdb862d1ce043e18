"""Components and invariants of fields by name: `U_x`, `S:mises`.

A vector `U` has the components `U_x`, `U_y`, `U_z` and the invariant `U:mag`. A
symmetric tensor `S` with six channels has `S_xx`, `S_yy`, `S_zz`, `S_xy`, `S_yz`,
`S_xz` in this order, which is the order of VTK, foamToVTK and CalculiX. If the file
names its components, its order applies, and its names are valid too: `S_Principal_Max`.
A tensor with nine channels has `T_xx`, `T_xy`, `T_xz`, `T_yx`, ... row by row. Tensors
also have `:mag`, `:mises`, `:trace` and `:pressure`, which is minus a third of the
trace.
"""

import dataclasses
import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opjax.files.npz import Arrays
from opjax.files.vtk.fields import MeshArrays
from opjax.files.vtk.mesh import NamedArrays

# Axes of the components by the number of channels.
_AXES = {
    2: ("x", "y"),
    3: ("x", "y", "z"),
    6: ("xx", "yy", "zz", "xy", "yz", "xz"),
    9: ("xx", "xy", "xz", "yx", "yy", "yz", "zx", "zy", "zz"),
}
_OF_VECTORS = ("mag",)
_OF_TENSORS = ("mag", "mises", "trace", "pressure")
_NUMBERED = re.compile(r"\d*")
_AXIS = str.maketrans("123", "xyz")

Labels = Sequence[str]  # what a file calls the channels of an array; may be empty


def listed(field: str, channels: int, labels: Labels = ()) -> tuple[str, ...]:
    """Lists the names of the components and invariants of a field.

    Args:
      field: name of the field.
      channels: number of channels.
      labels: component names in the file.
    """
    axes = _AXES.get(channels, ())
    own = [one for one in labels if "".join(sorted(one.lower())) not in axes]
    parts = [f"{field}_{key}" for key in (*axes, *own)]
    return (*parts, *(f"{field}:{key}" for key in _invariants(channels)))


def split(name: str, fields: Iterable[str]) -> tuple[str, str] | None:
    """Splits `U_x` or `U:mag` into the name of a field and its component.

    Returns:
      The longest matching name of a field and the rest of the text, with `:` before an
      invariant; None if no field matches.
    """
    whole = [f for f in fields if name.startswith((f"{f}_", f"{f}:"))]
    if not whole:
        return None
    field = max(whole, key=len)
    return field, name[len(field) :].removeprefix("_")


def component(values: Any, part: str, labels: Labels = ()) -> Any:
    """Computes a component or an invariant of a field.

    Args:
      values: values of the field, `(..., channels)`; an array of NumPy or JAX.
      part: `x`, `xy` or one of the labels, case-insensitive; or `:mises`.
      labels: channel names in the file; if empty, the order of the module docstring
        applies.

    Returns:
      The values `(...,)` in the dtype of the field; None if it has no such component.

    Raises:
      ValueError: if the labels do not identify the required axes.
    """
    channels = values.shape[-1]
    key = part.lower()
    if not part.startswith(":"):
        own = [label.lower() for label in labels]
        if key in own:
            return values[..., own.index(key)]
        if key not in _AXES.get(channels, ()):
            return None
        return values[..., _order(channels, labels)[key]]
    if key[1:] not in _invariants(channels):
        return None
    order = _order(channels, labels)
    if isinstance(values, jax.Array):  # in the precision of JAX
        return _INVARIANTS[key[1:]]({k: values[..., i] for k, i in order.items()})
    axes = {k: values[..., i].astype(np.float64) for k, i in order.items()}
    return _INVARIANTS[key[1:]](axes).astype(np.result_type(values.dtype, np.float32))


def with_components(arrays: Arrays, names: Iterable[str], *, axes: int = 1) -> Arrays:
    """Returns the arrays of a file with components and invariants by name.

    Args:
      arrays: arrays of the file; an array with the name of a component takes
        precedence.
      names: requested names.
      axes: number of axes before the channels, such as grid axes or time.
    """
    names = set(names)
    if not isinstance(arrays, MeshArrays):
        return _Computed(arrays, names, {}, axes)
    mesh = arrays.mesh
    points, cells = (
        _extended(data, names) for data in (mesh.point_data, mesh.cell_data)
    )
    mesh = dataclasses.replace(mesh, point_data=points, cell_data=cells)
    extended = MeshArrays(mesh, points.arrays | arrays)
    extended.plane = arrays.plane
    return extended


def _extended(data: NamedArrays, names: Collection[str]) -> NamedArrays:
    for key in sorted({*names} & {*data.arrays}):
        _warn_of_order(key, data.labels.get(key, ()))
    computed = _Computed(data.arrays, names, data.labels, 1)
    more = {key: computed[key] for key in names if key in computed}
    return dataclasses.replace(data, arrays=data.arrays | more)


def _warn_of_order(field: str, labels: Labels) -> None:
    """Warns of a tensor read whole, in another order than that of the module."""
    try:
        order = _order(6, labels) if len(labels) == 6 else {}
    except ValueError:
        return  # the file has names of its own
    if list(order.values()) != list(range(len(order))):
        warnings.warn(
            f"The channels of {field} are {', '.join(labels)}. Quantities of a "
            f"predicted {field} would interpret them as {', '.join(_AXES[6])}; "
            f"predict the components {field}_xx or {field}:mises instead.",
            stacklevel=4,
        )


class _Computed(Arrays):
    """Arrays, and components of them, which are computed when looked up."""

    def __init__(
        self,
        arrays: Arrays,
        names: Collection[str],
        labels: Mapping[str, Labels],
        axes: int,
    ):
        self._arrays, self._names = arrays, names
        self._labels, self._axes = labels, axes

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __contains__(self, name: object) -> bool:
        if name in self._arrays or name not in self._names:
            return name in self._arrays
        return self._component(str(name)) is not None

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self._arrays:
            return self._arrays[name]
        found = self._component(name) if name in self._names else None
        if found is None:
            raise KeyError(name)
        return found

    def _component(self, name: str) -> np.ndarray | None:
        parts = split(name, self._arrays)
        if parts is None:
            return None
        field, part = parts
        array = np.asarray(self._arrays[field])
        if array.dtype.kind not in "fiu" or array.ndim != self._axes + 1:
            return None
        try:
            return component(array, part, self._labels.get(field, ()))
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from None


def note(name: str, arrays: Iterable[str]) -> str:
    """Lists the components of a field, for the error about an unknown name.

    Args:
      name: the unknown name.
      arrays: arrays of the file.

    Returns:
      A sentence with a leading space; empty if the name does not start with a field.
    """
    parts = split(name, arrays) if isinstance(arrays, Mapping) else None
    if parts is None or not isinstance(arrays, Mapping) or name == "mesh_points":
        return ""
    field, shape = parts[0], np.shape(arrays[parts[0]])
    labels: Labels = ()
    if isinstance(arrays, MeshArrays):
        labels = arrays.mesh.point_data.labels.get(field, ())
        labels = labels or arrays.mesh.cell_data.labels.get(field, ())
    channels = shape[-1] if len(shape) > 1 else 1
    names = listed(field, channels, labels)
    if name in names:  # where components are not computed
        return f" It is a component of {field}, which is read as a whole here."
    if names:
        return f" The components of {field} are {', '.join(names)}."
    many = "one channel" if channels == 1 else f"{channels} channels"
    return f" {field} has {many}, and so no components with names."


def _invariants(channels: int) -> tuple[str, ...]:
    return {2: _OF_VECTORS, 3: _OF_VECTORS, 6: _OF_TENSORS, 9: _OF_TENSORS}.get(
        channels, ()
    )


def _order(channels: int, labels: Labels) -> dict[str, int]:
    """Where the channel of each pair of axes is."""
    axes = _AXES[channels]
    usual = {key: i for i, key in enumerate(axes)}
    if channels < 6 or not any(labels) or all(map(_NUMBERED.fullmatch, labels)):
        return usual
    ends = [label.lower().translate(_AXIS)[-2:] for label in labels]
    ends = ["".join(sorted(end)) if channels == 6 else end for end in ends]
    if sorted(ends) != sorted(axes):
        raise ValueError(
            f"its channels in the file are {', '.join(labels)}, expected names "
            f"that end with {', '.join(axes)}, so the axes of the channels are "
            "unknown. Use the component names of the file, or write arrays with "
            "one channel."
        )
    return {key: ends.index(key) for key in axes}


def _mag(of: Mapping[str, Any]) -> Any:
    """Square root of the sum of squares; sides of symmetric tensors count twice."""
    twice = "yx" not in of
    squares = [
        (1 + (twice and len(set(key)) == 2)) * value**2 for key, value in of.items()
    ]
    return _root(sum(squares))


def _trace(of: Mapping[str, Any]) -> Any:
    return of["xx"] + of["yy"] + of["zz"]


def _mises(of: Mapping[str, Any]) -> Any:
    xx, yy, zz = of["xx"], of["yy"], of["zz"]
    shear = [(of[a] + of.get(a[::-1], of[a])) / 2 for a in ("xy", "yz", "xz")]
    squares = (xx - yy) ** 2 + (yy - zz) ** 2 + (zz - xx) ** 2
    return _root(squares / 2 + 3 * sum(side**2 for side in shear))


def _root(squares: Any) -> Any:
    """Square root; zero, with a gradient of zero, where JAX traces a zero."""
    if isinstance(squares, jax.Array):
        positive = squares > 0
        return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1)), 0)
    return np.sqrt(squares)


_INVARIANTS = {
    "mag": _mag,
    "mises": _mises,
    "trace": _trace,
    "pressure": lambda of: -_trace(of) / 3,
}
