"""Digests of samples, which tell whether two of them are the same."""

import hashlib
from collections.abc import Iterable

import numpy as np

from opjax.samples.base import Sample
from opjax.samples.stored import Stored

# Data sets beyond it are not recorded.
_MOST = 100_000


def digest(sample: Sample) -> str:
    """Returns 16 letters that change with points, features, target and scalars."""
    found = hashlib.blake2b(digest_size=8)
    fields = (sample.mesh_points, sample.features, sample.target)
    for array in (*fields, sample.scalars, sample.target_scalars):
        if array is not None:
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def digests(*parts: Iterable[Sample]) -> list[str] | None:
    """Returns the digests of all samples of data sets in memory, sorted.

    None where samples are on disk, which would all be read for it, or too many.
    """
    found: set[str] = set()
    for part in parts:
        if isinstance(part, Stored):
            return None
        found.update(digest(sample) for sample in part)
        if len(found) > _MOST:
            return None
    return sorted(found)
