"""Checks, buckets and padding of samples."""

import itertools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import normalize, samples
from opjax.datasets import requests
from opjax.samples import Sample, normalizers
from tests.refused import value_error


def make(rng, n, *, channels=2, **changes):
    points, features, target = (rng.normal(size=(n, c)) for c in (2, channels, 1))
    arrays = (a.astype(np.float32) for a in (points, target, features))
    return Sample(*arrays)._replace(**changes)


def waste(sizes, counts):
    return sum(min(size for size in sizes if size >= n) - n for n in counts)


@pytest.mark.parametrize("num_buckets", [1, 2, 3, 5])
def test_bucket_sizes_waste_as_little_as_the_best_choice(rng, num_buckets):
    for _ in range(30):
        counts = rng.integers(1, 25, 9)
        found = samples.bucket_sizes(counts, num_buckets=num_buckets)
        assert len(found) <= num_buckets
        assert list(found) == sorted(found)
        others = sorted(set(counts))
        choices = itertools.chain.from_iterable(
            itertools.combinations(others, size) for size in range(1, num_buckets + 1)
        )
        best = min(waste(c, counts) for c in choices if c[-1] == max(counts))
        assert waste(found, counts) == best


def test_bucket_sizes_of_many_different_counts_waste_little(rng):
    counts = rng.integers(500, 50_000, 4000)
    found = samples.bucket_sizes(counts, num_buckets=8)
    assert found[-1] == counts.max()
    even = np.quantile(counts, np.arange(1, 9) / 8, method="higher")
    assert waste(found, counts) <= 1.05 * waste(even, counts)


def test_few_samples_and_short_runs_get_few_sizes(rng):
    few, many = rng.integers(80, 161, 29), rng.integers(500, 1501, 1000)
    assert samples.cheapest_num_buckets(few, batch_size=2, num_epochs=100) == 1
    assert samples.cheapest_num_buckets(many, batch_size=2, num_epochs=100) == 4
    assert samples.cheapest_num_buckets(many, num_epochs=1) == 1
    assert samples.cheapest_num_buckets([7] * 50, num_epochs=10**6) == 1
    numbers = [
        samples.cheapest_num_buckets(few, num_epochs=epochs)
        for epochs in (1, 10, 100, 1000, 10_000)
    ]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 1
    with value_error("counts must be positive"):
        samples.cheapest_num_buckets([])


def test_other_samples_get_given_sizes_where_these_fit(rng):
    assert samples.fitting_sizes([9, 12, 15], (10, 20)) == (10, 20)
    assert samples.fitting_sizes([12, 15], (10, 20)) == (20,)
    assert samples.fitting_sizes([12, 25, 22], (10, 20)) == (20, 25)
    assert samples.fitting_sizes([4, 4], (10, 20)) is None  # more than twice the points
    data = [make(rng, n) for n in (9, 9, 15)]
    first, second = samples.stack(data, sizes=(10, 20))
    assert first["mesh_points"].shape[:2] == (2, 10)
    assert second["mesh_points"].shape[:2] == (1, 20)
    (same,) = samples.stack(data[:2], sizes=(10,))  # padded, though of one size
    assert_array_equal(same["quadrature_weights"], first["quadrature_weights"])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("x64", [False, True])
def test_stored_arrays_are_encoded_to_the_same_bits(rng, dtype, x64):
    arrays = {
        name: rng.normal(size=(3, 5, 2)).astype(dtype)
        for name in ("mesh_points", "features", "target")
    }
    with jax.enable_x64(x64):
        fitted = {name: normalize.fit(arrays[name]) for name in ("features", "target")}
        expected = normalizers.encode(arrays, fitted)
        found = normalizers.encode_stored(arrays, fitted)
    assert found.keys() == expected.keys()
    assert found["target"] is arrays["target"]
    for name in ("mesh_points", "features"):
        assert_array_equal(found[name], expected[name])
    assert found["features"].dtype == expected["features"].dtype


def test_every_sample_is_in_one_bucket_that_holds_it(rng):
    counts = rng.integers(1, 100, 50)
    found = samples.bucket_rows(counts, num_buckets=4)
    rows = np.concatenate([rows for _, rows in found])
    assert sorted(rows) == list(range(50))
    assert all((counts[rows] <= size).all() for size, rows in found)


@pytest.mark.parametrize("batch_size", [1, 4, 10, 17])
def test_buckets_hold_a_batch(rng, batch_size):
    counts = [*rng.integers(1, 50, 18), 1000, 2000]
    found = samples.bucket_rows(counts, batch_size=batch_size)
    assert all(len(rows) >= batch_size for _, rows in found)
    assert sum(len(rows) for _, rows in found) == 20


def test_padding_keeps_the_sample_and_has_no_weight(rng):
    sample = make(rng, 5)
    padded = samples.pad(sample, 8)
    for name in ("mesh_points", "features", "target"):
        assert padded[name].shape[0] == 8
        assert_array_equal(padded[name][:5], getattr(sample, name))
        assert np.isfinite(padded[name]).all()
    assert_allclose(padded["quadrature_weights"], [0.2] * 5 + [0] * 3, rtol=1e-6)
    weighted = sample._replace(quadrature_weights=np.arange(1.0, 6, dtype=np.float32))
    assert_array_equal(
        samples.pad(weighted, 6)["quadrature_weights"], [1, 2, 3, 4, 5, 0]
    )
    assert weighted.quadrature_weights[-1] == 5
    with value_error("5 points exceeds size=4"):
        samples.pad(sample, 4)


def test_samples_of_one_size_are_stacked_without_weights(rng):
    (bucket,) = samples.stack([make(rng, 6) for _ in range(3)])
    assert set(bucket) == {"mesh_points", "features", "target"}
    assert bucket["features"].shape == (3, 6, 2)


def test_stacked_samples_are_those_of_their_rows(rng):
    data = [make(rng, n) for n in (3, 9, 4, 8, 3)]
    buckets = samples.stack(data, num_buckets=2)
    rows = samples.bucket_rows([s.num_points for s in data], num_buckets=2)
    for bucket, (size, indices) in zip(buckets, rows, strict=True):
        assert bucket["mesh_points"].shape == (len(indices), size, 2)
        for row, index in enumerate(indices):
            n = data[index].num_points
            assert_array_equal(bucket["target"][row, :n], data[index].target)
            assert np.count_nonzero(bucket["quadrature_weights"][row]) == n


@pytest.mark.parametrize("counts", [(5, 9, 4, 9, 6), (3, 3)])
def test_what_was_stacked_is_unstacked(rng, counts):
    made = [make(rng, n) for n in counts]
    buckets = samples.stack(made, batch_size=2, num_buckets=2)
    found = [
        {"fields": bucket["target"], "first": bucket["target"][:, 0, 0]}
        for bucket in buckets
    ]
    found = samples.unstack(found, counts, batch_size=2, num_buckets=2)
    for sample, one in zip(made, found, strict=True):
        assert_array_equal(one["fields"], sample.target)
        assert one["first"] == sample.target[0, 0]


@pytest.fixture
def grids(rng):
    """Returns three samples on a grid of 5 x 3 points that share these."""
    points = rng.normal(size=(15, 2)).astype(np.float32)
    return [make(rng, 15, mesh_points=points, grid_shape=(5, 3)) for _ in range(3)]


def test_coarse_grids_are_every_second_point_of_fine_ones(grids):
    found = samples.coarsen(grids, 2)
    samples.check(found)
    for coarse, fine in zip(found, grids, strict=True):
        assert coarse.grid_shape == (3, 2)
        for name in ("mesh_points", "features", "target"):
            expected = getattr(fine, name).reshape(5, 3, -1)[::2, ::2]
            actual = getattr(coarse, name).reshape(3, 2, -1)
            assert_array_equal(actual, expected)
    assert found[0].mesh_points is found[2].mesh_points
    with value_error("grid_shape None"):
        samples.coarsen([grids[0]._replace(grid_shape=None)], 2)


def test_a_target_may_have_a_grid_of_its_own(rng, grids):
    target = rng.normal(size=(6, 1)).astype(np.float32)
    found = [s._replace(target=target, target_grid=(3, 2)) for s in grids]
    samples.check(found)
    (stacked,) = samples.stack(found)
    assert stacked["target"].shape == (3, 6, 1)
    bad = found[1]._replace(target_grid=(3, 3))
    with value_error(r"sample 1.*target_grid \(3, 3\) has 9"):
        samples.check([found[0], bad])


def test_equal_or_adjoining_arrays_are_stacked_without_a_copy(rng):
    values = rng.normal(size=(6, 4, 2))
    for rows in (range(6), range(2, 5)):
        joined = samples.join([values[row] for row in rows])
        assert_array_equal(joined, values[rows.start : rows.stop])
        assert np.shares_memory(joined, values)
        assert not joined.flags.writeable
    for rows in ([0, 2], [3, 2, 1], [1, 1, 2]):
        joined = samples.join([values[row] for row in rows])
        assert_array_equal(joined, values[rows])
        assert not np.shares_memory(joined, values)
    same = samples.join([values[3]] * 4)
    assert_array_equal(same, np.broadcast_to(values[3], (4, 4, 2)))
    assert same.strides[0] == 0


def test_samples_are_divided_in_their_order(grids):
    found = requests.divide([*grids, *grids], (3, 1, 2), "here")
    assert found.train == grids
    assert [s.name for s in found.test] == [s.name for s in grids[1:]]
    with value_error(r"3 samples, but they should be divided into \(1, 1, 3\)"):
        requests.divide(grids, (1, 1, 3), "here")


NAN = np.full((4, 1), np.nan, np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": np.zeros((5, 1), np.float32)}, r"target has shape \(5, 1\), but"),
        ({"target": np.zeros(4, np.float32)}, r"target has shape \(4,\), expected"),
        ({"target": NAN}, "4 non-finite values, the first one at point 0"),
        (
            {"features": np.zeros((4, 3), np.float32)},
            "3 channels of features.*consistent",
        ),
        ({"features": None}, "no channels of features.*must be consistent"),
        ({"mesh_points": np.zeros((0, 2), np.float32)}, "one row per point"),
        ({"grid_shape": (3, 2)}, "has 6 points, but mesh_points has 4"),
    ],
)
def test_a_bad_sample_is_named(rng, changes, message):
    good, bad = make(rng, 4), make(rng, 4, name="wing.vtu", **changes)
    with value_error(r"sample 1 \(wing.vtu\).*" + message):
        samples.check([good, bad])


def test_bad_weights_empty_meshes_and_sets_are_refused(rng):
    good = make(rng, 4)
    samples.check([good])
    for weights in ([1, 1, -1, 1], [0, 0, 0, 0]):
        bad = good._replace(quadrature_weights=np.array(weights, np.float32))
        with value_error("non-negative and not all zero"):
            samples.check([bad])
    with value_error("mesh is empty"):
        samples.check([Sample(np.zeros((0, 2), np.float32))])
    with value_error("data set is empty"):
        samples.check([])
    with pytest.raises(TypeError, match="features has dtype int64"):
        samples.check([good._replace(features=np.zeros((4, 2), np.int64))])


def test_labels_are_integers_in_range(rng):
    points = np.zeros((3, 3), np.float32)
    samples.check([Sample(points, np.array([0, 1, 4]))], num_classes=5)
    with value_error("between 0 and 5.*below 5"):
        samples.check([Sample(points, np.array([0, 1, 5]))], num_classes=5)
    with pytest.raises(TypeError, match="expected integers"):
        samples.check([Sample(points, np.zeros(3, np.float32))], num_classes=5)


def test_different_data_sets_are_told_apart(rng):
    first, second = make(rng, 4), make(rng, 5, channels=3)
    samples.check_same_channels(first, make(rng, 7), names=("a", "b"))
    samples.check_same_channels(first, make(rng, 7, target=None), names=("a", "b"))
    with value_error("a has .* 2 channels of features.* b has"):
        samples.check_same_channels(first, second, names=("a", "b"))


@pytest.mark.parametrize(("counts", "number"), [([], 1), ([3], 0), ([0, 2], 1)])
def test_bucket_sizes_refuse_nothing_to_choose(counts, number):
    with value_error("must be positive"):
        samples.bucket_sizes(counts, num_buckets=number)
