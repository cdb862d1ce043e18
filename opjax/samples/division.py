"""Data sets that are divided for training, validation and tests."""

import dataclasses
from collections.abc import Mapping, Sequence, Sized
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from opjax.samples.base import Sample
from opjax.samples.stored import OnDisk

_T = TypeVar("_T", bound=Sized)
PARTS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Shares:
    """How a data set is divided at random.

    Args:
      validation_fraction: part of the training samples for validation, at least one.
      test_fraction: part of all samples for the test set, at least one; unused where a
        test set is given.
      num_train: maximum number of training samples. 0 uses all of them.
      num_validation: maximum number of validation samples. 0 uses all of them.
      num_test: maximum number of test samples. 0 uses all of them.
      seed: of the division.

    Raises:
      ValueError: if a fraction is not between 0 and 1, or a number is negative.

    Examples:
      >>> from opjax import files
      >>> files.Shares(validation_fraction=0.2, num_train=100, seed=1).test_fraction
      0.2
      >>> files.Shares(test_fraction=1.5)
      Traceback (most recent call last):
          ...
      ValueError: test_fraction=1.5 must be between 0 and 1.
    """

    validation_fraction: float = 0.1
    test_fraction: float = 0.2
    num_train: int = 0
    num_validation: int = 0
    num_test: int = 0
    seed: int = 0

    def __post_init__(self):
        """Refuses what no data set could be divided by."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_fraction") and not 0 < value < 1:
                raise ValueError(f"{field.name}={value} must be between 0 and 1.")
            if value < 0:
                raise ValueError(f"{field.name}={value} must be at least 0.")


SHARES = Shares()  # the default


class Divided(NamedTuple, Generic[_T]):
    """A data set of any kind, divided.

    Attributes:
      train: for training.
      validation: chooses the model.
      test: used once.
      source: where they come from.
      normalizers: of "features" and "target", where the data set fixes them: features
        are encoded with theirs already, targets are physical. None to fit them to the
        training samples.
      channels: names of the channels of "features" and "target", and of "scalars" and
        "target_scalars", where files name them.
    """

    train: _T
    validation: _T
    test: _T
    source: str
    normalizers: Mapping[str, Any] | None = None
    channels: Mapping[str, tuple[str, ...]] | None = None

    # What messages call the elements, and whether one of them may be in two sets.
    elements = "samples"
    one_is_enough = False

    @classmethod
    def divide(
        cls,
        data: _T,
        test: _T | None = None,
        shares: Shares = SHARES,
        *,
        parts: Sequence[str] = (),
    ) -> Self:
        """Divides a data set at random, or as a table says.

        Args:
          data: samples for training and validation, and for the test set if there is no
            other.
          test: the test set.
          shares: how large the parts are.
          parts: one of `PARTS` for each sample, from a table; empty, or all of them
            empty, without.

        Raises:
          ValueError: if the samples are too few to be divided, or the table names no
            sample for a part.
        """
        if any(parts):
            rows = _rows_of(parts, given=test is not None)
        else:
            rows = cls._rows_at_random(len(data), shares, given=test is not None)
        most = shares.num_train, shares.num_validation, shares.num_test
        kept = [_take(data, chosen, n) for chosen, n in zip(rows, most, strict=True)]
        if test is not None:
            kept[2] = _take(test, range(len(test)), shares.num_test)
        return cls(*kept, source=f"own {cls.elements}")

    @classmethod
    def _rows_at_random(
        cls, count: int, shares: Shares, *, given: bool
    ) -> tuple[list[int], list[int], list[int]]:
        """Numbers of the elements of each part; of no test if one is given."""
        train = np.random.default_rng(shares.seed).permutation(count).tolist()
        test: list[int] = []
        if cls.one_is_enough and count == 1 and not given:
            return train, [], train
        if not given:
            train, test = cls._cut(train, shares, "test_fraction")
        train, validation = cls._cut(train, shares, "validation_fraction")
        return train, validation, test

    @classmethod
    def _cut(
        cls, rows: list[int], shares: Shares, name: str
    ) -> tuple[list[int], list[int]]:
        """Cuts off a fraction of the rows, at least one."""
        fraction: float = getattr(shares, name)
        kept = len(rows) - max(1, round(fraction * len(rows)))
        if kept < 1 and not cls.one_is_enough:
            raise ValueError(
                f"{name}={fraction} of {len(rows)} {cls.elements} leaves none for "
                f"training; give more {cls.elements}, or a test set of its own."
            )
        kept = max(kept, 1)
        return rows[:kept], rows[kept:]


class Splits(Divided[Sequence[Sample]]):
    """The samples of a benchmark, divided.

    Examples:
      >>> import numpy as np
      >>> from opjax import learn, samples
      >>> x = np.random.default_rng(0).normal(size=(10, 6, 5))
      >>> cases = samples.from_arrays(features=x, target=np.sin(x))
      >>> splits = learn.Splits.divide(cases)
      >>> len(splits.train), len(splits.validation), len(splits.test)
      (7, 1, 2)
    """


def _take(data: _T, rows: Sequence[int], most: int) -> _T:
    """Some elements of a data set of any kind, at most so many; all if zero."""
    rows, any_kind = rows[: most or None], cast(Any, data)
    if isinstance(data, OnDisk):
        return any_kind.take(rows)
    return cast(Any, [any_kind[row] for row in rows])


def _rows_of(
    parts: Sequence[str], *, given: bool
) -> tuple[list[int], list[int], list[int]]:
    """Numbers of the samples for each of `PARTS`, as the column `split` says.

    Args:
      parts: of every sample, as in the table.
      given: whether a test set is given besides.

    Raises:
      ValueError: if it is, a sample is in no part, or a part is empty.
    """
    if missing := sum(part not in PARTS for part in parts):
        raise ValueError(
            f"The column split of cases.csv says nothing of {missing} of {len(parts)} "
            "samples; give each a row, or leave the column out."
        )
    if given:
        raise ValueError(
            "The column split of cases.csv names the test samples already; leave "
            "test= (--test) out, or the column."
        )
    train, validation, test = (
        [row for row, part in enumerate(parts) if part == name] for name in PARTS
    )
    for name, rows in zip(PARTS, (train, validation, test), strict=True):
        if not rows:
            raise ValueError(
                f"The column split of cases.csv has no sample for {name}; give each of "
                f"{', '.join(PARTS)} at least one."
            )
    return train, validation, test
