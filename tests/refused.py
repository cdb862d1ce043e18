"""What is refused, and the words that name it: for one call, and tests from tables."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest


def value_error(words: str) -> AbstractContextManager[pytest.ExceptionInfo[ValueError]]:
    """A context that must end with a `ValueError` whose message has these words."""
    return pytest.raises(ValueError, match=words)


def calls(table: Mapping[str, tuple[Callable[[], Any], str]]) -> Callable[[str], None]:
    """Every call raises an error of its words; of types where its name says dtype."""

    @pytest.mark.parametrize("case", table)
    def test(case: str) -> None:
        call, message = table[case]
        error = TypeError if "dtype" in case else ValueError
        with pytest.raises(error, match=message):
            call()

    return test


def values(
    call: Callable[[Any], Any], table: Sequence[tuple[Any, str]]
) -> Callable[[Any, str], None]:
    """The call raises an error of its words for every value."""

    @pytest.mark.parametrize(("value", "message"), table)
    def test(value: Any, message: str) -> None:
        with value_error(message):
            call(value)

    return test


def settings(
    config: Any, table: Sequence[tuple[Mapping[str, Any], str]]
) -> Callable[[Mapping[str, Any], str], None]:
    """A configuration with these changes is refused before any work."""
    return values(lambda change: dataclasses.replace(config, **change), table)
