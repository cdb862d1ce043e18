"""Likeness of cases: moments, distances, the theorem on p-values, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from opjax.uncertainty import (
    area_under_curve,
    conformal_p_value,
    field_moments,
    likeness,
    shrunk_distances,
)
from tests.refused import value_error
from tests.selection import by_day

DTYPES = by_day(["float32", "float64"], ["float64"])


def oracle_moments(fields, weights):
    kept = weights > 0
    covariance = np.cov(fields[kept].T, aweights=weights[kept], ddof=0)
    mean = np.average(fields[kept], axis=0, weights=weights[kept])
    covariance = np.atleast_2d(covariance)
    pairs = [covariance[i, j] for i in range(len(mean)) for j in range(i, len(mean))]
    return np.concatenate([mean, pairs])


def oracle_distances(features, known, ridge):
    """By an explicit inverse, one case after the other."""
    mean, scale = known.mean(axis=0), np.sqrt(known.var(axis=0) + 1e-4)
    z = (known - mean) / scale
    inverse = np.linalg.inv(z.T @ z / len(z) + ridge * np.eye(z.shape[1]))
    rows = (features - mean) / scale
    return np.sqrt([row @ inverse @ row for row in rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_moments_are_those_of_numpy_whatever_is_masked(dtype, rng):
    fields = rng.normal(size=(9, 3)).astype(dtype)
    weights = (rng.random(9) * (np.arange(9) % 3 > 0)).astype(dtype)
    expected = oracle_moments(fields, weights)
    fields[weights == 0] = np.nan
    found = field_moments(fields, quadrature_weights=weights)
    assert found.dtype == dtype
    assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    bare = field_moments(fields[weights > 0])
    assert_allclose(
        bare, oracle_moments(fields[weights > 0], np.ones(6)), rtol=1e-5, atol=1e-6
    )


def test_moments_have_the_gradients_of_numpy(rng):
    fields, weights = rng.normal(size=(6, 2)), rng.random(6)

    def total(fields):
        return jnp.sum(jnp.sin(field_moments(fields, quadrature_weights=weights)))

    found = jax.jit(jax.grad(total))(fields)
    step = 1e-6
    for place in np.ndindex(fields.shape):
        moved = [fields.copy(), fields.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        up, down = (np.sin(oracle_moments(m, weights)).sum() for m in moved)
        assert_allclose(found[place], (up - down) / (2 * step), atol=1e-6)


def test_moments_of_a_finer_mesh_converge():
    def moments(n):
        x = (np.arange(n) + 0.5) / n
        return field_moments(np.stack([x, np.sin(x)], axis=1))

    errors = [np.abs(moments(n) - moments(4096)).max() for n in (32, 64, 128)]
    assert errors[0] < 1e-3
    assert_allclose(np.divide(errors[:2], errors[1:]), 4, rtol=0.05)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(12, 3), (5, 8)])
def test_distances_are_those_of_an_explicit_inverse(dtype, shape, rng):
    features = rng.normal(size=shape).astype(dtype)
    features[:, 0] = 1.0  # all cases agree
    found = shrunk_distances(features, ridge=0.2)
    assert found.dtype == dtype
    expected = oracle_distances(features, features, 0.2)
    assert_allclose(found, expected, rtol=1e-4)


def test_distances_have_finite_gradients(rng):
    def distances(features):
        return shrunk_distances(features, ridge=0.3)

    check_grads(distances, (rng.normal(size=(6, 3)),), order=1, modes=["rev"])
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(distances(x))))(np.ones((4, 2)))
    assert_array_equal(gradient, 0)


def test_exchanging_cases_exchanges_distances(rng):
    features = rng.normal(size=(7, 4))
    order = rng.permutation(7)
    found = shrunk_distances(features)
    assert_allclose(shrunk_distances(features[order]), found[order], rtol=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_likeness_is_that_of_the_definition(dtype, rng):
    reference = rng.normal(size=(20, 3)).astype(dtype)
    new = (2 * rng.normal(size=3)).astype(dtype)
    found = likeness(new, reference, ridge=0.2)
    both = np.concatenate([reference, new[None]])
    together = oracle_distances(both, both, 0.2)
    p_value = np.mean(together >= together[-1])
    apart = oracle_distances(both, reference, 0.2)
    assert_allclose(found.p_value, p_value, rtol=1e-6)
    expected = apart[-1] / np.median(apart[:-1])
    assert_allclose(found.distance, expected, rtol=1e-4)


def test_false_alarms_are_as_rare_as_promised(rng):
    """Over 4000 draws of 21 exchangeable cases, of more features than cases."""
    cases = rng.standard_t(3, size=(4000, 21, 24))
    found = jax.jit(jax.vmap(likeness))(cases[:, 0], cases[:, 1:])
    for rate in (1 / 21, 0.1, 0.3):
        share = np.mean(np.asarray(found.p_value) <= rate + 1e-9)
        promised = np.floor(21 * rate + 1e-9) / 21
        assert_allclose(
            share, promised, atol=4 * np.sqrt(promised * (1 - promised) / 4000)
        )


def test_a_case_far_away_is_as_unlike_as_can_be(rng):
    reference = rng.normal(size=(30, 5))
    found = likeness(1e3 * np.ones(5), reference)
    assert found.p_value == 1 / 31
    assert found.distance > 100
    same = likeness(reference.mean(axis=0), reference)
    assert same.p_value == 1
    assert same.distance < 1e-6


def test_p_values_count_ties_and_the_case_itself():
    scores = np.asarray([1.0, 2.0, 2.0, 3.0])
    values = [conformal_p_value(scores, s) for s in (0.5, 2.0, 2.5, 9.0)]
    assert_allclose(values, [1, 4 / 5, 2 / 5, 1 / 5])
    assert np.isnan(conformal_p_value(scores, np.nan))
    assert np.isnan(conformal_p_value(np.append(scores, np.nan), 1.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_area_is_that_of_mann_and_whitney(dtype, rng):
    alike = rng.integers(0, 6, 30).astype(dtype)  # with ties
    unlike = rng.integers(2, 9, 20).astype(dtype)
    expected = scipy.stats.mannwhitneyu(unlike, alike).statistic / (30 * 20)
    found = jax.jit(area_under_curve)(alike, unlike)
    assert found.dtype == dtype
    assert_allclose(found, expected, rtol=1e-6)
    assert area_under_curve(np.zeros(2), np.full(3, np.inf)) == 1
    assert area_under_curve(np.full(2, np.inf), np.full(3, np.inf)) == 0.5
    assert np.isnan(area_under_curve(np.asarray([np.nan]), np.ones(2)))


def test_not_a_number_is_passed_on(rng):
    reference = rng.normal(size=(6, 2))
    found = likeness(np.asarray([np.nan, 1.0]), reference)
    assert np.isnan(found.p_value)
    assert np.isnan(found.distance)


def test_bad_input_is_refused(rng):
    features = rng.normal(size=(6, 2))
    with pytest.raises(TypeError, match="fields"):
        field_moments(np.ones((3, 2), int))
    with value_error("quadrature_weights has shape"):
        field_moments(features, quadrature_weights=np.ones(3))
    with value_error("ridge"):
        shrunk_distances(features, ridge=0.0)
    with value_error(r"features has shape \(3,\).*\(6, 2\)"):
        likeness(np.ones(3), features)
    with pytest.raises(TypeError, match="features"):
        likeness(np.ones(2, int), features)
    with value_error("scores"):
        conformal_p_value(features, 1.0)
