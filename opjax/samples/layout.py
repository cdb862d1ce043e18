"""Checks of the layout of arrays: order of points, axis of channels."""

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

_AXES = "xyz"
# Grids read in another order are this much smoother if that is their order; squares.
_SMOOTHER = 0.01


class Grid(NamedTuple):
    """Points of a sample, its grid if it has one, and its name for messages."""

    place: str
    points: np.ndarray
    shape: tuple[int, ...] | None


def check_order(found: Iterable[Grid]) -> None:
    """Checks that points of grids are in row-major order (last axis fastest).

    Args:
      found: grids of all samples.

    Raises:
      ValueError: if the points of a sample are a grid in another order.
    """
    for place, points, shape in _distinct(found):
        _check_order(place, points, shape)


def check_axes(senses: Iterable[tuple[str, tuple[int, ...]]]) -> None:
    """Warns about square grids with x as the fastest axis, which may be transposed.

    Args:
      senses: names of samples, and the result of `sense` for each.

    Raises:
      ValueError: if the grids of two samples have different axes.
    """
    found: dict[tuple[int, ...], str] = {}
    for place, sense in senses:
        if sense:
            found.setdefault(sense, place)
    if len(found) > 1:
        (one, first), (other, second) = list(found.items())[:2]
        raise ValueError(
            f"{first}: axis 0 of grid_shape is along {_AXES[one[0]]}, but in "
            f"{second} it is along {_AXES[other[0]]}; use the same axes for all "
            "grids."
        )
    for sense, place in found.items():
        if sense != tuple(sorted(sense)):
            warnings.warn(
                f"{place}: axis 0 of grid_shape is along {_AXES[sense[0]]}, "
                f"because {_AXES[sense[-1]]} varies fastest in mesh_points; in "
                "row-major order axis 0 is x. If the fields do not have the order "
                "of mesh_points, they are transposed.",
                stacklevel=4,
            )


def _distinct(
    found: Iterable[Grid],
) -> Iterator[tuple[str, np.ndarray, tuple[int, ...]]]:
    """Grids whose points fit their shape; of those that share points, the first."""
    seen: set[tuple[int, tuple[int, ...]]] = set()
    for place, points, shape in found:
        if shape is None or math.prod(shape) != len(points):
            continue
        key = points.__array_interface__["data"][0], shape
        if key not in seen:
            seen.add(key)
            yield place, points, shape


def _check_order(place: str, points: np.ndarray, shape: tuple[int, ...]) -> None:
    own = _roughness(points, shape, range(len(shape)))
    if own <= 1e-10 * float(np.ptp(points, axis=0).max()) ** 2:
        return
    for order in itertools.permutations(range(len(shape))):
        if _roughness(points, shape, order) < _SMOOTHER * own:
            true = tuple(shape[axis] for axis in order)
            raise ValueError(
                f"{place}: grid_shape {shape} does not match the order of "
                "mesh_points, which must be row-major (last axis fastest). The "
                f"points are a grid of {true}: pass grid_shape={true}, or the "
                "arrays in the other order."
            )


def _roughness(
    points: np.ndarray, shape: tuple[int, ...], order: Sequence[int]
) -> float:
    """How far cells of a grid are from parallelograms; axes slowest first."""
    grid = points.astype(np.float64).reshape(*(shape[axis] for axis in order), -1)
    pairs = itertools.combinations(range(len(shape)), 2)
    mixed = [np.diff(np.diff(grid, axis=i), axis=j) for i, j in pairs]
    return float(sum(np.mean(m**2) for m in mixed if m.size))


def sense(points: np.ndarray, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    """The coordinate along each axis of a square grid, if it is unique."""
    if shape is None or math.prod(shape) != len(points):
        return ()
    sides, p = set(shape), points.shape[1]
    if len(shape) != p or len(sides) > 1 or not 2 <= p <= 3 or min(sides) < 2:
        return ()
    grid = points.reshape(*shape, p)
    moves = [
        np.abs(np.diff(grid, axis=a)).reshape(-1, p).mean(axis=0) for a in range(p)
    ]
    largest = [int(np.argmax(move)) for move in moves]
    alone = all(m.max() > 1e3 * (m.sum() - m.max()) for m in moves)
    return tuple(largest) if alone and len(set(largest)) == p else ()


def warn_of_channels_first(
    what: str, grid_shape: Sequence[int], channels: int, *, axis: int = 0
) -> None:
    """Warns if the first axis of a grid is so short that it may be the channel axis.

    Args:
      what: name and shape of the array, for the message.
      grid_shape: points per axis, as interpreted.
      channels: number of channels, as interpreted.
      axis: axis of the array at which the grid starts.
    """
    if all(2 * grid_shape[0] <= size for size in (*grid_shape[1:], channels)):
        warnings.warn(
            f"{what} is interpreted as a grid of "
            f"{' x '.join(map(str, grid_shape))} points with {channels} channels. "
            f"If axis {axis} is the channel axis, pass np.moveaxis(array, {axis}, "
            "-1).",
            stacklevel=3,
        )
