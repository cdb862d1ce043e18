"""Keeps double precision where single precision would lose the variation of values.

An absolute pressure of 101325 that varies by 0.05 loses all digits in single precision
after its mean is subtracted. For most data, single precision loses nothing relevant,
and needs half the memory.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from opjax import normalize
from opjax.normalize import Normalizer
from opjax.samples.base import FIELDS, SCALARS, Sample, converted


def narrow(array: np.ndarray) -> np.ndarray:
    """Returns an array in single precision if this preserves each channel's variation.

    This is so if it represents the values exactly, or if the mean is not large compared
    with the standard deviation, see `normalize.is_single`.

    Args:
      array: numbers in double precision, with the channels along the last axis, `(...,
        n, c)`, or `(n,)` for one channel; others are returned unchanged.
    """
    if array.dtype != np.float64 or not array.size:
        return array
    rows = array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
    with np.errstate(over="ignore", invalid="ignore"):
        single = array.astype(np.float32)
        moments = Normalizer(rows.mean(axis=0), rows.std(axis=0))
        exact = np.array_equal(single, array)
        held = moments.std.all() and normalize.is_single(moments)
    return single if exact or held else array


def narrow_samples(found: Sequence[Sample]) -> list[Sample]:
    """Returns samples with arrays from `narrow`, and scalars in a common precision."""
    narrowed = [converted(one, lambda _, a: narrow(a), FIELDS) for one in found]
    names = single_scalars([scalars_of(one) for one in narrowed])
    return [with_single(one, names) for one in narrowed]


def scalars_of(sample: Sample) -> dict[str, np.ndarray | None]:
    """Returns the scalars of a sample, by kind."""
    return {name: getattr(sample, name) for name in SCALARS}


def single_scalars(found: Sequence[Mapping[str, np.ndarray | None]]) -> list[str]:
    """Returns the kinds of scalars that single precision represents in all samples."""
    return [name for name in SCALARS if _is_single([one[name] for one in found])]


def _is_single(rows: Sequence[np.ndarray | None]) -> bool:
    arrays = [row for row in rows if row is not None and row.ndim == 1]
    alike = len({len(row) for row in arrays}) == 1 and len(arrays) == len(rows)
    return alike and narrow(np.stack(arrays)).dtype == np.float32


def with_single(sample: Sample, names: Sequence[str]) -> Sample:
    """Returns a sample with some kinds of its scalars in single precision."""
    return converted(sample, lambda _, a: a.astype(np.float32), names)
