"""Likeness by several groups: waves over points, noise, the theorem, bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from numpy.testing import assert_allclose, assert_array_equal

from opjax.uncertainty import Group, alarm_margin, likeness_of_groups, wave_means
from tests.refused import value_error
from tests.selection import by_day

DTYPES = by_day(["float32", "float64"], ["float64"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_waves_are_those_of_numpy_whatever_is_masked(dtype, rng):
    points, waves = rng.normal(size=(11, 2)).astype(dtype), rng.normal(size=(2, 9))
    weights = (rng.random(11) * (np.arange(11) % 3 > 0)).astype(dtype)
    kept = weights > 0
    phase = points[kept] @ waves
    expected = np.concatenate(
        [np.average(f(phase), axis=0, weights=weights[kept]) for f in (np.cos, np.sin)]
    )
    points[~kept] = np.nan
    found = wave_means(points, waves, quadrature_weights=weights)
    assert found.dtype == dtype
    assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    bare = wave_means(points[kept], waves)
    plain = np.concatenate([np.cos(phase).mean(axis=0), np.sin(phase).mean(axis=0)])
    assert_allclose(bare, plain, rtol=1e-4, atol=1e-6)


def test_waves_have_the_gradients_of_their_formula(rng):
    points, waves, weights = (
        rng.normal(size=(6, 2)),
        rng.normal(size=(2, 3)),
        np.ones(6),
    )

    def means(points, waves):
        return wave_means(points, waves, quadrature_weights=weights)

    found = jax.jit(jax.grad(lambda x: means(x, waves)[1]))(points)
    expected = -np.sin(points @ waves[:, 1])[:, None] * waves[:, 1] / 6
    assert_allclose(found, expected, rtol=1e-9)
    check_grads(means, (points, waves), order=1, modes=["rev"])


def test_waves_of_a_finer_mesh_converge_to_the_transform_of_the_domain():
    """On the interval (0, 1): sin(a) / a and (1 - cos(a)) / a."""
    a = 3.0
    errors = []
    for n in (32, 64, 128):
        x = ((np.arange(n) + 0.5) / n)[:, None]
        found = wave_means(x, np.asarray([[a]]))
        errors.append(np.abs(found - np.asarray([np.sin(a), 1 - np.cos(a)]) / a).max())
    assert_allclose(np.divide(errors[:2], errors[1:]), 4, rtol=0.01)


def left_out(features, noise, count, ridge):
    """Distances from the others, by an inverse for each case."""
    own = features[:count]
    excess = np.maximum(noise - np.median(noise[:count]), 0)[:, None]
    scale = np.sqrt(own.var(axis=0) + 1e-4 + excess)
    z = (features - own.mean(axis=0)) / scale
    total = z[:count].T @ z[:count]
    found = []
    for i, row in enumerate(z):
        known = total - np.outer(row, row) if i < count else total
        system = known / count + ridge * np.eye(len(row))
        found.append(np.sqrt(row @ np.linalg.solve(system, row)))
    return np.asarray(found)


def score(distances, count):
    logs = np.log(distances + 0.1)
    own = logs[:count]
    return (logs - np.median(own)) / np.sqrt(own.var() + 0.02**2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_likeness_of_groups_is_that_of_the_definition(dtype, rng):
    sizes, count, ridge = (3, 30), 20, 0.2
    noise = rng.random(count + 1)
    features = [rng.normal(size=(count + 1, f)).astype(dtype) for f in sizes]
    features[1][-1] *= 3
    groups = [
        Group(a[-1], a[:-1], scale * noise[-1], scale * noise[:-1])
        for a, scale in zip(features, (0.0, 1.0), strict=True)
    ]
    found = likeness_of_groups(groups, ridge=ridge)
    both = list(zip(features, (0 * noise, noise), strict=True))
    each = [score(left_out(a, v, count + 1, ridge), count + 1) for a, v in both]
    together = np.max(each, axis=0)
    assert found.group == np.argmax([s[-1] for s in each])
    assert_allclose(found.p_value, np.mean(together >= together[-1]))
    apart = [left_out(a, v, count, ridge) for a, v in both]
    scores = [score(e, count)[-1] for e in apart]
    place = int(np.argmax(scores))
    assert found.group == place == 1
    assert_allclose(found.score, scores[place], rtol=2e-3)
    ratio = apart[place][-1] / np.median(apart[place][:-1])
    assert_allclose(found.distance, ratio, rtol=2e-3)


def test_limits_add_how_far_features_lie_beyond_them(rng):
    reference, new = rng.normal(size=(20, 2)), rng.normal(size=2)
    limits = np.asarray([[-1.0, -0.5], [1.0, 0.5]])

    def both(x):
        beyond = np.maximum(np.abs(x) - limits[1], 0)
        return np.concatenate([x, beyond / 10], axis=-1)

    found = likeness_of_groups([Group(new, reference, limits=limits)])
    expected = likeness_of_groups([Group(both(new), both(reference))])
    assert_allclose(found, expected, rtol=1e-9)


def test_a_case_beyond_the_limits_is_noticed_with_nineteen_others(rng):
    """Also if one of these is a little beyond, and others are compared by much else."""
    width = np.sqrt(12)  # of a uniform number of unit variance
    limits = np.asarray([[0.0] * 3, [width] * 3])
    seen = {True: 0, False: 0}
    for number in range(20):
        reference, new = (
            width * rng.random((19, 3)),
            width * np.asarray([0.5, 1.3, 0.5]),
        )
        reference[0, 0] = width * (1 + 0.01 * (number % 3))
        other = rng.normal(size=(20, 30))
        groups = [Group(other[0], other[1:]), Group(new, reference, limits=limits)]
        for limited in seen:
            groups[1] = groups[1]._replace(limits=limits if limited else None)
            found = likeness_of_groups(groups)
            seen[limited] += bool(found.p_value == 1 / 20)
    assert seen[True] == 20
    assert seen[False] < 15


def test_a_group_of_more_features_than_cases_is_not_blamed_for_others(rng):
    """A case that is left out of 20 is far away in 200 numbers, whatever it is like."""
    wide, few = rng.normal(size=(21, 200)), rng.normal(size=(21, 2))
    few[0] *= 20
    groups = [Group(a[0], a[1:]) for a in (wide, few)]
    found = likeness_of_groups(groups)
    assert found.p_value == 1 / 21
    assert found.group == 1
    assert found.distance > 5


def test_false_alarms_of_groups_are_as_rare_as_promised(rng):
    """Over 2000 draws of 21 exchangeable cases, of which every second is noisy."""
    noise = rng.integers(0, 2, (2000, 21)).astype(float)
    one = rng.standard_t(3, size=(2000, 21, 4)) * (1 + noise[..., None])
    limits = np.asarray([[-3.0] * 4, [3.0] * 4])  # some cases lie beyond
    two = rng.normal(size=(2000, 21, 24)) + one[..., :1]

    def p_value(one, two, noise):
        groups = [Group(a[0], a[1:], noise[0], noise[1:]) for a in (one, two)]
        groups[0] = groups[0]._replace(limits=limits)
        return likeness_of_groups(groups).p_value

    found = np.asarray(jax.jit(jax.vmap(p_value))(one, two, noise))
    for rate in (1 / 21, 0.1, 0.3):
        promised = np.floor(21 * rate + 1e-9) / 21
        assert_allclose(
            np.mean(found <= rate + 1e-9),
            promised,
            atol=4 * np.sqrt(promised * (1 - promised) / 2000),
        )


@pytest.mark.nightly
def test_the_order_of_cases_and_groups_does_not_matter(rng):
    reference, new = rng.normal(size=(15, 6)), 2 * rng.normal(size=6)
    order = rng.permutation(15)
    groups = [Group(new[:2], reference[:, :2]), Group(new[2:], reference[:, 2:])]
    moved = [Group(g.features, g.reference[order]) for g in groups[::-1]]
    one, other = map(likeness_of_groups, (groups, moved))
    assert_allclose(one[:3], other[:3], rtol=1e-9)
    assert one.group == 1 - other.group


def test_a_group_that_is_equal_in_all_cases_says_nothing(rng):
    """As waves over a mesh that all cases share, but for rounding."""
    reference, new = rng.normal(size=(30, 4)), rng.normal(size=4)
    same = 0.3 + 1e-8 * rng.normal(size=(31, 50))
    alone = likeness_of_groups([Group(new, reference)])
    groups = [Group(new, reference), Group(same[0], same[1:])]
    found = likeness_of_groups(groups)
    assert found.p_value == alone.p_value
    far = groups[:1] + [Group(same[0] + 0.1, same[1:])]
    found = likeness_of_groups(far)
    assert found.group == 1
    assert found.p_value == 1 / 31


@pytest.mark.nightly
def test_gradients_of_the_score_are_finite(rng):
    reference = rng.normal(size=(8, 3))

    @jax.jit
    def value(new):
        groups = [Group(new, reference), Group(new[:2], reference[:, :2])]
        return likeness_of_groups(groups).score

    check_grads(value, (rng.normal(size=3),), order=1, modes=["rev"])
    assert np.isfinite(jax.grad(value)(jnp.mean(reference, axis=0))).all()


def test_not_a_number_is_passed_on(rng):
    reference = rng.normal(size=(6, 2))
    found = likeness_of_groups([Group(np.full(2, np.nan), reference)])
    assert np.isnan(found.p_value)
    assert np.isnan(found.score)


def test_bad_input_is_refused(rng):
    reference, new = rng.normal(size=(6, 2)), np.ones(2)
    several = likeness_of_groups
    with value_error("at least one group"):
        several([])
    with value_error(r"groups have \[5, 6\] reference cases"):
        several([Group(new, reference), Group(new, reference[1:])])
    with value_error(r"features of group 0 has shape \(3,\)"):
        several([Group(np.ones(3), reference)])
    with value_error("noise and reference_noise of group 0"):
        several([Group(new, reference, 0.0, np.ones(3))])
    with value_error("limits of group 0 has shape"):
        several([Group(new, reference, limits=np.ones((2, 3)))])
    with pytest.raises(TypeError, match="features"):
        several([Group(np.ones(2, int), reference)])
    with value_error("ridge"):
        several([Group(new, reference)], ridge=0.0)
    with value_error("waves has shape"):
        wave_means(reference, np.ones((3, 4)))
    with pytest.raises(TypeError, match="points"):
        wave_means(np.ones((3, 2), int), np.ones((2, 4)))


def test_the_margin_is_positive_exactly_where_there_is_an_alarm(rng):
    reference = rng.normal(size=(39, 3))
    same = Group(np.ones(3), reference)

    def alarms(size):
        groups = [same._replace(features=size * np.ones(3)), same]
        p_value = likeness_of_groups(groups).p_value
        margins = [alarm_margin(groups, false_alarms=rate) for rate in (0.05, 0.1)]
        return p_value, jnp.stack(margins)

    p_values, margins = jax.jit(jax.vmap(alarms))(np.linspace(1, 4, 13))
    expected = np.asarray(p_values)[:, None] <= np.array([0.05, 0.1])
    assert_array_equal(margins > 0, expected)
    with value_error("39 reference cases are too few"):
        alarm_margin([same], false_alarms=0.01)
