import numpy as np
import pytest
from numpy.testing import assert_array_equal

from opjax import files
from opjax.datasets import heat
from opjax.files.series import read_series


def test_series_are_the_same_in_archives_and_lists_of_frames(tmp_path):
    for suffix in (".npz", ".pvd"):
        heat.write_series(tmp_path / suffix, 2, num_points=(9, 12), suffix=suffix)
    archives, lists = (
        read_series(tmp_path / suffix).series for suffix in (".npz", ".pvd")
    )
    for one, other in zip(archives, lists, strict=True):
        for name in ("mesh_points", "times", "values"):
            assert_array_equal(getattr(one, name), getattr(other, name))
    with pytest.raises(ValueError, match="suffix='.h5' is unknown"):
        heat.write_series(tmp_path, 1, suffix=".h5")


def test_samples_solve_the_heat_equation(tmp_path):
    heat.write(tmp_path / "a", 2, num_points=(20000, 20000))
    first, _ = files.read(tmp_path / "a")
    heat.write(tmp_path / "b", 1, num_points=(20000, 20000))
    assert_array_equal(files.read(tmp_path / "b")[0].target, first.target)
    # u(0) by convolution of f with the heat kernel, over uniformly scattered points.
    r2 = np.sum(first.mesh_points.astype(float) ** 2, axis=1)
    inner = r2 < 0.49
    kernel = np.exp(-r2 / 0.08) / (np.pi * 0.08)
    near = np.argmin(r2)
    integral = np.mean((kernel * first.features[:, 0])[inner]) * np.pi * 0.49
    assert integral == pytest.approx(float(first.target[near, 0]), abs=0.05)
