"""Double precision is kept where single precision would lose digits of what varies.

An absolute pressure of 101325 that varies by 0.05 has no digit left in single precision
once its mean is off. Of most data it loses nothing that anybody could learn, and takes
half of the memory.
"""

from collections.abc import Sequence

import numpy as np

from opjax import normalize
from opjax.normalize import Normalizer
from opjax.samples.base import FIELDS, SCALARS, Sample


def narrow(array: np.ndarray) -> np.ndarray:
    """Returns an array in single precision if that holds the variation of each channel.

    That is if it holds the values as they are, or if the mean is not large beside the
    deviation, see `normalize.is_single`.

    Args:
      array: numbers in double precision, with the channels along the last axis,
        `(..., n, c)`, or `(n,)` of one; others are returned as they are.
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
    """Returns samples whose arrays are narrow, their scalars all together."""
    narrowed = [
        one._replace(
            **{
                name: narrow(array)
                for name in FIELDS
                if (array := getattr(one, name)) is not None
            }
        )
        for one in found
    ]
    for name in SCALARS:
        rows = [getattr(one, name) for one in narrowed]
        if rows and all(row is not None and row.ndim == 1 for row in rows):
            if len({len(row) for row in rows}) > 1:
                continue
            table = narrow(np.stack(rows))
            narrowed = [
                one._replace(**{name: row})
                for one, row in zip(narrowed, table, strict=True)
            ]
    return narrowed
