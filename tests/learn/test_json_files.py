"""JSON of run folders: values have the form that a type states."""

from typing import NamedTuple, TypedDict

import pytest

from opjax.learn.json_files import check_form


class Range(NamedTuple):
    low: float
    count: int = 1


class Options(TypedDict, total=False):
    scales: list[Range]


FITTING = [
    (True, bool),
    (2, int),
    (2, float),
    (None, float | None),
    ([], list[str]),
    (["a", 1], tuple[str, int]),
    ([1, 2, 3], tuple[int, ...]),
    ({"low": 0.5}, Range),
    ({}, Options),
    ({"other": 1, "scales": [{"low": 0.5, "count": 2}]}, Options),
    ({"a": {"low": 1}}, dict[str, Range]),
]


@pytest.mark.parametrize(("value", "form"), FITTING)
def test_values_of_the_form_pass(value, form):
    check_form(value, form, "stored")


@pytest.mark.parametrize(
    ("value", "form", "message"),
    [
        (True, int, "stored=True, expected a whole number from 0"),
        (1, bool, "stored=1, expected true or false"),
        (-1, int, "stored=-1, expected a whole number"),
        (2**31, int, "expected a whole number"),
        (1.0, int, "stored=1.0, expected a whole number"),
        (float("nan"), float, "stored=nan, expected a finite number"),
        (10**400, float, "expected a finite number"),
        (None, str, "stored=None, expected a text"),
        ("abc", list[str], "stored='abc', expected a list"),
        (["a"], tuple[str, int], r"expected a list of 2"),
        ([1, "a"], list[int], r"stored\[1\]='a', expected a whole number"),
        ([], Range, r"stored=\[\], expected an object"),
        ({}, Range, "stored has no low"),
        ({"low": 0, "high": 1}, Range, "stored has the unknown field high"),
        ({"scales": [{"low": "x"}]}, Options, r"stored\.scales\[0\]\.low='x'"),
        ({"a": {}}, dict[str, Range], r"stored\.a has no low"),
    ],
)
def test_other_values_raise_and_name_the_place(value, form, message):
    with pytest.raises(ValueError, match=message):
        check_form(value, form, "stored")
