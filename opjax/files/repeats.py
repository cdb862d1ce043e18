"""Detection of samples with equal inputs, such as frames of one run taken as cases."""

import hashlib
import math
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from opjax.samples import Sample

_WAY = (
    "Keep the last time of each run (foamToVTK -latestTime), or train on series with "
    "--time=one_step"
)


class Seen(NamedTuple):
    """Digests of a sample.

    Attributes:
      name: of the sample.
      given: digest of its points, features and scalars.
      asked: digest of its targets; empty if there are none.
      time: time stored in its file; NaN if there is none.
    """

    name: str
    given: bytes
    asked: bytes
    time: float = math.nan


def seen(sample: Sample, time: float = math.nan) -> Seen:
    """Returns the digests of a sample."""
    inputs = _digest([sample.mesh_points, sample.features, sample.scalars])
    asked = _digest([sample.target, sample.target_scalars])
    return Seen(sample.name, inputs, asked, time)


def _digest(arrays: Sequence[np.ndarray | None]) -> bytes:
    hashed = hashlib.blake2b(digest_size=16)
    present = [array for array in arrays if array is not None]
    for array in present:
        hashed.update(str(array.shape).encode())
        hashed.update(np.ascontiguousarray(array).data)
    return hashed.digest() if present else b""


def warn(samples: Iterable[Seen]) -> None:
    """Warns about equal inputs with different targets, and about doubtful targets.

    Doubtful are initial states among solutions, and targets that are all equal.

    Args:
      samples: digests of all samples of a data set.
    """
    groups: dict[bytes, list[Seen]] = {}
    samples = [one for one in samples if one.asked]
    for one in samples:
        groups.setdefault(one.given, []).append(one)
    several = [g for g in groups.values() if len({one.asked for one in g}) > 1]
    if several:
        _warn_of_several(several, len(samples))
    if len(groups) > 1 and len({one.asked for one in samples}) == 1:
        warnings.warn(
            f"The targets of all {len(samples)} samples are equal, but their inputs "
            "are not: there is nothing to learn. Check how the files were written.",
            stacklevel=4,
        )
    first = [one for one in samples if one.time == 0]
    if first and any(one.time > 0 for one in samples):
        warnings.warn(
            f"{len(first)} of {len(samples)} samples are at time 0, for example "
            f"{first[0].name}, and others are later: fields at time 0 are initial "
            f"values, not solutions. {_WAY}.",
            stacklevel=4,
        )


def _warn_of_several(groups: list[list[Seen]], count: int) -> None:
    number = sum(map(len, groups))
    one = groups[0][0]
    other = next(o for o in groups[0] if o.asked != one.asked)
    timed = [
        g for g in groups if len({o.time for o in g if not math.isnan(o.time)}) > 1
    ]
    if timed:
        early, late = sorted(timed[0], key=lambda seen: seen.time)[:2]
        warnings.warn(
            f"{number} of {count} samples are frames of {len(groups)} runs: "
            f"{early.name} is at time {early.time:g}, {late.name} at "
            f"{late.time:g}, with the same mesh and input. Models cannot "
            "distinguish them, and frames of one run would be in both the "
            f"training and the test set. {_WAY}.",
            stacklevel=5,
        )
        return
    warnings.warn(
        f"{number} of {count} samples have the same input as others, but different "
        f"targets, for example {one.name} and {other.name}. Models cannot "
        "distinguish them. Add the quantity that differs as a feature or scalar. "
        "If they are time steps of one run, keep the last one, or train on series "
        "with --time=one_step.",
        stacklevel=5,
    )
