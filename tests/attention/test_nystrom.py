"""Softmax attention through landmarks."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from opjax.attention.nystrom import row_and_column
from tests import refused
from tests.attention import oracles
from tests.nn.parameters import all_finite
from tests.oracles import check
from tests.selection import by_day

LANDMARKS = 4


def segments(array, weights, num_landmarks):
    """Weighted means of successive points, and their masses."""
    n = len(array)
    members = [
        [i for i in range(n) if i * num_landmarks // n == s]
        for s in range(num_landmarks)
    ]
    masses = np.array([sum(weights[i] for i in group) for group in members])
    sums = [sum(weights[i] * array[i] for i in group) for group in members]
    return np.array(sums) / masses[:, None], masses


def nystrom(query, key, value, query_weights, key_weights, *, num_iterations):
    """The formula with each matrix formed by attending to unit vectors."""

    def matrix(q, k, w):
        return oracles.softmax_attention(q, k, np.eye(len(k)), w)

    ql, masses = segments(query, query_weights, LANDMARKS)
    assert np.all(masses > 0)
    kl, masses = segments(key, key_weights, LANDMARKS)
    a = matrix(ql, kl, masses)
    z = a.T / (np.max(np.sum(a, axis=0)) * np.max(np.sum(a, axis=1)))
    eye = np.eye(LANDMARKS)
    for _ in range(num_iterations):
        x = a @ z
        z = z @ (13 * eye - x @ (15 * eye - x @ (7 * eye - x))) / 4
    return matrix(query, kl, masses) @ z @ matrix(ql, key, key_weights) @ value


def attend(q, k, v, query_weights=None, key_weights=None, **options):
    options = {"num_landmarks": LANDMARKS, **options}
    weights = {"query_weights": query_weights, "key_weights": key_weights}
    return opjax.nystrom_attention(q, k, v, **weights, **options)


# With weights by day, six of them.
@pytest.mark.parametrize("num_iterations", by_day([0, 6], [0]))
def test_values_and_gradients_match_the_oracle(points, num_iterations):
    def oracle(q, k, v):
        ones = np.ones(len(q)), np.ones(len(k))
        return nystrom(q, k, v, *ones, num_iterations=num_iterations)

    function = functools.partial(attend, num_iterations=num_iterations)
    oracles.check_case(function, oracle, points)


def test_weighted_values_and_gradients_match_the_oracle(points, key_weights, rng):
    args = (*points, rng.uniform(0.5, 1.5, 7), key_weights)
    oracle = functools.partial(nystrom, num_iterations=6)
    oracles.check_case(attend, oracle, args)


def test_a_landmark_at_every_point_gives_softmax_attention(points, key_weights):
    q, k, v = points[0], points[1][:7], points[2][:7]
    w = key_weights[:7]
    actual = jax.jit(functools.partial(attend, num_landmarks=7, num_iterations=40))(
        q, k, v, None, w
    )
    expected = opjax.softmax_attention(q, k, v, key_weights=w)
    assert_allclose(actual, expected, rtol=1e-6)


def test_iterations_tend_to_the_pseudo_inverse(points):
    q, k, v = points

    def matrix(q, k, w):
        return oracles.softmax_attention(q, k, np.eye(len(k)), w)

    ql, _ = segments(q, np.ones(7), LANDMARKS)
    kl, masses = segments(k, np.ones(11), LANDMARKS)
    inverse = np.linalg.pinv(matrix(ql, kl, masses))
    expected = matrix(q, kl, masses) @ inverse @ matrix(ql, k, np.ones(11)) @ v
    errors = [
        np.linalg.norm(attend(*points, num_iterations=i) - expected) for i in (2, 6, 30)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-8 * np.linalg.norm(expected)


def test_the_start_does_not_matter_in_the_limit(points):
    limits = [
        attend(*points, num_iterations=40, start_norm=norm) for norm in (None, 8.0)
    ]
    assert_allclose(*limits, rtol=1e-8)


def test_permuting_points_within_segments_changes_nothing(points):
    q, k, v = points
    order = [2, 0, 1, 5, 4, 3, 8, 6, 7, 10, 9]  # segments of 3, 3, 3 and 2 points
    actual = attend(q, k[order], v[order])
    assert_allclose(actual, attend(q, k, v), rtol=1e-9)


def test_zero_weights_remove_points(points, key_weights):
    attention = functools.partial(attend, num_iterations=1)
    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


def test_zero_query_weights_remove_queries(points):
    q, k, v = points
    padded = np.concatenate([np.full((2, 4), np.nan), q, np.full((1, 4), np.nan)])
    weights = np.concatenate([np.zeros(2), np.ones(7), np.zeros(1)])
    actual = attend(padded, k, v, query_weights=weights)
    assert np.all(np.isfinite(actual))
    assert_allclose(actual[2:-1], attend(q, k, v), rtol=1e-9)


@pytest.mark.nightly
def test_fewer_real_points_than_landmarks_leave_a_finite_exact_attention(points):
    q, k, v = points
    weights = np.array([1.0, 0, 0, 2.0, 0, 0, 0, 0, 0, 0, 0])
    queries = np.array([1.0, 1.0, 0, 0, 0, 0, 0])

    def output(q, k, v):
        return attend(q, k, v, queries, weights, num_iterations=40)

    actual = jax.jit(output)(q, k, v)
    expected = opjax.softmax_attention(q[:2], k, v, key_weights=weights)
    assert_allclose(actual[:2], expected, rtol=1e-8)
    gradient = jax.grad(lambda *args: jnp.sum(output(*args)), argnums=(0, 1, 2))
    gradients = jax.jit(gradient)(q, k, v)
    assert all_finite(gradients)


def test_attention_to_no_point_is_zero(points):
    attention = functools.partial(attend, num_iterations=1)
    oracles.check_all_masked_is_zero(attention, *points)
    q, k, v = points
    assert np.all(np.isfinite(attend(q, k, v, query_weights=np.zeros(7))))


@pytest.mark.nightly
def test_refinement_converges_at_the_order_of_the_quadrature():
    def output(n):
        x = (np.arange(n) + 0.5) / n
        q = np.stack([np.sin(2 * x), np.exp(-x)], axis=1)
        k = np.stack([np.cos(3 * x), x**2], axis=1)
        moved = jax.jit(attend)(q, k, np.exp(x)[:, None], None, np.full(n, 1 / n))
        return np.mean(moved)

    errors = np.abs(np.diff([output(n) for n in (32, 64, 128)]))
    assert_allclose(np.log2(errors[0] / errors[1]), 2, atol=0.1)


@pytest.mark.nightly
def test_half_precision_keeps_its_dtype(points):
    output = attend(*[jnp.asarray(a, jnp.bfloat16) for a in points])
    assert output.dtype == jnp.bfloat16
    error = np.asarray(output, float) - attend(*points)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(attend(*points))


def test_bad_input_is_named_in_the_error(points):
    q, k, v = points
    refused.each(
        (lambda: attend(q, k, v, num_landmarks=8), r"num_landmarks=8.*query \(7, 4\)"),
        (
            lambda: attend(q, k[:4], v[:4], num_landmarks=5),
            r"num_landmarks=5.*key \(4, 4\)",
        ),
        (
            lambda: attend(q, k, v, num_landmarks=0),
            "num_landmarks=0 must be at least 1",
        ),
        (lambda: attend(q, k, v, num_iterations=-1), "num_iterations=-1"),
        (lambda: attend(q, k, v, start_norm=0.0), "start_norm=0.0 must be positive"),
        (
            lambda: attend(q, k, v, query_weights=np.ones(11)),
            r"query_weights \(11,\), query \(7, 4\)",
        ),
        (lambda: attend(q, k, v[1:]), r"points.*key \(11, 4\), value \(10, 3\)"),
    )


@pytest.mark.nightly
def test_zeros_that_fill_segments_up_take_part(points, key_weights):
    """As if the caller had put them before the first point."""
    q, k, v = points[0], points[1], points[2]

    def filled(q, k, v):
        return attend(q, k, v, zero_fill=True)

    def by_hand(q, k, v):
        q, k, v = (np.pad(a, ((-len(a) % LANDMARKS, 0), (0, 0))) for a in (q, k, v))
        ones = np.ones(len(q)), np.ones(len(k))
        return nystrom(q, k, v, *ones, num_iterations=6)[1:]

    check(filled, by_hand, (q, k, v))
    few = attend(q[:2], k[:3], v[:3], zero_fill=True)
    assert few.shape == (2, 3)
    attention = functools.partial(attend, zero_fill=True)
    oracles.check_zero_weights_remove_points(attention, q, k, v, key_weights)


@pytest.mark.nightly
def test_the_start_of_the_published_code_is_row_times_column(points):
    k, v = points[1], points[2]
    for zero_fill in (False, True):
        options = {"num_landmarks": LANDMARKS, "zero_fill": zero_fill}
        row, column = row_and_column(k, 2 * k, **options)
        actual = attend(k, 2 * k, v, start_norm=row * column, **options)
        assert_allclose(actual, attend(k, 2 * k, v, **options), rtol=1e-12)
