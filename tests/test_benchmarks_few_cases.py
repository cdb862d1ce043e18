"""The comparison of the recipe for few cases with the default."""

import pytest

from benchmarks import few_cases


def test_each_row_has_the_range_of_its_seeds():
    rows = [
        {"problem": "heat", "by": by, "seed": seed, "error": error, "seconds": 10.0}
        for by, errors in (("preset small", (0.3, 0.1, 0.2)), ("mean field", (0.9,)))
        for seed, error in enumerate(errors)
    ]
    lines = few_cases.page(rows).splitlines()
    assert lines[2] == "| heat | preset small | 3 | 0.2 [0.1, 0.3] | 10 [10, 10] |"
    assert lines[3] == "| heat | mean field | – | 0.9 | 10 |"


def test_baselines_have_the_same_cases():
    splits = few_cases.heat_splits((5, 1, 2))
    assert [len(part) for part in splits[:3]] == [5, 1, 2]
    errors = {row["by"]: row["error"] for row in few_cases.baselines(splits)}
    assert errors["mean field"] == pytest.approx(1, abs=0.3)
    assert all(0 < error < 2 for error in errors.values())
