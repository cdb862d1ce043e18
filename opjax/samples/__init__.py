"""Samples: pairs of functions on meshes, with checks, padding and summaries.

Every data set is a sequence of `Sample`s, and a benchmark consists of `Splits`. `check`
raises an error if samples are inconsistent; `stack` pads samples to a few sizes for
training; `Stored` leaves them on disk. Normalisers and the ranges of a training set are
in `samples.normalizers` and `samples.ranges`, sizes and sums in `samples.summaries`.
"""

from opjax.samples.base import (
    FIELDS,
    SCALARS,
    Patch,
    Sample,
    arrays,
    check,
    check_same_channels,
)
from opjax.samples.division import Divided, Shares, Splits
from opjax.samples.draw import draw_points
from opjax.samples.from_arrays import columns, from_arrays, grid_points
from opjax.samples.padding import (
    bucket_rows,
    bucket_sizes,
    cheapest_num_buckets,
    coarsen,
    fitting_sizes,
    join,
    pad,
    stack,
    unstack,
)
from opjax.samples.series import Series
from opjax.samples.stored import OnDisk, Place, Stored

__all__ = [
    "FIELDS",
    "SCALARS",
    "Divided",
    "OnDisk",
    "Patch",
    "Place",
    "Sample",
    "Series",
    "Shares",
    "Splits",
    "Stored",
    "arrays",
    "bucket_rows",
    "bucket_sizes",
    "cheapest_num_buckets",
    "check",
    "check_same_channels",
    "coarsen",
    "columns",
    "draw_points",
    "fitting_sizes",
    "from_arrays",
    "grid_points",
    "join",
    "pad",
    "stack",
    "unstack",
]
