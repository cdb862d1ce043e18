"""The benchmark of unlike cases: kinds of cases, and the rows of its table."""

import jax
import numpy as np
import pytest
from absl import app
from numpy.testing import assert_allclose

from benchmarks import unlike
from opjax import learn, uncertainty
from opjax.problems import elasticity
from tests.learn.test_predict import make, operator


def test_heat_over_other_shapes_is_that_of_the_demonstration():
    (one, other) = unlike.heat_on(unlike._ring, 2)
    radius = np.linalg.norm(one.mesh_points, axis=1)
    assert 0.7 < radius.min() < radius.max() <= 1
    assert one.target.max() < one.features.max()  # heat spreads
    assert one.target.shape == one.features.shape == (one.num_points, 1)
    assert not np.array_equal(one.mesh_points[:9], other.mesh_points[:9])
    corner = unlike._corner(np.random.default_rng(0), 50)
    assert corner.shape == (50, 2)
    assert not (corner > 0).all(axis=1).any()


def test_rotations_keep_distances_and_units_scale_them():
    (sample,) = unlike.heat_on(unlike._ellipse, 1)
    turned = unlike.rotated(sample, 90).mesh_points
    x, y = sample.mesh_points.T
    assert_allclose(turned, np.stack([-y, x], axis=1), atol=1e-6)
    scaled = unlike.scaled(sample, points=1e3, features=2.0)
    assert_allclose(scaled.mesh_points, 1e3 * sample.mesh_points)
    assert_allclose(scaled.features, 2 * sample.features)


def test_a_cell_that_turns_by_a_right_angle_stays_in_its_place(monkeypatch):
    monkeypatch.setattr(unlike, "_CASES", 2)
    monkeypatch.setattr(unlike, "cells", square_cells)
    kinds = dict(unlike.elasticity_kinds())
    (first, *_), same = kinds["as in training"], kinds["as in training"]
    for name, several in kinds.items():
        if name.startswith("rotated by 90"):
            for one, other in zip(several, same, strict=True):
                assert not np.allclose(one.mesh_points, other.mesh_points)
                for corner in (np.min, np.max):
                    assert_allclose(
                        corner(one.mesh_points, axis=0),
                        corner(other.mesh_points, axis=0),
                        atol=1e-6,
                    )
    moved = kinds["moved by its own length"][0].mesh_points
    assert_allclose(moved, first.mesh_points - np.float32([1, 0]))


def square_cells(count, seed, **others):
    """Points of the unit square with its corners, in place of elastic cells."""
    del others
    corners = np.float32([[0, 0], [1, 0], [0, 1], [1, 1]])
    rng = np.random.default_rng(seed)
    inside = [rng.uniform(size=(5, 2)).astype(np.float32) for _ in range(count)]
    return [unlike.Sample(np.concatenate([corners, each])) for each in inside]


def test_voids_of_any_radius_are_morphed_like_those_of_training():
    pytest.importorskip("skfem")
    mesh = elasticity.reference_mesh(num_around=8, num_across=1)
    modes = np.asarray(elasticity.void_modes(jax.random.key(0)))
    expected = elasticity.morphed_mesh(mesh, modes)
    rng = np.random.default_rng(0)
    found = unlike._with_void(
        mesh, lambda _, angle: elasticity.void_radius(modes, angle), rng
    )
    assert_allclose(found.doflocs, expected.doflocs, atol=1e-12)
    for radius in (unlike._slot, unlike._star, unlike._pinhole):
        values = radius(rng, np.linspace(0, 2 * np.pi, 99))
        assert 0.05 < values.min() <= values.max() < 0.45


@pytest.mark.nightly
def test_cases_far_away_are_told_apart(rng, tmp_path):
    found = operator(rng, tmp_path)
    cases = [make(rng, 30, name=str(i)) for i in range(24)]
    calibrated = learn.calibrate(found, cases, coverage=0.9)
    reference = np.stack([unlike.coefficients(found, s) for s in cases])
    same = unlike.measure(calibrated, reference, [make(rng, 30) for _ in range(5)])
    far = unlike.measure(
        calibrated, reference, [unlike.scaled(make(rng, 30), points=9.0)]
    )
    assert uncertainty.area_under_curve(same.distance, far.distance) == 1
    assert far.alarm.tolist() == [1]
    assert same.alarm.mean() < 1
    # Padding does not change coefficients.
    expected = found.field(cases[0]._replace(target=None)).coefficients.ravel()
    assert_allclose(reference[0], expected, rtol=1e-4, atol=1e-5)


def test_data_and_runs_are_not_given_together(monkeypatch):
    for data, runs in ((None, None), ("a", "b")):
        monkeypatch.setattr(unlike, "_DATA", Flag(data))
        monkeypatch.setattr(unlike, "_RUNS", Flag(runs))
        with pytest.raises(app.UsageError, match="--unlike_data or --unlike_runs"):
            unlike.main(["unlike"])


class Flag:
    """A flag that has a value."""

    def __init__(self, value):
        self.value = value
