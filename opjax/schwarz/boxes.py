"""Covers of tensor grids by overlapping boxes, and hat functions on them."""

import functools
import itertools
import operator
from collections.abc import Sequence

import numpy as np

from opjax import _checks
from opjax.schwarz.covers import Cover, cover, padded

_Shape = int | Sequence[int]


def box_cover(grid_shape: _Shape, num_boxes: _Shape, *, overlap: int) -> Cover:
    """Covers a tensor grid of any dimension with overlapping boxes.

    Every axis is split into consecutive intervals of equal size, the first ones longer
    by one point if there is a remainder. Each interval is extended by `overlap` points
    into its neighbours, so neighbours share `2 overlap` points.

    Args:
      grid_shape: number of points per axis, in row-major order; a number for 1-D.
      num_boxes: number of intervals per axis.
      overlap: number of points by which an interval is extended on either side.

    Returns:
      The cover with its partition of unity.

    Raises:
      ValueError: if the axes do not match, an axis has more intervals than points, or
        the overlap is negative or larger than a neighbouring interval.

    Examples:
      >>> from opjax import schwarz
      >>> schwarz.box_cover(8, 2, overlap=1).indices.tolist()
      [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]
      >>> schwarz.box_cover((8, 8), (2, 2), overlap=1).indices.shape
      (4, 25)

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 4.1.
    """
    shape, boxes = _axes(grid_shape=grid_shape, num_boxes=num_boxes)
    _checks.non_negative(overlap=overlap)
    overlap = operator.index(overlap)
    axes = []
    for size, count in zip(shape, boxes, strict=True):
        starts = interval_starts(size, count)
        smallest = int(np.diff(starts).min())
        if count > 1 and overlap > smallest:
            raise ValueError(
                f"{overlap=} is larger than a neighbouring interval of {smallest} "
                f"points ({size} points in {count} intervals); use fewer boxes."
            )
        lower = np.maximum(starts[:-1] - overlap, 0)
        upper = np.minimum(starts[1:] + overlap, size)
        axes.append([np.arange(*ends) for ends in zip(lower, upper, strict=True)])
    subdomains = [_row_major(shape, sides) for sides in itertools.product(*axes)]
    return cover(subdomains, num_points=int(np.prod(shape)))


def interface_hats(grid_shape: _Shape, num_boxes: _Shape) -> Cover:
    """Returns the coarse space of hats on the interfaces of a `box_cover`.

    A hat is one at the first point after the boundary of two intervals (the larger of
    the two points at the centre of the overlap), and decreases linearly to zero at the
    neighbouring maxima and, at the ends, at the boundary one spacing outside the grid.
    In several dimensions, hats are products, which are multilinear on boxes.

    Args:
      grid_shape: number of interior points per axis, in row-major order; a number for
        1-D.
      num_boxes: number of intervals per axis, at least two.

    Returns:
      The coarse space with `prod(num_boxes - 1)` functions.

    Raises:
      ValueError: if the axes do not match or an axis has a single interval or more
        intervals than points.

    Examples:
      >>> from opjax import schwarz
      >>> hats = schwarz.interface_hats(7, 2)  # one hat, between two boxes
      >>> hats.weights.round(2).tolist()
      [[0.2, 0.4, 0.6, 0.8, 1.0, 0.67, 0.33]]

    References:
      Köhler and Rheinbach, "Hierarchical Attention via Domain Decomposition", 2026,
      section 4.1 and Fig. 6.
    """
    shape, boxes = _axes(grid_shape=grid_shape, num_boxes=num_boxes)
    if min(boxes) < 2:
        raise ValueError(
            f"{num_boxes=} must be at least 2 per axis, because a hat is between two "
            "boxes."
        )
    starts = map(interval_starts, shape, boxes)
    return _hats(shape, [start[1:-1].astype(float) for start in starts])


def uniform_hats(grid_shape: _Shape, num_hats: _Shape) -> Cover:
    """Returns the coarse space of hats on a uniform grid, independent of subdomains.

    The domain is the unit cube with zero boundary values; maxima are at `i / (num_hats
    + 1)` per axis.

    Args:
      grid_shape: number of interior points per axis, in row-major order; a number for
        1-D.
      num_hats: number of hats per axis.

    Returns:
      The coarse space with `prod(num_hats)` functions.

    Raises:
      ValueError: if the axes do not match or an axis has more hats than points.

    Examples:
      >>> from opjax import schwarz
      >>> hats = schwarz.uniform_hats((15, 15), (3, 3))
      >>> hats.num_subdomains, hats.num_points
      (9, 225)
      >>> float(hats.weights.max())
      1.0
    """
    shape, counts = _axes(grid_shape=grid_shape, num_hats=num_hats)
    peaks = [
        np.arange(1, count + 1) * (size + 1) / (count + 1) - 1
        for size, count in zip(shape, counts, strict=True)
    ]
    return _hats(shape, peaks)


def partition_hats(grid_shape: _Shape, num_hats: _Shape) -> Cover:
    """Returns the coarse space of hats on a uniform grid with nodes on the boundary.

    Maxima are equally spaced from the first to the last point of each axis. The hats
    are a partition of unity, so the space contains the constants.

    Args:
      grid_shape: number of points per axis, in row-major order; a number for 1-D.
      num_hats: number of hats per axis, at least two.

    Returns:
      The coarse space with `prod(num_hats)` functions.

    Raises:
      ValueError: if the axes do not match or an axis has a single hat or more hats than
        points.

    Examples:
      >>> from opjax import schwarz
      >>> hats = schwarz.partition_hats(5, 3)
      >>> schwarz.coarse_prolong([[1.0], [1.0], [1.0]], hats)[:, 0].tolist()
      [1.0, 1.0, 1.0, 1.0, 1.0]
    """
    shape, counts = _axes(grid_shape=grid_shape, num_hats=num_hats)
    if min(counts) < 2:
        raise ValueError(f"{num_hats=} must be at least 2 per axis, one at each end.")
    peaks = [
        np.arange(count) * (size - 1) / (count - 1)
        for size, count in zip(shape, counts, strict=True)
    ]
    return _hats(shape, peaks)


def interval_starts(size: int, count: int) -> np.ndarray:
    """Returns the first points of `count` consecutive intervals, followed by `size`."""
    lengths = np.full(count, size // count)
    lengths[: size % count] += 1
    return np.concatenate([[0], np.cumsum(lengths)])


def _hats(shape: tuple[int, ...], peaks: list[np.ndarray]) -> Cover:
    axes = [_hats_on_axis(*axis) for axis in zip(shape, peaks, strict=True)]
    supports, values = [], []
    for sides in itertools.product(*axes):
        supports.append(_row_major(shape, [points for points, _ in sides]))
        factors = [heights for _, heights in sides]
        values.append(functools.reduce(np.multiply.outer, factors).ravel())
    return padded(supports, values, num_points=int(np.prod(shape)))


def _hats_on_axis(size: int, peaks: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Support and values of piecewise linear functions, zero at -1 and at `size`."""
    nodes = np.concatenate([[-1.0], peaks, [size]])
    hats = []
    for left, peak, right in zip(nodes, nodes[1:], nodes[2:], strict=False):
        points = np.arange(int(np.floor(left)) + 1, int(np.ceil(right)))
        rising, falling = (
            (points - left) / (peak - left),
            (right - points) / (right - peak),
        )
        hats.append((points, np.minimum(rising, falling)))
    return hats


def _row_major(shape: tuple[int, ...], sides: Sequence[np.ndarray]) -> np.ndarray:
    """Indices of the points of a box with the given indices on each axis."""
    return np.ravel_multi_index(np.ix_(*sides), shape).ravel()


def _axes(**lengths: _Shape) -> list[tuple[int, ...]]:
    grid_name, count_name = lengths
    grid, counts = (
        tuple(map(operator.index, value if isinstance(value, Sequence) else (value,)))
        for value in lengths.values()
    )
    if not grid or len(grid) != len(counts):
        raise ValueError(
            f"{grid_name}={grid} and {count_name}={counts} must have the same "
            "number of axes, at least one."
        )
    for size, count in zip(grid, counts, strict=True):
        if not 1 <= count <= size:
            raise ValueError(
                f"{count_name}={counts} must be between 1 and the number of points on "
                f"each axis of {grid_name}={grid}."
            )
    return [grid, counts]
