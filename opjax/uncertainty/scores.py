"""Scores of error bars on cases with known targets."""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.quadrature import active
from opjax.uncertainty import _arguments


@jax.jit
def field_inside(
    target: Float[ArrayLike, "n ..."],
    lower: Float[ArrayLike, "n ..."],
    upper: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""Whether a whole field lies inside a band: one or zero.

        [l_i <= t_i <= u_i at all points of positive weight, in all channels]

    The mean over cases is the coverage of whole fields.

    Args:
      target: the true field, shape `(n,)` or `(n, c)`.
      lower: lower bound of the band, with the same shape.
      upper: upper bound at every point, `(n, q)`.
      quadrature_weights: weights of the points; zero masks a point.

    Returns:
      One or zero, a scalar.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import field_inside
      >>> target = np.array([1.0, 2.0])
      >>> float(field_inside(target, target - 0.1, target + 0.1))
      1.0
    """
    target, lower, upper = _arguments.fields(target=target, lower=lower, upper=upper)
    keep = active(_arguments.weights_of(target, quadrature_weights))
    inside = (lower <= target) & (target <= upper)
    return jnp.all(inside | ~keep).astype(target.dtype)


@jax.jit
def pointwise_coverage(
    target: Float[ArrayLike, "n ..."],
    lower: Float[ArrayLike, "n ..."],
    upper: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""The fraction of a field that lies inside a band.

        sum_i w_i [l_i <= t_i <= u_i] / sum_i w_i,    over all channels.

    Args:
      target: the true field, shape `(n,)` or `(n, c)`.
      lower: lower bound of the band, with the same shape.
      upper: upper bound at every point, `(n, q)`.
      quadrature_weights: weights of the points.

    Returns:
      The fraction, a scalar.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import pointwise_coverage
      >>> target = np.array([1.0, 2.0, 3.0, 4.0])
      >>> float(pointwise_coverage(target, np.full(4, 1.5), np.full(4, 9.0)))
      0.75
    """
    target, lower, upper = _arguments.fields(target=target, lower=lower, upper=upper)
    weights = _arguments.weights_of(target, quadrature_weights)
    inside = (lower <= target) & (target <= upper)
    return _arguments.mean(inside.astype(target.dtype), weights)


@jax.jit
def mean_width(
    lower: Float[ArrayLike, "n ..."],
    upper: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""The sharpness of a band: its mean full width.

        sum_i w_i (u_i - l_i) / sum_i w_i,    over all channels.

    Of two bands with the same coverage, the narrower one is better.

    Args:
      lower: lower bound of the band, shape `(n,)` or `(n, c)`.
      upper: upper bound at every point, `(n, q)`.
      quadrature_weights: weights of the points.

    Returns:
      The width, in the unit of the field.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import mean_width
      >>> float(mean_width(np.zeros(2), np.array([1.0, 3.0])))
      2.0
    """
    lower, upper = _arguments.fields(lower=lower, upper=upper)
    weights = _arguments.weights_of(lower, quadrature_weights)
    return _arguments.mean(upper - lower, weights)


@jax.jit
def gaussian_nll(
    error: Float[ArrayLike, "n ..."],
    deviation: Float[ArrayLike, "n ..."],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, ""]:
    r"""Negative log-likelihood of Gaussian errors.

        sum_i w_i (e_i^2 / (2 s_i^2) + log s_i + log(2 pi) / 2) / sum_i w_i.

    Args:
      error: prediction minus target, shape `(n,)` or `(n, c)`.
      deviation: predicted standard deviation `s`, with the same shape; positive. Zero
        gives NaN or inf.
      quadrature_weights: weights of the points.

    Returns:
      The mean over points, a scalar; smaller is better.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import gaussian_nll
      >>> errors, deviation = np.array([0.1, -0.1]), np.array([0.1, 0.1])
      >>> bool(gaussian_nll(errors, deviation) < gaussian_nll(errors, 9 * deviation))
      True
    """
    error, deviation = _arguments.fields(error=error, deviation=deviation)
    weights = _arguments.weights_of(error, quadrature_weights)
    keep = active(weights)
    error, deviation = jnp.where(keep, error, 0), jnp.where(keep, deviation, 1)
    ratio = error / deviation
    terms = 0.5 * ratio * ratio + jnp.log(deviation) + 0.5 * jnp.log(2 * jnp.pi)
    return _arguments.mean(terms, weights)


@jax.jit
@split_by_compiler
def sparsification_curve(
    error: Float[ArrayLike, " n"], width: Float[ArrayLike, " n"]
) -> Float[Array, " n"]:
    r"""Error of the remaining points when the least certain ones are removed.

        r_j = (mean of e_i^2 over all but the j points of largest width)^{1/2},

    for `j = 0, ..., n - 1`. It decreases if the width is correlated with the error;
    with `width = |error|` it decreases as fast as possible, and with an uninformative
    width it is constant on average.

    Args:
      error: prediction minus target, at points or of cases, shape `(n,)`.
      width: width of the band there; of equal widths the first is removed last.

    Returns:
      The curve, shape `(n,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import sparsification_curve
      >>> errors, width = np.array([2.0, 0, 0, 0]), np.array([4.0, 3, 2, 1])
      >>> sparsification_curve(errors, width).tolist()
      [1.0, 0.0, 0.0, 0.0]
    """
    _checks.rank(1, error=error, width=width)
    error, width = _arguments.fields(error=error, width=width)
    squares = (error * error)[jnp.argsort(width, stable=True)]
    counts = jnp.arange(1, error.shape[0] + 1, dtype=error.dtype)
    return jnp.sqrt(jnp.cumsum(squares) / counts)[::-1]


@jax.jit
@split_by_compiler
def calibration_curve(
    calibration_scores: Float[ArrayLike, " b"],
    test_scores: Float[ArrayLike, " e"],
    levels: Float[ArrayLike, " t"],
) -> Float[Array, " t"]:
    r"""Empirical coverage against nominal coverage.

        share of test scores <= the k-th smallest calibration score,
        k = ceil((b + 1) level),

    with an infinite factor if there are too few cases `b` for a level. A reliability
    diagram shows it against the levels: above the diagonal bands are too wide, below it
    too narrow.

    Args:
      calibration_scores: as for `conformal_quantile`, shape `(b,)`.
      test_scores: scores of other cases, shape `(e,)`.
      levels: nominal coverages, inside (0, 1), shape `(t,)`.

    Returns:
      The empirical coverages, shape `(t,)`.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if an array does not have one axis.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import calibration_curve
      >>> others = np.array([0.0, 3.0, 5.0, 9.0])
      >>> calibration_curve(np.arange(9.0), others, np.array([0.5])).tolist()
      [0.5]
    """
    arrays = {"calibration_scores": calibration_scores, "test_scores": test_scores}
    _checks.floating(**arrays, levels=levels)
    _checks.rank(1, **arrays, levels=levels)
    calibration, new = jnp.asarray(calibration_scores), jnp.asarray(test_scores)
    n = calibration.shape[0]
    # Levels such as 0.9 are not exact: without the slack, ceil would step over them.
    places = jnp.asarray(levels, calibration.dtype) * (n + 1)
    ranks = jnp.ceil(places * (1 - 4 * jnp.finfo(calibration.dtype).eps)).astype(int)
    ordered = jnp.append(jnp.sort(calibration), jnp.asarray(jnp.inf, calibration.dtype))
    factors = ordered[jnp.clip(ranks - 1, 0, n)]
    return jnp.mean(
        (new[None, :] <= factors[:, None]).astype(calibration.dtype), axis=1
    )
