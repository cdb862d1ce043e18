"""Tests go to the night only if others of the day take all their branches."""

import ast
import pathlib

from tests import night_choice

_ROOT = pathlib.Path(__file__).parents[1]


def test_of_two_tests_with_the_same_branches_the_shorter_one_stays():
    branches = {"a": {1, 2}, "b": {1, 2}, "alone": {3}, "short": {1}}
    seconds = {"a": 2.0, "b": 1.0, "alone": 9.0, "short": 0.1}
    assert night_choice.redundant(branches, seconds) == ["a"]


def test_a_function_stands_for_all_its_cases():
    seconds = {"f[1]": 1.0, "f[2]": 1.0, "g[1]": 1.0, "g[2]": 1.0}
    names = night_choice.by_function(["f[1]", "f[2]", "g[1]"], seconds)
    assert names == ["f", "g[1]"]
    assert night_choice.is_chosen("f[2]", frozenset(names))
    assert not night_choice.is_chosen("g[2]", frozenset(names))


def test_what_is_chosen_exists():
    functions = {}
    for name in night_choice.chosen():
        file, *_, function = name.partition("[")[0].split("::")
        if file not in functions:
            tree = ast.parse((_ROOT / file).read_text())
            nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
            functions[file] = {node.name for node in nodes}
        assert function.partition("__")[0] in functions[file], name


def test_seconds_include_fixtures():
    log = "1.50s call     tests/a.py::f[1 2]\n0.25s setup    tests/a.py::f[1 2]"
    assert night_choice.seconds_of(log) == {"tests/a.py::f[1 2]": 1.75}
