"""Samples on meshes of any size, checked, and padded to a few sizes for training.

Every data set is a sequence of `Sample`s. XLA compiles a program for each shape, so
samples are padded to a small number of sizes and stacked: one batch for each size.
Padded points have zero quadrature weight, which removes them from attention, loss and
metric; their coordinates and values are those of the sample's first point, so that
nothing computed there can overflow.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

_FIELDS = ("mesh_points", "features", "target", "quadrature_weights")


class Sample(NamedTuple):
    """One pair of functions on one mesh, on the host.

    Attributes:
      mesh_points: coordinates, shape `(n, p)`.
      target: values of the output function, `(n, q)`; integers, shape `(n,)`, for the
        classes of a segmentation; None where it is to be predicted.
      features: values of the input function, `(n, c)`; None if the mesh is the input.
      quadrature_weights: non-negative weights of the points, `(n,)`; None for `1 / n`
        each.
      cells: point indices of the mesh's cells, `(m, corners)`, for drawing and writing.
      grid_shape: points per axis if the points are a structured grid in row-major
        order.
      name: what messages call it.
    """

    mesh_points: np.ndarray
    target: np.ndarray | None = None
    features: np.ndarray | None = None
    quadrature_weights: np.ndarray | None = None
    cells: np.ndarray | None = None
    grid_shape: tuple[int, ...] | None = None
    name: str = ""

    @property
    def num_points(self) -> int:
        """Number of mesh points."""
        return len(self.mesh_points)


def check(samples: Sequence[Sample], *, num_classes: int | None = None) -> None:
    """Raises an error unless every sample is complete and all agree.

    Args:
      samples: a data set.
      num_classes: for a segmentation, the number of classes; targets are integers.

    Raises:
      TypeError: if an array is not of real floating-point numbers (or, for labels, of
        integers).
      ValueError: if there is no sample, a mesh is empty or its arrays disagree on the
        number of points, a value is not finite, a weight is negative or all are zero,
        a label is out of range, or samples differ in dimension, channels or in which
        arrays they have. The message names the sample.
    """
    if not samples:
        raise ValueError("The data set is empty; give at least one sample.")
    first = _channels(samples[0])
    for index, sample in enumerate(samples):
        place = f"sample {index}" + (f" ({sample.name})" if sample.name else "")
        _check_shapes(sample, place, num_classes is not None)
        if _channels(sample) != first:
            raise ValueError(
                f"{place} has {_describe(_channels(sample))}, but sample 0 has "
                f"{_describe(first)}: all samples of a data set must agree."
            )
        _check_values(sample, place, num_classes)


def check_same_channels(first: Sample, second: Sample, *, names: Sequence[str]) -> None:
    """Raises ValueError unless two data sets fit the same model.

    Args:
      first: a sample of the one data set, after `check`.
      second: a sample of the other.
      names: what the message calls the two.
    """
    one, other = _channels(first), _channels(second)
    if second.target is None:
        one, other = one | {"target": None}, other | {"target": None}
    if one != other:
        raise ValueError(
            f"{names[0]} has {_describe(one)}, {names[1]} has {_describe(other)}: "
            "both must have the same channels."
        )


def bucket_sizes(counts: Sequence[int], *, num_buckets: int = 4) -> tuple[int, ...]:
    """Chooses sizes to pad to, so that few points are wasted.

    The sizes minimise the number of padded points, `sum_i (size(i) - counts[i])`, over
    all choices of at most `num_buckets` sizes among the counts.

    Args:
      counts: points of every sample.
      num_buckets: largest number of sizes.

    Returns:
      At most `num_buckets` sizes in rising order; the last is the largest count.

    Raises:
      ValueError: if there is no count or one is not positive, or `num_buckets` is not.
    """
    if num_buckets < 1 or not len(counts) or min(counts) < 1:
        raise ValueError(
            f"{num_buckets=} and all of the {len(counts)} counts must be positive."
        )
    sizes, numbers = np.unique(np.asarray(counts, np.int64), return_counts=True)
    if len(sizes) > 512:  # quadratic below: take quantiles of the samples
        ranks = np.linspace(0, len(counts) - 1, 512).round().astype(int)
        chosen = np.unique(np.sort(counts)[ranks])
        numbers = np.diff(np.searchsorted(np.sort(counts), chosen, "right"), prepend=0)
        sizes = chosen
    before = np.concatenate([[0], np.cumsum(numbers)])
    # Padded points of the cheapest choice for the first j sizes, the j-th among them.
    cost = np.where(np.arange(len(sizes) + 1) == 0, 0.0, np.inf)
    choice = []
    for _ in range(min(num_buckets, len(sizes))):
        table = cost[None, :-1] + sizes[:, None] * (
            before[1:, None] - before[None, :-1]
        )
        table[np.triu_indices(len(sizes), 1)] = np.inf
        choice.append(np.argmin(table, axis=1))
        cost = np.concatenate([[np.inf], np.min(table, axis=1)])
    end, found = len(sizes), []
    for row in reversed(choice):
        found.append(int(sizes[end - 1]))
        end = int(row[end - 1])
        if end == 0:
            break
    return tuple(reversed(found))


def pad(sample: Sample, size: int) -> dict[str, np.ndarray]:
    """Pads the arrays of a sample to `size` points.

    Args:
      sample: after `check`.
      size: number of points afterwards.

    Returns:
      `mesh_points`, `quadrature_weights` (`1 / n` each, if the sample has none, which
      models take for the same, and zero for padding), and `features` and `target` where
      the sample has them.

    Raises:
      ValueError: if the sample has more points.
    """
    missing = size - sample.num_points
    if missing < 0:
        raise ValueError(f"A sample of {sample.num_points} points is above {size=}.")
    weights = sample.quadrature_weights
    if weights is None:
        weights = np.full(
            sample.num_points, 1 / sample.num_points, sample.mesh_points.dtype
        )
    arrays = {name: getattr(sample, name) for name in _FIELDS}
    arrays["quadrature_weights"] = weights
    padded = {
        name: np.concatenate([array, np.repeat(array[:1], missing, axis=0)])
        for name, array in arrays.items()
        if array is not None
    }
    padded["quadrature_weights"][sample.num_points :] = 0
    return padded


def stack(
    samples: Sequence[Sample], *, batch_size: int = 1, num_buckets: int = 4
) -> tuple[dict[str, np.ndarray], ...]:
    """Pads and stacks samples, those of about the same size together.

    Args:
      samples: after `check`.
      batch_size: every bucket holds at least so many samples, if there are so many:
        smaller ones join the next larger size.
      num_buckets: largest number of sizes.

    Returns:
      A pytree of arrays for every size, in rising order, with the samples along axis 0,
      in their order; `bucket_rows` says where a sample went. Without weights, where
      all samples have the same number of points, there are no `quadrature_weights`:
      models are faster without.
    """
    if len({s.num_points for s in samples}) == 1:
        kept = [name for name in _FIELDS if getattr(samples[0], name) is not None]
        return ({n: np.stack([getattr(s, n) for s in samples]) for n in kept},)
    buckets = []
    for size, rows in bucket_rows(
        [s.num_points for s in samples], batch_size=batch_size, num_buckets=num_buckets
    ):
        padded = [pad(samples[row], size) for row in rows]
        buckets.append({n: np.stack([p[n] for p in padded]) for n in padded[0]})
    return tuple(buckets)


def bucket_rows(
    counts: Sequence[int], *, batch_size: int = 1, num_buckets: int = 4
) -> list[tuple[int, np.ndarray]]:
    """Divides samples among sizes to pad to.

    Args:
      counts: points of every sample.
      batch_size: as for `stack`.
      num_buckets: as for `stack`.

    Returns:
      Size and rows of the samples, in rising order, for every size.
    """
    points = np.asarray(counts)
    found, waiting, lower = [], np.zeros(0, np.int64), 0
    for size in bucket_sizes(counts, num_buckets=num_buckets):
        rows = np.flatnonzero((points > lower) & (points <= size))
        waiting, lower = np.sort(np.concatenate([waiting, rows])), size
        if len(waiting) >= batch_size:
            found.append((size, waiting))
            waiting = np.zeros(0, np.int64)
    if len(waiting):  # the largest samples are too few: those of the size below join
        rows = found.pop()[1] if found else np.zeros(0, np.int64)
        found.append((lower, np.sort(np.concatenate([rows, waiting]))))
    return found


def _channels(sample: Sample) -> dict[str, int | None]:
    def count(array: Any) -> int | None:
        if array is None:
            return None
        return np.shape(array)[1] if np.ndim(array) == 2 else 1

    names = ("mesh_points", "features", "target")
    found = {name: count(getattr(sample, name)) for name in names}
    return found | {"quadrature_weights": count(sample.quadrature_weights)}


def _describe(channels: dict[str, int | None]) -> str:
    words = []
    for name, count in channels.items():
        if name == "mesh_points":
            words.append(f"mesh_points in {count} dimensions")
        elif name == "quadrature_weights":
            words.append(f"{'no' if count is None else 'with'} quadrature_weights")
        else:
            words.append(f"{count or 'no'} channels of {name}")
    return ", ".join(words)


def _check_shapes(sample: Sample, place: str, labels: bool) -> None:
    ranks = dict.fromkeys(("mesh_points", "features", "target"), 2)
    ranks |= {"quadrature_weights": 1} | ({"target": 1} if labels else {})
    for name, rank in ranks.items():
        array = getattr(sample, name)
        if array is None:
            continue
        kinds = "iu" if labels and name == "target" else "f"
        if array.dtype.kind not in kinds:
            wanted = "integers" if kinds == "iu" else "real floating-point numbers"
            raise TypeError(f"{place}: {name} has dtype {array.dtype}, not {wanted}.")
        if array.ndim != rank:
            expected = "(n,)" if rank == 1 else "(n, channels)"
            raise ValueError(
                f"{place}: {name} has shape {array.shape}, expected {expected}."
            )
        if len(array) != len(sample.mesh_points):
            raise ValueError(
                f"{place}: {name} has shape {array.shape}, but mesh_points "
                f"{sample.mesh_points.shape}: one row for each point is needed."
            )
    if not sample.mesh_points.size:
        raise ValueError(
            f"{place}: the mesh is empty, mesh_points has shape "
            f"{sample.mesh_points.shape}."
        )
    shape = sample.grid_shape
    if shape is not None and math.prod(shape) != sample.num_points:
        raise ValueError(
            f"{place}: grid_shape {shape} has {math.prod(shape)} points, mesh_points "
            f"{sample.num_points}."
        )


def _check_values(sample: Sample, place: str, num_classes: int | None) -> None:
    for name in _FIELDS:
        array = getattr(sample, name)
        if array is None or array.dtype.kind != "f":
            continue
        bad = ~np.isfinite(array)
        if bad.any():
            point = int(np.argwhere(bad)[0][0])
            raise ValueError(
                f"{place}: {name} has {bad.sum()} values that are not finite, the "
                f"first one at point {point}; remove the points or the sample."
            )
    weights = sample.quadrature_weights
    if weights is not None and (weights.min() < 0 or not weights.any()):
        raise ValueError(
            f"{place}: quadrature_weights must be non-negative and not all zero; the "
            f"smallest is {weights.min()}, the largest {weights.max()}."
        )
    if num_classes is not None and sample.target is not None:
        low, high = sample.target.min(), sample.target.max()
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"{place}: labels lie between {low} and {high}, but must be at least 0 "
                f"and below {num_classes}."
            )
