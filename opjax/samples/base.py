"""A sample, the splits of a benchmark, and consistency checks."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from opjax.samples import layout

FIELDS = ("mesh_points", "features", "target", "quadrature_weights")
# Numbers of a sample as a whole, which have no points.
SCALARS = ("scalars", "target_scalars")
ARRAYS = (*FIELDS, *SCALARS)
AXES = "xyz"  # of space


class Patch(NamedTuple):
    """Quadrature rule on a named boundary: `sum_i w_i f(row_i) ~ int f dA`.

    Attributes:
      rows: indices of the rows of the sample, `(r,)`; cells may be repeated.
      areas: weights that sum to the area (length in the plane), `(r,)`.
      area_vectors: contributions to `int n dA`, oriented out of the fluid, `(r, p)`.
      centers: points of application, `(r, p)`.
      open_edges: number of edges (ends in the plane) without a neighbour in the
        boundary; 0 if it is closed.
      surface: cell type of a surface mesh, whose areas have no defined orientation if
        it is open; empty for the boundary of a mesh.
      axes: axes of space that the mesh uses, in order; empty for the first ones.
      facets: corners of the facets, `(m, corners)`, for a rule at the points of a mesh.

    Examples:
      >>> import numpy as np
      >>> from opjax.samples import Patch
      >>> area_vectors = np.array([[0.0, -0.5], [0.0, -0.5]])
      >>> centers = np.array([[0.25, 0.0], [0.75, 0.0]])
      >>> wall = Patch(np.array([0, 1]), np.array([0.5, 0.5]), area_vectors, centers)
      >>> float(wall.areas.sum())  # its length
      1.0
    """

    rows: np.ndarray
    areas: np.ndarray
    area_vectors: np.ndarray
    centers: np.ndarray
    open_edges: int = 0
    surface: str = ""
    axes: tuple[int, ...] = ()
    facets: np.ndarray | None = None


def check_plane(
    first: str, axes: tuple[int, ...], second: str, others: tuple[int, ...]
) -> None:
    """Raises ValueError, naming both meshes, if they vary along other axes of space.

    Args:
      first: name of a mesh.
      axes: its axes, see `Sample`; empty if unknown.
      second: name of the other mesh.
      others: its axes.
    """
    if axes and others and axes != others:
        raise ValueError(
            f"{first} varies along {letters(axes)}, but {second} along "
            f"{letters(others)}: all meshes must lie in the same plane. Rotate them "
            "into it, or train on three-dimensional points, point_dim=3 "
            "(--point_dim=3)."
        )


def letters(axes: Sequence[int]) -> str:
    """Returns the names of axes of space for messages.

    Examples:
      >>> from opjax.samples import base
      >>> base.letters((0, 2))
      'x and z'
    """
    return " and ".join(AXES[axis] for axis in axes)


class Sample(NamedTuple):
    """One pair of functions on one mesh, on the host.

    Attributes:
      mesh_points: coordinates, shape `(n, p)`.
      target: values of the output function, `(n, q)`; integers, shape `(n,)`, for the
        classes of a segmentation; None if unknown.
      features: values of the input function, `(n, c)`; None if the mesh is the only
        input.
      quadrature_weights: non-negative weights of the points, `(n,)`; None stands for `1
        / n` each.
      cells: point indices of the mesh's cells, `(m, corners)`, for figures and output
        files.
      grid_shape: points per axis, if the points are a structured grid in row-major
        order.
      name: name in messages.
      target_grid: points per axis of the target, if it is not at the mesh points but on
        a separate grid; its rows are then the points of that grid.
      details: further data for the evaluation.
      boundaries: sorted indices of the points of each named boundary; indices of the
        cells if the points of the sample are cell centroids.
      scalars: scalar inputs of the sample, such as a load or an angle, `(s,)`; None if
        there are none.
      target_scalars: scalars to predict, `(t,)`; None if there are none or they are
        unknown.
      patches: quadrature rules on each named boundary, if its facets were requested;
        for a surface mesh, the whole surface has the name `""`.
      numbers: further scalars of the sample by name, such as a load, that fields are
        scaled by; they are not model inputs.
      axes: axes of space that the coordinates are along, in order: `(0, 2)` in the
        plane of x and z; empty if unknown, which stands for the first ones.

    Examples:
      >>> import numpy as np
      >>> from opjax.samples import Sample
      >>> points = np.random.default_rng(0).uniform(size=(5, 2))
      >>> sample = Sample(points, target=points[:, :1], name="plate")
      >>> sample.num_points, sample.target.shape
      (5, (5, 1))
    """

    mesh_points: np.ndarray
    target: np.ndarray | None = None
    features: np.ndarray | None = None
    quadrature_weights: np.ndarray | None = None
    cells: np.ndarray | None = None
    grid_shape: tuple[int, ...] | None = None
    name: str = ""
    target_grid: tuple[int, ...] | None = None
    details: Any = None
    boundaries: Mapping[str, np.ndarray] | None = None
    scalars: np.ndarray | None = None
    target_scalars: np.ndarray | None = None
    patches: Mapping[str, Patch] | None = None
    numbers: Mapping[str, float] | None = None
    axes: tuple[int, ...] = ()

    @property
    def num_points(self) -> int:
        """Number of mesh points."""
        return len(self.mesh_points)


def arrays(sample: Sample, names: Iterable[str] = ARRAYS) -> dict[str, np.ndarray]:
    """Returns the arrays that a sample has, by name.

    Args:
      sample: any sample.
      names: names of the requested arrays.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> sample = samples.Sample(np.ones((5, 2)), target=np.ones((5, 1)))
      >>> sorted(samples.arrays(sample))
      ['mesh_points', 'target']
    """
    columns = {name: getattr(sample, name) for name in names}
    return {name: array for name, array in columns.items() if array is not None}


def converted(
    sample: Sample,
    convert: Callable[[str, np.ndarray], np.ndarray],
    names: Iterable[str] = ARRAYS,
) -> Sample:
    """Returns a sample with converted arrays; an array that it lacks stays None.

    Args:
      sample: any sample.
      convert: returns the new array from the name of an array and the array.
      names: names of the arrays to convert.
    """
    each = arrays(sample, names).items()
    return sample._replace(**{name: convert(name, array) for name, array in each})


def is_real(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds real numbers: floats of any size, integers, booleans."""
    return dtype.kind in "fiub" or np.can_cast(dtype, np.float32)  # bfloat16


def real(name: str, values: ArrayLike) -> np.ndarray:
    """Converts real numbers of any dtype to single or double precision.

    Integers of 32 bits or more and long doubles become double precision, because single
    precision would round them; half precision, small integers and booleans become
    single precision.

    Args:
      name: name of the array, for messages.
      values: the numbers, in any byte order.

    Raises:
      TypeError: if they are not real numbers.
    """
    array = np.asarray(values)
    if not is_real(array.dtype):
        note = "; give real and imaginary part" if array.dtype.kind == "c" else ""
        raise TypeError(f"{name} has dtype {array.dtype}, expected real numbers{note}.")
    if array.dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        return array
    large = array.dtype.itemsize >= (8 if array.dtype.kind == "f" else 4)
    return array.astype(np.float64 if large else np.float32)


def check(samples: Sequence[Sample], *, num_classes: int | None = None) -> None:
    """Raises an error unless all samples are complete and consistent.

    Args:
      samples: a data set.
      num_classes: number of classes for a segmentation, whose targets are integers.

    Raises:
      TypeError: if an array is not real floating-point (or, for labels, integer).
      ValueError: if there is no sample, a mesh is empty or its arrays disagree on the
        number of points, a value is not finite, a weight is negative or all are zero,
        a label is out of range, the points of a grid are not in row-major order, or
        samples differ in dimension, channels or in which
        arrays they have. The message names the sample.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> damaged = samples.Sample(np.array([[0.0, np.nan]]), np.ones((1, 1)), name="a")
      >>> samples.check([damaged])
      Traceback (most recent call last):
          ...
      ValueError: sample 0 (a): mesh_points has 1 non-finite values, the first ...
    """
    if not samples:
        raise ValueError("The data set is empty; pass at least one sample.")
    first = _channels(samples[0])
    grids: list[layout.Grid] = []
    for index, sample in enumerate(samples):
        place = f"sample {index}" + (f" ({sample.name})" if sample.name else "")
        _check_shapes(sample, place, num_classes is not None)
        if _channels(sample) != first:
            raise ValueError(
                f"{place} has {_describe(_channels(sample))}, but sample 0 has "
                f"{_describe(first)}: all samples of a data set must be consistent."
            )
        check_plane("sample 0", samples[0].axes, place, sample.axes)
        check_finite(sample, place)
        _check_values(sample, place, num_classes)
        grids.append(layout.Grid(place, sample.mesh_points, sample.grid_shape))
    layout.check_order(grids)


def check_same_channels(first: Sample, second: Sample, *, names: Sequence[str]) -> None:
    """Raises ValueError unless one model fits two data sets.

    Args:
      first: a sample of the first data set, after `check`.
      second: a sample of the second data set.
      names: names of the two data sets in the message.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> one, two = (samples.Sample(np.ones((5, 2)), np.ones((5, q))) for q in (1, 2))
      >>> samples.check_same_channels(one, two, names=["training", "test"])
      Traceback (most recent call last):
          ...
      ValueError: training has mesh_points in 2 dimensions, no channels of ...
    """
    one, other = _channels(first), _channels(second)
    for name in ("target", "target_scalars"):
        if getattr(second, name) is None:
            one, other = one | {name: None}, other | {name: None}
    if one != other:
        raise ValueError(
            f"{names[0]} has {_describe(one)}, but {names[1]} has "
            f"{_describe(other)}: both must have the same channels."
        )
    check_plane(
        first.name or names[0], first.axes, second.name or names[1], second.axes
    )


def _channels(sample: Sample) -> dict[str, int | None]:
    def count(array: np.ndarray | None) -> int | None:
        if array is None:
            return None
        return np.shape(array)[1] if np.ndim(array) == 2 else 1

    scalars = {k: np.size(v) for k, v in arrays(sample, SCALARS).items()}
    counts = {name: count(getattr(sample, name)) for name in FIELDS}
    return counts | dict.fromkeys(SCALARS) | scalars


def _describe(channels: dict[str, int | None]) -> str:
    words = []
    for name, count in channels.items():
        if name == "mesh_points":
            words.append(f"mesh_points in {count} dimensions")
        elif name == "quadrature_weights":
            words.append(f"{'no' if count is None else 'with'} quadrature_weights")
        elif name in SCALARS:
            if count is not None:
                words.append(f"{count} {name}")
        else:
            words.append(f"{count or 'no'} channels of {name}")
    return ", ".join(words)


def _check_shapes(sample: Sample, place: str, labels: bool) -> None:
    ranks = dict.fromkeys(("mesh_points", "features", "target"), 2)
    ranks |= {"quadrature_weights": 1} | ({"target": 1} if labels else {})
    for name, array in arrays(sample, ranks).items():
        rank = ranks[name]
        kinds = "iu" if labels and name == "target" else "f"
        if array.dtype.kind not in kinds:
            numbers = "integers" if kinds == "iu" else "real floating-point numbers"
            raise TypeError(
                f"{place}: {name} has dtype {array.dtype}, expected {numbers}."
            )
        if array.ndim != rank:
            expected = "(n,)" if rank == 1 else "(n, channels)"
            raise ValueError(
                f"{place}: {name} has shape {array.shape}, expected {expected}."
            )
        grid = sample.target_grid if name == "target" else None
        if grid is not None and len(array) != math.prod(grid):
            raise ValueError(
                f"{place}: target has shape {array.shape}, but target_grid {grid} has "
                f"{math.prod(grid)} points: expected one row per point."
            )
        if grid is None and len(array) != len(sample.mesh_points):
            raise ValueError(
                f"{place}: {name} has shape {array.shape}, but mesh_points has "
                f"shape {sample.mesh_points.shape}: expected one row per point."
            )
    _check_scalars(sample, place)
    if not sample.mesh_points.size:
        raise ValueError(
            f"{place}: the mesh is empty, because mesh_points has shape "
            f"{sample.mesh_points.shape}."
        )
    shape = sample.grid_shape
    if shape is not None and math.prod(shape) != sample.num_points:
        raise ValueError(
            f"{place}: grid_shape {shape} has {math.prod(shape)} points, but "
            f"mesh_points has {sample.num_points}."
        )


def _check_scalars(sample: Sample, place: str) -> None:
    for name, array in arrays(sample, SCALARS).items():
        if array.dtype.kind != "f":
            raise TypeError(
                f"{place}: {name} has dtype {array.dtype}, expected real "
                "floating-point numbers."
            )
        if array.ndim != 1 or not len(array):
            raise ValueError(
                f"{place}: {name} has shape {array.shape}, expected (s,), one "
                "number per scalar; pass values at the points as features."
            )
        if not np.isfinite(array).all():
            raise ValueError(
                f"{place}: {name} {array.tolist()} must be finite; correct the "
                "values or remove the sample."
            )


def check_finite(sample: Sample, place: str) -> None:
    """Raises ValueError if a value at a point is NaN or infinite."""
    for name, array in arrays(sample, FIELDS).items():
        if array.dtype.kind != "f":
            continue
        bad = ~np.isfinite(array)
        if bad.any():
            point = int(np.argwhere(bad)[0][0])
            raise ValueError(
                f"{place}: {name} has {bad.sum()} non-finite values, the first one at "
                f"point {point}; remove the points or the sample."
            )


def _check_values(sample: Sample, place: str, num_classes: int | None) -> None:
    weights = sample.quadrature_weights
    if weights is not None and (weights.min() < 0 or not weights.any()):
        raise ValueError(
            f"{place}: quadrature_weights must be non-negative and not all zero; "
            f"the minimum is {weights.min()}, the maximum {weights.max()}."
        )
    if num_classes is not None and sample.target is not None:
        low, high = sample.target.min(), sample.target.max()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"{place}: labels lie between {low} and {high}, but must be at least 0 "
                f"and below {num_classes}."
            )
