"""Which tests run: of many alike cases those of the day, of the night's one part."""

import contextlib
import importlib
import json
import pathlib
import sys
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import pytest

# Seconds of the processor of the tests of the night: of a file, a function or a case.
SECONDS: Mapping[str, float] = json.loads(
    pathlib.Path(__file__).with_name("night.json").read_text()
)


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


@contextlib.contextmanager
def without_constants() -> Iterator[None]:
    """Hypothesis does not read all sources for constants while tests are collected.

    It does so where one of its tests was imported, whether that is to run or not. A
    test that runs reads them itself.
    """
    providers = "hypothesis.internal.conjecture.providers"
    with pytest.MonkeyPatch.context() as patch:
        if "hypothesis" in sys.modules:
            module = importlib.import_module(providers)
            patch.setattr(module, "_get_local_constants", lambda: None, raising=False)
        yield


def group_of(name: str, seconds: Mapping[str, float] = SECONDS) -> str:
    """What is never divided: a case, a function or else a file.

    Args:
      name: of a test, `tests/test_file.py::test_function[case]`.
      seconds: of groups. Of those that hold the test the smallest is taken. A test in
        none of them belongs to its file.
    """
    function = name.partition("[")[0]
    file = function.partition("::")[0]
    return next((group for group in (name, function) if group in seconds), file)


def part_of(name: str, parts: int, seconds: Mapping[str, float] = SECONDS) -> int:
    """The part, from 1, that a test belongs to.

    Groups with known seconds are dealt out, the longest first, each into the part that
    has least by then. Others go where the hash of their name says, so that a new test
    moves no other one.
    """
    group = group_of(name, seconds)
    return _dealt(parts, seconds).get(group, zlib.crc32(group.encode()) % parts + 1)


def seconds_of_files(
    slow: Mapping[str, bool], seconds: Mapping[str, float] = SECONDS
) -> Counter[str]:
    """About how long every file takes.

    Args:
      slow: whether a test is, by its name.
      seconds: of groups. A test outside of them takes 20 where it is slow, or one.
    """
    groups = {name: group_of(name, seconds) for name in slow}
    found = Counter()
    for name, group in groups.items():
        if not (slow[name] and group in seconds):
            found[name.partition("::")[0]] += 20 if slow[name] else 1
    for group in {groups[name] for name in slow if slow[name]} & seconds.keys():
        found[group.partition("::")[0]] += seconds[group]
    return found


def _dealt(parts: int, seconds: Mapping[str, float]) -> dict[str, int]:
    """The part of every group with known seconds."""
    sums, found = [0.0] * parts, {}
    for group in sorted(seconds, key=lambda group: (-seconds[group], group)):
        least = sums.index(min(sums))
        found[group] = least + 1
        sums[least] += seconds[group]
    return found
