"""Mirrored copies of training cases, for problems with a symmetry."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from opjax.samples.base import AXES, SCALARS, Sample, converted, letters
from opjax.samples.fields import groups

# Components of a symmetric tensor, as VTK, OpenFOAM and CalculiX order its diagonal.
_SYMMETRIC = ("xx", "yy", "zz", "xy", "yz", "xz")
_FULL = tuple(a + b for a in AXES for b in AXES)
_NORMAL = "normal_"  # of `--geometry=normals`: normal_x_wall
# Features of named boundaries, which may be called y.
_EVEN = ("boundary_", "distance_", "layer_")
_TOUCH = 1e-6  # of the width of the box
_COPY = " mirrored in "  # in the name of a copy


class Mirror(NamedTuple):
    """A reflection along one axis.

    Attributes:
      axis: one of `AXES`.
      odd: names of scalars, and of fields of one channel, that change sign.
      turned: names of scalars that are angles with the first axis in the plane of the
        first two, and half a turn in their unit.
    """

    axis: str
    odd: tuple[str, ...] = ()
    turned: Mapping[str, float] = {}


def mirrored(
    train: Sequence[Sample], mirror: Mirror, names: Mapping[str, Sequence[str]]
) -> list[Sample]:
    """Returns a mirrored copy of every case.

    Axes are those of space, also of meshes in the plane of x and z, see `Sample.axes`.
    Coordinates are mirrored at the centre of the bounding box of all meshes, so that
    copies stay inside. Components of vectors and tensors along the axis change sign. A
    field of 3 channels, or of as many as there are dimensions, is a vector; one of 6 is
    a symmetric tensor; one of 9 (in the plane 4) is a tensor; a channel with a name
    such as `U_y`, `S_xy` or `normal_y_wall` is a component.

    Args:
      train: training cases, in physical units.
      mirror: the reflection.
      names: names of the channels, by array.

    Raises:
      ValueError: if the axis or a name is unknown, a case is on a structured grid, a
        field has another number of channels, or no case has a named boundary at its
        mirrored location.
    """
    dim = train[0].mesh_points.shape[1]
    axes = train[0].axes or tuple(range(dim))
    if AXES.index(mirror.axis) not in axes:
        raise ValueError(
            f"mirror={mirror.axis} is not an axis of the points, which have only "
            f"{dim} coordinates, along {letters(axes)}."
        )
    axis = axes.index(AXES.index(mirror.axis))
    gridded = [one.name for one in train if one.grid_shape is not None]
    if gridded:
        raise ValueError(
            f"mirror={mirror.axis}: {gridded[0]} is on a structured grid, and a "
            "mirrored copy would change the order of points; omit mirror, or pass "
            "points without grid_shape."
        )
    _check_names(mirror, names)
    low = min(float(one.mesh_points[:, axis].min()) for one in train)
    high = max(float(one.mesh_points[:, axis].max()) for one in train)
    _check_boundaries(train, mirror.axis, axis, low, high)
    _warn_of_signs(train, mirror, names)
    signs = {
        role: _signs(role, train[0], mirror, names.get(role), axes)
        for role in ("features", "target")
    }
    return [_copy(one, axis, low + high, signs, mirror, names) for one in train]


def original(name: str) -> str:
    """Returns the name of a copy's original case, or the given name.

    Examples:
      >>> from opjax.samples.mirror import original
      >>> original("plate_1.vtu mirrored in x mirrored in y")
      'plate_1.vtu'
    """
    return name.partition(_COPY)[0]


def is_copy(sample: Sample) -> bool:
    """Whether a case is a mirrored copy."""
    return _COPY in sample.name


def _copy(
    sample: Sample,
    axis: int,
    ends: float,
    signs: Mapping[str, np.ndarray | None],
    mirror: Mirror,
    names: Mapping[str, Sequence[str]],
) -> Sample:
    points = np.array(sample.mesh_points)
    points[:, axis] = ends - points[:, axis]

    def mirrored(role: str, array: np.ndarray) -> np.ndarray:
        sign = signs.get(role)
        array = np.array(array) if sign is None else array * sign.astype(array.dtype)
        for place, name in enumerate(names.get(role) or () if role in SCALARS else ()):
            array[place] = _scalar(float(array[place]), name, mirror, axis)
        return array

    numbers = sample.numbers and {
        name: _scalar(value, name, mirror, axis)
        for name, value in sample.numbers.items()
    }
    name = f"{sample.name}{_COPY}{mirror.axis}"
    changed = converted(sample, mirrored, (*signs, *SCALARS))
    return changed._replace(mesh_points=points, numbers=numbers, name=name)


def _scalar(value: float, name: str, mirror: Mirror, axis: int) -> float:
    if name in mirror.turned and axis < 2:
        half = mirror.turned[name]
        value = -value if axis else half - value
        return value if abs(value) <= half else value - 2 * half
    return -value if name in mirror.odd else value


def _signs(
    role: str,
    sample: Sample,
    mirror: Mirror,
    names: Sequence[str] | None,
    axes: Sequence[int],
) -> np.ndarray | None:
    """Signs of the channels of a field under a reflection, `(c,)`."""
    array = getattr(sample, role)
    if array is None:
        return None
    sign = np.ones(array.shape[-1])
    for name, channels in groups(names, array.shape[-1]):
        count = len(channels)
        if name in mirror.odd:
            sign[channels] = -1
            continue
        parts = _components(name, count, axes)
        if parts is None:
            raise ValueError(
                f"mirror={mirror.axis}: {name} has {count} channels, which do not "
                "form a vector or tensor; name each channel as its own field, such "
                "as U_x, or omit mirror."
            )
        odd = [part.count(mirror.axis) % 2 for part in parts]
        sign[channels] = np.where(odd, -1, 1)
    return sign


def _components(name: str, count: int, axes: Sequence[int]) -> Sequence[str] | None:
    """Axes that the channels of a field belong to: `xy` of a shear; None if unknown."""
    if count == 1:
        if name.startswith(_NORMAL):
            return (name.removeprefix(_NORMAL)[:1],)
        if name.startswith(_EVEN):
            return ("",)
        ending = name.rpartition("_")[2].lower() if "_" in name else ""
        return (ending if ending in (*AXES, *_FULL) else "",)
    own = [AXES[axis] for axis in axes]
    if count in (3, len(axes)):
        return own if count == len(axes) else tuple(AXES)
    if count == 6:
        return _SYMMETRIC
    if count == 9:
        return _FULL
    in_plane = count == 4 and len(axes) == 2
    return [a + b for a in own for b in own] if in_plane else None


def _check_names(mirror: Mirror, names: Mapping[str, Sequence[str]]) -> None:
    channels = {name for listed in names.values() for name in listed}
    for name in mirror.odd:
        if name in mirror.turned:
            raise ValueError(
                f"mirror={mirror.axis}: {name} is an angle, which is mirrored as a "
                "direction; remove it from mirror."
            )
        if name not in channels:
            raise ValueError(
                f"mirror={mirror.axis}: {name!r} is neither a scalar nor a field; "
                f"available: {', '.join(sorted(channels)) or 'none with names'}."
            )


def _check_boundaries(
    train: Sequence[Sample], axis: str, place: int, low: float, high: float
) -> None:
    """Raises ValueError if a boundary is never where the copies would have it."""
    ends: dict[str, list[tuple[float, float]]] = {}
    for one in train:
        for name, rows in (one.boundaries or {}).items():
            where = one.mesh_points[rows, place]
            if len(where):
                ends.setdefault(name, []).append((where.min(), where.max()))
    for name, pairs in ends.items():
        first, last = min(a for a, _ in pairs), max(b for _, b in pairs)
        slack = _TOUCH * (high - low)
        if low + high - first < first - slack or low + high - last > last + slack:
            raise ValueError(
                f"mirror={axis}: the boundary {name} lies at {axis} = {first:g} to "
                f"{last:g} in all cases, but would lie at {low + high - last:g} to "
                f"{low + high - first:g} in the mirrored copies, which occurs in "
                "no case. Give boundaries that mirroring swaps the same name, or "
                "omit mirror."
            )


def _warn_of_signs(
    train: Sequence[Sample], mirror: Mirror, names: Mapping[str, Sequence[str]]
) -> None:
    """Warns of scalars that change their sign and have one sign in all cases."""
    for role in SCALARS:
        for place, name in enumerate(names.get(role) or ()):
            values = [float(getattr(one, role)[place]) for one in train]
            if name in mirror.odd and (min(values) > 0 or max(values) < 0):
                warnings.warn(
                    f"mirror={mirror.axis}: {name} ranges from {min(values):g} to "
                    f"{max(values):g} in training, but has the opposite sign in "
                    "the mirrored copies, which occurs in no case. Check that it "
                    "changes its sign.",
                    stacklevel=2,
                )
