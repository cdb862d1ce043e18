"""The comparison of fine-tuning with training from scratch."""

import numpy as np
import pytest

from benchmarks import fine_tuning
from benchmarks.fine_tuning import Family
from opjax.samples import Sample


def test_each_row_has_the_range_of_its_seeds():
    own = {"family": "square", "cases": 16, "way": "full", "trained": 75884}
    errors = (0.3, 0.1, 0.2)
    rows = [
        own | {"seed": seed, "U": error, "S_Mises": 2 * error, "seconds": 50.0}
        for seed, error in enumerate(errors)
    ]
    rows.append({**own, "way": "pod_rbf", "seed": 0, "U": 0.5, "S_Mises": 0.6})
    del rows[-1]["trained"]
    lines = fine_tuning.page(rows).splitlines()
    expected = "0.2 [0.1, 0.3] | 0.4 [0.2, 0.6] | 50 [50, 50] |"
    start = "| square | 16 | fine-tuned, all parameters | 75,884 | 3 | "
    assert lines[2] == start + expected
    assert lines[3] == "| square | 16 | POD with RBF | – | – | 0.5 | 0.6 | – |"


def test_few_cases_are_all_for_training_and_more_are_divided():
    cases = [Sample(np.zeros((3, 2))) for _ in range(20)]
    few, more = (
        fine_tuning.divided(Family(cases, cases[:2]), count) for count in (8, 16)
    )
    assert (len(few.train), len(few.validation), len(few.test)) == (8, 0, 2)
    assert (len(more.train), len(more.validation)) == (14, 2)
    with pytest.raises(ValueError, match="20 cases, fewer than 32"):
        fine_tuning.divided(Family(cases, []), 32)


def test_a_way_may_have_another_learning_rate():
    way = fine_tuning.way_of("rank8@1e-2")
    assert way.changes["learning_rate"] == 1e-2
    assert way.changes["rank"] == 8
    row = {"family": "square", "cases": 16, "way": "rank8@1e-2", "seed": 0}
    row |= {"trained": 20, "U": 0.1, "S_Mises": 0.2, "seconds": 5.0}
    assert "| fine-tuned, rank 8, learning rate 1e-2 | 20 |" in fine_tuning.page([row])
