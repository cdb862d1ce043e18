"""Formulas that users type: values against Python's own, and what is refused."""

import copy
import math
import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax.files import expressions
from tests.refused import value_error

VALUES = {"load": 3.0, "modulus": 7.0, "x": 0.25, "U:mag": 2.0, "Young modulus": 5.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("load/modulus", 3 / 7),
        ("2 + 3*x - -1", 3.75),
        ("-x^2", -0.0625),
        ("2^3^2", 512),
        ("2**3", 8),
        ("load ^ -1", 1 / 3),
        ("(load - 1) * 1.5e-3", 3e-3),
        ("load / 'Young modulus'", 0.6),
        ('"U:mag"^2', 4),
        ("sqrt(load^2 + modulus^2)", math.hypot(3, 7)),
        ("sin(pi/2) - cos(2*x) + tan(pi/4)", 2 - math.cos(0.5)),
        ("exp(log(x)) + log10(100) + abs(-2)", 4.25),
        ("asin(x) + acos(x) + atan(1)", 0.75 * math.pi),
        ("min(load, 2, modulus) + max(x)", 2.25),
        ("\n load\n / modulus", 3 / 7),
    ],
)
def test_numbers_are_those_of_pythons_arithmetic(text, expected):
    assert float(expressions.parse(text)(VALUES)) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x < 1", [True, False, False]),
        ("x <= 1 and y > 0", [False, True, False]),
        ("x < 1 or not y > 0", [True, False, True]),
        ("0 < x < 2", [False, True, False]),
        ("(x-1)^2 + (y-1)^2 < 0.01", [False, True, False]),
        ("x == 2", [False, False, True]),
        ("x != 2 and x >= 1", [False, True, False]),
        ("1 < 2", True),
    ],
)
def test_conditions_compare_arrays_element_by_element(text, expected):
    values = {"x": np.array([0.0, 1.0, 2.0]), "y": np.array([0.0, 1.0, -1.0])}
    found = expressions.parse(text, condition=True)(values)
    assert found.dtype == bool
    assert_array_equal(found, expected)


def test_a_constant_formula_of_arrays_has_their_shape():
    found = expressions.parse("0*x + y")({"x": np.zeros((3, 1)), "y": 2})
    assert_array_equal(found, np.full((3, 1), 2.0))


def test_names_are_listed_once_in_their_order_without_constants():
    formula = expressions.parse("b*pi + a/b + 'c d'")
    assert formula.names == ("b", "a", "c d")
    assert not formula.is_condition


def test_a_value_named_as_a_constant_is_preferred():
    assert float(expressions.parse("2*pi")({"pi": 3})) == 6
    assert float(expressions.parse("min + 1")({"min": 3})) == 4


def test_letters_of_names_are_as_typed():
    micro, mu = "\u00b5", "\u03bc"  # one letter for Python
    assert float(expressions.parse(f"{micro} - α")({micro: 5, mu: 7, "α": 1})) == 4


def test_formulas_survive_copies_and_pickles():
    formula = expressions.parse("load/modulus")
    for same in (copy.deepcopy(formula), pickle.loads(pickle.dumps(formula))):
        assert same == formula
        assert float(same(VALUES)) == 3 / 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("load/", "character 6, at 'its end'"),
        ("load^2 +* x", "character 9, at '[*] x'"),
        ("load (", "character 6"),
        ("2x", "character 1"),
        ("load.real", "not supported; use only numbers"),
        ("load[0]", "not supported; use only numbers"),
        ("[x]", "not supported; use only numbers"),
        ("lambda: 1", "not supported; use only numbers"),
        ("x if load else 2", "not supported; use only numbers"),
        ("load^2 // 3", "not supported; use only numbers"),
        ("load % 3", "not supported; use only numbers"),
        ("f'{x}'", "not supported; use only numbers"),
        ("x := 3", "character"),
        ("1j", "not supported; use only numbers"),
        ("True", "True is not allowed"),
        ("''", "not supported; use only numbers"),
        ("x # load", "'#' is not allowed"),
        ("__import__('os')", "character 1, .*function '__import__' is unknown; .*sqrt"),
        ("x + eval('1')", "character 5, .*'eval' is unknown"),
        ("sqrt(1, 2)", "sqrt has 2 arguments"),
        ("min()", "min has 0 arguments"),
        ("max(x, key=x)", "not supported; use only numbers"),
        ("x(1)(2)", "not supported; use only numbers"),
        ("x < 1", "is a condition, expected a number"),
        ("1 + (x < 1)", "character 6, .*a condition, but a number"),
        ("1e999", "too large"),
        ("9" * 400, "too large"),
        ("x\0", "null|character"),
        ("(" * 900 + "x" + ")" * 900, "parentheses"),
        ("-" * 1999 + "x", "parentheses or signs|too many"),
        ("x" * 2001, "2001 characters"),
    ],
)
def test_what_is_no_formula_is_refused_with_its_place(text, message):
    with value_error(message):
        expressions.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "is a number, expected a condition"),
        ("x < 1 & y > 2", "'&' is not allowed; write and"),
        ("x < 1 | y > 2", "'[|]' is not allowed; write or"),
        ("x and y > 2", "character 1, .*a number, but a condition"),
        ("not x", "a number, but a condition"),
        ("(x < 1) < 2", "a condition, but a number"),
        ("x in y", "not supported; use only numbers"),
        ("x = 1", "character"),
    ],
)
def test_what_is_no_condition_is_refused_with_its_place(text, message):
    with value_error(message):
        expressions.parse(text, condition=True)


@pytest.mark.parametrize(
    ("text", "values", "message"),
    [
        ("load/modulus", {"load": 1, "E": 2}, "'modulus', which is unknown; .*load, E"),
        ("load", {}, "available: none"),
        ("load/(E - 2)", {"load": 1, "E": 2}, "divides by zero: E - 2 is 0[.]"),
        ("1/x", {"x": np.array([1.0, 0.0])}, "x is 0 for 1 of 2 values"),
        ("2*sqrt(E)", {"E": -1}, r"sqrt\(E\) is not a finite number"),
        ("log(E)", {"E": 0}, r"log\(E\) is not a finite"),
        ("9^9^9^9", {}, "not a finite number"),
        ("E^0.5", {"E": -2}, "not a finite number"),
        ("exp(E)", {"E": 1000}, "not a finite number"),
        ("E + 1", {"E": math.nan}, "E has values that are not numbers"),
    ],
)
def test_what_has_no_value_is_refused_by_name(text, values, message):
    with value_error(message):
        expressions.parse(text)(values)


def test_named_formulas_are_divided_outside_of_parentheses_and_quotes():
    found = expressions.parse_named("U: load/E, S:mises: max(load, 2); 'a,b': 'c;d'")
    assert {name: one.text for name, one in found.items()} == {
        "U": "load/E",
        "S:mises": "max(load, 2)",
        "a,b": "'c;d'",
    }
    conditions = expressions.parse_named(
        "clamp: x < 1e-6; hole: (x-5)^2+(y-2)^2 < 1.01;", condition=True
    )
    assert list(conditions) == ["clamp", "hole"]
    assert expressions.parse_named(" ") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("load/E", "no name followed by a colon; write U: load/modulus"),
        (": load", "no name followed by a colon"),
        ("U: load, U: E", "'U' twice"),
        ("U:", "U: A formula is empty"),
        ("U: load/, S: E", "U: 'load/'"),
        ("U: x < 1", "U: .*is a condition"),
    ],
)
def test_named_formulas_that_are_wrong_are_named(text, message):
    with value_error(message):
        expressions.parse_named(text)
