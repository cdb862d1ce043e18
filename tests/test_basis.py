"""Basis families, projections and their properties."""

import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax import basis
from tests import oracles
from tests.selection import by_day

OFFSET = 0.1  # large enough to show in a gradient


def fourier_oracle(points):
    axes = zip(points.T, (2, 0), (1.5, 2.0), strict=True)
    return oracles.tensor_product([oracles.fourier_axis(*axis) for axis in axes])


def hat_oracle(points):
    axes = zip(points.T, (4, 3), (-0.5, 0), (1.0, 2.0), strict=True)
    return oracles.tensor_product([oracles.hat_axis(*axis) for axis in axes])


def noisy_oracle(scores, temperature, uniform):
    noise = [[-math.log(-math.log(u + 1e-8) + 1e-8) for u in row] for row in uniform]
    rows = zip(scores + np.array(noise), temperature, strict=True)
    return np.concatenate([oracles.softmax_rows([row], t) for row, t in rows])


# By the oracle's name.
PROJECTIONS = {
    "transpose": opjax.InnerProducts(),
    "mean": opjax.Means(OFFSET),
    "pseudo_inverse": opjax.LeastSquares(0.2),
}


def projection(method):
    def function(values, phi, weights):
        return opjax.project(
            values, phi, projection=PROJECTIONS[method], quadrature_weights=weights
        )

    def oracle(values, phi, weights):
        options = {"method": method, "ridge": 0.2, "offset": OFFSET}
        return oracles.project(values, phi, weights, **options)

    return function, oracle


def normal(*shape):
    return lambda rng: rng.normal(size=shape)


def positive(*shape):
    return lambda rng: rng.uniform(0.5, 1.5, shape)


def orthonormalization(method):
    return lambda phi, w: opjax.orthonormalize(phi, quadrature_weights=w, method=method)


# Name: function, oracle, makers of its arguments.
CASES = {
    "softmax": (
        lambda s, t: opjax.softmax_basis(s, temperature=t),
        oracles.softmax_rows,
        (normal(6, 4), positive()),
    ),
    "softmax with noise": (
        lambda s, t, u: opjax.softmax_basis(s, temperature=t, uniform=u),
        noisy_oracle,
        (normal(6, 4), positive(6), lambda rng: rng.uniform(0.05, 0.95, (6, 4))),
    ),
    "fourier": (
        lambda x: opjax.fourier_basis(x, num_frequencies=(2, 0), lengths=(1.5, 2)),
        fourier_oracle,
        (positive(6, 2),),
    ),
    "hat": (
        lambda x: opjax.hat_basis(
            x, num_nodes=(4, 3), lower=(-0.5, 0.0), upper=(1.0, 2.0)
        ),
        hat_oracle,
        (lambda rng: rng.uniform(0.02, 0.98, (6, 2)),),
    ),
    "gram": (
        lambda phi, w: opjax.gram(phi, quadrature_weights=w),
        oracles.gram,
        (normal(6, 3), positive(6)),
    ),
    "qr": (
        orthonormalization("qr"),
        oracles.gram_schmidt,
        (normal(6, 3), positive(6)),
    ),
    "cholesky": (
        orthonormalization("cholesky"),
        oracles.gram_schmidt,
        (normal(6, 3), positive(6)),
    ),
    **{
        method: (*projection(method), (normal(6, 2), positive(6, 3), positive(6)))
        for method in PROJECTIONS
    },
    "reconstruct": (
        opjax.reconstruct,
        lambda c, phi: np.einsum("kd,nk->nd", c, phi),
        (normal(3, 2), normal(6, 3)),
    ),
}


@pytest.fixture(params=CASES)
def case(request, rng):
    function, oracle, makers = CASES[request.param]
    return function, oracle, [np.asarray(make(rng)) for make in makers]


def test_value_and_gradient_match_the_oracle(case):
    oracles.check(*case)


@pytest.mark.parametrize("case", by_day(CASES, list(CASES)[::4]), indirect=True)
def test_jit_vmap_and_single_precision_agree(case):
    function, _, args = case
    oracles.check_transforms(function, args, rtol32=1e-3)


@pytest.mark.parametrize("method", PROJECTIONS)
def test_no_weights_are_weights_of_one(rng, method):
    values, phi = rng.normal(size=(6, 2)), rng.uniform(0.5, 1.5, (6, 3))
    one, kind = np.ones(6), PROJECTIONS[method]
    weighted = opjax.project(values, phi, projection=kind, quadrature_weights=one)
    unweighted = opjax.project(values, phi, projection=kind)
    assert_allclose(unweighted, weighted, rtol=1e-12)
    weighted = opjax.gram(phi, quadrature_weights=one)
    assert_allclose(opjax.gram(phi), weighted, rtol=1e-12)


# families


@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_softmax_basis_is_a_partition_of_unity(rng, temperature):  # Prop. 4.3 (i)
    phi = opjax.softmax_basis(rng.normal(size=(20, 5)), temperature=temperature)
    assert np.all(np.asarray(phi) >= 0)
    assert_allclose(np.sum(phi, axis=1), np.ones(20), rtol=1e-14)


def test_softmax_basis_tends_to_the_indicators_at_the_rate_of_the_gap(rng):
    # Prop. 4.3 (ii) with the rate of Eq. 14 and 17: the error decays as exp(-gap / t).
    scores = rng.normal(size=(20, 4))
    indicators = opjax.indicator_basis(scores)
    best, second = np.sort(scores, axis=1)[:, [-1, -2]].T
    gap = best - second
    for temperature in (0.2, 0.1, 0.05):
        phi = opjax.softmax_basis(scores, temperature=temperature)
        error = np.max(np.abs(phi - indicators), axis=1)
        leading = np.exp(-gap / temperature)
        assert np.all(error <= 3 * leading)  # at most k - 1 equal competitors
        assert np.all(error >= leading / (1 + 3 * leading) * (1 - 1e-6))
    assert np.max(error[gap > 1]) < 1e-8


def test_equal_noise_at_a_point_cancels(rng):
    scores, temperature = rng.normal(size=(20, 4)), rng.uniform(0.1, 2, 20)
    uniform = np.broadcast_to(rng.uniform(size=(20, 1)), (20, 4))
    noisy = opjax.softmax_basis(scores, temperature=temperature, uniform=uniform)
    plain = opjax.softmax_basis(scores, temperature=temperature)
    assert_allclose(noisy, plain, rtol=1e-12)


def test_the_largest_noisy_score_is_drawn_with_the_probability_of_the_softmax(rng):
    scores = np.broadcast_to([1.0, 0.0, -1.0, 0.5], (20_000, 4))
    uniform = rng.uniform(size=scores.shape)
    noisy = opjax.softmax_basis(scores, temperature=1e-3, uniform=uniform)
    (expected,) = oracles.softmax_rows(scores[:1])
    # Deviations of the frequencies are at most 0.0035.
    assert_allclose(np.mean(noisy, axis=0), expected, atol=0.015)


def test_extreme_draws_in_single_precision_are_finite():
    uniform = np.array([[0, 1 - 2**-24, 0.5]], np.float32)
    noisy = opjax.softmax_basis(np.zeros((1, 3), np.float32), uniform=uniform)
    assert np.all(np.isfinite(noisy))
    assert noisy[0, 1] > 1 - 1e-6


def test_indicator_basis_marks_the_largest_score_without_gradient(rng):
    scores = rng.normal(size=(6, 4))
    scores[0] = 1.0  # a tie goes to the smallest index
    actual = opjax.indicator_basis(scores)
    assert_array_equal(actual, oracles.indicator_rows(scores))
    gradient = jax.jit(jax.grad(lambda s: jnp.sum(opjax.indicator_basis(s) * s[::-1])))(
        jnp.asarray(scores)
    )
    assert_array_equal(gradient, oracles.indicator_rows(scores)[::-1])
    assert opjax.indicator_basis(scores.astype(np.float32)).dtype == jnp.float32
    batch = np.stack([scores, -scores])
    loop = [oracles.indicator_rows(s) for s in batch]
    assert_array_equal(jax.jit(jax.vmap(opjax.indicator_basis))(batch), loop)


def test_fourier_basis_is_orthonormal_on_a_periodic_grid():
    shape, lengths = (7, 6), (2.0, 0.5)
    axes = [np.arange(n) * length / n for n, length in zip(shape, lengths, strict=True)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    phi = opjax.fourier_basis(points, num_frequencies=(3, 2), lengths=lengths)
    weights = opjax.grid_weights(shape, lengths=lengths, rule="periodic")
    gram = opjax.gram(phi, quadrature_weights=weights)
    assert_allclose(gram, np.eye(35), atol=1e-13)


def test_fourier_basis_of_no_frequency_is_the_constant():
    actual = opjax.fourier_basis(np.ones((3, 1)), num_frequencies=0, lengths=(4.0,))
    assert_allclose(actual, np.full((3, 1), 0.5))


def test_families_take_one_number_a_sequence_or_an_array(rng):
    points = rng.uniform(size=(5, 2))
    for family, option in [
        (opjax.fourier_basis, "num_frequencies"),
        (opjax.hat_basis, "num_nodes"),
    ]:
        number, sequence = (
            family(points, **{option: 2}),
            family(points, **{option: [2, 2]}),
        )
        array = family(points, **{option: np.array([2, 2])})
        assert_array_equal(number, sequence)
        assert_array_equal(number, array)


def test_hat_basis_is_a_partition_of_unity_that_interpolates_linear_functions(rng):
    lower, upper, nodes = (0.0, -1.0), (2.0, 1.0), (3, 5)
    axes = [np.linspace(*box) for box in zip(lower, upper, nodes, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    points = rng.uniform(lower, upper, (40, 2))
    hats = {"num_nodes": nodes, "lower": lower, "upper": upper}
    phi = opjax.hat_basis(points, **hats)
    assert_allclose(np.sum(phi, axis=1), np.ones(40), rtol=1e-12)
    assert_allclose(phi @ grid, points, atol=1e-12)
    assert_allclose(opjax.hat_basis(grid, **hats), np.eye(15), atol=1e-12)


def test_hat_basis_is_constant_beyond_the_box():
    actual = opjax.hat_basis(np.array([[-3.0], [7.0]]), num_nodes=3)
    assert_array_equal(actual, [[1, 0, 0], [0, 0, 1]])


# gram and orthonormalize


def test_gram_is_symmetric_and_positive_definite(rng):
    gram = opjax.gram(rng.normal(size=(9, 4)), quadrature_weights=rng.uniform(size=9))
    assert_allclose(gram, gram.T, rtol=1e-12)
    assert np.min(np.linalg.eigvalsh(gram)) > 1e-3


def test_orthonormal_functions_have_the_derivatives_of_their_factorisation(rng):
    phi, change = rng.normal(size=(2, 9, 3))
    signs = jnp.sign(jnp.diagonal(jnp.linalg.qr(phi)[1]))[None, :]
    found, expected = (
        jax.jvp(function, (jnp.asarray(phi),), (jnp.asarray(change),))[1]
        for function in (opjax.orthonormalize, lambda a: jnp.linalg.qr(a)[0] * signs)
    )
    assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_derivatives_of_dependent_functions_are_finite(value):
    phi = jnp.full((9, 3), value)
    gradient = jax.jit(jax.grad(lambda a: jnp.sum(jnp.sin(opjax.orthonormalize(a)))))(
        phi
    )
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("method", basis.ORTHONORMALIZATIONS)
def test_orthonormal_bases_span_the_same_space(rng, method):
    phi, weights = rng.normal(size=(9, 4)), rng.uniform(0.1, 1, 9)
    q = opjax.orthonormalize(phi, quadrature_weights=weights, method=method)
    gram = opjax.gram(q, quadrature_weights=weights)
    assert_allclose(gram, np.eye(4), atol=1e-12)
    coefficients = opjax.project(
        phi, q, projection=opjax.InnerProducts(), quadrature_weights=weights
    )
    assert_allclose(opjax.reconstruct(coefficients, q), phi, atol=1e-12)


@pytest.mark.parametrize("method", basis.ORTHONORMALIZATIONS)
def test_orthonormalize_ignores_points_of_zero_weight(rng, method):
    phi, weights = rng.normal(size=(9, 4)), rng.uniform(0.1, 1, 9)
    padded, zero = np.vstack([phi, np.full((2, 4), np.nan)]), np.append(weights, [0, 0])

    def moment(phi, weights):
        q = opjax.orthonormalize(phi, quadrature_weights=weights, method=method)
        return jnp.sum(q**3), q

    grad = jax.jit(jax.grad(moment, argnums=(0, 1), has_aux=True))
    (d_phi, d_weights), q = grad(jnp.asarray(phi), jnp.asarray(weights))
    (d_padded, d_zero), q_padded = grad(jnp.asarray(padded), jnp.asarray(zero))
    assert_allclose(q_padded[:9], q, atol=1e-12)
    assert_array_equal(q_padded[9:], np.zeros((2, 4)))
    assert_allclose(d_padded, np.pad(d_phi, ((0, 2), (0, 0))), atol=1e-11)
    assert_allclose(d_zero, np.pad(d_weights, (0, 2)), atol=1e-11)


@pytest.mark.nightly
@pytest.mark.parametrize("half", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_factorised_in_single_and_returned_in_half(rng, half):
    values, phi = rng.normal(size=(300, 2)), rng.uniform(0.5, 1.5, (300, 4))
    weights = rng.uniform(0.5, 1.5, 300).astype(np.float32)
    rounded = [a.astype(half) for a in (values, phi)]
    single = [a.astype(np.float32) for a in rounded]
    options = {
        "quadrature_weights": weights,
        "projection": opjax.LeastSquares(0.1),
    }
    actual, expected = (opjax.project(*a, **options) for a in (rounded, single))
    assert actual.dtype == half
    assert_array_equal(actual, np.asarray(expected).astype(half))
    for method in basis.ORTHONORMALIZATIONS:
        options = {"quadrature_weights": weights, "method": method}
        actual, expected = (
            opjax.orthonormalize(a[1], **options) for a in (rounded, single)
        )
        assert actual.dtype == half
        assert_array_equal(actual, np.asarray(expected).astype(half))


@pytest.mark.parametrize("method", PROJECTIONS)
def test_single_weights_keep_half_precision_values(rng, method):
    values, phi = (
        jnp.asarray(rng.uniform(0.5, 1.5, shape), jnp.bfloat16)
        for shape in ((9, 2), (9, 3))
    )
    weights = jnp.asarray(rng.uniform(0.5, 1.5, 9), jnp.float32)
    options = {"quadrature_weights": weights, "projection": PROJECTIONS[method]}
    actual = opjax.project(values, phi, **options)
    assert actual.dtype == jnp.bfloat16
    assert opjax.gram(phi, quadrature_weights=weights).dtype == jnp.bfloat16
    expected = opjax.project(*(a.astype(jnp.float32) for a in (values, phi)), **options)
    error = np.linalg.norm(np.asarray(actual, np.float32) - expected)
    assert error < 0.02 * np.linalg.norm(expected)


def test_inner_products_of_the_pseudo_inverse_have_the_highest_precision():
    one = jnp.ones((5, 2))
    jaxpr = jax.make_jaxpr(
        lambda values, phi: opjax.project(values, phi, projection=opjax.LeastSquares())
    )(one, one)
    products = [e for e in jaxpr.eqns if e.primitive.name == "dot_general"]
    highest = (jax.lax.Precision.HIGHEST,) * 2
    assert [e.params["precision"] for e in products] == [highest] * 2


# project and reconstruct


def test_transpose_projection_is_the_adjoint_of_reconstruction(rng):
    values, phi, weights = (
        rng.normal(size=(9, 2)),
        rng.normal(size=(9, 3)),
        rng.random(9),
    )
    coefficients = rng.normal(size=(3, 2))
    integrals = opjax.project(
        values, phi, projection=opjax.InnerProducts(), quadrature_weights=weights
    )
    left = np.sum(integrals * coefficients)
    right = np.sum(weights[:, None] * values * opjax.reconstruct(coefficients, phi))
    assert_allclose(left, right, rtol=1e-12)


def test_pseudo_inverse_inverts_reconstruction(rng):
    coefficients, phi, weights = (
        rng.normal(size=(3, 2)),
        rng.normal(size=(9, 3)),
        rng.random(9),
    )
    values = opjax.reconstruct(coefficients, phi)
    actual = opjax.project(
        values, phi, projection=opjax.LeastSquares(), quadrature_weights=weights
    )
    assert_allclose(actual, coefficients, rtol=1e-10)


def test_projections_agree_for_an_orthonormal_basis(rng):
    values, weights = rng.normal(size=(9, 2)), rng.uniform(0.1, 1, 9)
    phi = opjax.orthonormalize(rng.normal(size=(9, 3)), quadrature_weights=weights)
    transpose, inverse = (
        opjax.project(values, phi, projection=kind, quadrature_weights=weights)
        for kind in (opjax.InnerProducts(), opjax.LeastSquares())
    )
    assert_allclose(inverse, transpose, atol=1e-12)


def test_mean_of_a_constant_is_the_constant_and_scaling_weights_cancels(rng):
    phi, weights = rng.uniform(size=(9, 3)), rng.uniform(0.1, 1, 9)
    exact = opjax.Means(offset=0.0)
    actual = opjax.project(
        np.full((9, 1), 3.0), phi, projection=exact, quadrature_weights=weights
    )
    assert_allclose(actual, np.full((3, 1), 3.0), rtol=1e-12)
    values = rng.normal(size=(9, 2))
    expected, actual = (
        opjax.project(values, phi, projection=opjax.Means(OFFSET), quadrature_weights=w)
        for w in (weights, 7 * weights)
    )
    assert_allclose(actual, expected, rtol=1e-12)


def test_mean_of_an_empty_basis_function_or_a_masked_sample_is_zero(rng):
    values, phi = rng.normal(size=(9, 2)), rng.uniform(size=(9, 3))
    phi[:, 1] = 0
    means = functools.partial(opjax.project, values, phi, projection=opjax.Means())
    assert_array_equal(means()[1], np.zeros(2))
    masked = means(quadrature_weights=np.zeros(9))
    assert_array_equal(masked, np.zeros((3, 2)))


@pytest.mark.parametrize("method", PROJECTIONS)
def test_padded_projection_equals_unpadded_in_value_and_gradient(rng, method):
    function, _ = projection(method)
    args = rng.normal(size=(9, 2)), rng.uniform(0.5, 1.5, (9, 3)), rng.random(9)
    pad = [np.full((2, 2), np.nan), np.full((2, 3), np.nan), np.zeros(2)]
    padded = [np.concatenate(pair) for pair in zip(args, pad, strict=True)]

    def energy(*args):
        coefficients = function(*args)
        return jnp.sum(coefficients**3), coefficients

    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2), has_aux=True))
    gradients, coefficients = grad(*args)
    padded_gradients, padded_coefficients = grad(*padded)
    assert_allclose(padded_coefficients, coefficients, rtol=1e-10)
    for actual, expected in zip(padded_gradients, gradients, strict=True):
        assert_allclose(actual[:9], expected, rtol=1e-9, atol=1e-10)
        assert_array_equal(actual[9:], np.zeros_like(actual[9:]))


# errors

X, F, W = np.ones((5, 2)), np.ones((5, 3)), np.ones(5)
WHOLE = X.astype(int)
BAD = {
    "softmax dtype": (lambda: opjax.softmax_basis(WHOLE), "scores has dtype int64"),
    "softmax axes": (lambda: opjax.softmax_basis(W), r"scores has shape \(5,\)"),
    "temperature": (lambda: opjax.softmax_basis(X, temperature=0.0), "temperature=0.0"),
    "temperatures": (
        lambda: opjax.softmax_basis(X, temperature=W[1:]),
        r"scores \(5, 2\), temperature \(4,\)",
    ),
    "draws": (
        lambda: opjax.softmax_basis(X, uniform=X[:, 1:]),
        r"scores \(5, 2\), uniform \(5, 1\)",
    ),
    "draws dtype": (
        lambda: opjax.softmax_basis(X, uniform=WHOLE),
        "uniform has dtype int64",
    ),
    "indicator": (lambda: opjax.indicator_basis(WHOLE), "scores has dtype int64"),
    "indicator axes": (lambda: opjax.indicator_basis(W), r"scores has shape \(5,\)"),
    "frequencies": (
        lambda: opjax.fourier_basis(X, num_frequencies=(1, 2, 3)),
        r"num_frequencies=\(1, 2, 3\) must have one entry per axis; points have 2",
    ),
    "negative frequency": (
        lambda: opjax.fourier_basis(X, num_frequencies=-1),
        r"num_frequencies=\(-1, -1\) must be non-negative",
    ),
    "lengths": (
        lambda: opjax.fourier_basis(X, num_frequencies=1, lengths=(1.0,)),
        r"lengths=\(1.0,\) must have one entry per axis",
    ),
    "fourier dtype": (
        lambda: opjax.fourier_basis(WHOLE, num_frequencies=1),
        "mesh_points has dtype int64",
    ),
    "nodes": (lambda: opjax.hat_basis(X, num_nodes=1), r"num_nodes=\(1, 1\)"),
    "box": (
        lambda: opjax.hat_basis(X, num_nodes=2, lower=(0.0, 1.0)),
        r"lower=\(0.0, 1.0\) below upper=\(1.0, 1.0\)",
    ),
    "hat dtype": (
        lambda: opjax.hat_basis(WHOLE, num_nodes=2),
        "mesh_points has dtype int64",
    ),
    "gram dtype": (lambda: opjax.gram(WHOLE), "basis has dtype int64"),
    "gram points": (
        lambda: opjax.gram(X, quadrature_weights=W[1:]),
        r"points.*quadrature_weights \(4,\), basis \(5, 2\)",
    ),
    "integer weights": (
        lambda: opjax.gram(X, quadrature_weights=W.astype(int)),
        "quadrature_weights has dtype int64",
    ),
    "negative weights": (
        lambda: opjax.project(F, X, quadrature_weights=-W),
        "quadrature_weights=.* must be non-negative and finite",
    ),
    "orthonormal weights": (
        lambda: opjax.orthonormalize(X, quadrature_weights=-W),
        "quadrature_weights=.* must be non-negative and finite",
    ),
    "too few points": (
        lambda: opjax.orthonormalize(X[:1]),
        r"basis \(1, 2\): 1 points support at most 1 orthonormal functions",
    ),
    "factorisation": (
        lambda: opjax.orthonormalize(X, method="svd"),
        "method='svd'.*'qr', 'cholesky'",
    ),
    "project points": (
        lambda: opjax.project(F[1:], X),
        r"points.*values \(4, 3\), basis \(5, 2\)",
    ),
    "project dtype": (lambda: opjax.project(F, WHOLE), "basis has dtype int64"),
    "project weights": (
        lambda: opjax.project(F, X, quadrature_weights=W[:, None]),
        r"quadrature_weights has shape \(5, 1\)",
    ),
    "ridge": (
        lambda: opjax.project(F, X, projection=opjax.LeastSquares(-1.0)),
        "ridge=-1.0 must be non-neg",
    ),
    "offset": (
        lambda: opjax.project(F, X, projection=opjax.Means(-1.0)),
        "offset=-1.0 must be non-neg",
    ),
    "coefficients": (
        lambda: opjax.reconstruct(F, X),
        r"basis functions: coefficients \(5, 3\) \(axis 0\), basis \(5, 2\) \(axis 1\)",
    ),
    "reconstruct dtype": (
        lambda: opjax.reconstruct(np.ones((2, 1), int), X),
        "coefficients has dtype int64",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_in_the_error(case):
    call, message = BAD[case]
    with pytest.raises(TypeError if "dtype" in message else ValueError, match=message):
        call()


def test_moments_of_chunks_add_up(rng):
    values, phi = rng.normal(size=(9, 2)), rng.uniform(size=(9, 3))
    weights = rng.uniform(size=9)
    weights[4] = 0
    whole = opjax.moments(values, phi, quadrature_weights=weights, with_gram=True)
    parts = [
        opjax.moments(
            values[rows], phi[rows], quadrature_weights=weights[rows], with_gram=True
        )
        for rows in (slice(0, 4), slice(4, 9))
    ]
    chex.assert_trees_all_close(parts[0] + parts[1], whole, rtol=1e-13)
    for method in PROJECTIONS:
        expected = projection(method)[0](values, phi, weights)
        found = PROJECTIONS[method](parts[0] + parts[1])
        assert_allclose(found, expected, rtol=1e-10)


def test_moments_of_nothing_have_finite_means(rng):
    found = opjax.moments(
        rng.normal(size=(4, 2)), np.ones((4, 3)), quadrature_weights=np.zeros(4)
    )
    assert_array_equal(found.means(), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="with_gram"):
        found.least_squares()
