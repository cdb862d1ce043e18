"""The study of cases that are chosen, beside random ones."""

import numpy as np

from benchmarks import next_case
from opjax.learn.report import drawing


def row(strategy, size, seed, error=0.1):
    return {
        "by": "pod",
        "strategy": strategy,
        "size": size,
        "seed": seed,
        "pressure": error,
        "worst": 2 * error,
        "lift": error / 10,
    }


def test_the_first_cases_are_those_of_all_strategies(tmp_path):
    rows = [row("random", 8, seed, 0.3 + seed / 10) for seed in range(3)]
    rows += [row(name, 12, s) for name in next_case.STRATEGIES for s in range(3)]
    lines = next_case.page(rows).splitlines()[2:]
    ranges = "0.4 [0.3, 0.5] | 0.8 [0.6, 1] | 0.04 [0.03, 0.05]"
    assert lines[0] == f"| POD with RBF | random | 8 | 3 | {ranges} |"
    assert lines[4].startswith("| POD with RBF | rank | 8 | 3 | 0.4")
    assert lines[5].startswith("| POD with RBF | rank | 12 | 3 | 0.1")
    drawing.save_lines(next_case.draw(rows), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size < 40_000


def test_airfoils_have_the_lift_of_their_pressure():
    (case,) = next_case.cases(1, 0, num_points=400)
    points = np.asarray(case.mesh_points, np.float64)
    sides = np.roll(points, -1, axis=0) - points
    pressure = (case.target[:, 0] + np.roll(case.target[:, 0], -1)) / 2
    force = pressure @ np.stack([-sides[:, 1], sides[:, 0]], axis=1)
    turn = np.deg2rad(case.scalars[0])
    lift = force @ [-np.sin(turn), np.cos(turn)]
    np.testing.assert_allclose(lift, case.target_scalars[0], rtol=0.02)


class Stub:
    def __init__(self, problem, train, seed):
        self.train = train

    def rank(self, pool, count, solved, *, widths):
        assert all(case.target is None for case in pool)
        assert len(solved) == len(self.train)
        return list(range(len(pool)))[-count:] if widths else [1]


def test_a_stopped_study_goes_on_and_random_cases_are_those_of_the_pool(monkeypatch):
    monkeypatch.setitem(next_case.MADE, "pod", Stub)
    monkeypatch.setattr(next_case, "errors", lambda *_: {"lift": 1.0})
    study = next_case.SMOKE
    arguments = study, next_case.airfoils(study, 1), "pod", 1
    rows = list(next_case.run(*arguments, []))
    places = {(row["strategy"], row["size"]): row["places"] for row in rows}
    first = list(range(8))
    assert places == {
        ("random", 8): first,
        ("random", 9): [*first, 8],
        ("distance", 9): [*first, 9],
        ("rank", 9): [*first, 11],
    }
    assert not list(next_case.run(*arguments, rows))
    (again,) = next_case.run(*arguments, rows[:3])
    assert again["places"] == places["rank", 9]


def test_pod_chooses_cases_and_predicts(tmp_path):
    study = next_case.SMOKE
    found = list(next_case.run(study, next_case.airfoils(study, 0), "pod", 0, []))
    assert len(found) == 4
    assert all(0 < row["pressure"] < 1 for row in found)
