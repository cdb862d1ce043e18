"""The figure of one airfoil: polars and the file."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from PIL import Image

from benchmarks import lift as figure
from opjax.datasets import lift


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    solver = lift.Solver(num_airfoil=16, num_wake=4, num_radial=8, tolerance=0.02)
    folder = tmp_path_factory.mktemp("cache")
    return lift.generate(1, seed=0, cache_dir=folder, solver=solver)[0]


class Told:
    """Predicts the true pressure, and the angle as the lift."""

    def __init__(self, sample):
        self.target = sample.target

    def both(self, sample):
        assert sample.target is None
        return self.target, sample.scalars[:1]


@pytest.mark.nightly
def test_polars_have_scalar_and_integrated_lift(sample):
    angle = float(sample.scalars[0])
    polar = figure.predicted_polar(Told(sample), sample, np.array([angle, 1.0]))
    assert_allclose(polar.scalar, [angle, 1.0], rtol=1e-6)
    true = float(sample.target_scalars[0])
    assert_allclose(polar.integrated[0], true, atol=1e-5)


@pytest.mark.nightly
def test_a_computed_polar_has_the_lift_of_the_sample_and_no_unsteady_one(sample):
    angle = float(sample.scalars[0])
    given = {"num_wake": 4, "tolerance": 0.02}
    found = figure.computed_polar(sample, np.array([angle]), **given)
    assert_allclose(found, sample.target_scalars, atol=1e-6)


def test_the_figure_is_a_small_file(sample, tmp_path):
    polar = figure.Polar(*np.arange(9.0).reshape(3, 3))
    drawn = figure.draw(sample, sample.target, polar, (polar.angles, polar.scalar))
    path = tmp_path / "lift.png"
    figure.save(drawn, path)
    assert path.stat().st_size < 60_000
    with Image.open(path) as image:
        assert len(image.getcolors()) <= 24
