"""Samples on meshes of any size, checked, and padded to a few sizes for training.

Every data set is a sequence of `Sample`s, and a benchmark consists of `Splits`. XLA
compiles a program for each shape, so samples are padded to a small number of sizes and
stacked: one batch per size. Padded points have zero quadrature weight, which removes
them from attention, loss and metric. Their coordinates and values are those of the
sample's first point, so that no computation there can overflow.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from opjax.samples.base import FIELDS, SCALARS, Sample, arrays


def coarsen(found: Sequence[Sample], stride: int) -> list[Sample]:
    """Keeps every `stride`-th point of structured grids, from the first one on.

    Args:
      found: samples on grids; shared mesh points stay shared.
      stride: stride along every axis.

    Raises:
      ValueError: if a sample has no `grid_shape`, or a target on another grid.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> fine = samples.from_arrays(target=np.ones((1, 5, 5)))
      >>> samples.coarsen(fine, 2)[0].grid_shape
      (3, 3)
    """
    shared: dict[int, np.ndarray] = {}

    def coarse(sample: Sample) -> Sample:
        shape = sample.grid_shape
        if shape is None or sample.target_grid is not None:
            raise ValueError(
                f"Only samples on one structured grid can be coarsened; {sample.name} "
                f"has grid_shape {shape} and target_grid {sample.target_grid}."
            )
        rows = np.arange(sample.num_points).reshape(shape)
        rows = rows[(slice(None, None, stride),) * len(shape)]
        chosen = rows.ravel()
        points = shared.get(id(sample.mesh_points))
        if points is None:
            points = sample.mesh_points[chosen]
            shared[id(sample.mesh_points)] = points
        target, features, weights = (
            None if array is None else array[chosen]
            for array in (sample.target, sample.features, sample.quadrature_weights)
        )
        return sample._replace(
            mesh_points=points,
            target=target,
            features=features,
            quadrature_weights=weights,
            cells=None,
            grid_shape=rows.shape,
        )

    return [coarse(sample) for sample in found]


def bucket_sizes(counts: Sequence[int], *, num_buckets: int = 4) -> tuple[int, ...]:
    """Chooses padded sizes that waste few points.

    The sizes minimise the number of padded points, `sum_i (size(i) - counts[i])`, over
    all choices of at most `num_buckets` sizes among the counts.

    Args:
      counts: numbers of points of all samples.
      num_buckets: maximum number of sizes.

    Returns:
      At most `num_buckets` sizes in ascending order; the last is the largest count.

    Raises:
      ValueError: if there is no count, or a count or `num_buckets` is not positive.

    Examples:
      >>> from opjax import samples
      >>> samples.bucket_sizes([100, 101, 500, 510], num_buckets=2)
      (101, 510)
    """
    if num_buckets < 1 or not len(counts) or min(counts) < 1:
        raise ValueError(
            f"{num_buckets=} and all {len(counts)} counts must be positive."
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


# Compiling a program for one more size takes about as long as training on so many
# points: about 8 s, and 30 us for each point, with the models of `--preset=fast`.
_PROGRAM_POINTS = 250_000
_MOST_BUCKETS = 4


def cheapest_num_buckets(
    counts: Sequence[int], *, batch_size: int = 1, num_epochs: int = 1
) -> int:
    """Balances padded points against the compilation of one program per size.

        cost(k) = num_epochs * (points after padding to k sizes) + 250,000 k

    It depends only on its arguments, not on measured times, so that a resumed run has
    the same batches.

    Args:
      counts: numbers of points of all samples.
      batch_size: as for `stack`.
      num_epochs: number of epochs.

    Returns:
      The number of sizes with the smallest cost, from one to four.

    Raises:
      ValueError: as from `bucket_sizes`.

    Examples:
      >>> from opjax import samples
      >>> samples.cheapest_num_buckets([100, 101, 500, 510])
      1
    """

    def cost(number: int) -> int:
        buckets = bucket_rows(counts, batch_size=batch_size, num_buckets=number)
        points = sum(size * len(rows) for size, rows in buckets)
        return num_epochs * points + _PROGRAM_POINTS * len(buckets)

    return min(range(1, _MOST_BUCKETS + 1), key=cost)


def fitting_sizes(
    counts: Sequence[int], sizes: Sequence[int]
) -> tuple[int, ...] | None:
    """Returns sizes for other samples, reusing given sizes if they fit.

    Args:
      counts: numbers of points of all samples.
      sizes: padded sizes of similar samples, in ascending order.

    Returns:
      The required ones of `sizes`, and the largest count if it exceeds them all; None
      if padding would more than double the points.

    Examples:
      >>> from opjax import samples
      >>> samples.fitting_sizes([90, 95], [100, 500])
      (100,)
    """
    points = np.asarray(counts)
    available = np.asarray([*sizes, max(*sizes, *counts)])
    padded = available[np.searchsorted(available, points)]
    if padded.sum() > 2 * points.sum():
        return None
    return tuple(np.unique(padded).tolist())


def pad(sample: Sample, size: int) -> dict[str, np.ndarray]:
    """Pads the arrays of a sample to `size` points.

    Args:
      sample: a sample, after `check`.
      size: number of points after padding.

    Returns:
      `mesh_points`; `quadrature_weights` (`1 / n` each if the sample has none, which is
      equivalent for models, and zero for padding); and `features`, `target` and scalars
      if the sample has them. Scalars are not padded.

    Raises:
      ValueError: if the sample has more points.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> padded = samples.pad(samples.Sample(np.ones((2, 2)), np.ones((2, 1))), 3)
      >>> padded["quadrature_weights"].tolist()
      [0.5, 0.5, 0.0]
    """
    missing = size - sample.num_points
    if missing < 0:
        raise ValueError(f"A sample with {sample.num_points} points exceeds {size=}.")
    weights = sample.quadrature_weights
    if weights is None:
        weights = np.full(
            sample.num_points, 1 / sample.num_points, sample.mesh_points.dtype
        )
    fields = arrays(sample._replace(quadrature_weights=weights), FIELDS)
    padded = {
        name: np.concatenate([array, np.repeat(array[:1], missing, axis=0)])
        for name, array in fields.items()
    }
    padded["quadrature_weights"][sample.num_points :] = 0
    return padded | arrays(sample, SCALARS)


def with_zeros(array: np.ndarray, size: int) -> np.ndarray:
    """Returns an array with zero rows below, so that few sizes are compiled."""
    return np.pad(array, [(0, size - len(array))] + [(0, 0)] * (array.ndim - 1))


def join(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks arrays along axis 0, without a copy if possible.

    No copy is needed if all are the same array, or successive parts of one array.

    Returns:
      The arrays, read-only unless they were copied.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> rows = np.arange(6.0).reshape(3, 2)
      >>> joined = samples.join(list(rows))
      >>> joined.shape, np.shares_memory(joined, rows)  # not copied
      ((3, 2), True)
    """
    first = arrays[0]
    if all(array is first for array in arrays):
        return np.broadcast_to(first, (len(arrays), *first.shape))
    if _adjoining(arrays):
        shape, strides = (len(arrays), *first.shape), (first.nbytes, *first.strides)
        return np.lib.stride_tricks.as_strided(first, shape, strides, writeable=False)
    return np.stack(arrays)


def _adjoining(arrays: Sequence[np.ndarray]) -> bool:
    first = arrays[0]
    begin = first.ctypes.data
    return first.base is not None and all(
        array.base is first.base
        and (array.shape, array.dtype) == (first.shape, first.dtype)
        and array.flags.c_contiguous
        and array.ctypes.data == begin + row * first.nbytes
        for row, array in enumerate(arrays)
    )


def stack(
    samples: Sequence[Sample],
    *,
    batch_size: int = 1,
    num_buckets: int = 4,
    sizes: Sequence[int] | None = None,
) -> tuple[dict[str, np.ndarray], ...]:
    """Pads and stacks samples of similar size.

    Args:
      samples: samples after `check`; an empty sequence gives no bucket.
      batch_size: minimum number of samples per bucket, if there are so many: smaller
        buckets are merged with the next larger size.
      num_buckets: maximum number of sizes.
      sizes: padded sizes, instead of the best choice.

    Returns:
      A pytree of arrays for every size, in ascending order, with the samples in order
      along axis 0; `bucket_rows` returns the bucket of each sample. If no sample has
      weights and all have the same number of points, there are no `quadrature_weights`,
      because models are faster without them. Arrays may be read-only, see `join`.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> cases = [samples.Sample(np.ones((n, 2)), np.ones((n, 1))) for n in (5, 9, 5)]
      >>> [bucket["target"].shape for bucket in samples.stack(cases, num_buckets=2)]
      [(2, 5, 1), (1, 9, 1)]
    """
    if not samples:
        return ()
    if sizes is None and len({s.num_points for s in samples}) == 1:
        kept = arrays(samples[0])
        return ({n: join([getattr(s, n) for s in samples]) for n in kept},)
    buckets = []
    for size, rows in bucket_rows(
        [s.num_points for s in samples],
        batch_size=batch_size,
        num_buckets=num_buckets,
        sizes=sizes,
    ):
        padded = [pad(samples[row], size) for row in rows]
        buckets.append({n: np.stack([p[n] for p in padded]) for n in padded[0]})
    return tuple(buckets)


def bucket_rows(
    counts: Sequence[int],
    *,
    batch_size: int = 1,
    num_buckets: int = 4,
    sizes: Sequence[int] | None = None,
) -> list[tuple[int, np.ndarray]]:
    """Assigns samples to padded sizes.

    Args:
      counts: numbers of points of all samples.
      batch_size: as for `stack`.
      num_buckets: as for `stack`.
      sizes: as for `stack`.

    Returns:
      Size and rows of the samples, in ascending order, for every size.

    Examples:
      >>> from opjax import samples
      >>> buckets = samples.bucket_rows([5, 9, 5], num_buckets=2)
      >>> [(size, rows.tolist()) for size, rows in buckets]
      [(5, [0, 2]), (9, [1])]
    """
    points = np.asarray(counts)
    buckets, waiting, lower = [], np.zeros(0, np.int64), 0
    for size in sizes or bucket_sizes(counts, num_buckets=num_buckets):
        rows = np.flatnonzero((points > lower) & (points <= size))
        waiting, lower = np.sort(np.concatenate([waiting, rows])), size
        if len(waiting) >= batch_size:
            buckets.append((size, waiting))
            waiting = np.zeros(0, np.int64)
    if len(waiting):  # the largest samples are too few: those of the size below join
        rows = buckets.pop()[1] if buckets else np.zeros(0, np.int64)
        buckets.append((lower, np.sort(np.concatenate([rows, waiting]))))
    return buckets


def unstack(
    buckets: Sequence[Any],
    counts: Sequence[int],
    *,
    batch_size: int = 1,
    num_buckets: int = 4,
) -> list[Any]:
    """Returns results for the buckets of `stack`, in the order of the samples.

    Args:
      buckets: for every size, a pytree of arrays with the samples along axis 0 and, if
        an array has more axes, the points along axis 1.
      counts: numbers of points of all samples.
      batch_size: as for `stack`.
      num_buckets: as for `stack`.

    Returns:
      A pytree of arrays for every sample, without its padding.

    Examples:
      >>> import numpy as np
      >>> from opjax import samples
      >>> buckets = [np.ones((2, 5, 1)), np.ones((1, 9, 1))]
      >>> [found.shape for found in samples.unstack(buckets, [5, 9, 5], num_buckets=2)]
      [(5, 1), (9, 1), (5, 1)]
    """
    parts: list[Any] = [None] * len(counts)
    rows = bucket_rows(counts, batch_size=batch_size, num_buckets=num_buckets)
    for bucket, (_, indices) in zip(buckets, rows, strict=True):
        arrays = jax.tree.map(np.asarray, bucket)
        for place, row in enumerate(indices):
            parts[row] = jax.tree.map(partial(_one, place, counts[row]), arrays)
    return parts


def _one(place: int, size: int, array: np.ndarray) -> np.ndarray:
    """A sample of a bucket, without padding."""
    return array[place, :size] if array.ndim > 1 else array[place]
