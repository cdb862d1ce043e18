"""Samples larger than memory: arrays that are read in slices of points."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import numpy as np

from opjax.samples.base import SCALARS
from opjax.samples.stored import OnDisk, Place
from opjax.samples.summaries import FIELDS, Summary

_T = TypeVar("_T")


class Rows(Protocol):
    """A source from which slices of points are read."""

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


class Column(Rows, Protocol):
    """An array of a file, read in slices of points."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole array, `(n, c)` or `(n,)`."""
        ...

    @property
    def channel_names(self) -> tuple[str, ...]:
        """The name of the field for each channel."""
        ...

    def __len__(self) -> int: ...


class Numbers:
    """Scalars of a sample, stored with its point arrays.

    Args:
      values: values of the scalars, `(s,)`.
      names: names of the scalars.
    """

    def __init__(self, values: np.ndarray, names: Sequence[str]):
        self._values, self.channel_names = values, tuple(names)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the scalars, `(s,)`."""
        return self._values.shape

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._values[rows]


class WithConstants:
    """Features with constant scalars appended to every row.

    Args:
      features: rows `(n, c)`, of any type that supports slicing; None if there are
        none.
      scalars: scalars, `(s,)`.
      num_points: number `n` of points.
    """

    def __init__(self, features: "Rows | None", scalars: np.ndarray, num_points: int):
        self._features, self._scalars, self._n = features, scalars, num_points

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, rows: slice) -> np.ndarray:
        count = len(range(*rows.indices(self._n)))
        constant = np.broadcast_to(self._scalars, (count, len(self._scalars)))
        if self._features is None:
            return np.array(constant)
        return np.concatenate([self._features[rows], constant], axis=1)


class Sliced(OnDisk):
    """A data set whose samples may be larger than memory.

    Args:
      places: locations of the samples.
      known: their summaries, from one pass over all files.
      weighted: whether the samples have quadrature weights.
      opened: `opened(place)`, a context with the arrays of `Sample` at a location, by
        name; scalars are `Numbers`.
    """

    def __init__(
        self,
        places: Sequence[Place],
        known: Sequence[Summary],
        *,
        weighted: bool,
        opened: Callable[[Place], AbstractContextManager[Mapping[str, Column]]],
    ):
        super().__init__(places, known)
        self.weighted, self._opened = weighted, opened

    def open(self, row: int) -> AbstractContextManager[Mapping[str, Column]]:
        """Opens the arrays of one sample, with the names of `Sample`.

        Raises:
          OSError: if the file is missing.
          ValueError: if it is damaged.
        """
        return self._opened(self.places[row])

    def apply(self, function: Callable[[Mapping[str, Column]], _T], row: int) -> _T:
        """Applies a function to the arrays of one sample."""
        with self.open(row) as arrays:
            return function(arrays)


def summarize(
    name: str, arrays: Mapping[str, Column], *, chunk_size: int = 2**16
) -> Summary:
    r"""Summarises the arrays of a sample in one pass, in slices of points.

    Means and squares of the slices are combined in the same way as those of samples,

        m = sum_j n_j m_j / n,    q = sum_j (q_j + n_j (m_j - m)^2).

    Args:
      name: name of the sample in messages.
      arrays: arrays from `Sliced.open`.
      chunk_size: number of points that are read at once.

    Returns:
      The same summary as `summaries.summarize` returns for a sample in memory.

    Raises:
      ValueError: if there is no point, lengths differ, a value is not finite, a weight
        is negative or all are zero.
    """
    numbers = {key: array[:] for key, array in arrays.items() if key in SCALARS}
    arrays = {key: array for key, array in arrays.items() if key not in SCALARS}
    lengths = {key: len(array) for key, array in arrays.items()}
    n = lengths["mesh_points"]
    if not n or set(lengths.values()) != {n}:
        raise ValueError(
            f"{name}: arrays have {lengths} points; all must have the same number."
        )
    looks = {key: _Look() for key in FIELDS if key in arrays}
    largest_weight = 0.0
    for start in range(0, n, chunk_size):
        rows = slice(start, min(start + chunk_size, n))
        for key, array in arrays.items():
            part = np.asarray(array[rows])
            if not np.isfinite(part).all():
                raise ValueError(
                    f"{name}: {key} is not finite at one of the points {rows.start} to "
                    f"{rows.stop - 1}."
                )
            if key in looks:
                looks[key].add(part.reshape(len(part), -1))
            elif part.min() < 0:
                raise ValueError(f"{name}: {key} has a negative value, {part.min()}.")
            else:
                largest_weight = max(largest_weight, float(part.max()))
    if "quadrature_weights" in arrays and not largest_weight:
        raise ValueError(f"{name}: all quadrature_weights are zero.")
    ranges = {key: (look.low, look.high) for key, look in looks.items()}
    sums = {
        key: (n, look.mean, look.squares)
        for key, look in looks.items()
        if key != "mesh_points"
    }
    for key, values in numbers.items():
        ranges[key] = values, values
        sums[key] = 1, values.astype(np.float64), np.zeros(len(values))
    return Summary(n, None, ranges, sums, axes=axes_of(arrays))


def axes_of(arrays: Mapping[str, object]) -> tuple[int, ...]:
    """Returns the axes of space of a sample, see `Sample`; empty if unknown."""
    return getattr(arrays["mesh_points"], "axes", ())


class _Look:
    """Range, mean and squares of rows that come in parts."""

    def __init__(self) -> None:
        self.count = 0
        self.low = self.high = np.zeros(0)
        self.mean = self.squares = np.zeros(0)

    def add(self, rows: np.ndarray) -> None:
        """Adds rows `(m, c)`."""
        low, high = rows.min(axis=0), rows.max(axis=0)
        mean = rows.mean(axis=0, dtype=np.float64)
        squares = np.sum((rows - mean) ** 2, axis=0)
        if not self.count:
            self.low, self.high, self.mean, self.squares = low, high, mean, squares
            self.count = len(rows)
            return
        total = self.count + len(rows)
        step = mean - self.mean
        self.squares = self.squares + squares
        self.squares += step**2 * (self.count * len(rows) / total)
        self.mean = self.mean + step * (len(rows) / total)
        self.low, self.high = np.minimum(self.low, low), np.maximum(self.high, high)
        self.count = total


def channels(summary: Summary) -> dict[str, int]:
    """Channels of the arrays of a sample, by name."""
    return {key: math.prod(low.shape) for key, (low, _) in summary.ranges.items()}
