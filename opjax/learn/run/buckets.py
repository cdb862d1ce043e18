"""Samples of one size: arrays in memory, or files that are read batch by batch.

Of data on disk there are in memory, besides about two kilobytes a sample for its
summary, no more than `AHEAD + 3` batches: those being computed and those read ahead, by
a thread, while the device works. Batches are those of data in memory, bit for bit: the
order depends on seed and step alone, which is all that a checkpoint has to keep.

Our own reader rather than Grain (0.2), whose iterators shuffle, prefetch and save their
position: order and position are ours already, a function of the step; what is left for
it to do are the lines of `ahead`.
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
    """Samples on disk that are padded to one size, as `samples.stack` pads them.

    Args:
      found: the samples.
      size: points after padding; None if all samples have the same number.
      encode: `encode(arrays)`, of stacked samples, on the main thread.
    """

    def __init__(
        self, found: Stored, size: int | None, encode: Callable[[Arrays], Arrays]
    ):
        self.found, self._size, self.encode = found, size, encode

    def __len__(self) -> int:
        return len(self.found)

    @property
    def num_points(self) -> int:
        """Points of its samples, after padding."""
        return self._size or summaries.num_points(self.found)[0]

    def read(self, rows: Iterable[int]) -> Arrays:
        """Reads and stacks samples, not encoded."""
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
    """Divides samples on disk among buckets, as `samples.stack` does.

    Args:
      found: the samples.
      encode: of stacked samples.
      batch_size: see `samples.stack`.
      num_buckets: likewise.
      sizes: likewise.
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
    """Returns samples of a bucket, in memory or on disk, by their places in it."""
    if isinstance(bucket, Bucket):
        return bucket.encode(bucket.read(chosen))
    return {name: array[list(chosen)] for name, array in bucket.items()}


def num_samples(name: str, bucket: object) -> int:
    """Returns the samples of a bucket; raises ValueError if its arrays disagree."""
    if isinstance(bucket, Bucket | Sliced):
        return len(bucket)
    lengths = {np.shape(leaf)[0] for leaf in jax.tree.leaves(bucket)}
    if len(lengths) != 1 or 0 in lengths:
        raise ValueError(
            f"The arrays of {name} hold {sorted(lengths)} samples along axis 0; all "
            "must hold the same positive number."
        )
    return lengths.pop()


def num_points(bucket: object) -> int:
    """Returns the points of the samples of a bucket; zero if it is none of meshes."""
    if isinstance(bucket, Bucket):
        return bucket.num_points
    points = np.shape(bucket.get("mesh_points", 0) if isinstance(bucket, dict) else 0)
    return points[1] if len(points) == 3 else 0


def ahead(wanted: Iterable[tuple[Bucket, Iterable[int]]]) -> Iterator[Arrays]:
    """Yields batches in turn, encoded, while a thread reads the next ones.

    Args:
      wanted: bucket and rows of every batch; looked at as late as can be.

    Raises:
      OSError: if a file of a batch that is due is missing.
      ValueError: if it is damaged or not what it was.
    """
    wanted, waiting = iter(wanted), deque()
    with ThreadPoolExecutor(1) as pool:
        try:
            while True:
                while len(waiting) <= AHEAD and (one := next(wanted, None)):
                    bucket, chosen = one
                    waiting.append((bucket, pool.submit(bucket.read, chosen)))
                if not waiting:
                    return
                bucket, future = waiting.popleft()
                yield bucket.encode(future.result())
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
