"""Softmax attention to projected keys."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from tests import oracles as shared
from tests import refused
from tests.attention import oracles


@pytest.fixture
def projections(rng):
    return tuple(rng.normal(size=(11, 5)) / 3 for _ in range(2))


def linformer(query, key, value, first, second, weights=None):
    weights = np.ones(len(key)) if weights is None else weights

    def integrals(columns, fields):
        return np.array(
            [
                sum(w * e * f for w, e, f in zip(weights, column, fields, strict=True))
                for column in columns.T
            ]
        )

    return oracles.softmax_attention(
        query, integrals(first, key), integrals(second, value)
    )


def attend(q, k, v, first, second, weights=None):
    return opjax.linformer_attention(
        q, k, v, key_projection=first, value_projection=second, key_weights=weights
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_values_and_gradients_match_the_oracle(
    points, projections, key_weights, weighted
):
    args = (*points, *projections, *([key_weights] if weighted else []))
    oracles.check_case(attend, linformer, args)


def test_identity_projections_leave_softmax_attention(points):
    actual = attend(*points, np.eye(11), np.eye(11))
    assert_allclose(actual, opjax.softmax_attention(*points), rtol=1e-12)


def test_functions_as_projections_make_basis_attention(points, key_weights, rng):
    functions = rng.normal(size=(11, 5))
    actual = attend(*points, functions, functions, key_weights)
    expected = opjax.basis_attention(
        opjax.softmax_attention,
        *points,
        np.eye(7),
        functions,
        key_weights=key_weights,
        projection=opjax.InnerProducts(),
    )
    assert_allclose(actual, expected, rtol=1e-12)


def test_zero_weights_remove_points(points, projections, key_weights):
    def attention(q, k, v, key_weights):
        rows = [np.array(e) for e in projections]
        for e in rows:
            e[[2, 5, 9]] = np.nan
        if len(k) < 11:
            rows = [e[[0, 1, 3, 4, 6, 7, 8, 10]] for e in rows]
        return attend(q, k, v, *rows, key_weights)

    oracles.check_zero_weights_remove_points(attention, *points, key_weights)


def test_attention_to_no_point_is_zero(points, projections):
    names = dict(zip(("key_projection", "value_projection"), projections, strict=True))
    attention = functools.partial(opjax.linformer_attention, **names)
    oracles.check_all_masked_is_zero(attention, *points)


def test_points_may_be_permuted_with_their_projections(points, projections, rng):
    q, k, v = points
    first, second = projections
    i, j = rng.permutation(7), rng.permutation(11)
    actual = attend(q[i], k[j], v[j], first[j], second[j])
    assert_allclose(actual, attend(*points, *projections)[i], rtol=1e-10)
    # The projections belong to the order of the points.
    moved = attend(q, k[j], v[j], first, second)
    assert np.max(np.abs(moved - attend(*points, *projections))) > 1e-2


def test_functions_as_projections_converge_under_refinement():
    def attention(q, k, v, key_weights):
        x = np.linspace(0, 1, len(k))
        functions = shared.fourier_axis(x, 2, 1.0)
        return attend(q, k, v, functions, functions, key_weights)

    oracles.check_refinement(attention)


def test_half_precision_keeps_its_dtype(points, projections):
    args = [jnp.asarray(a, jnp.bfloat16) for a in (*points, *projections)]
    assert attend(*args).dtype == jnp.bfloat16


def test_bad_input_is_named_in_the_error(points, projections):
    q, k, v = points
    first, second = projections
    refused.each(
        (
            lambda: attend(q, k, v, first[1:], second),
            r"points.*key_projection \(10, 5\)",
        ),
        (
            lambda: attend(q, k, v, first, second[:, 1:]),
            r"projected points.*value_proj.* \(11, 4\)",
        ),
        (
            lambda: attend(q, k, v, first, second.astype(int)),
            "value_projection has dtype int64",
        ),
        (
            lambda: attend(q, k, v, first, second, np.ones(7)),
            r"key_weights \(7,\), key \(11, 4\)",
        ),
    )
