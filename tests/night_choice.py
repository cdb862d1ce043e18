"""Chooses the tests of the night: those that run no branch alone.

    pip install pytest-cov
    python -m pytest -n 0 --dist no --durations=0 -vv --cov=opjax --cov=experiments \
        --cov-branch --cov-context=test > log
    python -m tests.night_choice log .coverage

From the longest test of the day down, one goes to the night, into `night_choice.txt`,
if other tests of the day take all branches that it takes. What is found by comparing
numbers counts for nothing here: `tests.faults.mutations` shows what the day still sees,
and `_KEPT` has the tests that it needs.
"""

import argparse
import pathlib
import re
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping

FILE = pathlib.Path(__file__).with_suffix(".txt")
_SHORTEST = 0.4  # seconds; the many below take a third of the time
_KEPT = (  # what they show is in no branch: formulas, files, bits, what users copy
    "tests/attention/",
    "tests/faults/",
    "tests/golden/",
    "tests/hostile/",
    "tests/learn/test_field_losses.py::test_masked_points",
    "tests/learn/test_time.py::test_the_loss_is_the_mean",
    "tests/nn/layers/",
    "tests/nn/models/",
    "tests/numerics/test_models.py::test_padding_order_and_samples_of_a_batch_change_"
    "nothing[lno]",
    "tests/schwarz/",
    "tests/test_attention.py",
    "tests/test_basis.py",
    "tests/test_checkpoint.py",
    "tests/test_determinism.py",
    "tests/test_docstrings.py",
    "tests/test_linalg.py",
    "tests/test_quadrature.py",
    "tests/test_readme.py",
)


def chosen() -> frozenset[str]:
    """The tests of the night: names of functions, or of cases with their parameters."""
    return frozenset(FILE.read_text().splitlines())


def is_chosen(name: str, names: frozenset[str]) -> bool:
    """Whether a test, or its function with all cases, is among the names."""
    return name in names or name.partition("[")[0] in names


def redundant(
    branches: Mapping[str, set[int]], seconds: Mapping[str, float]
) -> list[str]:
    """Tests whose branches are all taken by others that stay.

    Args:
      branches: those that each test takes.
      seconds: of each test.
    """
    takers = Counter(branch for taken in branches.values() for branch in taken)
    names = []
    for name in sorted(branches, key=lambda name: (-seconds.get(name, 0), name)):
        if seconds.get(name, 0) < _SHORTEST or name.startswith(_KEPT):
            continue
        if all(takers[branch] > 1 for branch in branches[name]):
            names.append(name)
            takers.subtract(branches[name])
    return names


def by_function(names: list[str], tests: Mapping[str, float]) -> list[str]:
    """One name for all cases of a function, where all are among the names."""
    cases = Counter(name.partition("[")[0] for name in tests)
    mine = Counter(name.partition("[")[0] for name in names)
    whole = {function for function in mine if mine[function] == cases[function]}
    functions = ((name.partition("[")[0], name) for name in names)
    return sorted(
        {function if function in whole else name for function, name in functions}
    )


def seconds_of(log: str) -> dict[str, float]:
    """Of each test, with its fixtures."""
    sums: dict[str, float] = defaultdict(float)
    for line in log.splitlines():
        if row := re.match(r"([\d.]+)s (?:call|setup|teardown)\s+(\S.*)", line.strip()):
            sums[row[2].strip()] += float(row[1])
    return dict(sums)


def _branches(database: pathlib.Path) -> dict[str, set[int]]:
    """Numbers of the branches that each test takes, as pytest-cov writes them."""
    numbers: dict[tuple[int, ...], int] = {}
    taken: dict[str, set[int]] = defaultdict(set)
    query = (
        "select context.context, file_id, fromno, tono from arc "
        "join context on context.id = context_id"
    )
    for context, *branch in sqlite3.connect(database).execute(query):
        number = numbers.setdefault(tuple(branch), len(numbers))
        taken[context.rpartition("|")[0]].add(number)
    return dict(taken)


def main() -> None:
    """Adds to the file what may leave the day."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=pathlib.Path)
    parser.add_argument("coverage", type=pathlib.Path)
    files = parser.parse_args()
    seconds = seconds_of(files.log.read_text())
    names = redundant(_branches(files.coverage), seconds)
    FILE.write_text(
        "\n".join(sorted(chosen() | set(by_function(names, seconds)))) + "\n"
    )
    print(f"{len(names)} tests, {sum(seconds[name] for name in names):.0f} s")


if __name__ == "__main__":
    main()
