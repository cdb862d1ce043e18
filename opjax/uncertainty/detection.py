"""Smallest shifts that an out-of-distribution test can detect."""

import math
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike
from jaxtyping import Float

from opjax.uncertainty import _distances
from opjax.uncertainty.groups import Group, Rows, check_count, left_out, rows_of, score

_TRIALS = 96
_SHIFTS = 0.5 * 1.4 ** np.arange(16)  # up to 78 standard deviations


def detectable_shifts(
    groups: Sequence[Group],
    *,
    false_alarms: float,
    power: float = 0.8,
    ridge: ArrayLike = 0.1,
) -> Float[Array, " g"]:
    r"""The smallest shift of one feature that `likeness_of_groups` detects.

        t_g = min {t : P(alarm if x_gj becomes x_gj +- t (std_gj^2 + floor^2)^{1/2})
                       >= power},

    for each group `g`, in standard deviations of the feature over the reference cases.
    The probability is estimated from 96 trials on these cases themselves: each removes
    one case in turn, moves a random feature of it up or down, and compares it with the
    `b - 1` others. The result is an alarm if fewer than `a (b + 1)` of them have at
    least its score, as for a new case at `p <= a`. There is no assumption on the
    distribution, and correlations of features are taken into account: a small shift to
    a combination that no other case has is detected.

    The probability is computed at 16 shifts from 0.5 to 78, with linear interpolation
    in the logarithm of the shift between them. With 96 trials, its standard error is
    0.04, and the shift is accurate to about a tenth.

    A difference in several features at once may be detected if it is smaller; a
    difference in no feature is never detected.

    Args:
      groups: as for `likeness_of_groups`; the new case of each is ignored.
      false_alarms: false-alarm rate `a`: the fraction of in-distribution cases that
        raise an alarm.
      power: probability of detecting the shift, inside (0, 1).
      ridge: see `shrunk_distances`.

    Returns:
      The shifts, one per group; infinite if no shift is detected with this probability.

    Raises:
      TypeError: if an array is not floating point.
      ValueError: if there are too few reference cases for an alarm, `power` is not
        inside (0, 1), or as from `likeness_of_groups`.

    Examples:
      >>> import numpy as np
      >>> from opjax.uncertainty import Group, detectable_shifts
      >>> reference = np.random.default_rng(0).normal(size=(40, 3))
      >>> group = Group(features=reference[0], reference=reference)
      >>> detectable_shifts([group], false_alarms=0.05).shape
      (1,)
    """
    if not 0 < power < 1:
        raise ValueError(f"{power=} must be inside (0, 1), for example 0.8.")
    several = [_without_new(rows) for rows in rows_of(groups, ridge)]
    count = len(several[0].noise)
    check_count(count, false_alarms)
    allowed = math.floor(false_alarms * (count + 1) + 1e-9)
    rates = [_alarm_rates(several, place, allowed) for place in range(len(several))]
    return jnp.stack([_first_above(rate, power) for rate in rates])


def _without_new(rows: Rows) -> Rows:
    return rows._replace(features=rows.features[:-1], noise=rows.noise[:-1])


@partial(jax.jit, static_argnames=("place", "allowed"))
def _alarm_rates(several: list[Rows], place: int, allowed: int) -> Array:
    """Share of trials that raise an alarm, for each of `_SHIFTS` in one group."""
    rows = several[place]
    count, width = rows.features.shape
    rng = np.random.default_rng(0)
    cases = jnp.asarray(np.arange(_TRIALS) % count)
    columns = jnp.asarray(rng.integers(width, size=_TRIALS))
    signs = jnp.asarray(rng.choice([-1.0, 1.0], _TRIALS), rows.features.dtype)
    units = jnp.sqrt(_distances.variance(rows.features))[0]
    still = [
        score(left_out(each, count=count), count)
        for number, each in enumerate(several)
        if number != place
    ]

    def alarm(case: Array, column: Array, move: Array) -> Array:
        features = rows.features.at[case, column].add(move * units[column])
        moved = score(left_out(rows._replace(features=features), count=count), count)
        unlike = jnp.max(jnp.stack([moved, *still]), axis=0)
        return jnp.sum(unlike >= unlike[case]) <= allowed  # itself is one of them

    number = np.repeat(np.arange(_TRIALS), len(_SHIFTS))
    moves = jnp.asarray(np.tile(_SHIFTS, _TRIALS), signs.dtype) * signs[number]
    alarms = lax.map(lambda each: alarm(*each), (cases[number], columns[number], moves))
    alarms = alarms.reshape(_TRIALS, -1)
    return jnp.mean(alarms.astype(rows.features.dtype), axis=0)


def _first_above(rates: Array, power: float) -> Array:
    """The shift from which on the rate is at least `power`."""
    below = rates < power
    last = jnp.max(jnp.where(below, jnp.arange(len(rates)), -1))
    start, end = jnp.maximum(last, 0), jnp.minimum(last + 1, len(rates) - 1)
    rise = rates[end] - rates[start]
    share = jnp.where(rise > 0, (power - rates[start]) / rise, 0)
    logs = jnp.asarray(np.log(_SHIFTS), rates.dtype)
    inside = jnp.exp(logs[start] + share * (logs[end] - logs[start]))
    shift = jnp.where(last < 0, _SHIFTS[0], inside)
    return jnp.where(last == len(rates) - 1, jnp.inf, shift)
