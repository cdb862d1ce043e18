"""Split-conformal bands: scores of calibration cases, their quantile, the band."""

import math
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.quadrature import active
from opjax.uncertainty import _arguments, _sums


class Band(NamedTuple):
    """Lower and upper field around a prediction.

    Attributes:
      lower: lower bound at every point, in the shape of the prediction.
      upper: upper bound at every point, `(n, q)`.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import band
      >>> found = band(np.array([1.0, 2.0]), np.array([0.5, 1.0]), factor=2.0)
      >>> found.lower.tolist(), found.upper.tolist()
      ([0.0, 0.0], [2.0, 4.0])
    """

    lower: Array
    upper: Array


@jax.jit
def pointwise_scores(
    error: Float[ArrayLike, "n ..."],
    width: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, "n ..."]:
    r"""Errors in units of the width, at every point.

        s_i = |e_i| / h_i,

    and zero at points of zero weight, for any values there.

    Args:
      error: prediction minus target at the `n` points, shape `(n,)` or `(n, c)`.
      width: half-width of the band before calibration, with the same shape and unit; it
        must not depend on the target. A width of zero gives inf, or NaN if the error is
        zero too.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      The scores, in the shape of `error`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import pointwise_scores
      >>> pointwise_scores(np.array([1.0, -3.0]), np.array([0.5, 1.0])).tolist()
      [2.0, 3.0]
    """
    error, width = _arguments.fields(error=error, width=width)
    keep = active(_arguments.weights_of(error, quadrature_weights))
    # Selected before the division too, which keeps NaN out of the gradient.
    return jnp.abs(jnp.where(keep, error, 0)) / jnp.where(keep, width, 1)


@jax.jit
def field_score(
    error: Float[ArrayLike, "n ..."],
    width: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""The score of a whole field: its maximum error in units of the width.

        s = max_i |e_i| / h_i    over points of positive weight and all channels,

    which is the smallest factor `s` for which `prediction +- s h` contains the target
    everywhere.

    Args:
      error: prediction minus target, shape `(n,)` or `(n, c)`.
      width: half-width of the band before calibration, see `pointwise_scores`.
      quadrature_weights: weights of the points; zero masks a point. Positive weights
        have no other effect: the score is the maximum over all unmasked points.

    Returns:
      The score, a scalar.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import field_score
      >>> float(field_score(np.array([1.0, -3.0]), np.array([0.5, 1.0])))
      3.0

    References:
      Diquigiovanni, Fontana and Vantini, "Conformal prediction bands for multivariate
      functional data", J. Multivariate Analysis 189, 2022.
    """
    return jnp.max(
        pointwise_scores(error, width, quadrature_weights=quadrature_weights)
    )


def least_cases(coverage: float) -> int:
    r"""The minimum number of calibration cases for a coverage.

        n >= c / (1 - c) = 1 / alpha - 1,    alpha = 1 - c.

    With fewer cases, even the largest of all calibration scores is not a bound.

    Args:
      coverage: target coverage `c`, inside (0, 1).

    Returns:
      The number: 9 for 90 %, 19 for 95 %, 99 for 99 %.

    Raises:
      ValueError: if the coverage is not inside (0, 1).

    Examples:
      >>> from opjax.uncertainty import least_cases
      >>> [least_cases(coverage) for coverage in (0.9, 0.95, 0.99)]
      [9, 19, 99]
    """
    exact = _exact(coverage)
    return math.ceil(exact / (1 - exact))


def check_cases(num_cases: int, *, coverage: float) -> None:
    """Raises ValueError unless there are enough calibration cases.

    Args:
      num_cases: number of calibration cases.
      coverage: see `least_cases`.

    Raises:
      ValueError: if there are too few (the message states the minimum), or the coverage
        is not inside (0, 1).

    Examples:
      >>> from opjax.uncertainty import check_cases
      >>> check_cases(5, coverage=0.9)
      Traceback (most recent call last):
          ...
      ValueError: 5 calibration cases are too few for coverage=0.9: at least 9 ...
    """
    least = least_cases(coverage)
    if num_cases < least:
        possible = num_cases / (num_cases + 1)
        raise ValueError(
            f"{num_cases} calibration cases are too few for {coverage=:g}: at "
            f"least {least} are needed. Use more cases, or a coverage of at most "
            f"{math.floor(1000 * possible) / 1000:g}."
        )


@partial(jax.jit, static_argnames="coverage")
@split_by_compiler
def conformal_quantile(
    scores: Float[ArrayLike, " b"], *, coverage: float
) -> Float[Array, ""]:
    r"""The factor of the width in a band for whole fields.

        the k-th smallest of the n scores,    k = ceil((n + 1) c),

    which is a quantile at the level `k / n`, slightly above `c` because the number of
    cases is finite.

    Theorem. Let the scores of the `n` calibration cases and of a new case be
    exchangeable: any order of the `n + 1` of them is equally probable. Then the new
    score is at most this factor with probability at least `c`, and, if scores never
    tie, at most `c + 1 / (n + 1)`. There are no other assumptions, neither on the
    operator nor on the distribution of its errors.

    The probability is over the joint draw of calibration cases and of the new one. For
    fixed calibration cases, the coverage of new cases varies around it: it has the
    distribution Beta(k, n + 1 - k), with a standard deviation of 0.03 for 100 cases and
    90 %. The theorem makes no statement about a single given case, about kinds of cases
    that were rare in calibration, or about cases from another distribution: a new
    shape, a new range of loads, or training cases are not exchangeable with the others.

    Args:
      scores: scores of the calibration cases, shape `(n,)`. These cases must be used
        neither to train the operator nor to choose the width.
      coverage: target coverage `c` of the cases, inside (0, 1).

    Returns:
      The factor, a scalar; NaN if a score is NaN.

    Raises:
      TypeError: if the scores are not floating point.
      ValueError: if there are fewer than `least_cases(coverage)` of them, or the
        coverage is not inside (0, 1).

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import conformal_quantile
      >>> float(conformal_quantile(np.arange(1.0, 10.0), coverage=0.8))  # of nine
      8.0

    References:
      Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005.
      Lei et al., "Distribution-free predictive inference for regression", JASA 2018.
    """
    _checks.floating(scores=scores)
    _checks.rank(1, scores=scores)
    scores = jnp.asarray(scores)
    n = scores.shape[0]
    check_cases(n, coverage=coverage)
    rank = math.ceil((n + 1) * _exact(coverage))
    quantile = jnp.sort(scores)[rank - 1]
    return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, quantile)


@split_by_compiler
def pointwise_quantile(
    scores: Float[ArrayLike, "b n"],
    *,
    coverage: float,
    quadrature_weights: Float[ArrayLike, "b n"] | None = None,
) -> Float[Array, ""]:
    r"""The factor of the width in a band for points.

        min { t : (1/b) sum_j F_j(t) >= (b + 1) c / b },
        F_j(t) = sum_i w_ji [s_ji <= t] / sum_i w_ji,

    where `F_j(t)` is the weighted fraction of case `j` inside `t` times the width. The
    cases are exchangeable, their points are not: so the correction is that of `b`
    cases, for any number of points. Fractions are compared exactly, in any precision
    and for any number of points: without weights they are counted, with weights their
    sums have doubled precision.

    Theorem. If the calibration cases and a new case are exchangeable, the expected
    fraction of the new case inside is at least `c`. The fraction for a single case may
    be anything between 0 and 1, and the whole field is usually not inside.

    Args:
      scores: scores at the `n` points of `b` cases, from `pointwise_scores`, shape `(b,
        n)`; smaller cases are padded with points of zero weight.
      coverage: target coverage `c` of the points, inside (0, 1).
      quadrature_weights: weights of the points, shape `(b, n)`; each case counts
        equally, regardless of the sum of its weights. Equal weights by default.

    Returns:
      The factor, a scalar in the dtype of the scores; NaN if a score of positive weight
      is NaN, or a case has no point of positive weight.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, there are fewer than `least_cases(coverage)`
        cases, or the coverage is not inside (0, 1).

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import pointwise_quantile
      >>> scores = np.tile(np.arange(1, 10, dtype=np.float32)[:, None], 4)  # points
      >>> float(pointwise_quantile(scores, coverage=0.8))
      8.0

    References:
      Angelopoulos et al., "Conformal risk control", ICLR 2024 (arXiv:2208.02814),
      with the share of points outside as the risk.
    """
    array = scores if isinstance(scores, jax.Array) else np.asarray(scores)
    _checks.floating(scores=array)
    _checks.rank(2, scores=array)
    check_cases(array.shape[0], coverage=coverage)
    if quadrature_weights is None:
        return _rank_of_all(array, _rank(array.shape, coverage))
    _checks.floating(quadrature_weights=quadrature_weights)
    if np.shape(quadrature_weights) != array.shape:
        raise ValueError(
            f"quadrature_weights has shape {np.shape(quadrature_weights)}, but "
            f"scores has shape {array.shape}: expected one weight per score."
        )
    return _weighted_quantile(array, quadrature_weights, coverage=coverage)


def _rank(shape: tuple[int, ...], coverage: float) -> int:
    """Rank among all scores where each case has as many and all count the same."""
    return math.ceil((shape[0] + 1) * _exact(coverage) * shape[1])


def _rank_of_all(scores: Any, rank: int) -> Array:
    """The score of a rank; of arrays on the host without sorting them."""
    if isinstance(scores, jax.Array):
        quantile = jnp.sort(scores.ravel())[rank - 1]
        return jnp.where(jnp.any(jnp.isnan(scores)), jnp.nan, quantile)
    wide = scores.astype(np.promote_types(scores.dtype, np.float32)).ravel()
    quantile = (
        np.nan if np.isnan(wide).any() else np.partition(wide, rank - 1)[rank - 1]
    )
    return jnp.asarray(quantile, scores.dtype)


@partial(jax.jit, static_argnames="coverage")
def _weighted_quantile(
    scores: ArrayLike, quadrature_weights: ArrayLike, *, coverage: float
) -> Array:
    """See `pointwise_quantile`."""
    scores = jnp.asarray(scores)
    b, dtype = scores.shape[0], np.promote_types(scores.dtype, np.float32)
    least = (b + 1) * _exact(coverage)  # of the sum of the cases' shares
    weights = lax.stop_gradient(jnp.asarray(quadrature_weights, dtype))
    keep = active(weights)
    shares = _shares(jnp.where(keep, weights, 0))
    values = jnp.where(keep, scores, -jnp.inf).ravel()
    order = jnp.argsort(values)
    inside = _sums.running(
        _sums.Double(shares.high.ravel()[order], shares.low.ravel()[order])
    )
    level = _sums.exact(least, dtype)
    above = (inside.high - level.high) + (inside.low - level.low)
    # Sums have twice the digits of `dtype`, so what equals the level is seen to.
    slack = 64 * b * math.log2(2 * scores.size) * float(jnp.finfo(dtype).eps) ** 2
    reached = above >= -slack
    place = jnp.where(jnp.any(reached), jnp.argmax(reached), scores.size - 1)
    unknown = jnp.any(jnp.isnan(jnp.where(keep, scores, 0)))
    unknown |= jnp.any(~jnp.any(keep, axis=1))
    return jnp.where(unknown, jnp.nan, values[order][place])


def _shares(weights: Array) -> _sums.Double:
    """Each weight over the sum of those of its case, in twice the digits, `(b, n)`."""
    largest = jnp.max(weights, axis=1, keepdims=True)
    scaled = jnp.ldexp(weights, -jnp.frexp(largest)[1])  # exact, and far from overflow
    sums = _sums.total(_sums.Double(scaled.T, jnp.zeros_like(scaled.T)))
    return _sums.divide(scaled, _sums.Double(sums.high[:, None], sums.low[:, None]))


def band(
    prediction: Float[ArrayLike, "n ..."],
    width: Float[ArrayLike, "n ..."],
    *,
    factor: ArrayLike,
) -> Band:
    r"""The band around a prediction.

        lower = p - t h,    upper = p + t h.

    Args:
      prediction: values at the points, shape `(n,)` or `(n, c)`.
      width: half-width `h`, with the unit and shape of the prediction, as in
        calibration.
      factor: factor `t`, from `conformal_quantile` for whole fields, or from
        `pointwise_quantile`; not negative. A traced value is not checked.

    Returns:
      The lower and the upper field.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match or the factor is negative.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import band
      >>> lower, upper = band(np.array([1.0, 2.0]), np.array([0.5, 1.0]), factor=2.0)
      >>> lower.tolist(), upper.tolist()
      ([0.0, 0.0], [2.0, 4.0])
    """
    prediction, width = _arguments.fields(prediction=prediction, width=width)
    _checks.single_numbers(factor=factor)
    _checks.non_negative(factor=factor)
    half = jnp.asarray(factor, prediction.dtype) * width
    return Band(prediction - half, prediction + half)


def _exact(coverage: float) -> Fraction:
    """The coverage as it was written: 0.9 is nine tenths, and no float beside it.

    Raises:
      ValueError: if it is not inside (0, 1).
    """
    if not 0 < coverage < 1:
        raise ValueError(
            f"{coverage=} must be inside (0, 1), for example 0.9 for nine out of "
            "ten cases."
        )
    return Fraction(repr(float(coverage)))
