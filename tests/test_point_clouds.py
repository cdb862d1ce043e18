import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import point_clouds


@pytest.fixture
def points(rng):
    """Returns 60 points of a long, lopsided cloud far from the origin."""
    cloud = rng.normal(size=(60, 3)) * [3.0, 2.0, 1.0]
    return cloud + 0.2 * cloud**2 + [50.0, -20.0, 10.0]


def rotation(rng):
    """A rotation from the QR decomposition of a random matrix."""
    q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return q * np.linalg.det(q)


def direct_farthest_points(points, num_samples):
    """All distances to all chosen points, anew for every choice."""
    from_mean = np.linalg.norm(points - points.mean(axis=0), axis=1)
    chosen = [int(np.argmax(from_mean))]
    while len(chosen) < num_samples:
        offsets = points[:, None] - points[None, chosen]
        chosen.append(int(np.argmax(np.linalg.norm(offsets, axis=2).min(axis=1))))
    return chosen


def direct_nearest_points(queries, points):
    offsets = queries[:, None] - points[None]
    return np.argmin(np.linalg.norm(offsets, axis=2), axis=1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_farthest_points_agree_with_all_distances(dtype, dimension, points):
    points = points[:, :dimension].astype(dtype)
    chosen = point_clouds.farthest_points(points, num_samples=20)
    assert chosen.dtype == np.int32
    assert_array_equal(chosen, direct_farthest_points(points, 20))


def test_farthest_points_of_a_grid_are_its_corners_first():
    grid = np.stack(np.meshgrid(*[np.arange(5.0)] * 2, indexing="ij"), -1)
    chosen = point_clouds.farthest_points(grid.reshape(-1, 2), num_samples=5)
    assert set(np.asarray(chosen)) == {0, 4, 20, 24, 12}


def test_a_smaller_sample_is_the_start_of_a_larger_one(points):
    few, many = (point_clouds.farthest_points(points, num_samples=n) for n in (7, 30))
    assert_array_equal(few, many[:7])


def test_the_sample_covers_the_cloud_as_well_as_its_points_are_apart(points):
    chosen = points[point_clouds.farthest_points(points, num_samples=12)]
    offsets = np.linalg.norm(points[:, None] - chosen[None], axis=2)
    apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=2)
    assert offsets.min(axis=1).max() <= apart[np.triu_indices(12, 1)].min()


def test_all_points_are_chosen_once_if_asked_for(points):
    chosen = point_clouds.farthest_points(points, num_samples=len(points))
    assert sorted(np.asarray(chosen)) == list(range(len(points)))


def test_the_sample_does_not_depend_on_pose_and_order(points, rng):
    chosen = point_clouds.farthest_points(points, num_samples=15)
    order = rng.permutation(len(points))
    moved = (points @ rotation(rng) + [1.0, 2.0, 3.0])[order]
    again = point_clouds.farthest_points(moved, num_samples=15)
    assert_array_equal(order[again], chosen)


def test_points_of_zero_weight_are_neither_chosen_nor_found(points):
    padded = np.concatenate([points, np.full((9, 3), 1e6)])
    weights = np.r_[np.full(60, 0.3), np.zeros(9)]
    assert_array_equal(
        point_clouds.farthest_points(
            padded, num_samples=20, quadrature_weights=weights
        ),
        point_clouds.farthest_points(points, num_samples=20),
    )
    nearest = point_clouds.nearest_points(padded, padded, quadrature_weights=weights)
    assert_array_equal(nearest[:60], np.arange(60))
    assert np.all(nearest[60:] < 60)


def test_more_samples_than_points_of_positive_weight_repeat_points(points):
    weights = (np.arange(60) < 4).astype(float)
    chosen = point_clouds.farthest_points(
        points, num_samples=9, quadrature_weights=weights
    )
    assert set(np.asarray(chosen)) == {0, 1, 2, 3}


@pytest.mark.parametrize("count", [1, 255, 256, 300])
def test_nearest_points_agree_with_all_distances(count, points, rng):
    queries = points[rng.integers(60, size=count)] + rng.normal(size=(count, 3))
    found = point_clouds.nearest_points(queries, points)
    assert found.dtype == np.int32
    assert_array_equal(found, direct_nearest_points(queries, points))


def test_every_point_is_its_own_nearest_one_far_from_the_origin(rng):
    points = (1e4 + rng.permutation(500)[:, None]).astype(np.float32)
    found = point_clouds.nearest_points(points, points)
    assert_array_equal(found, np.arange(500))


def test_centred_and_scaled_clouds_fill_the_unit_ball(points):
    scaled = np.asarray(point_clouds.centre_and_scale(points))
    assert_allclose(scaled.mean(axis=0), 0, atol=1e-13)
    assert np.linalg.norm(scaled, axis=1).max() == pytest.approx(1)
    fixed = point_clouds.centre_and_scale(points, length=2.0)
    assert_allclose(fixed, (points - points.mean(axis=0)) / 2, atol=1e-13)


def test_padding_does_not_move_a_cloud(points):
    padded = np.concatenate([points, points[:1], points[:1]])
    weights = np.r_[np.ones(60), 0.0, 0.0]
    for function in (point_clouds.centre_and_scale, point_clouds.principal_axes):
        expected = function(points)
        found = function(padded, quadrature_weights=weights)
        assert_allclose(found[: len(expected)], expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_random_rotations_are_rotations(dtype):
    keys = jax.random.split(jax.random.key(0), 50)
    found = jax.jit(
        jax.vmap(lambda key: point_clouds.random_rotation(key, dtype=dtype))
    )(keys)
    assert found.dtype == dtype
    found = np.asarray(found, np.float64)
    identity = np.broadcast_to(np.eye(3), found.shape)
    assert_allclose(
        found @ found.transpose(0, 2, 1), identity, atol=5 * jnp.finfo(dtype).eps
    )
    assert_allclose(np.linalg.det(found), 1, rtol=1e-6)


def test_random_rotations_are_uniform():
    keys = jax.random.split(jax.random.key(1), 20_000)
    found = np.asarray(
        jax.jit(jax.vmap(point_clouds.random_rotation))(keys), np.float64
    )
    # Moments of the Haar measure: E[R] = 0, E[R_ij^2] = 1/3, and the angle has density
    # (1 - cos t) / pi, so E[cos t] = -1/2.
    assert_allclose(found.mean(axis=0), 0, atol=0.02)
    assert_allclose((found**2).mean(axis=0), 1 / 3, atol=0.02)
    cosine = (np.trace(found, axis1=1, axis2=2) - 1) / 2
    assert cosine.mean() == pytest.approx(-0.5, abs=0.02)
    assert (cosine**2).mean() == pytest.approx(0.5, abs=0.02)


def test_principal_axes_are_the_same_for_every_pose(points, rng):
    axes = np.asarray(point_clouds.principal_axes(points))
    assert np.linalg.det(axes) == pytest.approx(1)
    own = (points - points.mean(axis=0)) @ axes
    covariance = own.T @ own
    assert_allclose(
        covariance, np.diag(np.diag(covariance)), atol=1e-9 * covariance[0, 0]
    )
    assert np.all(np.diff(np.diag(covariance)) < 0)
    assert np.all((own[:, :2] ** 3).sum(axis=0) > 0)
    moved = points @ rotation(rng)
    again = (moved - moved.mean(axis=0)) @ point_clouds.principal_axes(moved)
    assert_allclose(again, own, atol=1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda x: point_clouds.farthest_points(x, num_samples=61), ValueError, "60"),
        (lambda x: point_clouds.farthest_points(x, num_samples=0), ValueError, "60"),
        (
            lambda x: point_clouds.farthest_points(x[:0], num_samples=1),
            ValueError,
            "at least one point",
        ),
        (lambda x: point_clouds.nearest_points(x[:, :2], x), ValueError, "coordinates"),
        (lambda x: point_clouds.nearest_points(x, x.astype(int)), TypeError, "int"),
        (lambda x: point_clouds.centre_and_scale(x, length=0.0), ValueError, "length"),
        (lambda x: point_clouds.principal_axes(x[:, :2]), ValueError, r"\(n, 3\)"),
        (
            lambda x: point_clouds.principal_axes(x, quadrature_weights=x[:5, 0]),
            ValueError,
            "points",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message, points):
    with pytest.raises(error, match=message):
        call(points)
    with pytest.raises(TypeError, match="int"):
        point_clouds.random_rotation(jax.random.key(0), dtype=jnp.int32)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [1, 5])
def test_clouds_of_one_place_are_moved_to_the_origin(count):
    points = jnp.full((count, 3), 0.1)
    with jax.debug_nans(True):
        found = point_clouds.centre_and_scale(points)
        slope = jax.jit(jax.grad(lambda p: point_clouds.centre_and_scale(p).sum()))(
            points
        )
    assert_allclose(found, 0, atol=1e-7)
    assert np.isfinite(slope).all()
