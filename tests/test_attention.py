"""Functional attention and its baselines: values, gradients, and the paper's claims."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import opjax
from opjax.attention import functional
from tests import oracles, refused
from tests.selection import by_day

M, N, D, C, KQ, KK = 7, 11, 4, 2, 3, 5
REGULARIZATIONS = {"additive": opjax.Additive, "convex": opjax.Convex}
# Name: projection, regularisation, what the oracle calls them.
OPTIONS = {
    "transpose": (opjax.InnerProducts(), opjax.Additive, {}),
    "mean": (opjax.Means(), opjax.Additive, {"method": "mean"}),
    "pseudo_inverse": (
        opjax.LeastSquares(0.2),
        opjax.Additive,
        {"method": "pseudo_inverse", "ridge": 0.2},
    ),
    "convex": (opjax.InnerProducts(), opjax.Convex, {}),
}


def attention(options):
    """Returns functional attention and its oracle, with weights and ridge as data."""
    kind, regularization, projection = options

    def function(*args):
        *features, query_weights, key_weights, ridge = args
        return opjax.functional_attention(
            *features,
            ridge=regularization(ridge),
            projection=kind,
            query_weights=query_weights,
            key_weights=key_weights,
        )

    def oracle(*args):
        *features, phi, psi, query_weights, key_weights, ridge = args
        triples = zip(
            features,
            (phi, psi, psi),
            (query_weights, key_weights, key_weights),
            strict=True,
        )
        q, k, v = (oracles.project(*triple, **projection) for triple in triples)
        convex = regularization is opjax.Convex
        c = oracles.functional_map(q, k, ridge=ridge, convex=convex)
        return phi @ (c @ v)

    return function, oracle


def normal(*shape):
    return lambda rng: rng.normal(size=shape)


def positive(*shape):
    return lambda rng: rng.uniform(0.5, 1.5, shape)


def ridge(rng):
    return np.array(0.3)


POINTS = (normal(M, D), normal(N, D), normal(N, C))
BASES = (positive(M, KQ), positive(N, KK), positive(M), positive(N))

# Name: function, oracle, makers of its arguments.
CASES = {
    **{
        f"map {name}": (
            lambda q, k, r, form=form: opjax.functional_map(q, k, ridge=form(r)),
            lambda q, k, r, name=name: oracles.functional_map(
                q, k, ridge=r, convex=name == "convex"
            ),
            (normal(KQ, D), normal(KK, D), ridge),
        )
        for name, form in REGULARIZATIONS.items()
    },
    **{
        f"transport {kk} functions": (
            lambda q, k, v, r: opjax.transport(q, k, v, ridge=r),
            lambda q, k, v, r: oracles.functional_map(q, k, ridge=r) @ v,
            (normal(KQ, D), normal(kk, D), normal(kk, C), ridge),
        )
        for kk in (2, 6)  # fewer and more than channels
    },
    **{
        f"functional {name}": (*attention(options), (*POINTS, *BASES, ridge))
        for name, options in OPTIONS.items()
    },
    "intention": (
        lambda q, k, v, r: opjax.intention(q, k, v, ridge=r),
        lambda q, k, v, r: oracles.intention(q, k, v, ridge=r),
        (*POINTS, ridge),
    ),
    "intention weighted": (
        lambda q, k, v, w, r: opjax.intention(q, k, v, ridge=r, key_weights=w),
        lambda q, k, v, w, r: oracles.intention(q, k, v, w, ridge=r),
        (*POINTS, positive(N), ridge),
    ),
    "softmax": (opjax.softmax_attention, oracles.softmax_attention, POINTS),
    "softmax weighted": (
        lambda q, k, v, w: opjax.softmax_attention(q, k, v, key_weights=w),
        oracles.softmax_attention,
        (*POINTS, positive(N)),
    ),
    "softmax wide values": (
        opjax.softmax_attention,
        oracles.softmax_attention,
        (normal(M, 2), normal(N, 2), normal(N, 5)),
    ),
}


@pytest.fixture(params=CASES)
def case(request, rng):
    function, oracle, makers = CASES[request.param]
    return function, oracle, [make(rng) for make in makers]


def test_value_and_gradient_match_the_oracle(case):
    oracles.check(*case)


@pytest.mark.parametrize("case", by_day(CASES, list(CASES)[::4]), indirect=True)
def test_jit_vmap_and_single_precision_agree(case):
    function, _, args = case
    oracles.check_transforms(function, args, rtol32=1e-3)


@pytest.mark.parametrize("name", ["functional transpose", "softmax weighted"])
def test_bfloat16_stays_bfloat16(rng, name):
    function, oracle, makers = CASES[name]
    args = [make(rng) for make in makers]
    actual = jax.jit(function)(*[jnp.asarray(a, jnp.bfloat16) for a in args])
    assert actual.dtype == jnp.bfloat16
    expected = oracle(*args)
    error = np.linalg.norm(np.asarray(actual, float) - expected)
    assert error < 0.05 * np.linalg.norm(expected)


# functional maps


def test_map_vanishes_as_the_ridge_grows(rng):
    query, key = rng.normal(size=(KQ, D)), rng.normal(size=(KK, D))
    maps = {r: opjax.functional_map(query, key, ridge=r) for r in (0.1, 1, 10, 1e8)}
    norms = [np.linalg.norm(operator) for operator in maps.values()]
    assert norms == sorted(norms, reverse=True)
    assert_allclose(1e8 * maps[1e8], query @ key.T, rtol=1e-6)


def test_map_of_key_onto_itself_tends_to_the_identity(rng):
    key = rng.normal(size=(3, 5))
    operator = opjax.functional_map(key, key, ridge=1e-10)
    assert_allclose(operator, np.eye(3), atol=1e-8)


@pytest.mark.parametrize("alpha", [-3.0, 0.0, 2.0])
def test_convex_map_is_a_scaled_additive_map(rng, alpha):
    # The reference code's a = sigmoid(alpha) against lambda = exp(alpha) of Eq. 6.
    query, key = rng.normal(size=(KQ, D)), rng.normal(size=(KK, D))
    weight = 1 / (1 + np.exp(-alpha))
    convex = opjax.functional_map(query, key, ridge=opjax.Convex(weight))
    additive = opjax.functional_map(query, key, ridge=np.exp(alpha))
    assert_allclose(convex, (1 + np.exp(alpha)) * additive, rtol=1e-10)


def test_the_map_explains_the_output(sample, weights):
    q, k, v, phi, psi = sample
    options = {"ridge": 0.1, "query_weights": weights[0], "key_weights": weights[1]}
    plain = opjax.functional_attention(*sample, **options)
    found = jax.jit(lambda *args: opjax.functional_attention_map(*args, **options))(
        q, k, phi, psi
    )
    assert_array_equal(found.query_basis, phi)
    assert_array_equal(found.key_basis, psi)
    assert found.functional_map.shape == (KQ, KK)
    coefficients = found.functional_map @ oracles.project(v, psi, weights[1])
    assert_allclose(phi @ coefficients, plain, rtol=1e-9)


# invariances


def test_intention_is_functional_attention_in_any_orthonormal_basis(rng):  # Prop. A.4
    q, k, v = rng.normal(size=(3, 8, D))
    phi, _ = np.linalg.qr(rng.normal(size=(8, 8)))
    actual = opjax.functional_attention(q, k, v, phi, phi, ridge=0.1)
    expected = opjax.intention(q, k, v, ridge=0.1)
    assert_allclose(actual, expected, rtol=1e-8, atol=1e-10)


def test_a_gram_matrix_and_products_have_the_ridge_regression_of_the_points(rng):
    key, value = rng.normal(size=(8, D)), rng.normal(size=(8, 3))
    actual = functional.regression(key.T @ key, key.T @ value, ridge=0.1)
    expected = oracles.ridge_lstsq(key, value, ridge=0.1)
    assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["transpose", "pseudo_inverse", "convex"])
def test_rotating_the_bases_leaves_the_output_unchanged(sample, weights, rng, name):
    function, _ = attention(OPTIONS[name])
    q, k, v, phi, psi = sample
    first, _ = np.linalg.qr(rng.normal(size=(KQ, KQ)))
    second, _ = np.linalg.qr(rng.normal(size=(KK, KK)))
    expected = function(*sample, *weights, 0.1)
    rotated = function(q, k, v, phi @ first, psi @ second, *weights, 0.1)
    assert_allclose(rotated, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", OPTIONS)
def test_permuting_points_permutes_queries_and_nothing_else(rng, name):
    function, _ = attention(OPTIONS[name])
    q, k, v, phi, psi, wq, wk = (make(rng) for make in (*POINTS, *BASES))
    expected = function(q, k, v, phi, psi, wq, wk, 0.1)
    i, j = rng.permutation(M), rng.permutation(N)
    permuted = function(q[i], k[j], v[j], phi[i], psi[j], wq[i], wk[j], 0.1)
    assert_allclose(permuted, expected[i], rtol=1e-9, atol=1e-11)


def test_weights_of_softmax_attention_are_numbers_of_copies(rng):
    q, k, v = (make(rng) for make in POINTS)
    copies = np.array([1, 2, 0, 3, 1, 0, 1, 4, 1, 1, 2])
    actual = opjax.softmax_attention(q, k, v, key_weights=copies.astype(float))
    repeated = np.repeat(k, copies, axis=0), np.repeat(v, copies, axis=0)
    assert_allclose(actual, opjax.softmax_attention(q, *repeated), rtol=1e-10)


# padding


def padded_and_not(rng, pads):
    """Returns arguments of `attention`, without and with three more points."""
    args = [make(rng) for make in (*POINTS, *BASES)]
    padded = list(args)
    for i, fill in pads.items():
        padded[i] = np.concatenate([args[i], np.full((3, *args[i].shape[1:]), fill)])
    return args, padded


def check_equal_on_real_points(function, args, padded):
    def energy(*args):
        output = function(*args)[:M]
        return jnp.sum(output**3), output

    grad = jax.jit(jax.grad(energy, argnums=tuple(range(7)), has_aux=True))
    (gradients, output), (padded_gradients, padded_output) = grad(*args), grad(*padded)
    assert_allclose(padded_output, output, rtol=1e-9, atol=1e-11)
    for expected, actual in zip(gradients, padded_gradients, strict=True):
        close = {"rtol": 1e-8, "atol": 1e-9 * np.max(np.abs(expected))}
        assert_allclose(actual[: len(expected)], expected, **close)
        assert_array_equal(actual[len(expected) :], 0)


@pytest.mark.parametrize("name", by_day(OPTIONS, ["mean"]))
def test_padded_points_change_neither_value_nor_gradient(rng, name):
    # At the mesh points everything may be NaN; at the query points the features, but
    # not the basis, since the output is asked there.
    mesh = {1: np.nan, 2: np.nan, 4: np.nan, 6: 0.0}
    args, padded = padded_and_not(rng, {0: np.nan, 3: 0.25, 5: 0.0, **mesh})
    function, _ = attention(OPTIONS[name])
    check_equal_on_real_points(lambda *args: function(*args, 0.1), args, padded)


def test_padded_points_do_not_change_softmax_attention(rng):
    def function(q, k, v, phi, psi, query_weights, key_weights):
        return opjax.softmax_attention(q, k, v, key_weights=key_weights)

    args, padded = padded_and_not(rng, {1: np.nan, 2: np.nan, 6: 0.0})
    check_equal_on_real_points(function, args, padded)


def test_padded_points_do_not_change_intention(rng):
    def function(q, k, v, phi, psi, query_weights, key_weights):
        return opjax.intention(q, k, v, ridge=0.1, key_weights=key_weights)

    args, padded = padded_and_not(rng, {1: np.nan, 2: np.nan, 6: 0.0})
    check_equal_on_real_points(function, args, padded)


def test_softmax_attention_to_no_point_is_zero_without_gradient(rng):
    def energy(q, k, v, w):
        output = opjax.softmax_attention(q, k, v, key_weights=w)
        return jnp.sum((output + 1) ** 2), output

    args = [jnp.asarray(make(rng)) for make in POINTS]
    grad = jax.jit(jax.grad(energy, argnums=(0, 1, 2, 3), has_aux=True))
    gradients, output = grad(*args, jnp.zeros(N))
    assert_array_equal(output, 0)
    for gradient in gradients:
        assert_array_equal(gradient, 0)


# refinement


@pytest.mark.parametrize(
    ("name", "weighted", "order"),
    by_day(
        [
            ("transpose", True, 2),
            ("mean", True, 2),
            ("pseudo_inverse", True, 2),
            ("mean", False, 1),
        ],
        day=[("pseudo_inverse", True, 2)],
    ),
)
def test_refinement_converges_at_the_order_of_the_quadrature(name, weighted, order):
    def output(n):
        x = np.linspace(0, 1, n)
        q = np.stack([np.sin(2 * x), np.exp(-x)], axis=1)
        k = np.stack([np.cos(3 * x), x**2], axis=1)
        v = np.stack([np.exp(x)], axis=1)
        phi = oracles.softmax_rows(np.stack([x, np.sin(3 * x), 1 - x**2], axis=1))
        w = oracles.trapezoid_axis(n, 1.0) if weighted else None
        attend = functools.partial(
            opjax.functional_attention,
            ridge=1e-2,
            projection=OPTIONS[name][0],
            query_weights=w,
            key_weights=w,
        )
        all_points = jax.jit(attend)(q, k, v, phi, phi)
        return all_points[:: (n - 1) // 8]  # the nine points of the coarsest mesh

    outputs = [output(n) for n in (33, 65, 129)]
    first, second = (
        np.linalg.norm(b - a) for a, b in zip(outputs, outputs[1:], strict=False)
    )
    assert_allclose(np.log2(first / second), order, atol=0.1)
    assert second < 1e-2 * np.linalg.norm(outputs[-1])


# continuity


def norm(matrix):
    return np.linalg.norm(matrix, 2)


@pytest.fixture(scope="module")
def layer():
    """Returns X, the weights, and the norm of the differential as a function of lambda.

    The layer of Prop. 4.5; more basis functions than channels, so that the system is
    singular without ridge.
    """
    n, d, k = 8, 2, 4
    rng = np.random.default_rng(3)
    x = rng.normal(size=(n, d))
    weights = [rng.normal(size=(d, width)) for width in (d, d, d, k, k)]
    return x, weights, differential_norm(x, weights)


def differential_norm(x, weights):
    def attend(x, ridge):
        q, key, v, phi, psi = (x @ jnp.asarray(w) for w in weights)
        phi, psi = opjax.softmax_basis(phi), opjax.softmax_basis(psi)
        return opjax.functional_attention(q, key, v, phi, psi, ridge=ridge)

    jacobian = jax.jit(jax.jacobian(attend))
    return lambda r: norm(np.reshape(jacobian(x, r), (x.size, x.size)))


@pytest.mark.parametrize("ridge", [1e-3, 1e-1, 1e1, 1e3])
def test_differential_obeys_the_bound_of_the_paper(layer, ridge):
    x, weights, differential = layer
    n, b = len(x), norm(x)
    wq, wk, wv, wphi, wpsi = map(norm, weights)
    softmax_constant = 0.5  # |diag(p) - p p^T| <= 1/2, at temperature one
    phi, psi = softmax_constant * b * wphi, softmax_constant * b * wpsi
    # Eq. 44 and 45; the product of the factors in Eq. 42 is n^(5/2), not its n^3.
    c1 = n**1.5 * b**2 * wq * wk * wv * (2 * phi + 2 * psi + 3 * n**0.5)
    c2 = 2 * n**2.5 * b**4 * (psi + n**0.5) * wq * wk**3 * wv
    measured = differential(ridge)
    assert 0 < measured <= c1 / ridge + c2 / ridge**2


def test_differential_falls_as_one_over_a_large_ridge(layer):
    *_, differential = layer
    large = differential(1e4), differential(1e5)
    assert_allclose(np.log10(large[1] / large[0]), -1, atol=1e-2)


def test_differential_grows_no_faster_than_one_over_a_small_ridge_squared(layer):
    *_, differential = layer
    small = np.array([differential(ridge) for ridge in (1e-2, 1e-4, 1e-6)])
    slopes = np.diff(np.log10(small)) / -2
    assert np.all(slopes >= -2)


def test_differential_of_generic_data_stays_bounded_without_ridge(layer):
    # The bound of the paper is not sharp: coefficients of full rank need no ridge.
    *_, differential = layer
    assert_allclose(differential(1e-8), differential(1e-5), rtol=1e-4)


def test_differential_at_keys_of_deficient_rank_grows_as_the_ridge_falls():
    # The values have a channel that no key sees, and the second input vanishes: moving
    # it opens a direction of the keys, in which the ridge alone bounds the fit.
    rng = np.random.default_rng(0)
    n, d, k = 8, 3, 4
    x = rng.normal(size=(n, d))
    weights = [rng.normal(size=(d, width)) for width in (d, d, d, k, k)]
    x[:, 1] = 0
    weights[1][2] = 0
    differential = differential_norm(x, weights)
    growing = np.array([differential(ridge) for ridge in (1e-2, 1e-4, 1e-6)])
    orders = np.diff(np.log10(growing)) / 2
    assert np.all((orders >= 0.9) & (orders <= 2))


# errors

Q, K, V, PHI, PSI = (np.ones(s) for s in [(M, D), (N, D), (N, C), (M, KQ), (N, KK)])
BAD_FEATURES = {
    "query points": ((Q[1:], K, V, PHI, PSI), r"query \(6, 4\), query_basis \(7, 3\)"),
    "key points": ((Q, K[1:], V, PHI, PSI), r"key \(10, 4\), value \(11, 2\)"),
    "key basis": ((Q, K, V, PHI, PSI[1:]), r"key_basis \(10, 5\)"),
    "channels": (
        (Q, K[:, 1:], V, PHI, PSI),
        r"channels.*query \(7, 4\), key \(11, 3\)",
    ),
    "axes": ((Q, K, V[:, 0], PHI, PSI), r"value has shape \(11,\)"),
    **{
        f"{name} dtype": (
            tuple(
                a.astype(int) if i == j else a
                for j, a in enumerate((Q, K, V, PHI, PSI))
            ),
            f"^{name} has dtype int64",
        )
        for i, name in enumerate(("query", "key", "value", "query_basis", "key_basis"))
    },
}
BAD_OPTIONS = {
    "ridge": ({"ridge": -0.1}, "ridge=-0.1 must be non-negative"),
    "convex": ({"ridge": opjax.Convex(1.1)}, "ridge=1.1 must be at most 1"),
    "query weights": (
        {"query_weights": np.ones(N)},
        r"query \(7, 4\), query_weights \(11,\)",
    ),
    "key weights": ({"key_weights": np.ones(M)}, r"key \(11, 4\), key_weights \(7,\)"),
    "projection ridge": ({"projection": opjax.LeastSquares(-1.0)}, "^ridge=-1.0"),
    "negative query weights": ({"query_weights": -np.ones(M)}, r"^query_weights="),
    "negative key weights": ({"key_weights": -np.ones(N)}, r"^key_weights="),
}


@pytest.mark.parametrize("case", BAD_FEATURES)
def test_bad_features_are_named_in_the_error(case):
    args, message = BAD_FEATURES[case]
    error = TypeError if "dtype" in case else ValueError
    with pytest.raises(error, match=message):
        opjax.functional_attention(*args, ridge=0.1)


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_named_in_the_error(case):
    options, message = BAD_OPTIONS[case]
    with pytest.raises(ValueError, match=message):
        opjax.functional_attention(Q, K, V, PHI, PSI, **{"ridge": 0.1, **options})


test_bad_input_is_named_in_the_error = refused.calls(
    (
        lambda: opjax.functional_map(Q, K[:, 1:], ridge=0.1),
        r"channels.*query \(7, 4\), key \(11, 3\)",
    ),
    (lambda: opjax.functional_map(Q, K, ridge=-1.0), "ridge=-1.0"),
    (
        lambda: opjax.functional_map(Q.astype(int), K, ridge=0.1),
        "query has dtype int64",
    ),
    (
        lambda: opjax.transport(Q, K, V[1:], ridge=0.1),
        r"basis functions.*key \(11, 4\), value \(10, 2\)",
    ),
    (
        lambda: opjax.transport(Q, K, V.astype(int), ridge=0.1),
        "value has dtype int64",
    ),
    (
        lambda: opjax.intention(Q, K, V[1:], ridge=0.1),
        r"points.*key \(11, 4\), value \(10, 2\)",
    ),
    (lambda: opjax.intention(Q, K, V, ridge=-1.0), "ridge=-1.0"),
    (
        lambda: opjax.softmax_attention(Q, K, V[1:]),
        r"points.*key \(11, 4\), value \(10, 2\)",
    ),
    (
        lambda: opjax.softmax_attention(Q, K[:, 1:], V),
        r"channels.*query \(7, 4\), key \(11, 3\)",
    ),
    (
        lambda: opjax.softmax_attention(Q, K, V, key_weights=np.ones(M)),
        r"key_weights \(7,\), key \(11, 4\)",
    ),
    (
        lambda: opjax.functional_attention(
            Q, K, V, PHI, PSI, ridge=0.1, query_weights=np.ones(M, int)
        ),
        "^query_weights has dtype int64",
    ),
    (
        lambda: opjax.functional_attention(
            Q, K, V, PHI, PSI, ridge=0.1, key_weights=np.ones(N, int)
        ),
        "^key_weights has dtype int64",
    ),
    (
        lambda: opjax.intention(Q, K, V.astype(int), ridge=0.1),
        "value has dtype int64",
    ),
    (
        lambda: opjax.intention(Q, K, V, ridge=0.1, key_weights=np.ones(M)),
        r"key_weights \(7,\), key \(11, 4\)",
    ),
    (
        lambda: opjax.intention(Q, K, V, ridge=0.1, key_weights=-np.ones(N)),
        "key_weights=.* must be non-negative",
    ),
    (
        lambda: opjax.softmax_attention(Q, K, V, key_weights=-np.ones(N)),
        "key_weights=.* must be non-negative",
    ),
    (
        lambda: opjax.softmax_attention(Q, K, V, key_weights=np.ones(N, int)),
        "key_weights has dtype int64",
    ),
)
