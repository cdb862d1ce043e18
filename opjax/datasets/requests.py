"""The common interface between benchmarks and their data sets."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opjax.samples import Sample, Splits


class Request(NamedTuple):
    """The data request of a benchmark.

    Attributes:
      num_train: number of training samples.
      num_validation: number of validation samples, zero for none. In files, and if all
        samples have one seed, they follow the training samples.
      num_test: number of test samples.
      data_dir: folder of published files; empty for generated samples.
      seed: seed of generated samples.
      cache_dir: folder of generated data; by default `$OPJAX_CACHE` or
        `~/.cache/opjax`.
    """

    num_train: int
    num_validation: int
    num_test: int
    data_dir: str = ""
    seed: int = 0
    cache_dir: str | os.PathLike[str] | None = None

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of samples."""
        return self[:3]

    def read(
        self, load: Callable[..., tuple[Sequence[Sample], ...]], source: str = ""
    ) -> Splits:
        """Returns splits of the files that `load` reads; their source is `data_dir`.

        Raises:
          OSError: if a file is missing or cannot be read.
          ValueError: if there are too few samples, or they are damaged.
        """
        train, test = load(
            self.data_dir,
            num_train=self.num_train + self.num_validation,
            num_test=self.num_test,
        )
        return divide([*train, *test], self.sizes, source or self.data_dir)

    def generate(self, make: Callable[..., Sequence[Sample]], source: str) -> Splits:
        """Returns splits with one seed per set, so that sets are independent."""
        train, validation, test = (
            make(count, seed=3 * self.seed + i, cache_dir=self.cache_dir)
            if count
            else []
            for i, count in enumerate(self.sizes)
        )
        return Splits(train, validation, test, f"{source}, seed {self.seed}")

    def generate_together(
        self, make: Callable[..., Sequence[Sample]], source: str
    ) -> Splits:
        """Returns splits from one seed, for sets that are parts of one."""
        count = sum(self.sizes)
        found = make(count, seed=self.seed, cache_dir=self.cache_dir)
        return divide(found, self.sizes, f"{source}, seed {self.seed}")


def divide(found: Sequence[Sample], sizes: Sequence[int], source: str) -> Splits:
    """Divides samples into training, validation and test sets, in this order.

    Args:
      found: samples; their number must be the sum of `sizes`.
      sizes: numbers of samples of the three sets.
      source: origin of the samples.

    Raises:
      ValueError: if the number of samples differs from this sum.
    """
    if len(found) != sum(sizes):
        raise ValueError(
            f"There are {len(found)} samples, but they should be divided into {sizes}."
        )
    first, second = sizes[0], sizes[0] + sizes[1]
    return Splits(found[:first], found[first:second], found[second:], source)
