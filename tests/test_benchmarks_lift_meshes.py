"""Thinned meshes of airfoils, and POD with interpolation on them."""

import numpy as np
import pytest

from benchmarks import lift_meshes as other
from opjax.datasets import lift
from opjax.samples import Sample

AROUND, OUTWARDS = 41, 6


def case(rng):
    """An ellipse in a ring of points; pressure and lift are linear in its numbers."""
    height, turn, angle = rng.uniform(0.8, 1.2), rng.uniform(-0.2, 0.2), rng.uniform()
    phi = np.linspace(0, 2 * np.pi, AROUND)[:, None]
    radius = np.linspace(1, 3, OUTWARDS)
    x, y = radius * np.cos(phi), radius * height * np.sin(phi) + turn * np.cos(phi)
    return Sample(
        np.float32(np.stack([x, y], axis=-1).reshape(-1, 2)),
        np.float32(np.ravel(height * x + angle * y))[:, None],
        scalars=np.float32([angle, height]),
        target_scalars=np.float32([height + 2 * turn + 3 * angle]),
        boundaries={lift.WALL: np.arange(AROUND) * OUTWARDS},
        cells=np.zeros((1, 4), int),
        grid_shape=(AROUND, OUTWARDS),
    )


@pytest.fixture(scope="module")
def cases():
    rng = np.random.default_rng(0)
    return [case(rng) for _ in range(34)]


@pytest.mark.parametrize("way", ["halved", "scattered"])
def test_thinned_meshes_keep_the_truth_at_their_points(way, cases):
    one = cases[0]
    if way == "halved":
        thinned = other.halved(one)
        assert thinned.num_points == 21 * 3
        assert len(thinned.boundaries[lift.WALL]) == 21
    else:
        thinned = other.scattered(one, np.random.default_rng(1))
        assert thinned.num_points == AROUND * OUTWARDS // 2
    whole = {tuple(p): v for p, v in zip(one.mesh_points, one.target, strict=True)}
    for point, value in zip(thinned.mesh_points, thinned.target, strict=True):
        assert whole[tuple(point)] == value
    wall = thinned.mesh_points[thinned.boundaries[lift.WALL]]
    np.testing.assert_array_equal(wall[0], wall[-1])  # still closed
    turns = np.unwrap(np.arctan2(*wall.T[::-1]))
    assert (np.diff(turns) > 0).all()  # still in order
    np.testing.assert_array_equal(thinned.features, lift.geometry_features(thinned))
    assert thinned.cells is None is thinned.grid_shape


def test_interpolated_pod_is_near_the_truth_on_thinned_meshes(cases):
    train, test = cases[:30], cases[30:]
    for sample in (test[:], [other.halved(one) for one in test]):
        found = other.numbers(sample, other.interpolated(train, sample))
        assert found["pressure"] < 0.1
        assert found["lift_r2"] > 0.98


def test_the_order_of_points_does_not_change_interpolated_pod(cases):
    rng = np.random.default_rng(2)
    mixed = other.scattered(cases[-1], rng, share=1.0)
    straight = other.kept(cases[-1], np.arange(cases[-1].num_points))
    (one,), first = other.interpolated(cases[:30], [mixed])
    (two,), second = other.interpolated(cases[:30], [straight])
    np.testing.assert_allclose(first, second)
    np.testing.assert_allclose(np.sort(one), np.sort(two), atol=1e-6)


def test_numbers_of_the_truth_are_perfect(cases):
    lifts = np.array([one.target_scalars[0] for one in cases])
    truth = [one.target[:, 0] for one in cases], lifts
    assert other.numbers(cases, truth) == {
        "pressure": 0,
        "lift_r2": 1,
        "lift_error": 0,
    }
