import dataclasses
import json

import numpy as np
import pytest

from opjax.learn import members, tables


@dataclasses.dataclass(frozen=True)
class Config:
    name: str
    seed: int


def test_names_and_seeds_are_split_and_checked():
    assert members.names("a, b", "models", ("a", "b", "c")) == ("a", "b")
    assert members.seed_numbers("3,0") == (3, 0)
    with pytest.raises(ValueError, match="models='d' is unknown; choose from a, b"):
        members.names("a,d", "models", ("a", "b"))
    with pytest.raises(ValueError, match="contains a name twice"):
        members.names("a,a", "models", ("a",))
    with pytest.raises(ValueError, match="whole numbers"):
        members.seed_numbers("0,-1")
    with pytest.raises(ValueError, match="contains a seed twice"):
        members.seed_numbers("1,01")


def test_members_run_once_and_are_read_afterwards(tmp_path, capsys):
    calls = []

    def train(config, directory):
        calls.append(config)
        return {"error": 0.1 * (config.seed + 1), "path": str(directory.path.name)}

    grid = {(n, s): Config(n, s) for n in ("a", "b") for s in (0, 1)}
    first = members.run_all(tmp_path, grid, train)
    again = members.run_all(tmp_path, grid, train)
    assert first == again
    assert [row["path"] for row in first["b"]] == ["b-0", "b-1"]
    assert len(calls) == 4
    assert capsys.readouterr().out == ""  # one last line, that of the program
    stored = json.loads((tmp_path / "a-1" / "result.json").read_text())
    assert stored["error"] == 0.2
    with pytest.raises(ValueError, match="another configuration"):
        members.run_all(tmp_path, {("a", 0): Config("a", 7)}, train)


def test_a_summary_has_means_and_deviations_over_the_seeds():
    results = {
        "a": [{"error": 1.0, "parameters": 7}, {"error": 3.0, "parameters": 7}],
        "b": [{"error": 5.0, "parameters": 8}],
    }
    found = members.summary(results, ["error"])
    assert found["error_a"] == 2.0
    assert found["error_b"] == 5.0
    np.testing.assert_allclose(found["error_a_std"], 2**0.5)
    assert "error_b_std" not in found
    text = members.comparison(results, {"error": ("error, x 10", 10.0)})
    assert text.splitlines() == [
        "| model | parameters | seeds | error, x 10 |",
        "| --- | --- | --- | --- |",
        "| a | 7 | 2 | 20 ± 14 |",
        "| b | 8 | 1 | 50 |",
    ]
    assert tables.mean_and_deviation([1.0, 1.0]) == "1 ± 0"


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
