"""The program `experiments.lift` and its baselines."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from experiments import lift, lift_baselines
from opjax.samples import Sample
from tests import refused

SMOKE = lift.PRESETS["smoke"]


def cases(count, seed, *, points=9):
    """Pressure and lift that are linear in shape and scalars, on one mesh."""
    rng = np.random.default_rng(seed)
    fixed = np.random.default_rng(99)
    mesh, wall = fixed.normal(size=(points, 2)), np.arange(4)
    bend, slopes = fixed.normal(size=(2, 4, 2)), fixed.normal(size=(4, points))
    found = []
    for _ in range(count):
        given = rng.uniform(-1, 1, 4)
        shape = mesh.copy()
        shape[wall] += given[0] * bend[0] + given[1] * bend[1]
        found.append(
            Sample(
                shape,
                (1 + given @ slopes)[:, None],
                scalars=given[2:],
                target_scalars=np.array([given @ np.arange(1.0, 5)]),
                boundaries={"wall": wall},
            )
        )
    return found


def test_baselines_are_exact_for_linear_cases():
    train, test = cases(20, 0), cases(5, 1)
    found = lift_baselines.predict(train, test)
    for i, one in enumerate(test):
        assert_allclose(found.pressure[i], one.target[:, 0], atol=1e-8)
        assert_allclose(found.lift[i], one.target_scalars[0], atol=1e-8)
        assert_allclose(found.linear[i], one.target_scalars[0], atol=1e-8)
    numbers = lift_baselines.numbers(train, test)
    assert numbers["pod_rbf_lift_r2"] == pytest.approx(1)
    assert numbers["linear_lift_error"] < 1e-8 > numbers["pod_rbf_relative_l2"]


test_what_no_run_could_use_is_refused = refused.settings(
    SMOKE,
    [
        ({"num_airfoil": 17}, "num_airfoil=17 must be even"),
        ({"num_train": 11}, "num_train=11 must be at least 12"),
        ({"data_dir": "files"}, "no published files"),
        ({"tolerance": 1e-6}, "tolerance"),
    ],
)


@pytest.mark.slow
@pytest.mark.nightly
def test_models_without_scalars_are_not_told_the_angle(tmp_path):
    cache = str(tmp_path)
    config = dataclasses.replace(SMOKE, num_airfoil=16, num_wake=4, num_radial=8)
    told, untold = (
        lift.make_task(dataclasses.replace(config, scalars=scalars), cache)
        for scalars in (True, False)
    )
    assert "scalars" in told.train[0]
    assert "scalars" not in untold.train[0]
    both = (part.train[0]["target_scalars"] for part in (told, untold))
    assert_array_equal(*both)
