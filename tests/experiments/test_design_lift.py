"""The program `experiments.design_lift`; its smallest preset runs at night."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from experiments import design_lift
from opjax import design
from opjax.learn.predict.functions import Arguments
from tests import refused

SMOKE = design_lift.PRESETS["smoke"]


test_what_no_run_could_use_is_refused = refused.settings(
    SMOKE,
    [
        ({"num_designs": 2}, "num_test=30 leaves 28 cases .* at least 29"),
        ({"point_features": "none"}, "features that are functions of the points"),
        ({"scalars": False}, "designs need scalars"),
    ],
)


def test_operators_are_those_of_the_lift_program():
    operators = design_lift.PRESETS["fast"].operators()
    assert type(operators) is design_lift.lift.Config
    assert (operators.num_airfoil, operators.seeds) == (40, (0, 1, 2))


def test_features_follow_the_points(rng):
    points, mean = rng.normal(size=(2, 30, 2))
    near = rng.normal(size=(30, 2))
    modes = design.gaussian_modes(points, points[:2], np.ones(2), radius=0.5)
    features = np.concatenate([points - mean, near], axis=1)
    start = Arguments(points, features, np.zeros(2))
    amounts = np.array([0.1, -0.3])
    case = design_lift.case_of(
        {"shape": amounts, "scalars": np.array([2.0, 0.5])}, (start, modes)
    )
    moved = np.asarray(design.moved(points, modes, amounts))
    assert_allclose(case.points, moved)
    assert_allclose(case.features[:, :2], moved - mean)
    assert_array_equal(case.features[:, 2:], near)
    assert case.scalars.tolist() == [2.0, 0.5]


def test_the_report_counts_confirmed_designs():
    one = {
        "seed": 0,
        "name": "lift 0",
        "guarded": True,
        "start": 0.3,
        "half_width": 0.1,
    }
    one |= {"predicted": 0.6, "solved": 0.55, "confirmed": True, "moment": 0.0}
    unsteady = one | {"guarded": False, "solved": None, "confirmed": False}
    failed = {"seed": 0, "name": "lift 0", "guarded": False, "start": 0.3}
    failed |= {"failed": "step 3: the shape folds the mesh", "confirmed": False}
    found = design_lift.report([one, unsteady, failed], SMOKE)
    assert found.result == {"confirmed_guard_0": 1, "confirmed_alone_0": 0}
    assert "| 0 | with the guard | 1 of 1 | 1 | 0.250 | 0.050 | 0.050 |" in found.text
    assert "| 0 | without it | 0 of 2 | 0 | – | – | – |" in found.text
    assert "folds the mesh" in found.text
