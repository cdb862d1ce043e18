"""Digests of samples, which show whether two samples are equal."""

import hashlib
from collections.abc import Iterable

import numpy as np

from opjax.samples.base import Sample
from opjax.samples.series import Series
from opjax.samples.stored import Stored

# Data sets beyond it are not recorded.
_MOST = 100_000


def digest(sample: Sample) -> str:
    """Returns a digest of points, features, target and scalars, 16 characters.

    Values are compared in single precision, as in training. So the same sample in
    another dtype, byte order or memory layout has the same digest.
    """
    fields = (sample.mesh_points, sample.features, sample.target)
    return _of(*fields, sample.scalars, sample.target_scalars)


def digest_of_series(series: Series) -> str:
    """Returns a digest of points, values, lags and constants, 16 characters.

    Raises:
      TypeError: if its frames are in files, because all would have to be read.
    """
    if not isinstance(series.values, np.ndarray):
        raise TypeError(
            f"The frames of {series.name} are in files, so all would have to be read."
        )
    scalars = [(series.scalars or {})[name] for name in series.scalar_names]
    fields = (series.mesh_points, series.features, series.values)
    return _of(*fields, series.times - series.times[:1], np.asarray(scalars))


def _of(*arrays: np.ndarray | None) -> str:
    hashed = hashlib.blake2b(digest_size=8)
    for array in arrays:
        if array is not None:
            with np.errstate(over="ignore"):  # refused by name elsewhere
                hashed.update(np.ascontiguousarray(array, np.float32).data)
    return hashed.hexdigest()


def digests(*parts: Iterable[Sample]) -> list[str] | None:
    """Returns the sorted digests of all samples of data sets in memory.

    None if samples are on disk, because all would have to be read, or if there are too
    many.
    """
    every: set[str] = set()
    for part in parts:
        if isinstance(part, Stored):
            return None
        every.update(digest(sample) for sample in part)
        if len(every) > _MOST:
            return None
    return sorted(every)
