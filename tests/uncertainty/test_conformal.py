"""Conformal bands: the theorem on synthetic cases, quantiles, scores, bad input."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from opjax.uncertainty import (
    band,
    conformal_quantile,
    field_inside,
    field_score,
    least_cases,
    pointwise_quantile,
    pointwise_scores,
)
from tests.refused import value_error
from tests.selection import by_day

DTYPES = by_day(["float32", "float64"], ["float64"])


def cases(rng, *shape):
    """Errors of cases and widths that know a part of their size."""
    scale = rng.lognormal(size=(*shape[:-1], 1))
    width = scale * rng.uniform(0.5, 2, size=shape)
    return rng.standard_t(3, size=shape) * scale, width


def oracle_field(error, width, weights):
    kept = weights > 0
    return max(abs(e) / h for e, h in zip(error[kept], width[kept], strict=True))


def oracle_pointwise(scores, weights, coverage):
    """The definition, factor by factor."""
    b = len(scores)
    for factor in np.sort(scores[weights > 0]):
        inside = [
            np.sum(w * (s <= factor)) / np.sum(w)
            for s, w in zip(scores, weights, strict=True)
        ]
        if np.mean(inside) >= (b + 1) * coverage / b - 1e-12:
            return factor
    return None


@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_are_those_of_the_definition(rng, dtype):
    error, width = (a.astype(dtype) for a in cases(rng, 4, 9))
    weights = (rng.random((4, 9)) * (rng.random((4, 9)) > 0.3)).astype(dtype)
    expected = [oracle_field(*one) for one in zip(error, width, weights, strict=True)]
    error[weights == 0] = width[weights == 0] = np.nan
    found = jax.vmap(lambda e, h, w: field_score(e, h, quadrature_weights=w))(
        error, width, weights
    )
    assert found.dtype == dtype
    assert_allclose(found, expected, rtol=1e-6)
    points = pointwise_scores(error[0], width[0], quadrature_weights=weights[0])
    kept = weights[0] > 0
    assert_allclose(points[kept], np.abs(error / width)[0][kept], rtol=1e-6)
    assert_array_equal(points[~kept], 0)


def test_the_gradient_of_a_score_is_that_of_its_worst_point(rng):
    error, width = (a[0] for a in cases(rng, 1, 6))
    weights = np.array([1.0, 0, 1, 1, 0, 2])
    error[1] = np.nan

    def score(e, h):
        return field_score(e, h, quadrature_weights=weights)

    by_error, by_width = jax.grad(score, argnums=(0, 1))(error, width)
    ratio = np.where(weights > 0, np.abs(np.nan_to_num(error)) / width, 0)
    worst = ratio.argmax()
    expected = np.zeros((2, 6))
    expected[0, worst] = np.sign(error[worst]) / width[worst]
    expected[1, worst] = -ratio[worst] / width[worst]
    assert_allclose([by_error, by_width], expected, rtol=1e-12)


def test_the_quantile_is_an_order_statistic(rng):
    scores = rng.random(19)
    for coverage, rank in ((0.5, 10), (0.9, 18), (0.95, 19)):
        found = conformal_quantile(scores, coverage=coverage)
        assert found == np.sort(scores)[rank - 1]
    gradient = jax.grad(lambda s: conformal_quantile(s, coverage=0.9))
    expected = np.zeros(19)
    expected[np.argsort(scores)[17]] = 1
    assert_array_equal(gradient(scores), expected)
    single = conformal_quantile(scores.astype("float32"), coverage=0.9)
    assert single.dtype == "float32"
    batch = jax.vmap(lambda s: conformal_quantile(s, coverage=0.9))
    assert_array_equal(
        batch(np.stack([scores, scores[::-1]]))[0],
        batch(np.stack([scores, scores[::-1]]))[1],
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_pointwise_quantile_is_that_of_the_definition(rng, dtype):
    scores = rng.random((12, 7)).astype(dtype)
    weights = (rng.random((12, 7)) * (rng.random((12, 7)) > 0.2)).astype(dtype)
    weights[:, 0] = 0.5
    for coverage in (0.3, 0.8, 0.9):
        found = pointwise_quantile(
            scores, coverage=coverage, quadrature_weights=weights
        )
        assert found == oracle_pointwise(scores, weights, coverage)
    spoilt = np.where(weights > 0, scores, np.nan).astype(dtype)
    again = pointwise_quantile(spoilt, coverage=0.9, quadrature_weights=weights)
    assert again == found


@pytest.mark.parametrize(("n", "coverage"), [(20, 0.9), (37, 0.8), (9, 0.9)])
def test_whole_fields_lie_inside_as_often_as_promised(n, coverage):
    """In the mean over draws, within the error of their number."""
    rng, draws = np.random.default_rng(1), 4000
    error, width = cases(rng, draws, n + 1, 5)
    scores = jax.vmap(jax.vmap(field_score))(error, width)
    factors = jax.vmap(lambda s: conformal_quantile(s, coverage=coverage))(
        scores[:, :n]
    )
    inside = int(np.sum(scores[:, n] <= factors))
    exact = math.ceil((n + 1) * coverage - 1e-9) / (n + 1)
    assert exact >= coverage - 1e-12
    assert scipy.stats.binomtest(inside, draws, exact).pvalue > 1e-3


def test_points_lie_inside_as_often_as_promised():
    rng, draws, n = np.random.default_rng(2), 4000, 15
    error, width = cases(rng, draws, n + 1, 6)
    scores = np.abs(error / width)
    factors = jax.vmap(lambda s: pointwise_quantile(s, coverage=0.8))(scores[:, :n])
    share = np.mean(scores[:, n] <= np.asarray(factors)[:, None], axis=1)
    deviation = share.std() / math.sqrt(draws)
    assert 0.8 - 3 * deviation < share.mean() < 0.8 + 1 / (n + 1) + 3 * deviation


def test_the_order_of_cases_does_not_matter(rng):
    scores = rng.random((14, 5))
    other = scores[rng.permutation(14)]
    for find, one, two in (
        (conformal_quantile, scores[:, 0], other[:, 0]),
        (pointwise_quantile, scores, other),
    ):
        assert find(one, coverage=0.9) == find(two, coverage=0.9)


def test_more_coverage_never_makes_a_narrower_band(rng):
    scores = rng.random((30, 4))
    levels = (0.1, 0.5, 0.8, 0.9, 0.95)
    for find, given in (
        (conformal_quantile, scores[:, 0]),
        (pointwise_quantile, scores),
    ):
        found = [float(find(given, coverage=float(c))) for c in levels]
        assert np.all(np.diff(found) >= 0)


def test_the_unit_of_fields_and_widths_does_not_matter(rng):
    error, width = (a[0] for a in cases(rng, 1, 8))
    one = field_score(error, width)
    other = field_score(1e3 * error, 1e3 * width)
    assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_band_of_the_score_just_encloses_the_target(rng, dtype):
    error, width = (a[0].astype(dtype) for a in cases(rng, 1, 8))
    prediction = rng.normal(size=8).astype(dtype)
    target = prediction - error
    score = field_score(error, width)
    for factor, inside in ((score * 1.001, 1), (score * 0.999, 0)):
        ends = jax.jit(lambda f: band(prediction, width, factor=f))(factor)
        assert ends.lower.dtype == dtype
        assert field_inside(target, *ends) == inside
    check_grads(
        lambda p, h, f: band(p, h, factor=f),
        (prediction.astype(float), width.astype(float), 2.0),
        order=1,
    )


def test_the_least_number_of_cases_is_exact():
    known = {0.5: 1, 0.8: 4, 0.9: 9, 0.95: 19, 0.99: 99, 0.999: 999}
    for coverage, least in known.items():
        assert least_cases(coverage) == least
        scores = np.arange(float(least))
        found = conformal_quantile(scores, coverage=coverage)
        assert found == scores[-1]
        points = pointwise_quantile(scores[:, None], coverage=coverage)
        assert points == scores[-1]


def test_too_few_cases_are_refused_with_the_least_number():
    with value_error("8 calibration .* at least 9 .* most 0.888"):
        conformal_quantile(np.ones(8), coverage=0.9)
    with value_error("1 calibration cases .* at least 9 "):
        pointwise_quantile(np.ones((1, 3)), coverage=0.9)


def test_other_bad_input_is_named(rng):
    for coverage in (0.0, 1.0, -0.1, 90.0, math.nan):
        with value_error("coverage=.* inside"):
            conformal_quantile(np.ones(20), coverage=coverage)
    with value_error(r"error .*\(5,\), but width .*\(4,\)"):
        field_score(np.ones(5), np.ones(4))
    with value_error("one case"):
        field_score(np.ones((2, 3, 1)), np.ones((2, 3, 1)))
    with value_error("one weight per point"):
        field_score(np.ones(5), np.ones(5), quadrature_weights=np.ones(4))
    with value_error("one weight per score"):
        pointwise_quantile(
            np.ones((9, 2)), coverage=0.9, quadrature_weights=np.ones((9, 3))
        )
    with value_error("factor=-1.0"):
        band(np.ones(3), np.ones(3), factor=-1.0)
    with pytest.raises(TypeError, match="error has dtype int"):
        field_score(np.ones(3, int), np.ones(3))
    scores = np.ones(20)
    scores[3] = np.nan
    assert np.isnan(conformal_quantile(scores, coverage=0.9))
    found = pointwise_quantile(scores[:, None], coverage=0.9)
    assert jnp.isnan(found)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("shape", "coverage", "dtype"),
    by_day(
        [
            (*case, dtype)
            for case in (((999, 100), 0.999), ((19, 12), 0.9), ((40, 2000), 0.9))
            for dtype in ("float32", "bfloat16", "float16", "float64")
        ],
        day=[((999, 100), 0.999, "float32"), ((19, 12), 0.9, "bfloat16")],
    ),
)
def test_the_factor_of_points_is_an_exact_rank_in_every_precision(
    shape, coverage, dtype, weighted
):
    """With equal weights, the theorem is a rank of all scores; none may be missed."""
    b, n = shape
    rng = np.random.default_rng(0)
    scores = np.asarray(jnp.asarray(rng.random(shape), dtype))
    rank = math.ceil((b + 1) * Fraction(str(coverage)) * n)
    weights = np.full(shape, 0.37, dtype) if weighted else None
    with jax.enable_x64(dtype == "float64"):
        found = pointwise_quantile(
            scores, coverage=coverage, quadrature_weights=weights
        )
    assert found.dtype == dtype
    expected = np.sort(scores.astype(float), axis=None)[rank - 1]
    assert np.asarray(found, float) == expected


@pytest.mark.nightly
def test_a_factor_of_a_hundred_million_scores_keeps_its_promise():
    b, n = 100, 1_000_000
    scores = np.random.default_rng(0).random((b, n), np.float32)
    found = pointwise_quantile(scores, coverage=0.9)
    assert np.mean(scores <= np.asarray(found)) >= 0.909
    assert np.mean(scores < np.asarray(found)) < 0.909


@pytest.mark.nightly
def test_weights_of_all_sizes_are_shares_of_their_case(rng):
    scores, weights = rng.random((2, 12, 700)).astype(np.float32)
    units = 10.0 ** np.linspace(-30, 30, 12)[:, None]
    found = [
        pointwise_quantile(
            scores, coverage=0.8, quadrature_weights=(w).astype(np.float32)
        )
        for w in (weights, weights * units)
    ]
    assert found[0] == oracle_pointwise(scores, weights.astype(float), 0.8)
    below = (scores <= np.asarray(found[1])) * weights.astype(float)
    below = below.sum(axis=1) / weights.sum(axis=1, dtype=float)
    assert np.mean(below) >= 13 * 0.8 / 12 - 1e-6
    weights[3] = 0
    assert np.isnan(
        pointwise_quantile(scores, coverage=0.8, quadrature_weights=weights)
    )
