"""Which tests run: of many alike cases those of the day, of all one part."""

import zlib
from collections.abc import Collection, Iterable
from typing import Any

import pytest


def by_day(cases: Iterable[Any], day: Collection[Any]) -> list[Any]:
    """Parameters of a test: all cases, those that are not of the day marked nightly.

    Args:
      cases: values of the parameters; tuples where there are several.
      day: those among them that run by day.

    Raises:
      ValueError: if one of the day is no case.
    """
    cases = list(cases)
    if unknown := [case for case in day if case not in cases]:
        raise ValueError(f"{unknown} are not among {cases}.")
    found = []
    for case in cases:
        values = case if isinstance(case, tuple) else (case,)
        marks = () if case in day else (pytest.mark.nightly,)
        found.append(pytest.param(*values, marks=marks))
    return found


def part_of(name: str, parts: int) -> int:
    """The part, from 1, that a test belongs to: with those of its function."""
    return zlib.crc32(name.partition("[")[0].encode()) % parts + 1
