"""What is refused, and the words that name it: for one call, and tests from tables."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pytest

Row = tuple[Callable[[], Any], str]
Options = Sequence[tuple[Mapping[str, Any], str]]


def value_error(words: str) -> AbstractContextManager[pytest.ExceptionInfo[ValueError]]:
    """A context that must end with a `ValueError` whose message has these words."""
    return pytest.raises(ValueError, match=words)


def each(*rows: Row, error: type[Exception] | None = None) -> None:
    """Every call raises an error of its words; of types where they say dtype."""

    def called(call: Callable[[], Any], words: str) -> None:
        call()
        pytest.fail(f"There is no error of these words: {words}")

    for row in rows:
        expected = error or (TypeError if "dtype" in row[1] else ValueError)
        with pytest.raises(expected, match=row[1]):
            called(*row)


def calls(*rows: Row) -> Callable[[Row], None]:
    """A test for each row."""

    @pytest.mark.parametrize("row", rows, ids=[words for _, words in rows])
    def test(row: Row) -> None:
        each(row)

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


def options(
    build: Callable[..., Any], table: Options
) -> Callable[[Mapping[str, Any], str], None]:
    """What is built with these options is refused."""
    return values(lambda change: build(**change), table)


def settings(config: Any, table: Options) -> Callable[[Mapping[str, Any], str], None]:
    """A configuration with these changes is refused before any work."""
    return options(lambda **change: dataclasses.replace(config, **change), table)
