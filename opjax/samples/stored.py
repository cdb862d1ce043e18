"""Samples that stay in their files and are read on access."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self, overload

from opjax.samples import base, summaries
from opjax.samples.base import SCALARS, Sample
from opjax.samples.summaries import Summary


class Place(NamedTuple):
    """Location of a sample: its file, and its group or row, if any.

    Examples:
      >>> from opjax.samples import Place
      >>> Place("data/cases.h5", "case_3").name
      'data/cases.h5/case_3'
    """

    file: str
    group: str

    @property
    def name(self) -> str:
        """Name of the sample in messages."""
        return str(Path(self.file) / self.group) if self.group else self.file


class OnDisk:
    """A data set on disk. Only locations and summaries of samples are in memory.

    Args:
      places: locations of the samples.
      known: their summaries, from one pass over all files.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(3, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         np.savez(f"{folder}/{i}.npz", mesh_points=mesh, target=mesh[:, 0])
      ...     found = files.stored(folder)  # a `Stored`, which is an `OnDisk`
      >>> len(found.take([0, 2]))
      2
    """

    def __init__(self, places: Sequence[Place], known: Sequence[Summary]):
        self.places, self.summaries = list(places), list(known)

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: Iterable[int]) -> Self:
        """Returns some of the samples, in the given order."""
        chosen, part = list(rows), copy.copy(self)
        part.places = [self.places[row] for row in chosen]
        part.summaries = [self.summaries[row] for row in chosen]
        return part


class Stored(OnDisk, Sequence[Sample]):
    """A data set on disk whose samples are read completely.

    Args:
      places: locations of the samples.
      known: their summaries, from one pass over all files.
      read: `read(place)` returns the sample.

    Examples:
      >>> import tempfile
      >>> import numpy as np
      >>> from opjax import files
      >>> points = np.random.default_rng(0).uniform(size=(3, 5, 2))
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     for i, mesh in enumerate(points):
      ...         np.savez(f"{folder}/{i}.npz", mesh_points=mesh, target=mesh[:, 0])
      ...     found = files.stored(folder)
      ...     print(found[1].target.shape)  # reads one file
      (5, 1)
    """

    def __init__(
        self,
        places: Sequence[Place],
        known: Sequence[Summary],
        read: Callable[[Place], Sample],
    ):
        super().__init__(places, known)
        self._read = read

    def __add__(self, other: Self) -> Self:
        both = copy.copy(self)
        both.places = self.places + other.places
        both.summaries = self.summaries + other.summaries
        return both

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> "Stored": ...

    def __getitem__(self, index: int | slice) -> "Sample | Stored":
        """Reads a sample; of a slice, says where its samples are.

        Raises:
          OSError: if the file is missing.
          ValueError: if it is damaged, or not what it was in the first pass.
        """
        if isinstance(index, slice):
            return self.take(range(len(self))[index])
        place, before = self.places[index], self.summaries[index]
        try:
            sample = self._read(place)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{place.file} existed when the run began, but is missing now."
            ) from error
        base.check([sample])
        if _shapes(sample) != (before.num_points, before.grid_shape, before.channels):
            raise ValueError(
                f"{sample.name} has different points or channels than at the start of "
                "the run; do not change files while they are read."
            )
        return sample


def _shapes(
    sample: Sample,
) -> tuple[int, tuple[int, ...] | None, dict[str, int]]:
    fields, scalars = (base.arrays(sample, n) for n in (summaries.FIELDS, SCALARS))
    channels = {k: math.prod(a.shape[1:]) for k, a in fields.items()}
    channels |= {k: len(a) for k, a in scalars.items()}
    return sample.num_points, sample.grid_shape, channels
