"""Out-of-distribution test with several groups of features."""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax import _checks
from opjax.uncertainty import _distances
from opjax.uncertainty.conformal import least_cases
from opjax.uncertainty.likeness import conformal_p_value

# Reference cases are a little beyond, too: what counts is a tenth of the unit size, see
# results/unlike.md.
_BEYOND = 0.1


class Group(NamedTuple):
    """Features of one kind, such as moments, or wave means over the points.

    Attributes:
      features: features of the new case, shape `(f,)`.
      reference: features of the `b` reference cases, shape `(b, f)`.
      noise: variance of the new case's features due to its finite number of points,
        such as `1 / n` for means over `n` points; a scalar.
      reference_noise: the same for the reference cases, `(b,)`, or one number for all.
      limits: minimum and maximum of each feature in training, `(2, f)`. The distance of
        a feature beyond them becomes an additional feature; None for no limits.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import Group
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))  # of 40 cases
      >>> Group(features=np.zeros(3), reference=reference).noise
      0.0
    """

    features: Float[ArrayLike, " f"]
    reference: Float[ArrayLike, "b f"]
    noise: ArrayLike = 0.0
    reference_noise: ArrayLike = 0.0
    limits: Float[ArrayLike, "2 f"] | None = None


class Rows(NamedTuple):
    """A group as arrays: features of all cases in rows, the new one last.

    Attributes:
      features: shape `(b + 1, f)`.
      noise: variance of the features of each case, `(b + 1,)`.
      ridge: see `shrunk_distances`.
      limits: see `Group`.
    """

    features: Array
    noise: Array
    ridge: Array
    limits: Array | None


class GroupedLikeness(NamedTuple):
    """Result of an out-of-distribution test.

    Attributes:
      p_value: probability of a score at least as large for an in-distribution case; at
        least `1 / (b + 1)` for `b` reference cases.
      score: out-of-distribution score: standard deviations of the logarithm of the
        distance above the median, the maximum over the groups.
      distance: distance from the mean of the reference cases, relative to their median
        distance, in the group below.
      group: index of the group with the largest score, as for the p-value: with the new
        case among the others.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import Group, likeness_of_groups
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> group = Group(features=np.full(3, 9.0), reference=reference)
      >>> found = likeness_of_groups([group])
      >>> bool(found.p_value < 0.05), int(found.group)
      (True, 0)
    """

    p_value: Array
    score: Array
    distance: Array
    group: Array


def likeness_of_groups(
    groups: Sequence[Group], *, ridge: ArrayLike = 0.1
) -> GroupedLikeness:
    r"""Tests a case against reference cases, with several groups of features.

        d_gi^2 = z_gi (Z_g^T Z_g / b + ridge I)^{-1} z_gi^T,
        z_gi = (x_gi - mean) / (std^2 + floor^2 + max(v_gi - median_j v_gj, 0))^{1/2},
        e_gi^2 = d_gi^2 / (1 - d_gi^2 / b),    l_gi = log(e_gi + 0.1),
        s_i = max_g (l_gi - median_j l_gj) / (std_j(l_gj)^2 + 0.02^2)^{1/2},
        p = conformal_p_value(s_1, ..., s_b; s).

    `d` are the distances of `shrunk_distances`, and `e` those from the other cases,
    with each case left out of the covariance, so that many features can be used with
    few cases. Features of a case with fewer points than the others are noisier by `v`,
    and have less weight. Groups are brought to one scale by the spread of `l`, and the
    score of a case is the maximum over its groups.

    For the p-value, all of this is computed with the new case among the others, so that
    all `b + 1` scores change in the same way if two cases are exchanged. The theorem of
    `conformal_p_value` therefore holds for any number of groups: no correction for
    multiple tests is needed. Score and distance leave the new case out, and are
    unbounded.

    In a group with `limits`, `x` is followed by `max(x - high, low - x, 0) / 10`. These
    values are smaller than the floor in nearly all reference cases, so that a case far
    beyond the training limits has a large distance, even with few cases.

    A difference in no feature is not detected, however wrong the prediction is.
    `detectable_shifts` returns what a number of cases can detect.

    Args:
      groups: at least one group, all with the same number of reference cases. If the
        features depend on the operator, these cases must not be used for its training.
      ridge: see `shrunk_distances`.

    Returns:
      p-value, score, distance and index of the group; NaN if a feature is NaN.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if there is no group, shapes do not match, or the ridge is not
        positive.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import Group, likeness_of_groups
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> group = Group(features=np.full(3, 9.0), reference=reference)
      >>> bool(likeness_of_groups([group]).p_value < 0.05)  # out of distribution
      True

    References:
      Laxhammar and Falkman, "Inductive conformal anomaly detection for sequential
      detection of anomalous sub-trajectories", Ann. Math. Artif. Intell. 74, 2015.
      Belsley, Kuh and Welsch, "Regression Diagnostics", 1980, section 2.1 (`e`).
    """
    rows = rows_of(groups, ridge)
    return _compared(rows, len(rows[0].noise) - 1)


@partial(jax.jit, static_argnames="count")
def _compared(groups: list[Rows], count: int) -> GroupedLikeness:
    together = [left_out(rows, count=count + 1) for rows in groups]
    apart = [left_out(rows, count=count) for rows in groups]
    each = jnp.stack([score(e, count + 1) for e in together])
    everywhere = jnp.max(each, axis=0)
    new = jnp.stack([score(e, count)[-1] for e in apart])
    # A case that is left out is far away in a group of more features than cases.
    group = jnp.argmax(each[:, -1])
    ratios = jnp.stack([e[-1] / jnp.median(e[:-1]) for e in apart])
    p_value = conformal_p_value(everywhere[:-1], everywhere[-1])
    return GroupedLikeness(p_value, jnp.max(new), ratios[group], group)


def alarm_margin(
    groups: Sequence[Group], *, false_alarms: float, ridge: ArrayLike = 0.1
) -> Float[Array, ""]:
    r"""Returns the margin of the out-of-distribution test, positive for an alarm.

        s - (the k-th largest of s_1, ..., s_b),    k = floor(a (b + 1)),

    with the scores `s` of `likeness_of_groups`, the new case among the others, and
    `a = false_alarms`. It is positive exactly if `p <= a`. The p-value has no useful
    gradient, but the margin has one: it can be a constraint that keeps an optimiser
    close to the reference cases.

    Args:
      groups: as for `likeness_of_groups`.
      false_alarms: `a`, inside (0, 1).
      ridge: see `shrunk_distances`.

    Returns:
      The margin, in standard deviations of the logarithm of the distance; NaN if a
      feature is NaN.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: see `likeness_of_groups`; or if there are too few cases for an alarm.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import Group, alarm_margin
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> group = Group(features=np.full(3, 9.0), reference=reference)
      >>> bool(alarm_margin([group], false_alarms=0.05) > 0)  # out of distribution
      True
    """
    rows = rows_of(groups, ridge)
    count = len(rows[0].noise) - 1
    check_count(count, false_alarms)
    # Rounded first: 0.05 of 20 is one, and not a little less.
    return _margin(rows, count, math.floor(round(false_alarms * (count + 1), 9)))


def check_count(count: int, false_alarms: float) -> None:
    """Raises ValueError if there are too few reference cases for a rate of alarms."""
    least = least_cases(round(1 - false_alarms, 12))
    if count < least:
        raise ValueError(
            f"{count} reference cases are too few for {false_alarms=:g}: at least "
            f"{least} are needed."
        )


@partial(jax.jit, static_argnames=("count", "place"))
def _margin(groups: list[Rows], count: int, place: int) -> Array:
    each = [score(left_out(rows, count=count + 1), count + 1) for rows in groups]
    everywhere = jnp.max(jnp.stack(each), axis=0)
    return everywhere[-1] - jnp.sort(everywhere[:-1])[count - place]


def rows_of(groups: Sequence[Group], ridge: ArrayLike) -> list[Rows]:
    """Returns the features of all cases, the new one last, for each group.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: see `likeness_of_groups`.
    """
    counts = sorted({len(jnp.asarray(group.reference)) for group in groups})
    if len(counts) != 1:
        raise ValueError(
            f"groups have {counts} reference cases, expected at least one group and "
            "the same number of cases in each."
        )
    return [_checked(number, group, ridge) for number, group in enumerate(groups)]


def _checked(number: int, group: Group, ridge: ArrayLike) -> Rows:
    reference, weight = _distances.matrix(group.reference, ridge)
    _checks.floating(features=group.features)
    new = jnp.asarray(group.features, reference.dtype)
    if new.shape != reference.shape[1:]:
        raise ValueError(
            f"features of group {number} has shape {new.shape}, but reference has "
            f"shape {reference.shape}: expected one number per column."
        )
    own = jnp.asarray(group.noise, reference.dtype)
    others = jnp.asarray(group.reference_noise, reference.dtype)
    if own.shape != () or others.shape not in ((), reference.shape[:1]):
        raise ValueError(
            f"noise and reference_noise of group {number} have shapes {own.shape} "
            f"and {others.shape}, expected () and {reference.shape[:1]}: one "
            "number per case."
        )
    limits = group.limits
    if limits is not None:
        limits = jnp.asarray(limits, reference.dtype)
        if limits.shape != (2, *new.shape):
            raise ValueError(
                f"limits of group {number} has shape {limits.shape}, expected "
                f"{(2, *new.shape)}: minimum and maximum of each feature."
            )
    noise = jnp.append(jnp.broadcast_to(others, reference.shape[:1]), own)
    return Rows(jnp.concatenate([reference, new[None, :]]), noise, weight, limits)


def left_out(rows: Rows, *, count: int) -> Array:
    """Leave-one-out distances of all rows from the first `count`."""
    features = rows.features
    if rows.limits is not None:
        low, high = rows.limits[:1], rows.limits[1:]
        beyond = jnp.maximum(jnp.maximum(features - high, low - features), 0)
        features = jnp.concatenate([features, _BEYOND * beyond], axis=1)
    excess = jnp.maximum(rows.noise - jnp.median(rows.noise[:count]), 0)
    values = _distances.distances(features, rows.ridge, count=count, excess=excess)
    share = jnp.where(jnp.arange(len(values)) < count, values**2 / count, 0)
    return values / jnp.sqrt(jnp.maximum(1 - share, jnp.finfo(values.dtype).eps))


def score(distances: Array, count: int) -> Array:
    """Standard deviations of the logarithms above the median of the first `count`."""
    logs = jnp.log(distances + 0.1)
    own = logs[:count]
    return (logs - jnp.median(own)) / jnp.sqrt(jnp.var(own) + 0.02**2)
