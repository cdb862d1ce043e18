import numpy as np

from opjax.learn import tables
from opjax.learn.report import members


def test_a_summary_has_medians_and_ranges_over_the_seeds():
    results = {
        "a": [{"error": 1.0, "parameters": 7}, {"error": 4.0, "parameters": 7}],
        "b": [{"error": 5.0, "parameters": 8}],
    }
    found = members.summary(results, ["error"])
    assert found["error_a"] == 2.5
    assert found["error_b"] == 5.0
    assert found["error_a_range"] == [1.0, 4.0]
    assert "error_b_range" not in found
    text = members.comparison(results, {"error": ("error, x 10", 10.0)})
    assert text.splitlines() == [
        "| model | parameters | seeds | error, x 10 |",
        "| --- | --- | --- | --- |",
        "| a | 7 | 2 | 25 [10, 40] |",
        "| b | 8 | 1 | 50 |",
    ]
    assert tables.median_and_range([3, 1, 2.34567], digits=3) == "2.35 [1, 3]"


def test_what_diverged_is_a_row_and_counted():
    lost = {"error": None, "parameters": 0, "diverged": "Step 3"}
    results = {
        "a": [{"error": 1.0, "seconds": 2.0, "parameters": 7}, lost],
        "b": [lost, lost],
        "c": [{"error": 5.0, "seconds": None, "parameters": 8}],
    }
    found = members.summary(results, ["error"])
    assert np.isnan([found["error_a"], found["error_b"]]).all()
    columns = {"error": ("error", 1.0), "seconds": ("seconds", 1.0)}
    assert members.comparison(results, columns).splitlines()[2:] == [
        "| a | 7 | 2, 1 diverged | 1 | 2 |",
        "| b | – | 2, 2 diverged | diverged | – |",
        "| c | 8 | 1 | 5 | ∞ |",
    ]


def test_a_number_that_one_model_has_is_missing_for_the_others():
    results = {
        "a": [{"error": 1.0, "condition": 3.0, "parameters": 7}],
        "b": [{"error": 2.0, "parameters": 8}],
    }
    found = members.summary(results, ["error", "condition"])
    assert found == {"error_a": 1.0, "condition_a": 3.0, "error_b": 2.0}
    columns = {"error": ("error", 1.0), "condition": ("condition", 1.0)}
    assert members.comparison(results, columns).splitlines()[2:] == [
        "| a | 7 | 1 | 1 | 3 |",
        "| b | 8 | 1 | 2 | – |",
    ]
