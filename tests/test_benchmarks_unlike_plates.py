"""The benchmark of plates of a solver: its tables for a few files."""

import types

import numpy as np
import pytest
from absl import app

from benchmarks import unlike_plates
from opjax import files
from opjax.learn.predict.description import Channels
from tests.learn.test_predict import make, operator, write


@pytest.mark.nightly
def test_kinds_are_compared_with_draws_of_calibration_cases(rng, tmp_path):
    found = operator(rng, tmp_path / "run")
    write(found, 0.5)
    for place, count, stretch in (("calib", 24, 1), ("test", 3, 1), ("long", 2, 9)):
        for number in range(count):
            sample = make(rng, 30)
            points = np.asarray([stretch, 1], np.float32) * sample.mesh_points
            sample = sample._replace(mesh_points=points, name="")
            files.write(tmp_path / place / f"{number:02d}.npz", sample)
    kinds = {"test": "as in training", "long": "long plates"}
    result = unlike_plates.study(
        tmp_path / "run", tmp_path, kinds=kinds, counts=[20], draws=2
    )
    head, _, alike, odd = result.alarms.splitlines()[:4]
    assert "alarms, 20 calibration cases | by | a scalar outside" in head
    assert head.endswith("error of u |")
    assert alike.startswith("| as in training | 3 | ")
    assert odd.startswith("| long plates | 2 | 1 [1, 1] | ")
    assert "| 20 | 0.048 | " in result.shifts
    assert result.shifts.startswith("| calibration cases | smallest p-value | moments")


def test_errors_are_those_of_each_field():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(9, 4)) * [1e-3, 1e-3, 1e-3, 1e2]
    case = unlike_plates.Case(make(rng, 9)._replace(target=true), true * [2, 1, 1, 1.5])
    names = {"target": ["U", "U", "U", "S"]}
    description = types.SimpleNamespace(names=names, channels=Channels(2, 0, 4))
    trained = types.SimpleNamespace(description=description)
    u, s = unlike_plates._errors(trained, case)
    expected = np.linalg.norm(true[:, 0]) / np.linalg.norm(true[:, :3])
    np.testing.assert_allclose([u, s], [expected, 0.5], rtol=1e-12)


def test_folder_and_run_are_needed(monkeypatch):
    monkeypatch.setattr(unlike_plates, "_PLATES", Flag())
    with pytest.raises(app.UsageError, match="--plates and --plates_run"):
        unlike_plates.main(["unlike_plates"])


class Flag:
    """A flag without a value."""

    value = None
