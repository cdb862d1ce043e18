"""Attention among coefficients: any attention in any basis."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import opjax
from tests import oracles as shared
from tests import refused
from tests.attention import oracles

M, N, KQ, KK = 7, 11, 3, 5
ATTENTIONS = {
    "softmax": opjax.softmax_attention,
    "galerkin": opjax.galerkin_attention,
    "fourier": opjax.fourier_attention,
    "linear": opjax.linear_attention,
    "transport": functools.partial(opjax.transport, ridge=0.1),
}


@pytest.fixture
def bases(rng):
    """Returns positive basis functions at the query and at the mesh points."""
    return rng.uniform(0.5, 1.5, (M, KQ)), rng.uniform(0.5, 1.5, (N, KK))


@pytest.fixture
def weights(rng):
    return rng.uniform(0.5, 1.5, M), rng.uniform(0.5, 1.5, N)


def physics(query, key, value, phi, psi, query_weights=None, key_weights=None):
    q = shared.project(query, phi, query_weights, method="mean")
    k = shared.project(key, psi, key_weights, method="mean")
    v = shared.project(value, psi, key_weights, method="mean")
    return phi @ oracles.softmax_attention(q, k, v)


def test_values_and_gradients_match_the_oracle(points, bases):
    oracles.check_case(opjax.physics_attention, physics, (*points, *bases))


def test_weighted_values_and_gradients_match_the_oracle(points, bases, weights):
    def weighted(*args):
        *arrays, query_weights, key_weights = args
        return opjax.physics_attention(
            *arrays, query_weights=query_weights, key_weights=key_weights
        )

    oracles.check_case(weighted, physics, (*points, *bases, *weights))


ATTENTIONS_OF_VALUES = {
    "functional": functools.partial(opjax.functional_attention, ridge=0.1),
    "means": functools.partial(
        opjax.functional_attention, ridge=0.1, projection=opjax.Means()
    ),
    "physics": opjax.physics_attention,
    "linear": lambda q, k, v, phi, psi: opjax.linear_attention(q, k, v),
    "softmax": lambda q, k, v, phi, psi: opjax.softmax_attention(q, k, v),
}


@pytest.mark.parametrize("name", ATTENTIONS_OF_VALUES)
def test_attention_is_linear_in_the_values(points, bases, name):
    query, key, value = map(jnp.asarray, points)

    def attend(value):
        return ATTENTIONS_OF_VALUES[name](query, key, value, *bases)

    image, pullback = jax.vjp(attend, value)
    (transposed,) = jax.linear_transpose(attend, value)(jnp.sin(image))
    assert_allclose(transposed, pullback(jnp.sin(image))[0], rtol=1e-12)


PROJECTIONS = [opjax.InnerProducts(), opjax.Means(), opjax.LeastSquares(0.2)]


@pytest.mark.nightly
@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_transport_among_coefficients_is_functional_attention(
    points, bases, weights, projection
):
    options = {
        "query_weights": weights[0],
        "key_weights": weights[1],
        "projection": projection,
    }
    actual = opjax.basis_attention(ATTENTIONS["transport"], *points, *bases, **options)
    expected = opjax.functional_attention(*points, *bases, ridge=0.1, **options)
    assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_every_attention_works_in_every_projection(points, bases, name, projection):
    q, k, v = points
    phi, psi = bases
    options = {"projection": projection}
    coefficients = (
        opjax.project(q, phi, **options),
        opjax.project(k, psi, **options),
        opjax.project(v, psi, **options),
    )
    actual = opjax.basis_attention(
        ATTENTIONS[name], *points, *bases, projection=projection
    )
    expected = phi @ ATTENTIONS[name](*coefficients)
    assert_allclose(actual, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_indicators_of_single_points_leave_the_attention_as_it_is(points, name):
    actual = opjax.basis_attention(
        ATTENTIONS[name],
        *(*points, np.eye(M), np.eye(N)),
        projection=opjax.InnerProducts(),
    )
    assert_allclose(actual, ATTENTIONS[name](*points), rtol=1e-10)


def test_physics_attention_of_single_points_is_softmax_attention(points):
    actual = opjax.physics_attention(*points, np.eye(M), np.eye(N))
    expected = opjax.softmax_attention(*points)
    assert_allclose(actual, expected, rtol=1e-3)  # its offset is 1e-5
    assert np.max(np.abs(actual - expected)) > 0


def test_order_of_points_is_irrelevant(points, bases, weights, rng):
    (q, k, v), (phi, psi), (wq, wk) = points, bases, weights
    i, j = rng.permutation(M), rng.permutation(N)
    expected = opjax.physics_attention(
        *points, *bases, query_weights=wq, key_weights=wk
    )
    actual = opjax.physics_attention(
        q[i], k[j], v[j], phi[i], psi[j], query_weights=wq[i], key_weights=wk[j]
    )
    assert_allclose(actual, expected[i], rtol=1e-10)


def test_zero_weights_remove_points(points, bases, weights):
    phi, psi = bases

    def attention(q, k, v, key_weights):
        # The basis of masked points may be NaN too; the first rows stay.
        rows = np.array(psi)
        if len(k) < N:
            rows = rows[[0, 1, 3, 4, 6, 7, 8, 10]]
        else:
            rows[[2, 5, 9]] = np.nan
        return opjax.physics_attention(q, k, v, phi, rows, key_weights=key_weights)

    oracles.check_zero_weights_remove_points(attention, *points, weights[1])


def test_masked_queries_do_no_harm(points, bases, weights):
    (q, k, v), (phi, psi), (wq, _) = points, bases, weights
    kept = wq.copy()
    kept[-2:] = 0
    padded = q.copy()
    padded[-2:] = np.nan
    actual = opjax.physics_attention(padded, k, v, phi, psi, query_weights=kept)
    expected = opjax.physics_attention(
        q[:-2], k, v, phi[:-2], psi, query_weights=kept[:-2]
    )
    assert_allclose(actual[:-2], expected, rtol=1e-10)


@pytest.mark.nightly
def test_refinement_converges_at_the_order_of_the_quadrature():
    def attention(q, k, v, key_weights):
        x = np.linspace(0, 1, len(k))
        psi = shared.softmax_rows(np.stack([x, np.sin(3 * x), 1 - x**2], axis=1))
        phi = psi[:: (len(k) - 1) // 8]
        return opjax.physics_attention(q, k, v, phi, psi, key_weights=key_weights)

    oracles.check_refinement(attention)


def test_bad_input_is_named_in_the_error(points, bases):
    q, k, v = points
    phi, psi = bases
    attend = functools.partial(opjax.basis_attention, opjax.softmax_attention)
    refused.each(
        (
            lambda: attend(q, k, v, phi[1:], psi),
            r"query \(7, 4\), query_basis \(6, 3\)",
        ),
        (lambda: attend(q, k, v, phi, psi[1:]), r"key \(11, 4\).*key_basis \(10, 5\)"),
        (
            lambda: attend(q, k, v, phi, psi, key_weights=np.ones(M)),
            r"key \(11, 4\), key_weights \(7,\)",
        ),
        (lambda: attend(q, k, v, phi, psi.astype(int)), "key_basis has dtype int64"),
        (
            lambda: opjax.basis_attention(lambda q, k, v: v, q, k, v, phi, psi),
            "Different numbers of basis functions",
        ),
    )
    refused.each(
        (
            lambda: attend(q, k, v, phi, psi, projection="median"),
            r"'median' is a string.*opjax.Means\(\)",
        ),
        (
            lambda: attend(
                q, k, v, phi, psi, projection=lambda moments: moments.integrals
            ),
            "no needs_gram, needs_one_sign, weights",
        ),
        error=TypeError,
    )
