"""Summaries of samples: sizes, ranges and sums, available without their arrays.

Normalisers, ranges and sizes of a data set are computed from the summaries of its
samples, so each sample is read once, and samples in memory and on disk give the same
numbers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from opjax.samples.base import SCALARS, Sample, arrays

FIELDS = ("mesh_points", "features", "target")
SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Summary(NamedTuple):
    """The summary of one sample.

    Attributes:
      num_points: number of mesh points.
      grid_shape: as in `Sample`.
      ranges: minimum and maximum of every channel of `mesh_points`, `features` and
        `target`, and of `scalars` and `target_scalars`, if they exist.
      sums: for `features`, `target` and scalars, the number of rows (one for scalars),
        and for every channel the mean and the sum of squared deviations from it, in
        double precision.
      quantiles: quantiles `SHARES` of the coordinates by axis, `(shares, p)`; None if
        the points were not read at once.
      axes: as in `Sample`.
    """

    num_points: int
    grid_shape: tuple[int, ...] | None
    ranges: dict[str, tuple[np.ndarray, np.ndarray]]
    sums: dict[str, tuple[int, np.ndarray, np.ndarray]]
    quantiles: np.ndarray | None = None
    axes: tuple[int, ...] = ()

    @property
    def channels(self) -> dict[str, int]:
        """Number of channels of each array that has ranges."""
        return {name: len(low) for name, (low, _) in self.ranges.items()}


def summarize(sample: Sample) -> Summary:
    """Summarises a sample."""
    ranges, sums = {}, {}
    for name, array in arrays(sample, (*FIELDS, *SCALARS)).items():
        rows = array.reshape(1 if name in SCALARS else len(array), -1)
        ranges[name] = rows.min(axis=0), rows.max(axis=0)
        if name != "mesh_points":
            mean = rows.mean(axis=0, dtype=np.float64)
            sums[name] = len(rows), mean, np.sum((rows - mean) ** 2, axis=0)
    quantiles = quantiles_of(sample.mesh_points)
    return Summary(
        sample.num_points, sample.grid_shape, ranges, sums, quantiles, sample.axes
    )


def quantiles_of(points: np.ndarray) -> np.ndarray:
    """Returns the quantiles `SHARES` of the coordinates, `(shares, p)`."""
    return np.quantile(points, SHARES, axis=0)


@runtime_checkable
class Summarized(Protocol):
    """A data set in files with precomputed summaries."""

    @property
    def summaries(self) -> Sequence[Summary]:
        """Summaries of the samples, in order."""
        ...

    def __len__(self) -> int: ...


def of(samples: Sequence[Sample] | Summarized) -> Sequence[Summary]:
    """Returns the summaries of samples; for files, they are precomputed."""
    if isinstance(samples, Summarized):
        return samples.summaries
    return [summarize(sample) for sample in samples]


def num_points(samples: Sequence[Sample]) -> list[int]:
    """Returns the numbers of points of samples, without reading them."""
    each: Any = getattr(samples, "summaries", samples)
    return [sample.num_points for sample in each]


def axes_of(samples: Sequence[Sample] | Summarized) -> tuple[int, ...]:
    """Returns the axes of space of samples, see `Sample`, without reading them."""
    each: Any = getattr(samples, "summaries", samples)
    return each[0].axes


def limits(known: Sequence[Summary], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns minimum and maximum of every channel over all samples."""
    low, high = zip(*(summary.ranges[name] for summary in known), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def rounding(known: Sequence[Summary], name: str) -> float:
    """Returns the largest `eps` of the original dtypes of an array."""
    types = {summary.ranges[name][0].dtype for summary in known}
    # Labels are integers, which are exact.
    floating = [dtype for dtype in types if dtype.kind == "f"]
    return max((float(np.finfo(dtype).eps) for dtype in floating), default=0.0)


def mean_and_std(known: Sequence[Summary], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of every channel, over all points.

        mean = sum_i n_i m_i / n,    std^2 = sum_i (q_i + n_i (m_i - mean)^2) / (n - 1),

    from means `m_i` and sums of squares `q_i` of samples of `n_i` rows.

    Raises:
      ValueError: if there are fewer than two points.
    """
    counts, means, squares = (
        np.stack(parts)
        for parts in zip(*(summary.sums[name] for summary in known), strict=True)
    )
    counts = counts[:, None].astype(np.float64)
    total = counts.sum()
    if total < 2:
        raise ValueError(
            "A standard deviation needs at least two points, but there is one."
        )
    mean = np.sum(counts * means, axis=0) / total
    square = np.sum(squares + counts * (means - mean) ** 2, axis=0)
    return mean, np.sqrt(square / (total - 1))
