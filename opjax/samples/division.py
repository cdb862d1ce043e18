"""Data sets split into training, validation and test sets."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np

from opjax.samples.base import Sample
from opjax.samples.stored import OnDisk

_T = TypeVar("_T", bound=Sized)
PARTS = ("train", "validation", "test")


@dataclasses.dataclass(frozen=True)
class Shares:
    """Fractions of a random split.

    Args:
      validation_fraction: fraction of the training samples that is used for validation,
        at least one sample.
      test_fraction: fraction of all samples that is used as test set, at least one
        sample; unused if a test set is given.
      num_train: maximum number of training samples. 0 uses all of them.
      num_validation: maximum number of validation samples. 0 uses all of them.
      num_test: maximum number of test samples. 0 uses all of them.
      seed: seed of the split.

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
    """A split data set of any kind.

    Attributes:
      train: training set.
      validation: validation set, which selects the model.
      test: test set, used once.
      source: origin of the data.
      normalizers: normalisers of "features" and "target", if the data set provides
        them: its features are already encoded, its targets are physical. None if they
        are fitted to the training samples.
      channels: names of the channels of "features" and "target", and of "scalars" and
        "target_scalars", if files provide them.

    Examples:
      >>> from opjax import samples
      >>> divided = samples.Divided.divide(list("abcdefghij"))
      >>> [len(part) for part in divided[:3]]  # training, validation, test
      [7, 1, 2]
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
        """Splits a data set at random, or according to a table.

        Args:
          data: samples for training and validation, and for the test set if none is
            given.
          test: the test set.
          shares: fractions of the split.
          parts: one of `PARTS` for each sample, from a table; empty (or all entries
            empty) if there is no table.

        Raises:
          ValueError: if there are too few samples to split, or the table assigns no
            sample to a set.
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

    def mapped(self, convert: Callable[[_T], _T]) -> Self:
        """Returns the split with each of its parts converted."""
        train, validation, test = map(convert, self[:3])
        return self._replace(train=train, validation=validation, test=test)

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
                f"training; use more {cls.elements}, or a separate test set."
            )
        kept = max(kept, 1)
        return rows[:kept], rows[kept:]


class Splits(Divided[Sequence[Sample]]):
    """The split samples of a benchmark.

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
            f"The column split of cases.csv is missing for {missing} of {len(parts)} "
            "samples; add a row for each, or remove the column."
        )
    if given:
        raise ValueError(
            "The column split of cases.csv already names the test samples; omit "
            "test= (--test), or remove the column."
        )
    train, validation, test = (
        [row for row, part in enumerate(parts) if part == name] for name in PARTS
    )
    for name, rows in zip(PARTS, (train, validation, test), strict=True):
        if not rows:
            raise ValueError(
                f"The column split of cases.csv assigns no sample to {name}; "
                f"assign at least one to each of {', '.join(PARTS)}."
            )
    return train, validation, test
