"""Hours of set-ups from their first steps."""

import json

import pytest

from experiments import published, published_hours
from experiments.published import Setup
from tests import sessions

TINY = ("--preset=smoke", "--models=functional", "--num_steps=90", "--seeds=0,1,2")
SETUP = Setup("sinusoid/functional", "sinusoid", TINY, "001", "Fig. 2", None, None)


@pytest.mark.nightly
def test_hours_are_those_of_all_steps_of_all_seeds():
    with sessions.lenient():
        found = published_hours.hours(SETUP)
    assert found["steps"] == 3 * 90
    assert 0 < found["step_seconds"] < 60
    assert found["hours"] == pytest.approx(found["step_seconds"] * 270 / 3600 / 2)


@pytest.mark.parametrize(
    ("seconds", "calls", "expected"),
    [
        ([9.0, 1.0, 3.0, 2.0, 0.0], 4, 2.0),  # short ones: three, after one to warm up
        ([50.0, 40.0, 45.0, 0.0], 3, 42.5),
        ([130.0, 0.0], 1, 130.0),
    ],
)
def test_the_pace_of_long_steps_is_that_of_fewer(monkeypatch, seconds, calls, expected):
    clock, left = [0.0], list(seconds)
    monkeypatch.setattr(published_hours.time, "process_time", lambda: clock[0])

    def step():
        clock[0] += left.pop(0)

    assert published_hours.pace(step) == expected
    assert len(seconds) - len(left) == calls


def test_steps_of_samples_are_counted_in_full_batches():
    setups = {setup.name: setup for setup in published.SETUPS}
    member, *_ = setups["burgers/galerkin 512"].config().members().values()
    assert published_hours.num_steps(member) == 100 * (1024 // 8)


def test_set_ups_of_one_cost_share_their_hours():
    costs = {s.name: published_hours.cost_of(s) for s in published.SETUPS}
    alike = ("", " noise 0.1", " regular noise 0.01")
    assert len({costs[f"darcy_inverse/linear{end}"] for end in alike}) == 1
    assert costs["darcy/linear2d"] == costs["darcy/linear2d regular"]
    assert costs["burgers/galerkin"] == costs["burgers/galerkin regular"]
    others = ("burgers/galerkin", "burgers/galerkin 512", "burgers/linear 512")
    assert len({costs[name] for name in others}) == 3


@pytest.mark.nightly  # it builds the models of all set-ups, to count parameters
def test_hours_that_are_known_are_of_set_ups_and_shown_beside_them():
    known = json.loads(published_hours.FILE.read_text())
    assert known.keys() <= {setup.name for setup in published.SETUPS}
    assert all(cost["source"] in ("timed", "counted") for cost in known.values())
    name = published.SETUPS[0].name
    for hours, shown in ((7.46, "7.5 hours"), (87.2, "87 hours")):
        cost = {"hours": hours, "source": "timed"}
        text = published.page({}, {name: cost})
        assert f"not run; {shown} on two cores, timed" in text
        assert ("needs a GPU" in text) is (hours > 48)
