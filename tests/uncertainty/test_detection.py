"""What few cases tell apart: by trials, in the limit of many cases, bad input."""

import jax
import numpy as np
import pytest
from scipy import optimize, stats

from opjax.uncertainty import Group, detectable_shifts, detection, likeness_of_groups
from tests.refused import value_error


def trials(width, count):
    """The trials that the docstring describes: case, feature, sign."""
    rng = np.random.default_rng(0)
    columns = rng.integers(width, size=96)
    return zip(np.arange(96) % count, columns, rng.choice([-1, 1], 96), strict=True)


def by_trials(references, limits, place, allowed, power):
    """Moves cases one by one, and compares each with the others."""
    count = len(references[0])
    unit = np.sqrt(references[place].var(axis=0) + 1e-4)

    @jax.jit
    @jax.vmap
    def ranks(moved, others):
        groups = [
            Group(a, b, limits=limit)
            for a, b, limit in zip(moved, others, limits, strict=True)
        ]
        return likeness_of_groups(groups).p_value * count

    rates = []
    for shift in detection._SHIFTS:
        moved, others = [], []
        for case, column, sign in trials(len(unit), count):
            new = [a[case].copy() for a in references]
            new[place][column] += sign * shift * unit[column]
            moved.append(new)
            others.append([np.delete(a, case, axis=0) for a in references])
        stacked = [
            [np.stack(each) for each in zip(*several, strict=True)]
            for several in (moved, others)
        ]
        rates.append(np.mean(np.asarray(ranks(*stacked)) < allowed + 0.5))
    (below,) = np.flatnonzero(np.asarray(rates) < power)[-1:]
    known, logs = rates[below : below + 2], np.log(detection._SHIFTS[below : below + 2])
    return np.exp(np.interp(power, known, logs))


@pytest.mark.nightly
@pytest.mark.parametrize("count", [20, 41])
def test_detectable_shifts_are_those_of_trials_with_the_cases(count, rng):
    references = [rng.normal(size=(count, 2)), rng.random((count, 3))]
    references[1][:, 2] += references[1][:, 1]
    limits = [None, np.stack([np.zeros(3), np.full(3, 1.5)])]
    groups = [
        Group(a[0], a, limits=limit)
        for a, limit in zip(references, limits, strict=True)
    ]
    found = detectable_shifts(groups, false_alarms=0.05, power=0.7)
    allowed = (count + 1) // 20
    expected = [by_trials(references, limits, i, allowed, 0.7) for i in range(2)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_with_many_normal_cases_it_is_the_test_of_a_chi_square(rng):
    """Known mean and covariance: the distance has a noncentral chi-square."""
    reference = rng.normal(size=(400, 3))
    group = Group(reference[0], reference)
    (found,) = detectable_shifts([group], false_alarms=0.05)
    threshold = stats.chi2.ppf(0.95, 3)
    square = optimize.brentq(lambda s: stats.ncx2.sf(threshold, 3, s) - 0.8, 0.1, 99)
    assert found == pytest.approx(np.sqrt(square), rel=0.12)


@pytest.mark.nightly
def test_more_features_hide_a_shift_and_many_hide_every_shift(rng):
    few, many = rng.normal(size=(24, 1)), rng.normal(size=(24, 120))
    shifts = [
        detectable_shifts([Group(a[0], a)], false_alarms=0.05)[0] for a in (few, many)
    ]
    assert shifts[0] < 5
    assert shifts[1] == np.inf


def test_shifts_that_nobody_can_notice_are_refused(rng):
    reference = rng.normal(size=(18, 2))
    several = [Group(reference[0], reference)]
    with value_error("18 reference cases are too few .* 19"):
        detectable_shifts(several, false_alarms=0.05)
    for power in (0.0, 1.0):
        with value_error("power=.* inside"):
            detectable_shifts(several, false_alarms=0.2, power=power)
    with value_error("at least one group"):
        detectable_shifts([], false_alarms=0.2)
