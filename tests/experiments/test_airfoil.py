import dataclasses

import numpy as np
import pytest

from experiments import airfoil
from opjax.datasets import airfoil as data

TINY = dataclasses.replace(
    airfoil.PRESETS["smoke"],
    num_train=2,
    num_validation=1,
    num_test=1,
    num_airfoil=16,
    num_wake=4,
    num_radial=8,
    tolerance=0.02,
    num_epochs=1,
    batch_size=1,
)


def test_published_files_and_own_solver_are_interchangeable(tmp_path):
    own = airfoil.load(TINY, cache_dir=str(tmp_path))
    made = data.generate(
        4,
        seed=0,
        num_airfoil=16,
        num_wake=4,
        num_radial=8,
        tolerance=0.02,
        channels=data.CHANNELS,
        cache_dir=tmp_path,
    )
    data.save(tmp_path / "files", made)
    config = dataclasses.replace(TINY, data_dir=str(tmp_path / "files"))
    published = airfoil.load(config)
    for name in ("train", "validation", "test"):
        pairs = zip(getattr(own, name), getattr(published, name), strict=True)
        for one, other in pairs:
            np.testing.assert_array_equal(one.mesh_points, other.mesh_points)
            np.testing.assert_array_equal(one.target, other.target)


def test_wrong_values_are_refused_before_any_work():
    with pytest.raises(ValueError, match="num_airfoil=17 must be even"):
        dataclasses.replace(TINY, num_airfoil=17)


@pytest.mark.slow
def test_the_program_runs(tmp_path):
    result = airfoil.run(TINY, workdir=tmp_path / "run", cache_dir=str(tmp_path))
    assert 0 < result["relative_l2"] < 2
    assert (tmp_path / "run" / "fields.png").exists()
