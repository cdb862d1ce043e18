"""Covers by boxes and hats against the text of the paper, with dense matrices."""

import functools
import itertools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import schwarz
from tests import oracles, refused
from tests.selection import by_day

# Points, boxes and overlap: the paper's, uneven ones, one box, no overlap, 2-D, 3-D.
BOXES = {
    "paper": ((256,), (8,), 2),
    "uneven": ((11,), (3,), 1),
    "one box": ((5,), (1,), 2),
    "no overlap": ((9,), (4,), 0),
    "overlap of three": ((8,), (4,), 2),
    "2-D": ((7, 9), (3, 2), 1),
    "3-D": ((4, 5, 6), (2, 1, 3), 1),
}
# Lists of points by hand: different sizes, one point in all, not in order.
BY_HAND = {
    "by hand": ([[3, 0, 1], [1, 2, 3, 4, 5], [3], [5, 3, 6]], 7),
    "singletons": ([[2], [0], [1]], 3),
}
COVERS = [*BOXES, *BY_HAND]


def box_sets(shape, boxes, overlap):
    """Splits into disjoint sets and enlarges them, section 4.1, point by point."""

    def sets_on_axis(n, count):
        parts = np.array_split(np.arange(n), count)
        return [range(p[0] - overlap, p[-1] + overlap + 1) for p in parts]

    axes = [sets_on_axis(*axis) for axis in zip(shape, boxes, strict=True)]
    points = list(np.ndindex(*shape))
    return [
        [j for j, x in enumerate(points) if all(map(range.__contains__, box, x))]
        for box in itertools.product(*axes)
    ]


def make(name):
    """Returns the cover of a name and, found independently, its sets of points."""
    if name in BOXES:
        shape, boxes, overlap = BOXES[name]
        sets = box_sets(*BOXES[name])
        return schwarz.box_cover(shape, boxes, overlap=overlap), sets
    sets, num_points = BY_HAND[name]
    return schwarz.cover(sets, num_points=num_points), sets


def restrictions(sets, n):
    """The Boolean matrices R_i."""
    return [np.eye(n)[indices] for indices in sets]


def partitions_of_unity(sets, n):
    """The diagonal matrices D_i, Eq. 10."""
    count = [sum(j in indices for indices in sets) for j in range(n)]
    return [np.diag([1 / count[j] for j in indices]) for indices in sets]


def padded(arrays, width):
    pad = [((0, width - len(a)), *((0, 0),) * (np.ndim(a) - 1)) for a in arrays]
    return np.stack([np.pad(a, p) for a, p in zip(arrays, pad, strict=True)])


def hats_on_axis(x, nodes):
    """Piecewise linear functions, one at an inner node and zero at the others."""
    return np.stack([np.interp(x, nodes, e) for e in np.eye(len(nodes))[1:-1]], axis=1)


def dense(coarse_space):
    """The matrix Phi, summed entry by entry."""
    phi = np.zeros((coarse_space.num_points, coarse_space.num_subdomains))
    for i, (points, values) in enumerate(
        zip(coarse_space.indices, coarse_space.weights, strict=True)
    ):
        for j, value in zip(points, values, strict=True):
            phi[j, i] += value
    return phi


restrict, prolong = jax.jit(schwarz.restrict), jax.jit(schwarz.prolong)


@pytest.fixture(params=COVERS)
def case(request):
    return make(request.param)


# covers


def test_subdomains_are_the_enlarged_sets_of_the_paper(case):
    cover, sets = case
    assert cover.num_subdomains == len(sets)
    assert_array_equal(cover.sizes, [len(indices) for indices in sets])
    for indices, expected in zip(cover.indices, sets, strict=True):
        assert_array_equal(indices[: len(expected)], expected)


def test_the_paper_has_blocks_of_34_and_36_points():
    cover = schwarz.box_cover(256, 8, overlap=2)
    assert_array_equal(cover.sizes, [34, 36, 36, 36, 36, 36, 36, 34])


def test_uneven_intervals_differ_by_one_point():
    cover = schwarz.box_cover(11, 3, overlap=0)
    assert_array_equal(cover.sizes, [4, 4, 3])


@pytest.mark.parametrize("overlap", [0, 1, 2])
def test_neighbouring_intervals_share_twice_the_overlap(overlap):
    cover = schwarz.box_cover(32, 4, overlap=overlap)
    sets = [set(i[:m]) for i, m in zip(cover.indices, cover.sizes, strict=True)]
    for left, right in itertools.pairwise(sets):
        assert len(left & right) == 2 * overlap


def test_partition_of_unity_sums_to_the_identity(case, rng):
    cover, sets = case
    n = cover.num_points
    matrices = zip(restrictions(sets, n), partitions_of_unity(sets, n), strict=True)
    identity = sum(r.T @ d @ r for r, d in matrices)
    assert_allclose(identity, np.eye(n), rtol=1e-14, atol=1e-14)
    values = rng.normal(size=(n, 2))

    @jax.jit
    def there_and_back(values):
        return prolong(cover.weights[..., None] * restrict(values, cover), cover)

    assert_allclose(there_and_back(values), values, rtol=1e-14)


def test_weights_count_the_subdomains_of_a_point(case):
    cover, sets = case
    weights = partitions_of_unity(sets, cover.num_points)
    expected = padded([np.diag(d) for d in weights], cover.indices.shape[1])
    assert_array_equal(cover.weights, expected)


def test_padding_repeats_a_point_with_weight_zero(case):
    cover, _ = case
    for indices, weights, m in zip(
        cover.indices, cover.weights, cover.sizes, strict=True
    ):
        assert set(indices[m:]) <= {indices[m - 1]}
        assert not weights[m:].any()


def restrict_oracle(sets, values):
    return padded([values[indices] for indices in sets], max(map(len, sets)))


def prolong_oracle(sets, n, local):
    matrices = restrictions(sets, n)
    return sum(r.T @ u[: len(r)] for r, u in zip(matrices, local, strict=True))


def restrict_case(cover, sets, rng):
    return (
        functools.partial(schwarz.restrict, cover=cover),
        functools.partial(restrict_oracle, sets),
        (rng.normal(size=(cover.num_points, 2)),),
    )


def prolong_case(cover, sets, rng):
    return (
        functools.partial(schwarz.prolong, cover=cover),
        functools.partial(prolong_oracle, sets, cover.num_points),
        (rng.normal(size=(*cover.indices.shape, 2)),),
    )


@pytest.mark.parametrize("name", by_day(["uneven", "2-D", "by hand"], ["uneven"]))
@pytest.mark.parametrize("of", [restrict_case, prolong_case])
def test_restrict_and_prolong_are_the_boolean_matrices(name, of, rng):
    function, oracle, args = of(*make(name), rng)
    oracles.check(function, oracle, args)
    oracles.check_transforms(function, args)


def test_restrict_and_prolong_are_adjoint(case, rng):
    cover, _ = case
    values = rng.normal(size=(cover.num_points, 2))
    local = rng.normal(size=(*cover.indices.shape, 2))
    left = np.vdot(restrict(values, cover), local)
    right = np.vdot(values, prolong(local, cover))
    assert_allclose(left, right, rtol=1e-12)


def test_prolong_ignores_padding(rng):
    cover, _ = make("by hand")
    local = rng.normal(size=(*cover.indices.shape, 1))
    spoilt = np.where(cover.weights[..., None] > 0, local, np.nan)
    actual, expected = prolong(spoilt, cover), prolong(local, cover)
    assert_array_equal(actual, expected)


def test_a_cover_is_an_argument_of_compiled_functions(rng):
    cover, _ = make("uneven")
    values = rng.normal(size=(11, 2))
    actual = restrict(values, cover)
    assert_array_equal(actual, schwarz.restrict(values, cover))


def test_stacked_covers_are_mapped(rng):
    first = schwarz.cover([[0, 1, 2], [2, 3, 4]], num_points=5)
    second = schwarz.cover([[4, 0, 1], [1, 3, 2]], num_points=5)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), first, second)
    values = rng.normal(size=(2, 5, 1))
    actual = jax.jit(jax.vmap(schwarz.restrict))(values, stacked)
    for cover, u, local in zip((first, second), values, actual, strict=True):
        assert_array_equal(local, restrict(u, cover))


# hats

INTERFACES = {
    "paper": ((256,), (8,)),
    "uneven": ((11,), (3,)),
    "single points": ((4,), (4,)),
    "2-D": ((7, 9), (3, 2)),
    "3-D": ((4, 5, 6), (2, 3, 3)),
}
UNIFORM = {
    "at points": ((15,), (3,)),
    "between points": ((10,), (4,)),
    "at all points": ((6,), (6,)),
    "2-D": ((5, 8), (2, 3)),
    "3-D": ((3, 4, 5), (1, 2, 3)),
}


def interface_peaks(n, count):
    """The larger of the two indices closest to the centre of every overlap."""
    sets = box_sets((n,), (count,), 1)
    shared = [sorted({*a} & {*b}) for a, b in itertools.pairwise(sets)]
    return [points[len(points) // 2] for points in shared]


@pytest.mark.parametrize("name", INTERFACES)
def test_interface_hats_are_products_of_hats_between_boxes(name):
    shape, boxes = INTERFACES[name]
    axes = [
        hats_on_axis(np.arange(n), [-1, *interface_peaks(n, count), n])
        for n, count in zip(shape, boxes, strict=True)
    ]
    actual = schwarz.interface_hats(shape, boxes)
    assert actual.num_subdomains == np.prod(np.array(boxes) - 1)  # n0 = N - 1 in 1-D
    expected = functools.reduce(np.kron, axes)
    assert_allclose(dense(actual), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_hats_have_maxima_on_a_uniform_grid(name):
    shape, counts = UNIFORM[name]
    axes = [
        hats_on_axis(np.arange(1, n + 1) / (n + 1), np.linspace(0, 1, count + 2))
        for n, count in zip(shape, counts, strict=True)
    ]
    actual = schwarz.uniform_hats(shape, counts)
    assert actual.num_subdomains == np.prod(counts)
    expected = functools.reduce(np.kron, axes)
    assert_allclose(dense(actual), expected, rtol=1e-12, atol=1e-14)


def test_numbers_stand_for_one_axis():
    for function in (
        functools.partial(schwarz.box_cover, overlap=1),
        schwarz.interface_hats,
        schwarz.uniform_hats,
    ):
        for number, axis in zip(
            jax.tree.leaves(function(12, 3)),
            jax.tree.leaves(function((12,), (3,))),
            strict=True,
        ):
            assert_array_equal(number, axis)


def test_maxima_are_the_larger_of_the_two_central_points():
    # Numbered from zero: sets 0-31, 32-63, ..., overlaps 30-33, ..., centres 31 and 32.
    phi = dense(schwarz.interface_hats(256, 8))
    assert_array_equal(phi.argmax(axis=0), np.arange(32, 256, 32))
    assert_array_equal(phi.max(axis=0), 1)


def test_hats_sum_to_one_between_the_outer_maxima():
    total = dense(schwarz.interface_hats(30, 4)).sum(axis=1)
    first, *_, last = interface_peaks(30, 4)
    assert_allclose(total[first : last + 1], 1, rtol=1e-14)
    assert total[:first].max() < 1
    assert total[last + 1 :].max() < 1


def test_outer_hats_fall_linearly_to_zero_on_the_boundary():
    phi = dense(schwarz.interface_hats(30, 4))
    x = np.arange(1, 31) / 31
    first, *_, last = interface_peaks(30, 4)
    left, right = phi[: first + 1, 0], phi[last:, -1]
    assert_allclose(left, x[: first + 1] / x[first], rtol=1e-13)
    assert_allclose(right, (1 - x[last:]) / (1 - x[last]), rtol=1e-13)


def test_a_tensor_product_of_hats_is_the_product_of_its_axes(rng):
    phi = dense(schwarz.uniform_hats((5, 7), (2, 3)))
    x, y = (dense(schwarz.uniform_hats(*axis)) for axis in ((5, 2), (7, 3)))
    coefficients = rng.normal(size=(2, 3))
    actual = (phi @ coefficients.ravel()).reshape(5, 7)
    assert_allclose(actual, x @ coefficients @ y.T, rtol=1e-12)


# errors

LOCAL = np.ones((3, 6, 1))
test_bad_input_is_named_in_the_error = refused.calls(
    (lambda: schwarz.cover([], num_points=3), "at least one subdomain"),
    (
        lambda: schwarz.cover([[0, 1], np.zeros(0, int)], num_points=2),
        r"Subdomain 1 has shape \(0,\).*Merge empty",
    ),
    (
        lambda: schwarz.cover([[[0, 1]]], num_points=2),
        r"Subdomain 0 has shape \(1, 2\)",
    ),
    (
        lambda: schwarz.cover([[0], [1.0]], num_points=2),
        "Subdomain 1 has dtype float64",
    ),
    (
        lambda: schwarz.cover([[True, False]], num_points=2),
        "Subdomain 0 has dtype bool",
    ),
    (
        lambda: schwarz.cover([[0, 1, 2]], num_points=2),
        "Subdomain 0 contains point 2, but points are numbered from 0 to 1",
    ),
    (
        lambda: schwarz.cover([[0, 1], [-1]], num_points=2),
        "Subdomain 1 contains point -1, ",
    ),
    (
        lambda: schwarz.cover([[0, 1], [1, 1]], num_points=2),
        "Subdomain 1 contains a point twice",
    ),
    (
        lambda: schwarz.cover([[0, 3]], num_points=5),
        r"3 of 5 points are not in any subdomain, the first ones are \[1, 2, 4\]",
    ),
    (
        lambda: schwarz.box_cover(11, 3, overlap=4),
        r"overlap=4.*neighbouring interval of 3 points \(11 points in 3 intervals\)",
    ),
    (
        lambda: schwarz.box_cover((20, 4), (2, 2), overlap=3),
        r"overlap=3.*of 2 points \(4 points in 2 intervals\)",
    ),
    (
        lambda: schwarz.box_cover(8, 2, overlap=-1),
        "overlap=-1 must be non-negative",
    ),
    (
        lambda: schwarz.box_cover((8, 8), 2, overlap=1),
        r"grid_shape=\(8, 8\) and num_boxes=\(2,\) must have the same number of axes",
    ),
    (
        lambda: schwarz.box_cover((8, 2), (2, 3), overlap=0),
        r"num_boxes=\(2, 3\) must be between 1 and.*grid_shape=\(8, 2\)",
    ),
    (
        lambda: schwarz.box_cover(8, 0, overlap=0),
        r"num_boxes=\(0,\) must be between 1",
    ),
    (
        lambda: schwarz.interface_hats(8, (2, 2)),
        r"grid_shape=\(8,\) and num_boxes=\(2, 2\)",
    ),
    (
        lambda: schwarz.interface_hats((8, 8), (2, 1)),
        r"num_boxes=.*must be at least 2 per axis",
    ),
    (
        lambda: schwarz.interface_hats(4, 5),
        r"num_boxes=\(5,\) must be between 1 and",
    ),
    (
        lambda: schwarz.uniform_hats(8, (2, 2)),
        r"grid_shape=\(8,\) and num_\w+=\(2, 2\)",
    ),
    (
        lambda: schwarz.uniform_hats(4, 5),
        r"=\(5,\) must be between 1 and.*grid_shape=\(4,\)",
    ),
    (
        lambda: schwarz.restrict(np.ones((10, 1)), make("uneven")[0]),
        r"values \(10, 1\) must have one row for each of the 11 points",
    ),
    (
        lambda: schwarz.restrict(np.ones(11), make("uneven")[0]),
        r"values has shape \(11,\), expected 2 axes",
    ),
    (
        lambda: schwarz.restrict(np.ones((11, 1), int), make("uneven")[0]),
        "values has dtype int64",
    ),
    (
        lambda: schwarz.prolong(LOCAL[1:], make("uneven")[0]),
        r"local \(2, 6, 1\) does not fit the cover's subdomains \(3, 6\)",
    ),
    (
        lambda: schwarz.prolong(LOCAL[:, 1:], make("uneven")[0]),
        r"local \(3, 5, 1\) does not fit the cover's subdomains \(3, 6\)",
    ),
    (
        lambda: schwarz.prolong(LOCAL[..., 0], make("uneven")[0]),
        r"local has shape \(3, 6\), expected 3 axes",
    ),
    (
        lambda: schwarz.prolong(LOCAL.astype(int), make("uneven")[0]),
        "local has dtype int64",
    ),
)
