"""Every check passes good input, and names the culprit in bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from opjax import _checks
from tests import refused

GOOD = {
    "floating": lambda: _checks.floating(a=np.ones(2), b=jnp.ones(2, jnp.bfloat16)),
    "rank": lambda: _checks.rank(2, a=np.ones((2, 3)), b=np.ones((1, 1))),
    "points": lambda: _checks.same_points(a=np.ones((2, 3)), b=np.ones(2)),
    "channels": lambda: _checks.same_channels(a=np.ones((2, 3)), b=np.ones((4, 3))),
    "basis": lambda: _checks.same_basis(a=np.ones((2, 3)), b=np.ones((2, 1))),
    "zero": lambda: _checks.non_negative(ridge=0.0, offset=jnp.zeros(())),
    "positive": lambda: _checks.positive(temperature=1e-9),
    "at most": lambda: _checks.at_most(1, ridge=1.0),
    "option": lambda: _checks.option("rule", "a", ("a", "b")),
}

BAD = {
    "integers": (
        lambda: _checks.floating(good=np.ones(2), culprit=np.ones(2, int)),
        TypeError,
        r"culprit has dtype int64.*jnp\.asarray\(culprit, jnp\.float32\)",
    ),
    "complex numbers": (
        lambda: _checks.floating(culprit=np.ones(2, complex)),
        TypeError,
        "culprit has dtype complex128",
    ),
    "a batch": (
        lambda: _checks.rank(2, good=np.ones((2, 3)), culprit=np.ones((5, 2, 3))),
        ValueError,
        r"culprit has shape \(5, 2, 3\), expected 2 axes.*jax\.vmap",
    ),
    "points": (
        lambda: _checks.same_points(left=np.ones((2, 3)), right=np.ones((4, 3))),
        ValueError,
        r"points \(axis 0\): left \(2, 3\), right \(4, 3\)",
    ),
    "channels": (
        lambda: _checks.same_channels(left=np.ones((2, 3)), right=np.ones((2, 4))),
        ValueError,
        r"channels \(axis 1\): left \(2, 3\), right \(2, 4\)",
    ),
    "basis functions": (
        lambda: _checks.same_basis(left=np.ones((2, 3)), right=np.ones((4, 3))),
        ValueError,
        r"basis functions \(axis 0\): left \(2, 3\), right \(4, 3\)",
    ),
    "negative": (
        lambda: _checks.non_negative(good=1.0, culprit=-1e-9),
        ValueError,
        "culprit=-1e-09 must be non-negative",
    ),
    "one negative of several": (
        lambda: _checks.non_negative(culprit=np.array([1.0, -2.0])),
        ValueError,
        "culprit=.*-2.* must be non-negative",
    ),
    "NaN": (
        lambda: _checks.non_negative(culprit=float("nan")),
        ValueError,
        "culprit=nan must be non-negative and finite",
    ),
    "infinite": (
        lambda: _checks.non_negative(culprit=float("inf")),
        ValueError,
        "culprit=inf must be non-negative and finite",
    ),
    "zero": (
        lambda: _checks.positive(culprit=0.0),
        ValueError,
        "culprit=0.0 must be positive",
    ),
    "infinitely positive": (
        lambda: _checks.positive(culprit=float("inf")),
        ValueError,
        "culprit=inf must be positive and finite",
    ),
    "too large": (
        lambda: _checks.at_most(1, good=0.5, culprit=1.5),
        ValueError,
        "culprit=1.5 must be at most 1",
    ),
    "unknown option": (
        lambda: _checks.option("rule", "simpson", ("midpoint", "trapezoid")),
        ValueError,
        "rule='simpson' is unknown; choose from 'midpoint', 'trapezoid'",
    ),
}


@pytest.mark.parametrize("case", GOOD)
def test_good_input_passes(case):
    GOOD[case]()


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_the_error(case):
    call, error, message = BAD[case]
    with pytest.raises(error, match=message):
        call()


def test_shapes_and_dtypes_are_checked_under_jit():
    def check(left, right):
        _checks.floating(left=left)
        _checks.same_points(left=left, right=right)
        return left

    refused.each(
        (
            lambda: jax.jit(check)(jnp.ones(2), jnp.ones(3)),
            r"left \(2,\), right \(3,\)",
        ),
        (lambda: jax.jit(check)(jnp.ones(2, int), jnp.ones(2)), "left has dtype int64"),
    )


def test_traced_numbers_are_not_checked():
    def check(number):
        _checks.non_negative(number=number)
        _checks.positive(number=number)
        _checks.at_most(-2, number=number)
        return number

    assert jax.jit(check)(-1.0) == -1
    with pytest.raises(ValueError, match="number=-1.0"):
        check(-1.0)
