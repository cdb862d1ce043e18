"""Durations in seconds of the processor: `pytest -p tests.processor_seconds`.

With it `--durations=100` lists what tests compute, in their process and in those they
started and waited for, whatever else the machine does meanwhile.
"""

import os
from collections.abc import Iterator

import pytest


class _Clock:
    """Counts from one reading to the next."""

    def __init__(self) -> None:
        self._last = 0.0

    def read(self) -> float:
        """Seconds of this process and its children since the last reading."""
        now = sum(os.times()[:4])
        seconds, self._last = now - self._last, now
        return seconds


_CLOCK = _Clock()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Leaves out what lies between two tests."""
    _CLOCK.read()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo) -> Iterator[pytest.TestReport]:
    """Gives the report of set-up, call or teardown the seconds of the processor."""
    call.duration = _CLOCK.read()
    return (yield)
