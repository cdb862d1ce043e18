"""What every benchmark asks of its data set, and who answers."""

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from opjax.samples import Sample, Splits


class Request(NamedTuple):
    """What every benchmark asks of its data set.

    Attributes:
      num_train: number of training samples.
      num_validation: validation samples, zero for none. In files and where all
        samples have one seed they come after those for training.
      num_test: number of test samples.
      data_dir: folder of published files; empty for samples of our own.
      seed: of samples of our own.
      cache_dir: folder of generated data; `$OPJAX_CACHE` or else `~/.cache/opjax`.
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
        """Splits of files that `load` reads; says `data_dir` for no source.

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
        """Splits from a seed for each set: none changes with the size of another."""
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
        """Splits from one seed, for sets that are parts of one."""
        count = sum(self.sizes)
        found = make(count, seed=self.seed, cache_dir=self.cache_dir)
        return divide(found, self.sizes, f"{source}, seed {self.seed}")


def divide(found: Sequence[Sample], sizes: Sequence[int], source: str) -> Splits:
    """Divides samples into those for training, validation and tests, in this order.

    Args:
      found: as many as `sizes` say together.
      sizes: numbers of the three.
      source: origin of the samples.

    Raises:
      ValueError: if there are more or fewer samples.
    """
    if len(found) != sum(sizes):
        raise ValueError(f"There are {len(found)} samples to divide into {sizes}.")
    first, second = sizes[0], sizes[0] + sizes[1]
    return Splits(found[:first], found[first:second], found[second:], source)
