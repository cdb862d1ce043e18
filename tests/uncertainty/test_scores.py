"""Scores of bands, and variances of ridge regression, against plain NumPy."""

import jax
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax.uncertainty import (
    calibration_curve,
    conformal_quantile,
    field_inside,
    gaussian_nll,
    mean_width,
    pointwise_coverage,
    ridge_variance,
    sparsification_curve,
)
from tests.refused import value_error
from tests.selection import by_day

DTYPES = by_day(["float32", "float64"], ["float64"])


def made(rng, dtype="float64", n=9):
    target = rng.normal(size=(n, 2)).astype(dtype)
    lower = (target - rng.uniform(-0.3, 1, size=(n, 2))).astype(dtype)
    upper = (lower + rng.uniform(0.3, 2, size=(n, 2))).astype(dtype)
    weights = rng.random(n).astype(dtype)
    weights[2] = 0
    return target, lower, upper, weights


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coverage_and_width_are_weighted_means(rng, dtype):
    target, lower, upper, weights = made(rng, dtype)
    inside = (lower <= target) & (target <= upper)
    each = np.broadcast_to(weights[:, None], target.shape)
    target[2] = lower[2] = upper[2] = np.nan
    ends = {"lower": lower, "upper": upper, "quadrature_weights": weights}
    share = jax.jit(pointwise_coverage)(target, **ends)
    assert share.dtype == dtype
    assert_allclose(share, np.average(inside, weights=each), rtol=1e-6)
    width = np.nan_to_num(upper - lower)
    assert_allclose(mean_width(**ends), np.average(width, weights=each), rtol=1e-6)
    assert float(field_inside(target, **ends)) == inside[weights > 0].all()
    everywhere = jax.vmap(field_inside)(target, lower, lower + 9.0)
    whole = ((lower <= target) & (target <= lower + 9.0)).all(axis=1)
    assert_array_equal(everywhere, whole)


def test_gradients_of_width_and_likelihood(rng):
    target, lower, upper, weights = made(rng)
    deviation = upper - lower

    def of(function):
        return lambda *arrays: function(*arrays, quadrature_weights=weights)

    check_grads(of(mean_width), (lower, upper), order=1)
    check_grads(of(gaussian_nll), (target, deviation), order=1)
    spoilt = target.copy()
    spoilt[2] = np.nan
    gradient = jax.jit(jax.grad(of(gaussian_nll)))(spoilt, deviation)
    assert np.isfinite(gradient).all()


def test_the_likelihood_is_that_of_a_gaussian(rng):
    error, lower, upper, weights = made(rng)
    deviation = upper - lower
    logs = -scipy.stats.norm.logpdf(error, scale=deviation)
    each = np.broadcast_to(weights[:, None], error.shape)
    found = gaussian_nll(error, deviation, quadrature_weights=weights)
    assert_allclose(found, np.average(logs, weights=each), rtol=1e-12)
    best = [gaussian_nll(error, np.full_like(error, s)) for s in (0.5, 9.0)]
    at = np.full_like(error, np.sqrt(np.mean(error**2)))
    assert gaussian_nll(error, at) < min(best)


def test_the_sparsification_curve_drops_the_widest_first(rng):
    error, width = rng.normal(size=11), rng.random(11)
    order = np.argsort(-width)
    expected = [np.sqrt(np.mean(error[order[j:]] ** 2)) for j in range(11)]
    found = sparsification_curve(error, width)
    assert_allclose(found, expected, rtol=1e-12)
    check_grads(lambda e: sparsification_curve(e, width), (error,), order=1)


def test_the_error_as_width_sparsifies_best(rng):
    error, width = rng.normal(size=30), rng.random(30)
    best = sparsification_curve(error, np.abs(error))
    assert np.all(np.diff(best) <= 1e-12)
    assert np.all(best <= sparsification_curve(error, width) + 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_calibration_curve_is_the_coverage_of_every_level(rng, dtype):
    known, new = rng.random(19).astype(dtype), rng.random(50).astype(dtype)
    levels = np.arange(0.05, 1, 0.05).astype(dtype)
    found = calibration_curve(known, new, levels)
    for level, share in zip(levels, found, strict=True):
        factor = conformal_quantile(known, coverage=round(float(level), 2))
        assert share == pytest.approx(np.mean(new <= np.asarray(factor)))
    few = calibration_curve(known[:3], new, levels)
    assert few[-1] == 1  # an infinite band
    assert np.all(np.diff(found) >= 0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "n"), by_day([(3, 8), (6, 4)], [(6, 4)]))
def test_the_ridge_variance_is_that_of_the_dense_posterior(rng, dtype, k, n):
    query, key = (rng.normal(size=s).astype(dtype) for s in ((5, k), (k, n)))
    inverse = np.linalg.inv(key @ key.T + 0.3 * np.eye(k))
    expected = 0.04 * np.einsum("jk,kl,jl->j", query, inverse, query)
    found = ridge_variance(query, key, ridge=0.3, noise_variance=0.04)
    assert found.dtype == dtype
    assert_allclose(found, expected, rtol=1e-3 if dtype[5:] == "32" else 1e-9)
    assert np.all(found >= 0)
    batch = jax.vmap(lambda q: ridge_variance(q, key, ridge=0.3, noise_variance=0.04))(
        np.stack([query, query])
    )
    assert_allclose(batch[1], found, rtol=1e-5)
    if dtype == "float64":
        check_grads(
            lambda q, a, r, s: ridge_variance(q, a, ridge=r, noise_variance=s),
            (query, key, 0.3, 0.04),
            order=1,
        )


def test_the_ridge_variance_is_the_spread_of_ridge_fits():
    """Of data drawn from the model: errors of the fit have this variance."""
    rng, draws = np.random.default_rng(3), 4000
    query, key, ridge, noise = (
        rng.normal(size=(4, 3)),
        rng.normal(size=(3, 5)),
        0.5,
        0.2,
    )
    truth = rng.normal(size=(3, draws)) * np.sqrt(noise / ridge)
    seen = key.T @ truth + rng.normal(size=(5, draws)) * np.sqrt(noise)
    fitted = opjax.ridge_solve(key.T, seen, ridge=ridge)
    spread = np.mean(np.square(query @ (fitted - truth)), axis=1)
    found = ridge_variance(query, key, ridge=ridge, noise_variance=noise)
    assert_allclose(found, spread, rtol=0.1)


def test_more_observations_never_widen_the_ridge_variance(rng):
    query, key = rng.normal(size=(6, 4)), rng.normal(size=(4, 9))
    found = [
        np.asarray(ridge_variance(query, key[:, :n], ridge=0.1)) for n in (1, 4, 9)
    ]
    assert np.all(np.diff(found, axis=0) <= 1e-12)


def test_bad_input_is_named(rng):
    query, key = rng.normal(size=(5, 3)), rng.normal(size=(3, 8))
    with value_error(r"query \(5, 3\) .* key \(8, 3\)"):
        ridge_variance(query, key.T, ridge=0.1)
    with value_error("ridge=-1"):
        ridge_variance(query, key, ridge=-1)
    with pytest.raises(TypeError, match="query has dtype int"):
        ridge_variance(np.ones((5, 3), int), key, ridge=0.1)
    assert np.isnan(ridge_variance(query, 0 * key, ridge=0.0)).all()
    with value_error("lower has shape"):
        mean_width(np.ones(3), np.ones(4))
    with value_error("expected 1 axes"):
        sparsification_curve(np.ones((3, 1)), np.ones((3, 1)))
    with value_error("expected 1 axes"):
        calibration_curve(np.ones(3), np.ones((3, 1)), np.ones(2) / 2)
