"""The greedy choice of cases: by hand, its order, its bound, bad input."""

import itertools

import jax
import numpy as np
import pytest
from numpy.testing import assert_allclose

from opjax.uncertainty import greedy_choice


def oracle(features, weights, known, count, ridge=0.1):
    """Returns rows and scores, by an explicit inverse and loops."""
    every = np.concatenate([features, known])
    mean, scale = every.mean(axis=0), np.sqrt(every.var(axis=0) + 1e-4)
    z = (every - mean) / scale
    inverse = np.linalg.inv(z.T @ z / len(z) + ridge * np.eye(z.shape[1]))

    def distance(a, b):
        off = (a - b) / scale
        return np.sqrt(off @ inverse @ off)

    anchors = [*known] or [mean]
    order, scores = [], []
    for _ in range(count):
        each = [
            weights[i] * min(distance(features[i], row) for row in anchors)
            if i not in order
            else -1
            for i in range(len(features))
        ]
        order.append(int(np.argmax(each)))
        scores.append(max(each))
        anchors.append(features[order[-1]])
    return order, scores


@pytest.mark.parametrize("num_known", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_choice_is_that_of_loops(dtype, num_known, rng):
    features = rng.normal(size=(9, 3)).astype(dtype)
    weights = rng.uniform(size=9).astype(dtype)
    known = rng.normal(size=(num_known, 3)).astype(dtype)
    found = greedy_choice(features, 5, weights=weights, known=known)
    order, scores = oracle(features, weights, known, 5)
    assert found.order.tolist() == order
    assert_allclose(found.scores, scores, rtol=1e-4)
    assert_allclose(found.scores, weights[order] * found.distances, 1e-5)
    assert found.scores.dtype == dtype


def test_a_choice_by_hand():
    # Known is 0. Scores are 1 * 1, 2 * 2 and 1.5 * 3 = 4.5.
    features = np.array([[1.0], [2.0], [3.0]])
    found = greedy_choice(
        features, 3, weights=np.array([1.0, 2.0, 1.5]), known=np.zeros((1, 1))
    )
    # At 3 they are 1 * 1 and 2 * 1 next, both cases being 1 away, and then 1 * 1.
    assert found.order.tolist() == [2, 1, 0]
    over = np.asarray(found.scores) / float(found.scores[0])
    assert_allclose(over, [1, 2 / 4.5, 1 / 4.5])


def test_the_order_of_the_cases_changes_nothing(rng):
    features, weights = rng.normal(size=(12, 2)), rng.uniform(size=12)
    mixed = rng.permutation(12)
    first = greedy_choice(features, 6, weights=weights)
    second = greedy_choice(features[mixed], 6, weights=weights[mixed])
    assert mixed[np.asarray(second.order)].tolist() == first.order.tolist()


def test_duplicates_come_last():
    features = np.array([[0.0], [5.0], [5.0], [9.0]])
    found = greedy_choice(features, 4, known=np.array([[0.0], [1.0]]))
    assert found.order[0] == 3
    assert set(found.order[2:].tolist()) == {0, 2}
    assert_allclose(found.scores[2:], 0, atol=1e-12)


def test_with_equal_weights_no_case_is_farther_than_twice_the_best_cover(rng):
    features = rng.normal(size=(8, 2))
    known = features[:1]
    found = greedy_choice(features, 3, known=known)
    every = np.concatenate([features, known])
    z = (every - every.mean(axis=0)) / np.sqrt(every.var(axis=0) + 1e-4)
    inverse = np.linalg.inv(z.T @ z / len(z) + 0.1 * np.eye(2))
    off = z[:8, None] - z[None, :8]
    pairs = np.sqrt(np.einsum("abi,ij,abj->ab", off, inverse, off))

    def radius(places):
        return pairs[:, [0, *places]].min(axis=1).max()

    best = min(radius(places) for places in itertools.combinations(range(8), 3))
    assert radius(found.order.tolist()) <= 2 * best + 1e-9


def test_it_goes_through_jit(rng):
    features = rng.normal(size=(5, 2))
    found = jax.jit(lambda x: greedy_choice(x, 2))(features)
    expected = greedy_choice(features, 2)
    assert found.order.tolist() == expected.order.tolist()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"count": 4}, r"count=4 must be from 1 to 3, .* \(3, 2\)"),
        ({"count": 0}, "count=0 must be from 1 to 3"),
        ({"weights": np.ones(2)}, r"weights has shape \(2,\), but features \(3, 2\)"),
        ({"known": np.ones((1, 3))}, r"known has shape \(1, 3\), but features"),
        ({"ridge": 0.0}, "ridge"),
    ],
)
def test_bad_input_is_refused_with_both_sides(changes, text):
    given = {"features": np.eye(3, 2), "count": 2} | changes
    with pytest.raises(ValueError, match=text):
        greedy_choice(**given)
