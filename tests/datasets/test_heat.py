import numpy as np
import pytest

from opjax import files
from opjax.datasets import heat


def test_samples_solve_the_heat_equation(tmp_path):
    heat.write(tmp_path / "a", 2, num_points=(20000, 20000))
    first, _ = files.read(tmp_path / "a")
    heat.write(tmp_path / "b", 1, num_points=(20000, 20000))
    np.testing.assert_array_equal(files.read(tmp_path / "b")[0].target, first.target)
    # u(0) by convolution of f with the heat kernel, over uniformly scattered points.
    r2 = np.sum(first.mesh_points.astype(float) ** 2, axis=1)
    inner = r2 < 0.49
    kernel = np.exp(-r2 / 0.08) / (np.pi * 0.08)
    assert first.features is not None
    near = np.argmin(r2)
    integral = np.mean((kernel * first.features[:, 0])[inner]) * np.pi * 0.49
    assert first.target is not None
    assert integral == pytest.approx(float(first.target[near, 0]), abs=0.05)
