"""One- and two-level operators against dense matrices assembled subdomain by subdomain.

A case is a cover and a coarse space; its oracle works on lists of exact blocks, without
padding.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from opjax import schwarz
from opjax.problems import poisson
from tests import oracles, refused
from tests.schwarz import test_covers as covers
from tests.selection import by_day

RANK, COARSE_RANK = 2, 3
# Two triangles, joined by one edge, and a tail.
EDGES = [[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [4, 5], [5, 3], [5, 6], [6, 7], [7, 8]]


def mesh():
    labels = schwarz.partition_graph(EDGES, num_points=9, num_subdomains=3)
    return schwarz.partition_cover(labels, overlap=1, edges=EDGES)


CASES = {
    "1-D": lambda: (
        schwarz.box_cover(11, 3, overlap=1),
        schwarz.interface_hats(11, 3),
    ),
    "2-D": lambda: (
        schwarz.box_cover((5, 6), (2, 3), overlap=1),
        schwarz.uniform_hats((5, 6), (2, 2)),
    ),
    "mesh": lambda: (mesh(), mesh()),  # partition-of-unity functions as coarse space
}


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]()


def sets_of(cover):
    """Returns the points of each subdomain, without padding."""
    return [i[:m] for i, m in zip(cover.indices, cover.sizes, strict=True)]


def inputs(cover, coarse_space, rng):
    """Returns q, k, values and the two coarse factors."""
    local = (*cover.indices.shape, RANK)
    coarse = (coarse_space.num_subdomains, COARSE_RANK)
    values = (cover.num_points, 2)
    return [rng.normal(size=shape) for shape in (local, local, values, coarse, coarse)]


def one_level(q, k, sets, n):
    """Eq. 14 with the matrices of its text; rows of padding are never read."""
    r = covers.restrictions(sets, n)
    root = [np.sqrt(d) for d in covers.partitions_of_unity(sets, n)]
    matrix = np.zeros((n, n))
    for i, m in enumerate(map(len, sets)):
        matrix += r[i].T @ root[i] @ q[i][:m] @ k[i][:m].T @ root[i] @ r[i]
    return matrix


def two_level(cover, coarse_space, q, k, values, q0, k0):
    """Eq. 18 as a function of all its data."""
    coarse = functools.partial(schwarz.low_rank_attention, q0, k0)
    return schwarz.two_level_attention(
        q, k, values, cover, coarse_space=coarse_space, coarse=coarse
    )


compiled = jax.jit(two_level)


def two_level_case(cover, coarse_space):
    sets, phi = sets_of(cover), covers.dense(coarse_space)

    def oracle(q, k, values, q0, k0):
        matrix = phi @ q0 @ k0.T @ phi.T + one_level(q, k, sets, cover.num_points)
        return matrix @ values

    return functools.partial(two_level, cover, coarse_space), oracle


def one_level_case(cover, _):
    sets = sets_of(cover)

    def function(q, k, values):
        return schwarz.two_level_attention(q, k, values, cover)

    def oracle(q, k, values):
        return one_level(q, k, sets, cover.num_points) @ values

    return function, oracle


# values, gradients, transforms


def test_low_rank_attention_is_a_product_of_matrices(rng):
    args = [rng.normal(size=shape) for shape in ((7, 3), (11, 3), (11, 2))]

    def oracle(q, k, v):
        return (q @ k.T) @ v

    oracles.check(schwarz.low_rank_attention, oracle, args)
    oracles.check_transforms(schwarz.low_rank_attention, args)


@pytest.mark.parametrize("of", [one_level_case, two_level_case])
def test_matrix_free_is_the_dense_operator(case, of, rng):
    function, oracle = of(*case)
    args = inputs(*case, rng)[: 3 if of is one_level_case else 5]
    oracles.check(function, oracle, args)


@pytest.mark.nightly
def test_jit_vmap_and_single_precision_agree(rng):
    case = CASES["mesh"]()
    function = functools.partial(two_level, *case)
    oracles.check_transforms(function, inputs(*case, rng))


def test_coarse_restrict_and_prolong_are_the_matrix_of_the_functions(case, rng):
    _, coarse_space = case
    phi = covers.dense(coarse_space)
    n, n0 = phi.shape
    for function, matrix, size in (
        (schwarz.coarse_restrict, phi.T, n),
        (schwarz.coarse_prolong, phi, n0),
    ):
        args = (rng.normal(size=(size, 2)),)
        function = jax.jit(functools.partial(function, coarse_space=coarse_space))
        oracles.check(function, matrix.__matmul__, args)


def test_coarse_restrict_and_prolong_are_adjoint(case, rng):
    _, coarse_space = case
    values = rng.normal(size=(coarse_space.num_points, 2))
    coefficients = rng.normal(size=(coarse_space.num_subdomains, 2))
    coarse = jax.jit(schwarz.coarse_restrict)(values, coarse_space)
    fine = jax.jit(schwarz.coarse_prolong)(coefficients, coarse_space)
    left, right = np.vdot(coarse, coefficients), np.vdot(values, fine)
    assert_allclose(left, right, rtol=1e-12)


# local operators


def nonlinear(weight, values):
    return jnp.tanh(values @ weight) + 1


def weighted_sum(weights, values, sets, weighting):
    """A loop over exact blocks: sum_i R_i^T D_i^a tanh(D_i^b R_i f W_i) + 1."""
    n = len(values)
    result = np.zeros((n, weights.shape[-1]))
    unity = covers.partitions_of_unity(sets, n)
    for indices, d, weight in zip(sets, unity, weights, strict=True):
        after, before = (
            (np.sqrt(d), np.sqrt(d))
            if weighting == "symmetric"
            else (d, np.eye(len(d)))
        )
        image = after @ (np.tanh(before @ values[indices] @ weight) + 1)
        for j, row in zip(indices, image, strict=True):
            result[j] += row
    return result


@pytest.mark.parametrize(
    "weighting", by_day(["symmetric", "restricted"], ["restricted"])
)
def test_mapped_padded_blocks_are_a_loop_over_exact_blocks(case, weighting, rng):
    cover, _ = case
    weights = rng.normal(size=(cover.num_subdomains, 2, 3))
    values = rng.normal(size=(cover.num_points, 2))

    def function(weights, values):
        return schwarz.additive(values, cover, nonlinear, weights, weighting=weighting)

    def oracle(weights, values):
        return weighted_sum(weights, values, sets_of(cover), weighting)

    oracles.check(function, oracle, (weights, values))


@pytest.mark.parametrize("weighting", ["symmetric", "restricted"])
def test_local_identities_are_the_identity(case, weighting, rng):
    cover, _ = case
    values = rng.normal(size=(cover.num_points, 2))
    identity = functools.partial(
        schwarz.additive, local=lambda f: f, weighting=weighting
    )
    actual = jax.jit(identity)(values, cover)
    assert_allclose(actual, values, rtol=1e-14)


@pytest.mark.parametrize("weighting", ["symmetric", "restricted"])
def test_local_operators_see_zeros_on_padding(weighting):
    cover = schwarz.cover([[0, 1, 2], [2]], num_points=3)

    def count(values):
        return jnp.full_like(values, jnp.count_nonzero(values))

    function = functools.partial(schwarz.additive, local=count, weighting=weighting)
    actual = jax.jit(function)(np.ones((3, 1)), cover)
    half = np.sqrt(0.5) if weighting == "symmetric" else 0.5
    assert_allclose(actual[:, 0], [3, 3, 3 * half + half], rtol=1e-14)


@pytest.mark.parametrize("weighting", ["symmetric", "restricted"])
def test_images_on_padding_have_no_effect(weighting):
    cover = schwarz.cover([[0, 1, 2], [2]], num_points=3)
    function = functools.partial(
        schwarz.additive, local=jnp.reciprocal, weighting=weighting
    )
    actual = jax.jit(function)(np.ones((3, 1)), cover)  # infinite on padding
    assert_allclose(actual[:, 0], [1, 1, 2 if weighting == "symmetric" else 1])


def test_padding_of_factors_has_no_effect(case, rng):
    cover, _ = case
    q, k, values, *_ = inputs(*case, rng)
    padding = ~(cover.weights > 0)
    assert padding.any()
    attention = jax.jit(schwarz.two_level_attention)
    expected = attention(q, k, values, cover)

    def total(q, k):
        return schwarz.two_level_attention(q, k, values, cover).sum()

    for gradient in jax.jit(jax.grad(total, (0, 1)))(q, k):
        assert_array_equal(gradient[padding], 0)
    for factor in (q, k):
        factor[padding] = 1e6 * rng.normal(size=factor[padding].shape)
    actual = attention(q, k, values, cover)
    assert_array_equal(actual, expected)


# properties


def assembled(case, q, k, q0, k0):
    def operator(values):
        return compiled(*case, q, k, values, q0, k0)

    return np.asarray(schwarz.matrix_of(operator, case[0].num_points))


def test_equal_factors_give_a_symmetric_positive_operator(case, rng):
    q, k, _, q0, k0 = inputs(*case, rng)
    matrix = assembled(case, q, q, q0, q0)
    assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-12)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12 * np.linalg.norm(matrix)
    general = assembled(case, q, k, q0, k0)
    assert np.linalg.norm(general - general.T) > 0.1 * np.linalg.norm(general)


def test_exchanging_the_factors_gives_the_adjoint(case, rng):
    q, k, values, q0, k0 = inputs(*case, rng)
    other = rng.normal(size=values.shape)
    left = np.vdot(compiled(*case, q, k, values, q0, k0), other)
    right = np.vdot(values, compiled(*case, k, q, other, k0, q0))
    assert_allclose(left, right, rtol=1e-12)


def test_columns_are_mapped_one_by_one(case, rng):
    q, k, values, q0, k0 = inputs(*case, rng)
    together = compiled(*case, q, k, values, q0, k0)
    for i in range(2):
        alone = compiled(*case, q, k, values[:, i : i + 1], q0, k0)
        assert_allclose(together[:, i : i + 1], alone, rtol=1e-12)


def test_points_without_a_common_subdomain_need_the_coarse_space(rng):
    cover, coarse_space = CASES["1-D"]()
    q, k, _, q0, k0 = inputs(cover, coarse_space, rng)
    identity = np.eye(11)
    member = np.stack([np.isin(range(11), indices) for indices in sets_of(cover)])
    local = jax.jit(schwarz.two_level_attention)(q, k, identity, cover)
    assert_array_equal(np.asarray(local) != 0, member.T @ member)
    both = compiled(cover, coarse_space, q, k, identity, q0, k0)
    assert np.all(np.asarray(both) != 0)


def test_one_subdomain_of_all_points_is_global_attention(rng):
    cover = schwarz.box_cover(11, 1, overlap=0)
    q, k = rng.normal(size=(2, 1, 11, 3))
    values = rng.normal(size=(11, 2))
    actual = jax.jit(schwarz.two_level_attention)(q, k, values, cover)
    expected = q[0] @ k[0].T @ values
    assert_allclose(actual, expected, rtol=1e-12)


def test_a_trivial_third_level_changes_nothing(case, rng):
    q, k, values, q0, k0 = inputs(*case, rng)
    cover, coarse_space = case
    everything = schwarz.box_cover(coarse_space.num_subdomains, 1, overlap=0)

    def coarse(values):
        return schwarz.two_level_attention(q0[None], k0[None], values, everything)

    three = jax.jit(functools.partial(schwarz.two_level_attention, coarse=coarse))(
        q, k, values, cover, coarse_space=coarse_space
    )
    two = compiled(*case, q, k, values, q0, k0)
    assert_allclose(three, two, rtol=1e-12)


def test_three_levels_are_their_dense_operator(rng):
    n, n0 = 24, 7
    cover, coarse_cover = (
        schwarz.box_cover(n, 8, overlap=1),
        schwarz.box_cover(n0, 3, overlap=1),
    )
    space, coarsest = schwarz.interface_hats(n, 8), schwarz.interface_hats(n0, 3)
    q, k = (rng.normal(size=(2, *c.indices.shape, 2)) for c in (cover, coarse_cover))
    q0, k0 = rng.normal(size=(2, 2, 2))
    values = rng.normal(size=(n, 1))

    def coarse(values):
        return schwarz.two_level_attention(
            *(*k, values, coarse_cover),
            coarse_space=coarsest,
            coarse=functools.partial(schwarz.low_rank_attention, q0, k0),
        )

    actual = jax.jit(functools.partial(schwarz.two_level_attention, coarse=coarse))(
        *q, values, cover, coarse_space=space
    )
    phi, phi0 = covers.dense(space), covers.dense(coarsest)
    middle = phi0 @ q0 @ k0.T @ phi0.T + one_level(*k, sets_of(coarse_cover), n0)
    matrix = phi @ middle @ phi.T + one_level(*q, sets_of(cover), n)
    assert_allclose(actual, matrix @ values, rtol=1e-12)


def test_partition_of_unity_functions_of_a_cover_are_a_coarse_space():
    cover = mesh()
    ones = jnp.ones((cover.num_subdomains, 1))
    total = schwarz.coarse_prolong(ones, cover)
    assert_allclose(total, 1, rtol=1e-14)
    phi = covers.dense(cover)
    sets = sets_of(cover)
    matrices = zip(
        covers.restrictions(sets, 9), covers.partitions_of_unity(sets, 9), strict=True
    )
    columns = [r.T @ np.diag(d) for r, d in matrices]
    assert_array_equal(phi, np.stack(columns, axis=1))


# transforms of covers, memory


def test_covers_are_arguments_of_compiled_functions(case, rng):
    cover, coarse_space = case
    q, k, values, q0, k0 = inputs(*case, rng)

    expected = two_level_case(*case)[1](q, k, values, q0, k0)
    actual = compiled(cover, coarse_space, q, k, values, q0, k0)
    assert_allclose(actual, expected, rtol=1e-10)


def test_stacked_covers_are_mapped(rng):
    pairs = [
        (schwarz.cover(sets, num_points=5), hats)
        for sets, hats in (
            ([[0, 1, 2], [2, 3, 4]], schwarz.uniform_hats(5, 1)),
            ([[4, 0, 1], [1, 3, 2]], schwarz.interface_hats(5, 2)),
        )
    ]
    args = [inputs(*pair, rng) for pair in pairs]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *pairs)
    mapped = jax.jit(jax.vmap(two_level))
    actual = mapped(*stacked, *map(np.stack, zip(*args, strict=True)))
    for pair, arrays, image in zip(pairs, args, actual, strict=True):
        expected = two_level_case(*pair)[1](*arrays)
        assert_allclose(image, expected, rtol=1e-10)


def test_memory_is_linear_in_the_number_of_points():
    def temporary(n):
        cover = schwarz.box_cover(n, n // 256, overlap=2)
        space = schwarz.interface_hats(n, n // 256)
        n0, dtype = space.num_subdomains, jnp.float32
        shapes = (*cover.indices.shape, 4), (n, 1), (n0, 4)
        local, values, coarse = (jax.ShapeDtypeStruct(s, dtype) for s in shapes)
        lowered = compiled.lower(cover, space, local, local, values, coarse, coarse)
        analysis = lowered.compile().memory_analysis()
        if analysis is None:
            pytest.skip("this backend has no memory analysis")
        return analysis.temp_size_in_bytes

    sizes = [temporary(2**power) for power in (16, 17)]
    assert 1.8 < sizes[1] / sizes[0] < 2.2
    assert sizes[1] < 40 * 4 * 2**17  # a few vectors, no matrix


# learning


def test_the_exact_inverse_is_a_fixed_point_of_the_loss(rng):
    n = 16
    f = rng.normal(size=(n, 8))
    solve = jax.jit(jax.vmap(poisson.solve, in_axes=1, out_axes=1))
    u = solve(f)

    def weighted_mse(parameters):
        cover = schwarz.box_cover(n, 1, overlap=0)
        error = schwarz.two_level_attention(*parameters, f, cover) - u
        return jnp.mean(jnp.sum(error**2, axis=0) / jnp.sum(u**2, axis=0))

    inverse = schwarz.matrix_of(solve, n)
    exact = inverse[None], jnp.eye(n)[None]
    value_and_gradient = jax.jit(jax.value_and_grad(weighted_mse))
    loss, gradients = value_and_gradient(exact)
    assert loss < 1e-25
    _, elsewhere = value_and_gradient((1.1 * exact[0], exact[1]))
    for gradient, other in zip(gradients, elsewhere, strict=True):
        assert np.linalg.norm(gradient) < 1e-10 * np.linalg.norm(other)


# matrix_of


def test_matrix_of_an_operator_is_its_matrix(rng):
    matrix = rng.normal(size=(5, 7))
    actual = schwarz.matrix_of(lambda values: matrix @ values, 7)
    assert_array_equal(actual, matrix)


@pytest.mark.parametrize("dtype", [None, jnp.float32])
def test_matrix_of_has_the_dtype_asked_for(dtype):
    cover = schwarz.box_cover(6, 2, overlap=1)
    factors = np.ones((2, 2, 4, 1), dtype or jnp.float64)
    operator = jax.jit(functools.partial(schwarz.two_level_attention, *factors))
    matrix = schwarz.matrix_of(lambda f: operator(f, cover), 6, dtype=dtype)
    assert matrix.shape == (6, 6)
    assert matrix.dtype == (dtype or jnp.float64)


# errors

COVER = schwarz.box_cover(11, 3, overlap=1)
HATS = schwarz.interface_hats(11, 3)
Q, K, V = np.ones((3, 6, 2)), np.ones((3, 6, 2)), np.ones((11, 1))
test_bad_input_is_named_in_the_error = refused.calls(
    (
        lambda: schwarz.low_rank_attention(Q[0], K[0], V),
        r"points.*key \(6, 2\), value \(11, 1\)",
    ),
    (
        lambda: schwarz.low_rank_attention(Q[0, :, :1], K[0], V[:6]),
        r"query \(6, 1\), key \(6, 2\)",
    ),
    (
        lambda: schwarz.low_rank_attention(Q, K, V),
        r"query has shape \(3, 6, 2\), expected 2 axes",
    ),
    (
        lambda: schwarz.low_rank_attention(Q[0], K[0].astype(int), V[:6]),
        "key has dtype int64",
    ),
    (
        lambda: schwarz.additive(V[1:], COVER, nonlinear),
        r"values \(10, 1\) must have one row for each of the 11 points",
    ),
    (
        lambda: schwarz.additive(V[:, 0], COVER, nonlinear),
        r"values has shape \(11,\)",
    ),
    (
        lambda: schwarz.additive(V.astype(int), COVER, nonlinear),
        "values has dtype int64",
    ),
    (
        lambda: schwarz.additive(V, COVER, nonlinear, np.ones((2, 1, 1))),
        r"Argument 0 .* shape \(2, 1, 1\); expected one slice for each of the 3 sub",
    ),
    (
        lambda: schwarz.additive(V, COVER, nonlinear, Q, 1.0),
        r"Argument 1 .* shape \(\)",
    ),
    (
        lambda: schwarz.additive(V, COVER, nonlinear, weighting="left"),
        "weighting='left' is unknown; choose from 'symmetric', 'restricted'",
    ),
    (
        lambda: schwarz.coarse_restrict(V[1:], HATS),
        r"values \(10, 1\) must have one row for each of the 11 points",
    ),
    (
        lambda: schwarz.coarse_restrict(V.astype(int), HATS),
        "values has dtype int64",
    ),
    (
        lambda: schwarz.coarse_prolong(np.ones((3, 1)), HATS),
        r"coefficients \(3, 1\) must have one row for each of the 2 functions",
    ),
    (
        lambda: schwarz.coarse_prolong(np.ones(2), HATS),
        r"coefficients has shape \(2,\)",
    ),
    (
        lambda: schwarz.coarse_prolong(np.ones((2, 1), int), HATS),
        "coefficients has dtype int64",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K, V, COVER, coarse_space=HATS),
        "both coarse_space and coarse",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K, V, COVER, coarse=lambda c: c),
        "both coarse_space and coarse",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K[1:], V, COVER),
        r"Argument 1 .* shape \(2, 6, 2\)",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K[:, 1:], V, COVER),
        r"key \(5, 2\), value \(6, 1\)",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K[..., 1:], V, COVER),
        r"query \(6, 2\), key \(6, 1\)",
    ),
    (
        lambda: schwarz.two_level_attention(Q, K, V[1:], COVER),
        r"\(10, 1\) must have one row for each of the 11 points",
    ),
    (
        lambda: schwarz.two_level_attention(Q.astype(int), K, V, COVER),
        "query has dtype int64",
    ),
)
