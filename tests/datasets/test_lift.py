"""The lift data set: its flows, meshes and features, and what it refuses."""

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import samples
from opjax.datasets import lift
from opjax.datasets.requests import Request
from opjax.learn.config.quantities import parse
from opjax.learn.predict.quantities import measure
from tests.refused import value_error

TINY = lift.Solver(num_airfoil=16, num_wake=4, num_radial=8, tolerance=0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def made(folder):
    return lift.generate(3, seed=0, cache_dir=folder, solver=TINY)


def test_samples_have_scalars_a_wall_and_a_lift(made):
    samples.check(made)
    for one in made:
        assert one.grid_shape == (25, 9)
        assert one.mesh_points.dtype == one.target.dtype == np.float32
        angle, mach = one.scalars
        assert lift.ANGLES[0] <= angle <= lift.ANGLES[1]
        assert lift.MACH_NUMBERS[0] <= mach <= lift.MACH_NUMBERS[1]
    assert len({tuple(one.scalars) for one in made}) == 3


def test_the_wall_is_the_airfoil(made):
    (first, *_) = made
    wall = first.mesh_points[first.boundaries[lift.WALL]]
    assert len(wall) == TINY.num_airfoil + 1
    assert_array_equal(wall[0], wall[-1])  # the trailing edge
    assert_allclose([wall[:, 0].min(), wall[:, 0].max()], [0, 1], atol=1e-6)


def test_the_lift_is_the_force_of_the_pressure_on_the_wall(made):
    (wanted,) = parse("lift:pressure@wall:angle_deg=angle")
    for one in made:
        (found,) = measure((wanted,), one, [one.target], lift.CHANNELS)
        assert_allclose(found[wanted.text], one.target_scalars[0], atol=1e-5)


def test_cells_cover_the_mesh_once(made):
    (first, *_) = made
    x, y = np.moveaxis(first.mesh_points[first.cells].astype(float), -1, 0)
    areas = (x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(axis=1) / 2
    assert len(areas) == 24 * 8
    assert (areas > 0).all() or (areas < 0).all()


@pytest.mark.nightly
def test_lift_rises_with_the_angle(folder):
    with jax.enable_x64(False):
        mesh = TINY.mesh(np.zeros(8, np.float32))
        flows = [
            lift.solve(mesh, num_wake=4, angle=angle, mach=0.4, tolerance=0.005)
            for angle in (0.0, 4.0)
        ]
    assert all(flow.residual <= 0.005 for flow in flows)
    assert abs(flows[0].lift) < 0.01 < 0.1 < flows[1].lift


def test_a_smaller_data_set_is_the_start_of_a_larger_one(made, folder):
    (few,) = lift.generate(1, seed=0, cache_dir=folder, solver=TINY)
    assert_array_equal(few.target, made[0].target)
    assert_array_equal(few.target_scalars, made[0].target_scalars)


def test_splits_do_not_share_flows_and_centre_their_features(folder):
    found = lift.splits(Request(3, 1, 1, cache_dir=folder), solver=TINY)
    parts = found.train, found.validation, found.test
    assert tuple(map(len, parts)) == (3, 1, 1)
    assert len({tuple(one.scalars) for part in parts for one in part}) == 5
    shifts = [one.features[:, :2] for one in found.train]
    assert_allclose(np.mean(shifts, axis=0), 0, atol=1e-5)
    near = found.test[0].features[:, 2:]
    assert_array_equal(near, found.train[0].features[:, 2:])
    assert np.linalg.norm(near, axis=1).max() < 1
    assert found.channels == lift.CHANNELS
    assert found.train[0].features.shape[1] == len(lift.CHANNELS["features"])
    middle = np.mean([one.mesh_points for one in found.train], axis=0)
    off = middle.astype(float) - [0.5, 0]
    expected = off / (0.5 + np.hypot(*off.T))[:, None]
    assert_allclose(near, expected, atol=1e-6)


@pytest.mark.parametrize(("kind", "names"), [("none", ()), ("geometry", lift.GEOMETRY)])
def test_splits_may_have_what_any_mesh_has(kind, names, folder):
    asked = Request(3, 0, 1, cache_dir=folder)
    found = lift.splits(asked, point_features=kind, solver=TINY)
    samples.check(found.train)
    assert found.channels == {**lift.CHANNELS, "features": names}
    (one,) = found.test
    assert one.features is None if kind == "none" else one.features.shape == (225, 6)
    full = lift.splits(asked, solver=TINY)
    assert one.target_scalars == full.test[0].target_scalars


def test_geometry_of_a_square_is_exact_and_knows_no_order_of_points(rng):
    square = np.array([[0, -0.5], [1, -0.5], [1, 0.5], [0, 0.5], [0, -0.5]])
    outside = np.array([[3, 0.25], [0.5, -2], [-3, 3.5]])
    one = samples.Sample(
        np.float32(np.concatenate([square, outside])),
        np.zeros((8, 1), np.float32),
        boundaries={lift.WALL: np.arange(5)},
    )
    found = lift.geometry_features(one)
    assert found.dtype == np.float32
    columns = dict(zip(lift.GEOMETRY, found.T, strict=True))
    assert_array_equal(columns["wall"], [1] * 5 + [0] * 3)
    far = np.array([2, 1.5, np.hypot(3, 3)])
    assert_allclose(columns["wall_distance"][5:], far / (0.5 + far), 1e-6)
    assert_allclose(columns["wall_distance"][:5], 0, atol=1e-7)
    assert_allclose(columns["near_x"][5], 2.5 / (0.5 + np.hypot(2.5, 0.25)))
    normals = found[5:, 4:]
    assert_allclose(np.abs(normals[:2]), [[1, 0], [0, 1]], atol=1e-6)
    order = rng.permutation(8)
    mixed = one._replace(
        mesh_points=one.mesh_points[order],
        boundaries={lift.WALL: np.argsort(order)[:5]},
    )
    assert_array_equal(lift.geometry_features(mixed), found[order])


def test_bad_input_is_refused(tmp_path):
    with value_error("tolerance"):
        lift.Solver(tolerance=1e-6)
    with value_error("num_airfoil=17 must be even"):
        lift.generate(1, seed=0, solver=lift.Solver(17), cache_dir=tmp_path)
    with value_error("point_features='all' is unknown"):
        lift.splits(Request(1, 0, 1), point_features="all")
    with value_error("no published files"):
        lift.splits(Request(1, 0, 1, data_dir="files"))


def test_no_steady_flow_is_an_error_and_no_sample(tmp_path, monkeypatch):
    flow = lift.Flow(np.zeros(1), 0.0, 0.0, residual=0.1)
    monkeypatch.setattr(lift, "solve", lambda *_, **__: flow)
    monkeypatch.setattr(lift, "_ATTEMPTS", 2)
    with pytest.raises(RuntimeError, match="none of 2 random flows became steady"):
        lift.generate(1, seed=0, cache_dir=tmp_path, solver=TINY)
