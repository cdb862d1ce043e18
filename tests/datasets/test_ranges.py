import numpy as np
import pytest

from opjax.samples import Sample, ranges


def test_ranges_say_how_far_outside_a_sample_is():
    box = np.array([[0, -1], [2, 1], [1, 0]], np.float32)
    inside = Sample(box, box[:, :1], np.array([[5.0], [5], [7]], np.float32))
    measured = ranges.measure([inside])
    np.testing.assert_array_equal(measured["ranges"]["mesh_points"], [[0, -1], [2, 1]])
    same = ranges.compare(measured, inside)
    assert same == {
        "points_outside": 0,
        "points_distance": 0,
        "features_outside": 0,
        "features_distance": 0,
        "num_points_factor": 1,
    }
    assert ranges.sentence(same) == ""
    points = np.array([[1, 0], [3, 0], [-0.5, 0.5], [1, 1], [0, -1]], np.float32)
    features = np.array([[4.0], [6], [7], [5], [5]], np.float32)
    row = ranges.compare(
        measured,
        inside._replace(
            mesh_points=np.repeat(points, 3, axis=0), features=np.repeat(features, 3, 0)
        ),
    )
    assert row["points_outside"] == pytest.approx(2 / 5)
    assert row["points_distance"] == pytest.approx(0.5)
    assert row["features_outside"] == pytest.approx(1 / 5)
    assert row["features_distance"] == pytest.approx(0.5)
    assert row["num_points_factor"] == 5
    said = ranges.sentence(row)
    assert "40 % of the points" in said
    assert "times off" in said


def test_a_channel_without_range_is_measured_by_its_size(rng):
    points = rng.uniform(size=(4, 2)).astype(np.float32)
    sample = Sample(points, points[:, :1], np.full((4, 1), 8, np.float32))
    measured = ranges.measure([sample])
    moved = sample._replace(features=np.full((4, 1), 10, np.float32))
    row = ranges.compare(measured, moved)
    assert row["features_outside"] == 1
    assert row["features_distance"] == pytest.approx(0.25)
