"""What the tests of a day, a night and a part of the night are."""

import pathlib
import re
from collections import Counter

import pytest

from tests import night_choice, selection

ROOT = pathlib.Path(__file__).parents[1]
SECONDS = {"a.py": 3, "a.py::test_one": 5, "a.py::test_two[x]": 4, "b.py": 2}


def test_cases_that_are_not_of_the_day_are_nightly():
    found = selection.by_day([(1, "a"), (2, "b")], day=[(2, "b")])
    assert [(case.values, len(case.marks)) for case in found] == [
        ((1, "a"), 1),
        ((2, "b"), 0),
    ]
    assert found[0].marks[0].name == "nightly"
    with pytest.raises(ValueError, match=r"\[3\] are not among \[1, 2\]"):
        selection.by_day([1, 2], day=[3])


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("a.py::test_one[x]", "a.py::test_one"),
        ("a.py::test_two[x]", "a.py::test_two[x]"),
        ("a.py::test_two[y]", "a.py"),
        ("c.py::test_one[x::y]", "c.py"),
    ],
)
def test_the_smallest_group_with_seconds_is_taken(name, group):
    assert selection.group_of(name, SECONDS) == group


def test_the_longest_group_goes_into_the_emptiest_part():
    names = ["a.py::test_one", "a.py::test_two[x]", "a.py::test_two[y]", "b.py::test"]
    parts = [selection.part_of(name, 2, SECONDS) for name in names]
    assert parts == [1, 2, 2, 1]


def test_a_file_without_seconds_stays_together_and_moves_nothing():
    names = [f"c.py::test_{i}" for i in range(9)]
    assert len({selection.part_of(name, 8, SECONDS) for name in names}) == 1
    assert len({selection.part_of(f"{i}.py::test", 8, {}) for i in range(99)}) == 8


def test_files_take_the_seconds_of_their_groups_once():
    slow = {"a.py::test_one[x]": True, "a.py::test_one[y]": True, "a.py::test_x": False}
    slow |= {"b.py::test": True, "c.py::test_slow": True, "c.py::test": False}
    found = selection.seconds_of_files(slow, SECONDS)
    assert found == {"a.py": 6, "b.py": 2, "c.py": 21}


def test_groups_with_seconds_exist():
    for group in selection.SECONDS:
        file, _, function = group.partition("[")[0].partition("::")
        text = (ROOT / file).read_text()
        assert f"def {function}(" in text or not function, group
        chosen = any(name.startswith(group) for name in night_choice.chosen())
        assert chosen or any(word in text for word in ("nightly", "by_day")), group


def test_parts_of_the_night_are_about_equal():
    (parts,) = re.findall(r"^parts=(\d+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    sums = Counter()
    for group, seconds in selection.SECONDS.items():
        sums[selection.part_of(group, int(parts))] += seconds
    assert len(sums) == int(parts)
    assert max(sums.values()) < 1.1 * sum(sums.values()) / int(parts)
