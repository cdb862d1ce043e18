import dataclasses

import numpy as np
import pytest

from experiments import bodies
from opjax.datasets import bodies as data
from tests import refused

SMOKE = bodies.PRESETS["smoke"]


@pytest.mark.nightly
def test_files_of_cars_are_learned_from_like_our_own_flows(tmp_path):
    pytest.importorskip("pyvista", reason="needs the extra opjax[vtk]")
    data.write(tmp_path / "files", 4, seed=0, resolution=2)
    config = dataclasses.replace(
        SMOKE,
        layout="drivaerml",
        data_dir=str(tmp_path / "files"),
        fields=("CpMeanTrim", "wallVelocity"),
        num_train=2,
        num_validation=1,
        num_test=1,
    )
    task = bodies.make_task(config, None)
    (train,) = task.train
    assert train["target"].shape == (2, 24, 4)
    assert train["features"].shape == (2, 24, 3)
    assert task.over_points
    own = data.generate(1, seed=0, resolution=2, cache_dir=tmp_path)[0]
    np.testing.assert_allclose(train["target"][0], own.target, atol=1e-6)


test_bad_input_is_refused = refused.settings(
    SMOKE,
    [
        ({"layout": "drivaerml"}, "layout=drivaerml and data_dir=''"),
        ({"data_dir": "files"}, "layout=own and data_dir='files'"),
        ({"fields": ("p",)}, "layout=drivaerml only"),
        ({"layout": "vtk"}, "layout='vtk'"),
    ],
)


def test_the_full_preset_has_a_million_points():
    full = bodies.PRESETS["full"]
    assert 6 * full.resolution**2 >= 1_000_000
    assert full.chunk_size
