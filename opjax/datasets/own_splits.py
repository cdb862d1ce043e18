"""Samples of your own files for training, validation and tests."""

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from opjax.datasets import own
from opjax.datasets.samples import Sample, Splits
from opjax.datasets.stored import Stored

_Paths = Sequence[str | os.PathLike]


def splits(
    train: _Paths,
    test: _Paths = (),
    *,
    validation_fraction: float = 0.1,
    test_fraction: float = 0.2,
    num_train: int = 0,
    num_validation: int = 0,
    num_test: int = 0,
    seed: int = 0,
    in_memory: bool = True,
    **fields: Any,
) -> Splits:
    """Reads samples and divides those for training at random.

    Args:
      train: folders, files or patterns, see `own.find`.
      test: likewise; empty for a part of the training samples.
      validation_fraction: part of the training samples for validation, at least one.
      test_fraction: part of the training samples for tests, where there are no others.
      num_train: most training samples; zero for all.
      num_validation: likewise.
      num_test: likewise.
      seed: of the division.
      in_memory: whether samples are kept in memory; otherwise they are read whenever
        they are looked up, see `own.stored`.
      **fields: further arguments of `own.read`.

    Raises:
      OSError: if there are no files.
      ValueError: if a file is damaged, has no target or is in both lists; samples do
        not agree; or they are too few to be divided.
    """
    read = own.read if in_memory else own.stored
    found = read(train, **fields)
    if found[0].target is None:
        raise ValueError(
            f"{found[0].name} has no array 'target'; name what to predict, "
            "target_names=..."
        )
    order = np.random.default_rng(seed).permutation(len(found))
    shuffled = _take(found, order)
    if test:
        stacked = fields.get("stacked", False)
        both = {p.resolve() for p in own.find(train, stacked=stacked)}
        both &= {p.resolve() for p in own.find(test, stacked=stacked)}
        if both:
            raise ValueError(
                f"{len(both)} files are in train and in test, such as {min(both)}; a "
                "test needs other samples."
            )
        tests = read(test, **fields)
    else:
        shuffled, tests = _divide(shuffled, test_fraction, "test_fraction")
    kept, validation = _divide(shuffled, validation_fraction, "validation_fraction")
    return Splits(
        kept[: num_train or None],
        validation[: num_validation or None],
        tests[: num_test or None],
        f"own files ({','.join(map(str, train))})",
    )


def _take(found: Sequence[Sample], rows: Iterable[int]) -> Sequence[Sample]:
    return found.take(rows) if isinstance(found, Stored) else [found[i] for i in rows]


def _divide(
    found: Sequence[Sample], fraction: float, name: str
) -> tuple[Sequence[Sample], Sequence[Sample]]:
    """Splits off a part of the samples, at least one."""
    count = max(1, round(fraction * len(found)))
    if count >= len(found):
        raise ValueError(
            f"{name}={fraction} of {len(found)} samples leaves none for training; give "
            "more samples."
        )
    return found[:-count], found[-count:]
