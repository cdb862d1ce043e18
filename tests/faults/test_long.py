"""Long runs in short: the bars of `tests.faults.long`."""

import pytest

from tests.faults import long

GOOD = {"growth": 0.004, "compilations": 0, "compilations_before": 40, "kept": [8, 9]}
GOOD |= {"kib": [6, 7, 6], "save_growth": 0.0, "rows": 100, "read_seconds": 0.1}


@pytest.mark.nightly
def test_a_run_neither_grows_nor_compiles_after_its_first_steps(tmp_path):
    found = long.training(tmp_path / "run", 700, checkpoint_every=10**6)
    assert found["steps"] >= 700
    assert found["compilations_before"] > found["compilations"] == 0
    assert found["growth"] < 0.03  # the bar of 0.01 is for a process of its own


def test_only_the_latest_checkpoints_take_disk(tmp_path):
    found = long.saving(tmp_path, 25)
    assert found["kept"] == [23, 24]
    assert found["kib_most"] <= found["kib"][0] + 3
    assert found["descriptors_more"] < 10  # 24 saves leave none open


def test_metrics_of_many_rows_are_read_at_once(tmp_path):
    found = long.reading(tmp_path / "run", 100_000)
    assert found["read_seconds"] < 20  # 1 on an idle machine
    assert found["open_seconds"] < 10


@pytest.mark.parametrize(
    "change",
    [
        {"growth": 0.011},
        {"compilations": 1},
        {"compilations_before": 0},  # then nothing was counted
        {"kept": [7, 8, 9]},
        {"kib": [6, 7, 60]},
        {"save_growth": 0.02},
        {"read_seconds": 2.0},
    ],
)
def test_a_missed_bar_is_named(change):
    assert long.missed(GOOD) == []
    assert long.missed(GOOD | change) == list(change)
