"""What is refused, and the words that name it: for one call, and tests from tables."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest


def value_error(words: str) -> pytest.RaisesExc[ValueError]:
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


def settings(
    config: Any, table: Sequence[tuple[Mapping[str, Any], str]]
) -> Callable[[Mapping[str, Any], str], None]:
    """A configuration with these changes is refused before any work."""

    @pytest.mark.parametrize(("change", "message"), table)
    def test(change: Mapping[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(config, **change)

    return test
