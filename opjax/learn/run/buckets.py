"""Buckets of samples of one size: arrays in memory, or files read batch by batch.

For data on disk, memory holds about two kilobytes per sample for its summary, and at
most `AHEAD + 3` batches: those in computation and those that a thread prefetches while
the device works. The batches are bit for bit the same as for data in memory: the order
depends only on seed and step, so a checkpoint stores nothing else.

We do not use Grain (0.2), whose iterators shuffle, prefetch and save their position:
here, order and position are functions of the step, so only the few lines of `ahead`
remain.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np

from opjax import samples
from opjax.samples import summaries
from opjax.samples.sliced import Sliced
from opjax.samples.stored import Stored

AHEAD = 2  # batches that are read before they are asked for

Arrays = dict[str, np.ndarray]


class Bucket:
    """Samples on disk, padded to one size in the same way as by `samples.stack`.

    Args:
      found: the samples on disk.
      size: number of points after padding; None if all samples have the same number.
      encode: `encode(arrays)` normalises stacked samples, on the main thread.
    """

    def __init__(
        self, found: Stored, size: int | None, encode: Callable[[Arrays], Arrays]
    ):
        self.found, self._size, self.encode = found, size, encode

    def __len__(self) -> int:
        return len(self.found)

    @property
    def num_points(self) -> int:
        """Number of points of the samples, after padding."""
        return self._size or summaries.num_points(self.found)[0]

    def read(self, rows: Iterable[int]) -> Arrays:
        """Reads and stacks samples, without encoding them."""
        padded: list[Arrays] = []
        for row in rows:
            sample = self.found[int(row)]
            if self._size is not None:
                padded.append(samples.pad(sample, self._size))
            else:
                padded.append(samples.arrays(sample))
        return {name: np.stack([p[name] for p in padded]) for name in padded[0]}


def of(
    found: Stored,
    encode: Callable[[Arrays], Arrays],
    *,
    batch_size: int,
    num_buckets: int = 4,
    sizes: Sequence[int] | None = None,
) -> tuple[Bucket, ...]:
    """Divides samples on disk into buckets, in the same way as `samples.stack`.

    Args:
      found: the samples on disk.
      encode: function that normalises stacked samples.
      batch_size: see `samples.stack`.
      num_buckets: see `samples.stack`.
      sizes: see `samples.stack`.
    """
    if not found:
        return ()
    counts = summaries.num_points(found)
    if sizes is None and len(set(counts)) == 1:
        return (Bucket(found, None, encode),)
    rows = samples.bucket_rows(
        counts, batch_size=batch_size, num_buckets=num_buckets, sizes=sizes
    )
    return tuple(Bucket(found.take(chosen), size, encode) for size, chosen in rows)


def rows(bucket: Bucket | Mapping[str, np.ndarray], chosen: Iterable[int]) -> Arrays:
    """Returns samples of a bucket by index, in memory or on disk."""
    if isinstance(bucket, Bucket):
        return bucket.encode(bucket.read(chosen))
    return {name: array[list(chosen)] for name, array in bucket.items()}


def num_samples(name: str, bucket: object) -> int:
    """Returns the number of samples of a bucket.

    Raises:
      ValueError: if its arrays have different numbers of samples, or none.
    """
    if isinstance(bucket, Bucket | Sliced):
        return len(bucket)
    lengths = {np.shape(leaf)[0] for leaf in jax.tree.leaves(bucket)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} contain {sorted(lengths)} samples along axis 0; "
            "all must contain the same positive number."
        )
    return lengths.pop()


def num_points(bucket: object) -> int:
    """Returns the number of points of the samples; zero for data without meshes."""
    if isinstance(bucket, Bucket):
        return bucket.num_points
    points = np.shape(bucket.get("mesh_points", 0) if isinstance(bucket, dict) else 0)
    return points[1] if len(points) == 3 else 0


def ahead(batches: Iterable[tuple[Bucket, Iterable[int]]]) -> Iterator[Arrays]:
    """Yields encoded batches in turn, while a thread reads the next ones.

    Args:
      batches: bucket and rows of every batch; evaluated lazily.

    Raises:
      OSError: if a file of the next batch is missing.
      ValueError: if it is damaged or has changed.
    """
    left, waiting = iter(batches), deque()
    with ThreadPoolExecutor(1) as pool:
        try:
            while True:
                while len(waiting) <= AHEAD and (one := next(left, None)):
                    bucket, chosen = one
                    waiting.append((bucket, pool.submit(bucket.read, chosen)))
                if not waiting:
                    return
                bucket, future = waiting.popleft()
                yield bucket.encode(future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
