"""Out-of-distribution tests of cases: moments and waves, distances, p-values."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax._explicit import split_by_compiler
from opjax.uncertainty import _arguments, _distances


class Likeness(NamedTuple):
    """Result of an out-of-distribution test.

    Attributes:
      p_value: probability of a distance at least as large for an in-distribution case;
        at least `1 / (b + 1)` for `b` reference cases.
      distance: distance from the mean of the reference cases, relative to their median
        distance.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import likeness
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> found = likeness(np.full(3, 9.0), reference)
      >>> bool(found.p_value < 0.05), bool(found.distance > 2)
      (True, True)
    """

    p_value: Array
    distance: Array


@jax.jit
@split_by_compiler
def field_moments(
    fields: Float[ArrayLike, "n m"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, " f"]:
    r"""Means and covariances of the channels of a case: a few numbers for any mesh.

        mu = sum_i w_i x_i / sum_i w_i,
        S = sum_i w_i (x_i - mu) (x_i - mu)^T / sum_i w_i.

    If the coordinates of the points are among the channels, they describe the shape:
    its centre, extent and orientation. With input and output functions, they describe
    the sizes, gradients and correlations of these.

    Args:
      fields: channels at the `n` points, shape `(n, m)`: coordinates, input and output
        function, each divided by its spread in training.
      quadrature_weights: weights of the points; zero masks a point. Equal weights by
        default.

    Returns:
      The `m` means and the `m (m + 1) / 2` covariances of the upper triangle, row by
      row.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import field_moments
      >>> field_moments(np.array([[0.0, 1.0], [2.0, 1.0]])).tolist()
      [1.0, 1.0, 1.0, 0.0, 0.0]
    """
    _checks.floating(fields=fields)
    _checks.rank(2, fields=fields)
    fields = jnp.asarray(fields)
    keep, share = _arguments.shares(fields, quadrature_weights)
    values = jnp.where(keep[:, None], fields, 0)
    highest = lax.Precision.HIGHEST
    mean = jnp.matmul(share, values, precision=highest)
    centred = jnp.where(keep[:, None], values - mean[None, :], 0)
    spread = share[:, None] * centred
    covariance = jnp.matmul(spread.T, centred, precision=highest)
    upper = np.triu_indices(fields.shape[1])
    return jnp.concatenate([mean, covariance[upper]])


@jax.jit
@split_by_compiler
def wave_means(
    points: Float[ArrayLike, "n d"],
    waves: Float[ArrayLike, "d k"],
    *,
    quadrature_weights: Float[ArrayLike, " n"] | None = None,
) -> Float[Array, " f"]:
    r"""Mean random Fourier features of a case, which describe details of its shape.

        C_k = sum_i w_i cos(x_i . a_k) / sum_i w_i,
        S_k = sum_i w_i sin(x_i . a_k) / sum_i w_i,

    which is the Fourier transform of the domain at the wave vectors `a_k`, divided by
    its measure. `field_moments` are its derivatives at zero, which hardly change with a
    wavy edge; at `|a| ~ 8` relative to the spread of the coordinates it does change.
    With random wave vectors, these are random features of a kernel mean embedding.

    Args:
      points: coordinates of the `n` points, divided by their spread in training, `(n,
        d)`.
      waves: wave vectors as columns, in radians per unit of the points, shape `(d, k)`.
      quadrature_weights: weights of the points; zero masks a point. Equal weights by
        default.

    Returns:
      The `k` cosines and the `k` sines, between -1 and 1.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if the shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import wave_means
      >>> wave_means(np.zeros((5, 2)), np.ones((2, 3))).tolist()
      [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]

    References:
      Rahimi and Recht, "Random features for large-scale kernel machines", NIPS 2007.
      Muandet et al., "Kernel mean embedding of distributions", Foundations and Trends
      in Machine Learning 10, 2017.
    """
    _checks.floating(points=points, waves=waves)
    _checks.rank(2, points=points, waves=waves)
    points = jnp.asarray(points)
    vectors = jnp.asarray(waves, points.dtype)
    if vectors.shape[0] != points.shape[1]:
        raise ValueError(
            f"waves has shape {vectors.shape}, but points has shape "
            f"{points.shape}: expected one number per coordinate."
        )
    keep, share = _arguments.shares(points, quadrature_weights)
    kept = jnp.where(keep[:, None], points, 0)

    def means(vector: Array) -> tuple[Array, Array]:
        phase = jnp.sum(kept * vector[None, :], axis=1)
        return jnp.sum(share * jnp.cos(phase)), jnp.sum(share * jnp.sin(phase))

    # A few waves at a time: no array of all points and waves.
    cosines, sines = lax.map(means, vectors.T, batch_size=8)
    return jnp.concatenate([cosines, sines])


@split_by_compiler
def shrunk_distances(
    features: Float[ArrayLike, "b f"], *, ridge: ArrayLike = 0.1
) -> Float[Array, " b"]:
    r"""Mahalanobis distances of cases from their mean, with a shrunk covariance.

        d_i^2 = z_i (Z^T Z / b + ridge I)^{-1} z_i^T,
        Z = (X - mean) / (std^2 + floor^2)^{1/2},    floor = 0.01,

    with the mean and standard deviation of the columns over the cases. The ridge allows
    more features than cases. The floor prevents rounding errors from dominating in
    columns in which all cases agree. The order of the cases has no effect.

    Args:
      features: features of `b` cases, shape `(b, f)`, each of about unit size.
      ridge: positive ridge, in units of the variance of a column. A traced value is not
        checked.

    Returns:
      The distances, shape `(b,)`.

    Raises:
      TypeError: if the features are not floating point.
      ValueError: if they do not have two axes, or the ridge is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import shrunk_distances
      >>> features = np.array([[0.0], [0.0], [0.0], [8.0]])
      >>> int(shrunk_distances(features).argmax())
      3

    References:
      Ledoit and Wolf, "A well-conditioned estimator for large-dimensional covariance
      matrices", J. Multivariate Analysis 88, 2004.
    """
    return _distances.distances(*_distances.matrix(features, ridge))


def conformal_p_value(
    scores: Float[ArrayLike, " b"], score: Float[ArrayLike, ""]
) -> Float[Array, ""]:
    r"""The fraction of scores at least as large as a new one, including itself.

        p = (1 + #{i : s_i >= s}) / (b + 1).

    Theorem. If the `b` scores and the new one are exchangeable, `p` is at most `a` with
    probability at most `a`, for every `a`. The false-alarm rate of alarms at `p <= a`
    is at most `a`, averaged over the draw of all `b + 1` cases.

    Args:
      scores: scores of the in-distribution cases, shape `(b,)`.
      score: score of the new case, a scalar; larger values are less likely in
        distribution.

    Returns:
      The p-value, from `1 / (b + 1)` to one; NaN if a score is NaN.

    Raises:
      TypeError: if a score is not floating point.
      ValueError: if shapes do not match.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import conformal_p_value
      >>> round(float(conformal_p_value(np.arange(9.0), 8.5)), 3)  # the largest of ten
      0.1

    References:
      Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005.
    """
    _checks.floating(scores=scores, score=score)
    _checks.rank(1, scores=scores)
    _checks.rank(0, score=score)
    known_scores, new = jnp.asarray(scores), jnp.asarray(score)
    above = jnp.sum((known_scores >= new).astype(known_scores.dtype))
    p_value = (1 + above) / (known_scores.shape[0] + 1)
    bad = jnp.any(jnp.isnan(known_scores)) | jnp.isnan(new)
    return jnp.where(bad, jnp.nan, p_value)


@split_by_compiler
def likeness(
    features: Float[ArrayLike, " f"],
    reference: Float[ArrayLike, "b f"],
    *,
    ridge: ArrayLike = 0.1,
) -> Likeness:
    r"""Tests a case against reference cases.

        p = conformal_p_value(d_1, ..., d_b; d),    d = shrunk_distances([X; x]),
        distance = |x|_M / median_i |x_i|_M.

    The p-value counts the new case among the others, so that all `b + 1` distances
    change in the same way if two cases are exchanged. So the theorem of
    `conformal_p_value` holds with all reference cases, and none are needed for a
    threshold. The distance leaves the new case out of mean and covariance (`M`), and is
    unbounded.

    A difference in no feature is not detected, however wrong the prediction is.

    Args:
      features: features of the new case, shape `(f,)`, such as `field_moments`.
      reference: features of the `b` reference cases, shape `(b, f)`. If the features
        depend on the operator, these cases must not be used for its training.
      ridge: see `shrunk_distances`.

    Returns:
      The p-value and the distance; NaN if a feature is NaN.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if shapes do not match, or the ridge is not positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import likeness
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> bool(likeness(np.full(3, 9.0), reference).p_value < 0.05)  # unlike the others
      True

    References:
      Laxhammar and Falkman, "Inductive conformal anomaly detection for sequential
      detection of anomalous sub-trajectories", Ann. Math. Artif. Intell. 74, 2015.
    """
    rows, weight = _distances.matrix(reference, ridge)
    _checks.floating(features=features)
    new = jnp.asarray(features, rows.dtype)
    if new.shape != rows.shape[1:]:
        raise ValueError(
            f"features has shape {new.shape}, but reference has shape "
            f"{rows.shape}: expected one number per column."
        )
    both = jnp.concatenate([rows, new[None, :]])
    together = _distances.distances(both, weight)
    p_value = conformal_p_value(together[:-1], together[-1])
    apart = _distances.distances(both, weight, count=rows.shape[0])
    return Likeness(p_value, apart[-1] / jnp.median(apart[:-1]))


@split_by_compiler
def area_under_curve(
    alike: Float[ArrayLike, " b"], unlike: Float[ArrayLike, " e"]
) -> Float[Array, ""]:
    r"""Area under the ROC curve of a score for two classes of cases.

        mean over all pairs of [s_unlike > s_alike] + [s_unlike = s_alike] / 2,

    which is the statistic of Mann and Whitney divided by the number of pairs, and the
    area under the receiver operating characteristic: 1 if a threshold separates the two
    classes, 0.5 if the score contains no information.

    Args:
      alike: scores of the in-distribution cases, such as distances, shape `(b,)`.
      unlike: scores of the out-of-distribution cases, which should be larger, shape
        `(e,)`.

    Returns:
      The area, a scalar; NaN if a score is NaN.

    Raises:
      TypeError: if the scores are not floating point.
      ValueError: if an array does not have one axis.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import area_under_curve
      >>> float(area_under_curve(np.array([1.0, 2.0]), np.array([1.5, 3.0])))
      0.75

    References:
      Hanley and McNeil, "The meaning and use of the area under a receiver operating
      characteristic (ROC) curve", Radiology 143, 1982.
    """
    _checks.floating(alike=alike, unlike=unlike)
    _checks.rank(1, alike=alike, unlike=unlike)
    one, other = jnp.asarray(alike)[:, None], jnp.asarray(unlike)[None, :]
    sign = jnp.where(one == other, 0.0, jnp.sign(other - one))
    return jnp.mean((1 + sign) / 2).astype(one.dtype)
